"""Two ranks against one process: the same loss, gradient, curve and files, whatever the world size."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import Ranks
from tiny import HISTORY, HORIZONS, Plain, jepa_config
from torch import Tensor, nn

from sprii_envs.banks import Bank
from sprii_train import distributed
from sprii_train.checkpoints import CheckpointError, training_states
from sprii_train.data import PairedWindows, WindowReader
from sprii_train.fit import Interrupted, NonFiniteLoss, TrainConfig, fit
from sprii_train.learners import JEPA
from sprii_train.modules import BatchNorm1d, dropout
from sprii_train.objectives import align, relational_info_nce, sigreg, sigreg_directions
from sprii_train.protocol import Objective, Windows, take, training_loss

CONFIG = TrainConfig(steps=6, pairs=8, warmup=2, checkpoint_every=4, log_every=1, precision="fp32", learning_rate=1e-2)
OBJECTIVE = Objective(lambda_p=1.0, lambda_x=0.1, lambda_nce=0.5)
STATES = jepa_config(dropout=0.3, sigreg_samples="pooled")
FRAMES = jepa_config(dropout=0.3, image=16, stem=(4, 8), patch=4, frames="scaled")


def learner_of(config: Any) -> JEPA:
    torch.manual_seed(7)
    return JEPA(config)


def data_of(bank: str, image: int = 0, properties: tuple[str, ...] = ()) -> PairedWindows:
    reader = WindowReader(Bank.open(bank), HISTORY, HORIZONS, properties, image)
    return PairedWindows(reader, pairs=CONFIG.pairs, seed=0)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with Ranks(tmp_path_factory.mktemp("ranks")) as ranks:
        yield ranks


# One update


def share(rows: int) -> Tensor:
    """This rank's rows of a batch of donors stacked on recipients."""
    return torch.arange(rows).view(2, -1)[:, distributed.own_share(rows // 2)].flatten()


def statistics(x: Tensor) -> dict[str, Tensor]:
    """Every statistic of a batch, with the gradient of their sum, from rows (2n, d) that the ranks share."""
    rows = share(len(x))
    own = x[rows].clone().requires_grad_()
    a, b = own.chunk(2)
    norm = BatchNorm1d(x.shape[1]).to(x.dtype)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(1))
        norm.bias.uniform_(-1.0, 1.0, generator=torch.Generator().manual_seed(2))
    directions = sigreg_directions(x.shape[1], 5, seed=0, step=0)
    torch.manual_seed(3)
    values = {
        "align": align(a, b).total,
        "nce": relational_info_nce(a, b, temperature=0.2),
        "pooled": sigreg(own, directions),
        "step": sigreg(own.unflatten(0, (-1, 2)).transpose(0, 1), directions),
        "norm": norm(own).pow(3).mean(),
        "dropout": dropout(own, 0.4, training=True).square().mean(),
    }
    sum(values.values()).backward()  # type: ignore[union-attr]
    assert own.grad is not None
    told = {name: distributed.average(value.detach()) for name, value in values.items()}
    # The run's loss is the mean of the ranks' losses.
    return told | {"grad": own.grad / distributed.world(), "mean": norm.running_mean, "var": norm.running_var}  # type: ignore[dict-item]


def test_statistics_and_their_gradients_are_of_the_whole_batch(ranks: Ranks):
    x = (
        torch.randn(24, 3, dtype=torch.float64) * 3.0 + 50.0
    )  # a mean far from 0, which a mean of squares would not bear
    whole = statistics(x)
    for r, part in enumerate(ranks(statistics, x)):
        rows = torch.arange(24).view(2, 2, 6)[:, r].flatten()
        torch.testing.assert_close(part.pop("grad"), whole["grad"][rows], rtol=1e-6, atol=1e-9)
        for name, value in part.items():
            torch.testing.assert_close(value, whole[name], rtol=1e-6, atol=1e-9, msg=name)
    by_hand = nn.BatchNorm1d(3).double()
    by_hand(x)
    torch.testing.assert_close(whole["var"], by_hand.running_var)


def gradients(config: Any, windows: Windows, objective: Objective) -> dict[str, Any]:
    learner = learner_of(config).to(torch.float32 if config.image else torch.float64).train()  # frames are float32
    learner.at_step(3, 5)
    torch.manual_seed(11)
    own = take(windows, share(len(windows.observations)))
    compute = distributed.parallel(learner, training_loss)
    loss, parts = compute(learner, own, objective)
    loss.backward()
    grads = {name: p.grad for name, p in learner.named_parameters() if p.grad is not None}
    return {"loss": distributed.average(loss.detach()), "grads": grads, "parts": parts}


@pytest.mark.parametrize("case", ["states", "frames", "step", "native", "recipients", "supervised"])
def test_gradients_are_those_of_one_process(bank: Bank, case: str, ranks: Ranks):
    config, objective, image = STATES, OBJECTIVE, 0
    if case == "frames":
        config, image = FRAMES, 16
    elif case == "step":
        config = replace(STATES, sigreg_samples="step", sigreg_slices=15)  # which two ranks share unevenly
    elif case == "native":
        config, objective = replace(STATES, context="monolithic"), Objective()
    elif case == "supervised":
        config, objective = replace(STATES, context="supervised"), Objective(lambda_x=0.1)
    elif case == "recipients":
        objective = replace(OBJECTIVE, native_on="recipients", cross_directions="one")
    windows = data_of(str(bank.path), image, ("drag",))(0)
    if not image:
        windows = Windows(*(f if f is None else f.double() for f in windows))
    whole = gradients(config, windows, objective)
    for part in ranks(gradients, config, windows, objective):
        assert part["loss"].item() == pytest.approx(whole["loss"].item(), rel=1e-6)
        assert part["grads"].keys() == whole["grads"].keys()
        for name, grad in whole["grads"].items():
            scale = all_of(whole["grads"]).norm() if image else grad.norm()
            error = (part["grads"][name] - grad).norm() / max(scale.item(), 1e-6)
            assert error < (1e-4 if image else 1e-6), f"{name}: {error}"


def all_of(grads: dict[str, Tensor]) -> Tensor:
    return torch.cat([g.flatten() for g in grads.values()])


# Whole runs


class Counted:
    """Data that knows how many rows were read at each step."""

    def __init__(self, data: PairedWindows) -> None:
        self.data, self.rows = data, []

    def identity(self) -> dict[str, Any]:
        return self.data.identity()

    def shard(self, rank: int, world: int) -> "Counted":
        self.data = self.data.shard(rank, world)
        return self

    def __call__(self, step: int) -> Windows:
        read = self.data.reader.read
        try:
            self.data.reader.read = self.reading(read)  # type: ignore[method-assign]
            return self.data(step)
        finally:
            self.data.reader.read = read  # type: ignore[method-assign]

    def reading(self, read: Any) -> Any:
        def counted(episodes: Any, *rest: Any) -> Windows:
            self.rows.append(len(episodes))
            return read(episodes, *rest)

        return counted


class Stopping:
    """Data that send this process a SIGTERM, on one rank, while the batch of a step is read."""

    def __init__(self, data: Counted, at: int, rank: int) -> None:
        self._data, self._at, self._rank = data, at, rank

    def identity(self) -> dict[str, Any]:
        return self._data.identity()

    def shard(self, rank: int, world: int) -> "Stopping":
        self._data.shard(rank, world)
        return self

    def __call__(self, step: int) -> Windows:
        if self._at and step == self._at - 1 and distributed.rank() == self._rank:
            os.kill(os.getpid(), signal.SIGTERM)
        return self._data(step)


def run(
    bank: str, folder: Path, config: Any = STATES, *, stop_at: int = 0, stopper: int = 0, plain: bool = False
) -> dict[str, Any]:
    """One `fit`, and what it left behind; rank `stopper` gets a SIGTERM while it reads the batch of step `stop_at`."""
    data = Counted(data_of(bank, config.image))

    seen: list[int] = []
    stopped = ""
    learner = learner_of(config)
    try:
        source: Any = data_of(bank, config.image) if plain else Stopping(data, stop_at, stopper)
        fit(
            learner, Whole(source) if plain else source, OBJECTIVE, CONFIG, folder,
            progress=lambda step, _: seen.append(step), tensorboard=distributed.world() > 1,
        )  # fmt: skip
    except Interrupted as error:
        stopped = str(error)
    return {"weights": learner.state_dict(), "seen": seen, "rows": data.rows, "stopped": stopped}


class Whole:
    """Data without a `shard`: `fit` cuts the batches."""

    def __init__(self, data: PairedWindows) -> None:
        self.data, self.identity = data, data.identity

    def __call__(self, step: int) -> Windows:
        return self.data(step)


def curve(folder: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k != "steps_per_second"} for row in rows]


