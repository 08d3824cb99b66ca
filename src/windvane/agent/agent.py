"""Agent: one live stream of decisions, with named arms, late rewards, and a state that can be saved."""

from __future__ import annotations

import inspect
import math
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from windvane._files import write_atomically
from windvane._validation import Array, floats, number, positive, shown, whole
from windvane.agent import saving
from windvane.agent.decisions import (
    ConflictingRewardError,
    Decision,
    ExpiredDecisionError,
    Explanation,
    Pending,
    UnknownDecisionError,
)
from windvane.agent.features import Features, Name
from windvane.agent.history import History
from windvane.agent.offers import offered
from windvane.agent.scaling import Scaling
from windvane.agent.times import TICK, Span, forgetting, moment
from windvane.links import Link
from windvane.policies.base import Policy
from windvane.policies.registry import POLICIES

ADAPTIVE = "AdaptiveGLMUCB"
ADAPTIVE_S = 5.0
"""S where nothing is said: log-odds up to 5, rates from 0.7 % to 99.3 %. Policies with a worst-case bonus take 1."""
REMEMBERED = 10_000
"""Closed decisions whose outcome is still known, to tell a repeated reward from a wrong one."""


CHANGEABLE = ("wait", "missing", "max_pending", "randomize")
"""Settings that a running agent can change."""


class Drift(NamedTuple):
    """What the rewards say about the drift; see :meth:`windvane.AdaptiveGLMUCB.drift_estimate`."""

    verdict: str
    evidence: float
    memory: float
    memory_low: float
    memory_high: float
    rate: float
    rate_low: float
    rate_high: float
    variation: float


