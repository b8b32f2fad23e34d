"""OvercookedV2 with a fixed partner as the persistent entity (`app:overcooked-profile`), over JaxMARL.

The only part of `sprii_envs` that imports jax: install the extra `overcooked`.
"""

from sprii_envs.overcooked.extra import require

require()