def assert_alike(weights: dict[str, Tensor], folder: Path, whole: tuple[dict[str, Tensor], list[dict]]) -> None:
    """The same curve and weights to what six steps at a rate of 1e-2 make of float32 rounding.

    Biases before a batch norm, and of keys, have no gradient but rounding, which AdamW makes whole steps of.
    """
    rows = curve(folder)
    assert [row["step"] for row in rows] == [row["step"] for row in whole[1]]
    for row, expected in zip(rows, whole[1], strict=True):
        assert row == pytest.approx(expected, rel=2e-4, abs=1e-5)
    for name, value in weights.items():
        if not name.endswith((".bias", "running_mean")):
            torch.testing.assert_close(value, whole[0][name], rtol=1e-3, atol=2e-4, msg=name)


@pytest.fixture(scope="module")
def whole(bank: Bank, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, list[dict]]:
    folder = tmp_path_factory.mktemp("one")
    return run(str(bank.path), folder)["weights"], curve(folder)


def test_two_ranks_train_as_one_process(bank: Bank, tmp_path: Path, whole, ranks: Ranks):
    first, second = ranks(run, str(bank.path), tmp_path / "run")
    assert_alike(first["weights"], tmp_path / "run", whole)
    assert all(torch.equal(v, second["weights"][k]) for k, v in first["weights"].items())
    assert (first["seen"], second["seen"]) == ([1, 2, 3, 4, 5, 6], [])
    assert first["rows"] == second["rows"] == [CONFIG.pairs] * 6  # half of 2 × 8 windows each
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 1


