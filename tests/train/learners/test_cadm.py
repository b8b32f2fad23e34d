"""CaDM: networks and losses by an explicit loop, histories by hand, statistics by NumPy, members one by one."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sprii_train.checkpoints import load, save
from sprii_train.learners import CaDM, CaDMConfig
from sprii_train.learners.cadm import Statistics, statistics
from sprii_train.learners.histories import History, append, empty_history, filled_slots, reset, window_history
from sprii_train.protocol import Objective, Windows, check_learner, encode, training_loss

SMALL = CaDMConfig(
    observation_dim=2, action_dim=1, history=3, window=4, context=2, encoder=(7, 6, 5), dynamics=(8, 7, 6, 5)
)
S, A, K, M = 2, 1, 3, 4


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + 31 * len(shape) + sum(shape)))


def learner_of(config: CaDMConfig = SMALL, seed: int = 3) -> CaDM:
    """With biases and statistics that are not those of the start."""
    learner = CaDM(config, seed)
    c = config
    for i, parameter in enumerate(learner.parameters()):
        if parameter.shape[1] == 1:
            parameter.data += 0.3 * random(*parameter.shape, seed=i)
    pairs = [(c.observation_dim,), (c.action_dim,), (c.observation_dim,), (c.history, c.action_dim)]
    learner.standardise_by(
        Statistics(
            *(torch.stack([random(*p, seed=9 + i), random(*p, seed=i).abs() + 0.5]) for i, p in enumerate(pairs))
        )
    )
    return learner


def windows_of(n: int, observations: int = K + 1, config: CaDMConfig = SMALL) -> Windows:
    c = config
    return Windows(
        random(n, observations, c.observation_dim),
        random(n, observations - 1, c.action_dim, seed=1),
        random(n, c.window, c.observation_dim, seed=2),
        random(n, c.window, c.action_dim, seed=3),
    )


def mlp(x: np.ndarray, learner: CaDM, bank: str, which: int) -> np.ndarray:
    """One network of a bank on one row, in float64."""
    networks = getattr(learner, bank)
    layers = len(networks.weights)
    for k in range(layers):
        x = x @ networks.weights[k][which].detach().double().numpy() + networks.biases[k][which, 0].detach().numpy()
        if k < layers - 1:
            x = np.maximum(x, 0) if bank == "encoder" else x / (1 + np.exp(-x))
    return x


def rows_by_hand(learner: CaDM, windows: Windows) -> list[tuple[float, float]]:
    """(forward, backward) squared error of every window, mean over its M steps and coordinates, sum over members."""
    members, found = learner.config.members, []
    o, a, f, u = (x.double().numpy() for x in windows[:4])
    stats = {n: learner.get_buffer(n).double().numpy() for n in ("observation", "action", "difference", "slots")}

    def scaled(x: np.ndarray, name: str) -> np.ndarray:
        return (x - stats[name][0]) / stats[name][1]

    for i in range(len(o)):
        forward = backward = 0.0
        for e in range(members):
            read = [np.zeros((K, S)), np.zeros((K, A))]
            transitions = list(zip(np.diff(o[i], axis=0), a[i], strict=True))[-K:]
            for slot, (difference, action) in enumerate(transitions):
                read[0][slot], read[1][slot] = difference, action
            code = mlp(np.concatenate([read[0].ravel(), scaled(read[1], "slots").ravel()]), learner, "encoder", e)
            for m in range(M):
                before, after = (o[i, -1] if m == 0 else f[i, m - 1]), f[i, m]
                action = scaled(u[i, m], "action")
                ahead = mlp(np.concatenate([scaled(before, "observation"), action, code]), learner, "dynamics", e)
                back = mlp(
                    np.concatenate([scaled(after, "observation"), action, code]), learner, "dynamics", members + e
                )
                # The backward change has the mean −μ and the SD of the forward one.
                mean, sd = stats["difference"]
                forward += ((ahead - (after - before - mean) / sd) ** 2).mean() / M
                backward += ((back - (before - after + mean) / sd) ** 2).mean() / M
        found.append((forward, backward))
    return found


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("observations", [1 + K, 2, 9])
def test_losses_by_an_explicit_loop(members: int, observations: int):
    learner, windows = learner_of(replace(SMALL, members=members)), windows_of(5, observations)
    batch = learner.prepare(windows)
    codes = encode(learner, batch)
    losses = learner.task_loss(learner.predict(codes.z_s, codes.z_p, batch.u), batch.y)
    by_hand = [forward + 0.5 * backward for forward, backward in rows_by_hand(learner, windows)]
    np.testing.assert_allclose(losses.detach(), by_hand, rtol=1e-4)
    loss, parts = learner.native_loss(batch, codes)
    np.testing.assert_allclose(parts["self"].item(), np.mean(by_hand), rtol=1e-4)
    torch.testing.assert_close(loss, parts["self"] + parts["l2"])


@pytest.mark.parametrize("members", [1, 2])
def test_l2_by_hand(members: int):
    learner = learner_of(CaDMConfig(members=members))
    decays = {"encoder": (2.5e-5, 5e-5, 7.5e-5, 7.5e-5), "dynamics": (2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4)}
    total = sum(
        decay * (weight.double() ** 2).sum().item() / 2
        for bank, each in decays.items()
        for decay, weight in zip(each, getattr(learner, bank).weights, strict=True)
    )
    assert learner.l2().item() == pytest.approx(total, rel=1e-5)
    assert len(learner.decays()) == 9


def test_published_sizes():
    learner = CaDM(CaDMConfig())
    encoder, dynamics = ([tuple(w.shape) for w in bank.weights] for bank in (learner.encoder, learner.dynamics))
    assert encoder == [(1, 40, 256), (1, 256, 128), (1, 128, 64), (1, 64, 10)]
    assert dynamics == [(2, 14, 200), *[(2, 200, 200)] * 3, (2, 200, 3)]


def test_initial_weights():
    """A normal of SD 1/(2√fan-in) cut at two SDs has 0.8796 of that SD; biases are zero."""
    learner = CaDM(CaDMConfig(), seed=5)
    for bank in (learner.encoder, learner.dynamics):
        for weight, bias in zip(bank.weights, bank.biases, strict=True):
            sd = 0.5 / math.sqrt(weight.shape[1])
            assert weight.abs().max() <= 2 * sd
            assert not bias.any()
            if weight.numel() > 5000:
                assert weight.std().item() == pytest.approx(0.87963 * sd, rel=0.03)
    before = torch.get_rng_state()
    same, other = CaDM(CaDMConfig(), seed=5), CaDM(CaDMConfig(), seed=6)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(learner.parameters(), same.parameters(), strict=True))
    assert not torch.equal(learner.encoder.weights[0], other.encoder.weights[0])


def test_members_are_separate_networks():
    """An ensemble's losses, gradients and steps are those of its members one by one."""
    ensemble = learner_of(replace(SMALL, members=3))
    windows = windows_of(6)
    batch = ensemble.prepare(windows)
    codes = encode(ensemble, batch)
    loss, _ = ensemble.native_loss(batch, codes)
    loss.backward()
    total, steps = 0.0, []
    for e in range(3):
        alone = CaDM(SMALL, seed=0)
        own = {"encoder": [e], "dynamics": [e, 3 + e]}
        state = {n: v[own[n.split(".")[0]]] if "." in n else v for n, v in ensemble.state_dict().items()}
        alone.load_state_dict(state)
        parts = encode(alone, alone.prepare(windows))
        torch.testing.assert_close(codes.z_p[:, 2 * e : 2 * e + 2], parts.z_p)
        single, _ = alone.native_loss(alone.prepare(windows), parts)
        single.backward()
        total += single.item()
        for name, parameter in alone.named_parameters():
            gradient = ensemble.get_parameter(name).grad
            assert gradient is not None
            torch.testing.assert_close(gradient[own[name.split(".")[0]]], parameter.grad, rtol=1e-4, atol=1e-6)
        steps.append(alone.step(batch.current, windows.future_actions[:, 0], parts.z_p))
    assert loss.item() == pytest.approx(total, rel=1e-5)
    got = ensemble.step(batch.current, windows.future_actions[:, 0], codes.z_p)
    torch.testing.assert_close(got, torch.stack(steps).mean(0))


