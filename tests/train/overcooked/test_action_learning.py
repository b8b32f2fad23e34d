"""Windows, measures and evaluation of the action learner against hand-made ones."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("jaxmarl")

from kitchens import GAME, PROTOCOL, ROSTER
from kitchens import bank as small_bank

from sprii_envs.overcooked.bank import HistoryBank, identity
from sprii_envs.overcooked.env import OvercookedEnv
from sprii_envs.overcooked.partners.roster import Roster, write_roster
from sprii_envs.relations import SAME_SYSTEM, Derangement, PairSampler
from sprii_train import checkpoints
from sprii_train.cli import main
from sprii_train.experiments.cells import folder_of, work
from sprii_train.experiments.targets import TARGETS
from sprii_train.learners import AD, ADConfig, JEPAConfig
from sprii_train.overcooked.learning import made_with
from sprii_train.overcooked.measures import Slots, alias_ratio, distance_ratio, probe, ratios, slots, swapped
from sprii_train.overcooked.play import play, slot_of
from sprii_train.overcooked.windows import PairedPlay
from sprii_train.recipes import EVERY_RECIPE
from sprii_train.reports.claims import OPEN, judge
from sprii_train.settings import OVERCOOKED, SETTINGS
from sprii_train.settings.overcooked import Histories, PartnerSetting

CONFIG = ADConfig(inputs=1000, steps=10, width=16, layers=1, heads=2)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> HistoryBank:
    return small_bank(tmp_path_factory.mktemp("kitchens"))


@pytest.fixture(scope="module")
def learner() -> AD:
    torch.manual_seed(0)
    return AD(CONFIG).eval()


def test_windows_are_five_episodes_in_a_row_of_two_histories_with_one_partner(bank: HistoryBank):
    data = PairedPlay(bank, pairs=6, seed=1)
    one, again = data(3), data(3)
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert one.observations.shape == (12, 5, 10, *GAME.shape)
    table, found = bank.split("train"), []
    for row in range(12):
        same = [
            (int(e), s)
            for e in table["episode"]
            for s in (0, 1)
            if np.array_equal(bank.observations[e, s : s + 5], one.observations[row])
            and np.array_equal(bank.actions[e, s : s + 5], one.actions[row])
        ]
        assert len(same) == 1
        found.append(same[0][0])
        np.testing.assert_array_equal(bank.rewards[same[0][0], same[0][1] : same[0][1] + 5], one.rewards[row])
    partner = dict(zip(table["episode"].tolist(), table["partner"].tolist(), strict=True))
    for donor, recipient in zip(found[:6], found[6:], strict=True):
        assert donor != recipient
        assert partner[donor] == partner[recipient]


def test_a_bare_integer_whose_table_is_not_known(bank: HistoryBank):
    held = bank.split("held_out")
    pairs = PairSampler(held, SAME_SYSTEM).batch(0, 6)
    found = bank.windows("actions", pairs.donor, 1, 3)
    assert np.array_equal(found, bank.actions[held["episode"][pairs.donor], 1:4])
    with pytest.raises(ValueError, match="no column 'states'; columns: observations, "):
        bank.windows("states", [0], 0, 1)
    with pytest.raises(ValueError, match="window of 3 from 4 is not inside episode 0, which has 6"):
        bank.windows("actions", [0], 4, 3)


def test_arms_meet_the_same_recipients(bank: HistoryBank):
    aligned, random = PairedPlay(bank, pairs=3, seed=0), PairedPlay(bank, kernel=Derangement(), pairs=3, seed=0)
    for step in range(3):
        a, b = aligned(step), random(step)
        assert torch.equal(a.actions[3:], b.actions[3:])
        assert not torch.equal(a.actions[:3], b.actions[:3])


def test_slots_and_signatures_are_of_different_episodes(bank: HistoryBank, learner: AD):
    found, table = slots(learner, bank, "validation"), bank.split("validation")
    assert found.codes.shape == (9, 32)
    assert found.signatures.shape == (9, 6)
    row = 5
    later = bank.partner_actions[table["episode"][row], 3:]
    np.testing.assert_allclose(found.signatures[row], [(later == a).mean() for a in range(6)])
    batches = slots(learner, bank, "validation", batch=5)
    np.testing.assert_allclose(batches.codes, found.codes, atol=1e-5)


def test_a_planted_code_is_read_and_tells_partners_apart():
    rng = np.random.default_rng(0)
    partners = np.repeat(np.arange(8), 6)
    signature = rng.dirichlet(np.ones(6), 8)[partners]
    codes = np.concatenate([signature * 10.0 + rng.normal(0, 0.05, signature.shape), rng.normal(size=(48, 4))], 1)
    told = probe(Slots(codes[::2], signature[::2], partners[::2]), Slots(codes[1::2], signature[1::2], partners[1::2]))
    assert told.error < 0.2 * told.constant
    blind = probe(
        Slots(rng.normal(size=(24, 4)), signature[::2], partners[::2]),
        Slots(rng.normal(size=(24, 4)), signature[1::2], partners[1::2]),
    )
    assert blind.error > 0.8 * blind.constant
    found = Slots(codes, signature, partners)
    apart, same = [], []
    for i in range(48):
        for j in range(48):
            if i != j:
                (same if partners[i] == partners[j] else apart).append(np.linalg.norm(codes[i] - codes[j]))
    assert distance_ratio(found) == pytest.approx(np.mean(apart) / np.mean(same))
    with pytest.raises(ValueError, match="two partners"):
        distance_ratio(Slots(codes[:6], signature[:6], partners[:6]))
    with pytest.raises(ValueError, match="the same in all its histories"):  # statistics of a constant
        distance_ratio(Slots(np.ones_like(codes), signature, partners))


def test_a_ratio_of_distances_is_not_of_partners_alone():
    """Codes of runs alone: the ratio takes one partner's runs for different partners, and the aliases say so."""
    rng = np.random.default_rng(1)
    runs = np.repeat(np.arange(12), 8)
    partners, split = runs // 3, np.where(runs % 3 < 2, "train", "validation")
    noise = rng.normal(size=(96, 5))
    of_partners, of_runs = (rng.normal(size=(n, 5))[rows] for n, rows in ((4, partners), (12, runs)))

    def ratios(codes: np.ndarray) -> tuple[float, float]:
        fitted, own = (
            Slots(codes[split == name], codes[split == name], partners[split == name], runs[split == name])
            for name in ("train", "validation")
        )
        return distance_ratio(own), alias_ratio(fitted, own)

    ratio, aliases = ratios(4.0 * of_partners + noise)
    assert ratio > 2.0
    assert aliases == pytest.approx(1.0, abs=0.1)
    ratio, aliases = ratios(4.0 * of_runs + noise)
    assert ratio > 2.0
    assert aliases > 2.0
    assert ratios(noise) == pytest.approx((1.0, 1.0), abs=0.1)
    with pytest.raises(ValueError, match="two runs"):
        alias_ratio(Slots(noise[:16], noise[:16], runs[:16], runs[:16]))


