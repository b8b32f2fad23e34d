"""Training on growing experience: tables and updates by hand, equality of recipes, exact resume, a planted factor."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from linear_world import CONFIG, collect

from sprii_train.checkpoints import load_training_state, save_training_state
from sprii_train.control.anchors import TrainingRows, anchors, rows, split
from sprii_train.control.assay import context_probes, donor_errors
from sprii_train.control.experience import Experience
from sprii_train.control.relations import RelatedAnchors, align_members
from sprii_train.control.tables import Tables, standardised
from sprii_train.control.training import (
    ControlTraining,
    IterationReport,
    build_optimizer,
    errors,
    has_risen,
    train_iteration,
    update,
    updates_done,
    validation_error,
)
from sprii_train.fit import NonFiniteLoss
from sprii_train.learners import CaDM, CaDMConfig
from sprii_train.protocol import Windows, encode
from sprii_train.recipes import CONTROL_RECIPES
from sprii_train.records import Records

TRAINING, SEED = ControlTraining(epochs=2, batch=16), 5
R7, CADM = CONTROL_RECIPES["r7"], CONTROL_RECIPES["cadm"]
OFF = replace(R7, objective=replace(R7.objective, lambda_p=0.0))
COLLECTED = ([0, 1, 2, 3], [1, 0, 4, 2], [5, 4, 3, 0])
"""Systems of three iterations: none can be paired after the first, three after the second."""


def experience(iterations: int, collected: tuple[list[int], ...] = COLLECTED) -> Experience:
    store = collect(collected[0], 12, seed=0)
    for i in range(1, iterations):
        collect(collected[i], 12, seed=i, into=store)
    return store


def train(
    recipe: Any = CADM,
    iterations: int = 3,
    config: ControlTraining = TRAINING,
    learner: CaDMConfig = CONFIG,
    seed: int = SEED,
) -> tuple[dict[str, torch.Tensor], list[IterationReport]]:
    model = CaDM(learner, seed=0)
    optimizer = build_optimizer(model, config)
    reports = [
        train_iteration(model, optimizer, experience(i + 1), i, config, recipe, seed=seed) for i in range(iterations)
    ]
    return model.state_dict(), reports


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    assert a.keys() == b.keys()
    return all(torch.equal(a[name], b[name]) for name in a)


def tables_of(store: Experience, config: CaDMConfig = CONFIG) -> tuple[CaDM, Tables, Any]:
    learner, at = CaDM(config, seed=0), anchors(store.lengths, window=config.window)
    return learner, standardised(learner, store, at), at


# Tables


def test_statistics_are_of_the_experience():
    store = collect([3, 1], 5, into=collect([0, 1, 2], 12))
    learner, _, at = tables_of(store)
    before, action, after = store.transitions()
    for name, values in (("observation", before), ("action", action), ("difference", after - before)):
        found = getattr(learner, name).numpy()
        np.testing.assert_allclose(found, [values.mean(0, np.float64), values.std(0, dtype=np.float64)], rtol=1e-5)
    slots = np.zeros((len(at.time), CONFIG.history, 1))
    for i, (e, t) in enumerate(zip(at.episode, at.time, strict=True)):
        done = store.actions[store.first[e] : store.first[e] + t][-CONFIG.history :]
        slots[i, : len(done)] = done
    np.testing.assert_allclose(learner.slots.numpy(), [slots.mean(0), slots.std(0)], rtol=1e-5)


def test_tables_are_what_the_operations_read():
    """A row's error from the tables is the one that `predict` finds in the episode itself."""
    store = collect([3, 1], 9, into=collect([0, 1], 12))
    learner, tables, at = tables_of(store)
    row = rows(at, np.arange(len(at.time)))
    total = torch.zeros(2)
    row = TrainingRows(*(x[::5] for x in row))
    for anchor, transition in zip(*row, strict=True):
        found, _ = errors(learner, tables, torch.tensor([[anchor]]), torch.tensor([[transition]]))
        e, t, offset = at.episode[anchor], at.time[anchor], transition - at.transition[anchor]
        o, a = store.windows(np.array([e]), np.array([0]), store.lengths[e] + 1)
        begin = max(0, t - CONFIG.history)
        observed = torch.from_numpy(o[:, begin : t + 1])
        steps = torch.from_numpy(o[:, t + offset + 1 : t + offset + 2]).repeat(1, 3, 1)
        window = Windows(observed, torch.from_numpy(a[:, begin:t]), steps, torch.from_numpy(a[:, [t + offset] * 3]))
        batch = learner.prepare(window)
        codes = encode(learner, batch)
        start = torch.from_numpy(o[:, t + offset])
        ahead = learner.predict(start, codes.z_p, batch.u)[:, 0, :, 0]
        target = learner.targets(start, steps[:, 0])
        expected = (ahead - torch.stack([target, -target], 1)).square().mean((0, 2))
        torch.testing.assert_close(found[:, 0], expected, rtol=1e-4, atol=1e-6)
        total += found[:, 0]
    assert validation_error(learner, tables, row) == pytest.approx(total[0].item() / len(row.anchor), rel=1e-5)


