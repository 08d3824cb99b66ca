"""Agent: threads, interrupts and copies; what is refused; hostile callers."""

from __future__ import annotations

import contextlib
import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windvane
from support.agents import INF, NAN, NOON, RED, refuses
from support.refusals import rejects
from support.worlds import ball
from windvane import (
    Agent,
    CustomLink,
    Logistic,
    Policy,
)
from windvane.agent import waiting
from windvane.agent.times import TICK

# --- threads -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def interrupted(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ctrl-C, just after the policy has learnt something."""
    update = agent.policy.update

    def learn(*arguments: object, **more: object) -> None:
        update(*arguments, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(agent.policy, "update", learn)
        with pytest.raises(KeyboardInterrupt):
            yield


def test_a_reward_that_is_interrupted_counts_once_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(dim=2, policy="D-LinUCB", gamma=0.9)
    decision = agent.decide(RED)
    with interrupted(agent, monkeypatch):
        agent.reward(decision, 1.0)
    b = agent.policy.info().b
    assert not agent.reward(decision, 1.0)  # known already
    np.testing.assert_array_equal(agent.policy.info().b, b)


def test_a_default_that_is_interrupted_counts_once_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(dim=2, policy="D-LinUCB", gamma=0.9, wait="1h", missing=1.0)
    decision = agent.decide(RED, now=NOON)
    with interrupted(agent, monkeypatch):
        agent.expire(now=NOON + 7200)
    b = agent.policy.info().b
    assert agent.expire(now=NOON + 7200) == []
    with pytest.raises(windvane.ExpiredDecisionError):
        agent.reward(decision, 1.0, now=NOON + 7200)
    np.testing.assert_array_equal(agent.policy.info().b, b)


def test_a_reward_that_fails_can_be_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a link of the user's own raises; the decision waits again, in its old place."""
    monkeypatch.setattr(waiting, "REMEMBERED", 1)
    agent = Agent(dim=2)
    agent.reward(agent.decide(RED), 1.0)  # and is still known after what follows
    made = [agent.decide(RED) for _ in range(3)]
    before = agent.to_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(agent.policy, "update", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            agent.reward(made[1], 1.0)
    assert agent.to_bytes() == before
    assert agent.reward(made[1], 1.0)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda agent: pickle.loads(pickle.dumps(agent))])
def test_a_copy_goes_its_own_way(copied: Callable[[Agent], Agent]) -> None:
    agent = Agent(dim=2, randomize=0.3)
    first = agent.decide(RED)
    twin = copied(agent)
    assert twin.to_bytes() == agent.to_bytes()
    before = agent.to_bytes()
    twin.reward(first, 1.0)
    twin.decide(RED)
    assert agent.to_bytes() == before


def test_an_offer_is_checked_without_deciding() -> None:
    agent = Agent(dim=2)
    before = agent.to_bytes()
    offer = agent.offer(RED)
    assert (offer.names, offer.rows.shape) == (list(RED), (len(RED), 2))
    with rejects("arms['long']"):
        agent.offer({"long": [30.0, 40.0]})
    assert agent.to_bytes() == before
    assert agent.decide(offer, now=NOON, id="a") == Agent(dim=2).decide(RED, now=NOON, id="a")


def test_a_log_can_be_replayed() -> None:
    """The arm that was played is played, whatever would be; and learnt from."""
    agent = Agent(dim=2, policy="D-LinUCB", gamma=0.9)
    for place, name in enumerate(RED):
        decision = agent.replay(place, RED)
        assert decision.arm == name
        agent.reward(decision, 1.0)
    weights = 0.9 ** np.arange(len(RED))[::-1]
    np.testing.assert_allclose(agent.policy.info().b[0], weights @ np.array(list(RED.values())), rtol=1e-12)
    before = agent.to_bytes()
    with rejects("played", value=len(RED)):
        agent.replay(len(RED), RED)
    assert agent.to_bytes() == before


