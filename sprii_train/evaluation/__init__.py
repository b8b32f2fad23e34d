"""Return and success of any agent, by group and by system, over episodes that every agent meets alike."""

from sprii_train.evaluation.agents import Agent, RandomAgent
from sprii_train.evaluation.result import Evaluation, GroupEpisodes, Published
from sprii_train.evaluation.run import evaluate_agent

__all__ = ["Agent", "Evaluation", "GroupEpisodes", "Published", "RandomAgent", "evaluate_agent"]
