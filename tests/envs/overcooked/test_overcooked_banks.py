"""Banks of histories and rosters on disk: what is paired, what is refused, what damage is named."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jaxmarl")

from safetensors.numpy import save

from sprii_envs.banks import StoreError, open_store
from sprii_envs.overcooked.bank import (
    COLUMNS,
    HistoryBank,
    HistoryProtocol,
    Run,
    open_histories,
    planned,
    write_histories,
)
from sprii_envs.overcooked.collect import Histories
from sprii_envs.overcooked.game import ACTIONS, Game
from sprii_envs.overcooked.partners.network import shapes
from sprii_envs.overcooked.partners.partner import Partner
from sprii_envs.overcooked.partners.roster import FORMAT, Roster, load_roster, row, shipped, write_roster
from sprii_envs.relations import SAME_SYSTEM, Derangement, PairSampler

GAME = Game(max_steps=12)
DAMAGE = [b"", b'{"format": "sprii', b"[" * 200_000, b"[]", b"\xff\xfe\x00"]
"""What a kill, a full disk or somebody else leaves in a file."""


def neural(name: str, source: int, checkpoint: int, *, held_out: bool = False) -> Partner:
    rng = np.random.default_rng([source, checkpoint])
    made = {k: rng.normal(0.0, 0.2, s).astype(np.float32) for k, s in shapes(1000, 8, len(ACTIONS)).items()}
    return Partner(name, "ippo", {}, made, source, checkpoint, held_out)


ROSTER = Roster(
    [
        neural("a-0", 0, 1),
        neural("a-1", 0, 2),
        neural("b-0", 1, 1, held_out=True),
        Partner("often", "signaller", {"every": 4}),
    ]
)
PROTOCOL = HistoryProtocol(game=GAME, seat=1, runs=1, histories=3, episodes=5, kitchens=3, iterations=5)


def played(run: Run) -> Histories:
    rng = np.random.default_rng(run.number)
    seen = rng.integers(0, 2, (3, 5, 12, *GAME.shape), dtype=np.uint8)
    mine, theirs = rng.integers(0, 6, (2, 3, 5, 12), dtype=np.uint8)
    return Histories(seen, mine, theirs, rng.choice([0.0, -5.0], (3, 5, 12)).astype(np.float32))


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> HistoryBank:
    return write_histories(tmp_path_factory.mktemp("histories") / "bank", PROTOCOL, ROSTER, "here", played)


def test_the_table_says_who_played(bank: HistoryBank):
    table = bank.table
    assert len(table) == 3 * (3 + 3) + 3
    counts = {(p, s): int(((table["partner"] == p) & (table["split"] == s)).sum()) for p in ROSTER.names
              for s in ("train", "validation", "held_out")}  # fmt: skip
    assert counts == {
        **{(p, s): n for p in ("a-0", "a-1", "often") for s, n in (("train", 3), ("validation", 3), ("held_out", 0))},
        **{("b-0", s): n for s, n in (("train", 0), ("validation", 0), ("held_out", 3))},
    }
    assert bank.observations.shape == (21, 5, 12, *GAME.shape)
    for run in planned(PROTOCOL, ROSTER):
        rows = table["episode"][table["run"] == run.number]
        assert set(table["partner"][table["run"] == run.number]) == {ROSTER[run.partner].name}
        np.testing.assert_array_equal(bank.actions[rows], played(run).actions)


def test_related_histories_share_a_partner_and_random_ones_do_not(bank: HistoryBank):
    table = bank.split("train")
    same = PairSampler(table, SAME_SYSTEM, seed=0).batch(0, 64)
    assert (table["partner"][same.donor] == table["partner"][same.recipient]).all()
    assert (same.donor != same.recipient).all()
    wrong = PairSampler(table, SAME_SYSTEM, Derangement(), seed=0).batch(0, 8)
    assert (table["partner"][wrong.donor] != table["partner"][wrong.recipient]).all()


def test_a_bank_is_opened_for_what_it_is(bank: HistoryBank, tmp_path: Path):
    assert open_histories(tmp_path / "bank", PROTOCOL, ROSTER, "here") is None
    again = write_histories(tmp_path / "bank", PROTOCOL, ROSTER, "here", played)
    assert again.fingerprint == bank.fingerprint
    found = open_histories(tmp_path / "bank", PROTOCOL, ROSTER, "here")
    assert found is not None
    assert found.protocol == PROTOCOL
    for other in (
        (replace(PROTOCOL, seed=1), ROSTER, "here"),
        (PROTOCOL, Roster(ROSTER[:3]), "here"),
        (PROTOCOL, ROSTER, "elsewhere"),
    ):
        with pytest.raises(StoreError, match="another protocol or of other partners"):
            open_histories(tmp_path / "bank", *other)
    found.verify()
    path = tmp_path / "bank" / "actions.u8"
    path.write_bytes(path.read_bytes()[:-1] + b"\7")
    with pytest.raises(StoreError, match=r"actions\.u8 is damaged: its checksum"):
        found.verify()
    table = (tmp_path / "bank" / "episodes.npz").read_bytes()
    (tmp_path / "bank" / "episodes.npz").unlink()
    with pytest.raises(StoreError, match=r"episodes\.npz is missing"):
        HistoryBank(tmp_path / "bank")
    (tmp_path / "bank" / "episodes.npz").write_bytes(table)
    path = tmp_path / "bank" / "rewards.f32"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(StoreError, match=r"rewards\.f32"):
        HistoryBank(tmp_path / "bank")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bank"]


@pytest.mark.parametrize("content", DAMAGE)
@pytest.mark.parametrize("name", ["bank.json", "episodes.npz", "rewards.f32"])
def test_damage_is_told_of_with_the_file(name: str, content: bytes, bank: HistoryBank, tmp_path: Path):
    folder = shutil.copytree(bank.folder, tmp_path / "bank")
    size = (folder / name).stat().st_size
    for damage in (content, (content * size)[:size]):  # also where its size tells nothing
        (folder / name).write_bytes(damage)
        with pytest.raises(StoreError, match=f"{name} .*build the bank anew"):
            HistoryBank(folder).verify()


@pytest.mark.parametrize("key", ["streams", "origin", "files", "fingerprint"])
def test_all_of_the_manifest_is_verified(key: str, bank: HistoryBank, tmp_path: Path):
    folder = shutil.copytree(bank.folder, tmp_path / "bank")
    opened, told = HistoryBank(folder), json.loads((folder / "bank.json").read_text(encoding="utf-8"))
    edits = {"origin": told["origin"] | {"identity": "0"}, "files": told["files"] | {"../../etc/hostname": {}}}
    told[key] = edits.get(key, "another")
    (folder / "bank.json").write_text(json.dumps(told), encoding="utf-8")
    for read in (opened.verify, lambda: HistoryBank(folder)):
        with pytest.raises(StoreError, match=r"bank\.json is damaged or edited"):
            read()


def test_what_was_opened_stays_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    opened = write_histories("bank", PROTOCOL, ROSTER, "here", played)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    opened.verify()
    before = opened.actions.copy()
    with pytest.raises(StoreError, match="exists; choose another folder or remove it"):
        write_histories(tmp_path / "bank", PROTOCOL, ROSTER, "there", played)
    shutil.rmtree(tmp_path / "bank")
    other = write_histories(tmp_path / "bank", PROTOCOL, ROSTER, "there", lambda run: played(run._replace(number=99)))
    assert not np.array_equal(other.actions, before)
    np.testing.assert_array_equal(opened.actions, before)
    with pytest.raises(StoreError, match="another bank than when it was opened"):
        opened.verify()


def test_a_bank_that_is_replaced_after_it_was_opened_is_refused_not_mixed(bank: HistoryBank, tmp_path: Path):
    """Its observations are read from their file, which is another's by then."""
    place = Path(shutil.copytree(bank.path, tmp_path / "bank"))
    opened = HistoryBank(place)
    before = opened.windows("observations", [0], [0], 5)
    shutil.rmtree(place)
    with pytest.raises(StoreError, match=r"observations\.u8 cannot be read: No such file"):
        opened.windows("observations", [0], [0], 5)
    write_histories(place, replace(PROTOCOL, seed=1), ROSTER, "here", lambda run: played(run._replace(number=9)))
    with pytest.raises(StoreError, match=f"{place} holds another bank than when it was opened; open it again"):
        opened.windows("observations", [0], [0], 5)
    again = HistoryBank(place).windows("observations", [0], [0], 5)
    assert (again != before).any()


