"""Windows, measures and evaluation of the action learner against hand-made ones."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

pytest.importorskip("jaxmarl")

from kitchens import GAME, PROTOCOL, ROSTER
from kitchens import bank as small_bank

from sprii_envs.overcooked.bank import HistoryBank, identity, write_histories
from sprii_envs.overcooked.collect import Histories as Played
from sprii_envs.overcooked.env import OvercookedEnv
from sprii_envs.overcooked.partners.roster import Roster, write_roster
from sprii_envs.relations import SAME_ROLLOUT, SAME_SYSTEM, Derangement, PairSampler
from sprii_train import checkpoints
from sprii_train.cli import main
from sprii_train.experiments.cells import folder_of, work
from sprii_train.experiments.measures.partners import formed
from sprii_train.experiments.targets import TARGETS
from sprii_train.learners import AD, ADConfig, JEPAConfig
from sprii_train.overcooked.learning import made_with
from sprii_train.overcooked.measures import imitated, slots, swapped
from sprii_train.overcooked.panel import PanelConfig, panel
from sprii_train.overcooked.play import play, slot_of
from sprii_train.overcooked.windows import PairedPlay
from sprii_train.recipes import EVERY_RECIPE
from sprii_train.reports.claims import FAILED, HELD, UNTESTED, judge
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
            for s in range(4)
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
    with pytest.raises(ValueError, match="window of 3 from 6 is not inside episode 0, which has 8"):
        bank.windows("actions", [0], 6, 3)


def test_arms_meet_the_same_recipients(bank: HistoryBank):
    aligned, random = PairedPlay(bank, pairs=3, seed=0), PairedPlay(bank, kernel=Derangement(), pairs=3, seed=0)
    for step in range(3):
        a, b = aligned(step), random(step)
        assert torch.equal(a.actions[3:], b.actions[3:])
        assert not torch.equal(a.actions[:3], b.actions[:3])


def test_pairs_of_one_history_share_no_support_episode(bank: HistoryBank):
    """All starts that leave the supports apart, each as often as any other; recipients are those of the other arms."""
    data = PairedPlay(bank, relation=SAME_ROLLOUT, pairs=3, seed=2)
    other, found = PairedPlay(bank, pairs=3, seed=2), Counter()
    table = bank.split("train")
    for step in range(60):
        windows = data(step)
        assert torch.equal(windows.actions[3:], other(step).actions[3:])
        for donor, recipient in zip(windows.actions[:3].numpy(), windows.actions[3:].numpy(), strict=True):
            places = [
                [
                    (int(e), s)
                    for e in table["episode"]
                    for s in range(4)
                    if np.array_equal(bank.actions[e, s : s + 5], w)
                ]
                for w in (donor, recipient)
            ]
            ((one, start),), ((history, begin),) = places
            assert one == history
            assert abs(start - begin) >= 2
            found[begin, start] += 1
    assert set(found) == {(0, 2), (0, 3), (1, 3), (2, 0), (3, 0), (3, 1)}


def test_histories_too_short_for_pairs_of_one(tmp_path: Path):
    short = replace(PROTOCOL, episodes=7, iterations=7)
    shape = (3, 7, 10)
    acts = np.zeros(shape, np.uint8)
    own = Played(np.zeros((*shape, *GAME.shape), np.uint8), acts, acts, acts.astype(np.float32))
    made = write_histories(tmp_path / "bank", short, ROSTER, "here", lambda run: own)
    with pytest.raises(ValueError, match="histories have 7 episodes; legal for pairs of one history: at least 8"):
        PairedPlay(made, relation=SAME_ROLLOUT, pairs=3)


def test_shares_of_histories_are_nested_and_pairs_across_runs_are(bank: HistoryBank):
    """Half of three histories of a run are its first two, a quarter its first; the bank is the same."""
    rows = {}
    for share, count in ((1.0, 3), (0.5, 2), (0.25, 1)):
        own = replace(OVERCOOKED, share=share)
        data = own.data(bank, CONFIG, EVERY_RECIPE["h-sprii-runs"], pairs=3, seed=0)
        assert isinstance(data, PairedPlay)
        rows[share] = set(data.table["episode"].tolist())
        assert np.unique(data.table["run"], return_counts=True)[1].tolist() == [count] * 6
        for step in range(20):
            drawn = data.pairs.batch(step, 3)
            partner, run = data.table["system"], data.table["run"]
            assert (partner[drawn.donor] == partner[drawn.recipient]).all()
            assert (run[drawn.donor] != run[drawn.recipient]).all()
    assert rows[0.25] < rows[0.5] < rows[1.0]
    with pytest.raises(ValueError, match=r"PartnerSetting.share is 0.0; legal"):
        replace(OVERCOOKED, share=0.0)


def row(arm: str, seed: int, error: float, *, world: str = "overcooked", **more: Any) -> dict[str, Any]:
    probes = {f"probe_{cohort}": {"error": error, "constant": 0.05} for cohort in ("familiar", "held_out")}
    told = {"world": world, "arm": arm, "label": EVERY_RECIPE[arm].label, "seed": seed}
    told |= {"returns": {"a": 1.0}, "curve": [0.0] * 20}
    return told | probes | {"return_familiar": error, "return_held_out": 0.0, "distance_ratio": 2.0} | more


def test_no_arm_is_compared_by_a_probe_that_never_beats_the_constant():
    """Unless one arm does, on the mean over seeds; returns and ratios are judged whatever the probe says."""
    target = TARGETS["tab:overcooked-complete"]
    own = {"h-vc": (0.08, 0.0801, 0.0799), "h-sprii": (0.06, 0.0601, 0.0599)}

    def judged(arms: dict[str, tuple[float, ...]]) -> dict[str, Any]:
        rows = [row(arm, seed, error) for arm, errors in arms.items() for seed, error in enumerate(errors)]
        return {verdict.text: verdict for verdict in judge(target.claims, rows)}

    lowers = "Alignment lowers the probe's error with familiar partners against H+VC, 100% of the histories"
    found = judged(own)[lowers]
    assert found.status == UNTESTED
    assert "no arm's probe beats the constant mean, 0.0500: the best, h-sprii, has 0.0600" in found.evidence
    assert judged(own)["Alignment raises the return with familiar partners"].status == FAILED
    assert judged(own | {"h": (0.04, 0.04, 0.069)})[lowers].status == HELD  # 0.0497 on the mean
    assert judged(own | {"h": (0.04, 0.04, 0.071)})[lowers].status == UNTESTED
    half = "Alignment lowers the probe's error with familiar partners against H+VC, 50% of the histories"
    assert judged(own)[half].status == UNTESTED


def test_the_report_prints_baselines_and_what_could_be_resolved():
    target = TARGETS["tab:overcooked-complete"]
    floor = {"distance_ratio": 1.5, "two_names": {"ratio": 1.01, "probe": 1.3}, "probe_familiar": {"error": 0.09}}
    more = {
        "untrained": floor | {"probe_held_out": {"error": 0.1}},
        "without": {f"probe_{c}": {"error": 0.03} for c in ("familiar", "held_out")} | {"distance_ratio": 1.3},
        "behaviour": {"distance_ratio": 5.8},
        "two_names": {"ratio": 0.99, "probe": 1.2},
        "imitated": {f"{when}_{cohort}": 7.0 for when in ("last", "all") for cohort in ("familiar", "held_out")},
    }
    rows = [row("h-vc", s, 0.08 + 0.01 * s, **more) for s in range(3)]
    rows += [row("h-sprii", s, 0.06 - 0.003 * s, **more) for s in range(3)]
    better = [row("h", s, 0.04, **more) for s in range(3)]  # of an arm that is read, so that the others are compared
    tables = {table.title: table for table in target.tables([*rows, *better])}
    (vc, *_) = tables["Behavioral readout"].rows
    label = EVERY_RECIPE["h-vc"].label
    assert vc == [
        label,
        *("0.0900 ± 0.0100", "0.0900 ± 0.0000", "0.0300 ± 0.0000", "0.0500 ± 0.0000"),
        *("0.0900 ± 0.0100", "0.1000 ± 0.0000", "0.0300 ± 0.0000", "0.0500 ± 0.0000"),
        *("1.2000 ± 0.0000", "1.3000 ± 0.0000"),
    ]
    ratio = tables["Distance ratio of slots: different partners over one partner"].rows[0]
    assert ratio == [label, *(f"{value:.4f} ± 0.0000" for value in (2.0, 1.5, 1.3, 5.8, 0.99, 1.01))]
    told = tables["Paired differences, and what they could resolve"].rows[0]
    differences = np.array([-0.02, -0.033, -0.046])
    half = stats.t.ppf(0.975, 2) * differences.std(ddof=1) / np.sqrt(3)
    assert told[:4] == ["100%", "SPRII − VC", "familiar MSE", "-0.0330 ± 0.0130"]
    assert told[4] == f"[{-0.033 - half:.4f}, {-0.033 + half:.6f}]"
    assert told[5] == f"{half:.4f}"
    returns = tables["Cooperation returns, episodes from 6 to 20"].rows
    assert returns[-2:] == [["Imitated egos, last three kept episodes", "7.0000", "7.0000"],
                            ["Imitated egos, all episodes", "7.0000", "7.0000"]]  # fmt: skip
    told = [table.title for table in target.tables(rows[:1])]
    unseen = [r | {"probe_left_out": {"chosen": 0.09, "constant": 0.07}} for r in rows]
    lines = {tuple(line[:3]): line[3:] for table in target.tables(unseen) for line in table.rows if len(line) == 8}
    for what, paper in (("familiar MSE", "-0.0212"), ("left-out MSE", "")):
        assert lines["100%", "SPRII − VC", what] == ["not compared", "n.a.", "n.a.", "n.a.", paper]
    better = [
        r | {"probe_left_out": {"chosen": 0.06 if r["arm"] == "h-vc" else 0.09, "constant": 0.07}} for r in unseen
    ]
    lines = {tuple(line[:3]): line[3:] for table in target.tables(better) for line in table.rows if len(line) == 8}
    assert lines["100%", "SPRII − VC", "left-out MSE"][0] == "0.0300"
    assert told == [title for title in tables if title != "Paired differences, and what they could resolve"]


def test_the_imitated_egos_are_those_of_the_bank(bank: HistoryBank):
    last, whole = imitated(bank)
    assert sorted(last) == sorted(ROSTER.names)
    table = bank.table
    for name, split in (("often", "train"), ("b-1", "held_out")):
        rows = table["episode"][(table["partner"] == name) & (table["split"] == split)]
        returns = bank.rewards[rows].sum(-1)
        assert last[name] == pytest.approx(returns[:, 5:].mean())
        assert whole[name] == pytest.approx(returns.mean())


def test_exchanged_slots(bank: HistoryBank, learner: AD):
    shown = panel(GAME, PROTOCOL.seat, ROSTER, PanelConfig(episodes=8))
    codes = slots(learner, shown)
    found = swapped(learner, bank, "validation", shown, codes)
    assert len({round(value, 6) for value in found}) == 3
    same = swapped(learner, bank, "validation", shown, np.tile(codes[:1], (len(codes), 1)))
    assert same.matched == pytest.approx(same.wrong, abs=1e-6)
    assert same.null == pytest.approx(found.null, abs=1e-6)
    none = swapped(learner, bank, "validation", shown, np.zeros_like(codes))
    assert none.matched == pytest.approx(found.null, abs=1e-6)


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


SIZES = {"seat": 1, "runs": 2, "histories": 3, "episodes": 8, "kitchens": 4, "iterations": 8}


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch) -> PartnerSetting:
    """The setting in a small kitchen, registered in place of the own one."""
    smoke = replace(OVERCOOKED.budget("smoke"), store=Histories(SIZES))
    small = replace(OVERCOOKED, kitchen={"max_steps": GAME.max_steps}, budgets={"smoke": smoke})
    for name, share in (("overcooked", 1.0), ("overcooked-half", 0.5), ("overcooked-quarter", 0.25)):
        monkeypatch.setitem(SETTINGS, name, replace(small, name=name, share=share))
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
    untold = replace(setting, kitchen={}, partners=str(tmp_path / "own"))
    assert untold.histories(setting.budget("smoke")).protocol == PROTOCOL  # the kitchen is that of the folder
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
    shown, groups = panel(GAME, 1, ROSTER), {name: ROSTER.group(name) for name in ("familiar", "held_out")}
    floor = formed(shown, slots(untrained, shown), groups)
    assert [row["untrained"] for row in told["rows"]] == [floor] * 6
    assert told["rows"][0]["distance_ratio"] != floor["distance_ratio"]
    assert [row["world"] for row in told["rows"]][::2] == ["overcooked", "overcooked-half", "overcooked-quarter"]
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "cells").rglob("model/*")}
    assert len(before) == 12
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
    page = checkpoints.read_json(kept)
    rows = [{"world": "overcooked", **row} for row in page["rows"]]
    found = {verdict.text: verdict.status for verdict in judge(TARGETS["tab:overcooked-complete"].claims, rows)}
    assert found == {verdict["claim"]: verdict["verdict"] for verdict in page["verdicts"]}
