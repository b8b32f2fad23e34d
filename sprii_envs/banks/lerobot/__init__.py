"""LeRobot datasets, version 3: opened as stores, imported into banks, and written from any store."""

from sprii_envs.banks.lerobot.export import export_lerobot
from sprii_envs.banks.lerobot.store import LeRobotStore, import_lerobot

__all__ = ["LeRobotStore", "export_lerobot", "import_lerobot"]
