"""Links: derivatives, stability far out, constants against a grid, and what a custom link must prove."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, ndtr

from support.numerics import BUILT_IN, SOFTPLUS, built_in, custom_copy, sixty_examples
from support.refusals import refuses
from windvane import CustomLink, get_link
from windvane.links import LINKS, Identity, Link, Logistic, Poisson, Probit

ALL = [*BUILT_IN, custom_copy(Logistic()), SOFTPLUS]
ANY_REWARD = CustomLink("linear", lambda z: 1.0 * z, np.ones_like, any_reward=True)
LOGISTIC, BINARY, NOT_FINITE = Logistic(), ("logistic", "probit"), (math.nan, math.inf, -math.inf)
# Multiples of 2^-20: z + h and z + 2h are then exact for h = 2^-10, and the difference quotient keeps its digits.
exact_z = st.integers(-30 * 2**20, 30 * 2**20).map(lambda k: k * 2.0**-20)
sizes = st.floats(0.05, 2.5)
links = pytest.mark.parametrize("link", ALL, ids=repr)


def derivative(function: Callable[[np.ndarray], np.ndarray], z: float) -> float:
    """Five-point stencil, h = 2^-10: truncation h^4/30 |f5| ~ 3e-14 |f5|, rounding ~ 2 eps |f| / h ~ 4e-13 |f|."""
    h = 2.0**-10
    far_left, left, right, far_right = function(np.array([z - 2 * h, z - h, z + h, z + 2 * h]))
    return float((8 * (right - left) - (far_right - far_left)) / (12 * h))


@links
@sixty_examples
@given(z=exact_z, left=st.floats(-30.0, 0.0), gap=st.floats(1e-9, 10.0))
def test_slope_mean_and_primitive_are_derivatives_and_the_mean_increases(link, z, left, gap) -> None:
    """4e-12 (1 + |f|): ten times the stencil's own error.

    Left of 0 no link saturates: a gap of 1e-9 changes each mean by at least 3e-10 of itself (identity: of 30).
    """
    assert derivative(link.mean, z) == pytest.approx(float(link.slope(z)), rel=0, abs=4e-12 * (1 + abs(link.mean(z))))
    if link is not SOFTPLUS:
        scale = 1 + abs(float(link.primitive(z)))
        assert derivative(link.primitive, z) == pytest.approx(float(link.mean(z)), rel=0, abs=4e-12 * scale)
    assert link.slope(z) > 0
    assert link.mean(z + gap) >= link.mean(z)
    assert link.mean(left - gap) < link.mean(left)


@sixty_examples
@given(z=st.floats(-700.0, 700.0), small=st.floats(-37.0, 37.0))
def test_relative_accuracy(z: float, small: float) -> None:
    probit, poisson = Probit(), Poisson()
    for link in (LOGISTIC, probit):  # symmetric, which carries what is tested left of 0 to the right
        assert link.mean(z) + link.mean(-z) == pytest.approx(1.0, rel=0, abs=2.3e-16)
        assert link.slope(z) == link.slope(-z)
    assert LOGISTIC.mean(z) == pytest.approx(expit(z), rel=5e-16, abs=0)
    assert LOGISTIC.slope(z) == pytest.approx(expit(z) * expit(-z), rel=2e-15, abs=0)
    assert LOGISTIC.slope(z) == pytest.approx(0.25 / math.cosh(z / 2) ** 2, rel=2e-15, abs=0)
    if (far := abs(z)) >= 40:
        assert LOGISTIC.slope(z) == pytest.approx(math.exp(-far), rel=5e-16, abs=0)
        assert LOGISTIC.mean(-far) == pytest.approx(math.exp(-far), rel=5e-16, abs=0)
        assert LOGISTIC.mean(far) == 1.0
        assert LOGISTIC.primitive(far) == far
    assert probit.mean(z) == ndtr(z)
    density = math.exp(-0.5 * small**2) / math.sqrt(2 * math.pi)  # the rounding of z^2/2 costs z^2/2 of an error
    assert probit.slope(small) == pytest.approx(density, rel=2.3e-16 * (2 + small**2), abs=0)
    for function in (poisson.mean, poisson.slope, poisson.primitive):
        assert function(z) == pytest.approx(math.exp(z), rel=4e-16, abs=0)
    assert poisson.mean(1e6) == poisson.mean(708.0) == pytest.approx(math.exp(708.0), rel=1e-15)  # held beyond
    assert poisson.mean(-1e6) == poisson.mean(-708.0) > 0


@built_in
@pytest.mark.parametrize("z", [0.0, 1e-300, 1.0, 36.0, 38.0, 40.0, 300.0, 700.0])
def test_every_function_is_finite_and_in_range_up_to_700(link: Link, z: float) -> None:
    """No overflow (warnings are errors here), no zero slope, means within the link's range."""
    for point in (z, -z):
        mean, slope, primitive = link.mean(point), link.slope(point), link.primitive(point)
        assert np.isfinite([mean, slope, primitive]).all()
        assert slope > 0
        if link.name in BINARY:
            assert 0 <= mean <= 1
            assert primitive >= max(0.0, point) - 1e-15 * abs(point)
        if link.name in ("logistic", "poisson"):
            assert mean > 0


