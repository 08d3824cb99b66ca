"""Agent: what it is told beforehand: a prior, the scale of its features, history in bulk, frames."""

from __future__ import annotations

import inspect
import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from support.agents import ANEW, INF, LIVE, NAN, NOON, RED, as_policy, by_hand, needed, refuses
from support.refusals import rejects
from support.worlds import ball
from windvane import (
    Agent,
    DLinUCB,
    Policy,
)
from windvane.agent import Closing
from windvane.agent.scaling import REMEDY

# --- prior ---------------------------------------------------------------------------------------------------------


def test_a_prior_of_a_linear_model_in_closed_form() -> None:
    """theta = prior g^n (w L^2 + lam) / (w g^n L^2 + lam): observations of weight w at L e_i, n rounds ago, whose
    rewards make up for the ridge at first."""
    prior, L, w, g = np.array([0.5, -0.3, 0.2]), 2.0, 7.0, 0.9
    agent = Agent(dim=3, policy="D-LinUCB", gamma=g, L=L, prior=prior, prior_weight=w)
    np.testing.assert_allclose(agent.theta, prior, rtol=1e-12)
    for n in range(30):
        np.testing.assert_allclose(agent.theta, prior * g**n * (w * L**2 + 1.0) / (w * g**n * L**2 + 1.0), rtol=1e-12)
        agent.decide(np.zeros((1, 3)))


@pytest.mark.parametrize("name", sorted(name for name, cls in LIVE.items() if cls not in ANEW))
@pytest.mark.parametrize("weight", [0.1, 10.0])
def test_a_prior_is_where_the_estimate_begins(name: str, weight: float) -> None:
    """Whatever the ridge: also of a rate near 0, where the rewards that say so would lie below 0."""
    prior = [0.4, -0.9]
    agent = Agent(dim=2, policy=name, prior=prior, prior_weight=weight, **needed(LIVE[name]))
    np.testing.assert_allclose(agent.theta, prior, atol=1e-7)


def test_a_rare_click_as_a_prior() -> None:
    agent = Agent(dim=4, intercept=True, prior=[0, 0, 0, 0, -3])
    assert agent.decide([[0.0] * 4]).prediction == pytest.approx(1 / (1 + math.exp(3)), abs=1e-9)


def test_a_prior_beyond_the_rewards_is_refused() -> None:
    with rejects("prior", value=[1.0, -0.5]) as caught:
        Agent(dim=2, link="poisson", prior=[1, -0.5], S=2)
    assert "2.718" in caught.value.got
    np.testing.assert_allclose(Agent(dim=2, link="poisson", prior=[1, -0.5], S=2, sigma=2).theta, [1, -0.5], atol=1e-9)


@pytest.mark.parametrize("name", ["AdaptiveGLMUCB", "GLM-UCB", "BVD-GLM-UCB", "OnePassGLM", "DetectGLMUCB", "OFUL"])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_prior_decides_at_first_and_fades(name: str, intercept: bool) -> None:
    told = needed(LIVE[name]) | ({"gamma": 0.9} if "gamma" in inspect.signature(LIVE[name]).parameters else {})
    told = {key: value for key, value in told.items() if key == "gamma" or "gamma" not in told}
    prior = [0.8, -0.4, *[0.2] * intercept]
    x = np.array([0.6, 0.3])
    agent = Agent(dim=2, policy=name, intercept=intercept, prior=prior, prior_weight=2000.0, **told)
    z = float(x @ prior[:2]) + (0.2 if intercept else 0.0)
    expected = z if name == "OFUL" else 1.0 / (1.0 + math.exp(-z))
    first = agent.decide([x])
    assert first.prediction == pytest.approx(expected, abs=0.02)
    if "gamma" in told or name == "AdaptiveGLMUCB":  # where the past fades, rewards of 0 soon win
        agent.reward(first, 0.0)
        for _ in range(400):
            agent.reward(agent.decide([x]), 0.0)
        assert agent.decide([x]).prediction < expected - 0.1


