"""Agent: one live stream of decisions, with named arms, late rewards, and a state that can be saved."""

from __future__ import annotations

import copy
import os
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
from windvane.agent.times import read_clock
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
    """Choose among named arms and learn from their rewards in a changing world.

    A call that fails changes nothing, except that decisions whose timeout has passed may be closed. An interrupted call
    (Ctrl-C) may have taken effect; a reward counts at most once. An agent is thread-safe; calls run one at a time. All
    randomness follows from ``seed``, except generated ids of decisions.

    Parameters
    ----------
    dim : int, optional
        The length of an arm's vector. Pass either ``dim`` or ``features``.
    link : str or Link
        "logistic" (rewards in [0, 1]), "poisson", "probit", "identity", or a :class:`windvane.Link`. Linear policies
        take none.
    features : Features or dict, optional
        Named fields of contexts and arms, instead of vectors.
    policy : str or type
        "adaptive" (:class:`windvane.AdaptiveGLMUCB`, which learns how fast to forget), a policy's name, or a class.
    half_life, gamma, horizon, drift
        How the policy forgets: a ``half_life`` in decisions or as a duration ("2d": by the clock); ``gamma`` per
        decision; or ``drift`` (B_T) with ``horizon`` (T). The adaptive policy needs none of them; if you pass one, its
        memory is fixed.
    S : float, optional
        A bound on the norm of the parameter. None: the adaptive policy learns the scale; others use 1.
    L : float
        A bound on the norm of a vector.
    reward_range : pair of floats, optional
        The smallest and the largest reward. Default: (0, 1), and any number with the identity link. The policy takes
        half its width as the noise level sigma.
    prior, prior_weight
        The initial estimate of the parameter. It counts as ``prior_weight`` rewards along each axis and is forgotten as
        rewards are.
    reward_timeout : float, str or timedelta, optional
        How long a decision waits for its reward, in decisions or as a duration ("1h"). None: forever.
    default_reward : float, optional
        The reward of a decision whose timeout passes without one. None: nothing is learned from it.
    learn : str, optional
        When an outcome is learned. "at_timeout", the default with ``default_reward``: every outcome when the decision's
        timeout passes, in the order of the decisions, so that outcomes are never selected by their value. "on_arrival",
        the default without ``default_reward``: each reward at once; use it if every decision gets a reward, or without
        a default. "early": partly before the timeout, corrected for the rewards still to come; use it if the timeout
        is long compared with the memory (see :mod:`windvane.agent.delays`).
    max_pending : int
        How many decisions may be open. Beyond that, the oldest are dropped and nothing is learned from them.
    scaling : pair of arrays, "fit" or None
        (center, spread) of raw vectors, or "fit": fitted on the first :meth:`history`, then fixed. With ``features``,
        "fit" fits the ranges of numbers declared without one.
    intercept, clip : bool
        Add a constant 1 to raw vectors; shorten vectors that are longer than L instead of rejecting them.
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
            its column "arm", else by the index). With declared features: names, fields by name, or a frame of fields.
            Omit it to offer all declared arms, if arms have no fields of their own.
        context
            The fields of the context, with declared features.
        now
            The time in seconds since 1970, or a datetime. Default: the system clock. Time never goes back.
        id
            Your own id for the decision. Default: a random one.
        """
        with self._lock:
            offer = self._core.offer(arms, context)
            if id is not None and not isinstance(id, str):
                raise ArgumentError("id", id, "a string that no other decision has")
            key = os.urandom(8).hex() if id is None else str.__str__(id)
            decision = self._core.decide(offer, id=key, now=read_clock(now))
            decisions = self._core.tally.decisions
            if decisions % CHECK_EVERY == 0:
                self._alert_log.log(self._core.alerts, decisions, "agent")
            return decision

    def predict(
        self, arms: Any = None, *, context: Mapping[str, Any] | None = None, now: float | datetime | None = None
    ) -> dict[Name, Prediction]:
        """Return the prediction and bonus of each of ``arms`` by name, without deciding or changing any state.

        The numbers are those that :meth:`decide` would record now, with the same arguments, for the arm that it plays.
        With ``learn="early"`` they do not include the early outcomes that :meth:`decide` would learn first.

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
        """Return the prediction and bonus of each of ``arms``, most preferred first, without deciding.

        The first is the arm that :meth:`decide` would prefer now, drawn at random among equals; other arms with equal
        scores keep their order. A policy that draws at random ranks by the draw of its next decision.
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
            return self._core.preview(self._core.offer(arms, context), now=read_clock(now))

    def reward(self, decision: Decision | str, value: float, *, now: float | datetime | None = None) -> RewardStatus:
        """Record the reward of a decision. It is weighted by the age of the decision.

        Parameters
        ----------
        decision
            The decision, or its id.
        value
            The reward.
        now
            When the reward arrived, if ``reward_timeout`` is a duration.

        Returns
        -------
        str
            "recorded" if it is new; "unchanged" if the same reward was recorded before; "expired" if it arrived after
            the timeout and is not learned.

        Raises
        ------
        UnknownDecisionError, ConflictingRewardError
            No decision has this id; or the decision already has another reward.
        """
        with self._lock:
            return self._core.reward(_id_of(decision), value, now=read_clock(now)).status

    def add_reward(
        self, decision: Decision | str, value: float, *, now: float | datetime | None = None
    ) -> RewardStatus:
        """Add a part to the reward of a decision: the sum of all parts is learned at the timeout.

        Needs ``reward_timeout`` and ``learn="at_timeout"``. Unlike a reward, a part that is sent twice counts twice.
        Parameters, return value and errors are those of :meth:`reward`; the sum must be a possible reward.

        Examples
        --------
        >>> agent = Agent(dim=1, reward_range=(0, 10), link="poisson", reward_timeout="1h", default_reward=0.0)
        >>> decision = agent.decide({"basket": [1.0], "list": [0.5]})
        >>> agent.add_reward(decision, 2.0), agent.add_reward(decision, 3.0)
        ('recorded', 'recorded')
        """
        with self._lock:
            return self._core.add_reward(_id_of(decision), value, now=read_clock(now))[0].status

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
        """Learn past decisions with their rewards, oldest first: all rows or none.

        Parameters
        ----------
        rewards
            A reward for each row.
        vectors
            An array or a frame with the vector that was played in each row. With declared features, pass ``arms``
            instead.
        contexts, arms
            The contexts (mappings or a frame), and the arms that were played: names, mappings {name: fields}, or a
            frame of fields with a column "arm".
        times
            When each row was decided. Required if forgetting goes by the clock; otherwise every row counts as one
            decision. Rows are sorted by time; no time may be before the agent's last decision or row, or after ``now``.
        weights
            How many rewards each row counts as.
        now
            The time of the call. Default: the system clock.

        Returns
        -------
        int
            The number of rows.
        """
        with self._lock:
            at = self._core.clock.read(read_clock(now))
            learned = self._core.learn_history(
                rewards=rewards, vectors=vectors, contexts=contexts, arms=arms, times=times, weights=weights, now=at
            )
            return self._core.adopt(learned)

    def expire(self, now: float | datetime | None = None) -> list[ClosedDecision]:
        """Close the decisions whose timeout has passed, and return how each was closed, oldest first.

        :meth:`decide` and :meth:`reward` do this too. Call it to get the list, or while an agent is idle.
        """
        with self._lock:
            return self._core.expire(now=read_clock(now))

    def configure(self, **changes: Any) -> None:
        """Change ``reward_timeout``, ``default_reward``, ``learn``, ``max_pending``, ``epsilon`` or ``features``.

        All changes take effect from now on, or none if a value is invalid. Held rewards are still learned when the
        timeout of their decision passes. ``features`` is a complete new declaration; coordinates with the same name
        keep what was learned (see :mod:`windvane.agent.coordinates`).
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
        """Learn a log again with new settings, and compare the predictions of both models. This agent does not change.

        Parameters
        ----------
        log
            The events of this agent, oldest first: the export of the service, or your own rows as described in
            :mod:`windvane.agent.refit`. The log must contain all pending decisions.
        **settings
            Arguments of :class:`Agent` to change: ``S``, ``half_life``, ``policy``, ``features`` and so on. The others
            keep their values, and all settings apply to the whole log. A new ``policy`` does not inherit the settings
            of the old one.

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

    # --- inspection ------------------------------------------------------------------------------------------------

    def info(self) -> AgentInfo:
        """Return counts, the estimate, memory, drift, calibration, alerts and settings."""
        with self._lock:
            return self._core.info()

    def pending(self) -> list[Decision]:
        """Return the decisions whose reward has not arrived, oldest first."""
        with self._lock:
            return self._core.pending()

    def explain(self, decision: Decision | str) -> Explanation:
        """Explain why the arm of a decision was played. For a closed decision, pass the object, not the id."""
        if isinstance(decision, Decision):
            return Explanation.of(decision)
        with self._lock:
            return self._core.explain(_id_of(decision))

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of the agent, including later changes and fitted values. A custom link or policy is None."""
        with self._lock:
            return copy.deepcopy(self._core.settings)

    @property
    def policy(self) -> Policy:
        """The policy, which has one lane."""
        return self._core.policy

    @property
    def reward_range(self) -> tuple[float, float]:
        """The smallest and the largest accepted reward."""
        return self._core.reward_range

    @property
    def feature_names(self) -> list[str]:
        """The names of the coordinates of :attr:`theta`."""
        return self._core.feature_names

    @property
    def theta(self) -> Array:
        """The estimated parameter, in the coordinates of :attr:`feature_names`; zeros without an estimate."""
        with self._lock:
            return self._core.theta

    @property
    def memory(self) -> float:
        """How far back the past counts, in decisions, or in seconds if forgetting goes by the clock."""
        with self._lock:
            return memory_in_its_unit(self._core)

    def drift_estimate(self) -> Drift | None:
        """Return the drift estimated from the rewards; None for a policy with a fixed memory."""
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


def _id_of(decision: Decision | str) -> str:
    key = decision.id if isinstance(decision, Decision) else decision
    if not isinstance(key, str):
        raise ArgumentError("decision", decision, "a Decision, or its id")
    return key
