"""What policies refuse, at construction and in use."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import windvane as wv
from support.cases import GLM_SETTINGS, PLAIN, OverDLinUCB, every_policy
from support.refusals import refuses, refuses_unchanged
from support.worlds import BENT, World, play, same_state
from windvane import BVDGLMUCB, OFUL, DLinUCB, MaximumLikelihoodEstimator, Restart, Window
from windvane.kernels.projection import P2
from windvane.links import Logistic

NAN, INF = float("nan"), float("inf")
GAMMA = {"gamma": 0.9}


class Doubled(Logistic):
    def mean(self, z):
        return super().mean(2 * np.asarray(z))


BAD_EVERYWHERE = {
    "dim": [0, -1, 2.0, "2", True, None],
    "lanes": [0, -1, 2.0, [], [-1], [2**32], [0.5], [[0, 1]], [[0], [1, 2]], True, None, "ab"],
    "seed": [-1, 2**64, 1.5, None],
    "S": [0.0, -1.0, NAN, INF, None],
    "L": [0.0, -1.0, NAN, INF, "x"],
    "lam": [0.0, -1.0, NAN, INF],
    "sigma": [0.0, -0.5, NAN, INF],
    "bonus_scale": [-1.0, NAN, INF, [1.0, 1.0], "x"],
    "delta": [0.0, -0.1, 1.0 + 1e-9, NAN, INF, [0.1, 0.1], "x"],
}
BAD_GAMMA = [0.0, -0.1, 1.0 + 1e-9, NAN, INF, [0.9, 0.9], [[0.9]], "x"]
BAD_GLM = {"lanes": 0, "link": "logit", "S": 0.0, "sigma": -1.0, "dim": 0}
# The class, its other settings, and values that are refused: None where an argument is needed.
BAD: list[tuple[Any, dict[str, Any], dict[str, list[Any]]]] = [
    (BVDGLMUCB, GAMMA, {"link": [Doubled()]}),  # a subclass of a built-in link is not taken for it
    (BVDGLMUCB, {}, {"forgetting": [Restart(5), Window(5.0)]}),
    (MaximumLikelihoodEstimator, {}, {"forgetting": [Restart(5)]}),
    *((cls, GAMMA | {"lanes": 2}, {name: [[0.5, 0.5, 0.5], [0.5, -0.5]] for name in ("gamma", "delta", "bonus_scale")})
      for cls in (BVDGLMUCB, DLinUCB)),
    *((cls, settings | {"confidence": "horizon"}, {"horizon": [None, 0, 1.5]})
      for cls, settings in ((BVDGLMUCB, GAMMA), (DLinUCB, GAMMA), (wv.GLMUCB, {}), (wv.SWLinUCB, {"window": 5}))),
    (wv.AdaptiveGLMUCB, {}, {"memories": [[], [1.0], [5, 5], [9, 5], [NAN], 50], "link": ["cubic"]}),
    (wv.SWLinUCB, {"window": 5}, {"confidence": ["often"]}),
    (wv.RestartUCB, {}, {"restart_every": [2.5]}),
    (wv.LBWeightUCB, GAMMA, {"gamma": [1.5], "lam": [0]}),
    (wv.DLinTS, GAMMA, {"posterior_scale": [-1]}),
    (wv.GLOC, {}, BAD_EVERYWHERE | {"link": ["logit"]}),
    (wv.GLOCTS, {}, {"posterior_scale": [-1.0], "delta": [0.0]}),
    (wv.ECOLogUCB, {}, {"lam": [0.0], "delta": [2.0], "link": ["poisson", "logit"], "S": [0.0, "x", [1.0]]}),
    (wv.AdaOFUECOLog, {}, {"radius_form": ["exact", None], "delta": [0.0], "link": ["probit"]}),
    (wv.LinTS, {"horizon": 9}, {"horizon": [None, 0, 2.5], "inflation": ["all"], "delta": [0.0], "lam": [-1.0]}),
    (wv.GLMTS, {"horizon": 9}, {"horizon": [None], "posterior_scale": [-1.0], "link": ["logit"], "tolerance": [0.0]}),
    (wv.PGTS, {}, {"sweeps": [0, 1.5, None], "lam": [0.0, NAN], "link": ["probit"], "L": [0.0], "seed": [-1]}),
    (wv.Oracle, {}, {"truth": [3]}),
    (wv.SCBWeightUCB, GAMMA, {"lam": [None]}),
    (wv.SCDGLUCB, GAMMA, {"horizon": [None]}),
    (wv.DetectGLMUCB, {}, {"run_length": [None, 0.5], "horizon": [0]}),
    (wv.DetectGLMUCB, {"horizon": 10}, {"false_alarm": [0.0]}),
    (wv.BOB, {"horizon": 10}, {"horizon": [0], "block": [0], "windows": [[], [0.0], [10, -5]]}),
    (wv.BOBBVDGLMUCB, {"horizon": 10}, {"discounts": [[1.5], [0.9] * 9 + [5.0]]}),
    (OverDLinUCB, {"horizon": 100}, {"reward_range": [0.0]}),
    (wv.MasterOFUL, {"horizon": 10}, {"first_order": [-1], "test_scale": [-1.0]}),
    (wv.MasterGLMUCB, {"horizon": 10}, {"delta": [0.0]}),
    *((cls, {"horizon": 1}, {"delta": [1.0]}) for cls in (wv.MasterOFUL, wv.MasterGLMUCB)),
]  # fmt: skip


def bad_settings() -> Iterator[Any]:
    table = list(BAD)
    for policy, (cls, settings) in PLAIN.items():
        bad: dict[str, list[Any]] = dict(BAD_EVERYWHERE)
        if policy in ("BVD-GLM-UCB", "D-LinUCB", "skeleton"):
            bad["gamma"] = BAD_GAMMA
        if policy in ("BVD-GLM-UCB", "GLM-UCB", "skeleton"):
            bad |= {"link": ["logit", "", None, 3], "tolerance": [0.0, -1e-6, NAN]}
        if policy != "OFUL":
            bad["confidence"] = ["uniform", "", None]
        table.append((cls, settings, bad))
    for cls, settings in GLM_SETTINGS.items():
        scale = "posterior_scale" if cls is wv.DGLMTS else "bonus_scale"
        table.append((cls, settings, {name: [value] for name, value in (BAD_GLM | {scale: -1.0}).items()}))
    for cls, settings, bad in table:
        for name, value in ((name, value) for name, values in bad.items() for value in values):
            yield pytest.param(cls, settings, name, value, id=f"{cls.__name__}-{name}-{value}")


@pytest.mark.parametrize(("cls", "settings", "name", "value"), list(bad_settings()))
def test_bad_settings_are_named(cls, settings: dict[str, Any], name: str, value: object) -> None:
    with refuses(name):
        cls(**{"dim": 2} | settings | {name: value})


@pytest.mark.parametrize(("cls", "settings"), [(BVDGLMUCB, GAMMA), (DLinUCB, GAMMA), (wv.GLMUCB, {})])
def test_a_whole_horizon_is_accepted(cls, settings) -> None:
    cls(2, **settings, confidence="horizon", horizon=10)


def test_settings_are_copied() -> None:
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
        for reward in (bad, [0.5, bad]):
            refuses_unchanged(policy, "reward", partial(policy.update, x, reward))
    policy.update(x, [0.0, 2 * sigma])
    policy.update(x, [0.5, -7.0], mask=[True, False])  # what a masked lane holds does not count


@pytest.mark.parametrize("build", [OFUL, partial(DLinUCB, gamma=0.9), partial(BVDGLMUCB, link="identity", gamma=0.9)])
def test_linear_policies_take_any_finite_reward(build) -> None:
    """For the identity link sigma is the scale of the noise, not a range."""
    policy = build(2)
    policy.select(np.full((1, 1, 2), 0.5))
    policy.update([[0.5, 0.5]], -1e6)
    policy.update([[0.5, 0.5]], [1e6])
    assert np.isfinite(policy.info().theta_hat).all()
    for bad in (NAN, INF, -INF):
        refuses_unchanged(policy, "reward", partial(policy.update, [[0.5, 0.5]], bad))


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
    policy = cls(2, **settings, lanes=2)
    x, arms = np.full((2, 2), 0.3), np.full((2, 3, 2), 0.3)
    refuses_unchanged(policy, "round", lambda: policy.update(x, 1.0))  # nothing has been decided yet
    play(policy, World(2, 2), 5)
    nan_arms, long_x, no_arm = arms.copy(), x.copy(), np.ones((2, 3), dtype=bool)
    nan_arms[1, 2, 0], long_x[1], no_arm[1] = NAN, 2.0, False
    for bad in (nan_arms, arms[:, :0], arms[0], "arms", [[[0.3, 0.0], [0.3]]] * 2):
        refuses_unchanged(policy, "arms", partial(policy.select, bad))
    for bad in (no_arm, no_arm.astype(int), no_arm[:, :2]):
        refuses_unchanged(policy, "valid", partial(policy.select, arms, bad))
    masked = np.ma.masked_array
    bad_feedback = {
        "x": [long_x, x[0], np.where(np.eye(2) > 0, NAN, x), masked(x, mask=True)],
        "reward": [[1.0], "high", masked([1.0, 1.0], mask=[True, False]), [1j, 1.0], ["1", "1"], 10**400],
        "round": [5.5, [5.0, 6.0], NAN, -INF],
        "weight": [-1e-9, [1.0, INF], [1.0, 1.0, 1.0], np.array(["now"] * 2, dtype="datetime64[s]")],
        "mask": [[1, 0], [True]],
    }
    for name, values in bad_feedback.items():
        for bad in values:
            refuses_unchanged(policy, name, partial(policy.update, **{"x": x, "reward": 1.0} | {name: bad}))
    for bad in (-0.5, INF, "soon"):
        refuses_unchanged(policy, "n", partial(policy.advance, bad))
    policy.update(x, 1.0, round=5.0)  # the last round itself is fine


def test_arrays_of_another_shape_do_not_reach_a_kernel() -> None:
    policy, arms = BVDGLMUCB(2, gamma=0.9, lanes=3), np.full((3, 2, 2), 0.5)
    wide = np.full((3, 2, 90), 0.1)
    for name, call in (
        ("beta", lambda: policy.estimator.project(P2, np.ones(1))),
        ("theta", lambda: policy.predict(arms, np.zeros((1, 2)))),
        ("arms", lambda: policy.predict(wide, np.zeros((3, 2)))),
        ("multiplier", lambda: policy.bonus(arms, np.ones(1))),
        ("arms", lambda: policy.bonus(wide, np.ones(3))),
        ("arms", lambda: policy.bonus(arms[:2].copy(), np.ones(3))),
        ("scores", lambda: policy.play(np.zeros((3, 1)), np.ones((3, 2), dtype=bool))),
    ):
        with refuses(name):
            call()


@every_policy
def test_trusted_arms_are_decided_as_checked_ones(cls, settings) -> None:
    policy, twin = (cls(2, **settings) for _ in range(2))
    for arms in np.random.default_rng(0).uniform(-0.5, 0.5, (20, 1, 3, 2)):
        chosen = twin.select(arms)
        assert policy.select(policy.trust(arms)) == chosen
        for each in (policy, twin):
            each.update(arms[:, chosen[0]], 1.0)
    assert same_state(policy.state(), twin.state())


def test_only_the_very_array_is_trusted_once_and_never_its_shape() -> None:
    policy, far = wv.AdaptiveGLMUCB(2), np.full((1, 2, 2), 9.0)
    policy.trust(far)
    refuses_unchanged(policy, "arms", lambda: policy.select(far.copy()))
    refuses_unchanged(policy, "arms", lambda: policy.select(far))  # trusted only until the call before
    policy.trust(far)
    refuses_unchanged(policy, "arms", lambda: policy.select(far, [[True, True]]))
    for shape in ((1, 2, 90), (1, 0, 2), (2, 2, 2)):
        refuses_unchanged(policy, "arms", partial(policy.select, policy.trust(np.zeros(shape))))


@every_policy
def test_one_lane_is_still_an_axis(cls, settings) -> None:
    """What most people get wrong first is met with what to do about it, also where the one lane is all there is."""
    policy, arms = cls(2, **settings), np.full((4, 2), 0.3)
    for call in (policy.select, policy.probabilities):
        for given, hint in ((arms, True), (arms.tolist(), True), (arms[None, None], False)):
            with refuses("arms") as caught:
                call(given)
            assert (caught.value.hint or "") == hint * "add a leading lanes axis: arms[None]"
    policy.select(arms[None])


def test_errors_about_large_values_are_short() -> None:
    for bad in ({"S": np.ones((20, 20))}, {"S": 10**400}, {"lanes": np.zeros((30, 3))}, {"confidence": np.ones(3)}):
        with refuses(next(iter(bad))) as caught:
            BVDGLMUCB(2, gamma=0.9, **bad)
        assert len(str(caught.value)) < 250
    with refuses("count"):
        wv.set_threads(10**6)