def test_the_report_prints_what_the_ratio_is_without_partners(bank: HistoryBank, learner: AD):
    target = TARGETS["tab:overcooked-complete"]
    fitted, own = (slots(learner, bank, split) for split in ("train", "validation"))
    assert set(own.runs.tolist()) == set(bank.split("validation")["run"].tolist())
    told = {"distance_ratio": 3.25, "alias_ratio": 2.25, "untrained": ratios(fitted, own)}
    for row, texts in (
        (told, ["3.2500", f"{distance_ratio(own):.4f}", "2.2500", f"{alias_ratio(fitted, own):.4f}"]),
        ({"distance_ratio": 3.25}, ["3.2500", "n.a.", "n.a.", "n.a."]),  # a row of before there were such numbers
    ):
        rest = {"world": "overcooked", "arm": "h", "label": "H", "returns": {}, "curve": [0.0] * 20}
        (table,) = [each for each in target.tables([rest | row]) if each.title.startswith("Distance ratio")]
        assert table.rows == [["H", *texts]]
    assert not [claim.text for claim in target.claims if "ratio" in claim.text or "wrong partner" in claim.text]


def test_exchanged_histories(bank: HistoryBank, learner: AD):
    found = swapped(learner, bank, "validation")
    assert len({round(value, 6) for value in found}) == 3
    with torch.no_grad():
        read = learner.fuse.weight[:, CONFIG.width :]  # what the fusion reads of the slot
        kept = read.clone()
        read.zero_()
        blind = swapped(learner, bank, "validation")
        read.copy_(kept)
    assert blind.matched == pytest.approx(blind.wrong, abs=1e-6)
    assert blind.matched == pytest.approx(blind.null, abs=1e-6)


def test_returns_are_those_of_the_kitchen(learner: AD):
    told = play(learner, GAME, list(ROSTER), seat=1, episodes=4, repeats=2, seed=3)
    assert told.shape == (5, 2, 4)
    assert np.array_equal(told, play(learner, GAME, list(ROSTER), seat=1, episodes=4, repeats=2, seed=3))
    # A signaller presses at steps 1, 3, 6 and 9; ten steps are too few for a dish.
    assert (told[ROSTER.id("often")] == -20.0).all()


