"""Related episodes from a live environment: several of each system, with their episode table."""

from sprii_envs.collection.collect import collect_related
from sprii_envs.collection.episodes import RelatedEpisodes

__all__ = ["RelatedEpisodes", "collect_related"]