def test_two_ranks_train_a_learner_of_frames(bank: Bank, tmp_path: Path, ranks: Ranks):
    alone = run(str(bank.path), tmp_path / "one", FRAMES)
    first, _ = ranks(run, str(bank.path), tmp_path / "two", FRAMES)
    assert first["weights"]["observed.steps"] == 6
    assert_alike(first["weights"], tmp_path / "two", (alone["weights"], curve(tmp_path / "one")))


@pytest.mark.parametrize("worlds", [(1, 2), (2, 1)])
def test_a_signal_to_one_rank_stops_all_and_another_world_resumes(
    bank: Bank, tmp_path: Path, whole, worlds: tuple[int, int], ranks: Ranks
):
    def go(world: int, **options: Any) -> list[dict[str, Any]]:
        if world == 1:
            return [run(str(bank.path), tmp_path / "run", **(options | {"stopper": 0}))]
        return ranks(_go, str(bank.path), tmp_path / "run", options)

    for part in go(worlds[0], stop_at=3, stopper=1):
        assert part["stopped"].startswith("stopped at step 3 of 6")
    assert [s.name for s in training_states(tmp_path / "run" / "checkpoints")] == ["step-00000003"]
    first = go(worlds[1])[0]
    assert first["seen"] == [4, 5, 6]
    assert_alike(first["weights"], tmp_path / "run", whole)


