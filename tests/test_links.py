"""Links: derivatives, monotonicity, stability far out, constants against a grid, and what a custom link must prove."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, ndtr

from windvane.links import LINKS, CustomLink, Identity, Link, Logistic, Poisson, Probit, get_link

relaxed = settings(deadline=None, max_examples=60)

BUILT_IN = [Logistic(), Poisson(), Probit(), Identity()]


def custom_copy(link: Link, **changes: Any) -> CustomLink:
    parts = {"mean": link.mean, "slope": link.slope, "primitive": link.primitive} | changes
    return CustomLink(f"my {link.name}", **parts)


# mu(z) = log(1 + e^z), slope expit(z): a link the library does not have. Its primitive is -Li2(-e^z), left out.
SOFTPLUS = CustomLink("softplus", lambda z: np.logaddexp(0.0, z), expit)
ALL = [*BUILT_IN, custom_copy(Logistic()), SOFTPLUS]

# Multiples of 2^-20: z + h and z + 2h are then exact for h = 2^-10, and the difference quotient keeps its digits.
exact_z = st.integers(-30 * 2**20, 30 * 2**20).map(lambda k: k * 2.0**-20)
sizes = st.floats(0.05, 2.5)
links = pytest.mark.parametrize("link", ALL, ids=repr)
built_in = pytest.mark.parametrize("link", BUILT_IN, ids=lambda link: link.name)


def derivative(function: Callable[[np.ndarray], np.ndarray], z: float) -> float:
    """Five-point stencil, h = 2^-10: truncation h^4/30 |f5| ~ 3e-14 |f5|, rounding ~ 2 eps |f| / h ~ 4e-13 |f|."""
    h = 2.0**-10
    far_left, left, right, far_right = function(np.array([z - 2 * h, z - h, z + h, z + 2 * h]))
    return float((8 * (right - left) - (far_right - far_left)) / (12 * h))


@links
@relaxed
@given(z=exact_z)
def test_slope_is_the_derivative_of_the_mean(link: Link, z: float) -> None:
    """4e-12 (1 + |mu|): ten times the stencil's own error."""
    assert derivative(link.mean, z) == pytest.approx(float(link.slope(z)), rel=0, abs=4e-12 * (1 + abs(link.mean(z))))


@pytest.mark.parametrize("link", ALL[:-1], ids=repr)
@relaxed
@given(z=exact_z)
def test_mean_is_the_derivative_of_the_primitive(link: Link, z: float) -> None:
    scale = 1 + abs(float(link.primitive(z)))
    assert derivative(link.primitive, z) == pytest.approx(float(link.mean(z)), rel=0, abs=4e-12 * scale)


@links
@relaxed
@given(z=exact_z, gap=st.floats(1e-9, 10.0))
def test_the_mean_never_decreases_and_the_slope_is_positive(link: Link, z: float, gap: float) -> None:
    assert link.mean(z + gap) >= link.mean(z)
    assert link.slope(z) > 0


@links
@relaxed
@given(z=st.floats(-30.0, 0.0), gap=st.floats(1e-9, 10.0))
def test_the_mean_strictly_increases(link: Link, z: float, gap: float) -> None:
    """Left of 0 no link saturates: a gap of 1e-9 changes each mean by at least 3e-10 of itself (identity: of 30)."""
    assert link.mean(z - gap) < link.mean(z)


@pytest.mark.parametrize("link", [Logistic(), Probit()], ids=["logistic", "probit"])
@relaxed
@given(z=st.floats(-700.0, 700.0))
def test_binary_links_are_symmetric(link: Link, z: float) -> None:
    """mu(z) + mu(-z) = 1 and mu'(z) = mu'(-z), which carries what is tested left of 0 to the right."""
    assert link.mean(z) + link.mean(-z) == pytest.approx(1.0, rel=0, abs=2.3e-16)
    assert link.slope(z) == link.slope(-z)


# --- far from the origin -------------------------------------------------------------------------------------------


