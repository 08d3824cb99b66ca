"""Agent: one live stream of decisions, with named arms, late rewards, and a state that can be saved."""

from __future__ import annotations

import copy
import math
import secrets
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane._files import write_atomically
from windvane.agent import saving
from windvane.agent.alerts import LOOK, AlertLog, RecentShare
from windvane.agent.building import built, learn_prior, plain
from windvane.agent.decisions import Closing, Decision, Explanation, Pending, UnknownDecisionError, described
from windvane.agent.early import EarlyLearning
from windvane.agent.features import Features, Name
from windvane.agent.history import Learnt
from windvane.agent.offers import Offer, columns_of, offered
from windvane.agent.reading import Readable
from windvane.agent.scaling import Scaling
from windvane.agent.times import Clock, Span, told
from windvane.agent.waiting import AT_TIMEOUT, EARLY, ON_ARRIVAL, Waiting, too_late
from windvane.arguments import check_choice, check_number, check_positive, check_whole
from windvane.errors import ArgumentError
from windvane.kernels.random import PLAY, uniform_pair
from windvane.kernels.scoring import LARGEST_REWARD
from windvane.links import Link
from windvane.policies.base import Policy

CHANGEABLE = ("wait", "missing", "learn", "max_pending", "randomize")
"""Settings that a running agent can change."""