def test_two_agents_save_to_one_file(tmp_path: Path) -> None:
    """Whoever comes last has it; nobody ever finds a half of it."""
    agents = [Agent(dim=2, seed=seed) for seed in range(4)]
    path, failures = tmp_path / "a.windvane", list[BaseException]()
    agents[0].save(path)

    def work(agent: Agent) -> None:
        try:
            for _ in range(30):
                agent.save(path)
                Agent.load(path)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(agent,)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert [one.name for one in tmp_path.iterdir()] == ["a.windvane"]


def test_threads_take_turns() -> None:
    """8 threads decide and reward; others read, save and give history. Counts add up, and nothing raises."""
    agent = Agent(dim=2, policy="GLM-UCB", wait=10_000, missing=0.0)
    failures: list[BaseException] = []
    done = threading.Event()

    def decide(seed: int) -> None:
        rng, mine = np.random.default_rng(seed), []
        for _ in range(50):
            mine.append(agent.decide(ball(rng, (3,), 2)))
            if rng.random() < 0.8:
                agent.reward(mine.pop(int(rng.integers(len(mine)))), float(rng.integers(2)))

    def read() -> None:
        while not done.is_set():
            info = agent.info()
            assert info["rewards"] <= info["decisions"]
            assert len(agent.pending) >= 0
            Agent.from_bytes(agent.to_bytes())

    def teach() -> None:
        for _ in range(3):
            agent.update_many([[0.1, 0.2]] * 10, [1.0] * 10)

    def caught(work, *arguments) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=caught, args=(decide, seed)) for seed in range(8)]
    workers += [threading.Thread(target=caught, args=(teach,))]
    reader = threading.Thread(target=caught, args=(read,))
    for thread in (*workers, reader):
        thread.start()
    for thread in workers:
        thread.join()
    done.set()
    reader.join()
    assert not failures
    assert agent.decisions == 400
    assert agent.rewards + agent.waiting == 400
    assert agent.history == 30
    assert agent.policy.t == 1 + 400 + 30
    assert agent.held == agent.rewards
    agent.configure(wait=0)
    agent.expire()  # all but the last decision
    assert agent.settled + agent.held + agent.waiting == 400
    assert int(agent.policy.estimator.remembered[0]) == agent.settled + agent.history
    assert Agent.from_bytes(agent.to_bytes()).to_bytes() == agent.to_bytes()


# --- refused at construction ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("dim", {"dim": None}),
        ("dim", {"dim": 0}),
        ("dim", {"dim": 2.0}),
        ("dim", {"dim": True}),
        ("dim", {"dim": "2"}),
        ("dim", {"features": {"shared": ["a"]}}),
        ("clip", {"dim": None, "features": {"shared": ["a"]}, "clip": True}),
        ("intercept", {"dim": None, "features": {"shared": ["a"]}, "intercept": True}),
        ("features", {"dim": None, "features": 5}),
        ("features", {"dim": None, "features": {"fields": []}}),
        ("intercept", {"intercept": "yes"}),
        ("clip", {"clip": 1}),
        ("link", {"link": "logit"}),
        ("link", {"link": 3}),
        ("link", {"link": "poisson", "policy": "OFUL"}),
        ("link", {"link": "nonsense", "policy": "OFUL"}),
        ("policy", {"policy": "LinUCB"}),
        ("policy", {"policy": 3}),
        ("policy", {"policy": int}),
        ("policy", {"policy": Policy}),
        ("policy", {"policy": "Oracle"}),
        ("S", {"S": -1.0}),
        ("S", {"S": "x", "policy": "UniformRandom"}),
        ("L", {"L": 0.0}),
        ("sigma", {"sigma": NAN}),
        ("sigma", {"sigma": None, "policy": "UniformRandom"}),
        ("seed", {"seed": -1}),
        ("lanes", {"lanes": 2}),
        ("truth", {"truth": 2}),
        ("nonsense", {"nonsense": 2}),
        ("memories", {"memories": [10.0], "half_life": 5}),
        ("gamma", {"half_life": 5, "gamma": 0.9}),
        ("drift", {"gamma": 0.9, "drift": 1.0, "horizon": 100}),
        ("half_life", {"half_life": 0}),
        ("half_life", {"half_life": 1e-9}),
        ("half_life", {"half_life": NAN}),
        ("half_life", {"half_life": timedelta(days=-2)}),
        ("wait", {"wait": timedelta(days=2e5)}),
        ("half_life", {"half_life": "2d", "policy": "OFUL"}),
        ("half_life", {"half_life": 9, "policy": "SW-LinUCB", "window": 5}),
        ("gamma", {"gamma": 1.5}),
        ("gamma", {"gamma": 0.0}),
        ("drift", {"drift": 1.0}),
        ("horizon", {"horizon": 100}),
        ("horizon", {"policy": "BOB"}),
        ("gamma", {"policy": "BVD-GLM-UCB"}),
        ("prior_weight", {"prior_weight": {}}),
        ("prior", {"prior": (None, np.ma.masked)}),
        ("wait", {"wait": -1}),
        ("wait", {"wait": []}),
        ("missing", {"missing": 1.5}),
        ("missing", {"missing": NAN}),
        ("max_pending", {"max_pending": 0}),
        ("randomize", {"randomize": 1.5}),
        ("randomize", {"randomize": [0.1]}),
        ("randomize", {"randomize": np.array([0.1])}),
    ],
)
def test_wrong_settings_are_named(argument: str, given: dict) -> None:
    with rejects(argument):
        Agent(**{"dim": 2} | given)