def test_step_undoes_the_standardisation():
    learner, windows = learner_of(), windows_of(4)
    batch = learner.prepare(windows)
    context = learner.context(batch.history)
    action = windows.future_actions[:, 0]
    change = learner.predict(batch.current, context, batch.u)[:, 0, 0, 0]
    mean, sd = learner.difference
    expected = batch.current + change * sd + mean
    torch.testing.assert_close(learner.step(batch.current, action, context), expected)
    assert torch.equal(context, learner.encode_history(batch.history))


@pytest.mark.parametrize("members", [1, 2])
def test_is_a_learner(members: int):
    config = CaDMConfig(members=members)
    learner, windows = CaDM(config, seed=0), windows_of(8, 11, config)
    check_learner(learner, windows)
    learner.fit_statistics(windows)
    loss, parts = training_loss(learner, windows, Objective(lambda_p=0.003, lambda_x=0.1, target_std=0.1))
    assert torch.isfinite(loss)
    assert {"self", "l2", "align", "cross"} <= parts.keys()


@pytest.mark.parametrize("name", ["future_observations", "future_actions"])
def test_refuses_windows_of_other_horizons(name: str):
    windows = windows_of(4)
    with pytest.raises(ValueError, match="needs horizons 1 to 4, got"):
        learner_of().prepare(windows._replace(**{name: getattr(windows, name)[:, :3]}))


