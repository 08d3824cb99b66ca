"""The interface between estimators and policies, and the estimator of linear policies: weighted ridge regression."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from windvane import arguments
from windvane.arguments import NORM_SLACK, Array, Mask, check_array, check_per_lane, check_positive, check_whole
from windvane.documentation import documented
from windvane.errors import ArgumentError
from windvane.estimation.expansion import Expansion
from windvane.estimation.forgetting import NEVER, Discount, Forgetting, Never, Window
from windvane.estimation.lanes import LaneRows
from windvane.kernels.history import age_lanes, observe_lanes
from windvane.kernels.lanes import FRESH, THETA_HAT, B
from windvane.kernels.root import solve_ridge_lanes
from windvane.kernels.scoring import (
    LARGEST_REWARD,
    LARGEST_WEIGHT,
    log_det_lanes,
    norm_lanes,
    predict_lanes,
    span_lanes,
    width_lanes,
)
from windvane.links import Identity, Link, get_link

TINY = 1e-300  # avoids a division by zero if the bound on the mean is zero
# Shares of ``tolerance``. Dropped observations change g by at most tolerance ridge. What a larger curvature leaves of
# the rest is for expanded observations.
ROOT_SHARE, EXPANSION_SHARE = 0.01, 0.9


@documented
class Estimator(LaneRows, ABC):
    """An estimate of theta in ``lanes`` independent lanes.

    A policy uses ``solve``, ``advance``, ``observe``, ``metric``, the state, ``predict`` and ``measure_width``.
    Subclasses implement ``absorb``, and ``solve`` if their loss is not quadratic.

    Parameters
    ----------
    lam
        Regularisation: V starts as lam I. The likelihood is penalised by ridge ||theta||^2 / 2 with ridge = lam c_mu.
    lanes
        Number of lanes.
    tolerance
        Bound on the change in theta_hat when old observations are dropped. It determines ``memory``, the age beyond
        which a late observation is ignored.
    """

    kinds: ClassVar[tuple[type[Forgetting], ...]] = (Discount, Window, Never)  # allowed forgetting rules
    has_curvature_metric: ClassVar[bool] = False  # if true, the metric starts as ridge I instead of lam I

    def __init__(
        self, dim: int, link: str | Link = "logistic", *, forgetting: Forgetting = NEVER, S: float = 1.0,
        L: float = 1.0, lam: float = 1.0, lanes: int = 1, tolerance: float = 1e-6,
    ) -> None:  # fmt: skip
        n, link = check_whole("lanes", lanes, 1), get_link(link)
        if not isinstance(forgetting, self.kinds):
            raise ArgumentError("forgetting", forgetting, f"a {' or '.join(kind.__name__ for kind in self.kinds)}")
        self.S, self.L, self.lam = check_positive("S", S), check_positive("L", L), check_positive("lam", lam)
        self.tolerance = check_positive("tolerance", tolerance)
        self.constants = link.constants(self.S, self.L)
        self.ridge = self.lam * self.constants.c_mu
        bound = link.mean_bound(2 * self.S * self.L)
        if np.isinf(bound):  # a custom link is only required to be finite for |z| <= S L
            bound = link.mean_bound(self.S * self.L)
        settings = {
            "link": link.code, "S": self.S, "L": self.L, "ridge": self.ridge, "least_slope": self.constants.c_mu,
            "floor": self.ridge if self.has_curvature_metric else self.lam,
            "root_tolerance": ROOT_SHARE * self.tolerance,
            "drop_budget": self.tolerance * self.ridge / (self.L * max(bound, TINY)),
            "gamma": forgetting.gammas(n), "window": forgetting.windows(n), "budget": EXPANSION_SHARE * self.tolerance,
        }  # fmt: skip
        # A likelihood needs every observation. A window needs those that it will have to subtract.
        remembers = self.is_linearised or isinstance(forgetting, Window)
        dim = check_whole("dim", dim, 1)
        expansion = self.choose_expansion(dim, link, has_window=isinstance(forgetting, Window))
        super().__init__(dim, n, link, settings, remembers=remembers, expansion=expansion)

    def choose_expansion(self, dim: int, link: Link, *, has_window: bool) -> Expansion:
        """Return how old observations are expanded. By default, they are not."""
        return Expansion()

    def solve(self) -> Array:
        """Update theta_hat, starting from its last value, and return a copy, [lanes, dim]. By default it is V^-1 b."""
        with self.lock:
            solve_ridge_lanes(self.record, self.dense, self.work)
            return self.dense[:, THETA_HAT].copy()

    @property
    def theta_hat(self) -> Array:
        """The current estimate, [lanes, dim]. Reading it does not change the starting point of a later ``solve``."""
        if (self.record["status"] == FRESH).all():
            return self.dense[:, THETA_HAT].copy()
        with self.borrow() as twin:
            return twin.solve()

    def metric(self) -> Array:
        """Return the matrices M such that ||x||_{M^-1} measures the uncertainty along x, [lanes, dim, dim]."""
        return self.V.copy()

    @property
    def b(self) -> Array:
        """The weighted sum of rewards times features, [lanes, dim]."""
        return self.dense[:, B].copy()

    @property
    def gamma(self) -> Array:
        """The discount of each lane; 1 without a discount."""
        return self.record["gamma"].copy()

    @property
    def window(self) -> Array | None:
        """The window of each lane; None for an estimator without a window."""
        return None if np.isinf(self.record["window"]).all() else self.record["window"].copy()

    @property
    def elapsed(self) -> Array:
        """Rounds since each lane was started or reset."""
        return self.record["now"].copy()

    @property
    def memory(self) -> Array:
        """The age in rounds beyond which an observation can be dropped, for each lane."""
        return np.asarray(np.minimum(self.record["memory"], self.record["window"]))

    def predict(self, arms: Array, theta: Array, *, is_linear: bool = False) -> Array:
        """Return mu(<x, theta>) of ``arms[lanes, K, dim]`` for ``theta[lanes, dim]``, [lanes, K].

        ``is_linear``: return <x, theta> itself.
        """
        n, K, d = arms.shape
        if d != self.dim:
            raise shape_error("arms", arms, (n, K, self.dim))
        if theta.shape != (n, d):
            raise shape_error("theta", theta, (n, d))
        means = np.empty((n, K))
        if is_linear:
            predict_lanes(Identity.code, arms, theta, means)
        else:
            self.kernels.predict_lanes(self.link.code, arms, theta, means)
        return means

    def predict_linearly(self, arms: Array, theta: Array) -> Array:
        """Return <x, theta> in the same form."""
        return self.predict(arms, theta, is_linear=True)

    def measure_width(self, arms: Array, multiplier: Array, *, is_sandwich: bool) -> Array:
        """Return multiplier ||x|| in the metric V^-1, or V^-1 V_tilde V^-1 if ``is_sandwich``, [lanes, K]."""
        n, K, d = arms.shape
        if n != self.lanes or d != self.dim:
            raise shape_error("arms", arms, (self.lanes, K, self.dim))
        if multiplier.shape != (n,):
            raise shape_error("multiplier", multiplier, (n,))
        widths = np.empty((n, K))
        with self.lock:  # other threads may use the workspace
            width_lanes(is_sandwich, arms, multiplier, self.dense, self.work, widths)
        return widths

    def measure_norm(self, arms: Array, factor: Array, matrices: Array) -> Array:
        """Return factor ||x|| in the metric of the inverse of ``matrices[lanes, dim, dim]``, [lanes, K]."""
        norms = np.empty(arms.shape[:2])
        with self.lock:
            norm_lanes(arms, factor, matrices, self.work, norms)
        return norms

    def is_spanned(self, least: float) -> Mask:
        """Return whether all eigenvalues of V are at least ``least``, for each lane."""
        out = np.empty(self.lanes, dtype=bool)
        with self.lock:
            span_lanes(self.dense, least, self.work, out)
        return out

    def log_det_ratio(self) -> Array:
        """Return log det(V / lam) of each lane."""
        ratios = np.empty(self.lanes)
        with self.lock:
            log_det_lanes(self.dense, self.lam, self.work, ratios)
        return ratios

    def advance(self, rounds: float = 1.0) -> None:
        """Let ``rounds`` pass, a number of at least 0 that need not be whole."""
        self.age(arguments.check_not_negative("rounds", rounds))

    def age(self, rounds: float) -> None:
        """Let ``rounds`` pass. The argument is not checked."""
        with self.lock:
            age_lanes(rounds, self.record, self.dense, self.history)

    @documented
    def observe(
        self, x: ArrayLike, reward: ArrayLike, *, age: ArrayLike = 0.0, weight: ArrayLike = 1.0,
        mask: ArrayLike | None = None,
    ) -> None:  # fmt: skip
        """Learn one observation per lane. Each argument except ``x`` is one number, or one per lane.

        Parameters
        ----------
        x
            Features of the arms that were played, [lanes, dim].
        reward, age
            Rewards, and the rounds since the decisions.
        weight
            An observation of weight w counts as w equal observations.
        """
        lanes = arguments.check_mask(mask, self.lanes)
        x = check_array("x", x, (self.lanes, self.dim))
        is_long = lanes & ~(np.linalg.norm(x, axis=1) <= self.L * NORM_SLACK)  # written so that NaN is rejected
        if is_long.any():
            lane = int(np.argmax(is_long))
            raise ArgumentError("x", x[lane].tolist(), f"finite, with norm at most L={self.L:g}", where=f"lane {lane}")

        def check(name: str, value: ArrayLike, low: float, high: float) -> Array:
            expected = f"in [{low:g}, {high:g}]"
            return check_per_lane(name, value, self.lanes, expected, lambda v: (v >= low) & (v <= high), lanes)

        rewards = check("reward", reward, -LARGEST_REWARD, LARGEST_REWARD)
        ages, weights = check("age", age, 0.0, np.inf), check("weight", weight, 0.0, LARGEST_WEIGHT)
        self.absorb(x, rewards, ages, weights, lanes)

    @abstractmethod
    def absorb(self, x: Array, reward: Array, age: Array, weight: Array, mask: Mask) -> None:
        """Learn one observation per lane. The arguments are not checked."""


def shape_error(name: str, array: Array, shape: tuple[int, ...]) -> ArgumentError:
    """Return the error for an array of the wrong shape, beyond whose end a kernel could read."""
    return ArgumentError(name, array, f"of shape {shape}", got=f"shape {array.shape}")


def check_finite(link: Link, *values: Array) -> None:
    """Raise ``ArgumentError`` for a custom link that returned NaN or infinity."""
    if not all(np.isfinite(array).all() for array in values):
        raise ArgumentError("link", link, "finite, with a finite derivative, wherever it is evaluated")


@documented
class RidgeEstimator(Estimator):
    """V, V_tilde, b and theta_hat = V^-1 b of ``lanes`` independent lanes (notation: :mod:`windvane.estimation.mle`).

    Observations are stored only with a window. They are subtracted from the sums when they leave it.

    >>> estimator = RidgeEstimator(2)
    >>> estimator.observe([[1.0, 0.0]], 1.0)
    >>> estimator.solve()
    array([[0.5, 0. ]])
    """

    def __init__(
        self, dim: int, *, forgetting: Forgetting = NEVER, S: float = 1.0, L: float = 1.0, lam: float = 1.0,
        lanes: int = 1,
    ) -> None:  # fmt: skip
        super().__init__(dim, "identity", forgetting=forgetting, S=S, L=L, lam=lam, lanes=lanes)

    def absorb(self, x: Array, reward: Array, age: Array, weight: Array, mask: Mask) -> None:
        """Learn one observation per lane. The arguments are not checked."""
        with self.lock:
            self.make_room()
            observe_lanes(x, reward, age, weight, mask, self.record, self.dense, self.history)
