"""Closed-form quantities of Faury, Russac, Abeille and Calauzenes (2021): radii, discounts, lemmas, theorems.

Everything here is a formula: no state, no randomness, no optimisation. ``gamma``, ``delta`` and ``t`` may be floats or
NumPy arrays (lanes) that broadcast; a function returns a Python float if all of them are scalars. Arguments outside
their range, and shapes that do not broadcast, raise :class:`windvane.errors.ArgumentError`.

===================  ===================  ====================================================================
symbol in the paper  argument             meaning
===================  ===================  ====================================================================
gamma                ``gamma``            discount, in (0, 1]
delta                ``delta``            confidence parameter, in (0, 1]
lambda               ``lam``              regularisation, > 0
sigma                ``sigma``            rewards lie in [0, 2 sigma]; the noise is sigma-sub-Gaussian
k_mu, c_mu           ``k_mu``, ``c_mu``   sup and inf of mu' over ``|z| <= S L``; R_mu = k_mu / c_mu
theta*, Theta        ``S``                every parameter has 2-norm at most S
x, X_t               ``L``                every arm has 2-norm at most L
d, T                 ``dim, horizon``     dimension, number of rounds
B_T, B_{T,*}         ``drift``            sum over t < T of ||theta*_{t+1} - theta*_t||
kind                 ``kind``             action sets: "orthogonal" (every arm a multiple of an axis) or "general"
D                    ``depth``            rounds that the tracking lemmas count as recent
V_t, Vtilde_t        (through log det)    sum of gamma^(t-1-s) x_s x_s' + lam I; the same with gamma^2
H, N, alpha          (returned)           block length, number of discounts, EXP3 rate of the meta-algorithm
===================  ===================  ====================================================================

Coverage. The paper's Lemma 1 claims its radius for all rounds at once. As printed that cannot hold: with gamma < 1 the
radius is bounded in t while the discounted noise is stationary, so a long run leaves it (with Gaussian noise, almost
surely). What holds is coverage at a fixed round ("pointwise"); "horizon" and "anytime" restore a statement about all
rounds by a union bound. Theorems 1 and 2 need one of those two.
"""

from __future__ import annotations

from windvane.theory.array_arguments import KINDS, Lanes
from windvane.theory.lemmas import determinant_trace_bound, elliptical_potential_bound, tracking_bound
from windvane.theory.radii import (
    CONFIDENCES,
    ConfidenceLevel,
    Growth,
    OFULRadius,
    Radius,
    confidence_level,
    discounted_count,
    radius,
)
from windvane.theory.regret import (
    Problem,
    RegretBound,
    UnknownDriftBound,
    regret_bound,
    regret_bound_unknown_drift,
    trivial_bound,
)
from windvane.theory.self_concordant import SelfConcordantRadius, WeightedSelfConcordantRadius
from windvane.theory.tuning import (
    block_length,
    discount,
    discount_grid,
    exp3_rate,
    weight_discount,
    window_grid,
    window_length,
)

__all__ = [
    "CONFIDENCES", "KINDS", "ConfidenceLevel", "Growth", "Lanes", "OFULRadius", "Problem", "Radius", "RegretBound",
    "SelfConcordantRadius", "UnknownDriftBound", "WeightedSelfConcordantRadius", "block_length", "confidence_level",
    "determinant_trace_bound", "discount", "discount_grid", "discounted_count", "elliptical_potential_bound",
    "exp3_rate", "radius", "regret_bound", "regret_bound_unknown_drift", "tracking_bound", "trivial_bound",
    "weight_discount", "window_grid", "window_length",
]  # fmt: skip
