"""The weighted quasi-maximum-likelihood estimator.

In each lane, observation (x_s, r_s) of the decision at time s has weight w_s
(:mod:`windvane.estimation.forgetting`):

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

V, V_tilde and b are updated recursively: V <- gamma V + (1 - gamma) lam I, and so on (with gamma^2 for V_tilde). For a
gap of n rounds, which need not be a whole number, gamma^n replaces gamma. Only g and H need the stored observations.

**The clock counts decisions.** An observation has the age of its decision. A late or out-of-order reward enters V,
V_tilde, b and g with the weight of that age. An observation of weight w counts as w equal observations.

**Bounded memory.** Observations older than ``memory`` rounds are dropped from g and H (V, V_tilde and b keep them).
Because g is ridge-strongly monotone, dropping a total weight D moves the root by at most

    ||theta_hat - theta_hat(full)|| <= D sup|mu| L / ridge,        sup over |z| <= L ||theta_hat||,

and observations are dropped only while this bound is at most ``tolerance``. For links that are bounded on the whole
line (logistic, probit) this is a guarantee. For other links the bound uses sup|mu| over |z| <= 2 S L, and
``truncation_error`` reports the bound at the actual theta_hat. A late observation older than the memory is ignored,
unless its weight compensates for its age: with a reward of at most sup|mu| it could move theta_hat by at most
(1 - gamma) tolerance.

**Bounded cost.** Old observations are represented by Taylor polynomials of g around a point near theta_hat
(:mod:`windvane.kernels.expansion`), which are used where a bound proves that dropped and expanded observations together
move the root by less than ``tolerance``. Everywhere else the whole history is summed. The polynomials are built a few
observations at a time (:mod:`windvane.kernels.anchors`), so that a round costs about the same whatever the memory. This
concerns built-in links in up to ten dimensions, without a window, and points near theta_hat and its projection: where
theta_hat is far outside the ball, a projection also starts from points that are far from both, where it sums the whole
history. It changes neither what a projection starts from nor
the order of observations: theta_hat and its projections are functions of the history, up to the certified error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, Mask, check_array
from windvane.documentation import documented
from windvane.errors import ArgumentError
from windvane.estimation.base import Estimator, check_finite, shape_error
from windvane.estimation.expansion import Expansion
from windvane.estimation.forgetting import NEVER, Forgetting
from windvane.kernels.lanes import FRESH, THETA_HAT, B
from windvane.kernels.linalg import ROUNDING
from windvane.kernels.projection import REPORT, RESIDUAL, STAGE, VALUE
from windvane.kernels.threads import over_lanes
from windvane.links import Link
from windvane.state import State, refuse

PASSES = 4  # approximate number of passes over the history per projection; decides whether to use threads
ROOT_CHECK = 1e-3  # relative to 1 + ||theta||: largest accepted distance of a stored theta_hat from the root


@dataclass(eq=False)
class Projection:
    """The solution of a program in every lane, with its accuracy. ``p0`` and ``p2`` return it without the lanes axis.

    Attributes
    ----------
    theta, eta
        The minimiser for g as it was evaluated (``expansion_error``), [lanes, dim]. For P0, eta is zero.
    report
        Value, residual and stage, [lanes, 3].
    """

    theta: Array
    eta: Array
    report: Array

    @property
    def value(self) -> Array:
        """The norm that was minimised, [lanes]."""
        return self.report[..., VALUE]

    @property
    def residual(self) -> Array:
        """The first-order residual, in the units of theta, [lanes]."""
        return self.report[..., RESIDUAL]

    @property
    def stage(self) -> Index:
        """1 if theta_hat is admissible, otherwise 2 or 3 (:mod:`windvane.projection`), [lanes]."""
        return self.report[..., STAGE].astype(np.int64)


@documented
class MaximumLikelihoodEstimator(Estimator):
    """V, V_tilde, b and theta_hat of ``lanes`` independent lanes (notation: see the module docstring).

    The root is certified to a hundredth of ``tolerance`` for the stored history, and to ``tolerance`` if old
    observations are expanded.

    Parameters
    ----------
    expansion
        How old observations are expanded (:class:`windvane.estimation.Expansion`). None: chosen for the dimension, the
        link and the forgetting rule; ``Expansion()``: not at all.

    >>> estimator = MaximumLikelihoodEstimator(2, "logistic")
    >>> estimator.observe([[1.0, 0.0]], 1.0)
    >>> estimator.solve().round(3)
    array([[1.188, 0.   ]])
    """

    is_linearised: ClassVar[bool] = True

    def __init__(
        self, dim: int, link: str | Link = "logistic", *, forgetting: Forgetting = NEVER, S: float = 1.0,
        L: float = 1.0, lam: float = 1.0, lanes: int = 1, tolerance: float = 1e-6, expansion: Expansion | None = None,
    ) -> None:  # fmt: skip
        self.own_expansion = expansion
        super().__init__(dim, link, forgetting=forgetting, S=S, L=L, lam=lam, lanes=lanes, tolerance=tolerance)

    def choose_expansion(self, dim: int, link: Link, *, has_window: bool) -> Expansion:
        """Return the settings that were passed, or those for the dimension."""
        if self.own_expansion is None:
            return Expansion.choose(dim, link, has_window=has_window)
        if not self.own_expansion.suits(link, has_window=has_window):
            expected = "Expansion() with a window or a custom link, and of order at most 10 with the logistic link"
            raise ArgumentError("expansion", self.own_expansion, expected)
        return self.own_expansion

    @property
    def pass_cost(self) -> float:
        """Approximate number of multiply-adds of one evaluation in all lanes. It decides whether to use threads."""
        is_expanded = self.expansions.shape[2] > 0 and self.record["anchored"][:, 0].all()
        entries = 2 * self.expansion.recent if is_expanded else self.filled
        return float(self.lanes * entries * (10 + self.dim * self.dim // 2))

    def solve(self) -> Array:
        """Update theta_hat, the root of g(theta) = b, starting from its last value, and return a copy, [lanes, dim]."""
        with self.lock:
            tables, rows = (self.table, self.multiplicity), (self.record, self.dense, self.history, self.expansions)
            if self.lanes == 1:  # without the overhead of threads
                self.kernels.solve_lanes(*tables, *rows, *self.workspaces[0])
            else:
                over_lanes(self.kernels.solve_lanes, self.pass_cost, tables, rows, self.workspace)
            return self.dense[:, THETA_HAT].copy()

    @property
    def root_error(self) -> Array:
        """A bound on the distance between the last solved theta_hat and the root for the observations it summed.

        These are the stored ones and, where an expansion still holds some that were dropped since, those as well. With
        ``truncation_error`` it bounds the distance to the root for all observations.

        The bound is for exact arithmetic. Rounding adds an error of order 1e-15 (||b|| + sum w ``|mu|`` L) /
        lambda_min(H), which matters only with extreme weights or almost no regularisation.
        """
        return self.record["error"].copy()

    @property
    def root_passes(self) -> Index:
        """The number of passes over the history in the last solve, for each lane."""
        return self.record["passes"].copy()

    @property
    def expansion_error(self) -> Array:
        """A bound on the effect of expanded observations on a root, the largest since the last solve began.

        It covers the evaluations of a projection too. There it is the distance by which the same error of g would move
        a root, not a bound on the error of the projection.
        """
        return self.record["slack"].copy()

    @property
    def truncation_error(self) -> Array:
        """A bound on the effect of dropped observations on theta_hat: D sup|mu| L / ridge at the actual theta_hat."""
        reach = self.L * np.linalg.norm(self.theta_hat, axis=1)
        bound = np.array([self.link.mean_bound(z) for z in reach])
        return np.asarray(self.record["dropped"] * bound * self.L / self.ridge)

    def moments(self, theta: npt.ArrayLike) -> tuple[Array, Array]:
        """Return g, [lanes, dim], and H, [lanes, dim, dim], at ``theta[lanes, dim]``, summed over the whole history."""
        theta = check_array("theta", theta, (self.lanes, self.dim))
        return self._evaluate(theta, self.expansions[..., :0])

    def curvature(self, theta: npt.ArrayLike) -> Array:
        """Return H, [lanes, dim, dim], at ``theta[lanes, dim]``, within a hundredth of its smallest eigenvalue."""
        return self._evaluate(check_array("theta", theta, (self.lanes, self.dim)), self.expansions)[1]

    def _evaluate(self, theta: Array, expansions: Array) -> tuple[Array, Array]:
        """Return g and H at ``theta``."""
        g, H = np.empty((self.lanes, self.dim)), np.empty((self.lanes, self.dim, self.dim))
        with self.lock:
            rows = (theta, g, H, self.record, self.history, np.ascontiguousarray(expansions))
            over_lanes(self.kernels.moments_lanes, self.pass_cost, (), rows, lambda k: self.workspace(k)[:2])
        return g, H

    def project(self, program: int, beta: Array | None = None) -> Projection:
        """Run a program of :mod:`windvane.kernels.projection` for the last theta_hat; P2 uses radii beta, [lanes]."""
        n, d = self.lanes, self.dim
        beta = np.ones(n) if beta is None else beta
        if beta.shape != (n,):
            raise shape_error("beta", beta, (n,))
        projection = Projection(np.empty((n, d)), np.empty((n, d)), np.empty((n, REPORT)))
        with self.lock:
            results = (projection.theta, projection.eta, projection.report)
            self.record["beta"] = beta
            rows = (*results, self.record, self.dense, self.history, self.expansions)
            if n == 1:
                self.kernels.project_lanes(program, *rows, *self.workspaces[0][:2])
            else:
                over_lanes(
                    self.kernels.project_lanes,
                    PASSES * self.pass_cost,
                    (program,),
                    rows,
                    lambda k: self.workspace(k)[:2],
                )
        return projection

    def absorb(self, x: Array, reward: Array, age: Array, weight: Array, mask: Mask) -> None:
        """Learn one observation per lane. The arguments are not checked."""
        with self.lock:
            if self.link.code < 0:  # a custom link may raise, which must happen before any lane learns
                z = np.einsum("ld,ld->l", x, self.dense[:, THETA_HAT])[mask]
                check_finite(self.link, self.link.mean(z), self.link.slope(z))
            self.make_room()
            self.kernels.observe_lanes(x, reward, age, weight, mask, self.record, self.dense, self.history)

    def check_fields(self, fields: State, path: str) -> None:
        """Also raise ``ArgumentError`` if a theta_hat that is marked as solved is not the root for its history."""
        super().check_fields(fields, path)
        ridges = fields.get("ridge", self.record["ridge"])
        for lane in np.flatnonzero(fields["status"] == FRESH):
            theta, b = fields["dense"][lane, THETA_HAT], fields["dense"][lane, B]
            rows = fields["history"][lane, :, : fields["count"][lane]]
            X, w = rows[: self.dim], rows[self.dim] * fields["scale"][lane]
            z = theta @ X
            means = w * self.link.mean(z)
            g = X @ means + ridges[lane] * theta
            H = (X * (w * self.link.slope(z))) @ X.T + ridges[lane] * np.eye(self.dim)
            least = np.linalg.eigvalsh(H)[0]
            if least <= ROUNDING * np.trace(H):  # rounding decides where the root is
                continue
            # A small ridge magnifies the rounding of g and b, here and where theta_hat was computed.
            rounding = 2.0 * ROUNDING * (np.linalg.norm(b) + np.abs(means).sum() * self.L) / least
            distance = np.linalg.norm(np.linalg.solve(H, g - b))
            if not distance <= ROOT_CHECK * (1.0 + np.linalg.norm(theta)) + fields["error"][lane] + rounding:
                raise refuse(path, "dense", theta, f"the root for its history, in lane {lane}")