@built_in
def test_input_may_be_a_scalar_a_list_or_an_array_and_is_never_returned(link: Link) -> None:
    for function in (link.mean, link.slope, link.primitive):
        assert np.shape(function(1)) == ()
        assert np.shape(function([[0, 1, 2]])) == (1, 3)
        z = np.array([-1.0, 2.0])
        assert function(z).dtype == float
        assert not np.shares_memory(function(z), z)


def test_the_constants_of_the_papers_experiment() -> None:
    constants = LOGISTIC.constants(1.0, 1.0)
    assert constants.k_mu == 0.25
    assert constants.c_mu == pytest.approx(math.e / (1 + math.e) ** 2, rel=1e-15)
    assert constants.c_mu == pytest.approx(0.196612, abs=5e-7)
    assert constants.R_mu == pytest.approx(1.271540, abs=5e-7)


@built_in
@sixty_examples
@given(S=sizes, L=sizes)
def test_constants_are_the_extremes_of_the_slope(link: Link, S: float, L: float) -> None:
    """The grid holds 0 and both ends, where the extremes of the built-in slopes lie."""
    grid, constants = link.slope(np.linspace(-S * L, S * L, 2001)), link.constants(S, L)
    assert (constants.k_mu, constants.c_mu) == pytest.approx((grid.max(), grid.min()), rel=1e-14)
    assert constants.R_mu == constants.k_mu / constants.c_mu >= 1
    copied = custom_copy(link).constants(S, L)
    assert (copied.k_mu, copied.c_mu) == pytest.approx((constants.k_mu, constants.c_mu), rel=1e-6)


@sixty_examples
@given(shift=st.floats(-3.0, 3.0), reach=st.floats(0.1, 10.0))
def test_custom_constants_where_the_extreme_is_on_no_grid_point(shift: float, reach: float) -> None:
    """mu(z) = expit(z - shift): mu' is largest at z = shift if that is within reach, least at the end beyond it."""
    link = CustomLink("shifted", lambda z: expit(z - shift), lambda z: LOGISTIC.slope(z - shift))
    constants = link.constants(reach, 1.0)
    assert constants.k_mu == pytest.approx(float(LOGISTIC.slope(max(0.0, abs(shift) - reach))), rel=1e-6)
    assert constants.c_mu == pytest.approx(float(LOGISTIC.slope(reach + abs(shift))), rel=1e-6)


@links
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, "one", None])
def test_constants_refuse_what_is_not_a_positive_number(link: Link, bad: Any) -> None:
    with refuses("S"):
        link.constants(bad, 1.0)
    with refuses("L"):
        link.constants(1.0, bad)


@pytest.mark.parametrize(("link", "fine", "too_flat"), [(Logistic(), 27, 31), (Poisson(), 13, 15), (Probit(), 7, 8)])
def test_constants_refuse_a_link_too_flat_for_doubles(link: Link, fine: float, too_flat: float) -> None:
    """R_mu beyond 1e12: e^29/4 for the logistic, e^28 for Poisson, e^(7.4^2/2) for probit.

    Of the largest product three digits are kept, rounded down: what is named is allowed, and one percent more is not.
    """
    assert link.constants(fine, 1.0).R_mu < 1e12
    for each in (link, custom_copy(link)):
        with refuses("S", "L"):
            each.constants(too_flat, 1.0)
    link.constants(link.largest_product, 1.0)
    with refuses("S", "L") as refusal:
        link.constants(1.01 * link.largest_product, 1.0)
    assert f"{link.largest_product:g}" in str(refusal.value)  # the limit that it names
    assert (Identity().constants(1e6, 1.0).R_mu, Identity().largest_product) == (1.0, math.inf)
    assert CustomLink("my exp", np.exp, np.exp).largest_product == Poisson().largest_product  # not finite far out


