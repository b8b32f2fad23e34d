"""Align and Cross for a network of your own: a plain GRU forecaster, wrapped and trained on D-Clean in under a minute.

    python examples/gru_learner.py

`Forecaster` is any recurrent model: it reads a history of states and actions and predicts future states. `SpriiGRU`
adds the six operations of `sprii_train.protocol.Learner`; nothing else is needed to train it with Align and Cross, to
resume it, or to measure what its context contains. The numbers printed are the R² of a ridge regression of the hidden
drag on the context z_p, fitted on training systems and read on validation systems, before and after training.
"""

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from sprii_envs.banks import D_CLEAN, Bank, BankProtocol, build
from sprii_train.analysis.donors import encode_split
from sprii_train.analysis.formation import ridge_probe
from sprii_train.data import PairedWindows, WindowReader
from sprii_train.fit import TrainConfig, fit
from sprii_train.protocol import Batch, Codes, Objective, Windows, check_learner, self_loss

HISTORY, HORIZONS = 24, (1, 4, 16)
PROTOCOL = D_CLEAN.replace(systems={"train": 300, "validation": 100})


class Forecaster(nn.Module):
    """Your model: a GRU over (state, action before it), and a head from features to the change of state."""

    def __init__(self, hidden: int = 64, state: int = 4, action: int = 2) -> None:
        super().__init__()
        self.gru = nn.GRU(state + action, hidden, batch_first=True)
        inputs = 16 + state + HORIZONS[-1] * action
        self.head = nn.Sequential(nn.Linear(inputs, 128), nn.GELU(), nn.Linear(128, len(HORIZONS) * state))


class SpriiGRU(nn.Module):
    """The wrapper: which part of the model is the persistent context, and what the recipient brings."""

    def __init__(self, model: Forecaster) -> None:
        super().__init__()
        self.model, self.context = model, nn.Linear(model.gru.hidden_size, 16)

    def prepare(self, windows: Windows) -> Batch:
        before = nn.functional.pad(windows.actions, (0, 0, 1, 0))
        now = windows.observations[:, -1]
        change = windows.future_observations - now[:, None]
        return Batch(torch.cat([windows.observations, before], -1), now, windows.future_actions.flatten(1), change)

    def encode_history(self, history: Tensor) -> Tensor:
        return self.context(self.model.gru(history)[0][:, -1])

    def encode_current(self, current: Tensor) -> Tensor:
        return current

    def predict(self, z_s: Tensor, z_p: Tensor, u: Tensor) -> Tensor:
        return self.model.head(torch.cat([z_s, z_p, u], -1)).unflatten(-1, (len(HORIZONS), -1))

    def task_loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        return (prediction - y).square().mean((1, 2))

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        loss = self_loss(self, batch, codes)
        return loss, {"self": loss}


def drag_r2(learner: nn.Module, reader: WindowReader) -> float:
    """R² of drag from one window's context, on systems that the probe and the learner have not seen."""
    learner.eval()
    train, held_out = (encode_split(learner, reader, split, seed=0) for split in ("train", "validation"))
    codes = [e.codes.z_p.double().numpy() for e in (train, held_out)]
    return ridge_probe(codes[0], train.table["drag"], codes[1], held_out.table["drag"], train.table["system"])


def run(folder: Path, *, protocol: BankProtocol = PROTOCOL, steps: int = 400, pairs: int = 48) -> tuple[float, float]:
    """Build a bank, train, and return the drag R² before and after."""
    bank: Bank = build(protocol, folder / "bank")
    reader = WindowReader(bank, HISTORY, HORIZONS)
    data = PairedWindows(reader, pairs=pairs)
    torch.manual_seed(0)
    learner = SpriiGRU(Forecaster())
    check_learner(learner, data(0))
    before = drag_r2(learner, reader)
    config = TrainConfig(steps=steps, pairs=pairs, learning_rate=2e-3, warmup=20, checkpoint_every=200)
    fit(learner, data, Objective(lambda_p=1.0, lambda_x=0.1), config, folder / "run", tensorboard=False)
    return before, drag_r2(learner, reader)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        before, after = run(Path(temporary))
    print(f"drag R² of the context: {before:.3f} untrained, {after:.3f} after 400 steps of Align + Cross")