@pytest.mark.parametrize("prior", [[0.1], [[0.1, 0.2]], [NAN, 0.0], [4.0, 4.0], "ab", ["a", "b"], [None, 1.0], 1.0])
def test_a_wrong_prior_is_named(prior: object) -> None:
    with rejects("prior"):
        Agent(dim=2, S=5.0, prior=prior)


def test_a_prior_of_any_length_is_learned_where_no_norm_bound_is_given() -> None:
    agent = Agent(dim=2, prior=[4.0, 4.0])
    assert agent.decide([[0.6, 0.3]]).prediction == pytest.approx(1.0 / (1.0 + math.exp(-3.6)), rel=1e-12)
    with rejects("prior"):
        Agent(dim=2, prior=[INF, 0.0])


def test_policies_that_would_lose_a_prior_refuse_it() -> None:
    for name in (cls.name for cls in ANEW):
        with rejects("prior"):
            Agent(dim=2, policy=name, horizon=100, prior=[0.1, 0.1])
    with rejects("prior_weight", value=0.0):
        Agent(dim=2, prior=[0.1, 0.1], prior_weight=0.0)


def test_durations_of_the_standard_library() -> None:
    one, other = (
        Agent(dim=2, half_life="36h", wait="1h30m"),
        Agent(dim=2, half_life=timedelta(hours=36), wait=timedelta(minutes=90)),
    )
    assert (one.memory, one.wait) == (other.memory, other.wait)
    assert Agent.from_bytes(other.to_bytes()).memory == one.memory
    other.configure(wait=timedelta(seconds=2))
    assert other.wait is not None
    assert other.wait.length == 2.0


# --- scaling -------------------------------------------------------------------------------------------------------


def test_scaling_is_fitted_on_the_first_history_and_then_frozen() -> None:
    rng = np.random.default_rng(8)
    X = rng.normal([5.0, -300.0, 0.1], [2.0, 100.0, 0.0], (50, 3))  # the last does not vary
    X[:, 2] = 0.1
    agent = Agent(dim=3, policy="D-LinUCB", gamma=0.99, scaling="fit", intercept=True)
    refuses(agent, "scaling", lambda: agent.decide(X[:2]), value="fit")
    rewards = rng.normal(size=50)
    assert agent.update_many(X, rewards) == 50
    deviation = np.array([X[:, 0].std(), X[:, 1].std(), 1.0])
    z = (X - X.mean(axis=0)) / deviation
    z /= 1.25 * np.linalg.norm(z, axis=1).max()
    by_policy = DLinUCB(4, gamma=0.99, L=math.hypot(1.0, 1.0))
    for row, reward in zip(z, rewards, strict=True):
        round_ = by_policy.t
        by_policy.advance(1.0)
        by_policy.update([[*row, 1.0]], reward, round=round_)
    np.testing.assert_allclose(agent.theta, by_policy.info().theta_hat[0], rtol=1e-9, atol=1e-12)
    center = agent.scaling.center.copy()
    agent.update_many(X[:10] + 1.0, rewards[:10])
    np.testing.assert_array_equal(agent.scaling.center, center)
    agent.decide(X[:4])
    refuses(agent, "arms[1]", lambda: agent.decide([X[0], X[0] * 100]), hint=REMEDY)


def test_declared_scaling_intercept_and_clip() -> None:
    center, spread = [1.0, 2.0], [2.0, 4.0]
    agent = Agent(dim=2, policy="OFUL", scaling=(center, spread), intercept=True, clip=True)
    for raw, seen in (([2.0, 2.0], [0.5, 0.0, 1.0]), ([1.0, 10.0], [0.0, 1.0, 1.0])):  # the second was twice as long
        decision = agent.decide([raw])
        np.testing.assert_allclose(agent.open_decisions.open[decision.id].x, seen, rtol=1e-12)
    assert agent.feature_names == ["x0", "x1", "1"]
    assert pytest.approx(math.sqrt(2.0)) == agent.policy.L
    same = Agent(dim=2, scaling={"center": center, "spread": spread})
    assert same.scaling.center.tolist() == center


