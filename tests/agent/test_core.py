"""AgentCore: lives beside the rules written down once more, replays to the last bit, and settings that go round."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.agents import NOON, RED, refuses
from windvane import Agent, ConflictingRewardError, DecisionError, Features, Logistic, UnknownDecisionError
from windvane.agent import AgentCore
from windvane.errors import ArgumentError
from windvane.records import Counts, Decision, to_plain


@dataclass
class Case:
    """A decision as the rules see it; ``late`` is what came after its timeout."""

    decision: Decision
    number: int
    time: float
    x: np.ndarray
    reward: float | None = None
    late: float | None = None
    learned: float | None = None
    is_partial: bool = False
    is_closed: bool = False
    is_dropped: bool = False


class Rules:
    """The rules of rewards, parts, timeouts and drops in their plainest form: every decision is kept for ever."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.settings = Agent(**arguments).core  # untrained; only its settings are read
        self.cases, self.last, self.history_rows = list[Case](), -math.inf, 0
        self.b = np.zeros(self.settings.policy.dim)

    def open(self) -> Iterator[Case]:
        return (case for case in self.cases if not case.is_closed)

    def count(self, condition: Callable[[Case], object]) -> int:
        return sum(bool(condition(case)) for case in self.cases)

    def is_over(self, case: Case, now: float) -> bool:
        length, by_clock = self.settings.reward_timeout or (math.inf, True)
        return (max(now, self.last) - case.time if by_clock else len(self.cases) - case.number - 1) > length

    def close(self, case: Case, learned: float | None) -> None:
        case.is_closed, case.learned = True, learned
        self.b += (learned or 0.0) * case.x

    def decide(self, decision: Decision, x: np.ndarray) -> None:
        at = decision.time.timestamp()
        self.expire(now=at, room=1)
        self.cases.append(Case(decision, len(self.cases), at, x))
        self.last = at

    def expire(self, *, now: float, room: int = 0, most: float = math.inf) -> list[tuple]:
        closed: list[Case] = []
        for case in list(self.open()):
            case.is_dropped = not self.is_over(case, now)
            if len(closed) == most or (case.is_dropped and len([*self.open()]) + room <= self.settings.max_pending):
                case.is_dropped = False
                break
            outcome = self.settings.default_reward if case.reward is None else case.reward
            self.close(case, None if case.is_dropped else outcome)
            closed.append(case)
        return [
            (case.decision.id, case.decision.arm, case.number, case.learned, case.reward is not None, case.is_dropped)
            for case in closed
        ]

    def find(self, id: str) -> Case:
        case = next((case for case in self.cases if case.decision.id == id), None)
        if case is None:
            raise UnknownDecisionError(id, "is not known")
        return case

    def reward(self, *, id: str, value: float, now: float) -> tuple[str, bool]:
        self.check(value)
        case = self.find(id)
        if case.reward is None and not case.is_closed:
            self.expire(now=now)
        if case.reward is None and not case.is_closed:
            case.reward = value
            if self.settings.learn == "on_arrival":
                self.close(case, value)
            return "recorded", True
        known = case.late if case.reward is None else case.reward
        if case.is_partial or known not in (None, value):
            raise ConflictingRewardError(id, "has another reward")
        if case.reward is not None:
            return "unchanged", False
        case.late = value
        return "expired", known is None

    def add_reward(self, *, id: str, value: float, now: float) -> tuple[tuple[str, bool], float]:
        if self.settings.learn != "at_timeout":
            raise ArgumentError("value", value, "a whole reward")
        case = self.find(id)
        if not case.is_partial and (case.reward, case.late) != (None, None):
            raise ConflictingRewardError(id, "has a whole reward")
        self.check((case.reward or 0.0) + (case.late or 0.0) + value)
        self.expire(now=now) if not case.is_closed else None
        case.is_partial = True
        if case.is_closed:
            case.late = (case.late or 0.0) + value
            return ("expired", True), case.late
        case.reward = (case.reward or 0.0) + value
        return ("recorded", True), case.reward

    def check(self, value: float) -> None:
        low, high = self.settings.reward_range
        if not low <= value <= high:
            raise ArgumentError("value", value, "a possible reward")

    def history(self, *, times: list[float], rewards: list[float], vectors: Any = None, **_: Any) -> None:
        self.last, self.history_rows = max(self.last, *times), self.history_rows + len(rewards)
        self.b += 0.0 if vectors is None else np.array(rewards) @ np.array(vectors)

    def configure(self, **changes: Any) -> None:
        if changes.get("reward_timeout", "") is None and any(case.reward is not None for case in self.open()):
            raise ArgumentError("reward_timeout", None, "given while rewards are held")
        self.settings.configure(**changes)

    def compare(self, core: AgentCore, now: float) -> None:
        """Expect that all that can be read of the agent is as the rules have it."""
        learned = [case.learned for case in self.cases if case.learned is not None]
        missed = [case for case in self.cases if case.is_closed and case.reward is None and not case.is_dropped]
        assert core.counts == Counts(
            decisions=len(self.cases), rewards=self.count(lambda case: case.reward is not None),
            pending=sum(case.reward is None for case in self.open()), settled=len(learned), expired=len(missed),
            held=sum(case.reward is not None for case in self.open()), dropped=self.count(lambda case: case.is_dropped),
            defaulted=sum(case.learned is not None for case in missed), history_rows=self.history_rows,
        )  # fmt: skip
        assert core.mean_reward == (pytest.approx(np.mean(learned)) if learned else None)
        assert core.pending() == [case.decision for case in self.open() if case.reward is None]
        assert [core.is_pending(case.decision.id) for case in self.open()] == [c.reward is None for c in self.open()]
        outcomes = {c.decision.id: (c.reward, c.late, c.is_partial, c.is_dropped) for c in self.cases if c.is_closed}
        assert core.decisions.closed == {key: core.outcome_of(key) for key in outcomes} == outcomes
        is_over = [self.is_over(case, now) for case in self.open()]
        assert core.is_due(now) == (any(is_over) or len(is_over) > self.settings.max_pending)
        assert [core.is_overdue(case.decision.id, now) for case in self.open()] == is_over
        assert not any(core.is_overdue(case.decision.id, now) for case in self.cases if case.is_closed)
        if core.policy.name == "D-LinUCB":
            np.testing.assert_allclose(core.policy.info().b[0], self.b, rtol=1e-9, atol=1e-9)


