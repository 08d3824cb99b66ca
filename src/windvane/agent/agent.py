"""Agent: one live stream of decisions, with named arms, late rewards, and a state that can be saved."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy.typing as npt

from windvane.agent.coordinates import declare_arms
from windvane.agent.core import AgentCore
from windvane.agent.features import Features
from windvane.agent.info import CHECK_EVERY, AlertLog, drift_of
from windvane.agent.memory import memory_in_its_unit
from windvane.agent.pending import ClosedDecision
from windvane.agent.preview import Preview
from windvane.agent.refit import prepare_refit
from windvane.agent.shared import SharedCore
from windvane.agent.times import read_clock, to_seconds
from windvane.arguments import Array
from windvane.errors import ArgumentError
from windvane.links import Link
from windvane.policies.base import Policy
from windvane.records import (
    AgentInfo,
    Alert,
    Decision,
    Drift,
    Explanation,
    Name,
    Prediction,
    RefitComparison,
    RewardStatus,
)


class Refit(NamedTuple):
    """What :meth:`Agent.refit` returns."""

    agent: Agent
    comparison: RefitComparison


class Agent(SharedCore):
    """Decide between named arms, learn from their rewards, and keep up with a changing world.

    A call that fails changes nothing but the passing of time; one that is interrupted (Ctrl-C) may have been carried
    out, and a reward counts once at most. Safe to call from several threads; calls take turns. All randomness follows
    from ``seed``, except the ids of decisions.

    Parameters
    ----------
    dim : int, optional
        The length of the vectors of arms. Give it, or ``features``.
    link : str or Link
        "logistic" (rewards in [0, 1]), "poisson", "probit", "identity", or a :class:`windvane.Link`. Linear policies
        take none.
    features : Features or dict, optional
        Named fields of contexts and arms, instead of vectors.
    policy : str or type
        "adaptive" (:class:`windvane.AdaptiveGLMUCB`, which learns how fast to forget), a policy's name, or a class.
    half_life, gamma, horizon, drift
        How the policy forgets: a ``half_life`` in decisions or as a duration ("2d": by the clock); ``gamma`` per
        decision; or ``drift`` (B_T) with ``horizon`` (T). The adaptive policy needs none of them; with one of them it
        has that memory.
    S : float, optional
        A bound on the norm of the parameter. None: the adaptive policy learns the scale; others use 1.
    L : float
        A bound on the norm of a vector.
    reward_range : pair of floats, optional
        The smallest and the largest reward. Default: (0, 1), and any number with the identity link. The policy takes
        half its width as the noise level sigma.
    prior, prior_weight
        A guess of the parameter, worth ``prior_weight`` rewards along each axis, which fades as other rewards do.
    reward_timeout : float, str or timedelta, optional
        How long a decision waits for its reward, in decisions or as a duration ("1h"). None: for ever.
    default_reward : float, optional
        What counts as the reward of a decision whose timeout passes without one. None: nothing is learned from it.
    learn : str, optional
        When an outcome is learned. "at_timeout", the default with ``default_reward``: every outcome when the decision's
        timeout passes, in the order of the decisions, so that what is learned is never selected by outcome.
        "on_arrival", the default without: a reward at once; use it if every decision gets a reward, or there is no
        default. "early": in part before the timeout, corrected for the rewards still to come; use it if the timeout is
        long compared with the memory (see :mod:`windvane.agent.delays`).
    max_pending : int
        How many decisions may be open. When there are more, the oldest are dropped and nothing is learned from them.
    scaling : pair of arrays, "fit" or None
        (center, spread) of raw vectors, or "fit": fitted on the first :meth:`history`, then fixed. With ``features``,
        "fit" finds the ranges of numbers that have none.
    intercept, clip : bool
        Add a constant 1 to raw vectors; shorten vectors that are longer than L instead of refusing them.
    epsilon : float
        The probability with which an arm is played uniformly at random. Every decision then has a ``propensity``, and
        the log of decisions can be evaluated off-policy.
    seed : int
        Seed of the random numbers.
    **settings
        The policy's own settings.

    Examples
    --------
    >>> agent = Agent(dim=2)
    >>> decision = agent.decide({"red": [0.6, 0.1], "blue": [0.2, 0.7]})
    >>> agent.reward(decision, 1.0)
    'recorded'
    """

    def __init__(
        self,
        dim: int | None = None,
        link: str | Link = "logistic",
        *,
        features: Features | Mapping[str, Any] | None = None,
        policy: str | type[Policy] = "adaptive",
        half_life: str | float | timedelta | None = None,
        gamma: float | None = None,
        horizon: int | None = None,
        drift: float | None = None,
        S: float | None = None,
        L: float = 1.0,
        reward_range: tuple[float, float] | None = None,
        prior: npt.ArrayLike | None = None,
        prior_weight: float = 10.0,
        reward_timeout: str | float | timedelta | None = None,
        default_reward: float | None = None,
        learn: str | None = None,
        max_pending: int = 100_000,
        scaling: Any = None,
        intercept: bool = False,
        clip: bool = False,
        epsilon: float = 0.0,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "settings")}
        self._start(AgentCore(**arguments, **settings), AlertLog())

    # --- deciding and learning -------------------------------------------------------------------------------------

    def decide(
        self,
        arms: Any = None,
        *,
        context: Mapping[str, Any] | None = None,
        now: float | datetime | None = None,
        id: str | None = None,
    ) -> Decision:
        """Choose one of ``arms``.

        Parameters
        ----------
        arms
            Vectors by name; an array of vectors (named 0, 1, ...); a pandas or polars frame, a row per arm (named by
            its column "arm", else by the index). With declared features: names, fields by name, or a frame of fields;
            may be omitted where the features declare the arms and no fields of arms.
        context
            The fields of the context, with declared features.
        now
            The time in seconds since 1970, or a datetime. Default: the clock's. Time never goes back.
        id
            A name of your own for the decision. Default: a random one.
        """
        with self._lock:
            offer = self._core.offer(arms, context)
            if id is not None and not isinstance(id, str):
                raise ArgumentError("id", id, "a text that no other decision has")
            key = secrets.token_hex(8) if id is None else str.__str__(id)
            decision = self._core.decide(offer, id=key, now=_read_time(now))
            decisions = self._core.tally.decisions
            if decisions % CHECK_EVERY == 0:
                self._alert_log.log(self._core.alerts, decisions, "agent")
            return decision

    def predict(
        self, arms: Any = None, *, context: Mapping[str, Any] | None = None, now: float | datetime | None = None
    ) -> dict[Name, Prediction]:
        """Return by name what the policy thinks of ``arms``, without deciding: no state and no random number changes.

        The numbers are those that :meth:`decide` would record now, with the same arguments, for the arm that it plays.
        With ``learn="early"`` they are from before the looks that it would take at open decisions.

        Parameters
        ----------
        arms, context, now
            As in :meth:`decide`.

        Examples
        --------
        >>> agent = Agent(dim=2)
        >>> {arm: each.prediction for arm, each in agent.predict({"red": [0.6, 0.1], "blue": [0.2, 0.7]}).items()}
        {'red': 0.5, 'blue': 0.5}
        """
        return {each.arm: each for each in self._preview(arms, context, now).predictions}

    def rank(
        self, arms: Any = None, *, context: Mapping[str, Any] | None = None, now: float | datetime | None = None
    ) -> list[Prediction]:
        """Return what the policy thinks of ``arms``, the most preferred first, without deciding.

        The first is the arm that :meth:`decide` would prefer now, which is drawn at random among equals; other arms
        with equal scores keep their order. A policy that draws at random ranks by the draw of its next decision.
        Arguments are those of :meth:`predict`.

        Examples
        --------
        >>> agent = Agent(dim=2)
        >>> [each.arm for each in agent.rank({"red": [0.6, 0.1], "blue": [0.2, 0.7]})]
        ['blue', 'red']
        """
        predictions, ranking = self._preview(arms, context, now)
        return [predictions[i] for i in ranking]

    def _preview(self, arms: Any, context: Mapping[str, Any] | None, now: float | datetime | None) -> Preview:
        with self._lock:
            return self._core.preview(self._core.offer(arms, context), now=_read_time(now))

    def reward(self, decision: Decision | str, value: float, *, now: float | datetime | None = None) -> RewardStatus:
        """Record the reward of a decision. It counts with the weight of the decision's age.

        Parameters
        ----------
        decision
            The decision, or its id.
        value
            The reward.
        now
            When the reward came, where ``reward_timeout`` is a duration.

        Returns
        -------
        str
            "recorded" if it is new; "unchanged" if it repeats what is known; "expired" if it came after the timeout:
            nothing is learned from it.

        Raises
        ------
        UnknownDecisionError, ConflictingRewardError
            No decision has this id; or it has another reward already.
        """
        with self._lock:
            return self._core.reward(_id_of(decision), value, now=_read_time(now)).status

    def add_reward(
        self, decision: Decision | str, value: float, *, now: float | datetime | None = None
    ) -> RewardStatus:
        """Add a part to the reward of a decision: the sum of all parts is learned at the timeout.

        Needs ``reward_timeout`` and ``learn="at_timeout"``. Parts, unlike rewards, are not recognised when they are
        repeated. Parameters, return value and errors are those of :meth:`reward`; the sum must be a possible reward.

        Examples
        --------
        >>> agent = Agent(dim=1, reward_range=(0, 10), link="poisson", reward_timeout="1h", default_reward=0.0)
        >>> decision = agent.decide({"basket": [1.0], "list": [0.5]})
        >>> agent.add_reward(decision, 2.0), agent.add_reward(decision, 3.0)
        ('recorded', 'recorded')
        """
        with self._lock:
            return self._core.add_reward(_id_of(decision), value, now=_read_time(now))[0].status

    def history(
        self,
        rewards: npt.ArrayLike,
        vectors: Any = None,
        *,
        contexts: Any = None,
        arms: Any = None,
        times: Any = None,
        weights: npt.ArrayLike | None = None,
        now: float | datetime | None = None,
    ) -> int:
        """Learn decisions of the past with their rewards, the oldest first: all rows or none.

        Parameters
        ----------
        rewards
            A reward for each row.
        vectors
            An array or a frame with the vector that was played in each row. With declared features give ``arms``.
        contexts, arms
            The contexts (mappings or a frame), and the arms that were played: names, mappings {name: fields}, or a
            frame of fields with a column "arm".
        times
            When each row was decided. Needed where forgetting goes by the clock; elsewhere every row counts as one
            decision. Times put the rows in order; none may lie before what the agent has seen, or after ``now``.
        weights
            How many rewards each row counts as.
        now
            The time of the call. Default: the clock's.

        Returns
        -------
        int
            The number of rows.
        """
        with self._lock:
            at = self._core.clock.read(_read_time(now))
            learned = self._core.learn_history(
                rewards=rewards, vectors=vectors, contexts=contexts, arms=arms, times=times, weights=weights, now=at
            )
            return self._core.adopt(learned)

    def expire(self, now: float | datetime | None = None) -> list[ClosedDecision]:
        """Close the decisions whose timeout has passed, and return how each was closed, the oldest first.

        :meth:`decide` and :meth:`reward` do this too. Call it to get the list, or while an agent is idle.
        """
        with self._lock:
            return self._core.expire(now=_read_time(now))

    def configure(self, **changes: Any) -> None:
        """Change ``reward_timeout``, ``default_reward``, ``learn``, ``max_pending``, ``epsilon`` or ``features``.

        All that is given is changed from now on, or nothing if one value is wrong. Rewards that are held are still
        learned when the timeout of their decision passes. New ``features`` are a whole declaration; coordinates with
        the same name keep what was learned (see :mod:`windvane.agent.coordinates`).
        """
        with self._lock:
            self._core.configure(**changes)

    def add_arm(self, name: Name) -> None:
        """Declare one more arm, which starts from the prior; see :meth:`configure`.

        >>> agent = Agent(features={"arms": ["red", "blue"]})
        >>> agent.add_arm("green")
        >>> agent.feature_names
        ['1', 'red: 1', 'blue: 1', 'green: 1']
        """
        with self._lock:
            self._core.configure(features=declare_arms(self._core, added=name))

    def remove_arm(self, name: Name) -> None:
        """Remove a declared arm; what was learned about it alone is forgotten. The opposite of :meth:`add_arm`."""
        with self._lock:
            self._core.configure(features=declare_arms(self._core, removed=name))

    def refit(self, log: Iterable[Mapping[str, Any]], **settings: Any) -> Refit:
        """Learn a log again under other settings, and compare what both models predict. This agent does not change.

        Parameters
        ----------
        log
            The events of this agent, the oldest first: what the service exports, or rows that you kept, as
            :mod:`windvane.agent.refit` describes them. All decisions that are pending must be in it.
        **settings
            Arguments of :class:`Agent` to change: ``S``, ``half_life``, ``policy``, ``features`` and so on. The others
            stay as they are, and all of them hold for the whole log. Another ``policy`` begins without the settings of
            the old one.

        Returns
        -------
        Refit
            The new ``agent``, with the ids, the clock, the counts and the pending decisions of the log, and the
            ``comparison``, a :class:`windvane.records.RefitComparison`.

        Examples
        --------
        >>> new, comparison = Agent(dim=1).refit([], half_life=100)
        >>> comparison.outcomes
        0
        """
        with self._lock:
            begin = prepare_refit(self._core, settings)
        core, comparison = begin(log)
        return Refit(self._of(core), comparison)

    # --- what can be read ------------------------------------------------------------------------------------------

    def info(self) -> AgentInfo:
        """Return counts, the estimate, memory, drift, calibration, alerts and settings."""
        with self._lock:
            return self._core.info()

    def pending(self) -> list[Decision]:
        """Return the decisions whose reward has not arrived, the oldest first."""
        with self._lock:
            return self._core.pending()

    def explain(self, decision: Decision | str) -> Explanation:
        """Explain why the arm of a decision was played. Of a closed decision, pass the object, not the id."""
        if isinstance(decision, Decision):
            return Explanation.of(decision)
        with self._lock:
            return self._core.explain(_id_of(decision))

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of the agent, with what was changed or fitted since. None: a link or a policy of your own."""
        with self._lock:
            return copy.deepcopy(self._core.settings)

    @property
    def policy(self) -> Policy:
        """The policy, which has one lane."""
        return self._core.policy

    @property
    def reward_range(self) -> tuple[float, float]:
        """The smallest and the largest reward that is accepted."""
        return self._core.reward_range

    @property
    def feature_names(self) -> list[str]:
        """What each coordinate of :attr:`theta` belongs to."""
        return self._core.feature_names

    @property
    def theta(self) -> Array:
        """The estimated parameter, in the coordinates of :attr:`feature_names`; zeros without an estimate."""
        with self._lock:
            return self._core.theta

    @property
    def memory(self) -> float:
        """How far back the past counts, in decisions, or in seconds where forgetting goes by the clock."""
        with self._lock:
            return memory_in_its_unit(self._core)

    def drift_estimate(self) -> Drift | None:
        """Return what the rewards say about the drift; None for a policy with a fixed memory."""
        with self._lock:
            return drift_of(self._core.policy)

    @property
    def alerts(self) -> list[Alert]:
        """Conditions under which the agent learns little or predicts badly."""
        with self._lock:
            return self._core.alerts

    def __repr__(self) -> str:
        counts, policy = self._core.counts, self._core.policy
        return f"Agent({policy.name}, dim={policy.dim}, {counts.decisions} decisions, {counts.pending} pending)"


def _read_time(now: float | datetime | None) -> float:
    return read_clock() if now is None else to_seconds("now", now)


def _id_of(decision: Decision | str) -> str:
    key = decision.id if isinstance(decision, Decision) else decision
    if not isinstance(key, str):
        raise ArgumentError("decision", decision, "a Decision, or its id")
    return key
