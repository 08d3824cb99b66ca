"""Custom links: the same kernels, interpreted, give the numbers of the compiled ones; an exception harms nothing."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from support import access
from support.estimators import by_link, feed
from support.instances import instance
from support.numerics import BUILT_IN, custom_copy
from support.worlds import ball, same_state
from windvane.estimation import Discount, MaximumLikelihoodEstimator, OnePassEstimator, Window
from windvane.kernels import custom, expansion, filters, history, one_pass, online, projection, root, scoring
from windvane.kernels.custom import COMPILED, LinkKernels, link_kernels
from windvane.links import CustomLink, Logistic, get_link
from windvane.projection import p0, p2

COPY = custom_copy(Logistic())
HOMES = {"observe_lanes": history, "solve_lanes": root, "moments_lanes": expansion, "project_lanes": projection}
HOMES |= {"predict_lanes": scoring, "linearise_lanes": one_pass, "assess_lanes": filters, "learn_lanes": filters}
HOMES |= {"newton_lanes": online}


@pytest.mark.parametrize("name", [field.name for field in fields(LinkKernels)])
def test_only_what_evaluates_the_link_is_interpreted(name: str) -> None:
    """In a namespace of its own module: constants of the same name in two modules keep their values."""
    kernel, home = getattr(link_kernels(-1, COPY), name), HOMES[name]
    assert not hasattr(kernel, "py_func")
    assert kernel.__code__ is getattr(home, name).py_func.__code__
    namespace = kernel.__globals__
    assert namespace is not vars(home), "the module itself must not change"
    for key, value in vars(home).items():
        if not callable(value) and not key.startswith("__"):
            assert namespace[key] is value
    for key in {"cholesky", "ball_quadratic", "add_outer", "dot"} & set(namespace):
        assert hasattr(namespace[key], "py_func"), f"{key} knows no link and should stay compiled"
    assert link_kernels(Logistic().code, Logistic()) is COMPILED
    assert getattr(COMPILED, name) is getattr(home, name)


def test_the_curvature_of_a_custom_link_is_a_difference_and_its_ratio_unknown() -> None:
    functions = custom._evaluate_in_numpy(COPY)
    z, bend = np.linspace(-3, 3, 9), np.full(9, np.nan)
    functions["bend_array"](-1, z, z, z, bend, 9)
    np.testing.assert_allclose(bend, -np.tanh(z / 2) * Logistic().slope(z), rtol=0, atol=1e-9)
    assert functions["bend_ratio"](-1, 1.0) == np.inf


FORGETTING = {"discount": Discount([0.9, 1.0]), "window": Window(12.0)}


@by_link
@pytest.mark.parametrize("forgetting", FORGETTING.values(), ids=FORGETTING)
def test_a_copy_gives_the_same_numbers_in_every_estimator_and_projection(link: str, forgetting: Any) -> None:
    """Roots are certified to 1e-12; a projection leaves up to 1e-8."""
    built_in, settings = get_link(link), {"forgetting": forgetting, "lanes": 2, "S": 0.4, "tolerance": 1e-10}
    exact, copied = (MaximumLikelihoodEstimator(2, each, **settings) for each in (built_in, custom_copy(built_in)))
    stages = set()
    for start in range(0, 60, 20):
        for estimator in (exact, copied):
            feed(estimator, [0, 1], range(start, start + 20), 2, solve_every=5)
            estimator.solve()
        one, other = access.save(exact), access.save(copied)
        for name in ("now", "scale", "dropped", "count", "history"):
            np.testing.assert_array_equal(one[name], other[name])
        np.testing.assert_array_equal(exact.metric(), copied.metric())
        np.testing.assert_allclose(exact.solve(), copied.solve(), rtol=0, atol=1e-11)
        for mine, theirs in zip(exact.moments(np.ones((2, 2))), copied.moments(np.ones((2, 2))), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-13)
        for program in (projection.P0_IN_V, projection.P0_IN_V_TILDE, projection.P0_IN_H, projection.P2):
            mine, theirs = (estimator.project(program, np.full(2, 0.05)) for estimator in (exact, copied))
            np.testing.assert_array_equal(mine.stage, theirs.stage)
            np.testing.assert_allclose(mine.theta, theirs.theta, rtol=0, atol=1e-7)
            np.testing.assert_allclose(mine.value, theirs.value, rtol=1e-7, atol=1e-12)
            stages |= set(mine.stage.tolist())
    assert stages == {1, 2, 3}


def test_a_copy_of_the_logistic_gives_the_same_numbers_in_one_pass_and_in_predictions() -> None:
    forgetting = FORGETTING["discount"]
    exact, copied = (OnePassEstimator(2, link, forgetting=forgetting, lanes=2) for link in (Logistic(), COPY))
    for estimator in (exact, copied):
        feed(estimator, [0, 1], range(80), 2)
    np.testing.assert_allclose(exact.dense, copied.dense, rtol=0, atol=1e-11)
    arms, theta = ball(np.random.default_rng(0), (2, 7), 2), np.array([[1.0, -2.0], [0.1, 3.0]])
    means = np.full((2, 2, 7), np.nan)
    for link, out in zip((Logistic(), COPY), means, strict=True):
        link_kernels(link.code, link).predict_lanes(link.code, arms, theta, out)
    np.testing.assert_allclose(means[0], means[1], rtol=1e-14)
    np.testing.assert_allclose(means[0], Logistic().mean(np.einsum("lki,li->lk", arms, theta)), rtol=1e-14)


@pytest.mark.parametrize("link", BUILT_IN, ids=lambda link: link.name)
@pytest.mark.parametrize(("hard", "S"), [(True, 1.0), (False, 0.4), (False, 5.0)])
def test_a_copy_of_any_link_gives_the_same_projection(link: Any, hard: bool, S: float) -> None:
    case = instance(np.random.default_rng([16, hard]), 3, link=link.name, hard=hard, S=S)
    for mine, theirs in (
        (p2(*case), p2(*case[:-1], custom_copy(link))),
        *((p0(*case[:3], M, *case[6:]), p0(*case[:3], M, *case[6:8], custom_copy(link))) for M in (case.V, None)),
    ):
        assert mine.stage == theirs.stage
        np.testing.assert_allclose(mine.theta, theirs.theta, atol=1e-7)
        assert mine.value == pytest.approx(theirs.value, rel=1e-7, abs=1e-12)


@by_link
@pytest.mark.parametrize("kind", [MaximumLikelihoodEstimator, OnePassEstimator])
def test_a_link_that_raises_leaves_the_estimator_as_it_was(link: str, kind: Any) -> None:
    broken, made = False, get_link(link)

    def mean(z: np.ndarray) -> np.ndarray:
        if broken:
            raise ArithmeticError("no mean today")
        return made.mean(z)

    estimator = kind(2, CustomLink("moody", mean, made.slope), forgetting=Discount(0.9), lanes=2)
    feed(estimator, [0, 1], range(5), 2)
    before, broken = access.save(estimator), True
    with pytest.raises(ArithmeticError):
        estimator.observe(np.ones((2, 2)) / 2, 1.0)
    assert same_state(access.save(estimator), before)