class Agent:
    """One lane of a policy, behind named arms and decisions with ids.

    >>> agent = Agent(dim=2)
    >>> decision = agent.decide({"red": [0.6, 0.1], "blue": [0.2, 0.7]})
    >>> agent.reward(decision.id, 1.0)
    True

    **What is decided.** Vectors of ``dim`` numbers, or, with ``features`` (a :class:`Features`, or its declaration as
    plain data), contexts and arms with named fields. ``link``: "logistic" (rewards in [0, 1], the default),
    "poisson", "probit", "identity", or a :class:`windvane.Link`; rewards lie in [0, 2 ``sigma``] (any for identity).
    ``L`` bounds the norm of a vector, ``S`` that of the parameter.

    **By what.** ``policy``: "adaptive" (:class:`windvane.AdaptiveGLMUCB`), a registered name, or a class;
    ``settings`` are its own. How it forgets: ``half_life``, a number of decisions or a duration ("2d": by the clock);
    or ``gamma`` per decision; or ``drift`` (B_T) with ``horizon`` (T). The adaptive policy needs none of them, and
    with one of them keeps to that memory. ``prior``: a guess of the parameter, worth ``prior_weight`` rewards along
    each axis, which fades as other rewards do.

    **Rewards** may come late, in any order, or never: after ``wait`` (decisions or a duration) a decision is forgotten,
    or counts as the reward ``missing``. No more than ``max_pending`` decisions wait; beyond, the oldest expire.

    **Vectors**: ``scaling`` is None, (center, spread), or "fit" (on the first history given to :meth:`update_many`,
    then frozen); ``intercept`` adds a constant 1; a vector beyond L is an error, or shortened if ``clip``.

    **randomize** = epsilon: with this probability an arm is played uniformly at random. Every decision then has a
    ``propensity``, and the log of decisions can be evaluated off-policy.

    Safe to call from several threads; calls take turns. All randomness follows from ``seed`` (ids of decisions apart).
    """

    def __init__(
        self,
        dim: int | None = None,
        link: str | Link = "logistic",
        *,
        features: Features | Mapping[str, Any] | None = None,
        policy: str | type[Policy] = "adaptive",
        half_life: str | float | None = None,
        gamma: float | None = None,
        horizon: int | None = None,
        drift: float | None = None,
        S: float | None = None,
        L: float = 1.0,
        sigma: float = 0.5,
        prior: npt.ArrayLike | None = None,
        prior_weight: float = 10.0,
        wait: str | float | None = None,
        missing: float | None = None,
        max_pending: int = 100_000,
        scaling: Any = None,
        intercept: bool = False,
        clip: bool = False,
        randomize: float = 0.0,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        self.features = Features(**features) if isinstance(features, Mapping) else features
        if (dim is None) == (self.features is None):
            raise ValueError(f"dim={dim!r}: give dim, or features, and not both")
        if self.features is not None and (intercept or clip):
            raise ValueError("intercept, clip: with features, declare them there")
        raw = whole("dim", dim, 1) if self.features is None else self.features.dim
        fits_features = self.features is not None and isinstance(scaling, str) and scaling == "fit"
        self._fits_features = fits_features and bool(self.features and self.features.open_fields)
        given_scaling = None if fits_features else scaling
        self._scaling = Scaling(raw, positive("L", L), scaling=given_scaling, intercept=intercept, clip=clip)
        cls = _policy_class(policy)
        name = cls.name if cls.name in POLICIES and POLICIES[cls.name] is cls else None
        forget = forgetting(cls, self._scaling.dim, half_life=half_life, gamma=gamma, horizon=horizon, drift=drift)
        self.by_clock = forget.by_clock
        if S is None:
            S = ADAPTIVE_S if name == ADAPTIVE else 1.0
        world = {"link": link, "S": S, "L": self._scaling.longest, "sigma": sigma, "seed": seed}
        taken, build = _parameters(cls, settings, {**world, **forget.settings}), cast(Callable[..., Policy], cls)
        self.policy: Policy = build(  # what it does not take, such as the link of a linear policy, it does not need
            dim=self._scaling.dim, **{k: v for k, v in world.items() if k in taken}, **forget.settings, **settings
        )
        self.reward_range = self.policy.link.reward_range(self.policy.sigma)
        self.wait: Span | None
        self.missing: float | None
        self._set(wait, missing, max_pending, randomize)
        self._config: dict[str, Any] = {
            "dim": dim, "link": link if isinstance(link, str) else None, "policy": name, "half_life": half_life,
            "gamma": gamma, "horizon": horizon, "drift": drift, "S": S, "L": L, "sigma": sigma,
            "prior": None if prior is None else np.asarray(prior, dtype=float).tolist(), "prior_weight": prior_weight,
            "wait": wait, "missing": missing, "max_pending": max_pending, "intercept": intercept, "clip": clip,
            "randomize": randomize, "seed": seed, **settings,
        }  # fmt: skip
        self._lock = threading.RLock()
        self._pending: dict[str, Pending] = {}
        self._closed: OrderedDict[str, float | None] = OrderedDict()  # a reward, or None: it expired
        self.decisions = self.rewards = self.expired = self.projections = 0
        self.reward_total = 0.0
        self._first_time: float | None = None
        self._last_time = -math.inf
        if prior is not None:
            self._learn_prior(floats("prior", prior, (self.policy.dim,)), positive("prior_weight", prior_weight))

    def _learn_prior(self, theta: Array, weight: float) -> None:
        """Rewards as ``theta`` predicts them, at the end of each axis: their likelihood is greatest at ``theta``."""
        low, high = self.reward_range
        for axis in np.eye(self.policy.dim) * self.policy.L:
            reward = float(self.policy.link.mean(axis @ theta))
            self.policy.update(axis[None], min(max(reward, low), high), round=0.0, weight=weight)

    # --- deciding --------------------------------------------------------------------------------------------------

    def decide(
        self,
        arms: Any = None,
        *,
        context: Mapping[str, Any] | None = None,
        now: float | datetime | None = None,
        id: str | None = None,
    ) -> Decision:
        """Choose one of ``arms``; its reward may follow.

        ``arms``: vectors by name; an array of vectors (named 0, 1, ...); a pandas or polars frame, a row per arm (named
        by its column "arm", else by the index); with declared features their names, or their fields by name, or a frame
        of fields; and ``context``. ``now``: the time of the decision in seconds since 1970, or a datetime (default: the
        clock's; time never goes back). ``id``: a name of your own for the decision (default: a random one).
        """
        with self._lock:
            if arms is None and self.features is not None and self.features.arms and not self.features.per_arm:
                arms = self.features.arms
            names, raw = offered(arms, context, self.features, self._scaling.raw_dim)
            rows = self._scaling.apply(raw, names)
            if self._fits_features:
                raise ValueError('scaling="fit": give history to update_many first, to fit the ranges on')
            if id is not None and (not isinstance(id, str) or not id or id in self._pending or id in self._closed):
                raise ValueError(f"id={shown(id)}: must be a text that no other decision has")
            key = secrets.token_hex(8) if id is None else id
            at = self._moment(now)
            self._expire(at)
            self._last_time = at
            self._pass_time(at)
            policy, K = self.policy, len(names)
            round_, number_ = policy.t, policy._decisions
            preferred = index = int(policy.select(rows[None])[0])
            explored = False
            if self.randomize > 0.0:
                coin, place = policy._k.uniform_pair(
                    np.uint64(policy.seed), policy.lane_ids[0], number_, policy._k.PLAY, 0
                )
                if coin < self.randomize:
                    index, explored = int(place * K), True
            decision = self._described(key, names, rows, preferred, index, explored, at)
            self._pending[key] = Pending(rows[index].copy(), round_, self.decisions, at, decision)
            self.decisions += 1
            self.projections += bool(decision.projected)
            return decision

    def _described(
        self, id: str, names: Sequence[Name], rows: Array, preferred: int, index: int, explored: bool, at: float
    ) -> Decision:
        """The decision with what explains it: scores of the policy's last round."""
        last, K = self.policy.last, len(names)
        scores = last["scores"][0]
        if "means" in last:
            prediction = float(last["means"][0, index])
        elif "theta_hat" in last:
            prediction = float(self.policy.link.mean(rows[index] @ last["theta_hat"][0]))
        else:
            prediction = float(scores[index])
        others = np.delete(np.arange(K), index)
        rival = int(others[np.argmax(scores[others])]) if K > 1 else None
        propensity = None
        if self.randomize > 0.0:
            propensity = self.randomize / K + (1.0 - self.randomize) * (index == preferred)
        return Decision(
            id=id,
            arm=names[index],
            index=index,
            time=at,
            propensity=propensity,
            explored=explored,
            prediction=prediction,
            bonus=float(scores[index]) - prediction,
            preferred=names[preferred],
            rival=None if rival is None else names[rival],
            rival_score=None if rival is None else float(scores[rival]),
            projected=bool(last["stage"][0] > 1) if "stage" in last else None,  # 1: it was admissible
        )

    def explain(self, decision: Decision | str) -> Explanation:
        """Why the arm was chosen; of a decision, or of the id of one that still waits for its reward."""
        if not isinstance(decision, Decision):
            with self._lock:
                if decision not in self._pending:
                    raise UnknownDecisionError(
                        f"decision {shown(decision)}: does not wait for a reward; explain the Decision itself"
                    )
                decision = self._pending[decision].decision
        return Explanation(
            arm=decision.arm,
            prediction=decision.prediction,
            bonus=decision.bonus,
            score=decision.prediction + decision.bonus,
            rival=decision.rival,
            rival_score=decision.rival_score,
            projected=decision.projected,
            explored=decision.explored,
            preferred=decision.preferred,
        )

    # --- learning --------------------------------------------------------------------------------------------------

    def reward(self, decision: Decision | str, value: float, *, now: float | datetime | None = None) -> bool:
        """Learn the reward of a decision; it counts with the weight of the decision's age.

        True if it was learnt, False if it is a repetition of what is known. Raises :class:`UnknownDecisionError`,
        :class:`ConflictingRewardError` (there is another reward already) or :class:`ExpiredDecisionError` (the wait is
        over).
        """
        key = decision.id if isinstance(decision, Decision) else decision
        with self._lock:
            found = self._checked_reward("value", value)
            at = self._moment(now)
            self._expire(at)
            waiting = self._pending.get(key)
            if waiting is None:
                return self._refuse(key, found)
            self._last_time = at
            self.policy.update(waiting.x[None], found, round=waiting.round)
            self.rewards += 1
            self.reward_total += found
            self._close(key, found)
            return True

    def _refuse(self, id: str, value: float) -> bool:
        if id not in self._closed:
            raise UnknownDecisionError(f"decision {shown(id)}: is not known, or was closed long ago")
        known = self._closed[id]
        if known is None:
            raise ExpiredDecisionError(f"decision {shown(id)}: its wait is over; the reward is not learnt from")
        if known != value:
            raise ConflictingRewardError(f"decision {shown(id)}: has the reward {known:g} already, not {value:g}")
        return False

    def expire(self, now: float | datetime | None = None) -> list[str]:
        """Close the decisions whose wait is over, as deciding and rewarding do too; returns their ids."""
        with self._lock:
            return self._expire(self._moment(now))

    def _expire(self, at: float) -> list[str]:
        gone = []
        while self._pending:
            key, oldest = next(iter(self._pending.items()))
            too_many = len(self._pending) > self.max_pending
            if not too_many and (self.wait is None or self._age(oldest, at) <= self.wait.length):
                break
            if self.missing is not None:
                self.policy.update(oldest.x[None], self.missing, round=oldest.round)
            self._close(key, None)
            self._last_time = at
            self.expired += 1
            gone.append(key)
        return gone

    def _age(self, waiting: Pending, at: float) -> float:
        assert self.wait is not None  # asked only where there is a wait
        return at - waiting.time if self.wait.by_clock else self.decisions - waiting.number - 1

    def _close(self, id: str, outcome: float | None) -> None:
        del self._pending[id]
        self._closed[id] = outcome
        while len(self._closed) > REMEMBERED:
            self._closed.popitem(last=False)

    def update_many(
        self,
        X: Any = None,
        rewards: npt.ArrayLike = (),
        *,
        contexts: Any = None,
        arms: Iterable[Any] | None = None,
        times: Sequence[float | datetime] | None = None,
        weights: npt.ArrayLike | None = None,
    ) -> int:
        """Learn history in bulk: decisions of the past with their rewards, oldest first; returns how many.

        ``X``: an array or a frame with a row of raw features per decision; with declared features ``contexts``
        (mappings or a frame) and ``arms`` (the names of the arms played, or one-item mappings {name: fields}). Every
        row ages those before it by a decision or, where forgetting goes by the clock, by ``times``, which are then
        needed. All rows are checked before the first is learnt.
        """
        with self._lock:
            history = History.of(self, X, rewards, contexts, arms, times, weights)
            if history.center is not None and history.spread is not None:
                self._scaling.set(history.center, history.spread)
            self.features, self._fits_features = history.features, False
            for x, reward, at, weight in history.rows():
                if at is not None:
                    self._last_time = max(self._last_time, at)
                    self._pass_time(self._last_time)
                round_ = self.policy.t
                self.policy.advance(1.0)
                self.policy.update(x[None], reward, round=round_, weight=weight)
            self.rewards += len(history)
            self.reward_total += history.total
            return len(history)

    def configure(self, **changes: Any) -> None:
        """Change ``wait``, ``missing``, ``max_pending`` or ``randomize`` from now on; all of them, or none if one is
        wrong."""
        with self._lock:
            unknown = set(changes) - set(CHANGEABLE)
            if unknown:
                raise ValueError(f"{min(unknown)}: cannot be changed; only {', '.join(CHANGEABLE)} can")
            self._set(**{name: changes.get(name, self._config[name]) for name in CHANGEABLE})
            self._config |= changes

    @property
    def configuration(self) -> dict[str, Any]:
        """What :meth:`configure` can change, as it is now."""
        return {name: self._config[name] for name in CHANGEABLE}

    def _set(self, wait: Any, missing: Any, max_pending: Any, randomize: Any) -> None:
        found = (
            None if wait is None else Span.of("wait", wait),
            None if missing is None else self._checked_reward("missing", missing),
            whole("max_pending", max_pending, 1),
            number("randomize", randomize, "in [0, 1]", lambda e: 0.0 <= e <= 1.0),
        )
        self.wait, self.missing, self.max_pending, self.randomize = found

    def _checked_reward(self, name: str, value: Any) -> float:
        low, high = self.reward_range
        allowed = "that is finite" if math.isinf(high) else f"in [{low:g}, {high:g}]"
        return number(name, value, allowed, lambda r: math.isfinite(r) and low <= r <= high)

    # --- time ------------------------------------------------------------------------------------------------------

    def _moment(self, now: float | datetime | None) -> float:
        """The time of a call; a clock that was set back stands still. It is kept if the call changes something."""
        return max(self._last_time, time.time() if now is None else moment(now))

    def _pass_time(self, at: float) -> None:
        """Where forgetting goes by the clock, let the policy's time catch up with it, in whole ticks."""
        if not self.by_clock:
            return
        if self._first_time is None:
            self._first_time = at
        gap = 1.0 + math.floor((at - self._first_time) / TICK) - self.policy.t
        if gap > 0.0:
            self.policy.advance(gap)

    # --- what can be read ------------------------------------------------------------------------------------------

    @property
    def pending(self) -> list[Decision]:
        """Decisions that wait for their rewards, the oldest first."""
        with self._lock:
            return [waiting.decision for waiting in self._pending.values()]

    @property
    def waiting(self) -> int:
        """How many they are."""
        return len(self._pending)

    def waits(self, decision: str) -> bool:
        """Whether the decision of this id waits for its reward."""
        return decision in self._pending

    @property
    def theta(self) -> Array:
        """The parameter as it is estimated now, in the coordinates of :attr:`feature_names`."""
        with self._lock:
            return np.array(self.policy.theta_hat[0])

    @property
    def feature_names(self) -> list[str]:
        """What each coordinate of :attr:`theta` belongs to."""
        raw = [f"x{i}" for i in range(self._scaling.raw_dim)] if self.features is None else self.features.names
        return [*raw, *["1"] * self._scaling.intercept]

    @property
    def memory(self) -> float:
        """How far back the past counts: 1/(1 - gamma), in decisions, or in seconds if forgetting goes by the clock."""
        with self._lock:
            gamma = float(np.asarray(self.policy.gamma)[0])
        rounds = 1.0 / (1.0 - gamma) if gamma < 1.0 else math.inf
        return rounds * TICK if self.by_clock else rounds

    def drift_estimate(self) -> Drift | None:
        """What the rewards say about the drift; None for a policy that was told how to forget."""
        with self._lock:
            if len(getattr(self.policy, "memories", ())) < 2:
                return None
            found = self.policy.drift_estimate()  # type: ignore[attr-defined]
        return Drift(*(np.asarray(value)[0].item() for value in found))

    def info(self) -> dict[str, Any]:
        """Counts, the estimate, memory and drift, for a person or a page to read."""
        with self._lock:
            drift = self.drift_estimate()
            return {
                "policy": self.policy.name,
                "decisions": self.decisions,
                "rewards": self.rewards,
                "mean_reward": self.reward_total / self.rewards if self.rewards else None,
                "pending": len(self._pending),
                "expired": self.expired,
                "theta": dict(zip(self.feature_names, self.theta.tolist(), strict=True)),
                "S": self.policy.S if hasattr(self.policy, "estimator") else None,
                "projected_share": self.projections / self.decisions if self.decisions else 0.0,
                "memory": self.memory,
                "memory_unit": "seconds" if self.by_clock else "decisions",
                "drift": None if drift is None else drift._asdict(),
            }

    def __repr__(self) -> str:
        counts = f"{self.decisions} decisions, {len(self._pending)} pending"
        return f"Agent({self.policy.name}, dim={self.policy.dim}, {counts})"

    # --- saving ----------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The whole agent: equal agents give equal bytes. The format is described in :mod:`windvane.agent.file`."""
        with self._lock:
            return saving.content(self)

    def save(self, path: str | Path) -> None:
        """Write the agent to a file: whole or not at all, and on disk when this returns."""
        write_atomically(Path(path), self.to_bytes())

    @classmethod
    def from_bytes(cls, content: bytes, *, link: Link | None = None, policy: type[Policy] | None = None) -> Agent:
        """The agent again. A link or a policy class of your own is not in the bytes: give it again."""
        return saving.restored(cls, content, link, policy, "content")

    @classmethod
    def load(cls, path: str | Path, *, link: Link | None = None, policy: type[Policy] | None = None) -> Agent:
        """An agent from a file that :meth:`save` wrote; it goes on bit for bit as the saved one would have."""
        return saving.restored(cls, Path(path).read_bytes(), link, policy, str(path))


def _parameters(policy: type[Policy], settings: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the constructor of ``policy`` takes; ``settings`` must be among it, and what it needs must be given."""
    taken = inspect.signature(policy).parameters
    for name in settings:
        if name not in taken or name in ("lanes", "dim"):
            raise ValueError(f"{name}: neither Agent nor {policy.name} takes such a setting")
    for name, parameter in taken.items():
        if parameter.default is parameter.empty and name not in {"dim", *settings, *given}:
            raise ValueError(f"{name}: {policy.name} needs it")
    return taken


def _policy_class(policy: str | type[Policy]) -> type[Policy]:
    if isinstance(policy, str):
        name = ADAPTIVE if policy == "adaptive" else policy
        if name not in POLICIES:
            raise ValueError(f'policy={policy!r}: must be "adaptive", a class, or one of {", ".join(POLICIES)}')
        policy = POLICIES[name]
    if not (isinstance(policy, type) and issubclass(policy, Policy)):
        raise ValueError(f"policy={shown(policy)}: must be a name or a class of policies")
    if policy.needs_truth:
        raise ValueError(f"policy={policy.name!r}: needs the truth, which only a simulation has")
    return policy
