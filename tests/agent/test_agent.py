"""Agent: it plays what its policy chooses; random play, explanations, threads, copies, and hostile callers."""

from __future__ import annotations

import copy
import inspect
import itertools
import math
import os
import pickle
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from enum import StrEnum
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.agents import INF, LIVE, NAN, NOON, RED, arm_sets, assert_same_policy, build_agent, build_policy, refuses
from support.worlds import ball
from windvane import Agent, CustomLink, Logistic, UnknownDecisionError
from windvane.records import to_plain


@pytest.mark.parametrize("name", LIVE)
def test_choices_are_those_of_the_policy_driven_by_hand(name: str) -> None:
    """Choices and state, bit for bit, with every other reward one decision late; and what can be read of each."""
    agent, policy = build_agent(name, S=1.5, seed=5), build_policy(name, S=1.5, seed=5)
    rewards, played = np.random.default_rng(1).integers(0, 2, 40).astype(float), []
    for i, arms in enumerate(arm_sets(0, 40)):
        decision = agent.decide({f"arm {i}": x for i, x in enumerate(arms)})
        round_, index = policy.t, int(policy.select(arms[None])[0])
        assert (decision.index, decision.arm) == (index, f"arm {index}")
        assert (decision.propensity, decision.explored) == (None, False)
        why = agent.explain(decision)
        assert math.isfinite(why.prediction + why.bonus)
        assert str(why) == why.text
        played.append((decision.id, arms[None, index], round_))
        for j in (i, i - 1) if i % 2 else ():
            decided, x, round_ = played[j]
            agent.reward(decided, rewards[j])
            policy.update(x, rewards[j], round=round_)
    assert_same_policy(agent, policy)
    info = agent.info()
    assert (info.policy, info.dim, info.mean_reward) == (name, 2, pytest.approx(rewards.mean()))
    assert list(info.theta) == ["x0", "x1"]
    assert to_plain(info)["counts"]["decisions"] == 40
    assert name in repr(agent)


def test_seeds_decide_all_that_is_random() -> None:
    """Ties and random play; not the ids."""

    def play(seed: int) -> list[int]:
        agent = Agent(dim=2, policy="OFUL", epsilon=0.5, seed=seed)
        return [agent.decide(np.zeros((5, 2))).index for _ in range(60)]

    assert play(1) == play(1)
    assert play(1) != play(2)


def test_the_log_of_an_agent_with_random_play_can_be_evaluated_off_policy() -> None:
    """Inverse propensity scoring is unbiased: each arm's value, and 1 for rewards of 1, to four standard errors."""
    arms, truth, n = np.array([[0.9, 0.0], [0.0, 0.9], [-0.6, 0.0]]), np.array([0.8, 0.3, 0.1]), 4000
    agent = Agent(dim=2, policy="D-LinUCB", gamma=0.99, epsilon=0.3, seed=11)
    rng, reward, log = np.random.default_rng(12), np.empty(n), []
    for i in range(n):
        log.append(agent.decide(arms))
        reward[i] = float(rng.random() < truth[log[-1].index])
        agent.reward(log[-1], reward[i])
    columns = ("index", "propensity", "explored", "preferred")
    index, propensity, explored, preferred = (np.array([getattr(each, name) for each in log]) for name in columns)
    np.testing.assert_allclose(propensity, np.where(index == preferred, 0.8, 0.1))
    for arm in range(3):
        weight = (index == arm) / propensity
        for estimate, value in ((weight * reward, truth[arm]), (weight, 1.0)):
            assert abs(estimate.mean() - value) < 4 * estimate.std(ddof=1) / math.sqrt(n)
    assert abs(explored.mean() - 0.3) < 4 * math.sqrt(0.21 / n)
    counts = np.bincount(index[explored], minlength=3)
    expected = counts.sum() / 3
    assert ((counts - expected) ** 2 / expected).sum() < 13.8  # chi-square, 2 degrees of freedom, 0.1 %
    assert (index[~explored] == preferred[~explored]).all()