@pytest.mark.slow
def test_a_cook_in_the_environment_and_in_the_evaluation_see_the_same(learner: AD):
    """With a learner that always stays, returns are those of the environment with a still ego."""
    env = OvercookedEnv(ego="agent_1", max_steps=10, partners=ROSTER, partner="often")
    env.reset(seed=0)
    total = sum(env.step(4)[1] for _ in range(10))
    with torch.no_grad():
        last = learner.head
        kept = last.weight.clone(), last.bias.clone()
        last.weight.zero_()
        last.bias.copy_(torch.tensor([0.0, 0.0, 0.0, 0.0, 50.0, 0.0]))
        told = play(learner, GAME, [ROSTER[2]], seat=1, episodes=2, repeats=3, seed=0)
        last.weight.copy_(kept[0])
        last.bias.copy_(kept[1])
    assert (told == total).all()


def test_no_support_is_a_zero_slot(learner: AD):
    assert (slot_of(learner, [], 3) == 0.0).all()


# The table


SIZES = {"seat": 1, "runs": 1, "histories": 3, "episodes": 6, "kitchens": 4, "iterations": 6}


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch) -> PartnerSetting:
    """The setting in a small kitchen, registered in place of the own one."""
    smoke = replace(OVERCOOKED.budget("smoke"), store=Histories(SIZES))
    small = replace(OVERCOOKED, kitchen={"max_steps": GAME.max_steps}, budgets={"smoke": smoke})
    monkeypatch.setitem(SETTINGS, "overcooked", small)
    return small


def sprii(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["sprii", "reproduce", "tab:v3-overcooked", "--preset", "smoke", *arguments])
    main()


def test_the_table_is_reproduced_and_resumed(
    bank: HistoryBank,
    setting: PartnerSetting,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    write_roster(tmp_path / "own", GAME, ROSTER, {})
    monkeypatch.chdir(tmp_path)
    banks = tmp_path / "out" / "banks"
    banks.mkdir(parents=True)
    own = replace(setting, partners=str(tmp_path / "own")).histories(setting.budget("smoke"))
    assert own.protocol == PROTOCOL
    place = banks / f"overcooked-{identity(PROTOCOL, own.roster, made_with(PROTOCOL))[:12]}"
    place.symlink_to(bank.folder)  # learnt once, and opened as it is

    def run_here(cells, root, **_):
        for cell in cells:
            work(cell, root, lambda *_: None)
        return [checkpoints.read_json(folder_of(cell, root) / cell.result) for cell in cells]

    monkeypatch.setattr("sprii_train.experiments.reproduce.run_grid", run_here)
    arguments = ("--arms", "h-vc,h-sprii", "--partners", "own", "--out", "out")
    sprii(monkeypatch, *arguments)
    printed = capsys.readouterr().out
    assert "H+SPRII" in printed
    assert "not tested" in printed
    report = tmp_path / "out" / "tab-overcooked-complete"
    for name in ("report.html", "returns.png", "table-1.csv"):
        assert (report / name).stat().st_size > 0
    told = checkpoints.read_json(report / "results.json")
    assert told["command"].endswith(" --arms h-vc,h-sprii --partners own --out out")
    assert told["facts"]["Partners of overcooked"] == str(tmp_path / "own")
    torch.manual_seed(4200)
    untrained = AD(setting.learner_config(setting.budget("smoke").learner, EVERY_RECIPE["h"])).eval()
    floor = ratios(*(slots(untrained, bank, split) for split in ("train", "validation")))
    assert [row["untrained"] for row in told["rows"]] == [floor, floor]
    assert told["rows"][0]["distance_ratio"] != floor["distance_ratio"]
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "cells").rglob("model/*")}
    assert len(before) == 4
    sprii(monkeypatch, *arguments)
    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "cells").rglob("model/*")}


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (slice(3), "nowhere: the number of held-out partners is 0; legal: at least 2"),
        (slice(2, 5), "the number of familiar partners is 1"),
        (None, "nowhere"),
    ],
)
def test_partners_are_refused_before_anything_is_learnt(
    kept: slice | None,
    told: str,
    setting: PartnerSetting,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    if kept is not None:
        write_roster(tmp_path / "nowhere", GAME, Roster(list(ROSTER)[kept]), {})
    with pytest.raises(SystemExit) as end:
        sprii(monkeypatch, "--partners", "nowhere", "--out", "out")
    assert end.value.code == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert told in said
    assert not list(tmp_path.glob("out/*/*"))


def test_a_learner_that_knows_no_kitchen_is_refused(bank: HistoryBank):
    with pytest.raises(ValueError, match="JEPAConfig has no field 'inputs', which the kitchen decides"):
        OVERCOOKED.check(bank, JEPAConfig())


def test_kept_rows_are_still_judged():
    kept = Path(__file__).parents[3] / "docs" / "results" / "overcooked-quick" / "results.json"
    rows = [{"world": "overcooked", **row} for row in checkpoints.read_json(kept)["rows"]]
    assert {verdict.status for verdict in judge(TARGETS["tab:overcooked-complete"].claims, rows)} == {OPEN}
