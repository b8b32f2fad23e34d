"""A small bank of the stand-in for recorded manipulation: 18 tasks × 4 scenes of 72 frames."""

import pytest

from sprii_envs.banks import Store
from sprii_envs.banks.generated import build_generated
from sprii_envs.robots.arms import ArmsProtocol


@pytest.fixture(scope="session")
def scene_bank(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return build_generated(
        ArmsProtocol(tasks=18, each=4, frames=72, size=16, people=3), tmp_path_factory.mktemp("arms") / "small"
    )
