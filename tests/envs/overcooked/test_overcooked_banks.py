"""Banks of histories and rosters on disk: what is paired, what is refused, what damage is named."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jaxmarl")

from safetensors.numpy import save

from sprii_envs.banks.storage import BankError
from sprii_envs.overcooked.bank import COLUMNS, HistoryBank, HistoryProtocol, build_histories
from sprii_envs.overcooked.game import ACTIONS, Game
from sprii_envs.overcooked.partners.network import shapes
from sprii_envs.overcooked.partners.partner import Partner
from sprii_envs.overcooked.partners.roster import FORMAT, Roster, load_roster, row, shipped
from sprii_envs.relations import SAME_SYSTEM, Derangement, PairSampler

GAME = Game(max_steps=12)


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
PROTOCOL = HistoryProtocol(game=GAME, histories=3, validation=3, episodes=5)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> HistoryBank:
    return build_histories(PROTOCOL, ROSTER, tmp_path_factory.mktemp("histories") / "bank")


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
    presses = (bank.partner_actions == ACTIONS.index("interact")).sum((1, 2))
    assert (presses[table["partner"] == "often"] == 5 * 3).all()


def test_related_histories_share_a_partner_and_random_ones_do_not(bank: HistoryBank):
    table = bank.split("train")
    same = PairSampler(table, SAME_SYSTEM, seed=0).batch(0, 64)
    assert (table["partner"][same.donor] == table["partner"][same.recipient]).all()
    assert (same.donor != same.recipient).all()
    wrong = PairSampler(table, SAME_SYSTEM, Derangement(), seed=0).batch(0, 8)
    assert (table["partner"][wrong.donor] != table["partner"][wrong.recipient]).all()


def test_a_bank_is_built_once_and_alike(bank: HistoryBank, tmp_path: Path):
    again = build_histories(PROTOCOL, ROSTER, tmp_path / "bank")
    assert again.fingerprint == bank.fingerprint
    changed = (tmp_path / "bank" / "bank.json").stat().st_mtime_ns
    assert build_histories(PROTOCOL, ROSTER, tmp_path / "bank").fingerprint == bank.fingerprint
    assert (tmp_path / "bank" / "bank.json").stat().st_mtime_ns == changed
    with pytest.raises(BankError, match="another protocol or of other partners"):
        build_histories(HistoryProtocol(game=GAME, histories=2, validation=2, episodes=5), ROSTER, tmp_path / "bank")
    path = tmp_path / "bank" / "rewards.npy"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(BankError, match=r"rewards\.npy"):
        HistoryBank(tmp_path / "bank")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bank"]
    assert {f"{name}.npy" for name in COLUMNS} < {p.name for p in (tmp_path / "bank").iterdir()}


def test_egos_need_two_checkpoints(tmp_path: Path):
    with pytest.raises(ValueError, match="two checkpoints of each familiar source"):
        build_histories(PROTOCOL, Roster([neural("a", 0, 1)]), tmp_path / "bank")
    assert not (tmp_path / "bank").exists()


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
        assert (ours.kind, ours.source, ours.checkpoint, ours.held_out) == (
            theirs.kind, theirs.source, theirs.checkpoint, theirs.held_out,
        )  # fmt: skip
        assert ours.parameters.keys() == theirs.parameters.keys()
        for name, array in theirs.parameters.items():
            np.testing.assert_array_equal(ours.parameters[name], array)


def test_damaged_rosters_are_named(tmp_path: Path):
    with pytest.raises(ValueError, match=r"partners\.json is missing"):
        load_roster(tmp_path)
    folder = written(tmp_path / "r", ROSTER)
    weights = folder / "a-0.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"a-0\.safetensors cannot be read"):
        load_roster(folder)
    weights.write_bytes(save({**ROSTER[0].parameters, "gru.h": np.zeros((3, 3), np.float32)}))
    with pytest.raises(ValueError, match=r"'gru\.h' has shape \(3, 3\), expected \(8, 24\)"):
        load_roster(folder)
    (folder / "partners.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"partners\.json cannot be read"):
        load_roster(folder)


def test_partners_of_another_kitchen_are_refused():
    from sprii_envs.overcooked.env import OvercookedEnv

    with pytest.raises(ValueError, match="partner 'a-0' reads observations of 1000 numbers"):
        OvercookedEnv(layout="cramped_room", partners=ROSTER)


def test_the_shipped_partners():
    roster = shipped()
    families = {partner.family for partner in roster}
    held_out = roster.group("held_out")
    assert families == {"ippo", "still", "walker", "signaller"}
    assert len(roster) >= 8
    assert len(held_out) >= 2
    familiar = {roster[i].source for i in roster.group("familiar")}
    assert not familiar & {roster[i].source for i in held_out}
    for partner in roster:
        partner.fits(Game())
