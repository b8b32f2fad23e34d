"""Partners trained by self-play, histories with them, and the action learner's evaluation (`app:overcooked`).

Importing it needs the extra `overcooked`.
"""

from sprii_envs.overcooked.extra import require

require()