def test_an_empty_folder_is_filled_and_a_link_stays_a_link(tmp_path: Path):
    (tmp_path / "big").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "big")
    write_histories(tmp_path / "link", PROTOCOL, ROSTER, "here", played).verify()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "big" / "bank.json").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["big", "link"]


def test_stopped_writing_goes_on_behind_the_last_history(bank: HistoryBank, tmp_path: Path):
    asked: list[int] = []

    def read(run: Run) -> Histories:
        asked.append(run.number)
        if asked == [0, 1, 2]:
            raise KeyboardInterrupt
        return played(run)

    with pytest.raises(KeyboardInterrupt):
        write_histories(tmp_path / "bank", PROTOCOL, ROSTER, "here", read)
    journal = tmp_path / "bank.partial" / "journal.jsonl"
    journal.write_text("".join(journal.read_text(encoding="utf-8").splitlines(keepends=True)[:-1]), encoding="utf-8")
    with pytest.raises(StoreError, match=r"of other streams or another origin \(what it was made of .*\); remove it"):
        write_histories(tmp_path / "bank", PROTOCOL, ROSTER, "there", played)
    assert open_histories(tmp_path / "bank", PROTOCOL, ROSTER, "here") is None
    again = write_histories(tmp_path / "bank", PROTOCOL, ROSTER, "here", read)
    assert again.fingerprint == bank.fingerprint
    assert asked == [0, 1, 2, *range(1, 7)]
    assert [path.name for path in tmp_path.iterdir()] == ["bank"]