PLAIN: dict[str, Any] = {"dim": 2, "policy": "D-LinUCB", "gamma": 1.0, "link": "identity", "reward_range": (-2, 3)}
FEATURES = {"shared": ["age"], "by_arm": {"plan": ["x", "y"]}, "arms": ["red", "blue"]}
FITTED = {"features": FEATURES, "scaling": "fit", "policy": "OnePassGLM", "gamma": 0.95, "reward_timeout": "20s"}
LIVES: dict[str, dict[str, Any]] = {
    "patient": PLAIN,
    "decisions": {**PLAIN, "reward_timeout": 2},
    "held": {**PLAIN, "reward_timeout": 3, "learn": "at_timeout", "max_pending": 3},
    "default": {**PLAIN, "reward_timeout": "3s", "default_reward": 0.5},
    "arrival": {**PLAIN, "reward_timeout": "12.25s", "default_reward": 0.5, "learn": "on_arrival", "epsilon": 0.1},
    "early": {"dim": 2, "reward_timeout": 4, "default_reward": 0.0, "learn": "early", "epsilon": 0.1},
    "clock": {"dim": 2, "half_life": "1h", "reward_timeout": "30s", "default_reward": 0.0, "epsilon": 0.3},
    "projected": {"dim": 2, "policy": "BVD-GLM-UCB", "gamma": 0.9, "reward_timeout": 3, "learn": "at_timeout"},
    "features": {**FITTED, "learn": "at_timeout"},
}
CHANGES = [
    {"epsilon": 0.5}, {"learn": "on_arrival"}, {"reward_timeout": 5, "default_reward": 0.5, "learn": "early"},
    {"learn": "at_timeout"}, {"max_pending": 2}, {"reward_timeout": "2.5s", "default_reward": None, "learn": None},
    {"reward_timeout": None, "default_reward": None, "learn": None},
]  # fmt: skip
STEPS = ["decide"] * 4 + ["reward"] * 3 + ["add_reward"] * 2 + ["expire", "history", "configure", "restart"]
steps = st.tuples(
    st.sampled_from(STEPS),
    st.integers(0, 6),  # which decision, change, ...
    st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0, -1.0]),  # the reward
    st.sampled_from([0.0, 1.5, 12.25, -1.0]),  # seconds that pass
)
ROWS = {"rewards": [0.0, 1.0], "vectors": [[0.1, 0.2], [0.3, 0.0]]}
CONTEXTS = [{"age": 20, "plan": "x"}, {"age": 60, "plan": "y"}]