@built_in
@pytest.mark.parametrize("z", [0.0, 1e-300, 1.0, 36.0, 38.0, 40.0, 300.0, 700.0])
def test_every_function_is_finite_and_in_range_up_to_700(link: Link, z: float) -> None:
    """No overflow (warnings are errors here), no zero slope, means within the link's range."""
    for point in (z, -z):
        mean, slope, primitive = link.mean(point), link.slope(point), link.primitive(point)
        assert np.isfinite([mean, slope, primitive]).all()
        assert slope > 0
        if link.name in ("logistic", "probit"):
            assert 0 <= mean <= 1
            assert primitive >= max(0.0, point) - 1e-15 * abs(point)
        if link.name in ("logistic", "poisson"):
            assert mean > 0


@relaxed
@given(z=st.floats(-700.0, 700.0))
def test_logistic_keeps_its_relative_accuracy(z: float) -> None:
    """mu' = 1 / (4 cosh^2(z/2)) to a few rounding errors; in the tails that is exp(-|z|), and so is mu(-|z|)."""
    link = Logistic()
    assert link.slope(z) == pytest.approx(0.25 / math.cosh(z / 2) ** 2, rel=2e-15, abs=0)
    if abs(z) >= 40:
        assert link.slope(z) == pytest.approx(math.exp(-abs(z)), rel=5e-16, abs=0)
        assert link.mean(-abs(z)) == pytest.approx(math.exp(-abs(z)), rel=5e-16, abs=0)
        assert link.mean(abs(z)) == 1.0
        assert link.primitive(abs(z)) == abs(z)


@relaxed
@given(z=st.floats(-37.0, 37.0))
def test_probit_slope_keeps_its_relative_accuracy(z: float) -> None:
    """exp(-z^2/2) / sqrt(2 pi); the rounding of z^2/2 costs z^2/2 of a rounding error."""
    expected = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    assert Probit().slope(z) == pytest.approx(expected, rel=2.3e-16 * (2 + z * z), abs=0)


@relaxed
@given(z=st.floats(-700.0, 700.0))
def test_poisson_is_the_exponential(z: float) -> None:
    for function in (Poisson().mean, Poisson().slope, Poisson().primitive):
        assert function(z) == pytest.approx(math.exp(z), rel=4e-16, abs=0)


def test_poisson_is_held_beyond_708() -> None:
    assert Poisson().mean(1e6) == Poisson().mean(708.0) == pytest.approx(math.exp(708.0), rel=1e-15)
    assert Poisson().mean(-1e6) == Poisson().mean(-708.0) > 0


@relaxed
@given(z=st.floats(-700.0, 700.0))
def test_agreement_with_scipy(z: float) -> None:
    assert Logistic().mean(z) == pytest.approx(expit(z), rel=5e-16, abs=0)
    assert Logistic().slope(z) == pytest.approx(expit(z) * expit(-z), rel=2e-15, abs=0)
    assert Probit().mean(z) == ndtr(z)


@built_in
def test_input_may_be_a_scalar_a_list_or_an_array_and_is_never_returned(link: Link) -> None:
    for function in (link.mean, link.slope, link.primitive):
        assert np.shape(function(1)) == ()
        assert np.shape(function([[0, 1, 2]])) == (1, 3)
        z = np.array([-1.0, 2.0])
        result = function(z)
        assert result.dtype == float
        assert not np.shares_memory(result, z)


# --- constants -----------------------------------------------------------------------------------------------------


def test_the_papers_constants() -> None:
    """The constants of the paper's experiment: logistic, S = L = 1."""
    constants = Logistic().constants(1.0, 1.0)
    assert constants.k_mu == 0.25
    assert constants.c_mu == pytest.approx(math.e / (1 + math.e) ** 2, rel=1e-15)
    assert constants.c_mu == pytest.approx(0.196612, abs=5e-7)
    assert constants.R_mu == pytest.approx(1.271540, abs=5e-7)


@built_in
@relaxed
@given(S=sizes, L=sizes)
def test_constants_are_the_extremes_of_the_slope(link: Link, S: float, L: float) -> None:
    """The grid holds 0 and both ends, where the extremes of the built-in slopes lie."""
    grid = link.slope(np.linspace(-S * L, S * L, 2001))
    constants = link.constants(S, L)
    assert constants.k_mu == pytest.approx(grid.max(), rel=1e-14)
    assert constants.c_mu == pytest.approx(grid.min(), rel=1e-14)
    assert constants.R_mu == constants.k_mu / constants.c_mu >= 1