def test_a_folder_of_the_format_before_is_told_of(bank: HistoryBank, tmp_path: Path):
    folder = shutil.copytree(bank.folder, tmp_path / "bank")
    told = json.loads((folder / "bank.json").read_text(encoding="utf-8")) | {"schema": 3}
    (folder / "bank.json").write_text(json.dumps(told), encoding="utf-8")
    for read in (HistoryBank, open_store, lambda path: open_histories(path, PROTOCOL, ROSTER, "here")):
        with pytest.raises(StoreError, match="schema 3; this reads 'sprii-histories', schema 4; remove the folder and"):
            read(folder)


OPENED = """
import sys
from sprii_envs.banks import open_store
assert not {"jax", "sprii_envs.overcooked"} & set(sys.modules)
print(type(open_store(sys.argv[1])).__name__)
"""


def test_the_extra_is_imported_when_such_a_folder_is_opened(bank: HistoryBank):
    done = subprocess.run([sys.executable, "-c", OPENED, bank.name], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("HistoryBank\n", 0), done.stderr


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("years", encoding="utf-8")
    with pytest.raises(StoreError, match="is no bank of histories, but not empty"):
        open_histories(tmp_path, PROTOCOL, ROSTER, "here")
    with pytest.raises(StoreError, match="exists; choose another folder or remove it"):
        write_histories(tmp_path, PROTOCOL, ROSTER, "here", played)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_run_of_another_shape_makes_no_bank(tmp_path: Path):
    for cut, message in (
        (np.s_[:, :4], r"episode 0: 'observations' is uint8 of shape \(4, 12"),
        (np.s_[:2], "run 0 has 2 histories, expected 3"),
    ):
        with pytest.raises(StoreError, match=message):
            write_histories(
                tmp_path / "bank", PROTOCOL, ROSTER, "here",
                lambda run, cut=cut: Histories(*(getattr(played(run), name)[cut] for name in COLUMNS)),
            )  # fmt: skip
        assert not (tmp_path / "bank").exists()


def test_what_is_kept_of_a_run():
    assert PROTOCOL.kept() == [0, 1, 2, 3, 4]
    kept = HistoryProtocol().kept()
    assert (kept[0], kept[-1], len(set(kept))) == (0, 99, 15)
    assert set(np.diff(kept)) == {7, 8}
    splits = [run.split for run in planned(HistoryProtocol(), ROSTER)]
    assert splits == ["train", "train", "validation"] * 2 + ["held_out"] + ["train", "train", "validation"]


@pytest.mark.parametrize("changes", [{"seat": 2}, {"iterations": 4}, {"kitchens": 2}, {"runs": 0}, {"histories": True}])
def test_illegal_protocols(changes: dict):
    with pytest.raises(ValueError, match=f"{next(iter(changes))} is .*legal"):
        replace(PROTOCOL, **changes)


def written(folder: Path, partners: Roster) -> Path:
    folder.mkdir()
    for partner in partners:
        if partner.parameters:
            (folder / f"{partner.name}.safetensors").write_bytes(save(dict(partner.parameters)))
    told = {"format": FORMAT, "partners": [row(partner) for partner in partners]}
    (folder / "partners.json").write_text(json.dumps(told), encoding="utf-8")
    return folder


def test_rosters_come_back_as_they_were(tmp_path: Path):
    found = load_roster(written(tmp_path / "r", ROSTER))
    assert found.names == ROSTER.names
    for ours, theirs in zip(found, ROSTER, strict=True):
        assert (ours.family, ours.options, ours.source, ours.checkpoint, ours.held_out) == (
            theirs.family, theirs.options, theirs.source, theirs.checkpoint, theirs.held_out,
        )  # fmt: skip
        assert ours.parameters.keys() == theirs.parameters.keys()
        for name, array in theirs.parameters.items():
            np.testing.assert_array_equal(ours.parameters[name], array)


def test_damaged_rosters_are_named(tmp_path: Path):
    with pytest.raises(ValueError, match=r"partners\.json is missing"):
        load_roster(tmp_path)
    folder = written(tmp_path / "r", ROSTER)
    weights = folder / "a-0.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:100])
    with pytest.raises(ValueError, match=r"a-0\.safetensors is damaged: truncated"):
        load_roster(folder)
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ValueError, match=r"a-0\.safetensors is damaged: its checksum is another"):
        load_roster(folder)
    weights.unlink()
    with pytest.raises(ValueError, match=r"a-0\.safetensors is missing"):
        load_roster(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gru.h": np.zeros((3, 3), np.float32)}, r"'gru\.h' has shape \(3, 3\), expected \(8, 24\)"),
        ({"gru.b": np.full(24, np.nan, np.float32)}, r"'gru\.b' holds numbers that are not finite"),
        ({"more": np.zeros(3, np.float32)}, r"'more' has shape \(3,\), expected None"),
    ],
)
def test_weights_are_checked_by_what_they_hold(changes: dict, message: str):
    with pytest.raises(ValueError, match=message):
        replace(ROSTER[0], parameters={**ROSTER[0].parameters, **changes})


