"""windvane's agent as a contextual bandit policy of river.

:class:`AgentPolicy` is a ``river.bandit.base.ContextualPolicy`` and works where river takes one, such as in
``river.bandit.evaluate_offline``. It also takes calls without a context, so that ``river.bandit.evaluate`` works.

This module needs the package river: ``pip install 'windvane[river]'``. ``windvane drift --detector`` runs river's drift
detectors on a log: see :mod:`windvane.logs.drift.detectors`.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping, Sequence
from typing import Any

from windvane.agent import Agent, UnknownDecisionError
from windvane.errors import ArgumentError
from windvane.records import Name

try:
    from river import bandit
except ModuleNotFoundError as error:
    hint = f"{error.name} is missing; install it with: pip install 'windvane[river]'"
    raise ModuleNotFoundError(hint, name=error.name) from None


class AgentPolicy(bandit.base.ContextualPolicy):
    """A :class:`windvane.Agent`, and with it any policy of windvane, as a contextual policy of river.

    Parameters
    ----------
    agent : Agent
        An agent with declared features. The policy learns in a copy of it, so that ``clone`` returns a fresh policy.
    reward_obj
        river's statistic of the rewards of each arm, for ``ranking``. Default: the mean.
    burn_in : int
        How often each arm is pulled before the agent decides. The agent learns from these pulls.

    Notes
    -----
    A context is a dict with the declared fields; None is a context without fields. A reward belongs to the last pull of
    its arm with the same context. Any other reward, such as one of the burn-in, is learned as
    :meth:`windvane.Agent.history`: a decision that is made now. A reward that comes after ``reward_timeout``, or
    after the agent has dropped the decision, is not learned.

    Examples
    --------
    >>> from windvane import Agent
    >>> policy = AgentPolicy(Agent(features={"by_arm": {"hour": (0, 24)}, "arms": ["tea", "juice"]}))
    >>> arm = policy.pull(["tea", "juice"], context={"hour": 8})
    >>> policy.update(arm, {"hour": 8}, 1.0)
    >>> policy.ranking == [arm]
    True
    """

    def __init__(self, agent: Agent, reward_obj: Any = None, burn_in: int = 0) -> None:
        if not isinstance(agent, Agent):
            raise ArgumentError("agent", agent, "a windvane.Agent")
        if agent.settings["features"] is None:
            raise ArgumentError("agent", agent, "an agent with declared features, because river passes contexts")
        super().__init__(reward_obj=reward_obj, burn_in=burn_in)
        self.agent = agent
        self.learner = copy.deepcopy(agent)
        self._decisions: dict[tuple[Any, ...], str] = {}

    def _pull(self, arm_ids: Sequence[Name], context: Mapping[str, Any] | None = None) -> Name:
        arm_ids = list(arm_ids)
        decision = self.learner.decide(arm_ids, context=context)
        key = _make_key(decision.arm, context)
        self._decisions.pop(key, None)  # the latest comes last
        self._decisions[key] = decision.id
        if len(self._decisions) > self.learner.settings["max_pending"]:
            del self._decisions[next(iter(self._decisions))]
        return arm_ids[decision.index]

    def update(self, arm_id: Name, *context_and_reward: Any) -> None:
        """Learn a reward: ``update(arm, context, reward)``, or ``update(arm, reward)`` without a context."""
        *rest, reward = context_and_reward
        context = rest[0] if rest else None
        key = _make_key(arm_id, context)
        decision = self._decisions.get(key)
        if decision is None:
            contexts = None if context is None else [context]
            self.learner.history([reward], contexts=contexts, arms=[arm_id])
        else:
            with contextlib.suppress(UnknownDecisionError):  # closed long ago: too late, as after any timeout
                self.learner.reward(decision, reward)
            del self._decisions[key]  # a reward that is refused changes nothing
        super().update(arm_id, context, reward)


def _make_key(arm: Name, context: Mapping[str, Any] | None) -> tuple[Any, ...]:
    return (arm, *sorted((context or {}).items()))
