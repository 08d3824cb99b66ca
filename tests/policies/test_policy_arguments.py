"""What policies refuse, at construction and in use."""

import numpy as np
import pytest

from support.cases import PLAIN, every_policy
from support.refusals import refuses, refuses_unchanged
from support.worlds import BENT, World, play, same_state
from windvane import BVDGLMUCB, GLMUCB, OFUL, DLinUCB, set_threads
from windvane.links import Logistic

NAN, INF = float("nan"), float("inf")
X = np.array([[0.6, 0.5]])


BAD_EVERYWHERE = {
    "dim": [0, -1, 2.0, "2", True, None],
    "lanes": [0, -1, 2.0, [], [-1], [2**32], [0.5], [[0, 1]], True, None, "ab"],
    "seed": [-1, 2**64, 1.5, None],
    "S": [0.0, -1.0, NAN, INF, None],
    "L": [0.0, -1.0, NAN, INF, "x"],
    "lam": [0.0, -1.0, NAN, INF],
    "sigma": [0.0, -0.5, NAN, INF],
    "bonus_scale": [-1.0, NAN, INF, [1.0, 1.0], "x"],
}
BAD_GAMMA = [0.0, -0.1, 1.0 + 1e-9, NAN, INF, [0.9, 0.9], [[0.9]], "x"]
BAD_DELTA = [0.0, -0.1, 1.0 + 1e-9, NAN, INF, [0.1, 0.1], "x"]
FORGETTING = ("BVD-GLM-UCB", "D-LinUCB", "skeleton")


def bad_arguments() -> list:
    cases = []
    for policy in PLAIN:
        bad = BAD_EVERYWHERE | {"delta": BAD_DELTA}
        if policy in FORGETTING:
            bad["gamma"] = BAD_GAMMA
        if policy in ("BVD-GLM-UCB", "GLM-UCB", "skeleton"):
            bad["link"] = ["logit", "", None, 3]
            bad["tolerance"] = [0.0, -1e-6, NAN]
        if policy != "OFUL":
            bad["confidence"] = ["uniform", "", None]
        cases += [(policy, name, value) for name, values in bad.items() for value in values]
    return [pytest.param(*case, id=f"{case[0]}-{case[1]}-{case[2]}") for case in cases]


@pytest.mark.parametrize(("policy", "name", "value"), bad_arguments())
def test_bad_arguments_are_named(policy: str, name: str, value: object) -> None:
    """A setting outside its range raises a ValueError that begins with the setting's name."""
    cls, settings = PLAIN[policy]
    with refuses(name):
        cls(**{"dim": 2} | settings | {name: value})


def test_ragged_lane_ids_are_named() -> None:
    """Ids that do not even form an array are refused like any other bad ``lanes``."""
    with refuses("lanes"):
        OFUL(2, lanes=[[0], [1, 2]])


@pytest.mark.parametrize("cls", [BVDGLMUCB, DLinUCB])
def test_arrays_over_lanes_must_have_one_entry_a_lane(cls) -> None:
    """gamma, delta and bonus_scale: a number or one per lane; the one with the wrong shape is the one named."""
    for name in ("gamma", "delta", "bonus_scale"):
        with refuses(name):
            cls(2, **{"gamma": 0.9} | {name: [0.5, 0.5, 0.5]}, lanes=2)
        with refuses(name):
            cls(2, **{"gamma": 0.9} | {name: [0.5, -0.5]}, lanes=2)


@pytest.mark.parametrize(("cls", "settings"), [(BVDGLMUCB, {"gamma": 0.9}), (DLinUCB, {"gamma": 0.9}), (GLMUCB, {})])
def test_the_horizon_form_of_delta_needs_a_horizon(cls, settings) -> None:
    """confidence="horizon" divides delta by T, so T must be there and whole."""
    for horizon in (None, 0, 1.5):
        with refuses("horizon"):
            cls(2, **settings, confidence="horizon", horizon=horizon)
    cls(2, **settings, confidence="horizon", horizon=10)


def test_settings_are_copied() -> None:
    """What the caller does to the arrays it built a policy with has no effect."""
    arrays = {"gamma": np.array([0.9, 0.99]), "delta": np.array([0.1, 0.2]), "bonus_scale": np.array([1.0, 0.5])}
    ids = np.array([4, 9])
    policy, twin = (BVDGLMUCB(2, lanes=ids.copy(), **{k: v.copy() for k, v in arrays.items()}) for _ in range(2))
    owned = BVDGLMUCB(2, lanes=ids, **arrays)
    for array in (*arrays.values(), ids):
        array[:] = 1
    expected = play(twin, World(2, 2), 10)
    assert (play(policy, World(2, 2), 10) == expected).all()
    assert (play(owned, World(2, 2), 10) == expected).all()
    assert same_state(owned.state(), twin.state())


@pytest.mark.parametrize("link", ["logistic", "poisson", "probit", BENT], ids=str)
@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_rewards_outside_their_range_are_refused(link, sigma: float) -> None:
    """[0, 2 sigma], ends included, for links with bounded rewards."""
    policy = BVDGLMUCB(2, link, gamma=0.9, sigma=sigma, lanes=2)
    play(policy, World(2, 2), 3)
    x = np.full((2, 2), 0.1)
    for bad in (-1e-9, 2 * sigma * (1 + 1e-9), NAN, INF, -INF):
        refuses_unchanged(policy, "reward", lambda bad=bad: policy.update(x, [0.5, bad]))
        refuses_unchanged(policy, "reward", lambda bad=bad: policy.update(x, bad))
    policy.update(x, [0.0, 2 * sigma])
    policy.update(x, [0.5, -7.0], mask=[True, False])  # what a masked lane holds does not count