def call(core: AgentCore, step: str, arguments: dict[str, Any]) -> Any:
    """Carry out a step of a life, or the entry of a log."""
    if step == "decide":
        return core.decide(core.offer(**arguments["offer"]), **{k: v for k, v in arguments.items() if k != "offer"})
    if step == "history":
        nothing = dict.fromkeys(("vectors", "contexts", "arms", "weights", "now"))
        return core.adopt(core.learn_history(**nothing | arguments))
    return getattr(core, step)(**arguments)


def attempt(work: Callable[[], Any]) -> Any:
    """Return a result, or the type of the error if the call is refused."""
    try:
        return work()
    except (ArgumentError, DecisionError) as error:
        return type(error)


@pytest.mark.parametrize("kind", LIVES)
@settings(max_examples=40)
@given(life=st.lists(steps, min_size=30, max_size=60))
def test_a_life_follows_the_rules_and_can_be_replayed_to_the_last_bit(kind: str, life: list) -> None:
    """Whatever is refused changes nothing; and a log of the calls that changed something makes an equal core."""
    core, rules, log, now = Agent(**LIVES[kind]).core, Rules(LIVES[kind]), list[Any](), NOON
    again, has_fields = AgentCore(**core.settings), kind == "features"
    for number, (step, choice, value, gap) in enumerate([("history", 0, 0.0, 0.0), *life]):
        now += gap
        if step == "restart":
            core = AgentCore.from_bytes(core.pack()())
            continue
        arguments: dict[str, Any] = {"id": f"d{max(0, len(rules.cases) - choice)}", "value": value, "now": now}
        if step == "decide":
            arms = np.random.default_rng(number).uniform(-0.6, 0.6, (3, 2))
            offer = {"context": {"age": 30 + choice, "plan": "x"}} if has_fields else {"arms": arms}
            arguments = {"id": f"d{len(rules.cases)}", "offer": offer, "now": now}
        elif step == "history":
            rows = {"rewards": [0.0, 1.0], "contexts": CONTEXTS, "arms": ["red", "blue"]} if has_fields else ROWS
            arguments = {"times": [core.clock.read(now)] * 2, **rows}
        elif step == "expire":
            arguments = {"now": now, **({"most": choice} if choice else {})}
        elif step == "configure":
            arguments = CHANGES[choice]
        result = attempt(lambda: call(core, step, arguments))
        if step == "decide":
            arguments["played"] = result.index
            rules.decide(result, core.decisions.open[result.id].x)
        else:
            expected = attempt(lambda: getattr(rules, step)(**arguments))
            assert result == expected or step == "history"
        is_new = not isinstance(result, type) and result not in (("unchanged", False), ("expired", False), [])
        log += [(step, arguments)] * is_new
        rules.compare(core, now)
    for entry in log:
        call(again, *entry)
    assert again.pack()() == core.pack()()


def test_parts_are_not_learned_early() -> None:
    """Even if the delays of enough rewards are known by then: more parts may come."""
    agent = Agent(dim=2, policy="D-LinUCB", gamma=1.0, reward_range=(0, 10), reward_timeout=40, default_reward=0.0)
    for name in (*map(str, range(30)), "a"):
        agent.decide({"only": [1.0, 0.0] if name == "a" else [0.0, 1.0]}, id=name)
    agent.add_reward("a", 1.0)
    agent.configure(learn="early")
    for i in range(30):
        agent.reward(str(i), 1.0)
    for _ in range(35):
        agent.decide({"only": [0.0, 0.0]})
    assert agent.core.early.model.ages  # there are early looks, and "a" is still open
    agent.configure(learn="at_timeout")
    agent.add_reward("a", 8.0)
    for _ in range(10):
        agent.decide({"only": [0.0, 0.0]})
    assert agent.policy.info().b[0, 0] == 9.0


def test_a_sum_that_rounding_makes_too_large_is_the_largest_reward() -> None:
    agent = Agent(dim=2, link="poisson", reward_range=(0, 3.3), reward_timeout=3, default_reward=0.0)
    agent.decide(RED, id="a")
    agent.add_reward("a", 1.1)
    agent.add_reward("a", 2.2)  # the sum is 3.3000000000000003
    assert Agent.from_bytes(agent.to_bytes()).to_bytes() == agent.to_bytes()  # which has possible rewards only
    refuses(agent, "value", lambda: agent.add_reward("a", 1e-9))
    for _ in range(6):
        agent.decide(RED)
    assert agent.info().mean_reward == 3.3 / agent.info().counts.settled