# Updates


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("related", [False, True])
def test_update_by_hand(members: int, related: bool):
    """Adam on the gradient of the whole loss, L2 and Align included, in float64."""
    config = replace(CONFIG, members=members, dynamics_decay=(0.1, 0.2, 0.3, 0.4, 0.5))
    store = experience(2)
    (learner, tables, _), (twin, _, _) = tables_of(store, config), tables_of(store, config)
    learner, twin, tables = learner.double(), twin.double(), Tables(*(x.double() for x in tables))
    optimizer, expected = build_optimizer(learner, TRAINING), torch.optim.Adam(twin.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(0)
    pairs = RelatedAnchors(np.array([5, 6, 7]), np.array([40, 41, 44])) if related else None
    objective = replace(R7.objective, lambda_p=0.5)
    for _ in range(3):
        anchor, transition = (torch.randint(60, (members, 8), generator=generator) for _ in range(2))
        parts = update(learner, optimizer, tables, anchor, transition, pairs, objective)
        (forward, backward), _ = errors(twin, tables, anchor, transition)
        loss = (forward + 0.5 * backward).sum() + twin.l2()
        assert parts.keys() >= {"forward", "backward"}
        assert ("align" in parts) == related
        if pairs is not None:
            donors, recipients = (
                twin.encode(tables.histories[torch.from_numpy(s)]) for s in (pairs.donor, pairs.recipient)
            )
            align = align_members(torch.cat([donors, recipients], 1), objective).total
            torch.testing.assert_close(parts["align"], align.detach())
            loss = loss + 0.5 * align
        torch.testing.assert_close(parts["forward"], forward.sum().detach())
        expected.zero_grad()
        loss.backward()
        expected.step()
        for (name, a), b in zip(learner.named_parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-9, msg=lambda m, name=name: f"{name}: {m}")


def test_l2_is_in_the_gradient_of_adam():
    """Without an error the weights fall at Adam's own rate, whatever the decay; decoupled it would hardly move them."""
    learner, _, _ = tables_of(experience(1))
    optimizer = build_optimizer(learner, TRAINING)
    weight = learner.encoder.weights[0]
    before = weight.detach().clone()
    for parameter in learner.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    moved = (before - weight.detach()) * before.sign()
    large = before.abs() > 1e-2  # where Adam's epsilon is nothing beside decay · weight
    torch.testing.assert_close(moved[large], torch.full_like(moved[large], 1e-3), rtol=0.1, atol=0)


def test_members_are_independent_in_training():
    """A member of an ensemble whose rows are those of a single learner is trained like it."""
    store = experience(2)
    pair, tables, _ = tables_of(store, replace(CONFIG, members=2))
    single, _, _ = tables_of(store)
    single.load_state_dict(
        {n: v[[1, 3]] if "dynamics" in n else v[[1]] if "encoder" in n else v for n, v in pair.state_dict().items()}
    )
    optimizers = build_optimizer(pair, TRAINING), build_optimizer(single, TRAINING)
    related = RelatedAnchors(np.array([5, 6, 7]), np.array([40, 41, 44]))
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        anchor, transition = (torch.randint(60, (2, 8), generator=generator) for _ in range(2))
        update(pair, optimizers[0], tables, anchor, transition, related, R7.objective)
        update(single, optimizers[1], tables, anchor[1:], transition[1:], related, R7.objective)
    for name, parameter in single.named_parameters():
        own = pair.get_parameter(name)[[1, 3] if "dynamics" in name else [1]]
        torch.testing.assert_close(own, parameter, rtol=1e-4, atol=1e-6)


# Iterations


def test_weight_zero_is_cadm_to_the_last_bit():
    cadm, reports = train(CADM)
    off, off_reports = train(OFF)
    assert same(cadm, off)
    assert [r.eligible_systems for r in reports] == [r.eligible_systems for r in off_reports] == [0, 3, 5]
    assert all("align" not in r.losses for r in (*reports, *off_reports))  # not computed, rather than times zero
    assert not same(cadm, train(R7)[0])


def test_too_few_systems_are_cadm_to_the_last_bit():
    collected = ([0, 1, 2, 0], [5, 6, 7, 8])
    states = []
    for recipe in (CADM, R7, CONTROL_RECIPES["random"]):
        learner = CaDM(CONFIG, seed=0)
        optimizer = build_optimizer(learner, TRAINING)
        for i in range(2):
            report = train_iteration(learner, optimizer, experience(i + 1, collected), i, TRAINING, recipe)
            assert report.eligible_systems == 1
            assert "align" not in report.losses
        states.append(learner.state_dict())
    assert same(states[0], states[1])
    assert same(states[0], states[2])


def test_recipes_differ_once_there_are_pairs():
    """Rows, validation anchors and counts are the same under each; weights are not."""
    (r7, first), (random, second) = train(R7, 2), train(CONTROL_RECIPES["random"], 2)
    assert not same(r7, random)
    for a, b in zip(first, second, strict=True):
        assert (a.rows, a.updates, a.eligible_systems) == (b.rows, b.updates, b.eligible_systems)
    assert "align" not in first[0].losses
    assert {"align", "invariance", "variance", "covariance", "forward", "backward", "l2"} <= first[1].losses.keys()


@pytest.mark.parametrize("members", [1, 2])
def test_report_counts(members: int):
    learner = replace(CONFIG, members=members)
    _, reports = train(iterations=2, learner=learner)
    for i, report in enumerate(reports):
        at = anchors(experience(i + 1).lengths, window=3)
        trained, held = split(len(at.time), seed=5, iteration=i)
        assert report.iteration == i
        assert report.episodes == 4 * (i + 1)
        assert report.rows == at.reach[trained].sum()
        assert report.updates == 2 * math.ceil(report.rows / 16)
        assert report.epochs == 2
        assert len(report.validation) == 1
        assert len(held) == len(at.time) // 10
        assert report.losses["validation"] == report.validation[0] > 0


def test_every_row_is_trained_on_once_an_epoch(monkeypatch: pytest.MonkeyPatch):
    seen: list[tuple[int, int]] = []

    def watch(learner: Any, optimizer: Any, tables: Any, anchor: Any, transition: Any, *rest: Any) -> Any:
        seen.extend(zip(anchor[0].tolist(), transition[0].tolist(), strict=True))
        return update(learner, optimizer, tables, anchor, transition, *rest)

    monkeypatch.setattr("sprii_train.control.training.update", watch)
    train(iterations=1, config=replace(TRAINING, epochs=1))
    at = anchors(experience(1).lengths, window=3)
    expected = rows(at, split(len(at.time), seed=5, iteration=0)[0])
    assert sorted(seen) == sorted(zip(*(x.tolist() for x in expected), strict=True))
    assert seen != sorted(seen)


def test_options_of_rows():
    everything = replace(TRAINING, first_anchor=0, dropped_transitions=0, validation=0.0)
    _, (report,) = train(iterations=1, config=everything)
    assert report.rows == 4 * (12 * 3 - 3)
    assert report.validation == ()
    assert "validation" not in report.losses


def test_resume_is_exact(tmp_path: Path):
    """Experience, weights and moments from disk after every iteration, against a run that never stopped."""
    whole, reports = train(R7)
    for i in range(3):
        learner = CaDM(CONFIG, seed=99)
        if i == 0:
            learner = CaDM(CONFIG, seed=0)
        optimizer = build_optimizer(learner, TRAINING)
        assert load_training_state(tmp_path / "checkpoints", learner, optimizer, "run") == i
        store = Experience.load(tmp_path / "experience") if i else Experience(2, 1, ("gain", "length"))
        collect(COLLECTED[i], 12, seed=i, into=store).save(tmp_path / "experience")
        report = train_iteration(learner, optimizer, store, i, TRAINING, R7, seed=SEED)
        assert replace(report, seconds=0.0) == replace(reports[i], seconds=0.0)
        save_training_state(tmp_path / "checkpoints", learner, optimizer, i + 1, "run")
        last = learner.state_dict()
    assert same(last, whole)
    assert updates_done(optimizer) == sum(r.updates for r in reports)


def test_seed_moves_batches():
    assert not same(train(iterations=1)[0], train(iterations=1, seed=6)[0])


def test_global_generators_are_left_alone():
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1]  # noqa: NPY002 (it must not have moved)
    train(R7, 2)
    assert torch.equal(torch.get_rng_state(), before)
    assert (np.random.get_state()[1] == numpy_before).all()  # noqa: NPY002


