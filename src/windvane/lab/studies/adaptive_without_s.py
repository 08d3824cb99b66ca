"""AdaptiveGLMUCB without S, for the study ``no-tuning``. It has a module of its own because it imports numba."""

from __future__ import annotations

from dataclasses import field

from windvane.policies.adaptive_glm_ucb import AdaptiveGLMUCB


class AdaptiveWithoutS(AdaptiveGLMUCB):
    """AdaptiveGLMUCB without the argument S, so that the lab cannot set it."""

    S: float | None = field(default=None, init=False)

    name = "AdaptiveGLMUCB without S"