class Agent(Readable):
    """One lane of a policy, behind named arms and decisions with ids.

    >>> agent = Agent(dim=2)
    >>> decision = agent.decide({"red": [0.6, 0.1], "blue": [0.2, 0.7]})
    >>> agent.reward(decision.id, 1.0)
    True

    **What is decided.** Vectors of ``dim`` numbers, or, with ``features`` (a :class:`Features`, or its declaration as
    plain data), contexts and arms with named fields. ``link``: "logistic" (rewards in [0, 1], the default),
    "poisson", "probit", "identity", or a :class:`windvane.Link`; rewards lie in [0, 2 ``sigma``] (any for identity,
    and for linear policies, which take no link). ``L`` bounds the norm of a vector, ``S`` that of the parameter.

    **By what.** ``policy``: "adaptive" (:class:`windvane.AdaptiveGLMUCB`), a registered name, or a class;
    ``settings`` are its own. How it forgets: ``half_life``, a number of decisions or a duration ("2d": by the clock);
    or ``gamma`` per decision; or ``drift`` (B_T) with ``horizon`` (T). The adaptive policy needs none of them, and
    with one of them keeps to that memory. ``prior``: a guess of the parameter, worth ``prior_weight`` rewards along
    each axis, which fades as other rewards do.

    **Rewards** may come late, in any order, or never: after ``wait`` (decisions or a duration) a decision is forgotten,
    or counts as the reward ``missing``. ``learn``: when an outcome reaches the policy. "at_timeout", the default with
    ``missing``: every outcome, a reward that came included, is learned when the decision's ``wait`` ends, in the order
    of the decisions, so that what is learned is never selected by outcome. "on_arrival", the default without
    ``missing``: a reward is learned at once; use it if every decision gets a reward or there is no default. "early":
    outcomes are learned in part before the wait ends, corrected for the rewards still to come; use it if the wait is
    long compared with the memory (see :mod:`windvane.agent.early`). At most ``max_pending`` decisions are open; when
    there are more, the oldest are dropped and nothing more is learned from them.

    **Vectors**: ``scaling`` is None, (center, spread), or "fit" (on the first history given to :meth:`update_many`,
    then frozen); ``intercept`` adds a constant 1; a vector beyond L is an error, or shortened if ``clip``.

    **randomize** = epsilon: with this probability an arm is played uniformly at random. Every decision then has a
    ``propensity``, and the log of decisions can be evaluated off-policy.

    A call that fails changes nothing; one that is interrupted (Ctrl-C) may have been carried out, and a reward counts
    once at most. Safe to call from several threads; calls take turns. All randomness follows from ``seed`` (ids of
    decisions apart).
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
        sigma: float = 0.5,
        prior: npt.ArrayLike | None = None,
        prior_weight: float = 10.0,
        wait: str | float | timedelta | None = None,
        missing: float | None = None,
        learn: str | None = None,
        max_pending: int = 100_000,
        scaling: Any = None,
        intercept: bool = False,
        clip: bool = False,
        randomize: float = 0.0,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        half_life, wait = told(half_life), told(wait)
        self.features = Features.of(features)
        if (dim is None) == (self.features is None):
            expected = "given unless `features` is" if dim is None else "omitted when `features` is given"
            raise ArgumentError("dim", dim, expected)
        raw, remedy, self.fits_features = check_whole("dim", 1 if dim is None else dim, 1), None, False
        if self.features is not None:
            for name, value in (("intercept", intercept), ("clip", clip)):
                if value:
                    raise ArgumentError(name, value, "omitted when `features` is given", hint="declare it there")
            raw, remedy = self.features.dim, "declare ranges of all numbers, or give a larger L"
            if isinstance(scaling, str) and scaling == "fit":  # then ranges are what is fitted, where there is none
                self.fits_features, scaling = bool(self.features.open_fields), None
        self.scaling = Scaling(
            raw, check_positive("L", L), scaling=scaling, intercept=intercept, clip=clip, remedy=remedy
        )
        made = built(
            policy, self.scaling.dim, link, settings, S=S, L=self.scaling.longest, sigma=sigma, seed=seed,
            half_life=half_life, gamma=gamma, horizon=horizon, drift=drift,
        )  # fmt: skip
        self.policy, self.clock = made.policy, Clock(made.by_clock)
        low, high = self.policy.accepted_rewards
        self.reward_range = max(low, -LARGEST_REWARD), min(high, LARGEST_REWARD)
        self.wait: Span | None
        self.missing: float | None
        self.open_decisions = Waiting()
        self.early: EarlyLearning | None = None
        self._set(wait, missing, learn, max_pending, randomize)
        given = {
            "dim": dim, "link": made.link, "policy": made.name, "half_life": half_life, "gamma": gamma,
            "horizon": horizon, "drift": drift, "S": made.S, "L": L, "sigma": sigma, "prior": prior,
            "prior_weight": check_positive("prior_weight", prior_weight), "wait": wait, "missing": missing,
            "learn": learn, "max_pending": max_pending, "intercept": intercept, "clip": clip,
            "randomize": randomize, "seed": seed, **settings,
        }  # fmt: skip
        self.config: dict[str, Any] = {name: plain(value) for name, value in given.items()}
        self.lock, self._saving = threading.RLock(), threading.Lock()
        self.decisions = self.projections = 0
        self.rewards = 0  # that arrived in time
        self.expired = 0  # decisions whose wait ended without a reward
        self.defaulted = 0  # of those that expired: they counted as ``missing``
        self.dropped = 0  # decisions that max_pending pushed out; nothing was learned from them
        self.settled = 0  # decisions whose outcome is final and was learned
        self.reward_total = 0.0  # of settled decisions
        self.history = 0  # rows learned by update_many
        self.recently_projected, self.recently_dropped = RecentShare(), RecentShare()
        self.columns: list[Name] | None = None  # of the first frame with raw vectors: the order of the coordinates
        self._alert_log = AlertLog()
        if prior is not None:
            learn_prior(self.policy, prior, prior_weight, made.S, self.reward_range)

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
        decision = self.replay(None, arms, context=context, now=now, id=id)
        if self.decisions % LOOK == 0:
            self._alert_log.log(self.alerts, self.decisions, "agent")
        return decision

    def offer(self, arms: Any = None, context: Mapping[str, Any] | None = None) -> Offer:
        """The arms of a decision, checked; nothing is decided. :meth:`decide` takes it in the place of arms."""
        with self.lock:
            if self.fits_features:
                raise ArgumentError("scaling", "fit", "fitted first", hint="give history to update_many")
            names, raw = offered(arms, context, self.features, self.scaling.raw_dim, self.columns)
            columns = self.columns or columns_of(arms, self.features)
            longest = math.inf if self.features is None else self.features.longest
            return Offer(names, self.scaling.apply(raw, "arms", names, longest=longest), columns)

    def replay(
        self,
        played: int | None,
        arms: Any = None,
        *,
        context: Mapping[str, Any] | None = None,
        now: float | datetime | None = None,
        id: str | None = None,
    ) -> Decision:
        """:meth:`decide`, but the arm in the place ``played`` of the offer is played, as a log says that it was."""
        with self.lock:
            names, rows, columns = arms if isinstance(arms, Offer) else self.offer(arms, context)
            played = None if played is None else check_whole("played", played, 0, len(names) - 1)
            if id is not None and (not isinstance(id, str) or not id or self.open_decisions.knows(id)):
                raise ArgumentError("id", id, "a text that no other decision has")
            key = secrets.token_hex(8) if id is None else str.__str__(id)
            at = self.clock.read(now)  # from here on nothing is refused
            self._expire(at, room=1)
            self._learn_early(at)
            self.clock.pass_to(at, self.policy)
            policy, round_, number_ = self.policy, self.policy.t, self.policy.decisions
            preferred = index = int(policy.select(rows[None])[0])
            explored = False
            if self.randomize > 0.0:
                coin, place = uniform_pair(policy.key, policy.lane_ids[0], number_, PLAY, 0)
                if coin < self.randomize:
                    index, explored = int(place * len(names)), True
            index = index if played is None else played
            decision = described(
                policy, key, names, rows, at,
                preferred=preferred, index=index, explored=explored, randomize=self.randomize,
            )  # fmt: skip
            self.columns = self.columns or columns
            pending = Pending(rows[index].copy(), round_, self.decisions, decision)
            self.open_decisions.add(pending)
            if self.early is not None:
                self.early.add(pending)
            self.decisions += 1
            if decision.projected is not None:
                self.projections += decision.projected
                self.recently_projected.add(decision.projected)
            return decision

    def explain(self, decision: Decision | str) -> Explanation:
        """Why the arm was chosen; of a decision, or of the id of one that is not closed yet."""
        if not isinstance(decision, Decision):
            with self.lock:
                pending = self.open_decisions.open.get(_key(decision))
                if pending is None:
                    raise UnknownDecisionError(decision, "is closed or unknown; pass the Decision object instead")
                decision = pending.decision
        return Explanation.of(decision)

    # --- learning --------------------------------------------------------------------------------------------------

    def reward(self, decision: Decision | str, value: float, *, now: float | datetime | None = None) -> bool:
        """Record the reward of a decision; it counts with the weight of the decision's age.

        It reaches the policy now or when the decision's ``wait`` ends, as ``learn`` says. True if it is new, False if
        it repeats what is known. Raises :class:`UnknownDecisionError`, :class:`ConflictingRewardError` (there is
        another reward already) or :class:`ExpiredDecisionError` (the wait is over). ``now``: when the reward came, for
        a ``wait`` that goes by the clock.
        """
        key = _key(decision)
        with self.lock:
            reward, at = self._checked_reward("value", value), self.clock.read(now)
            pending = self.open_decisions.open.get(key)
            if pending is None or pending.reward is not None:
                self.open_decisions.check_repeated(key, reward)
                return False
            if self._overdue(pending, at):
                raise too_late(key)
            if self.learn == ON_ARRIVAL:
                self._close(pending, reward, reward)
            else:
                self.open_decisions.hold(pending, reward, self._age(pending, at), is_miss=reward == self.missing)
            self.rewards += 1
            self._expire(at)
            return True

    def _close(self, pending: Pending, reward: float | None, outcome: float | None) -> None:
        """Close a decision whose reward, if one came, is ``reward``, and learn what is not learned yet of its
        ``outcome``, if there is one. In this order, so that an interruption cannot make an outcome count twice."""
        came_now = reward is not None and pending.reward is None
        is_miss = reward == self.missing if came_now else pending.is_miss
        weight = 0.0 if pending.is_learned else 1.0 - pending.credited if is_miss else 1.0
        self.open_decisions.close(pending, reward)
        if outcome is not None:
            try:
                if weight > 0.0:
                    self._update(pending, outcome, weight)
            except Exception:  # of a policy or a link of the user's own
                self.open_decisions.reopen(pending)
                raise
            self.settled += 1
            self.reward_total += outcome
        self.open_decisions.forget()

    def _update(self, pending: Pending, outcome: float, weight: float) -> None:
        """Let the policy learn an outcome. It gets arrays, which it does not have to convert."""
        self.policy.update(pending.x[None], np.array([outcome]), round=np.array([pending.round]), weight=weight)

    def _learn_early(self, at: float) -> None:
        """Learn what can be learned of open decisions before their wait ends."""
        if self.early is None or self.wait is None or self.missing is None:
            return
        length = self.wait.length
        for pending, weight, arrived in self.early.look(lambda pending: self._age(pending, at) / length):
            outcome = self.missing if pending.reward is None else pending.reward
            self._update(pending, outcome, weight)
            if pending.is_miss:
                pending.credited = arrived
            else:
                pending.is_learned = True

    def expire(
        self, now: float | datetime | None = None, *, room: int = 0, most: int | None = None, drop: bool = True
    ) -> list[Closing]:
        """Close the decisions whose wait is over, and drop the oldest until ``room`` more may be open.

        Returns how each was closed, the oldest first. :meth:`decide` (with room for one) and :meth:`reward` do this
        too. Call it to get the list, or while an agent is idle. ``most``: close at most this many now. ``drop=False``:
        decisions beyond ``max_pending`` count as ``missing``, as in version 0.1, whose logs are replayed so.
        """
        with self.lock:
            room, most = (
                check_whole("room", room, 0, self.max_pending),
                None if most is None else check_whole("most", most, 1),
            )
            return self._expire(self.clock.read(now), room, most, drop)

    def overdue(self, now: float | datetime | None = None, count: int = 1) -> bool:
        """Whether :meth:`expire` would close ``count`` decisions or more."""
        with self.lock:
            at, open_decisions = self.clock.read(now), len(self.open_decisions)
            if open_decisions - self.max_pending >= count:
                return True
            if open_decisions < count or not self._overdue(self.open_decisions.oldest(), at):
                return False
            return self._overdue(next(islice(self.open_decisions, count - 1, None)), at)

    def _expire(self, at: float, room: int = 0, most: int | None = None, drop: bool = True) -> list[Closing]:
        closings: list[Closing] = []
        while self.open_decisions and len(closings) != most:
            oldest = self.open_decisions.oldest()
            is_over = self._overdue(oldest, at)
            if not is_over and len(self.open_decisions) + room <= self.max_pending:
                break
            dropped = drop and not is_over
            learned = None if dropped else self.missing if oldest.reward is None else oldest.reward
            self._close(oldest, oldest.reward, learned)
            if not dropped:
                self._record_delay(oldest)
            self.recently_dropped.add(dropped)
            self.dropped += dropped
            if not dropped and oldest.reward is None:
                self.expired += 1
                self.defaulted += learned is not None
            closings.append(Closing(oldest.decision.id, learned, oldest.reward is not None, dropped))
        return closings

    def _record_delay(self, pending: Pending) -> None:
        """Let early learning know what became of a decision whose wait is over."""
        if self.early is None or self.wait is None:
            return
        if pending.is_miss:
            self.early.model.add(pending.decision.arm, None)
        elif pending.delay is not None:
            self.early.model.add(pending.decision.arm, min(pending.delay / self.wait.length, 1.0))

    def _overdue(self, pending: Pending, at: float) -> bool:
        if self.wait is None:
            return False
        return self._age(pending, at) > self.wait.length

    def _age(self, pending: Pending, at: float) -> float:
        """The age of a decision, in the unit of ``wait``."""
        if self.wait is not None and self.wait.by_clock:
            return at - pending.decision.time
        return float(self.decisions - pending.number - 1)

    def update_many(
        self,
        X: Any = None,
        rewards: npt.ArrayLike = (),
        *,
        contexts: Any = None,
        arms: Any = None,
        times: Any = None,
        weights: npt.ArrayLike | None = None,
        now: float | datetime | None = None,
    ) -> int:
        """Learn history in bulk: decisions of the past with their rewards, oldest first; returns how many.

        ``X``: an array or a frame with a row of raw features per decision; with declared features ``contexts``
        (mappings or a frame) and ``arms`` (the names of the arms played, or one-item mappings {name: fields}, or a
        frame of fields with a column "arm"). Every row ages those before it by a decision or, where forgetting goes by
        the clock, by ``times``, which are then needed; where there are ``times`` they also put the rows in order, and
        none may lie before what the agent has seen, or after ``now`` (default: the clock's). All rows are learnt, or
        none.
        """
        with self.lock:
            return self.adopt(Learnt.of(self, X, rewards, contexts, arms, times, weights, self.clock.read(now)))

    def adopt(self, learnt: Learnt) -> int:
        """Become what history has made of this agent, which must not have changed since; returns the number of rows."""
        with self.lock:
            self.policy, self.clock, history = learnt
            self.features, self.scaling, self.fits_features = history.features, history.scaling, False
            self.columns = history.columns
            self.history += len(history)
            return len(history)

    def _checked_reward(self, name: str, value: Any) -> float:
        low, high = self.reward_range
        if isinstance(value, float) and low <= value <= high:  # the usual case needs no closer check
            return float(value)
        return check_number(name, value, f"in [{low:g}, {high:g}]", lambda r: low <= r <= high)

    # --- settings that may change ----------------------------------------------------------------------------------

    def configure(self, **changes: Any) -> None:
        """Change ``wait``, ``missing``, ``learn``, ``max_pending`` or ``randomize`` from now on; all that is given, or
        none if one is wrong. Rewards that are held are still learned when the wait of their decision ends."""
        with self.lock:
            unknown = set(changes) - set(CHANGEABLE)
            if unknown:
                name, allowed = min(unknown), ", ".join(CHANGEABLE)
                raise ArgumentError(name, changes[name], "omitted", hint=f"only {allowed} can be changed")
            changes = {name: told(value) for name, value in changes.items()}
            self._set(**{name: changes.get(name, self.config[name]) for name in CHANGEABLE})
            self.config |= {name: plain(value) for name, value in changes.items()}

    @property
    def configuration(self) -> dict[str, Any]:
        """What :meth:`configure` can change, as it is now."""
        return {name: self.config[name] for name in CHANGEABLE}

    def _set(self, wait: Any, missing: Any, learn: Any, max_pending: Any, randomize: Any) -> None:
        span = None if wait is None else Span.of("wait", wait)
        default = None if missing is None else self._checked_reward("missing", missing)
        if default is not None and span is None:
            expected = "given with `wait`, the timeout after which it counts as the reward"
            raise ArgumentError("missing", missing, expected)
        when = ON_ARRIVAL if default is None else AT_TIMEOUT
        if learn is not None:
            when = check_choice("learn", learn, (AT_TIMEOUT, ON_ARRIVAL, EARLY))
        if when != ON_ARRIVAL and span is None:
            raise ArgumentError("learn", learn, "given with `wait`, the timeout of a decision")
        if when == EARLY and (default is None or span is None or span.length == 0.0):
            raise ArgumentError("learn", learn, "given with `wait` > 0 and `missing`, the default reward")
        most = check_whole("max_pending", max_pending, 1)
        epsilon = check_number("randomize", randomize, "in [0, 1]", lambda e: 0.0 <= e <= 1.0)
        if span is None and self.open_decisions.held:
            expected = f"given while {self.open_decisions.held} rewards are held until their decisions expire"
            raise ArgumentError("wait", wait, expected)
        if when != EARLY:
            self.early = None
        elif self.early is None or (span, default) != (self.wait, self.missing):
            for pending in self.open_decisions:
                pending.delay = None  # it was measured against another wait or default
            self.early = EarlyLearning(self.open_decisions)
        self.wait, self.missing, self.learn, self.max_pending, self.randomize = span, default, when, most, epsilon

    # --- as an object ----------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        with self.lock:
            state = {name: value for name, value in self.__dict__.items() if name not in ("lock", "_saving")}
            return copy.deepcopy(state)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.lock, self._saving = threading.RLock(), threading.Lock()

    def __repr__(self) -> str:
        counts = f"{self.decisions} decisions, {self.waiting} pending"
        return f"Agent({self.policy.name}, dim={self.policy.dim}, {counts})"

    # --- saving ----------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The whole agent: equal agents give equal bytes. The format is described in :mod:`windvane.agent.file`."""
        return self.copied()()

    def copied(self) -> Callable[[], bytes]:
        """What makes :meth:`to_bytes` of the agent as it is now; to be called once, at any time, in any thread."""
        return saving.copied(self)

    def save(self, path: str | Path) -> None:
        """Write the agent to a file: whole or not at all, and on disk when this returns."""
        with self._saving:  # of two savers at once, the one that comes last has the later state
            write_atomically(Path(path), self.to_bytes())

    @classmethod
    def from_bytes(cls, content: bytes, *, link: Link | None = None, policy: type[Policy] | None = None) -> Agent:
        """The agent again. A link or a policy class of your own is not in the bytes: give it again."""
        return saving.restored(cls, content, link, policy, "content")

    @classmethod
    def load(cls, path: str | Path, *, link: Link | None = None, policy: type[Policy] | None = None) -> Agent:
        """An agent from a file that :meth:`save` wrote; it goes on bit for bit as the saved one would have."""
        return saving.restored(cls, Path(path).read_bytes(), link, policy, str(path))


def _key(decision: Decision | str) -> str:
    key = decision.id if isinstance(decision, Decision) else decision
    if not isinstance(key, str):
        raise ArgumentError("decision", decision, "a Decision, or its id")
    return key