def test_records(tmp_path: Path):
    learner = CaDM(CONFIG, seed=0)
    optimizer = build_optimizer(learner, TRAINING)
    with Records(tmp_path, 0, tensorboard=False) as records:
        reports = [train_iteration(learner, optimizer, experience(i + 1), i, TRAINING, R7, records) for i in range(2)]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [0, 0, 1, 1]
    assert [line["eligible_systems"] for line in lines] == [0, 0, 3, 3]
    ends = np.cumsum([r.updates / 2 for r in reports for _ in range(2)])
    assert [line["step"] for line in lines] == ends.tolist()
    for name, value in reports[1].losses.items():
        assert lines[3][name] == value


@pytest.mark.parametrize(
    ("losses", "risen"),
    # The mean begins at 1.5 and halves its distance to each loss: 1.5, 1.25, 1.325.
    [
        ([], False),
        ([1.0], False),
        ([1.0, 1.2], False),
        ([1.0, 1.3], True),
        ([1.0, 1.4, 1.3], False),
        ([1.0, 1.4, 1.4], True),
    ],
)
def test_rolling_mean(losses: list[float], risen: bool):
    assert has_risen(losses, 0.5) == risen


@pytest.mark.parametrize(("rate", "stops"), [(TRAINING.learning_rate, False), (1.0, True)])
def test_early_stop(rate: float, stops: bool):
    """After the first epoch whose validation loss lifts the rolling mean; updates that are too long make it rise."""
    _, (report,) = train(iterations=1, config=replace(TRAINING, epochs=4, early_stop=0.99, learning_rate=rate))
    assert report.epochs == len(report.validation)
    assert (report.epochs < 4) == stops
    risen = [has_risen(report.validation[: n + 1], 0.99) for n in range(report.epochs)]
    assert risen == [False] * (report.epochs - 1) + [stops]


