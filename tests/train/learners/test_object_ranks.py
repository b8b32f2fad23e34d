"""Learners of objects on two ranks: their loss and gradients are those of one process, slots and candidates pooled."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from ranks import Ranks
from tiny_objects import object_windows

from sprii_train import distributed
from sprii_train.cophy.windows import ObjectWindows
from sprii_train.learners import LEARNERS, ObjectCPCConfig, ObjectJEPAConfig
from sprii_train.protocol import Objective, take, training_loss

SIZES: Any = {"features": 6, "projection": 8, "width": 8, "persistent": 5, "current": 4, "sigreg_slices": 15}
CONFIGS = {"object-jepa": ObjectJEPAConfig(**SIZES), "object-cpc": ObjectCPCConfig(**SIZES)}
OBJECTIVE = Objective(lambda_p=0.3, lambda_x=1.0, native_on="recipients", cross_directions="one")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with Ranks(tmp_path_factory.mktemp("ranks")) as ranks:
        yield ranks


def gradients(name: str, windows: ObjectWindows) -> dict[str, Any]:
    torch.manual_seed(7)
    learner: Any = LEARNERS[name][0](CONFIGS[name])  # type: ignore[arg-type]
    learner.at_step(3, 5)
    rows = torch.arange(12).view(2, -1)[:, distributed.own_share(6)].flatten()
    compute = distributed.parallel(learner, training_loss)  # kept: the backward pass needs it
    loss, _ = compute(learner, take(windows, rows), OBJECTIVE)
    loss.backward()
    grads = torch.cat([p.grad.flatten() for p in learner.parameters()])
    return {"loss": distributed.average(loss.detach()), "grads": grads}


@pytest.mark.parametrize("name", CONFIGS)
def test_two_ranks_are_one_process(name: str, ranks: Ranks):
    windows = object_windows(6, absent=True, slots=5)
    whole = gradients(name, windows)
    for part in ranks(gradients, name, windows):
        torch.testing.assert_close(part["loss"], whole["loss"], rtol=1e-5, atol=1e-6)
        assert float((part["grads"] - whole["grads"]).norm() / whole["grads"].norm()) < 1e-4
