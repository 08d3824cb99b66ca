"""AgentCore: the part of an agent that is saved and replayed. It has no lock, no clock and no random ids.

:class:`windvane.Agent` adds these; the service replays its log into a core. Two cores with the same settings and the
same calls, including times and ids, are equal to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any

import numpy as np

from windvane.agent import archive, info
from windvane.agent.calibration import CalibrationMonitor
from windvane.agent.coordinates import move_core
from windvane.agent.delays import EarlyLearning
from windvane.agent.history import LearnedHistory, learn_history
from windvane.agent.pace import STEP, Pace
from windvane.agent.pending import (
    AT_TIMEOUT,
    EARLY,
    ON_ARRIVAL,
    RECORDED,
    ClosedDecision,
    ClosedOutcome,
    ConflictingRewardError,
    Pending,
    PendingDecisions,
    RewardOutcome,
    UnknownDecisionError,
)
from windvane.agent.policy import build_policy, check_reward_range, find_policy_class, learn_prior
from windvane.agent.preview import Preview, is_projected, learn_outcome, predict_mean, preview, read_scores
from windvane.agent.times import Clock, Span, format_duration
from windvane.agent.vectors import ArmEncoder, Offer
from windvane.arguments import Array, check_choice, check_number, check_positive, check_whole
from windvane.errors import ArgumentError
from windvane.kernels.random import PLAY, uniform_pair
from windvane.links import Link
from windvane.policies.base import Policy
from windvane.policies.references import ReferencePolicy
from windvane.records import AgentInfo, Alert, Counts, Decision, Explanation, to_datetime

CHANGEABLE = ("reward_timeout", "default_reward", "learn", "max_pending", "epsilon")
"""Settings that a running agent can change."""
ROUNDING = 1e-12  # of the range of rewards: 1.1 + 2.2 is more than 3.3 in floating point, and is not refused


@dataclass(slots=True)
class Tally:
    """Running counts of an agent; see :class:`windvane.records.Counts`. ``projected`` counts decisions whose estimate
    was outside the ball of radius S, ``reward_total`` adds up the outcomes that were learned."""

    decisions: int = 0
    rewards: int = 0
    settled: int = 0
    expired: int = 0
    defaulted: int = 0
    dropped: int = 0
    history_rows: int = 0
    projected: int = 0
    reward_total: float = 0.0


class AgentCore:
    """See the module. ``arguments``: all of those that :class:`windvane.Agent` declares, and the policy's settings.

    ``closes_due``: whether a decision or a reward first closes all decisions that are due. The service sets it to False
    and closes them itself, in slices.
    """

    closes_due = True

    def __init__(self, **arguments: Any) -> None:
        rest = dict(arguments)  # the agent's arguments are popped below; the rest belongs to the policy
        half_life, reward_timeout = format_duration(rest.pop("half_life")), format_duration(rest.pop("reward_timeout"))
        flags = {name: rest.pop(name) for name in ("L", "intercept", "clip")}
        flags["needs_one_hot"] = find_policy_class(rest["policy"]).needs_one_hot
        self.encoder = ArmEncoder(rest.pop("dim"), rest.pop("features"), rest.pop("scaling"), **flags)
        reward_range, sigma = check_reward_range(rest.pop("reward_range"))
        prior, prior_weight = rest.pop("prior"), rest.pop("prior_weight")
        changeable = {name: rest.pop(name) for name in CHANGEABLE if name in rest}
        link, policy, scaling = rest.pop("link"), rest.pop("policy"), self.encoder.scaling
        own = {name: rest.pop(name) for name in ("S", "seed", "gamma", "horizon", "drift")} | {"half_life": half_life}
        built = build_policy(policy, scaling.dim, link, rest, L=scaling.longest, sigma=sigma, **own)
        self.policy, self.clock, self.policy_settings = built.policy, Clock(built.by_clock), tuple(rest)
        self.reward_range = built.accepted_rewards(reward_range)
        self.reward_hint = built.hint_for_larger_rewards() if reward_range is None else ""
        self.decisions, self.tally = PendingDecisions(), Tally()
        self.recently_projected, self.recently_dropped = info.RecentShare(), info.RecentShare()
        self.calibration, self.pace = CalibrationMonitor(self.policy.reward_link, self.reward_range), Pace()
        self.early: EarlyLearning | None = None
        self.reward_timeout: Span | None = None
        self.default_reward: float | None = None
        self._apply(**changeable | {"reward_timeout": reward_timeout})
        arguments |= {
            "link": built.link, "policy": built.name, "S": built.S, "half_life": half_life,
            "prior_weight": check_positive("prior_weight", prior_weight), "reward_range": reward_range,
            "reward_timeout": reward_timeout, **self.encoder.declaration(),
        }  # fmt: skip
        self.settings: dict[str, Any] = {name: _to_plain(value) for name, value in arguments.items()}
        if prior is not None:
            learn_prior(self.policy, prior, prior_weight, built.S, self.reward_range)

    # --- deciding --------------------------------------------------------------------------------------------------

    def offer(self, arms: Any = None, context: Any = None) -> Offer:
        """Check the arms of a decision and encode them, without deciding."""
        return self.encoder.encode(arms, context)

    def preview(self, offer: Offer, *, now: float) -> Preview:
        """Return the predictions that a decision now would record for the arms. Nothing changes."""
        at, due = self.clock.read(now), []
        for pending in takewhile(lambda pending: self._is_overdue(pending, at), self.decisions):
            outcome = self.default_reward if pending.reward is None else pending.reward
            weight = self._weigh(pending, is_miss=pending.is_miss)
            if outcome is not None and weight > 0.0:
                due.append((pending, outcome, weight))
        return preview(self.policy, self.clock, offer, at, due)

    def decide(self, offer: Offer, *, id: str, now: float, played: int | None = None) -> Decision:
        """Choose an arm or, in a replay, play the arm with the index ``played``."""
        names, vectors, columns = offer
        if not id or id in self.decisions:
            raise ArgumentError("id", id, "a string that no other decision has")
        if played is not None:
            check_whole("played", played, 0, len(names) - 1)
        at = self.clock.read(now)  # all arguments are valid from here on
        if self.closes_due:
            self._expire(at, room=1)
        if self.early is not None:
            for pending, outcome, weight in self.early.look(lambda pending: self._age(pending, at)):
                learn_outcome(self.policy, pending, outcome, weight)
                self.calibration.begin(self.tally.decisions)
        self.clock.pass_to(at, self.policy)
        policy, round_, number = self.policy, self.policy.t, self.policy.decisions
        preferred = index = int(policy.select(policy.trust(vectors[None]))[0])
        explored = False
        if self.epsilon > 0.0:
            coin, place = uniform_pair(policy.key, policy.lane_ids[0], number, PLAY, 0)
            if coin < self.epsilon:
                index, explored = int(place * len(names)), True
        index = index if played is None else played
        decision = self._describe(offer, id, at, preferred, index, explored)
        self.encoder.columns = self.encoder.columns or columns
        pending = Pending(vectors[index].copy(), round_, self.tally.decisions, at, decision)
        self.decisions.add(pending)
        if self.early is not None:
            self.early.add(pending)
        if self.tally.decisions % STEP == 0:
            self.pace.mark(at)
        self.tally.decisions += 1
        if decision.projected is not None:
            self.tally.projected += decision.projected
            self.recently_projected.add(decision.projected)
        return decision

    def _describe(self, offer: Offer, id: str, at: float, preferred: int, index: int, explored: bool) -> Decision:
        """Return the record of the round that the policy has just decided."""
        policy, names, epsilon = self.policy, offer.names, self.epsilon
        scored, scores = read_scores(policy)
        others = scores.tolist()
        score, prediction = others.pop(index), predict_mean(policy, scored, offer.vectors[index], index)
        rival = rival_score = None
        if others:
            rival_score = max(others)
            place = others.index(rival_score)
            rival = names[place + (place >= index)]
        propensity = epsilon / len(names) + (1.0 - epsilon) * (index == preferred) if epsilon > 0.0 else None
        return Decision(
            id=id, arm=names[index], index=index, time=to_datetime(at), propensity=propensity, explored=explored,
            prediction=prediction, bonus=score - prediction, preferred=names[preferred], rival=rival,
            rival_score=rival_score, projected=is_projected(policy, scored),
        )  # fmt: skip

    # --- rewards ---------------------------------------------------------------------------------------------------

    def reward(self, id: str, value: float, *, now: float) -> RewardOutcome:
        """Record the reward of a decision."""
        value, at = self._check_reward("value", value), self.clock.read(now)
        pending = self.decisions.open.get(id)
        # Due decisions are closed before it is learned: outcomes are learned in the order of time.
        if pending is None or pending.reward is not None or self._close_due(pending, at):
            return self.decisions.repeat_reward(id, value)
        if self.learn == ON_ARRIVAL:
            self._close(pending, value, value)
        else:
            self._hold(pending, value, at)
        self.tally.rewards += 1
        return RECORDED

    def add_reward(self, id: str, value: float, *, now: float) -> tuple[RewardOutcome, float]:
        """Add a part to the reward of a decision. Also return the sum so far, or the sum of the parts that arrived
        after the timeout."""
        value = check_number("value", value, "that is finite", math.isfinite)
        if self.learn != AT_TIMEOUT:
            hint = 'parts need a `reward_timeout` and learn="at_timeout"'
            raise ArgumentError("value", value, f"a whole reward, because learn is {self.learn!r}", hint=hint)
        total = self.check_part(self.decisions, id, value)
        at, pending = self.clock.read(now), self.decisions.open.get(id)
        if pending is None or self._close_due(pending, at):
            return RewardOutcome("expired", True), self.decisions.add_late_part(id, value)
        self.tally.rewards += pending.reward is None
        self._hold(pending, total, at)
        pending.is_partial = True
        return RECORDED, total

    def check_part(self, decisions: PendingDecisions, id: str, value: float) -> float:
        """Return the sum of the parts of a reward of one of ``decisions``, if it is a possible reward."""
        reward, late, is_partial, _ = decisions.outcome_of(id)
        if not is_partial and (reward, late) != (None, None):
            raise ConflictingRewardError(id, "already has a whole reward; no part can be added")
        total, (low, high) = (reward or 0.0) + (late or 0.0) + value, self.reward_range
        slack = ROUNDING * (high - low)
        if not low - slack <= total <= high + slack:
            expected = f"a number that keeps the sum of the parts in [{low:g}, {high:g}]"
            raise ArgumentError("value", value, expected, got=f"{value:g}, which makes it {total:g}")
        return min(max(total, low), high)

    def _hold(self, pending: Pending, reward: float, at: float) -> None:
        """Hold a reward until it is learned."""
        self.decisions.held += pending.reward is None
        pending.reward, pending.delay, pending.is_miss = reward, self._age(pending, at), reward == self.default_reward

    def _close_due(self, pending: Pending, at: float) -> bool:
        """Close the decisions that are due, and return whether ``pending`` was among them."""
        if self.closes_due:
            self._expire(at)
        if not pending.is_open:  # it may already be forgotten, if many were closed at once
            self.decisions.closed.setdefault(
                pending.decision.id, ClosedOutcome(pending.reward, None, pending.is_partial)
            )
        return not pending.is_open

    def _check_reward(self, name: str, value: Any) -> float:
        low, high = self.reward_range
        if isinstance(value, float) and low <= value <= high:  # the usual case needs no closer check
            return float(value)
        is_large = isinstance(value, float | int) and high < value < math.inf
        hint = self.reward_hint if is_large else ""
        return check_number(name, value, f"in [{low:g}, {high:g}]", lambda r: low <= r <= high, hint=hint)

    def _close(self, pending: Pending, reward: float | None, outcome: float | None, is_dropped: bool = False) -> None:
        """Close a decision with its ``reward`` (None: none arrived), then learn the rest of its ``outcome``, if any. In
        this order an interruption cannot make an outcome count twice."""
        came_now = reward is not None and pending.reward is None
        is_miss = reward == self.default_reward if came_now else pending.is_miss
        weight = self._weigh(pending, is_miss=is_miss)
        self.decisions.close(pending, reward, is_dropped)
        if outcome is not None:
            try:
                if weight > 0.0:
                    learn_outcome(self.policy, pending, outcome, weight)
            except Exception:  # raised by a custom policy or link
                self.decisions.reopen(pending)
                raise
            self.tally.settled += 1
            self.tally.reward_total += outcome
            self.calibration.begin(self.tally.decisions)
            # A ReferencePolicy predicts nothing.
            if self.calibration.covers(pending.number) and not isinstance(self.policy, ReferencePolicy):
                self.calibration.add(pending.decision.arm, pending.decision.prediction, outcome)
        self.decisions.forget()

    def _weigh(self, pending: Pending, *, is_miss: bool) -> float:
        """Return the weight of the part of an outcome that is not learned yet."""
        return 0.0 if pending.is_learned else 1.0 - pending.credited if is_miss else 1.0

    # --- timeouts --------------------------------------------------------------------------------------------------

    def expire(self, *, now: float, room: int = 0, most: int | None = None) -> list[ClosedDecision]:
        """Close the decisions whose timeout has passed, and drop the oldest until ``room`` more may be open; at most
        ``most`` of them. Returns how each was closed, the oldest first."""
        return self._expire(self.clock.read(now), room, most)

    def _expire(self, at: float, room: int = 0, most: int | None = None) -> list[ClosedDecision]:
        """:meth:`expire` at a time that the clock has read."""
        closed: list[ClosedDecision] = []
        tally = self.tally
        while len(closed) != most and (oldest := self._find_due(at, room)) is not None:
            is_dropped, is_miss = not self._is_overdue(oldest, at), oldest.reward is None
            learned = None if is_dropped else self.default_reward if is_miss else oldest.reward
            self._close(oldest, oldest.reward, learned, is_dropped)
            self.recently_dropped.add(is_dropped)
            tally.dropped += is_dropped
            if not is_dropped:
                if self.early is not None:
                    self.early.record(oldest)
                tally.expired += is_miss
                tally.defaulted += is_miss and learned is not None
            decision = oldest.decision
            closed.append(ClosedDecision(decision.id, decision.arm, oldest.number, learned, not is_miss, is_dropped))
        return closed

    def drop(self, id: str) -> bool:
        """Close an open decision without learning from it, so that its vector is gone; return whether it was open."""
        pending = self.decisions.open.get(id)
        if pending is None:
            return False
        self._close(pending, pending.reward, None, is_dropped=True)
        self.tally.dropped += 1
        return True

    def is_due(self, now: float) -> bool:
        """Whether :meth:`expire` would close a decision."""
        return self._find_due(self.clock.read(now)) is not None

    def _find_due(self, at: float, room: int = 0) -> Pending | None:
        """Return the oldest decision if it must be closed: it is overdue, or ``room`` more would be too many."""
        count = len(self.decisions.open)
        if count == 0 or (self.reward_timeout is None and count + room <= self.max_pending):
            return None
        oldest = self.decisions.oldest()
        return oldest if count + room > self.max_pending or self._is_overdue(oldest, at) else None

    def is_overdue(self, id: str, now: float) -> bool:
        """Whether a decision is still open although its timeout has passed."""
        pending = self.decisions.open.get(id)
        return pending is not None and self._is_overdue(pending, self.clock.read(now))

    def _is_overdue(self, pending: Pending, at: float) -> bool:
        return self.reward_timeout is not None and self._age(pending, at) > self.reward_timeout.length

    def _age(self, pending: Pending, at: float) -> float:
        """Return the age of a decision, in the unit of ``reward_timeout``."""
        if self.reward_timeout is not None and self.reward_timeout.by_clock:
            return at - pending.time
        return float(self.tally.decisions - pending.number - 1)

    # --- history ---------------------------------------------------------------------------------------------------

    def learn_history(self, *, now: float | None, **rows: Any) -> LearnedHistory:
        """Learn history in a copy and return the result. This agent does not change, and must not change meanwhile.

        ``rows``: the arguments of :meth:`windvane.Agent.history`. ``now``: None in a replay, where the times are not
        checked again.
        """
        return learn_history(self.policy, self.clock, self.encoder, self.reward_range, now=now, **rows)

    def adopt(self, learned: LearnedHistory) -> int:
        """Take over the result of :meth:`learn_history`, before anything else changes. Return the number of rows."""
        self.policy, self.clock, self.encoder, rows = learned
        self.settings |= self.encoder.declaration()  # includes fitted values
        self.tally.history_rows += rows
        if rows:
            self.calibration.begin(self.tally.decisions)
        return rows

    # --- settings that may change ----------------------------------------------------------------------------------

    def configure(self, **changes: Any) -> None:
        """Change ``features`` or some of :data:`CHANGEABLE` from now on: all of them, or none if a value is invalid."""
        for name in sorted(set(changes) - {"features", *CHANGEABLE}):
            hint = f"only features, {', '.join(CHANGEABLE)} can be changed"
            raise ArgumentError(name, changes[name], "omitted", hint=hint)
        successor, vectors = move_core(self, changes.pop("features")) if "features" in changes else (None, [])
        changes = {name: _to_plain(format_duration(value)) for name, value in changes.items()}
        self._apply(**{name: changes.get(name, self.settings[name]) for name in CHANGEABLE})
        if successor is not None:
            self.policy, self.encoder, self.policy_settings = (
                successor.policy,
                successor.encoder,
                successor.policy_settings,
            )
            self.settings = successor.settings
            for pending, x in zip(self.decisions, vectors, strict=True):
                pending.x = x
        self.settings |= changes

    def _apply(self, reward_timeout: Any, default_reward: Any, learn: Any, max_pending: Any, epsilon: Any) -> None:
        timeout = None if reward_timeout is None else Span.parse("reward_timeout", reward_timeout)
        default = None if default_reward is None else self._check_reward("default_reward", default_reward)
        if default is not None and timeout is None:
            expected = "given with `reward_timeout`, after which it counts as the reward"
            raise ArgumentError("default_reward", default_reward, expected)
        when = ON_ARRIVAL if default is None else AT_TIMEOUT
        if learn is not None:
            when = check_choice("learn", learn, (AT_TIMEOUT, ON_ARRIVAL, EARLY))
        if when != ON_ARRIVAL and timeout is None:
            raise ArgumentError("learn", learn, "given with `reward_timeout`")
        if when == EARLY and (default is None or timeout is None or timeout.length == 0.0):
            raise ArgumentError("learn", learn, "given with `reward_timeout` > 0 and `default_reward`")
        most = check_whole("max_pending", max_pending, 1)
        epsilon = check_number("epsilon", epsilon, "in [0, 1]", lambda e: 0.0 <= e <= 1.0)
        if timeout is None and self.decisions.held:
            expected = f"given while {self.decisions.held} rewards are held until their timeout"
            raise ArgumentError("reward_timeout", reward_timeout, expected)
        if when != EARLY or timeout is None or default is None:
            self.early = None
        elif self.early is None or (timeout, default) != (self.reward_timeout, self.default_reward):
            for pending in self.decisions:
                pending.delay = None  # it was measured against another timeout or default
            self.early = EarlyLearning(self.decisions, timeout.length, default)
        self.reward_timeout, self.default_reward, self.learn = timeout, default, when
        self.max_pending, self.epsilon = most, epsilon

    # --- inspection ------------------------------------------------------------------------------------------------

    @property
    def counts(self) -> Counts:
        tally, held = self.tally, self.decisions.held
        return Counts(
            decisions=tally.decisions, rewards=tally.rewards, pending=len(self.decisions) - held, held=held,
            settled=tally.settled, expired=tally.expired, defaulted=tally.defaulted, dropped=tally.dropped,
            history_rows=tally.history_rows,
        )  # fmt: skip

    @property
    def mean_reward(self) -> float | None:
        """The mean outcome of the settled decisions; None if there is none."""
        return self.tally.reward_total / self.tally.settled if self.tally.settled else None

    @property
    def projected_share(self) -> float:
        """The share of all decisions whose estimate was outside the ball of radius S."""
        return self.tally.projected / self.tally.decisions if self.tally.decisions else 0.0

    @property
    def feature_names(self) -> list[str]:
        return self.encoder.feature_names

    @property
    def theta(self) -> Array:
        return info.theta_of(self.policy)

    @property
    def alerts(self) -> list[Alert]:
        return info.find_alerts(self)

    def info(self) -> AgentInfo:
        return info.describe(self)

    def pending(self) -> list[Decision]:
        """Return the decisions whose reward has not arrived, oldest first."""
        return self.list_pending()[0]

    def list_pending(self, after: int = -1, limit: int | None = None) -> tuple[list[Decision], int | None]:
        """Return at most ``limit`` pending decisions whose number is above ``after``, and the ``after`` of the next
        page; None if there is none."""
        pending = (each for each in self.decisions if each.reward is None and each.number > after)
        page = list(islice(pending, limit))
        return [each.decision for each in page], page[-1].number if next(pending, None) is not None else None

    def is_pending(self, id: str) -> bool:
        pending = self.decisions.open.get(id)
        return pending is not None and pending.reward is None

    def explain(self, id: str) -> Explanation:
        pending = self.decisions.open.get(id)
        if pending is None:
            raise UnknownDecisionError(id, "is closed or unknown; pass the Decision object instead")
        return Explanation.of(pending.decision)

    def outcome_of(self, id: str) -> ClosedOutcome | None:
        """Return the outcome of a recently closed decision; None for any other."""
        return self.decisions.closed.get(id)

    # --- saving ----------------------------------------------------------------------------------------------------

    def pack(self) -> Callable[[], bytes]:
        """Copy the state, and return a function that serialises the copy later, in any thread."""
        return archive.pack(self)

    @classmethod
    def from_bytes(
        cls, content: bytes, *, link: Link | None = None, policy: type[Policy] | None = None, where: str = "content"
    ) -> AgentCore:
        """Return the core from bytes of :meth:`pack`; ``where`` names the content in errors."""
        return archive.unpack(cls, content, link, policy, where)


def _to_plain(value: Any) -> Any:
    """Convert numbers, strings and lists of any library to plain Python; return anything else unchanged."""
    if isinstance(value, np.ndarray | np.generic):
        return _to_plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_to_plain(entry) for entry in value]
    return value