@built_in
@relaxed
@given(S=sizes, L=sizes)
def test_constants_of_a_custom_copy(link: Link, S: float, L: float) -> None:
    ours, theirs = link.constants(S, L), custom_copy(link).constants(S, L)
    assert theirs.k_mu == pytest.approx(ours.k_mu, rel=1e-6)
    assert theirs.c_mu == pytest.approx(ours.c_mu, rel=1e-6)


@relaxed
@given(shift=st.floats(-3.0, 3.0), reach=st.floats(0.1, 10.0))
def test_custom_constants_where_the_extreme_is_on_no_grid_point(shift: float, reach: float) -> None:
    """mu(z) = expit(z - shift): mu' is largest at z = shift if that is within reach, least at the end beyond it."""
    link = CustomLink("shifted", lambda z: expit(z - shift), lambda z: Logistic().slope(z - shift))
    constants = link.constants(reach, 1.0)
    nearest = max(0.0, abs(shift) - reach)
    assert constants.k_mu == pytest.approx(float(Logistic().slope(nearest)), rel=1e-6)
    assert constants.c_mu == pytest.approx(float(Logistic().slope(reach + abs(shift))), rel=1e-6)


@links
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, "one", None])
def test_constants_refuse_what_is_not_a_positive_number(link: Link, bad: Any) -> None:
    with pytest.raises(ValueError, match=r"^`S` must be"):
        link.constants(bad, 1.0)
    with pytest.raises(ValueError, match=r"^`L` must be"):
        link.constants(1.0, bad)


@pytest.mark.parametrize(("link", "fine", "too_flat"), [(Logistic(), 27, 31), (Poisson(), 13, 15), (Probit(), 7, 8)])
def test_constants_refuse_a_link_too_flat_for_doubles(link: Link, fine: float, too_flat: float) -> None:
    """R_mu beyond 1e12: e^29/4 for the logistic, e^28 for Poisson, e^(7.4^2/2) for probit."""
    assert link.constants(fine, 1.0).R_mu < 1e12
    for each in (link, custom_copy(link)):
        with pytest.raises(ValueError, match=r"^`S \* L` must be at most"):
            each.constants(too_flat, 1.0)
    assert Identity().constants(1e6, 1.0).R_mu == 1.0


@links
@relaxed
@given(largest=st.floats(0.0, 20.0), share=st.floats(-1.0, 1.0))
def test_mean_bound_bounds(link: Link, largest: float, share: float) -> None:
    """|mu(z)| <= mean_bound for |z| <= largest; a globally bounded link's bound holds everywhere."""
    assert abs(link.mean(share * largest)) <= link.mean_bound(largest)
    if link.name in ("logistic", "probit"):
        assert abs(link.mean(1e3 * share)) <= link.mean_bound(largest) == 1.0
    else:
        assert link.mean_bound(largest) == max(abs(float(link.mean(largest))), abs(float(link.mean(-largest))))


@links
def test_reward_range(link: Link) -> None:
    """[0, 2 sigma] (Assumption 2); the identity link takes any reward."""
    expected = (-math.inf, math.inf) if link.name == "identity" else (0.0, 3.0)
    assert link.reward_range(1.5) == expected


def test_a_custom_link_may_take_any_reward() -> None:
    link = CustomLink("linear", lambda z: 1.0 * z, np.ones_like, any_reward=True)
    assert link.reward_range(0.5) == (-math.inf, math.inf)


# --- get_link ------------------------------------------------------------------------------------------------------


def test_get_link_by_name_and_as_it_is() -> None:
    for name, kind in LINKS.items():
        assert type(get_link(name)) is kind
        assert get_link(name).name == name
    assert get_link(SOFTPLUS) is SOFTPLUS
    assert len({link.code for link in BUILT_IN}) == len(BUILT_IN)


@pytest.mark.parametrize("bad", ["tanh", "Logistic", "", None, 1, Logistic, ["logistic"]])
def test_get_link_refuses_the_rest_and_says_what_there_is(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"^`link` must be one of identity, logistic, poisson, probit"):
        get_link(bad)


# --- what a custom link must prove ---------------------------------------------------------------------------------


def refused(link: CustomLink, why: str, reach: float = 1.0) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        link.constants(reach, 1.0)
    assert repr(link.name) in str(caught.value)


