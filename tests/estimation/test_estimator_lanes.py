"""Lanes, buffers, reading and resetting."""

import math
from typing import Any

import numpy as np
import pytest

from support import access
from support.estimators import Twin, by_link, feed, lane_stream, make_kind
from support.refusals import refuses, refuses_unchanged
from support.worlds import same_state
from windvane import CustomLink, get_link


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize(
    "settings_", [{"gamma": [0.7, 1.0, 0.95, 0.5]}, {"window": [20.0, 3.0, 0.5, 400.0]}], ids=["gamma", "window"]
)
def test_lanes_together_equal_lanes_alone(dim: int, settings_: dict[str, Any]) -> None:
    """Bit for bit, though together they double and compact their buffers at other times than alone."""
    together = access.make_estimator(dim, lanes=4, **settings_)
    feed(together, [0, 1, 2, 3], range(300), dim)
    for lane in range(4):
        own = {name: value[lane] for name, value in settings_.items()}
        alone = access.make_estimator(dim, **own)
        feed(alone, [lane], range(300), dim)
        assert same_state(access.lane_state(together.state(), lane), access.lane_state(alone.state(), 0))
        np.testing.assert_array_equal(access.theta_hat(together)[lane], access.theta_hat(alone)[0])


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
        seen = access.theta_hat(read)
        for name in ("V", "V_tilde", "b", "truncation_error", "root_error", "memory", "remembered", "theta_hat"):
            access.read(read, name)[...] = 7  # and writing into what was read
        for array in (*access.moments(read, np.ones((2, 2))), *read.state().values()):
            array[...] = 0
        if t % 10 == 9:
            np.testing.assert_array_equal(seen, unread.solve())
            read.solve()
        assert same_state(read.state(), unread.state())


def test_theta_hat_read_is_theta_hat_solved() -> None:
    twin = Twin(2, gamma=0.95, lanes=3)
    for _ in range(50):
        twin.advance()
        twin.observe()
        seen = access.theta_hat(twin.fast)
        np.testing.assert_array_equal(seen, twin.fast.solve())
        np.testing.assert_array_equal(seen, access.theta_hat(twin.fast))


@pytest.mark.parametrize("gamma", [None, 0.8, [0.3, 0.8, 0.6]])
def test_a_reset_lane_is_a_fresh_one(gamma: Any) -> None:
    """Bit for bit, with the new discount; the other lanes do not notice."""
    start = np.array([0.9, 0.99, 1.0])
    chosen = np.array([False, True, False])
    estimator, untouched = (access.make_estimator(2, gamma=start, lanes=3) for _ in range(2))
    for each in (estimator, untouched):
        feed(each, [0, 1, 2], range(100), 2)
    estimator.reset(chosen, gamma=gamma)
    new = start[1] if gamma is None else 0.8
    assert estimator.gamma.tolist() == [0.9, new, 1.0]
    fresh = access.make_estimator(2, gamma=new)
    assert same_state(access.lane_state(estimator.state(), 1), access.lane_state(fresh.state(), 0))
    assert estimator.memory[1] == fresh.memory[0]
    for each, lanes in ((estimator, [0, 1, 2]), (untouched, [0, 1, 2]), (fresh, [1])):
        feed(each, lanes, range(100, 200), 2)
    assert same_state(access.lane_state(estimator.state(), 1), access.lane_state(fresh.state(), 0))
    for lane in (0, 2):
        assert same_state(access.lane_state(estimator.state(), lane), access.lane_state(untouched.state(), lane))


