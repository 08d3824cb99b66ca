"""The discounted quasi-maximum-likelihood estimator, many lanes at a time.

For each lane, with weights w_s = gamma^(now - s) over the observations (x_s, r_s) decided at time s:

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
enters all four sums with the weight of that age. An observation given weight omega counts as omega equal ones.

**Bounded memory.** Observations older than ``memory`` rounds are dropped from g and H (V, V_tilde and b keep them).
Since g is ridge-strongly monotone, a dropped total weight D moves the root by at most

    ||theta_hat - theta_hat(full)|| <= D sup|mu| L / ridge,        sup over |z| <= L ||theta_hat||,

and only what keeps this within ``tolerance`` is dropped. For links bounded on the whole line (logistic, probit) that is
a guarantee; for others sup|mu| is taken over |z| <= 2 S L when dropping, and ``truncation_error`` reports the bound at
the actual theta_hat. A late observation older than the memory is ignored altogether (unless its weight makes up for its
age): with a reward no larger than sup|mu| it could move theta_hat by at most (1 - gamma) tolerance.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from windvane import kernels
from windvane._estimator_state import HISTORY, checked_state
from windvane.arguments import (
    Array,
    check_array,
    check_discount,
    check_mask,
    check_not_negative,
    check_per_lane,
    check_positive,
    check_whole,
    fill_masked,
)
from windvane.errors import format_value
from windvane.kernels.threads import over_lanes
from windvane.links import Identity, Link, get_link

ROUNDING = 1.0 + 1e-9  # a norm bound is kept up to this factor
Method = TypeVar("Method", bound=Callable[..., Any])
_LANE_ARRAYS = ("gamma", "clock", "V", "V_tilde", "b", "theta", "pull", "H", "stale", "passes", "error")


def _locked(method: Method) -> Method:
    """One thread at a time: two of them writing one history would corrupt memory, not only results."""

    @functools.wraps(method)
    def alone(self: Any, *arguments: Any, **keywords: Any) -> Any:
        with self._lock:
            return method(self, *arguments, **keywords)

    return cast(Method, alone)


def _window_length(window: npt.ArrayLike, lanes: int) -> Array:
    return check_per_lane(
        "window", window, lanes, "above 0 (within [1e-100, 1e100])", lambda w: (w >= 1e-100) & (w <= 1e100)
    )


class DiscountedEstimator:
    """V, V_tilde, b and theta_hat of ``lanes`` independent streams.

    ``gamma`` in (0, 1], one value or one per lane; or ``window``, likewise: weight 1 for decisions less than that many
    rounds old and 0 for the rest (V_tilde is then V). ``tolerance`` bounds what forgetting may do to theta_hat; the
    root itself is certified to a hundredth of it. ``remember=False`` keeps no observations, which needs the identity
    link.
    """

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        gamma: npt.ArrayLike = 1.0,
        window: npt.ArrayLike | None = None,
        S: float = 1.0,
        L: float = 1.0,
        lam: float = 1.0,
        lanes: int = 1,
        tolerance: float = 1e-6,
        remember: bool = True,
    ) -> None:
        self.dim = check_whole("dim", dim, 1)
        self.lanes = check_whole("lanes", lanes, 1)
        self.link = get_link(link)
        self.S, self.L, self.lam = check_positive("S", S), check_positive("L", L), check_positive("lam", lam)
        self.tolerance = check_positive("tolerance", tolerance)
        self.constants = self.link.constants(self.S, self.L)
        self.ridge = self.lam * self.constants.c_mu
        self.windowed = window is not None
        self._window = np.full(self.lanes, math.inf) if window is None else _window_length(window, self.lanes)
        self._gamma = check_discount(gamma, self.lanes)
        if self.windowed and (self._gamma != 1.0).any():
            raise ValueError(f"window={format_value(window)} and gamma={format_value(gamma)}: give one or the other")
        self.remember = bool(remember)
        if not self.remember and (not isinstance(self.link, Identity) or self.windowed):
            raise ValueError("remember=False: needs the identity link and no window")
        self._linear = isinstance(self.link, Identity) and (self.windowed or not self.remember)  # theta_hat is V^-1 b
        self._k = kernels.load(self.link)
        self._lock = threading.RLock()
        bound = self.link.mean_bound(2 * self.S * self.L)
        if math.isinf(bound):  # a custom link need not be defined that far out
            bound = self.link.mean_bound(self.S * self.L)
        self._drop_budget = self.tolerance * self.ridge / (self.L * max(bound, 1e-300))
        self._allocate(8 if self.remember else 0)
        self._memory = np.empty(self.lanes)
        self._clear(np.ones(self.lanes, dtype=bool))

    def _allocate(self, capacity: int) -> None:
        n, d = self.lanes, self.dim
        self._capacity = capacity
        self._filled = 0  # no lane's history ends beyond this
        self._X = np.zeros((n, d, capacity))
        self._W, self._R, self._decided = (np.zeros((n, capacity)) for _ in range(3))
        self._span = np.zeros((n, 3), dtype=np.int64)  # start, end, removals since the last rebuild
        self._clock = np.zeros((n, 3))  # now, origin of the stored weights, dropped weight
        self._V, self._V_tilde, self._H = (np.zeros((n, d, d)) for _ in range(3))
        self._b, self._theta, self._pull = (np.zeros((n, d)) for _ in range(3))
        self._stale = np.zeros(n, dtype=np.int8)  # FRESH, MOVED or LOST
        self._passes = np.zeros(n, dtype=np.int64)
        self._error = np.zeros(n)

    def _clear(self, lanes: npt.NDArray[np.bool_]) -> None:
        eye = np.eye(self.dim)
        self._span[lanes] = 0
        for array in (self._clock, self._b, self._theta, self._pull, self._passes, self._error, self._stale):
            array[lanes] = 0
        self._V[lanes] = self._V_tilde[lanes] = self.lam * eye
        self._H[lanes] = self.ridge * eye
        self._memory[lanes] = [self._memory_of(gamma) for gamma in self._gamma[lanes]]

    def _memory_of(self, gamma: float) -> float:
        """The age A with gamma^A / (1 - gamma) at the budget for dropped weight: one observation a round may go."""
        if gamma == 1.0:
            return math.inf
        return max(0.0, math.ceil(math.log(self._drop_budget * (1.0 - gamma)) / math.log(gamma)))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_k", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._k, self._lock = kernels.load(self.link), threading.RLock()

    # --- what is known now ---------------------------------------------------------------------------------------

    @property
    def gamma(self) -> Array:
        return self._gamma.copy()

    @property
    def window(self) -> Array | None:
        """The window of each lane, None where the estimator discounts instead."""
        return self._window.copy() if self.windowed else None

    @property
    def V(self) -> Array:
        return self._V.copy()

    @property
    def V_tilde(self) -> Array:
        return self._V_tilde.copy()

    @property
    def b(self) -> Array:
        return self._b.copy()

    @property
    def elapsed(self) -> Array:
        """Rounds since the start or the last reset of each lane."""
        return self._clock[:, 0].copy()

    @property
    def memory(self) -> Array:
        """The age in rounds beyond which a lane forgets an observation (infinite for gamma = 1)."""
        return np.asarray(np.minimum(self._memory, self._window))

    @property
    def remembered(self) -> npt.NDArray[np.int64]:
        """How many observations each lane holds."""
        return np.asarray(self._span[:, 1] - self._span[:, 0])

    @property
    def theta_hat(self) -> Array:
        """The root of g(theta) = b now. Reading it changes nothing: a later :meth:`solve` starts as if it had not."""
        if not self._stale.any():
            return self._theta.copy()
        theta = self._theta.copy()
        self._solve(
            theta, self._pull.copy(), self._H.copy(), self._stale.copy(), self._passes.copy(), self._error.copy()
        )
        return theta

    @property
    def root_error(self) -> Array:
        """A bound on the distance of the last solved theta_hat from the root of the remembered history.

        In exact arithmetic: rounding, of order 1e-15 (||b|| + sum w |mu| L) / lambda_min(H), comes on top. It matters
        only with extreme weights or next to no regularisation.
        """
        return self._error.copy()

    @property
    def root_passes(self) -> npt.NDArray[np.int64]:
        """How many passes over the history the last solve took."""
        return self._passes.copy()

    @property
    def truncation_error(self) -> Array:
        """A bound on what dropping old observations did to theta_hat: D sup|mu| L / ridge at the actual theta_hat."""
        reach = self.L * np.linalg.norm(self.theta_hat, axis=1)
        bound = np.array([self.link.mean_bound(z) for z in reach])
        return np.asarray(self._clock[:, 2] * bound * self.L / self.ridge)

    @_locked
    def moments(self, theta: npt.ArrayLike) -> tuple[Array, Array]:
        """g(theta) and H(theta), with ``theta`` of shape [lanes, dim]."""
        theta = check_array("theta", theta, (self.lanes, self.dim))
        g, H = np.empty((self.lanes, self.dim)), np.empty((self.lanes, self.dim, self.dim))
        if not self.remember:
            return np.einsum("lij,lj->li", self._V, theta), self.V
        scale = self._gamma ** (self._clock[:, 0] - self._clock[:, 1])
        history = self._X, self._W, self._span, scale
        over_lanes(self._k.moments_lanes, self.lanes, self.pass_cost, self.link.code, *history, self.ridge, theta, g, H)
        return g, H

    # --- what happens ----------------------------------------------------------------------------------------------

    @_locked
    def advance(self, rounds: float = 1.0) -> None:
        """Let ``rounds`` (at least 0, need not be whole) pass: the past ages, nothing else."""
        gap = check_not_negative("rounds", rounds)
        over_lanes(
            self._k.age_lanes,
            self.lanes,
            self.lanes * self.dim * self.dim * 4,
            gap,
            self.lam,
            self.ridge,
            self._gamma,
            self._window,
            self._memory,
            self._drop_budget,
            self._clock,
            self._span,
            self._X,
            self._W,
            self._R,
            self._decided,
            self._V,
            self._V_tilde,
            self._b,
            self._theta,
            self._pull,
            self._H,
            self._stale,
        )

    def observe(
        self,
        x: npt.ArrayLike,
        reward: npt.ArrayLike,
        *,
        age: npt.ArrayLike = 0.0,
        weight: npt.ArrayLike = 1.0,
        mask: npt.ArrayLike | None = None,
    ) -> None:
        """Take in one observation per lane (where ``mask``), decided ``age`` rounds ago."""
        chosen = check_mask(mask, self.lanes)
        x = check_array("x", x, (self.lanes, self.dim))
        lengths = np.where(chosen, np.linalg.norm(x, axis=1), 0.0)
        if not (lengths <= self.L * ROUNDING).all():  # not a number, too
            lane = int(np.argmax(~(lengths <= self.L * ROUNDING)))
            raise ValueError(f"x={x[lane].tolist()} in lane {lane}: must be finite, with norm at most L={self.L:g}")
        self._take(
            x,
            self._checked("reward", reward, chosen, -self._k.LARGEST_REWARD, self._k.LARGEST_REWARD),
            -self._checked("age", age, chosen, 0.0, math.inf),
            0.0,
            self._checked("weight", weight, chosen, 0.0, self._k.LARGEST_WEIGHT),
            chosen,
        )

    def _checked(
        self, name: str, value: npt.ArrayLike, chosen: npt.NDArray[np.bool_], low: float, high: float
    ) -> Array:
        """One number per lane, within [low, high] where it counts."""
        allowed = f"in [{low:g}, {high:g}]"
        given = fill_masked(name, value, chosen, 0.0)
        return check_per_lane(name, given, self.lanes, allowed, lambda v: (v >= low) & (v <= high))

    @_locked
    def _take(
        self, x: Array, reward: Array, decided: Array, now: float, weight: Array, mask: npt.NDArray[np.bool_]
    ) -> None:
        """:meth:`observe` for arguments already checked, ages being ``now - decided`` on the caller's clock."""
        if self.remember:
            if self._filled == self._capacity:
                self._make_room()
            self._filled += 1
        self._k.observe_lanes(
            0,
            self.lanes,
            self.link.code,
            x,
            reward,
            decided,
            now,
            weight,
            mask,
            self.remember,
            self._gamma,
            self._window,
            self._memory,
            self._clock,
            self._span,
            self._X,
            self._W,
            self._R,
            self._decided,
            self._V,
            self._V_tilde,
            self._b,
            self._theta,
            self._pull,
            self._H,
            self._stale,
        )

    def _make_room(self) -> None:
        """Move every history to the front of its row; double the row where that frees less than half of it."""
        longest = int(self.remembered.max())
        capacity = self._capacity if 2 * longest <= self._capacity else 2 * self._capacity
        span, moved = self._span.copy(), self._moved_to_front(capacity)
        span[:, 1] -= span[:, 0]
        span[:, 0] = 0
        # arrays, span and capacity at once, so that an interrupt finds either the old rows or the new ones
        self._X, self._W, self._R, self._decided, self._span, self._capacity = *moved, span, capacity
        self._filled = longest

    def solve(self) -> Array:
        """Compute theta_hat where it is out of date, warm-started; returns the estimator's own array: do not write."""
        self._solve(self._theta, self._pull, self._H, self._stale, self._passes, self._error)
        return self._theta

    @_locked
    def _solve(
        self,
        theta: Array,
        pull: Array,
        H: Array,
        stale: npt.NDArray[np.int8],
        passes: npt.NDArray[np.int64],
        error: Array,
    ) -> None:
        if self._linear:
            self._k.linear_solve_lanes(0, self.lanes, self._V, self._b, theta, stale)
            return
        over_lanes(
            self._k.solve_lanes,
            self.lanes,
            self.pass_cost,
            self.link.code,
            self.ridge,
            self.L,
            0.01 * self.tolerance,
            self._gamma,
            self._clock,
            self._span,
            self._X,
            self._W,
            self._b,
            theta,
            pull,
            H,
            stale,
            passes,
            error,
        )

    @property
    def pass_cost(self) -> float:
        """About how many multiply-adds one pass over all histories costs: decides whether threads are worth it."""
        return float(self.lanes * self._filled * (10 + self.dim * self.dim // 2))

    @_locked
    def reset(
        self,
        mask: npt.ArrayLike | None = None,
        *,
        gamma: npt.ArrayLike | None = None,
        window: npt.ArrayLike | None = None,
    ) -> None:
        """Forget everything in the lanes of ``mask`` (all by default), and give them new discounts or windows."""
        chosen = check_mask(mask, self.lanes)
        gammas, windows = self._gamma, self._window
        if gamma is not None:
            gammas = np.where(chosen, check_discount(fill_masked("gamma", gamma, chosen, 1.0), self.lanes), gammas)
            if self.windowed and (gammas != 1.0).any():
                raise ValueError(f"gamma={format_value(gamma)}: this estimator has a window instead")
        if window is not None:
            windows = np.where(chosen, _window_length(fill_masked("window", window, chosen, 1.0), self.lanes), windows)
            if not self.windowed:
                raise ValueError(f"window={format_value(window)}: this estimator has a discount instead")
        self._gamma, self._window = gammas, windows
        self._clear(chosen)

    # --- state -------------------------------------------------------------------------------------------------------

    @_locked
    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Copies of everything that decides the future, as a flat dict of arrays."""
        state = {name: getattr(self, f"_{name}").copy() for name in _LANE_ARRAYS}
        if self.windowed:
            state["window"] = self._window.copy()
        counts = self.remembered
        state["counts"] = counts
        state["removals"] = self._span[:, 2].copy()
        longest = int(counts.max()) if self.remember else 0
        return state | dict(zip(HISTORY, self._moved_to_front(longest), strict=True))

    def _moved_to_front(self, width: int) -> list[Array]:
        """Copies of the rows of the history, ``width`` wide, with every lane's entries at their beginning."""
        moved = []
        for name in HISTORY:
            row = getattr(self, f"_{name}")
            moved.append(np.zeros((*row.shape[:-1], width)))
            for lane, (start, end, _) in enumerate(self._span):
                moved[-1][lane, ..., : end - start] = row[lane, ..., start:end]
        return moved

    def load_state(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Continue from a :meth:`state` of an estimator built alike. All is checked before anything changes."""
        self._swap(self.checked_state(state))

    @_locked
    def _swap(self, checked: dict[str, npt.NDArray[Any]]) -> None:
        counts = checked.pop("counts")
        removals = checked.pop("removals")
        rows = {name: checked.pop(name) for name in HISTORY}
        longest = rows["W"].shape[-1]
        capacity = self._capacity
        while capacity < longest:
            capacity *= 2
        for name, row in rows.items():
            wide = np.zeros((*row.shape[:-1], capacity))
            wide[..., :longest] = row
            setattr(self, f"_{name}", wide)
        for name, array in checked.items():
            setattr(self, f"_{name}", array)
        self._capacity, self._filled = capacity, longest
        self._span = np.stack([np.zeros_like(counts), counts, removals], axis=1)
        self._memory = np.array([self._memory_of(gamma) for gamma in self._gamma])

    def checked_state(self, state: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Copies of the entries of ``state``, if this estimator could continue from them."""
        return checked_state(self, state)