@built_in
@pytest.mark.parametrize("factor", [0.99, 1.01, 2.0])
def test_a_wrong_slope_is_refused(link: Link, factor: float) -> None:
    refused(custom_copy(link, slope=lambda z: factor * link.slope(z)), "slope is not the derivative of mean")


@built_in
@pytest.mark.parametrize("factor", [0.99, 1.01, 2.0])
def test_a_wrong_primitive_is_refused(link: Link, factor: float) -> None:
    refused(
        custom_copy(link, primitive=lambda z: factor * link.primitive(z)), "mean is not the derivative of primitive"
    )


@pytest.mark.parametrize("scale", [1e-2, 1e-4, 1e-6])
def test_a_wrong_slope_is_refused_at_any_scale(scale: float) -> None:
    """A conversion rate of a few per million is a link like any other: right accepted, twice the slope refused."""

    def with_slope(factor: float) -> CustomLink:
        return CustomLink("rare", lambda z: scale * expit(z), lambda z: factor * scale * Logistic().slope(z))

    assert with_slope(1.0).constants(1.0, 1.0).k_mu == pytest.approx(0.25 * scale, rel=1e-6)
    refused(with_slope(2.0), "slope is not the derivative of mean")


def test_a_slope_wrong_in_one_place_only_is_refused() -> None:
    link = custom_copy(Logistic(), slope=lambda z: Logistic().slope(z) + 0.01 * (np.abs(z - 0.7) < 0.01))
    refused(link, "slope is not the derivative of mean")


@pytest.mark.parametrize(
    ("mean", "slope"),
    [
        (lambda z: -z, lambda z: -np.ones_like(z)),
        (np.zeros_like, np.zeros_like),
        (lambda z: z**3, lambda z: 3 * z**2),
        (np.tanh, lambda z: 1 - 2 * np.tanh(z) ** 2),
    ],
    ids=["decreasing", "flat", "flat at 0", "a negative slope at the ends"],
)
def test_a_slope_that_is_not_positive_is_refused(mean: Callable[..., Any], slope: Callable[..., Any]) -> None:
    refused(CustomLink("bad", mean, slope), "slope is positive")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_refused(value: float) -> None:
    def hole(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda z: np.where(z > 0.9, value, function(z))

    link = Logistic()
    refused(custom_copy(link, mean=hole(link.mean)), "are finite")
    refused(custom_copy(link, slope=hole(link.slope)), "are finite")
    assert custom_copy(link, mean=hole(link.mean)).constants(0.5, 1.0).k_mu == 0.25  # only |z| <= S L is looked at


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_primitive_that_is_not_finite_is_refused(value: float) -> None:
    """By the documented error, not by a NumPy warning on the way to it."""
    refused(custom_copy(Logistic(), primitive=lambda z: np.where(z > 0.9, value, Logistic().primitive(z))), "primitive")


@pytest.mark.parametrize("shape", [lambda y: y[:-1], lambda y: y[:, None], np.sum, np.atleast_2d])
def test_a_wrong_shape_is_refused(shape: Callable[..., Any]) -> None:
    link = Logistic()
    refused(custom_copy(link, mean=lambda z: shape(link.mean(z))), "same shape")
    refused(custom_copy(link, slope=lambda z: shape(link.slope(z))), "same shape")


def test_the_primitive_is_optional_but_must_exist_to_be_asked() -> None:
    assert SOFTPLUS.constants(1.0, 1.0).k_mu == pytest.approx(expit(1.0), rel=1e-6)
    with pytest.raises(ValueError, match=r"a primitive.*softplus"):
        SOFTPLUS.primitive(0.0)


@built_in
def test_the_largest_product_is_accepted_and_a_percent_more_is_refused(link: Link) -> None:
    """Three digits are kept, rounded down: what is named is allowed, and one percent more is not."""
    largest = link.largest_product
    if isinstance(link, Identity):
        assert largest == math.inf
        return
    link.constants(largest, 1.0)
    with pytest.raises(ValueError, match=rf"`S \* L` must be at most {largest:g} with the {link.name} link") as caught:
        link.constants(1.01 * largest, 1.0)
    assert "R_mu" not in str(caught.value)


def test_the_largest_product_of_a_custom_link_that_is_not_finite_far_out() -> None:
    bounded = CustomLink("my exp", np.exp, np.exp)
    assert bounded.largest_product == Poisson().largest_product
