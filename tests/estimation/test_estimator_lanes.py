"""Lanes, buffers, reading and resetting."""

from typing import Any

import numpy as np
import pytest

from support import access
from support.estimators import feed, lane_stream, make_kind
from support.refusals import refuses_unchanged
from support.worlds import same_state
from windvane.estimation import Discount, MaximumLikelihoodEstimator, OnePassEstimator, RidgeEstimator


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("settings_", [{"gamma": [0.7, 1.0, 0.95, 0.5]}, {"window": [20.0, 3.0, 0.5, 400.0]}], ids=str)
def test_lanes_together_equal_lanes_alone(dim: int, settings_: dict[str, Any]) -> None:
    """Bit for bit, though together they double and compact their buffers at other times than alone."""
    together = access.make_estimator(dim, lanes=4, **settings_)
    feed(together, [0, 1, 2, 3], range(300), dim)
    for lane in range(4):
        alone = access.make_estimator(dim, **{name: value[lane] for name, value in settings_.items()})
        feed(alone, [lane], range(300), dim)
        assert same_state(access.lane_state(together, lane), access.lane_state(alone, 0))
        np.testing.assert_array_equal(together.theta_hat[lane], alone.theta_hat[0])


@pytest.mark.parametrize("settings_", [{"gamma": 0.9}, {"window": 9.0}, {}], ids=["gamma", "window", "neither"])
def test_reading_changes_nothing(settings_: dict[str, Any]) -> None:
    """Reading everything in every round, against reading nothing: the same bits, at later solves too."""
    read, unread = (access.make_estimator(2, lanes=2, **settings_) for _ in range(2))
    streams = [lane_stream(lane, 200, 2) for lane in (0, 1)]
    for t in range(200):
        for estimator in (read, unread):
            estimator.advance()
            x, reward, age, present = zip(*(stream[t] for stream in streams), strict=True)
            estimator.observe(np.array(x), np.array(reward), age=np.array(age), mask=np.array(present))
        seen = read.theta_hat
        read.metric()[...] = 7  # and writing into what was read
        for name in ("b", "truncation_error", "root_error", "memory", "remembered", "theta_hat", "gamma", "elapsed"):
            getattr(read, name)[...] = 7
        for array in (*read.moments(np.ones((2, 2))), *access.save(read).values()):
            array[...] = 0
        if t % 10 == 9 or t >= 150:
            for theta in (unread.solve(), read.theta_hat, read.solve(), read.theta_hat):
                np.testing.assert_array_equal(seen, theta)
        assert same_state(access.save(read), access.save(unread))


WINDOWS = {"window": [5.0, 30.0, 80.0]}
RESETS = [("logistic", {"gamma": [0.9, 0.99, 1.0]}), ("logistic", WINDOWS), ("identity", WINDOWS)]


@pytest.mark.parametrize(("link", "settings_"), RESETS)
def test_a_reset_lane_is_a_fresh_one(link: str, settings_: dict[str, list[float]]) -> None:
    """Bit for bit; the other lanes do not notice, and a saved state has it."""
    (name, start), chosen = next(iter(settings_.items())), np.array([False, True, False])
    estimator, untouched, resumed = (access.make_estimator(2, link, lanes=3, **settings_) for _ in range(3))
    for each in (estimator, untouched):
        feed(each, [0, 1, 2], range(100), 2)
    estimator.reset(chosen)
    assert getattr(estimator, name).tolist() == start
    fresh = access.make_estimator(2, link, **{name: start[1]})
    assert same_state(access.lane_state(estimator, 1), access.lane_state(fresh))
    assert estimator.memory[1] == fresh.memory[0]
    for each, lanes in ((estimator, [0, 1, 2]), (untouched, [0, 1, 2]), (fresh, [1])):
        feed(each, lanes, range(100, 200), 2)
    assert same_state(access.lane_state(estimator, 1), access.lane_state(fresh))
    for lane in (0, 2):
        assert same_state(access.lane_state(estimator, lane), access.lane_state(untouched, lane))
    access.load(resumed, access.save(estimator))
    for each in (estimator, resumed):
        feed(each, [0, 1, 2], range(200, 300), 2)
    assert same_state(access.save(resumed), access.save(estimator))
    estimator.reset()  # without a mask: all of them
    assert same_state(access.save(estimator), access.save(access.make_estimator(2, link, lanes=3, **settings_)))


def test_a_refused_reset_changes_nothing() -> None:
    estimator = make_kind("gamma", 10)
    refuses_unchanged(estimator, "mask", lambda: estimator.reset([True]))


@pytest.mark.parametrize("gamma", [0.9, 0.999, 1.0])
def test_the_identity_link_needs_no_history(gamma: float) -> None:
    """theta_hat = V^-1 b is the root that the exact estimator finds; V, V_tilde and b are the same to the bit."""
    remembering = access.make_estimator(2, "identity", gamma=gamma, lanes=2)
    forgetful = access.make_ridge(2, gamma=gamma, lanes=2)
    for start in range(0, 400, 50):
        for estimator in (remembering, forgetful):
            feed(estimator, [0, 1], range(start, start + 50), 2)
        for name in ("V", "V_tilde", "b"):
            np.testing.assert_array_equal(getattr(remembering, name), getattr(forgetful, name))
        exact = np.linalg.solve(forgetful.metric(), forgetful.b[..., None])[..., 0]
        np.testing.assert_allclose(forgetful.theta_hat, exact, rtol=0, atol=1e-13)
        error = np.linalg.norm(remembering.theta_hat - forgetful.theta_hat, axis=1)
        assert (error <= remembering.truncation_error + remembering.root_error + 1e-12).all()
    assert forgetful.remembered.tolist() == [0, 0]
    assert access.history_size(forgetful) == 0


@pytest.mark.parametrize("kind", [MaximumLikelihoodEstimator, OnePassEstimator, RidgeEstimator])
def test_lanes_split_and_joined_again_on_the_way_go_on_as_they_were(kind: Any) -> None:
    gammas = [0.7, 1.0, 0.95, 0.5]

    def make(lanes: list[int]) -> Any:
        settings_ = {"forgetting": Discount([gammas[lane] for lane in lanes]), "lanes": len(lanes)}
        return kind(2, **settings_) if kind is RidgeEstimator else kind(2, "poisson", **settings_)

    together, rejoined = make([0, 1, 2, 3]), make([0, 1, 2, 3])
    feed(together, [0, 1, 2, 3], range(80), 2, solve_every=3)
    halfway, alone = access.save(together), [make([lane]) for lane in range(4)]
    for lane, estimator in enumerate(alone):
        access.load(estimator, {name: array[lane : lane + 1] for name, array in halfway.items()})
        feed(estimator, [lane], range(80, 160), 2, solve_every=3)
    feed(together, [0, 1, 2, 3], range(80, 160), 2, solve_every=3)
    for lane, estimator in enumerate(alone):
        assert same_state(access.lane_state(estimator), access.lane_state(together, lane))
    states = [access.save(estimator) for estimator in alone]
    longest = max(state["history"].shape[2] for state in states)
    for state in states:
        state["history"] = np.pad(state["history"], ((0, 0), (0, 0), (0, longest - state["history"].shape[2])))
    access.load(rejoined, {name: np.concatenate([state[name] for state in states]) for name in states[0]})
    for estimator in (together, rejoined):
        feed(estimator, [0, 1, 2, 3], range(160, 200), 2, solve_every=3)
    for lane in range(4):
        assert same_state(access.lane_state(rejoined, lane), access.lane_state(together, lane))