def test_an_explanation_is_the_arithmetic_of_the_policy() -> None:
    """D-LinUCB's prediction and bonus, computed from its sums before the decision."""
    agent = Agent(dim=2, policy="D-LinUCB", gamma=0.95)
    for arms in arm_sets(4, 30):
        V, G, theta = agent.policy.info().metric[0], agent.policy.info().squared_metric[0], agent.theta
        beta = float(agent.policy.compute_beta(agent.policy.info().theta_hat)[0])
        A = np.linalg.inv(V) @ G @ np.linalg.inv(V)
        means, bonus = arms @ theta, beta * np.sqrt(np.einsum("ki,ij,kj->k", arms, A, arms))
        scores, decision = means + bonus, agent.decide(arms)
        why, i = agent.explain(decision), decision.index
        expected = means[i], bonus[i], scores.max(), np.delete(scores, i).max()
        assert (why.prediction, why.bonus, why.score, why.rival_score) == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert (why.rival, why.projected) == (int(np.argsort(scores)[-2]), None)
        assert agent.explain(decision.id) == why
        agent.reward(decision, float(arms[i, 0] > 0))
    refuses(agent, None, lambda: agent.explain(decision.id), UnknownDecisionError, decision=decision.id)


@pytest.mark.parametrize("name", ["BVD-GLM-UCB", "GLM-UCB", "AdaptiveGLMUCB", "no bound"])
def test_an_explanation_says_whether_the_estimate_was_projected(name: str) -> None:
    """Never while theta_hat is 0, and soon once all rewards are 1 and S is small; None without a norm bound."""
    bounded = name in LIVE
    agent = build_agent(name, S=0.1) if bounded else Agent(dim=2)
    assert agent.explain(agent.decide(RED)).projected is (False if bounded else None)
    for _ in range(300):
        agent.reward(agent.decide(RED), 1.0)
    last = agent.decide(RED)
    assert np.linalg.norm(agent.theta) > 0.1
    assert last.projected is (True if bounded else None)
    assert ("radius S" in agent.explain(last).text) is bounded
    assert (0.0 < agent.info().projected_share < 1.0) is bounded


# fmt: off
WRONG_ARMS = [
    (arms, {}) for arms in (
        None, 5, "ab", b"ab", object(), {}, [], np.zeros((0, 2)), [0.1, 0.2], np.zeros(2), np.zeros((1, 3)),
        np.zeros((1, 2, 1)), [["a", "b"]], [[1j, 0.0]], [[0.1, 0.1], [0.1]], [[10**400, 0.1]], iter([[0.1, 0.1]]),
        {"a": [0.1]}, {"a": None}, {"a": "ab"}, {"a": ["0.1", "0.2"]}, {"a": [0.1, NAN]}, {"a": {}}, {"a", "b"},
        {True: [0.1, 0.1]}, {None: [0.1, 0.1]}, {1.5: [0.1, 0.1]}, {(1, 2): [0.1, 0.1]}, {np.bool_(True): [0.1, 0.1]},
        {2**63: [0.1, 0.1]}, {10**5000: [0.1, 0.1]}, {b"a": [0.1, 0.1]}, np.ma.masked_array([[0.1, 0.1]], mask=True),
        {"a": np.ma.masked_array([0.1, 0.1], mask=True)}, {"a": np.array(["0.1", 0.2], object)},
        np.array([["0.1", 0.2]], dtype=object), np.array([["2024-01-01"] * 2], dtype="datetime64[s]"),
    )
] + [
    ({"red": [0.1, 0.1], "a/b~c %": [0.1]}, {"pointer": "#/arms/a~1b~0c%20%25"}),
    ({"red": [0.1, 0.1], 7: ["x", 1]}, {"pointer": "#/arms/7"}), ({"red": [3.0, 0.0]}, {"pointer": "#/arms/red"}),
    ([[0.1, 0.1], [3.0, 0.0]], {"pointer": "#/arms/1"}), ([[0.1, 0.1], [NAN, 0.0]], {"pointer": "#/arms/1"}),
]
# fmt: on


