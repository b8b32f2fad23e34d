"""What Cross makes of persistent codes in a planted world.

Each object has a property ±1 that persists and an episode's draw that AB and CD share, of more weight in what is to be
predicted. A code of two degrees of freedom has no room for both: its own query asks for the draw, a related one for the
property, and the query of an unrelated one for nothing.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from sprii_train.cophy.windows import ObjectWindows
from sprii_train.fit import TrainConfig, build_optimizer, train_step
from sprii_train.learners import LEARNERS, ObjectJEPAConfig, ObjectRSSMConfig
from sprii_train.protocol import Objective

PAIRS, OBJECTS, FRAMES = 24, 2, 5
CONFIGS: dict[str, Any] = {
    "object-rssm": ObjectRSSMConfig(features=7, projection=24, width=24, persistent=3, latent=4, layers=1, decoder=24),
    "object-jepa": ObjectJEPAConfig(
        features=7, projection=24, width=24, persistent=3, current=8, layers=1, sigreg_slices=32
    ),
}


def features(prop: Tensor, draw: Tensor, frames: int, g: torch.Generator) -> Tensor:
    """Properties (…, O) and draws (…, O, 2) → features (…, frames, O, 7): three of each draw, one of the property."""
    f = torch.cat([draw.repeat_interleave(3, dim=-1), prop[..., None]], dim=-1)[..., None, :, :]
    return f + 0.3 * torch.randn(*f.shape[:-3], frames, *f.shape[-2:], generator=g)


def windows_of(related: bool, step: int) -> tuple[ObjectWindows, Tensor]:
    """A batch, and the recipients' properties (n, O)."""
    g, n, o = torch.Generator().manual_seed(step), PAIRS, OBJECTS

    def drawn(*shape: int) -> Tensor:
        return torch.randint(0, 2, shape, generator=g) * 2.0 - 1.0

    prop = drawn(n, o)
    offered = prop if related else drawn(n, o)
    own = torch.randn(n, o, 2, generator=g)
    place = torch.randint(0, o, (n, o), generator=g)
    others = drawn(n, o, o).scatter_(2, place[..., None], offered[..., None])  # (n, videos, O)
    donors = features(others, torch.randn(n, o, o, 2, generator=g), FRAMES, g)
    ab = torch.zeros_like(donors)
    ab[:, 0] = features(prop, own, FRAMES, g)
    cd = torch.cat([0.3 * torch.randn(n, 3, o, 7, generator=g), features(prop, own, FRAMES - 3, g)], dim=1)
    seen = torch.ones(2 * n, o, o, dtype=torch.bool)
    seen[n:, 1:] = False
    each = torch.arange(o).expand(n, o)
    ones, zero = torch.ones(2 * n, o, dtype=torch.bool), torch.zeros(2 * n, o, dtype=torch.int64)
    focal = torch.randint(0, o, (n,), generator=g).repeat(2)
    return ObjectWindows(
        torch.cat([donors, ab]), torch.zeros(2 * n, o, FRAMES, o, 3), seen,
        torch.cat([each, zero[n:]]), torch.cat([place, each]),
        cd.repeat(2, 1, 1, 1), torch.zeros(2 * n, FRAMES, o, 3), ones, each.repeat(2, 1), zero, focal,
        torch.zeros(2 * n, FRAMES, o, 3), torch.zeros(2 * n, FRAMES, o, dtype=torch.bool),
    ), prop  # fmt: skip


def readable(learner: Any) -> float:
    """R² of a ridge regression of properties on codes of episodes that it was not fitted on."""
    codes, truth = [], []
    with torch.no_grad():
        for step in range(10_000, 10_020):
            windows, prop = windows_of(True, step)
            learner.eval()
            z_p = learner.encode_history(learner.prepare(windows).history)[PAIRS:]
            codes.append(z_p.unflatten(1, (OBJECTS, -1)).flatten(0, 1))
            truth.append(prop.flatten())
    z, y = torch.cat(codes).double(), torch.cat(truth).double()
    z = torch.cat([z, torch.ones(len(z), 1)], dim=1)
    fit, test = slice(0, len(z) // 2), slice(len(z) // 2, None)
    weights = torch.linalg.solve(z[fit].T @ z[fit] + 1e-3 * torch.eye(z.shape[1]), z[fit].T @ y[fit])
    return 1.0 - float((z[test] @ weights - y[test]).square().mean() / y[test].var(correction=0))


def trained(name: str, related: bool, steps: int) -> float:
    torch.manual_seed(0)
    learner: Any = LEARNERS[name][0](CONFIGS[name])
    if name == "object-rssm":
        learner.fit_statistics(windows_of(True, 20_000)[0].features[PAIRS:, 0])
    train = TrainConfig(steps=steps, pairs=PAIRS, learning_rate=3e-3, weight_decay=0.0, warmup=10)
    optimizer = build_optimizer(learner.train(), train)
    objective = Objective(lambda_x=2.0, native_on="recipients", cross_directions="one")
    for step in range(steps):
        train_step(learner, windows_of(related, step)[0], objective, optimizer, train, step, "fp32")  # type: ignore
    return readable(learner)


@pytest.mark.parametrize("name", CONFIGS)
def test_cross_keeps_what_persists_and_unrelated_donors_do_not(name: str):
    related, unrelated = (trained(name, related, 150) for related in (True, False))
    assert related > 0.8, (related, unrelated)
    assert unrelated < 0.4, (related, unrelated)
