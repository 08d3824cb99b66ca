"""Decisions: what is returned, what is kept until the reward comes, and what can be wrong with a reward."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from windvane.agent.features import Name
from windvane.arguments import Array
from windvane.errors import ArgumentError, WindvaneError, format_value
from windvane.policies.adaptive_glm_ucb import AdaptiveGLMUCB
from windvane.policies.base import Policy
from windvane.policies.info import DecisionInfo


class DecisionError(WindvaneError, ValueError):
    """The reward of ``decision`` (an id) cannot be accepted, for the reason ``problem``. Nothing was learned."""

    def __init__(self, decision: str, problem: str) -> None:
        self.decision, self.problem = decision, problem
        super().__init__(f"decision {format_value(decision)} {problem}")


class UnknownDecisionError(DecisionError):
    """No decision has this id, or it was closed so long ago that it is no longer known."""


class ConflictingRewardError(DecisionError):
    """The decision has another reward already."""


class ExpiredDecisionError(DecisionError):
    """The reward came after the decision had expired."""


@dataclass(frozen=True, slots=True)
class Decision:
    """An arm that was chosen. ``id`` is what the reward must name.

    ``propensity``: the probability with which this arm was played, given all that the policy knew and drew; None
    without ``randomize``, since then every other arm had probability 0 and no log of it can be evaluated off-policy.
    """

    id: str
    arm: Name
    index: int
    time: float
    propensity: float | None
    explored: bool  # by the coin of ``randomize``; the policy itself may have wanted another arm
    prediction: float
    bonus: float
    preferred: Name
    rival: Name | None
    rival_score: float | None
    projected: bool | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why an arm was chosen: as numbers, and as a sentence when printed.

    ``score`` is ``prediction`` (of the mean reward) plus ``bonus`` (for what is not known of the arm; of a policy that
    draws at random, what its draw added). ``rival``: the best of the other arms. ``projected``: whether the estimate
    was outside the ball ||theta|| <= S; None for policies without such a ball.
    """

    arm: Name
    prediction: float
    bonus: float
    score: float
    rival: Name | None
    rival_score: float | None
    projected: bool | None
    explored: bool
    preferred: Name

    @classmethod
    def of(cls, decision: Decision) -> Explanation:
        return cls.read({field.name: getattr(decision, field.name) for field in fields(decision)})

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Explanation:
        """From the fields of a decision by name."""
        names = ("arm", "prediction", "bonus", "rival", "rival_score", "projected", "explored", "preferred")
        return cls(score=told["prediction"] + told["bonus"], **{name: told[name] for name in names})

    def __str__(self) -> str:
        if self.explored:
            text = f"{self.arm!r} was played at random; the policy preferred {self.preferred!r}"
        else:
            text = f"{self.arm!r} scored {self.score:.4g}: predicted {self.prediction:.4g}, bonus {self.bonus:.4g}"
        if self.rival_score is not None and not self.explored:
            text += f"; next was {self.rival!r} with {self.rival_score:.4g}"
        return text + ("; the estimate was outside the ball of radius S" if self.projected else "")


@dataclass(slots=True)
class Pending:
    """A decision whose outcome is not final yet.

    ``reward`` is the reward that arrived, ``delay`` after the decision (in the unit of ``wait``). With
    ``learn="early"``, ``looks`` counts the early looks at the decision, ``credited`` is F at the last look that found
    no reward (see :mod:`windvane.agent.early`), and ``is_learned`` says whether the reward was learned.
    """

    x: Array
    round: float  # of the policy
    number: int  # of the decision
    decision: Decision
    reward: float | None = None
    delay: float | None = None
    looks: int = 0
    credited: float = 0.0
    is_learned: bool = False
    is_miss: bool = True  # no reward came, or one that was the default when it came
    is_open: bool = True


class Closing(NamedTuple):
    """How a decision was closed: the outcome that was ``learned`` (None: nothing), whether its reward had come, and
    whether it was ``dropped`` because more than ``max_pending`` decisions were open."""

    id: str
    learned: float | None
    rewarded: bool = False
    dropped: bool = False


def described(
    policy: Policy,
    id: str,
    names: Sequence[Name],
    rows: Array,
    at: float,
    *,
    preferred: int,
    index: int,
    explored: bool,
    randomize: float,
) -> Decision:
    """The decision with what explains it: the scores of the round that ``policy`` has just decided."""
    decision = policy.decision  # not info(), which costs a tenth of a decision
    if decision is None or decision.scores is None:
        hint = "end `select` with `play`"
        raise ArgumentError("policy", policy.name, "one that records the scores of its decisions", hint=hint)
    others = decision.scores[0].tolist()
    score = others.pop(index)
    if decision.means is not None:
        prediction = float(decision.means[0, index])
    elif decision.theta_hat is not None:
        prediction = float(policy.reward_link.mean(rows[index] @ decision.theta_hat[0]))
    else:
        prediction = score
    rival = rival_score = None
    if others:
        rival_score = max(others)
        place = others.index(rival_score)
        rival = names[place + (place >= index)]
    propensity = None
    if randomize > 0.0:
        propensity = randomize / len(names) + (1.0 - randomize) * (index == preferred)
    return Decision(
        id=id,
        arm=names[index],
        index=index,
        time=at,
        propensity=propensity,
        explored=explored,
        prediction=prediction,
        bonus=score - prediction,
        preferred=names[preferred],
        rival=rival,
        rival_score=rival_score,
        projected=_is_projected(policy, decision),
    )


def _is_projected(policy: Policy, decision: DecisionInfo) -> bool | None:
    """Whether the estimate of ``decision`` lay outside the ball of radius S; None without such a ball."""
    if decision.projection is not None:
        return bool(decision.projection.stage[0] > 1)  # stage 1: it was admissible as it is
    if isinstance(policy, AdaptiveGLMUCB) and policy.S is not None and decision.theta_hat is not None:
        theta = decision.theta_hat[0]
        return math.sqrt(theta @ theta) > policy.S
    return None
