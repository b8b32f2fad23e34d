"""Banks as Minari datasets, and any Minari dataset as an episode table with windows (needs the extra `minari`)."""

from sprii_envs.banks.minari.export import to_minari
from sprii_envs.banks.minari.metadata import from_minari
from sprii_envs.banks.minari.windows import MinariWindows

__all__ = ["MinariWindows", "from_minari", "to_minari"]
