"""Bandit over bandits: a drift nobody knows, met by learning which forgetting earns most.

Time is cut into blocks of H decisions. At the start of each, EXP3 (:mod:`windvane.policies.exp3`) draws one value from
a grid of discounts or windows, and a *fresh* worker with that value acts until the block is over; its rewards, brought
to [0, 1], are then the gain of the draw.

===================  =====================================  ======================================================
policy               ``BOB-BVD-GLM-UCB``                    ``BOB``
===================  =====================================  ======================================================
paper                Faury, Russac, Abeille and             Cheung, Simchi-Levi and Zhu, "Learning to optimize
                     Calauzenes, "Regret bounds for         under non-stationarity" (AISTATS 2019), section 6
                     generalized linear bandits under
                     parameter drift" (2021), Algorithm 2
                     as its appendix has it
worker               BVD-GLM-UCB, delta = 1/T               SW-LinUCB, delta = 1/T
H                    min(T, floor(d sqrt(T)))               min(T, floor(d^(2/3) sqrt(T)))
grid                 N = ceil((2/3) log2(2 S T^(3/2))) + 1  n + 1 windows floor(H^(j/n)), j = 0..n, n = ceil(log H)
                     discounts 1 - 2^(j-2) / (d^(2/3) T
                     (2S)^(2/3)), in [1/2, 1)
gain of a block      sum of rewards / (2 sigma H)           1/2 + sum of rewards / (2H + 4 sigma sqrt(H log(T/sqrt(H))))
EXP3's rate          min(1, sqrt(N log N / ((e - 1) ceil(T/H)))), N the size of the grid
===================  =====================================  ======================================================

Guarantee (Faury et al., Theorem 2): expected regret of order R_mu d^{2/3} T^{2/3} max(B_T, d^{-1/2} T^{1/4})^{1/3} for
orthogonal arm sets, without knowing B_T. Cheung et al. have the same rate for linear rewards, with d^{2/3} T^{2/3}
max(B_T, d^{-1/2} T^{1/4})^{1/3}; for general arms both inherit what their workers lack. At practical T the price is
high: with d = 2, T = 3000 there are 28 blocks for 14 discounts and the rate is 0.88: almost a uniform draw.

What is ours: blocks count decisions, not time; the last block ends with decision T, divided by H like the others, and
play may go on after it, in blocks of H. A block's gain waits for the first decision of the next block, so that its last
reward can be in it. A reward that comes when its block is over is recorded (``info()``) and learnt by nobody, neither a
worker nor EXP3. A reward with weight w counts w times in the gain; gains are clipped to [0, 1], which changes nothing
with one reward in [0, 2 sigma] a decision (for ``BOB``, with means in [-1, 1], as that paper has them, it binds with
probability at most 2/T in all).

Cost per round and lane: that of the worker, with a history of at most H; O(N) more a block.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_choice, check_lanes, check_mask, check_real_array, check_whole
from windvane.arms import ArmSet
from windvane.errors import format_value
from windvane.links import Link
from windvane.policies._saving import State, check_unchanged, checked_header, part_of, saved
from windvane.policies._wrapping import Wrapping, reward_width
from windvane.policies.base import Card, Index, Policy
from windvane.policies.bvd_glm_ucb import BVDGLMUCB
from windvane.policies.exp3 import EXP3
from windvane.policies.sw_lin_ucb import SWLinUCB
from windvane.theory import block_length, discount_grid, exp3_rate, window_grid

PARAMETERS = ("gamma", "window")
_HISTORY = 256  # blocks of which the history tells at most; beyond, every second is left out


class BanditOverBandits(Wrapping):
    """EXP3 over the ``grid`` of a worker's ``parameter`` ("gamma" or "window"), drawn anew every ``block`` decisions.

    ``factory(dim=, lanes=ids, seed=, gamma=array)`` builds the workers: any policy on an estimator that takes the
    parameter lane by lane, such as a class with its other settings bound by ``functools.partial``. ``reward_range``:
    how wide the range of rewards is (default: 2 sigma; with the identity link at least 1).
    """

    name = "bandit over bandits"
    grid_name: ClassVar[str] = "grid"  # what the constructor calls it
    kept = ("log_weights", "drawn", "earned", "cut", "late", "late_sum")

    def __init__(
        self,
        factory: Callable[..., Policy],
        *,
        dim: int,
        horizon: int,
        block: int,
        grid: npt.ArrayLike,
        parameter: str = "gamma",
        reward_range: float | None = None,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        ids = check_lanes(lanes)
        self._build = functools.partial(factory, dim=dim, lanes=ids.tolist(), seed=seed)
        self.parameter = check_choice("parameter", parameter, PARAMETERS)
        self.horizon = check_whole("horizon", horizon, 1)
        self.block = check_whole("block", block, 1)
        self.grid = check_real_array(self.grid_name, grid, "numbers").copy()
        if self.grid.ndim != 1 or len(self.grid) == 0:
            raise ValueError(f"{self.grid_name}={format_value(grid)}: must be a list of one or more numbers")
        rate = exp3_rate(len(self.grid), math.ceil(self.horizon / self.block))
        self.exp3 = EXP3(len(self.grid), rate, lane_ids=ids, seed=seed)
        self._drawn = self.exp3.draw(0)
        self.worker = self._fresh(self._drawn)
        self._check_grid()
        self._set_up(self.worker.dim, self.worker.link, self.worker.L, self.worker.sigma, ids, seed)
        self.reward_range = reward_width(self.link, self.sigma, reward_range)
        self._earned, self._late, self._late_sum = (np.zeros(self.lanes) for _ in range(3))
        self._cut = np.zeros(self.lanes, dtype=bool)  # whether the open block was restarted: then it is not judged
        self._turn = 0  # the block that is open
        self._history = _History()
        self._history.add(0, self.exp3.probabilities(), self.chosen)
        common = {name: value for name, value in self.worker.config.items() if name != parameter}
        self.config = {
            "policy": self.name,
            "worker": common,
            "grid": self.grid,
            "block": self.block,
            "horizon": self.horizon,
            "reward_range": self.reward_range,
        }

    def _check_grid(self) -> None:
        """Every value must make a worker, not only those that happen to be drawn."""
        if isinstance(self.worker, Wrapping):
            raise ValueError("factory: must make policies with an estimator of their own, no masters and no PerLane")
        for place in range(len(self.grid)):
            try:
                self._fresh(np.full(len(self.exp3.lane_ids), place))
            except ValueError as error:
                raise ValueError(f"{self.grid_name}: value {place} is refused: {error}") from None

    def _fresh(self, drawn: npt.NDArray[np.int64]) -> Policy:
        """Workers with these places of the grid, one per lane."""
        return self._build(**{self.parameter: self.grid[drawn]})

    @property
    def _log_weights(self) -> Array:
        return self.exp3.log_weights

    @_log_weights.setter
    def _log_weights(self, log_weights: Array) -> None:
        self.exp3.log_weights = log_weights

    @property
    def chosen(self) -> Array:
        """The discount or the window that each lane's worker has now."""
        return np.asarray(self.grid[self._drawn])

    # --- blocks ------------------------------------------------------------------------------------------------------

    def turn_of(self, decision: int) -> int:
        """The block, numbered from 0, of a decision numbered from 0."""
        whole_blocks, after = math.ceil(self.horizon / self.block), decision - self.horizon
        return decision // self.block if after < 0 else whole_blocks + after // self.block

    def gain(self, earned: Array) -> Array:
        """What EXP3 is told of a block in which the rewards ``earned`` came, one sum per lane."""
        return np.asarray(earned / (self.reward_range * self.block))

    def _turn_over(self) -> None:
        """Before the first decision of a block: the last one is judged, and fresh workers take over."""
        turn = self.turn_of(self._decisions)
        if turn == self._turn:
            return
        gain = np.clip(self.gain(self._earned), 0.0, 1.0)
        self.exp3.learn(self._drawn, np.where(self._cut, 0.0, gain))  # a gain of 0 changes no weight
        self._turn, self._drawn = turn, self.exp3.draw(turn)
        self._earned, self._cut = np.zeros(self.lanes), np.zeros(self.lanes, dtype=bool)
        self.worker = self._start(self._fresh(self._drawn))
        self._history.add(turn, self.exp3.probabilities(), self.chosen)

    # --- the contract ------------------------------------------------------------------------------------------------

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, present = self._checked_arms(arms, valid)
        self._turn_over()
        index = self.worker.select(arms, present)
        self._end_round()
        return index

    def select_from(self, arm_set: ArmSet) -> Array:
        arm_set = self._checked_set(arm_set)
        self._turn_over()
        played = self.worker.select_from(arm_set)
        self._end_round()
        return played

    def _end_round(self) -> None:
        super()._end_round()
        self.last = {**self.worker.last, self.parameter: self.chosen}

    def update(
        self,
        x: npt.ArrayLike,
        reward: npt.ArrayLike,
        round: npt.ArrayLike | None = None,
        weight: npt.ArrayLike = 1.0,
        mask: npt.ArrayLike | None = None,
    ) -> None:
        """The reward goes to the worker that decided ``round``; if its block is over, it is only recorded."""
        points, rewards, rounds, weights, chosen = self._checked_feedback(x, reward, round, weight, mask)
        self.worker.update(points, rewards, round=rounds, weight=weights, mask=chosen)
        amount = np.where(chosen, weights, 0.0) * np.where(chosen, rewards, 0.0)
        late = rounds < self.worker._born
        self._earned += np.where(late, 0.0, amount)
        self._late += late & chosen
        self._late_sum += np.where(late, amount, 0.0)

    def advance(self, n: float = 1.0) -> None:
        """Let ``n`` rounds pass (at least 0, need not be whole) without a decision."""
        n = self._checked_gap(n)
        self.worker.advance(n)
        self.t += n

    def restart(self, mask: npt.ArrayLike | None = None) -> None:
        """Forget everything, the weights of EXP3 too, where ``mask``; the block goes on, and is not judged."""
        lanes = check_mask(mask, self.lanes)
        self.worker.restart(lanes)
        self.exp3.log_weights[lanes] = 0.0
        self._cut |= lanes

    def info(self) -> dict[str, Any]:
        """The worker's diagnostics and the master's.

        ``grid``, ``probabilities[lanes, N]`` (of the open block's draw) and ``chosen``; ``block``, numbered from 0;
        ``late`` and ``late_sum``: rewards that came after their block; and the same over time, for at most 256 blocks
        since this object was made or loaded: ``history_block[n]``, ``history_probabilities[n, lanes, N]``,
        ``history_chosen[n, lanes]``.
        """
        return {
            **self.worker.info(),
            "grid": self.grid.copy(),
            "probabilities": self.exp3.probabilities(),
            "chosen": self.chosen,
            "block": self._turn,
            "late": self._late.copy(),
            "late_sum": self._late_sum.copy(),
            **self._history.arrays(),
        }

    def _within(self) -> Policy:
        return self.worker

    def _read(self, name: str) -> Array:
        return np.asarray(getattr(self.worker, name))

    def state(self) -> State:
        """Everything that decides the future; the worker's state is prefixed."""
        return saved(self, worker=self.worker.state())

    def load_state(self, state: State) -> None:
        """Continue from ``state()`` of a policy built alike. Everything is checked before anything changes."""
        header = checked_header(self, state, "worker")
        drawn = header.kept["drawn"]
        if not ((drawn >= 0) & (drawn < len(self.grid))).all():
            raise ValueError(f"state['drawn']={format_value(drawn)}: must be places in a grid of {len(self.grid)}")
        worker = self._fresh(drawn)
        worker.load_state(part_of(state, "worker"))
        if (worker.t, worker._decisions) != (header.t, header.decisions):
            raise ValueError(f"state['t']={header.t!r}: does not fit the worker's time")
        check_unchanged(state)
        self._take_header(header)
        self.worker, self._turn, self._history = worker, self.turn_of(max(0, self._decisions - 1)), _History()
        self._history.add(self._turn, self.exp3.probabilities(), self.chosen)


