"""Estimators of a drifting parameter for many lanes, and the rules by which they forget."""

from windvane.estimation.base import Estimator, RidgeEstimator
from windvane.estimation.expansion import Expansion
from windvane.estimation.forgetting import Discount, Forgetting, Never, Restart, Window
from windvane.estimation.mle import MaximumLikelihoodEstimator, Projection
from windvane.estimation.one_pass import OnePassEstimator

__all__ = [
    "Discount", "Estimator", "Expansion", "Forgetting", "MaximumLikelihoodEstimator", "Never", "OnePassEstimator",
    "Projection", "Restart", "RidgeEstimator", "Window",
]  # fmt: skip