@pytest.mark.parametrize("link", ["logistic", "identity"])
@pytest.mark.parametrize("window", [None, 7.0, [math.nan, 7.0, math.nan]], ids=["as before", "one", "per lane"])
def test_a_reset_lane_may_have_another_window(link: str, window: Any) -> None:
    """As with a discount; and a saved state carries the windows as they are then."""
    chosen, new = np.array([False, True, False]), 30.0 if window is None else 7.0
    estimator, untouched = (access.make_estimator(2, link, window=[5.0, 30.0, 80.0], lanes=3) for _ in range(2))
    for each in (estimator, untouched):
        feed(each, [0, 1, 2], range(100), 2)
    estimator.reset(chosen, window=window)
    assert estimator.window is not None
    assert estimator.window.tolist() == estimator.memory.tolist() == [5.0, new, 80.0]
    fresh = access.make_estimator(2, link, window=new)
    for each, lanes in ((estimator, [0, 1, 2]), (untouched, [0, 1, 2]), (fresh, [1])):
        feed(each, lanes, range(100, 200), 2)
    assert same_state(access.lane_state(estimator.state(), 1), access.lane_state(fresh.state(), 0))
    for lane in (0, 2):
        assert same_state(access.lane_state(estimator.state(), lane), access.lane_state(untouched.state(), lane))
    resumed = access.make_estimator(2, link, window=[5.0, 30.0, 80.0], lanes=3)
    resumed.load_state(estimator.state())
    for each in (estimator, resumed):
        feed(each, [0, 1, 2], range(200, 300), 2)
    assert same_state(resumed.state(), estimator.state())


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan, [5.0, 0.0], [5.0, 5.0, 5.0], "x"])
def test_a_refused_window_changes_nothing(bad: Any) -> None:
    estimator = access.make_estimator(2, window=[9.0, 4.0], lanes=2)
    feed(estimator, [0, 1], range(10), 2)
    spoilt = estimator.state() | {"window": np.array([9.0, 0.0])}
    refuses_unchanged(estimator, "window", lambda: estimator.reset(window=bad))
    refuses_unchanged(estimator, "gamma", lambda: estimator.reset(gamma=0.5))
    refuses_unchanged(estimator, "state", lambda: estimator.load_state(spoilt))
    with refuses("window"):
        make_kind("gamma").reset(window=5.0)


def test_reset_without_a_mask_resets_all() -> None:
    estimator = access.make_estimator(2, gamma=[0.9, 1.0], lanes=2)
    feed(estimator, [0, 1], range(30), 2)
    estimator.reset()
    assert same_state(estimator.state(), access.make_estimator(2, gamma=[0.9, 1.0], lanes=2).state())


@pytest.mark.parametrize("bad", [0.0, 1.5, math.nan, [0.9, 0.0], [0.9, 0.9, 0.9], "x"])
def test_a_refused_reset_changes_nothing(bad: Any) -> None:
    estimator = make_kind("gamma", 10)
    refuses_unchanged(estimator, "gamma", lambda: estimator.reset(gamma=bad))


@pytest.mark.parametrize("gamma", [0.9, 0.999, 1.0])
def test_the_identity_link_needs_no_history(gamma: float) -> None:
    """remember=False: theta_hat = V^-1 b, the root that remember=True finds; the same V, V_tilde, b to the bit."""
    remembering, forgetful = (
        access.make_estimator(2, "identity", gamma=gamma, lanes=2, remember=remember) for remember in (True, False)
    )
    for start in range(0, 400, 50):
        for estimator in (remembering, forgetful):
            feed(estimator, [0, 1], range(start, start + 50), 2)
        for name in ("V", "V_tilde", "b"):
            np.testing.assert_array_equal(access.read(remembering, name), access.read(forgetful, name))
        exact = np.linalg.solve(access.V(forgetful), access.b(forgetful)[..., None])[..., 0]
        np.testing.assert_allclose(access.theta_hat(forgetful), exact, rtol=0, atol=1e-13)
        error = np.linalg.norm(access.theta_hat(remembering) - access.theta_hat(forgetful), axis=1)
        assert (error <= remembering.truncation_error + remembering.root_error + 1e-12).all()
        theta = np.array([[0.3, -0.2], [1.0, 2.0]])
        for one, two in zip(access.moments(remembering, theta), access.moments(forgetful, theta), strict=True):
            np.testing.assert_allclose(one, two, rtol=0, atol=1e-5)  # what was dropped: D L |theta|
    assert forgetful.remembered.tolist() == [0, 0]
    assert access.history_size(forgetful) == 0


@by_link
@pytest.mark.parametrize("settings_", [{"gamma": 0.9}, {"gamma": 1.0}, {"window": 12.0}], ids=str)
def test_a_custom_copy_of_a_link_equals_it(link: str, settings_: dict[str, Any]) -> None:
    """Interpreted kernels against compiled ones. At tolerance 1e-7 both roots are certified to 1e-9."""
    ours = get_link(link)
    copy = CustomLink("copy", ours.mean, ours.slope)
    one, two = (access.make_estimator(2, which, lanes=2, tolerance=1e-7, **settings_) for which in (ours, copy))
    for start in range(0, 60, 20):
        for estimator in (one, two):
            feed(estimator, [0, 1], range(start, start + 20), 2, solve_every=5)
        np.testing.assert_allclose(access.theta_hat(one), access.theta_hat(two), rtol=0, atol=1e-8)
        np.testing.assert_allclose(access.V(one), access.V(two), rtol=1e-13)
        for mine, theirs in zip(
            access.moments(one, np.ones((2, 2))), access.moments(two, np.ones((2, 2))), strict=True
        ):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6)  # c_mu of a custom link is found numerically