class _History:
    """The law of the draws over time, thinned so that it stays short however long it runs."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, Array, Array]] = []
        self._every = 1

    def add(self, turn: int, p: Array, chosen: Array) -> None:
        if turn % self._every == 0 or not self._rows:
            self._rows.append((turn, p, chosen))
        if len(self._rows) > _HISTORY:
            self._every *= 2
            self._rows = [row for row in self._rows if row[0] % self._every == 0]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        turns, p, chosen = zip(*self._rows, strict=True)
        return {
            "history_block": np.array(turns),
            "history_probabilities": np.array(p),
            "history_chosen": np.array(chosen),
        }


class BOBBVDGLMUCB(BanditOverBandits):
    """BOB-BVD-GLM-UCB (Faury et al. 2021, Algorithm 2): needs the horizon T, not the drift."""

    name = "BOB-BVD-GLM-UCB"
    grid_name = "discounts"
    card = Card(
        "generalized linear",
        "adaptive",
        "T",
        "R_mu d^(2/3) max(B, d^(-1/2) T^(1/4))^(1/3) T^(2/3), orthogonal arms",
        "Faury et al. 2021",
        "O((K + memory) d^2), memory at most d T^(1/2)",
    )

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        horizon: int,
        block: int | None = None,
        discounts: npt.ArrayLike | None = None,
        S: float = 1.0,
        L: float = 1.0,
        lam: float = 1.0,
        sigma: float = 0.5,
        delta: npt.ArrayLike | None = None,
        confidence: str = "pointwise",
        bonus_scale: npt.ArrayLike = 1.0,
        tolerance: float = 1e-6,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        T = check_whole("horizon", horizon, 1)
        worker = functools.partial(
            BVDGLMUCB,
            link=link,
            horizon=T,
            S=S,
            L=L,
            lam=lam,
            sigma=sigma,
            delta=1.0 / T if delta is None else delta,
            confidence=confidence,
            bonus_scale=bonus_scale,
            tolerance=tolerance,
        )
        H = block_length(T, dim) if block is None else block
        grid = discount_grid(T, dim, S) if discounts is None else discounts
        super().__init__(worker, dim=dim, horizon=T, block=H, grid=grid, lanes=lanes, seed=seed)


class BOB(BanditOverBandits):
    """BOB (Cheung et al. 2019) over SW-LinUCB: needs the horizon T, not the drift."""

    name = "BOB"
    grid_name = "windows"
    card = Card(
        "linear",
        "adaptive",
        "T",
        "d^(2/3) max(B, d^(-1/2) T^(1/4))^(1/3) T^(2/3), orthogonal arms",
        "Cheung et al. 2019",
        "O((K + d) d^2)",
    )

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        block: int | None = None,
        windows: npt.ArrayLike | None = None,
        S: float = 1.0,
        L: float = 1.0,
        lam: float = 1.0,
        sigma: float = 0.5,
        delta: npt.ArrayLike | None = None,
        bonus_scale: npt.ArrayLike = 1.0,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        T = check_whole("horizon", horizon, 1)
        level = 1.0 / T if delta is None else delta
        worker = functools.partial(SWLinUCB, S=S, L=L, lam=lam, sigma=sigma, delta=level, bonus_scale=bonus_scale)
        H, grid = window_grid(T, dim)
        super().__init__(
            worker,
            dim=dim,
            horizon=T,
            block=H if block is None else block,
            grid=grid if windows is None else windows,
            parameter="window",
            lanes=lanes,
            seed=seed,
        )

    def gain(self, earned: Array) -> Array:
        """1/2 + the sum over the width that it leaves with probability at most 2/T in all, means being in [-1, 1]."""
        H, T = self.block, self.horizon
        width = 2.0 * H + 4.0 * self.sigma * math.sqrt(H * max(0.0, math.log(T / math.sqrt(H))))
        return np.asarray(0.5 + earned / width)
