"""Other learners of D-Clean on a small bank of it: what they standardise by, and that each learns what it is for."""

from typing import Any

import numpy as np
import pytest
import torch
from state_windows import linear

from sprii_envs.banks import D_CLEAN as PROTOCOL
from sprii_envs.banks import Bank, build
from sprii_train.analysis.donors import encode_split
from sprii_train.data import PairedWindows
from sprii_train.fit import TrainConfig, train_step
from sprii_train.learners import CaDM, CaDMConfig, DALIConfig, FCRLConfig, NODStatesConfig, TDSConfig, learner_of
from sprii_train.protocol import Objective, check_learner, encode
from sprii_train.recipes import RECIPES
from sprii_train.schedules import Stairs, adam
from sprii_train.settings import named_setting
from sprii_train.settings.base import MEASURED_SEED

SETTING, STRUCTURE = named_setting("d-clean"), RECIPES["structure"]
CADM = CaDMConfig(
    observation_dim=4, action_dim=2, history=23, scaled_history=True, encoder=(32, 16, 16), dynamics=(32, 32, 32, 32)
)
# Narrow, and at higher rates than the paper's, so that seconds are enough.
SHORT: dict[str, tuple[Any, TrainConfig]] = {
    "cadm": (CADM, adam(3e-3, 450, pairs=24)),
    "dali": (DALIConfig(width=16, forward_width=64), adam(5e-3, 300, clip=1_000.0, pairs=24)),
    "fcrl": (FCRLConfig(), adam(1e-2, 450, clip=1.0, pairs=24)),
    "nod-states": (NODStatesConfig(), Stairs(steps=300, pairs=24, every=20, precision="fp32")),
}


@pytest.fixture(scope="module")
def clean_bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    systems = {"train": 400, "validation": 60, "test": 2}
    return build(PROTOCOL.replace(systems=systems, rollouts=4), tmp_path_factory.mktemp("banks") / "clean")


def drag_r2(learner: Any, config: Any, bank: Bank) -> float:
    """R² of log drag on validation systems, of ridge regression by the normal equations on training systems."""
    found = []
    for split in ("train", "validation"):
        encoded = encode_split(learner.eval(), SETTING.reader(bank, config), split, seed=0)
        found.append((encoded.codes.z_p.double().numpy(), np.log(encoded.table["drag"])))
    (z, g), (held, truth) = found
    mean, sd = z.mean(0), np.where(z.std(0) > 1e-6, z.std(0), np.inf)
    z, held = (z - mean) / sd, (held - mean) / sd
    weights = np.linalg.solve(z.T @ z + np.eye(z.shape[1]), z.T @ (g - g.mean()))
    return 1 - ((held @ weights + g.mean() - truth) ** 2).mean() / truth.var()


def native(learner: Any, config: Any, bank: Bank) -> tuple[float, float]:
    """The learner's own loss on validation systems, and that of what has learned nothing of them."""
    windows = PairedWindows(SETTING.reader(bank, config), "validation", pairs=60, seed=1)(0)
    with torch.no_grad():
        batch = learner.eval().prepare(windows)
        loss = float(learner.native_loss(batch, encode(learner, batch))[1]["self"])
    if isinstance(config, FCRLConfig):
        return loss, float(np.log(60))  # by chance
    if isinstance(config, CaDMConfig):
        return loss, 1.5 * float(batch.y.square().mean())  # the mean change, forward and backward
    return loss, float((batch.y - batch.current[:, None]).square().mean())  # the state stays


@pytest.mark.parametrize("name", SHORT)
def test_it_learns_its_own_task_and_drag(clean_bank: Bank, name: str):
    config, train = SHORT[name]
    torch.manual_seed(0)
    learner: Any = SETTING.fresh(clean_bank, config)
    data = SETTING.data(clean_bank, config, STRUCTURE, pairs=train.pairs, seed=0)
    check_learner(learner, data(0))
    untrained, (first, trivial) = drag_r2(learner, config, clean_bank), native(learner, config, clean_bank)
    optimizer, learner = train.optimizer(learner), learner.train()
    for step in range(train.steps):
        train_step(learner, data(step), Objective(), optimizer, train, step, "fp32")
    last, _ = native(learner, config, clean_bank)
    trained = drag_r2(learner, config, clean_bank)
    assert last < 0.95 * min(first, trivial)
    assert trained > untrained + 0.05


