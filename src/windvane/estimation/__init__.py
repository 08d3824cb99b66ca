"""Estimators of a drifting parameter for many lanes, and the rules by which they forget."""

from windvane.estimation.base import Estimator, RidgeEstimator
from windvane.estimation.ecolog import ECOLogEstimator, RejectedRewards
from windvane.estimation.expansion import Expansion
from windvane.estimation.forgetting import Discount, Forgetting, Never, Restart, Window
from windvane.estimation.mle import MaximumLikelihoodEstimator, Projection
from windvane.estimation.one_pass import OnePassEstimator
from windvane.estimation.online_newton import OnlineNewtonEstimator

__all__ = [
    "Discount", "ECOLogEstimator", "Estimator", "Expansion", "Forgetting", "MaximumLikelihoodEstimator", "Never",
    "OnePassEstimator", "OnlineNewtonEstimator", "Projection", "RejectedRewards", "Restart", "RidgeEstimator",
    "Window",
]  # fmt: skip