@pytest.mark.parametrize(("arms", "attributes"), WRONG_ARMS, ids=itertools.count())
def test_what_are_no_arms_is_refused(arms: object, attributes: dict) -> None:
    agent = Agent(dim=2, half_life="1d", reward_timeout=1)
    for _ in range(3):
        agent.decide(RED, now=NOON)
    refuses(agent, "arms", lambda: agent.decide(arms, now=NOON + 1), **attributes)


class Colour(StrEnum):
    RED = "red"


NAMES = ["red", "naïve ☃", "\ud800", "a\nb", "x" * 1000, 0, -5, 2**63 - 1, np.int8(3), Colour.RED]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_arms(name: object) -> None:
    agent = Agent(dim=2)
    decision = agent.decide({name: [0.1, 0.1]})
    assert decision.arm == name
    assert type(decision.arm) in (str, int)
    assert Agent.from_bytes(agent.to_bytes()).pending() == [decision]


NO_TEXTS = [5, None, [], {}, b"open", 1.5, True, object()]
NO_REWARDS = ["1", None, NAN, INF, -0.1, 1.1, 1j, [1.0], np.array([1.0]), b"1", {}, np.ma.masked, 10**400, object()]


@pytest.mark.parametrize(
    ("argument", "call", "wrong"),
    [
        ("id", lambda agent, bad: agent.decide(RED, id=bad), ["open", "closed", "", *NO_TEXTS[2:], str]),
        ("decision", lambda agent, bad: agent.reward(bad, 1.0), NO_TEXTS),
        ("decision", lambda agent, bad: agent.add_reward(bad, 1.0), NO_TEXTS),
        ("decision", lambda agent, bad: agent.explain(bad), NO_TEXTS),
        ("value", lambda agent, bad: agent.reward("open", bad), NO_REWARDS),
        ("value", lambda agent, bad: agent.add_reward("open", bad), NO_REWARDS),
    ],
)
def test_what_is_no_id_and_no_reward_is_refused(argument: str, call: Callable, wrong: list) -> None:
    agent = Agent(dim=2, reward_timeout=5, learn="at_timeout")
    for name in ("open", "closed"):
        agent.decide(RED, id=name, now=NOON)
    agent.configure(learn="on_arrival")
    agent.reward("closed", 1.0)
    agent.configure(learn="at_timeout")
    for bad in wrong:
        refuses(agent, argument, lambda bad=bad: call(agent, bad))


def test_rewards_of_many_types_and_arms_that_the_caller_changes_later() -> None:
    agent, vector = Agent(dim=2, policy="OFUL"), np.array([0.5, 0.25])
    for reward in (True, np.float32(0.5), np.int64(1), np.array(0.5), 0):
        decision = agent.decide({"a": vector})
        vector[:] = 99.0
        assert agent.reward(decision, reward) == "recorded"
        vector[:] = 0.5, 0.25
    np.testing.assert_allclose(agent.policy.info().b[0], [1.5, 0.75])


@pytest.mark.parametrize("is_default", [False, True])
def test_an_outcome_that_is_interrupted_counts_once_at_most(is_default: bool, interrupt_learning: Callable) -> None:
    timeout = {"reward_timeout": "1h", "default_reward": 1.0} if is_default else {}
    agent = Agent(dim=2, policy="D-LinUCB", gamma=0.9, **timeout)
    decision, later = agent.decide(RED, now=NOON), NOON + 7200
    with interrupt_learning():
        agent.expire(later) if is_default else agent.reward(decision, 1.0)
    b = agent.policy.info().b
    assert agent.expire(later) == []
    assert agent.reward(decision, 1.0, now=later) == ("expired" if is_default else "unchanged")
    np.testing.assert_array_equal(agent.policy.info().b, b)


class OutOfOrderError(ValueError):
    """Raised by a link of the user's own."""


