"""The weighted quasi-maximum-likelihood estimator.

For each lane, with weights w_s of the observations (x_s, r_s) decided at time s (:mod:`windvane.estimation.forgetting`):

===========  ==================  ==============================================================
symbol       here                meaning
===========  ==================  ==============================================================
V            ``V``               sum w_s x_s x_s' + lam I
V tilde      ``V_tilde``         sum w_s^2 x_s x_s' + lam I
b            ``b``               sum w_s r_s x_s
g(theta)     ``moments()[0]``    sum w_s mu(<x_s, theta>) x_s + ridge theta, ridge = lam c_mu
H(theta)     ``moments()[1]``    its Jacobian: sum w_s mu'(<x_s, theta>) x_s x_s' + ridge I
theta hat    ``theta_hat``       the unique root of g(theta) = b
===========  ==================  ==============================================================

V, V_tilde and b follow their recursions, V <- gamma V + (1 - gamma) lam I and so on (with gamma^2 for V_tilde); for a
gap of n rounds, whole or not, gamma^n takes gamma's place. Only g and H need the observations themselves.

**Time is the decision's.** An observation carries the age of the decision it belongs to; a late or out-of-order reward
enters all four sums with the weight of that age. An observation of weight w counts as w equal ones.

**Bounded memory.** Observations older than ``memory`` rounds are dropped from g and H (V, V_tilde and b keep them).
Since g is ridge-strongly monotone, a dropped total weight D moves the root by at most

    ||theta_hat - theta_hat(full)|| <= D sup|mu| L / ridge,        sup over |z| <= L ||theta_hat||,

and only what keeps this within ``tolerance`` is dropped. For links bounded on the whole line (logistic, probit) that is
a guarantee; for others sup|mu| is taken over |z| <= 2 S L when dropping, and ``truncation_error`` reports the bound at
the actual theta_hat. A late observation older than the memory is ignored (unless its weight makes up for its age): with
a reward no larger than sup|mu| it could move theta_hat by at most (1 - gamma) tolerance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, Mask, check_array
from windvane.estimation.base import Estimator
from windvane.estimation.forgetting import Forgetting, Never
from windvane.kernels.lanes import FRESH, THETA_HAT, B
from windvane.kernels.threads import over_lanes
from windvane.links import Link
from windvane.state import State, refuse

ROOT_CHECK = 1e-3  # of 1 + ||theta||: a stored theta_hat further from the root than this is not one


class MaximumLikelihoodEstimator(Estimator):
    """V, V_tilde, b and theta_hat of ``lanes`` independent streams (notation: see the module).

    Parameters
    ----------
    dim
        Number of features.
    link
        Name of a link, or a :class:`windvane.Link`.
    forgetting
        ``Discount(gamma)``, ``Window(length)`` or ``Never()``.
    S, L
        Norm bounds of the parameter and of the arms.
    lam
        Regularisation.
    lanes
        Number of lanes.
    tolerance
        Bound on what dropping old observations may do to theta_hat; the root itself is certified to a hundredth of it.

    Examples
    --------
    >>> from windvane.estimation import Discount, MaximumLikelihoodEstimator
    >>> estimator = MaximumLikelihoodEstimator(2, "logistic", forgetting=Discount(0.99))
    >>> estimator.observe([[1.0, 0.0]], 1.0)
    >>> estimator.solve().round(3)
    array([[1.203, 0.   ]])
    """

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        forgetting: Forgetting = Never(),  # noqa: B008  (frozen)
        S: float = 1.0,
        L: float = 1.0,
        lam: float = 1.0,
        lanes: int = 1,
        tolerance: float = 1e-6,
    ) -> None:
        super().__init__(
            dim,
            link,
            forgetting=forgetting,
            S=S,
            L=L,
            lam=lam,
            lanes=lanes,
            tolerance=tolerance,
            linearised=True,
            remembers=True,
        )

    @property
    def pass_cost(self) -> float:
        """About how many multiply-adds one pass over all histories costs: decides whether threads are worth it."""
        return float(self.lanes * self.filled * (10 + self.dim * self.dim // 2))

    def solve(self) -> Array:
        """Bring theta_hat up to date, warm-started, and return a copy of it, [lanes, dim]."""
        with self.lock:
            self._solve(self.record, self.dense)
            return self.dense[:, THETA_HAT].copy()

    def _solve(self, record: npt.NDArray[Any], dense: Array) -> None:
        """Solve the rows, which are the estimator's own or copies of them."""
        if self.lanes == 1:
            self.kernels.solve_lanes(record, dense, self.history, self.work, self.buffers)
        else:
            rows = (record, dense, self.history)
            over_lanes(self.kernels.solve_lanes, self.pass_cost, (), rows, self.workspace)

    @property
    def theta_hat(self) -> Array:
        """The root of g(theta) = b now. Reading it changes nothing: a later ``solve`` starts as if it had not."""
        with self.lock:
            dense = self.dense.copy()
            self._solve(self.record.copy(), dense)
            return dense[:, THETA_HAT].copy()

    @property
    def remembered(self) -> Index:
        """How many observations each lane holds."""
        return self.count

    @property
    def root_error(self) -> Array:
        """A bound on the distance of the last solved theta_hat from the root of the remembered history.

        In exact arithmetic: rounding, of order 1e-15 (||b|| + sum w |mu| L) / lambda_min(H), comes on top. It matters
        only with extreme weights or next to no regularisation.
        """
        return self.record["error"].copy()

    @property
    def root_passes(self) -> Index:
        """How many passes over the history the last solve took."""
        return self.record["passes"].copy()

    @property
    def truncation_error(self) -> Array:
        """A bound on what dropping old observations did to theta_hat: D sup|mu| L / ridge at the actual theta_hat."""
        reach = self.L * np.linalg.norm(self.theta_hat, axis=1)
        bound = np.array([self.link.mean_bound(z) for z in reach])
        return np.asarray(self.record["dropped"] * bound * self.L / self.ridge)

    def moments(self, theta: npt.ArrayLike) -> tuple[Array, Array]:
        """Return g(theta) and H(theta), with ``theta`` of shape [lanes, dim]."""
        theta = check_array("theta", theta, (self.lanes, self.dim))
        g, H = np.empty((self.lanes, self.dim)), np.empty((self.lanes, self.dim, self.dim))
        with self.lock:
            rows = (theta, g, H, self.record, self.history)
            over_lanes(self.kernels.moments_lanes, self.pass_cost, (), rows, lambda k: self.workspace(k)[1:])
        return g, H

    def absorb(self, x: Array, reward: Array, age: Array, weight: Array, mask: Mask) -> None:
        """Take in one observation per lane, for arguments that have been checked."""
        with self.lock:
            self.make_room()
            self.kernels.observe_lanes(x, reward, age, weight, mask, self.record, self.dense, self.history)

    def check_fields(self, fields: State, path: str) -> None:
        """Raise ``ArgumentError`` also if a theta_hat that counts as solved is not the root of its history."""
        super().check_fields(fields, path)
        for lane in np.flatnonzero(fields["status"] == FRESH):
            theta, b = fields["dense"][lane, THETA_HAT], fields["dense"][lane, B]
            rows = fields["history"][lane, :, : fields["count"][lane]]
            X, w = rows[: self.dim], rows[self.dim] * fields["scale"][lane]
            z = theta @ X
            g = X @ (w * self.link.mean(z)) + self.ridge * theta
            H = (X * (w * self.link.slope(z))) @ X.T + self.ridge * np.eye(self.dim)
            away = np.linalg.norm(np.linalg.solve(H, g - b))
            if not away <= ROOT_CHECK * (1.0 + np.linalg.norm(theta)) + fields["error"][lane]:
                raise refuse(path, "dense", theta, f"the root of the history beside it, in lane {lane}")