def test_nothing_to_train_on():
    learner = CaDM(CONFIG, seed=0)
    store = collect([0, 1], 2)
    with pytest.raises(ValueError, match="2 episodes have no row to train on"):
        train_iteration(learner, build_optimizer(learner, TRAINING), store, 0, TRAINING)


# Guards


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_non_finite_is_told_before_a_weight_changes(where: str):
    calls, held = [0], {}

    class Broken(CaDM):
        def predictions(self, inputs: torch.Tensor, contexts: torch.Tensor) -> torch.Tensor:
            calls[0] += 1
            found = super().predictions(inputs, contexts)
            if calls[0] == 8:
                held.update({n: v.clone() for n, v in self.state_dict().items()})
                if where == "loss":
                    return found * torch.tensor([1.0, float("nan")]).view(2, 1, 1, 1)
                found.register_hook(lambda g: g * float("inf"))
            return found

    learner = Broken(CONFIG)
    optimizer = build_optimizer(learner, TRAINING)
    message = {"loss": "backward is not finite", "gradient": "the gradient norm is not finite although the loss is"}
    with pytest.raises(NonFiniteLoss, match=f"iteration 4, epoch 0, update 7: {message[where]}"):
        train_iteration(learner, optimizer, experience(2), 4, TRAINING)
    assert same(learner.state_dict(), held)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "epochs is 0; legal: an integer >= 1"),
        ({"batch": 2.0}, r"batch is 2\.0; legal: an integer >= 1"),
        ({"systems": 1}, "systems is 1; legal: an integer >= 2"),
        ({"learning_rate": 0.0}, r"learning_rate is 0\.0; legal: a finite number > 0"),
        ({"validation": 1.0}, r"validation is 1\.0; legal: a number in \[0, 1\)"),
        ({"early_stop": float("nan")}, "early_stop is nan"),
    ],
)
def test_config_is_checked(change: dict, message: str):
    with pytest.raises(ValueError, match=message):
        replace(TRAINING, **change)


# A planted factor


def test_contexts_learn_what_persists():
    """In a linear world whose gain and drift persist, trained contexts tell both and predictions use them."""
    config = ControlTraining(epochs=15, batch=64, learning_rate=3e-3)
    store, held_out = collect(list(range(40)) * 2, 14, 0), collect(list(range(50, 80)) * 2, 14, 1)
    world = replace(CONFIG, encoder=(32, 32, 32), dynamics=(32, 32, 32, 32))
    learner, untrained = CaDM(world, seed=0), tables_of(store, world)[0]
    train_iteration(learner, build_optimizer(learner, config), store, 0, config, R7)
    before, after = (context_probes(model, store, held_out) for model in (untrained, learner))
    for name in ("gain", "length"):
        assert before[name].r2 < 0.5
        assert after[name].r2 > 0.95
    donors = donor_errors(learner, held_out, horizon=5)
    assert donors.own[-1] < 0.05 * donors.wrong[-1]
    assert donors.matched_last < 0.05 * donors.wrong[-1]
