"""Align and Cross for a network of your own: a plain GRU forecaster, wrapped, and trained in under a minute.

    python examples/gru_learner.py                  # --device cuda trains there

`Forecaster` is an ordinary recurrent model: it reads states and actions and predicts future states.
`SpriiGRU` adds the five operations of `sprii_train.protocol.Learner` and `prepare`; nothing else is needed to train
it with Align and Cross, to resume it, or to measure what its context holds. Printed is the R² of a ridge regression
of the hidden drag on the context z_p of one window, fitted on training systems and read on validation systems:
untrained, after the native loss alone, and after Align + Cross, from the same initial weights and windows.
It is one seed of a small run, an example and no comparison: forecasting alone also teaches this learner drag.

Two things matter for a learner of yours: inputs and targets of unit scale (here `features` and `change`), and
weights that fit the size of the native loss. The paper's λ_p = 1 drowns this one; 0.03 was chosen by hand.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from sprii_envs.banks import D_CLEAN, BankProtocol, build
from sprii_train.analysis.donors import encode_split
from sprii_train.analysis.formation import Factor, fit_ridge, sample_of, score
from sprii_train.analysis.populations import Development, Training
from sprii_train.data import PairedWindows, WindowReader
from sprii_train.fit import TrainConfig, device_name, fit
from sprii_train.protocol import Batch, Codes, Objective, Windows, check_learner, self_loss

HISTORY, HORIZONS = 24, (1, 4, 16)
PROTOCOL = D_CLEAN.replace(systems={"train": 300, "validation": 100})
OBJECTIVES = {"native loss alone": Objective(), "Align + Cross": Objective(lambda_p=0.03, lambda_x=1.0)}


class Forecaster(nn.Module):
    """Your model: a GRU over velocities and forces, and a head for the change of state at each horizon."""

    def __init__(self, hidden: int = 64, context: int = 16) -> None:
        super().__init__()
        self.gru = nn.GRU(6, hidden, batch_first=True)
        self.project = nn.Linear(hidden, context)
        self.head = nn.Sequential(
            nn.Linear(4 + context + 2 * HORIZONS[-1], 128), nn.GELU(), nn.Linear(128, 4 * len(HORIZONS))
        )

    @staticmethod
    def features(states: Tensor, actions: Tensor) -> Tensor:
        """[velocity, its last change, the action that made it], each of about unit variance: (B, T, 6)."""
        velocity = states[..., 2:]
        change, before = (nn.functional.pad(x, (0, 0, 1, 0)) for x in (velocity.diff(dim=1), actions))
        return torch.cat([2.5 * velocity, 15.0 * change, 3.0 * before], dim=-1)


class SpriiGRU(nn.Module):
    """The wrapper: what is the persistent context, what is the recipient's own, and what is predicted."""

    def __init__(self, model: Forecaster) -> None:
        super().__init__()
        self.model = model

    def prepare(self, windows: Windows) -> Batch:
        now = windows.observations[:, -1]
        change = (windows.future_observations - now[:, None]) * now.new_tensor([4.0, 4.0, 2.5, 2.5])
        history = self.model.features(windows.observations, windows.actions)
        return Batch(history, now, windows.future_actions.flatten(1), change)

    def encode_history(self, history: Tensor) -> Tensor:
        return self.model.project(self.model.gru(history)[0][:, -1])

    def encode_current(self, current: Tensor) -> Tensor:
        return current

    def predict(self, z_s: Tensor, z_p: Tensor, u: Tensor) -> Tensor:
        return self.model.head(torch.cat([z_s, z_p, u], dim=-1)).unflatten(-1, (len(HORIZONS), 4))

    def task_loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        return (prediction - y).square().mean((1, 2))

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        loss = self_loss(self, batch, codes)
        return loss, {"self": loss}


def drag_r2(learner: nn.Module, reader: WindowReader) -> float:
    """R² of drag from the context of one window, on systems that neither learner nor probe has seen."""
    learner.eval()
    train, held_out = (encode_split(learner, reader, split, seed=0) for split in ("train", "validation"))
    fitted = sample_of(Training("train"), train.codes.z_p, train.table, ("drag",))
    unseen = sample_of(Development("validation"), held_out.codes.z_p, held_out.table, ("drag",))
    return score(fit_ridge(fitted, Factor("drag")), unseen).r2


def run(
    folder: Path, protocol: BankProtocol = PROTOCOL, steps: int = 400, pairs: int = 48, device: str = "cpu"
) -> dict[str, float]:
    """Build a bank under `folder`, train with each objective; the drag R² of each, and of no training."""
    reader = WindowReader(build(protocol, folder / "bank"), HISTORY, HORIZONS)
    data = PairedWindows(reader, pairs=pairs)
    config = TrainConfig(
        steps=steps, pairs=pairs, learning_rate=1e-2, warmup=20, clip=10.0, precision="fp32", device=device
    )
    results: dict[str, float] = {}
    for name, objective in OBJECTIVES.items():
        torch.manual_seed(0)
        learner = SpriiGRU(Forecaster())
        check_learner(learner, data(0))
        results["untrained"] = drag_r2(learner, reader)
        fit(learner, data, objective, config, folder / name, tensorboard=False)
        results[name] = drag_r2(learner.cpu(), reader)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=device_name, default="cpu", help="a torch device to train on")
    device = parser.parse_args().device
    with tempfile.TemporaryDirectory() as folder:
        for name, r2 in run(Path(folder), device=device).items():
            print(f"drag R² {r2:6.3f}  {name}")


if __name__ == "__main__":
    main()
