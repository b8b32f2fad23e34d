"""Which embeddings SIGReg asks for, by its sample axis and by what else might decide it: Structure on D-Clean.

    python examples/sigreg_axis.py                                           # step, pooled, pooled-then-step
    python examples/sigreg_axis.py --levers step-snapshot step-dropout --updates 3000

`step` tests the 96 windows of each time step and averages, which is the paper's; `pooled` tests all 2,592 embeddings
as one sample. The weight is 0.02 in both, so `pooled` is 27 times as strong off the null. A line tells of one lever:
errors at h16 on validation systems with the recipient's own context, a same-system donor's and another system's; the
effective rank of the target embeddings; and the per-step loss, self + 0.02 · SIGReg by step, of what was found. About
40 s of one core for 1,000 updates.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sprii_train.analysis.donors import donor_errors, encode_split
from sprii_train.fit import device_name, fit
from sprii_train.learners import JEPA
from sprii_train.protocol import encode
from sprii_train.recipes import RECIPES
from sprii_train.settings import D_CLEAN

STEP: dict[str, Any] = {"sigreg_samples": "step"}
LEVERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "step": (STEP, {}),
    "pooled": ({"sigreg_samples": "pooled"}, {}),
    "pooled-then-step": (STEP, {}),  # from the weights of `pooled`
    "step-weight": (STEP | {"sigreg_weight": 27 * 0.02}, {}),
    "step-snapshot": (STEP | {"norm": "snapshot"}, {}),
    "step-dropout": (STEP | {"dropout": 0.1}, {}),
    "step-rate": (STEP, {"learning_rate": 3e-4}),
}
"""What differs from the quick budget: of the learner, and of its training."""


def run(name: str, updates: int, out: Path, device: str = "cpu") -> str:
    """Train one lever, or resume it, and tell what it did."""
    budget, arm, store = D_CLEAN.budget("quick"), RECIPES["structure"], D_CLEAN.open_store(out)
    of_learner, of_train = LEVERS[name]
    config = replace(budget.learner, **of_learner)
    train = replace(budget.train, steps=updates, warmup=min(100, updates), device=device, **of_train)
    torch.manual_seed(train.seed)
    learner, data = JEPA(config), D_CLEAN.data(store, config, arm, pairs=train.pairs, seed=train.seed)
    if name == "pooled-then-step":
        run("pooled", updates, out, device)
        learner.load_state_dict(torch.load(out / f"pooled-{updates}.pt", weights_only=True))
    fit(learner, data, arm.objective, train, out / f"{name}-{updates}", tensorboard=False).cpu()
    torch.save(learner.state_dict(), out / f"{name}-{updates}.pt")

    by_step = JEPA(replace(config, sigreg_samples="step"))
    by_step.load_state_dict(learner.state_dict())
    with torch.no_grad():
        losses = [native(by_step, data(updates + i)) for i in range(5)]
    own, sigreg = (sum(column) / len(column) for column in zip(*losses, strict=True))

    learner.eval()
    encoded = encode_split(learner, D_CLEAN.reader(store, config), "validation", seed=1)
    errors = donor_errors(learner, encoded, seed=2)
    return (
        f"{name:<17}{errors.own[-1]:9.4f}{errors.correct[-1]:9.4f}{errors.shuffled[-1]:9.4f}"
        f"{rank(encoded.y[:, -1]):7.1f}{own:9.4f}{sigreg:8.2f}{own + 0.02 * sigreg:9.4f}"
    )


def native(learner: JEPA, windows: Any) -> tuple[float, float]:
    """Self error over all horizons and SIGReg of one batch, in training mode."""
    batch = learner.prepare(windows)
    parts = learner.native_loss(batch, encode(learner, batch))[1]
    return float(parts["self"]), float(parts["sigreg"])


def rank(embeddings: torch.Tensor) -> float:
    """Exponential of the entropy of the covariance's normalised spectrum of (n, d)."""
    share = torch.linalg.eigvalsh(torch.cov(embeddings.double().T)).clamp_min(1e-12)
    share = share / share.sum()
    return float(torch.exp(-(share * share.log()).sum()))


def main() -> None:
    """Print one line a lever."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levers", nargs="+", choices=LEVERS, default=["step", "pooled", "pooled-then-step"])
    parser.add_argument("--updates", type=int, default=1_000)
    parser.add_argument("--out", type=Path, default=Path("runs/sigreg-axis"))
    parser.add_argument("--device", type=device_name, default="cpu", help="a torch device to train on")
    given = parser.parse_args()
    print(f"{'lever':<17}{'own':>9}{'correct':>9}{'other':>9}{'rank':>7}{'self':>9}{'SIGReg':>8}{'per-step':>9}")
    for name in given.levers:
        print(run(name, given.updates, given.out, given.device), flush=True)


if __name__ == "__main__":
    main()