@pytest.mark.parametrize(
    "scaling",
    ["fix", (1, 2), ([0.0, 0.0],), ([0.0, 0.0], [1.0, 0.0]), ([NAN, 0.0], [1.0, 1.0]), 5, {"center": 1}, [[1], [1]]],
)
def test_a_wrong_scaling_is_named(scaling: object) -> None:
    with rejects("scaling"):
        Agent(dim=2, scaling=scaling)


@pytest.mark.parametrize("X", [[[0.1, 0.1]], [[0.1, 0.1]] * 3, [[NAN, 1.0], [1.0, 1.0]], [[1e308, -1e308]] * 2])
def test_what_cannot_be_fitted_on_is_refused(X: list) -> None:
    agent = Agent(dim=2, scaling="fit")
    refuses(agent, "X", lambda: agent.update_many(X, [0.5] * len(X)))
    assert agent.scaling.to_fit


def test_a_vector_that_is_too_long_says_what_to_do() -> None:
    agent = Agent(dim=2)
    refuses(agent, "arms['red']", lambda: agent.decide({"blue": [0.1, 0.1], "red": [1.0, 1.0]}), hint=REMEDY)
    for huge in (1e200, 1e308, INF, -INF, NAN):
        refuses(agent, "arms['red']", lambda huge=huge: agent.decide({"red": [huge, 0.1]}), hint="")
    shorter = Agent(dim=2, clip=True).decide({"red": [300.0, 400.0]})
    assert shorter.arm == "red"


# --- bulk history --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["AdaptiveGLMUCB", "D-LinUCB", "BVD-GLM-UCB"])
def test_history_in_bulk_is_history_one_by_one(name: str) -> None:
    rng = np.random.default_rng(9)
    X, rewards, weights = ball(rng, (40,), 2), rng.random(40), rng.uniform(0.5, 2.0, 40)
    told = needed(LIVE[name]) | {"S": 1.0}
    bulk, single = Agent(dim=2, policy=name, **told), Agent(dim=2, policy=name, **told)
    assert bulk.update_many(X, rewards, weights=weights) == 40
    for i in range(40):
        assert single.update_many(X[i, None], rewards[i, None], weights=weights[i, None]) == 1
    assert bulk.to_bytes() == single.to_bytes()
    policy = as_policy(LIVE[name], dim=2, L=1.0, sigma=0.5, seed=0, **told)
    for x, reward, weight in zip(X, rewards, weights, strict=True):
        round_ = policy.t
        policy.advance(1.0)
        policy.update(x[None], reward, round=round_, weight=weight)
    np.testing.assert_array_equal(bulk.theta, policy.info().theta_hat[0])
    assert (bulk.decisions, bulk.rewards, bulk.history, bulk.mean_reward) == (0, 0, 40, None)


def test_a_history_with_one_bad_row_is_not_learnt_at_all() -> None:
    rng = np.random.default_rng(10)
    X, rewards, times = ball(rng, (100,), 2), rng.random(100), NOON + np.arange(100.0)
    agent = Agent(dim=2, half_life="1h")
    agent.update_many(X[:5], rewards[:5], times=times[:5] - 100)
    for argument, bad in (
        ("X", NAN),
        ("X", 3.0),
        ("rewards", 1.5),
        ("rewards", NAN),
        ("weights", -1.0),
        ("times", NAN),
    ):
        given = {"X": X.copy(), "rewards": rewards.copy(), "times": times.copy(), "weights": np.ones(100)}
        given[argument][57] = bad
        refuses(agent, f"{argument}[57]", lambda given=given: agent.update_many(**given))
    assert agent.update_many(X, rewards, times=times) == 100