@pytest.mark.parametrize(
    "build", [OFUL, lambda d: DLinUCB(d, gamma=0.9), lambda d: BVDGLMUCB(d, "identity", gamma=0.9)]
)
def test_linear_policies_take_any_finite_reward(build) -> None:
    """For the identity link sigma is the scale of the noise, not a range."""
    policy = build(2)
    policy.select(np.full((1, 1, 2), 0.5))
    policy.update([[0.5, 0.5]], -1e6)
    policy.update([[0.5, 0.5]], [1e6])
    assert np.isfinite(policy.info().theta_hat).all()
    for bad in (NAN, INF, -INF):
        refuses_unchanged(policy, "reward", lambda bad=bad: policy.update([[0.5, 0.5]], bad))


@every_policy
@pytest.mark.parametrize("L", [0.5, 3.0])
def test_the_bound_on_norms_is_kept_up_to_rounding(cls, settings, L: float) -> None:
    """An arm 1e-12 longer than L is rounding; one longer by 1e-6 is an error."""
    policy = cls(2, **settings, L=L)
    arm = L * np.array([[0.6, 0.8]])
    policy.select((1 + 1e-12) * arm[:, None])
    policy.update((1 + 1e-12) * arm, 1.0)
    refuses_unchanged(policy, "arms", lambda: policy.select((1 + 1e-6) * arm[:, None]))
    refuses_unchanged(policy, "x", lambda: policy.update((1 + 1e-6) * arm, 1.0))


@every_policy
def test_bad_calls_name_the_argument(cls, settings) -> None:
    """Each refused call names what was wrong first, and leaves every bit of the state alone."""
    policy = cls(2, **settings, lanes=2)
    x, arms = np.full((2, 2), 0.3), np.full((2, 3, 2), 0.3)
    refuses_unchanged(policy, "round", lambda: policy.update(x, 1.0))  # nothing has been decided yet
    play(policy, World(2, 2), 5)
    nan_arms, long_x, no_arm = arms.copy(), x.copy(), np.ones((2, 3), dtype=bool)
    nan_arms[1, 2, 0], long_x[1], no_arm[1] = NAN, 2.0, False
    refuses_unchanged(policy, "arms", lambda: policy.select(nan_arms))
    refuses_unchanged(policy, "arms", lambda: policy.select(arms[:, :0]))
    refuses_unchanged(policy, "arms", lambda: policy.select(arms[0]))
    refuses_unchanged(policy, "arms", lambda: policy.select("arms"))
    refuses_unchanged(policy, "valid", lambda: policy.select(arms, no_arm))
    refuses_unchanged(policy, "valid", lambda: policy.select(arms, no_arm.astype(int)))
    refuses_unchanged(policy, "valid", lambda: policy.select(arms, no_arm[:, :2]))
    refuses_unchanged(policy, "x", lambda: policy.update(long_x, 1.0))
    refuses_unchanged(policy, "x", lambda: policy.update(x[0], 1.0))
    refuses_unchanged(policy, "x", lambda: policy.update(np.where(np.eye(2) > 0, NAN, x), 1.0))
    refuses_unchanged(policy, "reward", lambda: policy.update(x, [1.0]))
    refuses_unchanged(policy, "reward", lambda: policy.update(x, "high"))
    refuses_unchanged(policy, "round", lambda: policy.update(x, 1.0, round=5.5))
    refuses_unchanged(policy, "round", lambda: policy.update(x, 1.0, round=[5.0, 6.0]))
    refuses_unchanged(policy, "round", lambda: policy.update(x, 1.0, round=NAN))
    refuses_unchanged(policy, "round", lambda: policy.update(x, 1.0, round=-INF))
    refuses_unchanged(policy, "weight", lambda: policy.update(x, 1.0, weight=-1e-9))
    refuses_unchanged(policy, "weight", lambda: policy.update(x, 1.0, weight=[1.0, INF]))
    refuses_unchanged(policy, "weight", lambda: policy.update(x, 1.0, weight=[1.0, 1.0, 1.0]))
    refuses_unchanged(policy, "mask", lambda: policy.update(x, 1.0, mask=[1, 0]))
    refuses_unchanged(policy, "mask", lambda: policy.update(x, 1.0, mask=[True]))
    refuses_unchanged(policy, "n", lambda: policy.advance(-0.5))
    refuses_unchanged(policy, "n", lambda: policy.advance(INF))
    refuses_unchanged(policy, "n", lambda: policy.advance("soon"))
    policy.update(x, 1.0, round=5.0)  # the last round itself is fine


def test_a_subclass_of_a_built_in_link_is_not_taken_for_it() -> None:
    class Doubled(Logistic):
        def mean(self, z):
            return super().mean(2 * np.asarray(z))

    with refuses("link"):
        BVDGLMUCB(2, Doubled(), gamma=0.9)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reward", np.ma.masked_array([1.0], mask=[True])),
        ("reward", [1j]),
        ("reward", ["1"]),
        ("reward", 10**400),
        ("x", np.ma.masked_array(X, mask=True)),
        ("weight", np.array(["now"], dtype="datetime64[s]")),
    ],
)
def test_values_that_are_no_numbers_are_refused(name: str, value: object) -> None:
    policy = BVDGLMUCB(2, gamma=0.9)
    policy.select(X[None])
    with refuses(name):
        policy.update(**({"x": X, "reward": 1.0} | {name: value}))


def test_errors_about_large_values_are_short() -> None:
    for bad in ({"S": np.ones((20, 20))}, {"S": 10**400}, {"lanes": np.zeros((30, 3))}, {"confidence": np.ones(3)}):
        with refuses(next(iter(bad))) as caught:
            BVDGLMUCB(2, gamma=0.9, **bad)
        assert len(str(caught.value)) < 250
    with refuses("count"):
        set_threads(10**6)