def test_what_fails_in_a_link_leaves_the_agent_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision waits again, in its old place, and its reward can be given again."""
    monkeypatch.setattr("windvane.agent.pending.REMEMBERED", 1)
    is_broken, logistic = [False], Logistic()

    def mean(z: np.ndarray) -> np.ndarray:
        if is_broken[0]:
            raise OutOfOrderError
        return logistic.mean(z)

    agent = Agent(dim=2, link=CustomLink("own", mean, logistic.slope), policy="GLM-UCB")
    agent.reward(agent.decide(RED), 1.0)  # and is still known after what follows
    decisions = [agent.decide(RED) for _ in range(3)]
    before = agent.to_bytes()  # reads the link once, for the fingerprint of the settings
    is_broken[0] = True
    for call in (lambda: agent.reward(decisions[1], 1.0), lambda: agent.history([1.0] * 3, [[0.1, 0.1]] * 3)):
        with pytest.raises(OutOfOrderError):
            call()
        assert agent.to_bytes() == before
    is_broken[0] = False
    assert agent.reward(decisions[1], 1.0) == "recorded"


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda agent: pickle.loads(pickle.dumps(agent))])
def test_a_copy_goes_its_own_way(duplicate: Callable[[Agent], Agent]) -> None:
    agent = Agent(dim=2, epsilon=0.3)
    first = agent.decide(RED)
    twin, before = duplicate(agent), agent.to_bytes()
    assert twin.to_bytes() == before
    twin.reward(first, 1.0)
    twin.decide(RED)
    twin.configure(epsilon=0.1)
    assert agent.to_bytes() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a process with threads
def test_a_fork_goes_on_as_its_parent_does(tmp_path: Path) -> None:
    agent = Agent(dim=2)
    agent.decide(RED, now=NOON, id="a")
    child = os.fork()
    if child == 0:
        agent.reward("a", 1.0)
        agent.save(tmp_path / "child")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    agent.reward("a", 1.0)
    assert (tmp_path / "child").read_bytes() == agent.to_bytes()


def run_threads(*calls: Callable[[], object]) -> None:
    """Run each call in a thread of its own; expect that none raises."""
    with ThreadPoolExecutor(len(calls)) as pool:
        for future in [pool.submit(call) for call in calls]:
            future.result()


def test_threads_take_turns() -> None:
    """8 threads decide and reward; others read, save and give history. Counts add up, and nothing raises."""
    agent = Agent(dim=2, policy="GLM-UCB", reward_timeout=10_000, default_reward=0.0)

    def decide(seed: int) -> None:
        rng, mine = np.random.default_rng(seed), []
        for _ in range(50):
            mine.append(agent.decide(ball(rng, (3,), 2)))
            if rng.random() < 0.8:
                agent.reward(mine.pop(int(rng.integers(len(mine)))), float(rng.integers(2)))

    def read() -> None:
        for _ in range(40):
            counts = agent.info().counts
            assert counts.rewards <= counts.decisions
            assert len(agent.pending()) >= 0
            Agent.from_bytes(agent.to_bytes())

    def teach() -> None:
        for _ in range(3):
            agent.history([1.0] * 10, [[0.1, 0.2]] * 10)

    run_threads(*(lambda seed=seed: decide(seed) for seed in range(8)), teach, read)
    counts = agent.info().counts
    assert (counts.decisions, counts.rewards + counts.pending, counts.history_rows) == (400, 400, 30)
    assert (agent.policy.t, counts.held) == (1 + 400 + 30, counts.rewards)
    agent.configure(reward_timeout=0)
    agent.expire()  # all but the last decision
    assert int(agent.policy.estimator.remembered[0]) == agent.info().counts.settled + 30
    assert Agent.from_bytes(agent.to_bytes()).to_bytes() == agent.to_bytes()


def test_several_threads_and_agents_save_to_one_file(tmp_path: Path) -> None:
    """Whoever comes last has it; nobody ever finds a half of it."""
    path, agents = tmp_path / "a.windvane", [Agent(dim=2, seed=seed) for seed in range(3)]

    def save(agent: Agent) -> None:
        for _ in range(10):
            agent.decide([[0.1, 0.2]])
            agent.save(path)
            Agent.load(path)

    run_threads(*(lambda agent=agent: save(agent) for agent in agents))
    run_threads(*[lambda: save(agents[0])] * 3)
    assert Agent.load(path).info().counts.decisions == 40  # whoever saved last saved the last state
    assert [each.name for each in tmp_path.iterdir()] == ["a.windvane"]


vectors = st.lists(st.floats(-1, 1), min_size=2, max_size=2)
odd = st.one_of(
    st.none(), st.floats(), st.integers(-(10**30), 10**30), st.booleans(), st.text(max_size=5), st.binary(max_size=3),
    st.datetimes(), st.datetimes(timezones=st.just(UTC)),
    st.sampled_from([object(), 1j, np.array(["a"]), np.array([[0.1, 0.2]]), np.array([]), 10**400, Ellipsis]),
    st.lists(vectors, max_size=3), st.dictionaries(st.text(max_size=2), vectors, max_size=3),
)  # fmt: skip
keys = st.one_of(st.text(max_size=3), st.integers(), st.none(), st.floats())
garbage = st.recursive(
    odd,
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
MIXED = {"shared": {"age": (0, 100)}, "per_arm": {"price": [0, 10]}, "by_arm": {"plan": ["a", "b"]}, "arms": ["r", "g"]}
OPTIONAL = dict.fromkeys(("vectors", "contexts", "arms", "times", "weights"), garbage)
CHANGES = st.sampled_from(("reward_timeout", "default_reward", "learn", "x"))


def survives(agent: Agent, calls: Iterable[Callable[[], object]]) -> None:
    """Expect each call to work, or to raise one line of ValueError and to change nothing."""
    before = agent.to_bytes()
    for call in calls:
        is_refused = False
        try:
            call()
        except ValueError as error:
            is_refused = True
            assert "\n" not in str(error)  # noqa: PT017
        after = agent.to_bytes()
        assert after == before or not is_refused
        before = after


@pytest.mark.parametrize("has_features", [False, True])
@settings(max_examples=100)
@given(data=st.data())
def test_garbage_works_or_is_refused(has_features: bool, data: st.DataObject) -> None:
    draw, ids = data.draw, st.one_of(st.just("d3"), garbage)
    if has_features:
        agent = Agent(features=MIXED, policy="D-LinUCB", gamma=0.9, reward_timeout="9d", learn="at_timeout")
    else:
        agent = Agent(dim=2, half_life="1d", reward_timeout=5)
    fields = {"context": {"age": 3, "plan": "a"}} if has_features else {}
    arms = {"r": {"price": 1}, "g": {"price": 2}} if has_features else RED
    for i in range(4):
        agent.decide(arms, now=NOON, id=f"d{i}", **fields)
    calls = [
        lambda: agent.decide(draw(garbage), **fields),
        lambda: agent.decide(arms, context=draw(garbage), id=draw(garbage)),
        lambda: agent.decide(arms, now=draw(odd), **fields),
        lambda: agent.decide({"r": draw(garbage)}, **fields),
        lambda: agent.reward(draw(ids), draw(garbage), now=draw(odd)),
        lambda: agent.add_reward(draw(ids), draw(garbage), now=draw(odd)),
        lambda: agent.explain(draw(garbage)),
        lambda: agent.expire(draw(odd)),
        lambda: agent.history(**draw(st.fixed_dictionaries({"rewards": garbage}, optional=OPTIONAL))),
        lambda: agent.configure(**draw(st.dictionaries(CHANGES, odd))),
    ]
    survives(agent, calls)


SETTINGS = [*inspect.signature(Agent).parameters, "memories", "lam"]


@settings(max_examples=200)
@given(given_settings=st.dictionaries(st.sampled_from(SETTINGS[1:]), garbage, max_size=2))
def test_garbage_as_settings_works_or_is_refused(given_settings: dict) -> None:
    try:
        agent = Agent(dim=2, **given_settings)
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert Agent.from_bytes(agent.to_bytes()).to_bytes() == agent.to_bytes()