@links
@sixty_examples
@given(largest=st.floats(0.0, 20.0), share=st.floats(-1.0, 1.0))
def test_mean_bound_bounds(link: Link, largest: float, share: float) -> None:
    """|mu(z)| <= mean_bound for |z| <= largest; a globally bounded link's bound holds everywhere."""
    assert abs(link.mean(share * largest)) <= link.mean_bound(largest)
    if link.name in BINARY:
        assert abs(link.mean(1e3 * share)) <= link.mean_bound(largest) == 1.0
    else:
        assert link.mean_bound(largest) == max(abs(float(link.mean(largest))), abs(float(link.mean(-largest))))


@pytest.mark.parametrize("link", [*ALL, ANY_REWARD], ids=repr)
def test_reward_range(link: Link) -> None:
    """[0, 2 sigma] (Assumption 2); the identity link, and a custom one that says so, takes any reward."""
    assert link.reward_range(1.5) == ((-math.inf, math.inf) if link.name in ("identity", "linear") else (0.0, 3.0))


def test_get_link_by_name_and_as_it_is() -> None:
    for name, kind in LINKS.items():
        assert type(get_link(name)) is kind
        assert get_link(name).name == name
    assert get_link(SOFTPLUS) is SOFTPLUS
    assert len({link.code for link in BUILT_IN}) == len(BUILT_IN)
    for bad in ("tanh", "Logistic", "", None, 1, Logistic, ["logistic"]):
        with refuses("link"):
            get_link(bad)


def rare(scale: float, factor: float) -> CustomLink:
    """A conversion rate of a few per million is a link like any other."""
    return CustomLink("rare", lambda z: scale * expit(z), lambda z: factor * scale * LOGISTIC.slope(z))


def changed(link: Link, part: str, change: Callable[[Any, Any], Any]) -> CustomLink:
    """A copy of ``link`` with change(z, y) for y = f(z), f one of its functions."""
    function = getattr(link, part)
    return custom_copy(link, **{part: lambda z: change(z, function(z))})


def hole(part: str, value: float) -> CustomLink:
    return changed(LOGISTIC, part, lambda z, y: np.where(z > 0.9, value, y))


def wrong_links() -> Iterator[tuple[CustomLink, str, str]]:
    """Links, and words that the refusal must have."""
    for link in BUILT_IN:
        for factor in (0.99, 1.01, 2.0):
            for part in ("slope", "primitive"):
                yield changed(link, part, lambda _, y, factor=factor: factor * y), part, "derivative"
    for scale in (1e-2, 1e-4, 1e-6):
        yield rare(scale, 2.0), "slope", "derivative"
    yield changed(LOGISTIC, "slope", lambda z, y: y + 0.01 * (np.abs(z - 0.7) < 0.01)), "slope", "derivative"
    yield CustomLink("decreasing", lambda z: -z, lambda z: -np.ones_like(z)), "slope", "positive"
    yield CustomLink("flat", np.zeros_like, np.zeros_like), "slope", "positive"
    yield CustomLink("flat at 0", lambda z: z**3, lambda z: 3 * z**2), "slope", "positive"
    yield CustomLink("negative at the ends", np.tanh, lambda z: 1 - 2 * np.tanh(z) ** 2), "slope", "positive"
    for part in ("mean", "slope", "primitive"):
        for value in NOT_FINITE:  # not by a NumPy warning on the way to it
            yield hole(part, value), part, "" if part == "primitive" else "finite"
    for part in ("mean", "slope"):
        for shape in (lambda y: y[:-1], lambda y: y[:, None], np.sum, np.atleast_2d):
            yield changed(LOGISTIC, part, lambda _, y, shape=shape: shape(y)), part, "shape"


@pytest.mark.parametrize(("link", "part", "reason"), list(wrong_links()))
def test_a_wrong_custom_link_is_refused_by_its_name(link: CustomLink, part: str, reason: str) -> None:
    with refuses("link", "mean", "slope", "primitive") as caught:
        link.constants(1.0, 1.0)
    assert all(word in str(caught.value) for word in (repr(link.name), part, reason))


def test_only_what_is_asked_for_of_a_custom_link_is_looked_at() -> None:
    for value in NOT_FINITE:
        assert hole("mean", value).constants(0.5, 1.0).k_mu == 0.25  # |z| <= S L
    for scale in (1e-2, 1e-4, 1e-6):
        assert rare(scale, 1.0).constants(1.0, 1.0).k_mu == pytest.approx(0.25 * scale, rel=1e-6)
    assert SOFTPLUS.constants(1.0, 1.0).k_mu == pytest.approx(expit(1.0), rel=1e-6)  # the primitive is optional
    with refuses("link", "primitive"):
        SOFTPLUS.primitive(0.0)