# --- hostile callers -----------------------------------------------------------------------------------------------


class Colour(StrEnum):
    RED = "red"


NO_ARMS = [
    None, 5, "ab", b"ab", object(), {}, [], np.zeros((0, 2)), [0.1, 0.2], np.zeros(2), np.zeros((1, 3)),
    np.zeros((1, 2, 1)), [["a", "b"]], [[1j, 0.0]], [[0.1, 0.1], [0.1]], [[10**400, 0.1]], iter([[0.1, 0.1]]),
    {"a": [0.1]}, {"a": None}, {"a": "ab"}, {"a": ["0.1", "0.2"]}, {"a": [0.1, NAN]}, {"a": {}}, {"a", "b"},
    {True: [0.1, 0.1]}, {None: [0.1, 0.1]}, {1.5: [0.1, 0.1]}, {(1, 2): [0.1, 0.1]}, {np.bool_(True): [0.1, 0.1]},
    {2**63: [0.1, 0.1]}, {10**5000: [0.1, 0.1]}, {b"a": [0.1, 0.1]}, np.ma.masked_array([[0.1, 0.1]], mask=True),
    {"a": np.ma.masked_array([0.1, 0.1], mask=True)}, {"a": np.array(["0.1", 0.2], object)},
    np.array([["0.1", 0.2]], dtype=object), np.array([["2024-01-01"] * 2], dtype="datetime64[s]"),
]  # fmt: skip


@pytest.mark.parametrize("arms", NO_ARMS, ids=[str(i) for i in range(len(NO_ARMS))])
def test_what_are_no_arms_is_refused(arms: object) -> None:
    agent = Agent(dim=2, half_life="1d", wait=1)
    for _ in range(3):
        agent.decide(RED, now=NOON)
    refuses(agent, "arms", lambda: agent.decide(arms, now=NOON + 1))


@pytest.mark.parametrize("name", ["", "red", "naïve ☃", "\ud800", "a\nb", "x" * 1000, 0, -5, 2**63 - 1, np.int8(3)])
def test_names_of_arms(name: object) -> None:
    agent = Agent(dim=2)
    decision = agent.decide({name: [0.1, 0.1]})
    assert decision.arm == name
    assert type(decision.arm) in (str, int)
    assert Agent.from_bytes(agent.to_bytes()).pending == [decision]


def test_members_of_an_enumeration_are_the_texts_they_hold() -> None:
    agent = Agent(features={"arms": ["red", "blue"]})
    decision = agent.decide([Colour.RED])
    assert type(decision.arm) is str
    assert agent.decide({Colour.RED: {}}).arm == decision.arm == "red"