def test_a_history_that_is_interrupted_is_not_learnt_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(dim=2, policy="GLM-UCB")
    agent.decide(RED)
    before, calls, update = agent.to_bytes(), [0], Policy.update

    def interrupted(self, *arguments, **keywords):
        calls[0] += 1
        if calls[0] == 20:
            raise KeyboardInterrupt
        return update(self, *arguments, **keywords)

    monkeypatch.setattr(Policy, "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        agent.update_many(np.full((50, 2), 0.3), np.ones(50))
    monkeypatch.undo()
    assert agent.to_bytes() == before


def test_history_by_the_clock_counts_by_its_age() -> None:
    """Rows in any order; then a live decision, an hour after the last of them."""
    rng = np.random.default_rng(13)
    X, rewards = ball(rng, (30,), 2), rng.normal(size=30)
    times = NOON + rng.uniform(0, 36_000, 30)
    agent = Agent(dim=2, policy="D-LinUCB", half_life="2h")
    refuses(agent, "times", lambda: agent.update_many(X, rewards))
    assert agent.expire() == []  # asking for the time must not make the history old
    agent.update_many(X, rewards, times=[datetime.fromtimestamp(at, UTC) for at in times])
    agent.decide(X[:1], now=times.max() + 3600)
    V, b = by_hand(X, rewards, 0.5 ** ((times.max() + 3600 - times) / 7200))
    np.testing.assert_allclose(agent.policy.info().metric[0], V, rtol=1e-5)
    np.testing.assert_allclose(agent.policy.info().b[0], b, rtol=1e-5, atol=1e-6)
    refuses(agent, "times[0]", lambda: agent.update_many(X[:1], rewards[:1], times=times[:1]))


def test_times_put_history_in_order_where_decisions_count() -> None:
    rng = np.random.default_rng(14)
    X, rewards = ball(rng, (20,), 2), rng.random(20)
    shuffled = rng.permutation(20)
    ordered, mixed = Agent(dim=2, gamma=0.9), Agent(dim=2, gamma=0.9)
    ordered.update_many(X, rewards)
    mixed.update_many(X[shuffled], rewards[shuffled], times=NOON + shuffled)
    np.testing.assert_array_equal(ordered.theta, mixed.theta)


@pytest.mark.parametrize("told", [{"wait": "1h"}, {"half_life": "1h"}], ids=str)
def test_history_must_not_come_after_what_it_was_before(told: dict) -> None:
    """It would count as newer than the decisions that followed it."""
    agent = Agent(dim=2, **told)
    agent.decide(RED, now=NOON, id="first")
    before = agent.to_bytes()
    with rejects("times[1]", value=NOON - 1e5):
        agent.update_many([[0.1, 0.1]] * 2, [1.0, 0.0], times=[NOON + 1, NOON - 1e5])
    assert agent.to_bytes() == before
    assert agent.decide(RED, now=NOON - 10).time == NOON


@pytest.mark.parametrize("told", [{"wait": "1h"}, {"half_life": "1h"}], ids=str)
def test_history_of_the_future_is_refused(told: dict) -> None:
    """Time never goes back: a row from the year 2255 would stop it for good."""
    agent = Agent(dim=2, **told)
    before = agent.to_bytes()
    with rejects("times[1]", value=9e9):
        agent.update_many([[0.1, 0.1]] * 2, [1.0, 0.0], times=[1.0, 9e9])
    with rejects("times[0]", value=1000.5):
        agent.update_many([[0.1, 0.1]], [1.0], times=[1000.5], now=1000.0)
    assert agent.to_bytes() == before
    assert agent.update_many([[0.1, 0.1]], [1.0], times=[9e9], now=9e9) == 1


def test_what_a_missing_reward_counts_as_is_in_the_mean() -> None:
    """10 clicks of 100 decisions, told when there is one: a rate of 10 %, not of 100 %."""
    agent = Agent(dim=2, wait=1, missing=0.0)
    for i in range(103):
        decision = agent.decide(RED)
        if i % 10 == 0 and i < 100:
            agent.reward(decision, 1.0)
    assert (agent.rewards, agent.defaulted, agent.waiting) == (10, 90, 3)
    assert agent.mean_reward == agent.info()["mean_reward"] == pytest.approx(0.1)
    agent.update_many([[0.1, 0.1]] * 50, [1.0] * 50)
    assert agent.mean_reward == pytest.approx(0.1)  # history was decided by others


def test_expiring_in_parts_is_expiring() -> None:
    whole, parts = (Agent(dim=2, policy="D-LinUCB", gamma=0.9, wait="1h", missing=0.5) for _ in range(2))
    for agent in (whole, parts):
        for i in range(10):
            agent.decide(RED, now=NOON + i, id=str(i))
    gone = whole.expire(now=NOON + 3606.5)
    assert gone == [Closing(str(i), 0.5) for i in range(7)]
    slices = [parts.expire(now=NOON + 3606.5, most=3) for _ in range(4)]
    assert slices == [gone[:3], gone[3:6], gone[6:], []]
    assert whole.to_bytes() == parts.to_bytes()
    with rejects("most", value=0):
        parts.expire(most=0)


def test_history_may_come_between_decisions() -> None:
    agent = Agent(dim=2, policy="D-LinUCB", gamma=0.9)
    first = agent.decide(RED)
    agent.update_many([[0.1, 0.1]] * 4, [0.0] * 4)
    agent.reward(first, 1.0)
    np.testing.assert_allclose(agent.policy.info().b[0], 0.9**4 * np.array(RED[first.arm]), rtol=1e-12)


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("X", {}),
        ("arms", {"X": [[0.1, 0.1]], "rewards": [1.0], "arms": ["a"]}),
        ("contexts", {"X": [[0.1, 0.1]], "rewards": [1.0], "contexts": [{}]}),
        ("X", {"X": [[0.1]], "rewards": [1.0]}),
        ("X", {"X": "ab", "rewards": [1.0]}),
        ("X", {"X": [["0.1", "0.2"]], "rewards": [1.0]}),
        ("X", {"X": [], "rewards": []}),
        ("X", {"X": np.array([["0.1", 0.2]], dtype=object), "rewards": [1.0]}),
        ("rewards", {"X": [[0.1, 0.1]]}),
        ("rewards", {"X": [[0.1, 0.1]], "rewards": 1.0}),
        ("rewards", {"X": [[0.1, 0.1]], "rewards": ["1"]}),
        ("rewards", {"X": [[0.1, 0.1]], "rewards": None}),
        ("weights", {"X": [[0.1, 0.1]], "rewards": [1.0], "weights": [1.0, 2.0]}),
        ("weights", {"X": [[0.1, 0.1]], "rewards": [1.0], "weights": [1e10]}),
        ("times", {"X": [[0.1, 0.1]], "rewards": [1.0], "times": 5}),
        ("times", {"X": [[0.1, 0.1]], "rewards": [1.0], "times": [1.0, 2.0]}),
        ("times", {"X": [[0.1, 0.1]], "rewards": [1.0], "times": ["noon"]}),
        ("times", {"X": [[0.1, 0.1]], "rewards": [1.0], "times": [datetime(2024, 1, 1)]}),
    ],
)
def test_wrong_history_is_named(argument: str, given: dict) -> None:
    agent = Agent(dim=2)
    refuses(agent, argument, lambda: agent.update_many(**given))


