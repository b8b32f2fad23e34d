"""Parts of a batch at a time: the loss and gradient of the whole, with less of it held."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import JEPA_CONFIG, Plain
from torch import Tensor

from sprii_train.fit import TrainConfig, fit, what_matters
from sprii_train.learners import AD, JEPA, ADConfig
from sprii_train.learners.ad import PlayWindows
from sprii_train.microbatches import chunked_loss
from sprii_train.protocol import Objective, Windows, take, training_loss
from sprii_train.records import read_rows

CONFIG = ADConfig(inputs=12, steps=4, width=16, layers=2, heads=2, slot=5)
PAIRS = 5


def play(pairs: int = PAIRS, seed: int = 0) -> PlayWindows:
    draw = torch.Generator().manual_seed(seed)
    shape = (2 * pairs, 5, CONFIG.steps)
    return PlayWindows(
        torch.randint(0, 4, (*shape, 12), generator=draw, dtype=torch.uint8),
        torch.randint(0, 6, shape, generator=draw).to(torch.uint8),
        torch.randn(shape, generator=draw).double(),
    )


def gradients(learner: torch.nn.Module, loss: Tensor) -> dict[str, Tensor]:
    learner.zero_grad(set_to_none=True)
    loss.backward()
    return {name: p.grad.clone() for name, p in learner.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("pairs", [1, 2, 4, 5, 9])
@pytest.mark.parametrize(
    "objective",
    [
        Objective(),
        Objective(lambda_p=0.5),
        Objective(lambda_p=0.5, invariance=0.0, native_on="recipients"),
        Objective(lambda_nce=0.7, lambda_x=0.3),
        Objective(lambda_p=0.5, lambda_x=0.3, cross_directions="one"),
    ],
)
def test_parts_have_the_loss_and_gradient_of_the_whole(objective: Objective, pairs: int):
    """With parts of unlike sizes too (2 + 2 + 1, 4 + 1); cross-entropies are of float32, the rest of float64."""
    torch.manual_seed(0)
    learner: Any = AD(CONFIG).double()
    whole, told = training_loss(learner, play(), objective)
    expected = gradients(learner, whole)
    parts, of_parts = chunked_loss(learner, play(), objective, pairs=pairs)
    torch.testing.assert_close(parts, whole, rtol=1e-6, atol=1e-7)
    assert set(of_parts) == set(told)
    for name, value in told.items():
        torch.testing.assert_close(of_parts[name], value, rtol=1e-6, atol=1e-7)
    found = gradients(learner, parts)
    assert set(found) == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-7)


def test_align_is_of_the_whole_batch_and_not_of_its_parts():
    """Losses of parts by themselves, averaged, are another number and gradient."""
    torch.manual_seed(0)
    learner: Any = AD(CONFIG).double()
    windows, objective = play(4), Objective(lambda_p=0.5)
    halves = [take(windows, torch.tensor(rows)) for rows in ([0, 1, 4, 5], [2, 3, 6, 7])]
    apart = sum(training_loss(learner, half, objective)[0] for half in halves) / 2
    other = gradients(learner, apart)
    found = gradients(learner, chunked_loss(learner, windows, objective, pairs=2)[0])
    assert max(float((found[name] - other[name]).abs().max()) for name in found) > 1e-3


def test_activations_are_held_part_by_part():
    """Bytes that the graph of a batch holds, without the weights."""
    learner: Any = AD(CONFIG)
    windows = play(32)._replace(rewards=play(32).rewards.float())
    weights = {p.data_ptr() for p in learner.parameters()}

    def held(loss: Any) -> int:
        count = 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal count
            count += 0 if tensor.data_ptr() in weights else tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss()
        return count

    objective = Objective(lambda_p=1.0)
    whole = held(lambda: training_loss(learner, windows, objective))
    assert 20 * held(lambda: chunked_loss(learner, windows, objective, pairs=2)) < whole


def test_a_part_leaves_a_few_nodes_of_the_graph():
    """Nodes without tensors take memory too: 2 MB a part of the paper's network."""
    learner: Any = AD(CONFIG)
    windows = play(32)._replace(rewards=play(32).rewards.float())

    def nodes(pairs: int) -> int:
        seen, ahead = set(), [chunked_loss(learner, windows, Objective(lambda_p=1.0), pairs=pairs)[0].grad_fn]
        while ahead:
            node = ahead.pop()
            if node is not None and node not in seen:
                seen.add(node)
                ahead += [following for following, _ in node.next_functions]
        return len(seen)

    assert (nodes(2) - nodes(8)) / (16 - 4) < 8


def test_dropout_is_drawn_once_for_a_part():
    """The second pass has the first one's masks: the gradient is that of the loss, by a difference."""
    torch.manual_seed(0)
    learner: Any = AD(ADConfig(**{**CONFIG.__dict__, "dropout": 0.5})).double().train()
    windows, objective = play(), Objective(lambda_p=0.5)

    def loss() -> Tensor:
        torch.manual_seed(3)
        return chunked_loss(learner, windows, objective, pairs=2)[0]

    found, weight = gradients(learner, loss())["fuse.weight"].flatten(), learner.fuse.weight.view(-1)
    at = int(found.abs().argmax())
    with torch.no_grad():
        weight[at] += 0.01
        up = loss()
        weight[at] -= 0.02
        down = loss()
    assert float((up - down) / 0.02) == pytest.approx(float(found[at]), rel=0.02)


class Plays:
    def identity(self) -> str:
        return "drawn by step"

    def __call__(self, step: int) -> PlayWindows:
        windows = play(4, step)
        return windows._replace(rewards=windows.rewards.float())


def test_a_run_in_parts_goes_as_that_of_the_whole(tmp_path: Path):
    rows = {}
    for size in (0, 3):
        torch.manual_seed(0)
        config = TrainConfig(
            steps=4, pairs=4, warmup=1, precision="fp32", learning_rate=1e-2, microbatch=size, log_every=1
        )
        data: Any = Plays()
        fit(AD(CONFIG), data, Objective(lambda_p=0.5), config, tmp_path / str(size), tensorboard=False)
        rows[size] = read_rows(tmp_path / str(size) / "metrics.jsonl")
        assert ("microbatch" in what_matters(config)) == bool(size)
    for name in ("loss", "align", "variance", "gradient_norm"):
        whole, parts = ([row[name] for row in rows[size]] for size in (0, 3))
        assert parts == pytest.approx(whole, rel=1e-3)
        assert len(set(whole)) == 4


def test_what_cannot_be_cut(windows: Windows):
    learner: Any = JEPA(JEPA_CONFIG)
    with pytest.raises(ValueError, match="native loss of JEPA may have statistics of a batch; legal in microbatches"):
        chunked_loss(learner, windows, Objective(), pairs=2)
    plain: Any = Plain()
    plain.native_by_window = True
    with pytest.raises(ValueError, match="n donors stacked on n recipients, got 5 windows"):
        chunked_loss(plain, take(windows, slice(0, 5)), Objective(), pairs=2)
    with pytest.raises(ValueError, match=r"pairs is 0; legal"):
        chunked_loss(plain, windows, Objective(), pairs=0)
    with pytest.raises(ValueError, match=r"TrainConfig.microbatch is -1; legal"):
        TrainConfig(microbatch=-1)
