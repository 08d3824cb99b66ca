"""Policies as experiments of papers ran them, where that is not what the paper says. They are not registered.

``papers/*.toml`` name them. Use the registered policies for anything but reproducing those experiments.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windvane.arguments import Array, Mask
from windvane.arms import ArmSet
from windvane.errors import ArgumentError
from windvane.linalg import apply_with_ridge
from windvane.policies import DGLUCB, GLMUCB, DLinUCB, RestartUCB
from windvane.policies.inputs import Feedback


class PublicCodeDLinUCB(DLinUCB):
    """D-LinUCB with the V_tilde of its authors' public code, which drew the figures of Russac et al. 2019.

    After the reward of round s, the code computes

        V       <- gamma V + x_s x_s' + (1 - gamma) lam I
        V_tilde <- gamma^2 V + x_s x_s' + (1 - gamma^2) lam I                 with the new V, which has x_s already

    where the paper has gamma^2 V_tilde in the second line. So V_tilde is about V, not about V / 2, and the bonus is
    about sqrt(2) times as large as the paper's.

    >>> PublicCodeDLinUCB(dim=2, gamma=0.99).select([[[1.0, 0.0]]])
    array([0])
    """

    name = "D-LinUCB (public code)"
    stored = (*DLinUCB.stored, "last_arm")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.last_arm = np.zeros((self.lane_count, self.dim))  # of the last reward

    def learn(self, feedback: Feedback) -> None:
        """Learn checked rewards, and keep their arms for V_tilde."""
        super().learn(feedback)
        self.last_arm = np.where(feedback.mask[:, None], feedback.x, self.last_arm)

    def forget(self, mask: Mask) -> None:
        """Reset some lanes."""
        super().forget(mask)
        self.last_arm = np.where(mask[:, None], 0.0, self.last_arm)

    def bonus(self, arms: Array, multiplier: Array) -> Array:
        """Return multiplier ||x|| in the metric V^-1 V_tilde V^-1 of the code for every arm, [lanes, K]."""
        V, lam, x = self.estimator.V, self.estimator.lam, self.last_arm
        decay = np.broadcast_to(self.estimator.gamma**2, self.lane_count)[:, None, None]
        V_tilde = decay * V + x[:, :, None] * x[:, None, :] + (1.0 - decay) * lam * np.eye(self.dim)
        inverse = apply_with_ridge(np.linalg.inv, V)
        squares = np.einsum("lki,lij,lkj->lk", arms, inverse @ V_tilde @ inverse, arms)
        return np.asarray(multiplier[:, None] * np.sqrt(squares))

    def select_from(self, arm_set: ArmSet) -> Array:
        """Refuse: the code has only finite sets of arms."""
        raise ArgumentError("arm_set", arm_set, "a finite set of arms, as in the public code")


class KnownChangesLinUCB(RestartUCB):
    """LinUCB that restarts when theta* changes: the "LinUCB-OR" of Russac et al. 2019.

    Parameters
    ----------
    changes
        The first rounds of new parameters.

    >>> KnownChangesLinUCB(dim=2, restart_every=100, changes=[20, 50]).select([[[1.0, 0.0]]])
    array([0])
    """

    changes: Sequence[int] = ()
    name = "LinUCB-OR"

    def end_round(self) -> None:
        """End the round, and restart all lanes before the first round of a new parameter."""
        super().end_round()
        if self.t in self.changes:
            self.restart()


class UnprojectedGLMUCB(GLMUCB):
    """GLM-UCB without its projection: Russac et al. 2021 bypass it.

    >>> UnprojectedGLMUCB(dim=2).select([[[1.0, 0.0]]])
    array([0])
    """

    name = "GLM-UCB (no projection)"

    def project(self, beta: Array) -> None:  # type: ignore[override]  # the policy itself always projects
        """Return no projection."""
        return None


class UnprojectedDGLUCB(DGLUCB):
    """D-GLUCB without its projection: Russac et al. 2021 bypass it.

    >>> UnprojectedDGLUCB(dim=2, gamma=0.99).select([[[1.0, 0.0]]])
    array([0])
    """

    name = "D-GLUCB (no projection)"

    def project(self, beta: Array) -> None:  # type: ignore[override]  # the policy itself always projects
        """Return no projection."""
        return None
