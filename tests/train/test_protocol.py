"""The training loss over the five operations, and `check_learner` on good and broken learners."""

from types import SimpleNamespace

import pytest
import torch
from tiny import JEPA_CONFIG, Plain, jepa_config
from torch import nn

from sprii_train.learners import JEPA
from sprii_train.objectives import align, relational_info_nce
from sprii_train.protocol import (
    Batch,
    Codes,
    Learner,
    Objective,
    Windows,
    check_learner,
    encode,
    self_loss,
    take,
)
from sprii_train.protocol import training_loss as training_loss_of

N = 8


def rows(windows: Windows, which: slice) -> Windows:
    return Windows(*(None if field is None else field[which] for field in windows))


def twice(windows: Windows) -> Windows:
    """The recipients as their own donors."""
    return Windows(*(None if f is None else torch.cat([f[N:], f[N:]]) for f in windows))


@pytest.mark.parametrize("directions", ["both", "one"])
@pytest.mark.parametrize("make", [Plain, lambda: JEPA(JEPA_CONFIG)])
def test_cross_with_own_context_is_the_self_loss(windows: Windows, directions: str, make):
    """To the last bit, in value and gradient: the donor's context is the only thing that Cross exchanges."""
    learner = make().eval()
    same = twice(windows)
    objective = Objective(lambda_x=1.0, cross_directions=directions, native_on="recipients")
    if directions == "both":
        objective = Objective(lambda_x=1.0, cross_directions=directions)
    _, parts = training_loss_of(learner, same, objective)
    assert torch.equal(parts["cross"], parts["self"])

    batch = learner.prepare(windows)
    codes = encode(learner, batch)
    grads = []
    for z_p in (codes.z_p, codes.z_p.clone()):
        loss = learner.task_loss(learner.predict(codes.z_s, z_p, batch.u), batch.y).mean()
        grads.append(torch.autograd.grad(loss, list(learner.parameters()), retain_graph=True, allow_unused=True))
        assert torch.equal(loss, self_loss(learner, batch, codes))
    for a, b in zip(*grads, strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.equal(a, b)


def test_lambda_zero_is_the_native_loss(windows: Windows):
    learner = JEPA(JEPA_CONFIG)  # in training mode: dropout and batch statistics included
    for native_on in ("all", "recipients"):
        torch.manual_seed(3)
        loss, parts = training_loss_of(learner, windows, Objective(native_on=native_on))
        torch.manual_seed(3)
        batch = learner.prepare(windows)
        codes = encode(learner, batch)
        if native_on == "recipients":
            batch, codes = (
                Batch(*(take(f, slice(N, None)) for f in batch)),
                Codes(codes.z_s[N:], codes.z_p[N:]),
            )
        expected, native_parts = learner.native_loss(batch, codes)
        assert torch.equal(loss, expected)
        assert parts.keys() == native_parts.keys()
        assert not any(value.requires_grad for value in parts.values())


def test_native_on_recipients(windows: Windows):
    learner = Plain()
    _, on_all = training_loss_of(learner, windows, Objective())
    _, on_recipients = training_loss_of(learner, windows, Objective(native_on="recipients"))
    _, donors_changed = training_loss_of(
        learner,
        Windows(*(None if f is None else torch.cat([f[:N] + 1.0, f[N:]]) for f in windows)),
        Objective(native_on="recipients"),
    )
    alone, _ = training_loss_of(learner, twice(windows), Objective())
    assert float(on_recipients["self"]) == pytest.approx(alone.item(), rel=1e-6)
    assert torch.equal(on_recipients["self"], donors_changed["self"])
    assert on_all["self"] != on_recipients["self"]


def test_sum_of_weighted_terms(windows: Windows):
    learner = Plain()
    objective = Objective(lambda_p=0.5, lambda_x=0.3, invariance=2.0, variance=3.0, covariance=4.0, target_std=0.7)
    loss, parts = training_loss_of(learner, windows, objective)
    z = learner.encode_history(windows.observations)
    terms = align(z[:N], z[N:], invariance=2.0, variance=3.0, covariance=4.0, target_std=0.7)
    for name, value in zip(("align", "invariance", "variance", "covariance"), terms, strict=True):
        torch.testing.assert_close(parts[name], value.detach(), rtol=1e-6, atol=0)
    torch.testing.assert_close(loss.detach(), parts["self"] + 0.5 * parts["align"] + 0.3 * parts["cross"])
    _, none = training_loss_of(learner, windows, Objective())
    assert set(none) == {"self"}


def test_info_nce_in_the_place_of_align(windows: Windows):
    learner = Plain()
    loss, parts = training_loss_of(learner, windows, Objective(lambda_nce=0.4, temperature=0.2))
    z = learner.encode_history(windows.observations)
    torch.testing.assert_close(parts["info_nce"], relational_info_nce(z[:N], z[N:], temperature=0.2).detach())
    torch.testing.assert_close(loss.detach(), parts["self"] + 0.4 * parts["info_nce"])
    assert set(parts) == {"self", "info_nce"}


class OfParts(Plain):
    """Cross is of the first horizon alone, Align of two numbers of a code that the batch names."""

    def cross_task_loss(self, prediction: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (prediction[:, 0] - y[:, 0]).square().mean(1)

    def align_codes(self, z_p: torch.Tensor, batch: Batch) -> torch.Tensor:
        rows = torch.arange(len(z_p))
        first = (batch.current[:, 0] > 0).long()
        return torch.stack([z_p[rows, first], z_p[rows, first + 1]], dim=1)


@pytest.mark.parametrize("directions", ["both", "one"])
def test_relations_of_parts(windows: Windows, directions: str):
    """What a learner says that Align and Cross are of; its native loss is of everything."""
    learner = OfParts()
    objective = Objective(lambda_p=0.5, lambda_x=1.0, lambda_nce=0.1, cross_directions=directions)
    _, parts = training_loss_of(learner, windows, objective)
    batch = learner.prepare(windows)
    codes = encode(learner, batch)
    swapped = learner.predict(codes.z_s, codes.z_p.roll(N, 0), batch.u)
    errors = (swapped[:, 0] - windows.future_observations[:, 0]).square().mean(1)
    torch.testing.assert_close(parts["cross"], errors[slice(N, None) if directions == "one" else slice(None)].mean())
    of = torch.stack([codes.z_p[i, int(windows.observations[i, -1, 0] > 0) :][:2] for i in range(2 * N)])
    torch.testing.assert_close(parts["align"], align(of[:N], of[N:]).total)
    torch.testing.assert_close(parts["info_nce"], relational_info_nce(of[:N], of[N:], temperature=0.1))
    assert torch.equal(parts["self"], self_loss(learner, batch, codes))


def test_who_predicts_with_whose_context(windows: Windows):
    """Row i is the donor of row n + i; in both directions each is once the other's."""
    learner = Plain()
    z_s, z_p = (
        learner.encode_current(windows.observations[:, -1]),
        learner.encode_history(windows.observations),
    )

    learner.calls.clear()
    _, parts = training_loss_of(learner, windows, Objective(lambda_x=1.0, cross_directions="one"))
    given_s, given_p, u = learner.calls[-1]
    assert torch.equal(given_s, z_s[N:])
    assert torch.equal(given_p, z_p[:N])
    assert torch.equal(u, windows.future_actions[N:])
    y = windows.future_observations[N:]
    errors = [learner.predict(z_s[[N + i]], z_p[[i]], u[[i]]) - y[[i]] for i in range(N)]
    by_hand = [error.square().mean().item() for error in errors]
    assert float(parts["cross"]) == pytest.approx(sum(by_hand) / N, rel=1e-5)

    learner.calls.clear()
    training_loss_of(learner, windows, Objective(lambda_x=1.0))
    given_s, given_p, u = learner.calls[-1]
    assert torch.equal(given_s, z_s)
    assert torch.equal(given_p, torch.cat([z_p[N:], z_p[:N]]))
    assert torch.equal(u, windows.future_actions)


def test_recipient_side_does_not_depend_on_the_donor(windows: Windows):
    learner = JEPA(JEPA_CONFIG).eval()
    other = Windows(*(None if f is None else torch.cat([f[:N].flip(0) * 2.0, f[N:]]) for f in windows))
    a, b = learner.prepare(windows), learner.prepare(other)
    for field in ("current", "u", "y"):
        assert torch.equal(getattr(a, field)[N:], getattr(b, field)[N:])
    assert torch.equal(encode(learner, a).z_s[N:], encode(learner, b).z_s[N:])
    assert not torch.equal(encode(learner, a).z_p[:N], encode(learner, b).z_p[:N])


def test_gradients_reach_both_contexts(windows: Windows):
    learner = Plain()
    z_p = learner.encode_history(windows.observations).detach().requires_grad_()
    learner.encode_history = lambda history: z_p  # type: ignore[method-assign]
    for objective in (Objective(lambda_p=1.0, native_on="recipients"), Objective(lambda_x=1.0)):
        (grad,) = torch.autograd.grad(training_loss_of(learner, windows, objective)[0], z_p)
        assert (grad.abs().sum(1) > 0).all()


def test_odd_batches_are_refused(windows: Windows):
    with pytest.raises(ValueError, match="got 15 windows"):
        training_loss_of(Plain(), rows(windows, slice(15)), Objective())


@pytest.mark.parametrize(
    ("field", "value", "legal"),
    [
        ("native_on", "donors", "all, recipients"),
        ("cross_directions", "two", "both, one"),
        ("lambda_p", -1.0, ">= 0"),
        ("lambda_x", float("nan"), "finite"),
        ("target_std", float("inf"), "finite"),
        ("lambda_nce", -0.5, ">= 0"),
        ("temperature", 0.0, "> 0"),
    ],
)
def test_objective_refuses(field: str, value: object, legal: str):
    with pytest.raises(ValueError, match=rf"Objective\.{field} is .*{legal}"):
        Objective(**{field: value})  # type: ignore[arg-type]


def test_take_any_structure():
    x = torch.arange(6)
    tree = Batch(history=(x, x + 1), current=[x], u={"a": x, "n": 3}, y=None)
    got = take(tree, slice(4, None))
    assert isinstance(got, Batch)
    assert got.history[1].tolist() == [5, 6]
    assert got.current[0].tolist() == [4, 5]
    assert got.u["a"].tolist() == [4, 5]
    assert got.u["n"] == 3
    assert got.y is None
    assert take(x, torch.tensor([5, 0])).tolist() == [5, 0]


# check_learner


@pytest.mark.parametrize("context", ["split", "monolithic", "supervised"])
@pytest.mark.parametrize("training", [True, False])
def test_check_learner_accepts_the_jepa(windows: Windows, context: str, training: bool):
    learner = JEPA(jepa_config(context=context)).train(training)
    learner.encoder.eval()
    before = {k: v.clone() for k, v in learner.state_dict().items()}
    random = torch.get_rng_state()
    assert isinstance(learner, Learner)
    check_learner(learner, windows)
    assert torch.equal(torch.get_rng_state(), random)
    assert learner.training is training
    assert learner.encoder.training is False
    for name, value in learner.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_check_learner_accepts_a_plain_module_and_a_plain_object(windows: Windows):
    learner = Plain()
    check_learner(learner, windows)
    names = ("prepare", "encode_history", "encode_current", "predict", "task_loss", "native_loss")
    check_learner(SimpleNamespace(**{name: getattr(learner, name) for name in names}), windows)


class MixesRows(Plain):
    def encode_history(self, history):
        z = super().encode_history(history)
        return z - z.mean(0)


class MixesCurrentRows(Plain):
    def encode_current(self, current):
        return super().encode_current(current.cumsum(0).flip(0))


class IgnoresContext(Plain):
    def predict(self, z_s, z_p, u):
        return super().predict(z_s, torch.zeros_like(z_p), u)


class IgnoresContextBehindDropout(IgnoresContext):
    def predict(self, z_s, z_p, u):
        return nn.functional.dropout(super().predict(z_s, z_p, u), 0.5, self.training)


class FlatContext(Plain):
    def encode_history(self, history):
        return super().encode_history(history)[:, 0]


class ScalarTaskLoss(Plain):
    def task_loss(self, prediction, y):
        return super().task_loss(prediction, y).mean()


class VectorNativeLoss(Plain):
    def native_loss(self, batch, codes):
        return self.task_loss(self.predict(codes.z_s, codes.z_p, batch.u), batch.y), {}


class NotFinite(Plain):
    def task_loss(self, prediction, y):
        return super().task_loss(prediction, y) / 0.0


class ScalarCrossLoss(Plain):
    def cross_task_loss(self, prediction: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.task_loss(prediction, y).mean()


class FlatAlignCodes(Plain):
    def align_codes(self, z_p: torch.Tensor, batch: Batch) -> torch.Tensor:
        return z_p[:, 0]


class NoPredict(Plain):
    predict = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("broken", "error", "message"),
    [
        (MixesRows, ValueError, "z_p of a window depends on the other windows"),
        (MixesCurrentRows, ValueError, "z_s of a window depends on the other windows"),
        (IgnoresContext, ValueError, "predict ignores z_p"),
        (IgnoresContextBehindDropout, ValueError, "predict ignores z_p"),
        (FlatContext, ValueError, r"z_p must have shape \(16, d\), got \(16,\)"),
        (ScalarTaskLoss, ValueError, r"task_loss must return one loss a recipient, \(16,\), got \(\)"),
        (ScalarCrossLoss, ValueError, r"cross_task_loss must return one loss a recipient, \(16,\), got \(\)"),
        (FlatAlignCodes, ValueError, r"align_codes must return a code a row, \(16, d\), got \(16,\)"),
        (VectorNativeLoss, ValueError, r"native_loss must return a scalar, got shape \(16,\)"),
        (NotFinite, ValueError, "not finite"),
        (NoPredict, TypeError, "NoPredict lacks the operation 'predict'"),
    ],
)
def test_check_learner_names_the_fault(windows: Windows, broken: type[Plain], error: type[Exception], message: str):
    learner = broken()
    with pytest.raises(error, match=message):
        check_learner(learner, windows)
    assert learner.training
