"""Budgets: the paper's are what the paper says (`app:implementation`, `app:spring-profile`)."""

from dataclasses import replace

import pytest

from sprii_train.experiments import costs
from sprii_train.experiments.costs import estimate, span
from sprii_train.experiments.measures import MEASURES
from sprii_train.experiments.sources import ReaderBudget
from sprii_train.experiments.targets import TARGETS
from sprii_train.learners import JEPA, JEPAConfig, learner_of
from sprii_train.settings import POKE, PRESET_NAMES, SETTINGS, SPRING, Budget, named_setting, register_setting

POKE_PAPER, SPRING_PAPER = POKE.budget("paper"), SPRING.budget("paper")


@pytest.mark.parametrize(
    ("paper", "steps", "history", "image"), [(POKE_PAPER, 20_000, 24, 64), (SPRING_PAPER, 10_000, 96, 128)]
)
def test_the_papers_budgets(paper: Budget, steps: int, history: int, image: int):
    train, learner = paper.train, paper.learner
    assert (train.steps, train.pairs, train.learning_rate, train.weight_decay) == (steps, 48, 3e-4, 0.05)
    assert (train.warmup, train.clip, train.precision) == (500, 1.0, "auto")
    assert (len(paper.sources), paper.readers, paper.reader_steps, paper.route_steps) == (3, 3, None, None)
    assert (ReaderBudget().count, ReaderBudget().updates) == (3, 10_000)
    assert (learner.history, learner.image, learner.horizons) == (history, image, (1, 4, 16))
    assert (learner.width, learner.layers, learner.heads, learner.predictor_width) == (192, 4, 8, 256)
    assert (learner.embedding, learner.persistent, learner.current) == (128, 64, 64)
    assert (learner.action_feature, learner.horizon_feature) == (32, 32)
    assert (learner.sigreg_weight, learner.sigreg_slices, learner.dropout) == (0.02, 1024, 0.1)
    assert learner.stem[:4] == (32, 64, 128, 256)
    assert learner.patch == 0
    assert paper.judged


def test_the_size_of_the_papers_springworld_learner():
    """4,525,632 parameters, of which stem and norm, transient, predictor and horizons have 2,662,720 to the unit."""
    learner = JEPA(SPRING_PAPER.learner)
    sizes = {name: sum(p.numel() for p in part.parameters()) for name, part in learner.named_children()}
    assert sizes.pop("encoder") + sizes.pop("encoder_norm") == 2_485_664
    assert {name: sizes[name] for name in ("current", "predictor", "horizon")} == {
        "current": 24_768, "predictor": 152_192, "horizon": 96,
    }  # fmt: skip
    assert abs(sum(p.numel() for p in learner.parameters()) / 4_525_632 - 1) < 0.005


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_can_be_checked_in_seconds_and_reproduced(name: str):
    setting = SETTINGS[name]
    for preset in ("smoke", "quick", "paper"):
        found = setting.budget(preset)
        assert found is setting.budgets[preset]
        if isinstance(found.learner, JEPAConfig):
            assert found.learner.history == setting.history
            assert found.learner.horizons[-1] == 16
        assert found.note
        assert found.judged == (preset != "smoke")
        assert len(set(found.sources)) == len(found.sources) >= 1
    smoke = setting.budget("smoke")
    assert smoke.train.steps <= 60
    assert smoke.trials is not None or smoke.reader_steps is not None
    assert (smoke.reader_steps or 0) <= 50


def test_states_differ_from_frames_in_the_observations_alone():
    states, quick = POKE.budget("states"), POKE.budget("quick")
    assert (states.learner.image, states.learner.observation_dim) == (0, 8)
    seen = {"image": 0, "observation_dim": 8, "stem": JEPAConfig().stem, "patch": 0}
    assert replace(quick.learner, **seen) == states.learner


def test_a_learner_of_every_preset_can_be_built():
    for name, setting in SETTINGS.items():
        for preset, found in setting.budgets.items():
            if preset != "paper":
                config = found.learner
                assert learner_of(config)[1](config).config == config, (name, preset)


def test_refused():
    with pytest.raises(ValueError, match="unknown preset 'fast'; legal names: smoke, quick, states, paper"):
        POKE.budget("fast")
    with pytest.raises(ValueError, match=r"'spring' has no preset 'states'; legal: smoke, quick, paper"):
        SPRING.budget("states")
    with pytest.raises(ValueError, match=r"unknown setting 'moon'; legal names: .*poke.*spring"):
        named_setting("moon")
    with pytest.raises(ValueError, match=r"the setting 'moon' has no preset 'paper'; legal: none"):
        replace(POKE, name="moon", budgets={}).budget("paper")
    with pytest.raises(ValueError, match="a setting 'poke' is registered already"):
        register_setting(replace(POKE, history=12))
    assert PRESET_NAMES == ("smoke", "quick", "states", "paper")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (0.5, "< 1 min"), (59, "< 1 min"), (60, "1 min"), (1500, "25 min"), (5399, "90 min"), (5400, "2 h"),
     (7 * 3600, "7 h"), (2 * 86400, "2 days"), (12.4 * 86400, "12 days")],
)  # fmt: skip
def test_spans_of_time(seconds: float | None, text: str):
    assert span(seconds) == text


def test_estimates_grow_with_arms_sources_and_steps():
    """By hand for one target, doubled where the machine is half as fast; none where a world lacks the preset."""
    rate = costs.REFERENCE_RATE
    horizon = TARGETS["tab:v3-horizon"]  # one arm, one measure: value
    spent = SPRING_PAPER
    assert spent.step_seconds is not None
    training = 3 * spent.train.steps * spent.step_seconds
    fits = 3 * 3 * (4 * 10_000 + 4 * 1_000) * costs.READER_SECONDS
    assert estimate(horizon, "paper", rate) == pytest.approx(training + 3 * MEASURES["value"].seconds + fits)
    for target in TARGETS.values():
        found = {preset: estimate(target, preset, rate) for preset in PRESET_NAMES}
        has = all("states" in SETTINGS[group.world].budgets for group in target.groups)
        assert (found.pop("states") is None) == (not has)
        smoke, quick, paper = (found[preset] for preset in ("smoke", "quick", "paper"))
        assert smoke is not None
        assert quick is not None
        assert paper is not None
        trains = any(group.sources(group.recipes) for group in target.groups)
        assert (0 < smoke < quick < paper) == trains
    whole = estimate(horizon, "quick", rate)
    assert whole is not None
    assert estimate(horizon, "quick", rate / 2) == pytest.approx(2 * whole)
