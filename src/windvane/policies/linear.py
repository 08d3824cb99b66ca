"""Policies for linear rewards: their common class, and a table of their parts.

The rewards are r_s = <x_s, theta*_s> + noise. At round t, the reward of round s < t has weight w_s, and

    V_t = sum w_s x_s x_s' + lam I,   V_tilde_t = sum w_s^2 x_s x_s' + lam I,   b_t = sum w_s r_s x_s
    theta_hat_t = V_t^-1 b_t
    x_t         = argmax over the arms of <x, theta_hat_t> + bonus_scale beta_t ||x||_M

=============  ==================================  ============================================  =====================
policy         weight w_s                          beta_t                                        M
=============  ==================================  ============================================  =====================
OFUL           1                                   from log det V_t                              V^-1
D-LinUCB       gamma^(t-1-s)                       :class:`windvane.theory.Radius`, c_mu = 1     V^-1 V_tilde V^-1
LB-WeightUCB   gamma^(t-1-s)                       as D-LinUCB                                   V^-1
SW-LinUCB      1 in the last w rounds              a constant that depends on w, see its file    V^-1
RestartUCB     1 since the last restart            as D-LinUCB, gamma = 1, t from the restart    V^-1
D-RandLinUCB   gamma^(t-1-s)                       that of D-LinUCB times a half-normal number   V^-1 V_tilde V^-1
D-LinTS        gamma^(t-1-s)                       0; theta_hat_t is perturbed instead           -
=============  ==================================  ============================================  =====================

Rewards can be any finite numbers. sigma is the sub-Gaussian scale of the noise (1/2 for rewards in [0, 1]). No
guarantee of these policies covers generalized linear rewards, because the model is then misspecified.
"""

from __future__ import annotations

from windvane.policies.optimism import OptimisticPolicy


class LinearPolicy(OptimisticPolicy):
    """Ridge regression with a bonus."""