def test_outcomes_are_known_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windvane.agent.pending.REMEMBERED", 3)
    for method in ("reward", "add_reward"):
        agent = Agent(dim=2, reward_timeout="1h", default_reward=0.0)
        for i in range(6):
            agent.decide(RED, now=NOON, id=f"d{i}")
        give = getattr(agent, method)
        assert give("d0", 1.0, now=NOON + 4000) == "expired"  # although more are closed at once than are remembered
        assert give("d4", 1.0, now=NOON + 4000) == "expired"
        refuses(agent, None, lambda give=give: give("d1", 1.0), UnknownDecisionError, decision="d1")


def test_an_offer_is_checked_without_deciding_and_a_replay_plays_the_arms_of_the_log() -> None:
    agent = Agent(dim=2, policy="D-LinUCB", gamma=0.9)
    before, offer = agent.to_bytes(), agent.core.offer(RED)
    assert (offer.names, offer.vectors.shape) == (list(RED), (2, 2))
    refuses(agent, "arms['long']", lambda: agent.core.offer({"long": [30.0, 40.0]}), pointer="#/arms/long")
    refuses(agent, "played", lambda: agent.core.decide(offer, now=NOON, id="a", played=2))
    assert agent.to_bytes() == before
    for place, name in enumerate(RED):  # whatever would be played; and it is learned
        assert agent.core.decide(offer, id=name, now=NOON, played=place).arm == name
        agent.reward(name, 1.0)
    weights = 0.9 ** np.arange(2)[::-1]
    np.testing.assert_allclose(agent.policy.info().b[0], weights @ np.array(list(RED.values())), rtol=1e-12)


MIXED = {"shared": {"age": (0, 100)}, "per_arm": {"price": (0, 10)}, "by_arm": {"plan": ["a", "b"]}, "arms": ["r", 2]}
ARGUMENTS: list[dict[str, Any]] = [
    {"dim": 3, "prior": np.array([0.1, -0.2, 0.3]), "prior_weight": 3},
    {"dim": np.int64(2), "gamma": np.float32(0.5), "seed": np.uint8(3), "max_pending": np.int32(9)},
    {"dim": 2, "scaling": ([1.0, 2.0], np.array([0.5, 0.25])), "intercept": np.True_, "clip": True, "L": 2},
    {"dim": 2, "scaling": "fit", "half_life": timedelta(hours=36), "reward_timeout": timedelta(minutes=90)},
    {"dim": 2, "link": Logistic(), "policy": "GLM-UCB", "delta": np.array([0.3])},
    {"dim": 2, "link": "identity", "reward_range": (-4, np.float32(2)), "default_reward": -3, "reward_timeout": 5},
    {"features": MIXED, "learn": "early", "reward_timeout": "1d", "default_reward": 0.0, "epsilon": np.float64(0.1)},
    {"features": Features(shared=["z"]), "scaling": "fit"},
    {"dim": 2, "policy": "SW-LinUCB", "window": 12},
    {"dim": 2, "memories": (10.0, np.inf)},
]  # fmt: skip


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_settings_and_files_make_the_same_again(arguments: dict) -> None:
    agent = Agent(**arguments)
    content, sources = agent.to_bytes(), [agent.settings]
    if "memories" in arguments:
        assert to_plain(agent.info())["settings"]["memories"] == [10.0, None]  # JSON has no infinity
    else:
        assert agent.info().settings == agent.settings
        sources += [json.loads(json.dumps(agent.settings)), to_plain(agent.info())["settings"]]
    for again in (*(AgentCore(**source) for source in sources), AgentCore.from_bytes(content)):
        assert again.pack()() == content
        assert again.settings == agent.settings
        assert again.policy.config_hash == agent.policy.config_hash
        assert (again.reward_range, again.feature_names) == (agent.reward_range, agent.feature_names)
        assert vars(again.encoder.scaling).keys() == vars(agent.core.encoder.scaling).keys()
        assert again.encoder.to_fit == agent.core.encoder.to_fit


def test_settings_are_copies() -> None:
    agent = Agent(features={"arms": ["x", "y"], "shared": {"age": [0, 1]}})
    before = agent.to_bytes()
    for copied in (agent.settings, agent.info().settings):
        copied["features"]["arms"].append("z")
    assert agent.to_bytes() == before
