"""Pairs as entry numbers of a flat storage: they need no torch and are in `sprii_envs.relations`."""

from sprii_envs.relations.flat import Entries, EpisodeRuns, FlatPairs, episode_runs

__all__ = ["Entries", "EpisodeRuns", "FlatPairs", "episode_runs"]