# Statistics


def test_statistics_by_numpy():
    """In float64: 1e4 + noise of 1e-2 has no correct float32 variance by the textbook formula."""
    arrays = [1e4 + 1e-2 * random(500, 2), random(500, 1), random(500, 2) * 3 - 1, random(400, 3, 1)]
    arrays[3][:, 2] = 7.0  # a constant slot
    found = statistics(arrays[0], arrays[1], arrays[2], arrays[3], floor=1e-6)
    for got, array in zip(found, arrays, strict=True):
        values = array.double().numpy()
        sd = values.std(0)
        assert got.dtype == torch.float64
        np.testing.assert_allclose(got[0], values.mean(0), rtol=1e-12)
        np.testing.assert_allclose(got[1], np.where(sd > 1e-6, sd, 1.0), rtol=1e-9)
    assert found.slots[1, 2].tolist() == [1.0]
    learner = CaDM(SMALL, seed=0)
    learner.standardise_by(found)
    torch.testing.assert_close(learner.slots, found.slots.float())
    assert learner.slots.dtype == torch.float32


@pytest.mark.parametrize("floor", [0.0, 1e-6])
def test_statistics_of_a_constant_have_scale_1(floor: float):
    tenths = torch.full((30_000, 1), 0.1)  # their mean is rounded, so their SD is not 0
    found = statistics(tenths, 1e6 * tenths, tenths - 0.1, tenths[:, None], floor=floor)
    assert [float(each[1].squeeze()) for each in found] == [1.0, 1.0, 1.0, 1.0]


def test_statistics_refuse_nothing_and_nan():
    good = [random(4, 2), random(4, 1), random(4, 2), random(4, 3, 1)]
    with pytest.raises(ValueError, match="action has 0 rows"):
        statistics(good[0], good[1][:0], *good[2:])
    good[2][1, 1] = float("nan")
    with pytest.raises(ValueError, match="difference has 4 rows; legal: at least one, and all finite"):
        statistics(*good)


# Histories