@pytest.mark.parametrize("content", DAMAGE)
def test_a_damaged_manifest_of_partners_is_named(content: bytes, tmp_path: Path):
    path = written(tmp_path / "r", ROSTER) / "partners.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"partners\.json (is damaged|is not a manifest)"):
        load_roster(path.parent)


@pytest.mark.parametrize("changes", [{"file": "../../etc/hostname"}, {"file": ["a"]}, {"sha256": None}, {"options": 3}])
def test_rows_of_a_manifest_are_checked(changes: dict, tmp_path: Path):
    path = written(tmp_path / "r", ROSTER) / "partners.json"
    told = json.loads(path.read_text(encoding="utf-8"))
    told["partners"][0] |= changes
    path.write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(ValueError, match=r"partners\.json|a-0\.safetensors"):
        load_roster(path.parent)


def test_a_manifest_keeps_a_checksum_of_itself(tmp_path: Path):
    """One of before that was kept is read all the same."""
    path = tmp_path / "partners.json"
    write_roster(tmp_path, GAME, ROSTER, {})
    assert load_roster(tmp_path).names == ROSTER.names
    told = json.loads(path.read_text(encoding="utf-8"))
    for changed in ({**told, "game": {**told["game"], "max_steps": 13}}, {**told, "sha256": "0" * 64}):
        path.write_text(json.dumps(changed), encoding="utf-8")
        with pytest.raises(ValueError, match=r"partners\.json is damaged or edited: its checksum"):
            load_roster(tmp_path)
    path.write_text(json.dumps({name: value for name, value in told.items() if name != "sha256"}), encoding="utf-8")
    assert load_roster(tmp_path).names == ROSTER.names


