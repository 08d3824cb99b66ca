"""One live stream of decisions: see :class:`windvane.Agent`."""

from windvane.agent.agent import Agent
from windvane.agent.archive import FileError
from windvane.agent.core import AgentCore
from windvane.agent.features import Features
from windvane.agent.pending import ClosedDecision, ConflictingRewardError, DecisionError, UnknownDecisionError

__all__ = [
    "Agent",
    "AgentCore",
    "ClosedDecision",
    "ConflictingRewardError",
    "DecisionError",
    "Features",
    "FileError",
    "UnknownDecisionError",
]
