"""Bandit over bandits: learn how to forget when the drift is unknown.

Time is divided into blocks of H decisions. At the start of each block, EXP3 draws a value from a grid of discounts or
windows, and a *new* worker with this value acts until the block ends. The rewards of the block, scaled to [0, 1], are
the gain of the draw. Registered forms: :mod:`windvane.policies.bob`.

Choices that are ours, not the papers':

* Blocks count decisions, not time. The last block ends with decision T, and its gain is divided by H like the others.
  After T the policy continues in blocks of H.
* The gain of a block is computed at the first decision of the next block, so that its last reward can count.
* A reward that arrives after its block has ended is counted in ``info()``. Neither a worker nor EXP3 learns it.
* A reward of weight w counts w times in the gain. Gains are clipped to [0, 1]. With one reward in [0, 2 sigma] per
  decision this has no effect. For ``BOB``, with means in [-1, 1] as in its paper, it has an effect with probability at
  most 2/T in total.
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
from windvane.policies.base import Policy
from windvane.policies.exponential_weights import EXP3
from windvane.policies.info import PolicyInfo
from windvane.policies.inputs import Feedback
from windvane.policies.optimism import EstimatingPolicy
from windvane.state import State, Stateful, refuse
from windvane.theory import exp3_rate

FORGETTING_PARAMETERS = ("gamma", "window", "restart_every")
LONGEST_HISTORY = 256  # largest number of blocks in the history; if it grows longer, every second one is removed


@dataclass(frozen=True)
class BlockInfo(PolicyInfo):
    """The diagnostics of a bandit over bandits. The fields of :class:`PolicyInfo` are those of the acting worker."""

    grid: Array | None = None  #: the forgetting parameters, [N]
    block: int = 0  #: number of the current block, from 0
    draw_probabilities: Array | None = None  #: of the draw of its forgetting parameter, [lanes, N]
    chosen: Array | None = None  #: what was drawn, [lanes]
    late: Array | None = None  #: number of rewards that arrived after their block, [lanes]
    late_sum: Array | None = None  #: their sum
    history_block: Index | None = None  #: at most 256 blocks since this object was built or loaded
    history_probabilities: Array | None = None  #: draw_probabilities of these blocks, [blocks, lanes, N]
    history_chosen: Array | None = None  #: chosen in these blocks, [blocks, lanes]


class BanditOverBandits(Policy):
    """EXP3 over a grid of values for the forgetting parameter of a worker, with one draw per block of decisions.

    A subclass implements ``build_worker``, ``choose_block`` and ``choose_grid``.

    Parameters
    ----------
    block
        Number of decisions in a block. Default: recommended by theory.

    >>> import windvane
    >>> class BOBDLinUCB(windvane.BanditOverBandits):
    ...     def build_worker(self, values):
    ...         return self.derive(windvane.DLinUCB, gamma=values)
    ...     def choose_block(self):
    ...         return 50
    ...     def choose_grid(self):
    ...         return [0.9, 0.99, 0.999]
    >>> BOBDLinUCB(dim=2, horizon=1000).select([[[1.0, 0.0]]])
    array([0])
    """

    horizon: int
    block: int | None = None
    reward_range: float | None = None
    name = "bandit over bandits"
    example = "dim=2, horizon=1000"
    grid_name: ClassVar[str] = "grid"  # name of the constructor argument that holds the values
    stored: ClassVar[tuple[str, ...]] = (*Policy.stored, "drawn", "earned", "is_cut", "late", "late_sum")

    def build_worker(self, values: Array) -> EstimatingPolicy:
        """Return a new worker with the lanes and the seed of this policy, which forgets by ``values[lanes]``."""
        raise NotImplementedError

    def choose_block(self) -> int:
        """Return the default number of decisions in a block."""
        raise NotImplementedError

    def choose_grid(self) -> npt.ArrayLike:
        """Return the forgetting parameters to choose from."""
        raise NotImplementedError

    def compute_gain(self, earned: Array) -> Array:
        """Return the gain of a block for EXP3 from ``earned``, the sum of its rewards in each lane."""
        return np.asarray(earned / (self.width_of_rewards * self.length))

    def __post_init__(self) -> None:
        super().__post_init__()
        self.horizon = check_whole("horizon", self.horizon, 1)
        self.length = check_whole("block", self.choose_block() if self.block is None else self.block, 1)
        self.grid = self._check_grid(self.choose_grid())
        rate = exp3_rate(len(self.grid), math.ceil(self.horizon / self.length))
        self.exp3 = EXP3(len(self.grid), rate, lane_ids=self.lane_ids, seed=self.seed)
        self.drawn = self.exp3.draw(0)
        self.earned, self.late, self.late_sum = np.zeros((3, self.lane_count))
        self.is_cut = np.zeros(self.lane_count, dtype=bool)  # restarted in the current block, which then has no gain
        self.width_of_rewards = self.choose_reward_range(self.reward_range)
        self.history: list[tuple[int, Array, Array]] = []
        self.history_step = 1
        self.use_worker(self.build_worker(self.chosen), 0)

    def _check_grid(self, values: npt.ArrayLike) -> Array:
        """Return the values. A worker must accept each of them, not only those that happen to be drawn."""
        grid = check_real_array(self.grid_name, values, "numbers").copy()
        if grid.ndim != 1 or len(grid) == 0:
            raise ArgumentError(self.grid_name, values, "a list of one or more numbers")
        for place, value in enumerate(grid):
            try:
                worker = self.build_worker(np.full(self.lane_count, value))
            except ArgumentError as error:
                if error.argument not in FORGETTING_PARAMETERS:
                    raise
                expected = f"allowed for the workers ({error})"
                raise ArgumentError(self.grid_name, float(value), expected, where=f"place {place}") from None
            if not isinstance(worker, EstimatingPolicy):
                raise ArgumentError("build_worker", worker, "a method that returns policies with an estimator")
        return grid

    @property
    def chosen(self) -> Array:
        """The current discount or window of the worker in each lane, [lanes]."""
        return np.asarray(self.grid[self.drawn])

    def block_of(self, decision: int) -> int:
        """Return the block of a decision. Both are numbered from 0."""
        whole_blocks, after = math.ceil(self.horizon / self.length), decision - self.horizon
        return decision // self.length if after < 0 else whole_blocks + after // self.length

    def enter_block(self) -> None:
        """Before a decision: if it is the first of block i, evaluate the last block and begin the new one.

        This is the loop of Algorithm 2. A gain of 0, in lanes that were restarted, changes no weight.
        """
        block = self.block_of(self.decisions)
        if block == self.open_block:
            return
        gain = np.clip(self.compute_gain(self.earned), 0.0, 1.0)  # sum of rewards / (2 sigma H)
        self.exp3.learn(self.drawn, np.where(self.is_cut, 0.0, gain))  # s_j <- s_j exp(alpha gain / (N p_j))
        self.drawn = self.exp3.draw(block)  # j ~ p
        worker = self.build_worker(self.chosen)  # a new worker with gamma_j, or window w_j
        worker.join_clock(self)
        self.earned, self.is_cut = np.zeros(self.lane_count), np.zeros(self.lane_count, dtype=bool)
        self.use_worker(worker, block)

    def use_worker(self, worker: EstimatingPolicy, block: int) -> None:
        """Use ``worker`` in ``block``, and add its draw to the history."""
        self.worker, self.open_block = worker, block
        if block % self.history_step == 0 or not self.history:
            self.history.append((block, self.exp3.probabilities(), self.chosen))
        if len(self.history) > LONGEST_HISTORY:
            self.history_step *= 2
            self.history = [row for row in self.history if row[0] % self.history_step == 0]

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, valid = self.check_arms(arms, valid)
        self.enter_block()
        index = self.worker.select(arms, valid)
        self.end_round()
        return index

    def select_from(self, arm_set: ArmSet) -> Array:
        arm_set = self.check_arm_set(arm_set)
        self.enter_block()
        played = self.worker.select_from(arm_set)
        self.end_round()
        return played

    def end_round(self) -> None:
        """End the round, with the clock and the decision of the worker."""
        self.follow_clock(self.worker)
        self.decision = self.worker.decision
        if self.decision is not None:
            self.decision.chosen = self.chosen

    def learn(self, feedback: Feedback) -> None:
        """Pass checked rewards to the worker. Rewards of earlier blocks are only counted."""
        self.worker.receive(feedback)
        amount = np.where(feedback.mask, feedback.weight, 0.0) * np.where(feedback.mask, feedback.reward, 0.0)
        is_late = feedback.mask & ~self.worker.mask_restarted(feedback)
        self.earned += np.where(is_late, 0.0, amount)
        self.late += is_late
        self.late_sum += np.where(is_late, amount, 0.0)

    def pass_time(self, rounds: float) -> None:
        self.worker.advance(rounds)

    def forget(self, mask: Mask) -> None:
        """Reset the worker and EXP3 in the lanes of ``mask``. Their block continues, but its gain is not learned."""
        self.worker.restart(mask)
        self.exp3.reset(mask)
        self.is_cut |= mask

    def info(self, *, estimates: bool = True) -> BlockInfo:
        clock = {"t": self.t, "decisions": self.decisions, "decision": self.decision}
        known: dict[str, Any] = vars(self.worker.info(estimates=estimates)) | clock
        blocks, probabilities, chosen = (np.array(column) for column in zip(*self.history, strict=True))
        return BlockInfo(
            **known, grid=self.grid.copy(), draw_probabilities=self.exp3.probabilities(), chosen=self.chosen,
            block=self.open_block, late=self.late.copy(), late_sum=self.late_sum.copy(),
            history_block=blocks, history_probabilities=probabilities, history_chosen=chosen,
        )  # fmt: skip

    def parts(self) -> Mapping[str, Stateful]:
        return {"exp3": self.exp3, "worker": self.worker}

    def build_parts(self, fields: State) -> Mapping[str, Stateful]:
        return {"exp3": self.exp3, "worker": self.build_worker(self.grid[fields["drawn"]])}

    def check_fields(self, fields: State, path: str) -> None:
        super().check_fields(fields, path)
        if not ((fields["drawn"] >= 0) & (fields["drawn"] < len(self.grid))).all():
            raise refuse(path, "drawn", fields["drawn"], f"indices into a grid of {len(self.grid)}")

    def adopt_parts(self, parts: Mapping[str, Stateful]) -> None:
        worker = parts["worker"]
        assert isinstance(worker, EstimatingPolicy)
        self.history, self.history_step = [], 1
        self.use_worker(worker, self.block_of(max(0, self.decisions - 1)))
