"""Bandit over bandits: a drift nobody knows, met by learning which forgetting earns most.

Time is cut into blocks of H decisions. At the start of each, EXP3 (:mod:`windvane.policies.exp3`) draws one value from
a grid of discounts or windows, and a *fresh* worker with that value acts until the block is over; its rewards, brought
to [0, 1], are then the gain of the draw. Registered forms: :mod:`windvane.policies.bob_bvd_glm_ucb` and
:mod:`windvane.policies.bob`.

What is ours: blocks count decisions, not time; the last block ends with decision T, divided by H like the others, and
play may go on after it, in blocks of H. A block's gain waits for the first decision of the next block, so that its last
reward can be in it. A reward that comes when its block is over is recorded (``info()``) and learned by nobody, neither
a worker nor EXP3. A reward with weight w counts w times in the gain; gains are clipped to [0, 1], which changes nothing
with one reward in [0, 2 sigma] a decision (for ``BOB``, with means in [-1, 1], as that paper has them, it binds with
probability at most 2/T in all).

Cost per round and lane: that of the worker, with a history of at most H; O(N) more a block.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, Mask, check_real_array, check_whole
from windvane.arms import ArmSet
from windvane.errors import ArgumentError
from windvane.policies.base import Feedback, Policy
from windvane.policies.exp3 import EXP3
from windvane.policies.info import PolicyInfo
from windvane.policies.optimism import EstimatingPolicy
from windvane.policies.wrapping import choose_reward_range, join_clock
from windvane.state import State, Stateful, refuse
from windvane.theory import exp3_rate

LONGEST_HISTORY = 256  # blocks of which the history tells at most; beyond, every second is left out


@dataclass(frozen=True)
class BlockInfo(PolicyInfo):
    """Where a bandit over bandits stands; what :class:`PolicyInfo` holds is that of the acting worker.

    Attributes
    ----------
    grid, draw_probabilities, chosen
        The forgetting parameters, [N]; the law of the open block's draw, [lanes, N]; the parameters drawn, [lanes].
    block
        The open block, numbered from 0.
    late, late_sum
        Number and sum of the rewards that came after their block, [lanes].
    history_block, history_probabilities, history_chosen
        The same over time, for at most 256 blocks since this object was built or loaded: [n], [n, lanes, N], [n, lanes].
    """

    grid: Array | None = None
    draw_probabilities: Array | None = None
    chosen: Array | None = None
    block: int = 0
    late: Array | None = None
    late_sum: Array | None = None
    history_block: Index | None = None
    history_probabilities: Array | None = None
    history_chosen: Array | None = None


class BanditOverBandits(Policy):
    """EXP3 over a grid of a worker's forgetting parameter, drawn anew every block of decisions.

    A subclass implements ``build_worker``, ``choose_block`` and ``choose_grid``.

    Parameters
    ----------
    horizon
        Rounds T, which EXP3's rate needs.
    block
        Decisions in a block; by default what theory recommends.
    reward_range
        Width of the range of rewards; by default 2 sigma, and with the identity link at least 1.
    """

    horizon: int
    block: int | None = None
    reward_range: float | None = None

    name = "bandit over bandits"
    grid_name: ClassVar[str] = "grid"  # what the constructor calls the values
    stored: ClassVar[tuple[str, ...]] = (*Policy.stored, "drawn", "earned", "is_cut", "late", "late_sum")

    def build_worker(self, values: Array) -> EstimatingPolicy:
        """Return fresh workers with these forgetting parameters, one per lane."""
        raise NotImplementedError

    def choose_block(self) -> int:
        """Return the number of decisions in a block, if none was given."""
        raise NotImplementedError

    def choose_grid(self) -> npt.ArrayLike:
        """Return the forgetting parameters to choose from."""
        raise NotImplementedError

    def compute_gain(self, earned: Array) -> Array:
        """Return what EXP3 is told of a block in which the rewards ``earned`` came, one sum per lane."""
        return np.asarray(earned / (self.width_of_rewards * self.length))

    def __post_init__(self) -> None:
        super().__post_init__()
        self.horizon = check_whole("horizon", self.horizon, 1)
        self.length = check_whole("block", self.choose_block() if self.block is None else self.block, 1)
        self.grid = self._check_grid(self.choose_grid())
        rate = exp3_rate(len(self.grid), math.ceil(self.horizon / self.length))
        self.exp3 = EXP3(len(self.grid), rate, lane_ids=self.lane_ids, seed=self.seed)
        self.drawn = self.exp3.draw(0)
        self.worker = self.build_worker(self.chosen)
        self.earned, self.late, self.late_sum = (np.zeros(self.lane_count) for _ in range(3))
        self.is_cut = np.zeros(self.lane_count, dtype=bool)  # restarted in the open block, which is then not judged
        self.open_block = 0
        self.width_of_rewards = choose_reward_range(self.reward_link, self.noise_scale, self.reward_range)
        self.history = DrawHistory()
        self.history.add(0, self.exp3.probabilities(), self.chosen)

    def _check_grid(self, given: npt.ArrayLike) -> Array:
        """Return the values; every one must make a worker, not only those that happen to be drawn."""
        grid = check_real_array(self.grid_name, given, "numbers").copy()
        if grid.ndim != 1 or len(grid) == 0:
            raise ArgumentError(self.grid_name, given, "a list of one or more numbers")
        for place, value in enumerate(grid):
            try:
                worker = self.build_worker(np.full(self.lane_count, value))
            except ValueError as error:
                raise ArgumentError(
                    self.grid_name, value, f"allowed for the workers ({error})", where=f"place {place}"
                ) from None
            if not isinstance(worker, EstimatingPolicy):
                raise ArgumentError("factory", worker, "a policy with an estimator of its own")
        return grid

    @property
    def chosen(self) -> Array:
        """The discount or the window that each lane's worker has now."""
        return np.asarray(self.grid[self.drawn])

    # --- blocks ----------------------------------------------------------------------------------------------------

    def block_of(self, decision: int) -> int:
        """Return the block, numbered from 0, of a decision numbered from 0."""
        whole_blocks, after = math.ceil(self.horizon / self.length), decision - self.horizon
        return decision // self.length if after < 0 else whole_blocks + after // self.length

    def begin_block(self, block: int) -> None:
        """Judge the last block and draw the forgetting parameters of a new one, for which fresh workers act."""
        gain = np.clip(self.compute_gain(self.earned), 0.0, 1.0)
        self.exp3.learn(self.drawn, np.where(self.is_cut, 0.0, gain))  # a gain of 0 changes no weight
        self.drawn = self.exp3.draw(block)
        self.worker = join_clock(self.build_worker(self.chosen), self)
        self.open(block)

    def open(self, block: int) -> None:
        """Count a new block, in which nothing has been earned yet."""
        self.open_block = block
        self.earned, self.is_cut = np.zeros(self.lane_count), np.zeros(self.lane_count, dtype=bool)
        self.history.add(block, self.exp3.probabilities(), self.chosen)

    # --- the contract ----------------------------------------------------------------------------------------------

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        """Decide round t; before the first decision of a block, change workers."""
        arms, present = self.check_arms(arms, valid)
        block = self.block_of(self.decisions)
        if block != self.open_block:
            self.begin_block(block)
        index = self.worker.select(arms, present)
        self.end_round()
        return index

    def select_from(self, arm_set: ArmSet) -> Array:
        """Decide round t among all arms of a ball or a sphere; return the arms played, [lanes, dim]."""
        arm_set = self.check_arm_set(arm_set)
        block = self.block_of(self.decisions)
        if block != self.open_block:
            self.begin_block(block)
        played = self.worker.select_from(arm_set)
        self.end_round()
        return played

    def end_round(self) -> None:
        """Count the decision; the worker has let its round pass."""
        self.count_decision()
        self.decision = self.worker.decision
        if self.decision is not None:
            self.decision.chosen = self.chosen

    def learn(self, feedback: Feedback) -> None:
        """Give checked rewards to the worker that decided them; if its block is over, only record them."""
        self.worker.learn(feedback)
        amount = np.where(feedback.mask, feedback.weight, 0.0) * np.where(feedback.mask, feedback.reward, 0.0)
        is_late = feedback.round < self.worker.born
        self.earned += np.where(is_late, 0.0, amount)
        self.late += is_late & feedback.mask
        self.late_sum += np.where(is_late, amount, 0.0)

    def pass_time(self, rounds: float) -> None:
        """Let time pass in the worker."""
        self.worker.advance(rounds)

    def restart(self, mask: npt.ArrayLike | None = None) -> None:
        """Forget everything, the weights of EXP3 too, where ``mask``; the block goes on, and is not judged."""
        super().restart(mask)

    def forget(self, mask: Mask) -> None:
        """Reset worker and EXP3 in the lanes of ``mask``."""
        self.worker.restart(mask)
        self.exp3.log_weights[mask] = 0.0
        self.is_cut |= mask

    def info(self, *, estimates: bool = True) -> BlockInfo:
        """Return where the worker and its master stand."""
        known: dict[str, Any] = vars(self.worker.info(estimates=estimates)) | self.history.to_arrays()
        return BlockInfo(
            **(known | {"t": self.t, "decisions": self.decisions, "decision": self.decision}),
            grid=self.grid.copy(),
            draw_probabilities=self.exp3.probabilities(),
            chosen=self.chosen,
            block=self.open_block,
            late=self.late.copy(),
            late_sum=self.late_sum.copy(),
        )

    # --- state -----------------------------------------------------------------------------------------------------

    def parts(self) -> Mapping[str, Stateful]:
        """Return EXP3 and the worker."""
        return {"exp3": self.exp3, "worker": self.worker}

    def build_parts(self, fields: State) -> Mapping[str, Stateful]:
        """Return EXP3 and a fresh worker with the forgetting parameters that were drawn."""
        return {"exp3": self.exp3, "worker": self.build_worker(self.grid[fields["drawn"]])}

    def check_fields(self, fields: State, path: str) -> None:
        """Raise ``ArgumentError`` also for a draw that is not in the grid."""
        super().check_fields(fields, path)
        if not ((fields["drawn"] >= 0) & (fields["drawn"] < len(self.grid))).all():
            raise refuse(path, "drawn", fields["drawn"], f"places in a grid of {len(self.grid)}")

    def adopt_parts(self, parts: Mapping[str, Stateful]) -> None:
        """Let the loaded worker act."""
        worker = parts["worker"]
        assert isinstance(worker, EstimatingPolicy)
        self.worker, self.open_block, self.history = worker, self.block_of(max(0, self.decisions - 1)), DrawHistory()
        self.history.add(self.open_block, self.exp3.probabilities(), self.chosen)


class DrawHistory:
    """The law of the draws over time, thinned so that it stays short however long it runs."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, Array, Array]] = []
        self._every = 1

    def add(self, block: int, probabilities: Array, chosen: Array) -> None:
        """Add the draw of a block."""
        if block % self._every == 0 or not self._rows:
            self._rows.append((block, probabilities, chosen))
        if len(self._rows) > LONGEST_HISTORY:
            self._every *= 2
            self._rows = [row for row in self._rows if row[0] % self._every == 0]

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the fields of :class:`BlockInfo` that tell about the past."""
        blocks, probabilities, chosen = zip(*self._rows, strict=True)
        return {
            "history_block": np.array(blocks),
            "history_probabilities": np.array(probabilities),
            "history_chosen": np.array(chosen),
        }