def test_partners_of_another_kitchen_are_refused():
    from sprii_envs.overcooked.env import OvercookedEnv

    with pytest.raises(ValueError, match="partner 'a-0' reads observations of 1000 numbers"):
        OvercookedEnv(layout="cramped_room", partners=ROSTER)


def test_the_shipped_partners():
    roster = shipped()
    families = {partner.family for partner in roster}
    held_out = roster.group("held_out")
    assert families == {"ippo", "still", "walker", "cook"}
    assert len(roster) >= 8
    assert len(held_out) >= 2
    familiar = {roster[i].source for i in roster.group("familiar")}
    assert not familiar & {roster[i].source for i in held_out}
    for partner in roster:
        partner.fits(Game())


RESIDENT = """
import sys

import numpy as np

from sprii_envs.banks import open_store


def resident() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) * 1024


bank = open_store(sys.argv[1])
ids, rng, before = bank.table["episode"], np.random.default_rng(0), resident()
highest = 0
for step in range(60):
    windows = bank.windows("observations", rng.choice(ids, 8), rng.integers(bank.protocol.episodes - 4, size=8), 5)
    highest = max(highest, resident() - before)
mapped = bank.observations[:, :, 0, 0, 0, 0].sum()  # a page of every step
print(highest, resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_windows_of_a_bank_larger_than_the_memory_it_may_take(tmp_path: Path):
    """A bank of 105 MB is read window by window with 15 MB; the same pages through the mapping take all of it."""
    game = Game(max_steps=100)
    protocol = HistoryProtocol(game=game, seat=1, runs=2, histories=5, episodes=30, kitchens=5, iterations=30)
    seen = np.zeros((5, 30, 100, *game.shape), np.uint8)
    acts = np.zeros((5, 30, 100), np.uint8)
    own = Histories(seen, acts, acts, acts.astype(np.float32))
    bank = write_histories(tmp_path / "bank", protocol, Roster(ROSTER[1:4]), "here", lambda run: own)
    size = bank.observations.nbytes
    assert size == 35 * 30 * 100 * 1000
    found = subprocess.run([sys.executable, "-c", RESIDENT, bank.path], capture_output=True, text=True, check=True)
    streamed, held = map(int, found.stdout.split())
    assert streamed < 15e6 < 0.9 * size < held


def test_streamed_windows_are_those_of_the_mapping(bank: HistoryBank):
    ids = bank.table["episode"][[3, 0, 3, 8]]
    starts = np.array([2, 0, 1, 2])
    found = bank.windows("observations", ids, starts, 3)
    np.testing.assert_array_equal(
        found, [bank.observations[e, s : s + 3] for e, s in zip([3, 0, 3, 8], starts, strict=True)]
    )
    with pytest.raises(StoreError, match="window of 3 from 3 is not inside episode 0, which has 5"):
        bank.windows("observations", [0], 3, 3)
