"""Closed-form quantities of Faury, Russac, Abeille and Calauzenes (2021): radii, discounts, lemmas, theorems.

Everything here is a formula: no state, no randomness, no optimisation. ``gamma``, ``delta`` and ``t`` may be floats or
NumPy arrays (lanes) that broadcast; a function returns a Python float if all of them are scalars. Arguments outside
their range, and shapes that do not broadcast, raise :class:`windvane.errors.ArgumentError`.

Arguments have the paper's names, or ``lam`` for lambda, ``dim`` for d, ``horizon`` for T, ``drift`` for B_T (the sum
over t < T of ||theta*_{t+1} - theta*_t||) and ``depth`` for D. V_t is the sum of gamma^(t-1-s) x_s x_s' + lam I, and
Vtilde_t the same with gamma^2. R_mu is k_mu / c_mu. H, N and alpha are the block length, the number of discounts and
the EXP3 rate of the meta-algorithm.

Coverage. The paper's Lemma 1 claims its radius for all rounds at once. As printed that cannot hold: with gamma < 1 the
radius is bounded in t while the discounted noise is stationary, so a long run leaves it (with Gaussian noise, almost
surely). It does hold at any fixed round ("pointwise"). "horizon" and "anytime" restore coverage of all rounds by a
union bound. Theorems 1 and 2 need one of those two.
"""

# isort: off
# fmt: off
from windvane.theory.formula import ARM_GEOMETRIES, CONFIDENCES, Lanes
from windvane.theory.likelihood import LikelihoodRatioRadius, LogLossRadius
from windvane.theory.online import ECOLogRadius, OnlineToConfidenceRadius
from windvane.theory.radii import (
    ConfidenceLevel, Growth, OFULRadius, Radius, confidence_level, discounted_count, radius,
)
from windvane.theory.self_concordant import SelfConcordantRadius, WeightedSelfConcordantRadius
from windvane.theory.theorems import (
    Problem, RegretBound, UnknownDriftBound, determinant_trace_bound, elliptical_potential_bound, regret_bound,
    regret_bound_unknown_drift, tracking_bound, trivial_bound,
)
from windvane.theory.tuning import (
    block_length, discount, discount_grid, exp3_batch, exp3_rate, sharing_rate, switching_discount, switching_window,
    weight_discount, window_grid, window_length,
)

__all__ = [
    "ARM_GEOMETRIES", "CONFIDENCES", "ConfidenceLevel", "ECOLogRadius", "Growth", "Lanes", "LikelihoodRatioRadius",
    "LogLossRadius", "OFULRadius", "OnlineToConfidenceRadius", "Problem", "Radius", "RegretBound",
    "SelfConcordantRadius", "UnknownDriftBound", "WeightedSelfConcordantRadius", "block_length", "confidence_level",
    "determinant_trace_bound", "discount", "discount_grid", "discounted_count", "elliptical_potential_bound",
    "exp3_batch", "exp3_rate", "radius", "regret_bound", "regret_bound_unknown_drift", "sharing_rate",
    "switching_discount", "switching_window", "tracking_bound", "trivial_bound", "weight_discount", "window_grid",
    "window_length",
]