# --- frames --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames(library: str) -> None:
    frames = pytest.importorskip(library)
    agent, plain = Agent(dim=2, policy="OFUL"), Agent(dim=2, policy="OFUL")
    columns = {"arm": ["red", "blue"], "size": [0.6, 0.2], "price": [0.1, 0.7]}
    for _ in range(5):
        decision = agent.decide(frames.DataFrame(columns))
        assert decision.arm == plain.decide(RED, id=decision.id).arm
        agent.reward(decision, 1.0)
        plain.reward(decision.id, 1.0)
    assert agent.decide(frames.DataFrame({"size": [0.9, 0.0], "price": [0.0, 0.0]})).arm == 0
    X = frames.DataFrame({"size": [0.1, 0.2], "price": [0.3, 0.4]})
    agent.update_many(X, frames.Series([1.0, 0.0]))
    plain.decide([[0.9, 0.0], [0.0, 0.0]])
    plain.update_many([[0.1, 0.3], [0.2, 0.4]], [1.0, 0.0])
    np.testing.assert_array_equal(agent.theta, plain.theta)
    twice = frames.DataFrame({"arm": ["red", "red"], "size": [0.1, 0.2], "price": [0.1, 0.2]})
    refuses(agent, "arms", lambda: agent.decide(twice), value=["red", "red"])
    refuses(agent, "arms", lambda: agent.decide(frames.DataFrame({"arm": ["red"], "size": [0.1]})))
    refuses(agent, "arms", lambda: agent.decide(frames.DataFrame({"arm": ["red"], "size": [0.1], "price": ["x"]})))
    refuses(agent, r"arms", lambda: agent.decide(frames.DataFrame({"size": [0.1, None], "price": [0.1, 0.2]})))
    refuses(agent, "arms", lambda: agent.decide(frames.DataFrame({"arm": [], "size": [], "price": []})))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_the_columns_of_frames_are_known_by_name(library: str) -> None:
    """A later frame may have its columns in another order; the coefficients stay with their columns, also in a file."""
    frames = pytest.importorskip(library)
    agent = Agent(dim=2, policy="OFUL")
    agent.update_many(frames.DataFrame({"size": [0.5, 0.0], "price": [0.0, 0.5]}), [1.0, 0.0])
    assert agent.feature_names == ["size", "price"]
    for one in (agent, Agent.from_bytes(agent.to_bytes())):
        plain = one.decide({"a": [0.5, 0.1]}).prediction
        renamed = frames.DataFrame({"x": [0.1], "size": [0.5]})
        assert plain > 0.1  # size pays, price does not
        assert one.decide(frames.DataFrame({"price": [0.1], "size": [0.5]})).prediction == plain
        refuses(one, "arms", lambda one=one: one.decide(renamed), value=["x", "size"])
        assert one.update_many(frames.DataFrame({"price": [0.0], "size": [0.5]}), [1.0]) == 1
        assert one.theta[0] > one.theta[1]


