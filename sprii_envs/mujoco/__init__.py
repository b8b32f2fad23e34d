"""Any MuJoCo model as a world: MJCF, and a mapping of persistent properties to fields of the model."""

from sprii_envs.effects import without_effect
from sprii_envs.mujoco.edits import Edit, assign, multiple, scale
from sprii_envs.mujoco.models import GymnasiumModel
from sprii_envs.mujoco.world import MujocoWorld

__all__ = ["Edit", "GymnasiumModel", "MujocoWorld", "assign", "multiple", "scale", "without_effect"]