def test_running_histories_by_hand():
    """Slot by slot against lists, with episodes that begin at different times."""
    history, lists = empty_history(3, K, S, A), [[], [], []]
    for t in range(9):
        ended = torch.tensor([False, t == 4, t == 2])
        history = reset(history, ended)
        o, a, after = random(3, S, seed=t), random(3, A, seed=50 + t), random(3, S, seed=100 + t)
        before = History(*(x.clone() for x in history))
        new = append(history, o, a, after)
        assert all(torch.equal(x, y) for x, y in zip(history, before, strict=True))
        history = new
        for i in range(3):
            lists[i] = [*([] if ended[i] else lists[i])[-(K - 1) :], (after[i] - o[i], a[i])]
            zeros = [(torch.zeros(S), torch.zeros(A))] * (K - len(lists[i]))
            for slot, (difference, action) in enumerate(lists[i] + zeros):
                assert torch.equal(history.differences[i, slot], difference)
                assert torch.equal(history.actions[i, slot], action)
            assert history.filled[i] == len(lists[i])


@pytest.mark.parametrize("transitions", [1, 2, 3, 7])
def test_window_histories_are_the_running_ones(transitions: int):
    observations, actions = random(4, transitions + 1, S), random(4, transitions, A)
    running = empty_history(4, K, S, A)
    for t in range(transitions):
        running = append(running, observations[:, t], actions[:, t], observations[:, t + 1])
    for a, b in zip(running, window_history(observations, actions, K), strict=True):
        assert torch.equal(a, b)


def test_filled_slots():
    slots, filled = filled_slots(torch.tensor([0, 1, 3, 8]), K)
    assert slots.tolist() == [[0, 0, 0], [0, 0, 0], [0, 1, 2], [5, 6, 7]]
    assert filled.tolist() == [[False] * 3, [True, False, False], [True] * 3, [True] * 3]


def test_padding_is_a_raw_zero():
    """An empty slot reads as an action of zero, standardised like any other, and as no change."""
    learner = learner_of()
    empty = learner.history_inputs(empty_history(1, K, S, A))[0]
    mean, sd = learner.slots
    torch.testing.assert_close(empty, torch.cat([torch.zeros(K * S), (-mean / sd).flatten()]))


# Configuration and files


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"members": 0}, r"members is 0; legal: an integer >= 1"),
        ({"history": 1.5}, r"history is 1.5; legal: an integer >= 1"),
        ({"dynamics": (8, 0, 6, 5)}, r"dynamics\[1\] is 0; legal: an integer >= 1"),
        ({"encoder_decay": (1e-5,)}, r"encoder_decay is \(1e-05,\); legal: a finite number >= 0 for each of the 4 "),
        ({"dynamics_decay": (1e-5, 0, 0, 0, -1.0)}, "dynamics_decay"),
        ({"backward_weight": float("inf")}, r"backward_weight is inf; legal: a finite number >= 0"),
        ({"sd_floor": -1.0}, r"sd_floor is -1.0"),
    ],
)
def test_config_is_checked(changes: dict, message: str):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **changes)


@pytest.mark.parametrize("members", [1, 2])
def test_saves_and_loads(tmp_path: Path, members: int):
    learner, windows = learner_of(replace(SMALL, members=members)), windows_of(4)
    save(learner, tmp_path / "model")
    back = load(tmp_path / "model")
    assert isinstance(back, CaDM)
    assert back.config == learner.config
    context = learner.context(learner.prepare(windows).history)
    assert torch.equal(back.context(back.prepare(windows).history), context)
    step = (windows.observations[:, 0], windows.actions[:, 0], context)
    assert torch.equal(back.step(*step), learner.step(*step))


def test_histories_that_are_standardised_slot_by_slot():
    learner, windows = CaDM(replace(SMALL, scaled_history=True), seed=0).eval(), windows_of(6)
    plain = CaDM(SMALL, seed=0).eval()
    history = plain.prepare(windows).history
    torch.testing.assert_close(learner.history_inputs(history), plain.history_inputs(history))  # nothing is fitted yet
    learner.fit_statistics(windows)
    read = learner.history_inputs(history)
    np.testing.assert_allclose(read.mean(0), np.zeros(K * (S + A)), atol=1e-5)
    np.testing.assert_allclose(read.std(0, correction=0), np.ones(K * (S + A)), rtol=1e-4)
    plain.fit_statistics(windows)
    torch.testing.assert_close(plain.history_inputs(history)[:, : K * S], windows.observations.diff(dim=1).flatten(1))