NO_TIMES = [
    "noon", NAN, INF, 1e11, [NOON], np.array([NOON]), b"1", 1j, {}, np.datetime64("2024-01-01"),
    datetime(2024, 1, 1), datetime.max.replace(tzinfo=UTC),
]  # fmt: skip


@pytest.mark.parametrize("now", NO_TIMES, ids=repr)
def test_what_is_no_time_is_refused(now: object) -> None:
    agent = Agent(dim=2, half_life="1d", wait="1d")
    decision = agent.decide(RED, now=NOON)
    refuses(agent, "now", lambda: agent.decide(RED, now=now))
    refuses(agent, "now", lambda: agent.reward(decision, 1.0, now=now))
    refuses(agent, "now", lambda: agent.expire(now))


def test_ids_are_texts_of_one_decision_only() -> None:
    agent = Agent(dim=2, wait=1)
    agent.decide(RED, id="mine")
    for bad in ("mine", "", 5, None.__class__, [], b"mine", 1.5, True):
        refuses(agent, "id", lambda bad=bad: agent.decide(RED, id=bad))
    agent.reward("mine", 1.0)
    refuses(agent, "id", lambda: agent.decide(RED, id="mine"))
    for bad in (5, None, [], {}, b"mine", 1.5, object()):
        refuses(agent, "decision", lambda bad=bad: agent.reward(bad, 1.0))
        refuses(agent, "decision", lambda bad=bad: agent.explain(bad))


def test_rewards_are_numbers_in_their_range() -> None:
    agent = Agent(dim=2)
    decision = agent.decide(RED)
    for bad in ("1", None, NAN, INF, -0.1, 1.1, 1j, [1.0], np.array([1.0]), b"1", {}, np.ma.masked, 10**400, object()):
        refuses(agent, "value", lambda bad=bad: agent.reward(decision, bad))
    for good in (True, np.float32(0.5), np.int64(1), np.array(0.5), 0):
        assert agent.reward(agent.decide(RED), good)
    linear = Agent(dim=2, policy="OFUL")
    unbounded = linear.decide(RED)
    for bad in (1e101, -1e101, 1e308):
        refuses(linear, "value", lambda bad=bad: linear.reward(unbounded, bad))
        refuses(linear, "rewards[0]", lambda bad=bad: linear.update_many([[0.1, 0.1]], [bad]))
    assert linear.reward(unbounded, -1e100)


def test_many_arms() -> None:
    arms = np.random.default_rng(0).uniform(-0.5, 0.5, (20_000, 2))
    agent = Agent(dim=2, policy="OFUL", randomize=0.5)
    for _ in range(4):
        decision = agent.decide(arms)
        assert 0 <= decision.index < 20_000


def test_what_the_caller_changes_later_changes_nothing() -> None:
    vector = np.array([0.6, 0.1])
    agent = Agent(dim=2, policy="OFUL")
    decision = agent.decide({"a": vector})
    vector[:] = 99.0
    agent.reward(decision, 1.0)
    np.testing.assert_allclose(agent.policy.info().b[0], [0.6, 0.1])


class OutOfOrderError(ValueError):
    """Raised by a link of the user's own."""


def test_a_link_that_raises_leaves_the_agent_alone() -> None:
    armed, logistic = [False], Logistic()

    def mean(z: np.ndarray) -> np.ndarray:
        if armed[0]:
            raise OutOfOrderError
        return logistic.mean(z)

    agent = Agent(dim=2, link=CustomLink("own", mean, logistic.slope), policy="GLM-UCB", wait=1)
    for i in range(3):
        agent.decide(RED, id=f"d{i}")
    agent.to_bytes()  # reads the link once, for the fingerprint of the settings
    armed[0] = True
    for call in (lambda: agent.reward("d2", 1.0), lambda: agent.update_many([[0.1, 0.1]] * 3, [1.0] * 3)):
        before = agent.to_bytes()
        with pytest.raises(OutOfOrderError):
            call()
        assert agent.to_bytes() == before
    armed[0] = False
    assert agent.reward("d2", 1.0)


