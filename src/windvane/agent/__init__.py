"""One live stream of decisions: see :class:`windvane.Agent`."""

from windvane.agent.agent import Agent
from windvane.agent.alerts import Alert, AlertLog
from windvane.agent.decisions import (
    Closing,
    ConflictingRewardError,
    Decision,
    DecisionError,
    ExpiredDecisionError,
    Explanation,
    UnknownDecisionError,
)
from windvane.agent.features import Features
from windvane.agent.file import FileError
from windvane.agent.history import Learnt
from windvane.agent.offers import Offer

__all__ = [
    "Agent",
    "Alert",
    "AlertLog",
    "Closing",
    "ConflictingRewardError",
    "Decision",
    "DecisionError",
    "ExpiredDecisionError",
    "Explanation",
    "Features",
    "FileError",
    "Learnt",
    "Offer",
    "UnknownDecisionError",
]
