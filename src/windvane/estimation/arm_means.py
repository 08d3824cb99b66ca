"""Mean rewards by arm, for policies whose arms are indices.

In every lane and for every arm k, over the rewards r_s of the rounds s in which k was played, with weights w_s that
follow from a forgetting rule,

    N_k = sum w_s,        mean_k = (1 / N_k) sum w_s r_s

This is what a :class:`windvane.RidgeEstimator` of unit vectors has in the diagonal of V - lam I and in V^-1 b as lam
goes to 0. A vector per lane takes K numbers instead of K^2, ageing takes O(K) instead of O(K^2), and no digits of a
small N_k are lost to lam. A window stores its observations, and a round takes O(1) for them on average.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, Mask, check_whole
from windvane.documentation import documented
from windvane.estimation.forgetting import NEVER, Forgetting
from windvane.kernels.arm_means import ARM, LANE, NUMBER, OMEGA, REWARD, TIME, WEIGHT, age_arms, observe_arms
from windvane.state import CoordinateChange, State, Stateful, refuse

FIRST_CAPACITY = 8  # observations of a new history, which doubles its capacity when more than half of it is in use


@documented
class ArmMeans(Stateful):
    """Weights N and mean rewards of ``arms`` arms in independent lanes.

    Parameters
    ----------
    arms
        Number of arms K.
    forgetting
        ``Discount(gamma)``, ``Window(length)`` or ``Never()``.

    >>> means = ArmMeans(2)
    >>> means.absorb(np.array([1]), np.array([0.5]), np.zeros(1), np.ones(1), np.array([True]))
    >>> means.N, means.means
    (array([[0., 1.]]), array([[0. , 0.5]]))
    """

    stored: ClassVar[tuple[str, ...]] = ("now", "count", "removals", "sums", "history")
    flexible: ClassVar[tuple[str, ...]] = ("history",)

    def __init__(self, arms: int, *, forgetting: Forgetting = NEVER, lanes: int = 1) -> None:
        self.arms = check_whole("arms", arms, 1)
        self.lanes = np.zeros(check_whole("lanes", lanes, 1), LANE)
        self.lanes["gamma"], self.lanes["window"] = forgetting.gammas(lanes), forgetting.windows(lanes)
        self.has_window = bool(np.isfinite(self.lanes["window"]).any())
        self.sums = np.zeros((lanes, 3, self.arms))
        self.history = np.zeros((lanes, 4, FIRST_CAPACITY if self.has_window else 0))
        self.filled = 0  # upper bound on ``end`` of all lanes

    @property
    def N(self) -> Array:
        """The weight of the rewards of every arm, [lanes, K]."""
        return self.sums[:, WEIGHT].copy()

    @property
    def b(self) -> Array:
        """The weighted sum of the rewards of every arm, [lanes, K]."""
        return self.sums[:, REWARD].copy()

    @property
    def means(self) -> Array:
        """The mean reward of every arm, [lanes, K]; 0 for an arm without rewards."""
        N = self.sums[:, WEIGHT]
        return np.divide(self.sums[:, REWARD], N, out=np.zeros_like(N), where=N > 0.0)

    @property
    def total(self) -> Array:
        """The weight of all rewards, [lanes]. The order of the sum does not depend on the number of lanes."""
        return np.asarray(np.cumsum(self.sums[:, WEIGHT], axis=1)[:, -1])

    @property
    def gamma(self) -> Array:
        """The discount of each lane; 1 without a discount."""
        return self.lanes["gamma"].copy()

    @property
    def window(self) -> Array | None:
        """The window of each lane; None without a window."""
        return self.lanes["window"].copy() if self.has_window else None

    def age(self, rounds: float) -> None:
        """Let ``rounds`` pass, a number of at least 0 that need not be whole."""
        age_arms(rounds, self.lanes, self.sums, self.history)

    def absorb(self, arm: Index, reward: Array, age: Array, weight: Array, mask: Mask) -> None:
        """Learn one reward per lane, of the arms with these indices. The arguments are not checked."""
        self._make_room()
        observe_arms(arm, reward, age, weight, mask, self.lanes, self.sums, self.history)

    def reset(self, mask: Mask) -> None:
        """Forget everything in the lanes of ``mask``."""
        self.sums[mask] = 0.0
        for name in ("now", "start", "end", "removals"):
            self.lanes[name][mask] = 0

    def _make_room(self) -> None:
        """Make room for one more observation in every lane of a window."""
        capacity = self.history.shape[2]
        if capacity and self.filled == capacity:
            longest = int((self.lanes["end"] - self.lanes["start"]).max())
            moved = self._move_to_front(capacity if 2 * longest <= capacity else 2 * capacity)
            lanes = self.lanes.copy()
            lanes["end"] -= lanes["start"]
            lanes["start"] = 0
            self.lanes, self.history, self.filled = lanes, moved, longest
        self.filled += 1

    def _move_to_front(self, capacity: int) -> Array:
        """Return a copy of the histories, each moved to the front of a row of this capacity."""
        moved = np.zeros((*self.history.shape[:2], capacity))
        for i, (start, end) in enumerate(zip(self.lanes["start"], self.lanes["end"], strict=True)):
            moved[i, :, : end - start] = self.history[i, :, start:end]
        return moved

    # --- state -----------------------------------------------------------------------------------------------------

    def read_fields(self) -> State:
        """Return copies of the sums, of the clock and of the used part of the histories."""
        count = self.lanes["end"] - self.lanes["start"]
        own = {"count": count, "sums": self.sums.copy(), "history": self._move_to_front(int(count.max()))}
        return own | {name: self.lanes[name].copy() for name in ("now", "removals")}

    def check_fields(self, fields: State, path: str) -> None:
        """Raise ``ArgumentError`` for a state that means with these settings cannot reach."""
        sums, history, count, longest = fields["sums"], fields["history"], fields["count"], fields["history"].shape[2]
        is_used, now = np.arange(longest) < count[:, None], fields["now"][:, None]
        times, arms = np.where(is_used, history[:, TIME], now), np.where(is_used, history[:, ARM], 0.0)
        is_sorted = (np.diff(times, axis=1, append=now) >= 0.0).all() and (history[:, OMEGA] >= 0.0).all()
        is_arm = (arms == np.floor(arms)) & (arms >= 0) & (arms < self.arms)
        places = np.where(is_arm & is_used, arms, self.arms).astype(np.int64)  # beyond the arms: no observation
        numbers = np.array([np.bincount(row, minlength=self.arms + 1)[: self.arms] for row in places])
        for name, is_possible, expected in (
            ("history", longest == 0 or self.has_window, "empty: without a window, no observations are stored"),
            ("now", fields["now"] >= 0.0, "at least 0"),
            ("removals", fields["removals"] >= 0, "at least 0"),
            ("count", (count >= 0) & (count <= longest), "between 0 and the length of the history"),
            ("history", is_sorted and is_arm.all(), "of known arms, sorted by time and not in the future"),
            ("sums", sums[:, WEIGHT] >= 0.0, "weights of at least 0"),
            ("sums", sums[:, NUMBER] == numbers, "the numbers of observations in the history"),
        ):
            if not np.all(is_possible):
                raise refuse(path, name, fields[name], expected)

    def prepare_fields(self, fields: State) -> dict[str, Any]:
        """Return the arrays for checked fields."""
        lanes, longest = self.lanes.copy(), fields["history"].shape[2]
        lanes["start"], lanes["end"] = 0, fields["count"]
        lanes["now"], lanes["removals"] = fields["now"], fields["removals"]
        history = np.zeros((*self.history.shape[:2], max(longest, self.history.shape[2])))
        history[:, :, :longest] = fields["history"]
        return {"lanes": lanes, "sums": fields["sums"], "history": history, "filled": longest}

    def map_fields(self, successor: Any, change: CoordinateChange) -> State:
        """Return the fields for other arms: those that are kept keep their rewards, and new ones have none."""
        fields = self.read_fields()
        fields["sums"] = change.move(fields["sums"], 1.0)
        rows, count = fields["history"], fields["count"]
        place_of: npt.NDArray[np.int64] = np.full(self.arms, -1)
        place_of[change.places[change.places >= 0]] = np.flatnonzero(change.places >= 0)
        kept = [place_of[row[ARM, :n].astype(int)] for row, n in zip(rows, count, strict=True)]
        fields["count"] = np.array([(places >= 0).sum() for places in kept])
        fields["history"] = np.zeros((*rows.shape[:2], int(fields["count"].max())))
        for own, row, places, n in zip(fields["history"], rows, kept, fields["count"], strict=True):
            own[:, :n] = row[:, : len(places)][:, places >= 0]
            own[ARM, :n] = places[places >= 0]
        return fields