numbers = st.one_of(
    st.floats(), st.integers(-(10**30), 10**30), st.booleans(), st.sampled_from([np.float32(0.5), np.int8(1), 10**400])
)
odd = st.one_of(
    st.none(),
    numbers,
    st.text(max_size=5),
    st.binary(max_size=3),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.sampled_from([object(), 1j, np.array(["a"]), np.array([[0.1, 0.2]]), np.array([]), np.nan, Ellipsis]),
    st.lists(st.lists(st.floats(-1, 1), min_size=2, max_size=2), max_size=3),
    st.dictionaries(st.text(max_size=2), st.lists(st.floats(-1, 1), min_size=2, max_size=2), max_size=3),
)
garbage = st.recursive(
    odd,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers(), st.none(), st.floats()), inner, max_size=3),
    ),
    max_leaves=6,
)
MIXED = {"shared": {"age": (0, 100)}, "per_arm": {"price": [0, 10]}, "by_arm": {"plan": ["a", "b"]}, "arms": ["r", "g"]}


def survives(agent: Agent, call) -> None:
    """It works, or it raises one line of ValueError and nothing has changed."""
    before, refused = agent.to_bytes(), None
    try:
        call()
    except ValueError as error:
        refused = str(error)
    after = agent.to_bytes()
    if refused is not None:
        assert "\n" not in refused
        assert after == before


@pytest.mark.parametrize("told", [{"dim": 2, "half_life": "1d", "wait": 2}, {"features": MIXED, "wait": "1d"}])
@settings(max_examples=100)
@given(data=st.data())
def test_garbage_works_or_is_refused(told: dict, data: st.DataObject) -> None:
    agent = Agent(**told)
    fields = {"context": {"age": 3, "plan": "a"}} if agent.features else {}
    arms = {"r": {"price": 1}, "g": {"price": 2}} if agent.features else RED
    for i in range(4):
        agent.decide(arms, now=NOON, id=f"d{i}", **fields)
    draw = data.draw
    survives(agent, lambda: agent.decide(draw(garbage), **fields))
    survives(agent, lambda: agent.decide(arms, context=draw(garbage), id=draw(garbage)))
    survives(agent, lambda: agent.decide(arms, now=draw(odd), **fields))
    survives(agent, lambda: agent.decide({"r": draw(garbage)}, **fields))
    survives(agent, lambda: agent.reward(draw(st.one_of(st.just("d3"), garbage)), draw(garbage), now=draw(odd)))
    survives(agent, lambda: agent.explain(draw(garbage)))
    survives(agent, lambda: agent.expire(draw(odd), room=draw(st.one_of(st.just(0), odd))))
    history = draw(
        st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(("X", "rewards", "contexts", "arms", "times", "weights"), garbage),
        )
    )
    survives(agent, lambda: agent.update_many(**history))
    survives(agent, lambda: agent.configure(**draw(st.dictionaries(st.sampled_from(["wait", "missing", "x"]), odd))))


SETTINGS = [
    *("link", "policy", "half_life", "gamma", "horizon", "drift", "S", "L", "sigma", "prior", "prior_weight", "wait"),
    *(
        "missing",
        "learn",
        "max_pending",
        "scaling",
        "intercept",
        "clip",
        "randomize",
        "seed",
        "features",
        "memories",
        "lam",
    ),
]


@settings(max_examples=200)
@given(told=st.dictionaries(st.sampled_from(SETTINGS), garbage, max_size=2))
def test_garbage_as_settings_works_or_is_refused(told: dict) -> None:
    try:
        agent = Agent(dim=2, **told)
    except ValueError as error:
        agent, refused = None, str(error)
    if agent is None:
        assert "\n" not in refused
    else:
        assert Agent.from_bytes(agent.to_bytes()).to_bytes() == agent.to_bytes()


def test_ticks_are_what_the_documentation_says() -> None:
    assert TICK == 1e-5
    assert windvane.Agent is Agent
