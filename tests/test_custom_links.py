"""What a custom link must prove."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from support.links import SOFTPLUS, built_in, custom_copy
from support.refusals import refuses
from windvane import CustomLink
from windvane.links import Link, Logistic, Poisson


def refused(link: CustomLink, *words: str, reach: float = 1.0) -> None:
    """Expect the link to be refused by its name, for a reason that has these words."""
    with refuses("link", "mean", "slope", "primitive") as caught:
        link.constants(reach, 1.0)
    assert all(word in str(caught.value) for word in (repr(link.name), *words))


@built_in
@pytest.mark.parametrize("factor", [0.99, 1.01, 2.0])
def test_a_wrong_slope_is_refused(link: Link, factor: float) -> None:
    refused(custom_copy(link, slope=lambda z: factor * link.slope(z)), "slope", "derivative")


@built_in
@pytest.mark.parametrize("factor", [0.99, 1.01, 2.0])
def test_a_wrong_primitive_is_refused(link: Link, factor: float) -> None:
    refused(custom_copy(link, primitive=lambda z: factor * link.primitive(z)), "primitive", "derivative")


@pytest.mark.parametrize("scale", [1e-2, 1e-4, 1e-6])
def test_a_wrong_slope_is_refused_at_any_scale(scale: float) -> None:
    """A conversion rate of a few per million is a link like any other: right accepted, twice the slope refused."""

    def with_slope(factor: float) -> CustomLink:
        return CustomLink("rare", lambda z: scale * expit(z), lambda z: factor * scale * Logistic().slope(z))

    assert with_slope(1.0).constants(1.0, 1.0).k_mu == pytest.approx(0.25 * scale, rel=1e-6)
    refused(with_slope(2.0), "slope", "derivative")


def test_a_slope_wrong_in_one_place_only_is_refused() -> None:
    link = custom_copy(Logistic(), slope=lambda z: Logistic().slope(z) + 0.01 * (np.abs(z - 0.7) < 0.01))
    refused(link, "slope", "derivative")


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
    refused(CustomLink("bad", mean, slope), "slope", "positive")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_refused(value: float) -> None:
    def hole(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda z: np.where(z > 0.9, value, function(z))

    link = Logistic()
    refused(custom_copy(link, mean=hole(link.mean)), "finite")
    refused(custom_copy(link, slope=hole(link.slope)), "finite")
    assert custom_copy(link, mean=hole(link.mean)).constants(0.5, 1.0).k_mu == 0.25  # only |z| <= S L is looked at


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_primitive_that_is_not_finite_is_refused(value: float) -> None:
    """By the documented error, not by a NumPy warning on the way to it."""
    refused(custom_copy(Logistic(), primitive=lambda z: np.where(z > 0.9, value, Logistic().primitive(z))), "primitive")


@pytest.mark.parametrize("shape", [lambda y: y[:-1], lambda y: y[:, None], np.sum, np.atleast_2d])
def test_a_wrong_shape_is_refused(shape: Callable[..., Any]) -> None:
    link = Logistic()
    refused(custom_copy(link, mean=lambda z: shape(link.mean(z))), "shape")
    refused(custom_copy(link, slope=lambda z: shape(link.slope(z))), "shape")


def test_the_primitive_is_optional_but_must_exist_to_be_asked() -> None:
    assert SOFTPLUS.constants(1.0, 1.0).k_mu == pytest.approx(expit(1.0), rel=1e-6)
    with refuses("link", "primitive"):
        SOFTPLUS.primitive(0.0)


def test_the_largest_product_of_a_custom_link_that_is_not_finite_far_out() -> None:
    bounded = CustomLink("my exp", np.exp, np.exp)
    assert bounded.largest_product == Poisson().largest_product