def test_labelled_vectors_are_read_by_their_labels() -> None:
    pandas = pytest.importorskip("pandas")
    agent = Agent(dim=2, policy="OFUL")
    arms = {"r": pandas.Series([0.5, 0.1], ["a", "b"]), "q": pandas.Series([0.2, 0.6], ["b", "a"])}
    np.testing.assert_array_equal(agent.offer(arms).rows, [[0.5, 0.1], [0.6, 0.2]])
    with rejects("arms"):
        agent.offer(arms | {"s": [0.1, 0.2]})
    with rejects("arms"):
        agent.offer(arms | {"s": pandas.Series([0.5, 0.1], ["a", "c"])})


@pytest.mark.parametrize("columns", [[0.5, 1.5], [("a", 1), ("a", 2)], [True, False]])
def test_columns_that_cannot_be_saved_are_refused(columns: list) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([[0.5, 0.1]], columns=pandas.Index(columns, tupleize_cols=False))
    agent = Agent(dim=2, policy="OFUL")
    with rejects("arms", value=columns[0]):
        agent.decide(frame)
    with rejects(value=columns[0]):
        agent.update_many(frame, [1.0])


def test_an_offer_keeps_the_columns_of_its_frame() -> None:
    pandas = pytest.importorskip("pandas")
    agent = Agent(dim=2, policy="OFUL")
    agent.decide(agent.offer(pandas.DataFrame({"size": [0.5], "price": [0.1]})))
    assert agent.feature_names == ["size", "price"]
    offer = agent.offer(pandas.DataFrame({"price": [0.1], "size": [0.5]}))
    np.testing.assert_array_equal(offer.rows, [[0.5, 0.1]])


def test_frames_of_pandas_with_an_index_or_numbered_columns() -> None:
    pandas = pytest.importorskip("pandas")
    agent = Agent(dim=2, policy="OFUL")
    assert agent.decide(pandas.DataFrame(RED).T).arm in ("red", "blue")  # columns 0 and 1
    agent.update_many(pandas.DataFrame([[0.1, 0.2]]), [1.0])
    double = pandas.DataFrame([[0.1, 0.2]], columns=["a", "a"])
    refuses(agent, "arms", lambda: agent.decide(double), value=["a", "a"])
    stamps = pandas.Series(pandas.to_datetime(["2024-01-01", "2024-01-02"], utc=True))
    assert Agent(dim=2, half_life="1d").update_many([[0.1, 0.1]] * 2, [1.0, 0.0], times=stamps) == 2