def _go(bank: str, folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    return run(bank, folder, **options)


def test_data_that_cannot_read_a_share_is_cut(bank: Bank, tmp_path: Path, whole, ranks: Ranks):
    first, _ = ranks(_go, str(bank.path), tmp_path / "run", {"plain": True})
    assert_alike(first["weights"], tmp_path / "run", whole)


# Errors and plumbing


def refused(bank: str, folder: Path) -> list[str]:
    """What every rank says of a wrong number of pairs, of a folder with another run, and of an error of rank 0."""
    said = []
    for config, at in ((replace(CONFIG, pairs=7), "pairs"), (replace(CONFIG, seed=1), "other")):
        try:
            fit(learner_of(STATES), data_of(bank), OBJECTIVE, config, folder / at, tensorboard=False)
        except (ValueError, CheckpointError) as error:
            said.append(str(error))
    bad = data_of(bank)(0)
    bad.future_observations[CONFIG.pairs - 1] = float("nan")  # a donor of the last rank
    try:
        fit(
            learner_of(STATES),
            lambda _: bad,
            OBJECTIVE,
            CONFIG,
            folder / "nan",
            identity={"data": 0},
            tensorboard=False,
        )
    except NonFiniteLoss as error:
        said.append(str(error))
    try:
        distributed.first(lambda: 1 // 0)
    except ZeroDivisionError as error:
        said.append(str(error))
    try:
        sigreg(torch.zeros(4, 5), torch.eye(5)[:, :1])
    except ValueError as error:
        said.append(str(error))
    said.append(str(distributed.first(lambda: f"from {distributed.rank()}")))
    said.append(str(distributed.any_rank(distributed.rank() == 1, torch.device("cpu"))))
    return said


def test_every_rank_raises_the_same_error(bank: Bank, tmp_path: Path, ranks: Ranks):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run.json").write_text("{}")
    said, other = ranks(refused, str(bank.path), tmp_path)
    assert said == other
    assert said[0] == "TrainConfig.pairs is 7; legal: a multiple of 2, so that all ranks get as many"
    assert "holds another run" in said[1]
    assert said[2].startswith("step 0: ")
    assert "self, sigreg" in said[2]
    zero, fewer = "integer division or modulo by zero", "sigreg needs a direction for each of 2 ranks, got 1"
    assert said[3:] == [zero, fewer, "from 0", "True"]


def test_shares_of_a_batch_are_its_rows(bank: Bank):
    data = data_of(str(bank.path))
    batch = data(3)
    for world in (1, 2, 4):
        for r in range(world):
            rows = torch.arange(16).view(2, world, -1)[:, r].flatten()
            for part, field in zip(data.shard(r, world)(3), batch, strict=True):
                assert (part is None) == (field is None)
                assert field is None or torch.equal(part, field[rows])
    with pytest.raises(ValueError, match="8 pairs cannot be shared evenly by 3 ranks"):
        data.shard(0, 3)


class Unused(Plain):
    """A learner with a parameter that no loss reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Parameter(torch.ones(2))


def train_unused(windows: Windows, folder: Path) -> Tensor:
    torch.manual_seed(0)
    learner = fit(
        Unused(), lambda _: windows, Objective(lambda_p=1.0), CONFIG, folder, identity={"data": 0}, tensorboard=False
    )
    return torch.cat([p.detach().flatten() for p in learner.parameters()])


def test_a_parameter_that_no_loss_reaches_is_left_alone(windows: Windows, tmp_path: Path, ranks: Ranks):
    alone = train_unused(windows, tmp_path / "one")
    assert (alone[:2] == 1.0).all()
    for part in ranks(train_unused, windows, tmp_path / "two"):
        torch.testing.assert_close(part, alone, rtol=1e-4, atol=1e-5)


def test_a_process_alone_is_untouched():
    x = torch.randn(6, 3, requires_grad=True)
    assert distributed.gather(x) is x
    assert distributed.average(x) is x
    assert distributed.parallel(nn.Linear(2, 2), training_loss) is training_loss
    assert (distributed.rank(), distributed.world()) == (0, 1)
    ours, theirs = BatchNorm1d(3), nn.BatchNorm1d(3)
    for _ in range(3):
        assert torch.equal(ours(x), theirs(x))
    ours.load_state_dict(theirs.state_dict())  # existing checkpoints fit
    assert list(ours.state_dict()) == list(theirs.state_dict())


TORCHRUN = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import test_distributed
test_distributed.run({bank!r}, Path({folder!r}))
"""


def test_torchrun(bank: Bank, tmp_path: Path, whole):
    script = tmp_path / "script.py"
    script.write_text(
        TORCHRUN.format(tests=str(Path(__file__).parent), bank=str(bank.path), folder=str(tmp_path / "run"))
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    assert len(curve(tmp_path / "run")) == 6
    for row, expected in zip(curve(tmp_path / "run"), whole[1], strict=True):
        assert row == pytest.approx(expected, rel=2e-4, abs=1e-5)
