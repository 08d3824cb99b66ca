"""Oracles: every algorithm of the library, transcribed literally from its paper and checked by eye.

They share no code with the library but its random numbers, and they are as slow as they are plain.
"""

from naive.adaptive import NaiveAdaptiveGLMUCB
from naive.glm import (
    NaiveBVDGLMUCB,
    NaiveDGLUCB,
    NaiveGLMUCB,
    NaiveRestartGLB,
    NaiveSCBWeightUCB,
    NaiveSCDGLUCB,
    NaiveSCSWGLUCB,
    NaiveSWBVDGLMUCB,
    NaiveSWGLUCB,
    beta,
    delta_at,
    self_concordant_radii,
)
from naive.history import LINKS, H, NaiveHistory, NaiveLink, constants, g, solve_theta_hat, theta_hat
from naive.linear import NaiveDLinUCB, NaiveLinear, NaiveOFUL
from naive.masters import NaiveBOB, NaiveBOBBVDGLMUCB, NaiveEXP3, master_schedule
from naive.projection import h_objective, h_value, p0, p0_objective, p2, p2_full, p2_objective, slsqp, symmetric_root

__all__ = [
    "LINKS",
    "H",
    "NaiveAdaptiveGLMUCB",
    "NaiveBOB",
    "NaiveBOBBVDGLMUCB",
    "NaiveBVDGLMUCB",
    "NaiveDGLUCB",
    "NaiveDLinUCB",
    "NaiveEXP3",
    "NaiveGLMUCB",
    "NaiveHistory",
    "NaiveLinear",
    "NaiveLink",
    "NaiveOFUL",
    "NaiveRestartGLB",
    "NaiveSCBWeightUCB",
    "NaiveSCDGLUCB",
    "NaiveSCSWGLUCB",
    "NaiveSWBVDGLMUCB",
    "NaiveSWGLUCB",
    "beta",
    "constants",
    "delta_at",
    "g",
    "h_objective",
    "h_value",
    "master_schedule",
    "p0",
    "p0_objective",
    "p2",
    "p2_full",
    "p2_objective",
    "self_concordant_radii",
    "slsqp",
    "solve_theta_hat",
    "symmetric_root",
    "theta_hat",
]
