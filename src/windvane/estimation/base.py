"""The interface between estimators and policies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import (
    NORM_SLACK,
    Array,
    Mask,
    check_array,
    check_mask,
    check_not_negative,
    check_per_lane,
    check_positive,
    check_whole,
    fill_masked,
)
from windvane.errors import ArgumentError
from windvane.estimation.forgetting import Discount, Forgetting, Never, Window
from windvane.estimation.lanes import LaneRows
from windvane.kernels.custom import LinkKernels, link_kernels
from windvane.kernels.history import age_lanes
from windvane.kernels.lanes import THETA_HAT, B
from windvane.kernels.root import solve_ridge_lanes
from windvane.kernels.scoring import LARGEST_REWARD, LARGEST_WEIGHT
from windvane.links import Link, get_link

TINY = 1e-300  # avoids a division by zero if the bound on the mean is zero
ROOT_SHARE = 0.01  # share of ``tolerance`` for the error of the root, so that the rest is left for dropped observations


class Estimator(LaneRows, ABC):
    """An estimate of theta in ``lanes`` independent lanes.

    A policy uses ``solve()``, ``advance(rounds)``, ``observe(...)``, ``metric()`` and the state. Subclasses implement
    ``solve``, ``absorb`` and ``theta_hat``.

    Parameters
    ----------
    dim
        Number of features.
    link
        Name of a link, or a :class:`windvane.Link`.
    forgetting
        Forgetting rule: ``Discount``, ``Window`` or ``Never``.
    S, L
        Norm bounds of the parameter and of the arms.
    lam
        Regularisation: V starts as lam I. The likelihood is penalised by ridge ||theta||^2 / 2 with ridge = lam c_mu.
    lanes
        Number of lanes.
    tolerance
        Bound on the change of theta_hat that is caused by dropping old observations.
    """

    allows_window: ClassVar[bool] = True
    is_linearised: ClassVar[bool] = False  # whether (pull, H) is updated between solves: Newton's method starts from it

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
        n = check_whole("lanes", lanes, 1)
        self._check_rule(forgetting)
        self.link = get_link(link)
        self.S, self.L, self.lam = check_positive("S", S), check_positive("L", L), check_positive("lam", lam)
        self.tolerance = check_positive("tolerance", tolerance)
        self.constants = self.link.constants(self.S, self.L)
        self.ridge = self.lam * self.constants.c_mu
        self.kernels: LinkKernels = link_kernels(self.link.code, self.link)
        bound = self.link.mean_bound(2 * self.S * self.L)
        if np.isinf(bound):  # a custom link is only required to be finite for |z| <= S L
            bound = self.link.mean_bound(self.S * self.L)
        settings = {
            "link": self.link.code,
            "S": self.S,
            "L": self.L,
            "floor": self.initial_metric(),
            "ridge": self.ridge,
            "least_slope": self.constants.c_mu,
            "root_tolerance": ROOT_SHARE * self.tolerance,
            "drop_budget": self.tolerance * self.ridge / (self.L * max(bound, TINY)),
            "gamma": forgetting.gammas(n),
            "window": forgetting.windows(n),
        }
        # A likelihood needs every observation, a window only those that it will take out again.
        remembers = self.is_linearised or isinstance(forgetting, Window)
        super().__init__(check_whole("dim", dim, 1), n, settings, linearised=self.is_linearised, remembers=remembers)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "kernels"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.kernels = link_kernels(self.link.code, self.link)

    def initial_metric(self) -> float:
        """Return the scalar m such that the metric is m I before the first observation."""
        return self.lam

    @abstractmethod
    def solve(self) -> Array:
        """Update theta_hat, starting from its last value, and return a copy.

        Returns
        -------
        ndarray
            theta_hat, [lanes, dim].
        """

    @abstractmethod
    def absorb(self, x: Array, reward: Array, age: Array, weight: Array, mask: Mask) -> None:
        """Learn one observation per lane. The arguments have been checked."""

    # --- reading ---------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def theta_hat(self) -> Array:
        """The current estimate, [lanes, dim]. Reading it does not change the estimator."""

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

    # --- time and observations -------------------------------------------------------------------------------------

    def advance(self, rounds: float = 1.0) -> None:
        """Let time pass.

        Parameters
        ----------
        rounds
            Number of rounds, at least 0. It need not be a whole number.
        """
        self.age(check_not_negative("rounds", rounds))

    def age(self, rounds: float) -> None:
        """Let ``rounds`` pass. The argument has been checked."""
        with self.lock:
            age_lanes(rounds, self.record, self.dense, self.history)

    def observe(
        self,
        x: npt.ArrayLike,
        reward: npt.ArrayLike,
        *,
        age: npt.ArrayLike = 0.0,
        weight: npt.ArrayLike = 1.0,
        mask: npt.ArrayLike | None = None,
    ) -> None:
        """Learn one observation per lane.

        Parameters
        ----------
        x
            Features of the arms that were played, [lanes, dim].
        reward
            Rewards: one number, or one per lane.
        age
            Rounds since the decision: one number, or one per lane.
        weight
            An observation of weight w counts as w equal observations. One number, or one per lane.
        mask
            Lanes that have an observation, [lanes]. Default: all.
        """
        lanes = check_mask(mask, self.lanes)
        x = check_array("x", x, (self.lanes, self.dim))
        lengths = np.where(lanes, np.linalg.norm(x, axis=1), 0.0)
        if not (lengths <= self.L * NORM_SLACK).all():  # written so that NaN is rejected
            lane = int(np.argmax(~(lengths <= self.L * NORM_SLACK)))
            raise ArgumentError("x", x[lane].tolist(), f"finite, with norm at most L={self.L:g}", where=f"lane {lane}")
        self.absorb(
            x,
            self._check_lanes("reward", reward, lanes, -LARGEST_REWARD, LARGEST_REWARD),
            self._check_lanes("age", age, lanes, 0.0, np.inf),
            self._check_lanes("weight", weight, lanes, 0.0, LARGEST_WEIGHT),
            lanes,
        )

    def _check_lanes(self, name: str, value: npt.ArrayLike, mask: Mask, low: float, high: float) -> Array:
        """Return one number per lane, checked to be in [low, high] in the lanes of ``mask``."""
        given = fill_masked(name, value, mask, 0.0)
        expected = f"in [{low:g}, {high:g}]"
        return check_per_lane(name, given, self.lanes, expected, lambda v: (v >= low) & (v <= high))

    def _check_rule(self, forgetting: Forgetting) -> None:
        kinds = (Discount, Window, Never) if self.allows_window else (Discount, Never)
        if not isinstance(forgetting, kinds):
            allowed = "Discount, Window or Never" if self.allows_window else "Discount or Never"
            raise ArgumentError("forgetting", forgetting, f"a {allowed}")

    def reset(self, mask: npt.ArrayLike | None = None, forgetting: Forgetting | None = None) -> None:
        """Forget everything in some lanes.

        Parameters
        ----------
        mask
            The lanes, [lanes]. Default: all.
        forgetting
            New forgetting rule of these lanes. A window cannot be replaced by a discount, nor a discount by a window.
        """
        with self.lock:
            lanes = check_mask(mask, self.lanes)
            if forgetting is not None:
                self._check_rule(forgetting)
                if isinstance(forgetting, Window) != (self.window is not None):
                    raise ArgumentError("forgetting", forgetting, "of the same kind as before")
                self.record["gamma"][lanes] = forgetting.gammas(self.lanes)[lanes]
                self.record["window"][lanes] = forgetting.windows(self.lanes)[lanes]
            self.clear(lanes)


def check_finite(link: Link, *values: Array) -> None:
    """Raise ``ArgumentError`` for a custom link that returned NaN or infinity."""
    if not all(np.isfinite(array).all() for array in values):
        raise ArgumentError("link", link, "finite, and so must its derivative, wherever it is evaluated")


class QuadraticEstimator(Estimator):
    """An estimator whose loss is quadratic: theta_hat = M^-1 b with the metric M."""

    def solve(self) -> Array:
        """Update theta_hat and return a copy, [lanes, dim]."""
        with self.lock:
            solve_ridge_lanes(self.record, self.dense, self.work)
            return self.dense[:, THETA_HAT].copy()

    @property
    def theta_hat(self) -> Array:
        """The current value of M^-1 b, [lanes, dim]."""
        with self.lock:
            dense = self.dense.copy()
            solve_ridge_lanes(self.record.copy(), dense, self.work)
            return dense[:, THETA_HAT].copy()