@pytest.mark.parametrize("config", [*(config for config, _ in SHORT.values()), TDSConfig()])
def test_raw_numbers_are_not_trained_on(clean_bank: Bank, config: Any):
    """Not in silence: a learner without statistics can be looked at, and is refused at its first update."""
    learner: Any = learner_of(config)[1](config)
    train = TrainConfig(steps=1, pairs=4)
    windows = SETTING.data(clean_bank, config, STRUCTURE, pairs=4, seed=0)(0)
    check_learner(learner, windows)
    first = {name: value.clone() for name, value in learner.state_dict().items()}
    with pytest.raises(
        ValueError, match=rf"{type(learner).__name__} has taken no statistics .* fit_statistics\(windows"
    ):
        train_step(learner.train(), windows, Objective(), train.optimizer(learner), train, 0, "fp32")
    assert all(torch.equal(value, first[name]) for name, value in learner.state_dict().items())
    learner.fit_statistics(windows)
    train_step(learner, windows, Objective(), train.optimizer(learner), train, 0, "fp32")


@pytest.mark.parametrize("name", ["dali", "fcrl", "nod-states"])
def test_scales_are_those_of_training_windows(clean_bank: Bank, name: str):
    config = SHORT[name][0]
    learner: Any = SETTING.fresh(clean_bank, config)
    rows = clean_bank.split("train")["episode"]
    states = clean_bank.windows("states", rows, np.zeros(len(rows), int), 64)
    actions = clean_bank.windows("actions", rows, np.zeros(len(rows), int), 63)
    np.testing.assert_allclose(learner.scales.observation[1], states.std((0, 1)), rtol=0.15)
    np.testing.assert_allclose(learner.scales.action[1], actions.std((0, 1)), rtol=0.15)
    donors = SETTING.reader(clean_bank, config).histories(rows[:3], np.zeros(3, int))
    assert learner.eval().encode_history(learner.prepare(donors).history).shape == (3, config.persistent)


def test_cadms_statistics_by_numpy(clean_bank: Bank):
    learner: Any = SETTING.fresh(clean_bank, CADM)
    windows = SETTING.data(clean_bank, CADM, STRUCTURE, pairs=400, seed=MEASURED_SEED)(0)
    o, a, f, u = (part.double().numpy() for part in windows[:4])
    course = np.concatenate([o, f], 1)
    found = {
        "observation": course[:, :-1].reshape(-1, 4),
        "action": np.concatenate([a, u], 1).reshape(-1, 2),
        "difference": np.diff(course, axis=1).reshape(-1, 4),
        "slots": a,
        "past": np.diff(o, axis=1),
    }
    for name, values in found.items():
        np.testing.assert_allclose(learner.get_buffer(name), [values.mean(0), values.std(0)], rtol=1e-4, atol=1e-5)
    batch = learner.prepare(windows)
    prediction = learner.predict(*encode(learner, batch)[:2], batch.u)
    forward = (prediction[:, :, 0, 0].detach().numpy() - batch.y.numpy()) ** 2
    np.testing.assert_allclose(learner.horizon_losses(prediction, batch.y).detach(), forward.mean(2), rtol=1e-4)
    states = found["observation"]
    presents = (o[:, -1] - states.mean(0)) / states.std(0)
    np.testing.assert_allclose(learner.present(windows.observations[:, -1]), presents, rtol=1e-3, atol=1e-4)


def test_cadms_sizes_on_d_clean():
    config = SETTING.budget("paper").others["cadm"].learner
    encoder, dynamics = linear(138, 256, 128, 64, 10), linear(4 + 2 + 10, 200, 200, 200, 200, 4)
    assert sum(p.numel() for p in CaDM(config).parameters()) == encoder + 2 * dynamics == 326_994
    firsts = []
    for seed in (1, 1, 2):  # without a seed of its own it has that of the source
        torch.manual_seed(seed)
        firsts.append(CaDM(config).encoder.weights[0])
    assert torch.equal(firsts[0], firsts[1])
    assert not torch.equal(firsts[0], firsts[2])


def test_the_papers_training():
    others = SETTING.budget("paper").others
    steps = {name: other.train.steps for name, other in others.items()}
    as_jepa = ("cpc", "rssm", *(f"tds-{d}" for d in range(5)))  # which train as the controlled JEPA does
    assert steps == dict.fromkeys((*as_jepa, "cadm", "fcrl", "nod-states"), 20_000) | {"dali": 160_000}
    assert {other.train.pairs for other in others.values()} == {48}
    rates = {name: [other.train.rate(step, 1.0) for step in (0, 10_000)] for name, other in others.items()}
    assert (rates["cadm"], rates["dali"]) == ([1e-3, 1e-3], [1e-4, 1e-4])
    assert all(others[name].train == SETTING.budget("paper").train for name in as_jepa)
    assert rates["fcrl"] == pytest.approx([3e-4, 1.5e-4])
    assert rates["nod-states"] == pytest.approx([1.0, 0.95**20])
    clips = {name: other.train.clip for name, other in others.items()}
    assert clips == dict.fromkeys((*as_jepa, "fcrl", "nod-states"), 1.0) | {"cadm": 1e30, "dali": 1_000.0}
    assert [others["dali"].train.after(share) for share in others["dali"].train.endpoints] == [20_000, 40_000, 80_000]
