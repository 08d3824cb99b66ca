"""MASTER: a stationary policy that detects changes, without knowledge of their number or size.

Wei and Luo, "Non-stationary reinforcement learning without prior knowledge: an optimal black-box approach" (COLT 2021).
A *base* policy, whose regret in a stationary world is of order t rho(t), runs in many copies. Blocks of 2^n rounds
follow each other, n = n0, n0 + 1, ... In a block that starts at round t_n:

* At rounds t_n + tau with tau divisible by 2^m, for m = n, ..., 0, a new copy "of order m" starts with probability
  rho(2^n) / rho(2^m) and lives for 2^m rounds.
* Of the living copies, the one of the smallest order acts and learns. The others pause.
* f_t is the optimistic value (largest index) of the acting copy, clipped to [0, 1]; U_t is the minimum of f since t_n.

If a test fails after round t, everything restarts with n = n0. With rho_hat = 6 (log2 T + 1) log(T/delta) rho,

* Test 1: a copy of order m ends with round t, and the mean reward over its 2^m rounds is >= U_t + 9 rho_hat(2^m).
* Test 2: the mean of f - reward over the rounds since t_n is >= 3 rho_hat(t - t_n + 1).

The registered forms, with the index and rho of each base, are in :mod:`windvane.policies.master_bases`.

Guarantee (Wei and Luo): regret of order min(sqrt(T N), T^{2/3} B^{1/3}) up to logarithms and powers of d, with N the
number of changes, for a fixed arm set and a base that satisfies their conditions: with probability 1 - delta/T, f_t is
at least the best mean reward of any round since t_n minus the drift since then, and the regret of the copy is at most t
rho(t) plus t times the drift; rho(t) >= 1/sqrt(t), and t rho(t) does not decrease.

**With these constants the tests cannot fail at practical T.** Test 2 cannot fail before 3 rho_hat(t) <= 1, which for
MASTER-OFUL with d = 2, T = 3000, delta = 0.05 means t > 4e10, and the bonus of a copy is 37 ||x||_{V^-1}. Gerogiannis,
Huang and Veeravalli (AISTATS 2025) find that for finitely many arms neither test can fail before T = 1.24e9.
``test_scale`` multiplies rho_hat, ``bonus_scale`` the bonus. Values below 1 are outside the theorem.

What is uncertain: nothing in the schedule and in the tests, which we read in the paper. Test 1 averages over all rounds
of the life of a copy, including those in which another copy acted.

Choices that are ours, not the paper's:

* The tests use rewards divided by the width of their range, and the bonus is multiplied by it (``reward_range``).
* The first order n0 (``first_order``) is 0 in the paper. Experiments in the literature use 13 (Wang et al. 2023), or
  floor(log2 T) - 4 (Gerogiannis et al. 2025).
* The tests of a round run before the next decision. The logarithm in beta is at least 0.
* A late reward goes to the copy that made the decision, if that copy is alive and the decision is among the last 1024
  of its block. Test 2 averages over the rounds whose rewards have arrived. A reward of weight w counts as w rewards.
* The lanes are not batched (:mod:`windvane.policies.per_lane`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, Mask, check_not_negative, check_whole
from windvane.arms import ArmSet
from windvane.errors import ArgumentError
from windvane.kernels.random import MASTER, uniform_pair
from windvane.policies.base import Policy
from windvane.policies.info import PolicyInfo
from windvane.policies.inputs import Feedback
from windvane.policies.optimism import OptimisticPolicy
from windvane.policies.per_lane import PerLane
from windvane.state import State, Stateful, refuse

ORDERS = 53  # no block is longer than 2^52 rounds
LOG_LENGTH = 1024  # number of last decisions whose rewards can be assigned to a copy
NONE = -1
SMALLEST = 5e-324  # the smallest positive double, whose logarithm is finite


@dataclass(frozen=True)
class MasterInfo(PolicyInfo):
    """The diagnostics of MASTER. The fields of :class:`PolicyInfo` are those of the acting copy."""

    block_order: Index | None = None  # n of the current block
    acting_order: Index | None = None  # m of the acting copy, -1 before the first decision
    ceiling: Array | None = None  # U_t
    restarts: Index | None = None  # number of failed tests
    late: Index | None = None  # number of rewards that arrived after their block


class MasterBase(OptimisticPolicy):
    """A base of MASTER: an optimistic policy whose bonus is a constant times ||x||_{V^-1}.

    A base derives from this class and from a policy, and sets ``radius``, the paper's beta: the bonus is 2 beta
    ||x||_{V^-1} times the width of the range of rewards.
    """

    horizon: int | None = None
    reward_range: float | None = None
    radius: float = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.width_of_rewards = self.choose_reward_range(self.reward_range)

    @property
    def log_level(self) -> float:
        """log(T / delta), of a positive delta below T."""
        return log_quotient(check_whole("horizon", self.horizon, 1), self.levels.item())

    def choose_factor(self) -> float:
        return 1.0  # beta contains all factors

    def choose_multiplier(self) -> float:
        """Return the factor of ||x||_{V^-1} in the bonus, in the units of rewards."""
        return 2.0 * self.width_of_rewards * self.radius

    def choose_rho(self) -> float:
        """Return rho(1), where rho(t) = rho(1) / sqrt(t), for rewards divided by the width of their range."""
        return self.radius * math.sqrt(self.dim * self.log_level)

    def compute_beta(self, theta_hat: Array) -> Array:
        return np.full(self.lane_count, self.choose_multiplier())


class MasterLane(Policy):
    """MASTER for one lane, over copies of ``base``, a policy with one lane that is not used itself."""

    base: MasterBase = field(kw_only=True)
    horizon: int
    first_order: int = 0
    test_scale: float = 1.0
    name = "MASTER"
    stored: ClassVar[tuple[str, ...]] = (
        *Policy.stored, "block", "starts", "rewards", "weights", "sums", "ceiling", "log", "counts",
    )  # fmt: skip

    def __post_init__(self) -> None:
        self.link, self.sigma = self.base.reward_link, self.base.sigma  # for the checks of rewards
        super().__post_init__()
        check_whole("first_order", self.first_order, 0, 40)
        check_not_negative("test_scale", self.test_scale)
        log_level = self.base.log_level
        if not log_level > 0.0:
            raise ArgumentError("delta", self.base.levels.item(), f"below 1 where `horizon` is {self.horizon}")
        self.rho_of_1 = self.base.choose_rho()
        self.caution = 6.0 * (math.log2(self.horizon) + 1.0) * log_level * self.test_scale
        self.copies: dict[int, MasterBase] = {}  # by order
        self.spare: list[MasterBase] = []  # copies that have ended: resetting one is cheaper than building one
        self.starts = np.full(ORDERS, NONE)  # the first decision of the copy of each order
        self.rewards, self.weights = np.zeros(ORDERS), np.zeros(ORDERS)  # during its life: sum w r, sum w
        self.counts = np.zeros(2, dtype=np.int64)  # restarts, late rewards
        self.log = np.zeros((LOG_LENGTH, 4))  # of the last decisions: round, order, start of the copy, optimistic value
        self.acting = self.build_copy()  # for ``info()`` before the first decision
        self.begin_block(self.first_order)

    def build_copy(self) -> MasterBase:
        """Return a new copy of the base."""
        return type(self.base)(**self.base.get_params())

    def rho(self, t: float) -> float:
        """Return the average regret of the base over t stationary rounds, without the factor that rho_hat adds."""
        return self.rho_of_1 / math.sqrt(t)

    def rho_hat(self, t: float) -> float:
        """Return the margin of the tests."""
        return self.caution * self.rho(t)

    def begin_block(self, order: int) -> None:
        """Start a block of 2^order decisions and end all copies."""
        for m in list(self.copies):
            self.drop_copy(m)
        self.block = np.array([order, self.decisions])
        self.sums = np.zeros(2)  # sum of w (f - r), sum of w
        self.ceiling = np.ones(1)  # U_t

    def end_copies(self) -> None:
        """Run the tests. End the copies, and the block, whose time is over."""
        order, start = self.block.tolist()
        if self.fails_test():
            self.counts[0] += 1
            self.begin_block(self.first_order)
        elif self.decisions - start == 2**order:
            self.begin_block(order + 1)
        else:
            for m in self.ending_orders():
                self.drop_copy(m)

    def starting_orders(self) -> dict[int, float]:
        """Return the probability that a copy starts now, by order."""
        order, start = self.block.tolist()
        tau = self.decisions - start
        return {m: self.rho(2**order) / self.rho(2**m) for m in range(order, -1, -1) if tau % 2**m == 0}

    def start_copy(self, m: int) -> None:
        """Start a copy of order m that has no observations and the clock of the policy."""
        self.copies[m] = new = self.spare.pop() if self.spare else self.build_copy()
        new.restart()
        new.join_clock(self)
        self.starts[m], self.rewards[m], self.weights[m] = self.decisions, 0.0, 0.0

    def drop_copy(self, m: int) -> None:
        """End the copy of order m."""
        self.spare.append(self.copies.pop(m))
        self.starts[m] = NONE

    def ending_orders(self) -> list[int]:
        """Return the orders of the copies that ended with the last decision."""
        return [m for m in self.copies if self.decisions - self.starts[m] == 2**m]

    def fails_test(self) -> bool:
        """Return whether test 1 or 2 fails with the rewards so far."""
        for m in self.ending_orders():
            if self.rewards[m] / max(2.0**m, self.weights[m]) >= self.ceiling.item() + 9.0 * self.rho_hat(2**m):
                return True
        gap, weight = self.sums.tolist()
        return bool(weight > 0.0 and gap / weight >= 3.0 * self.rho_hat(min(weight, self.decisions - self.block[1])))

    def choose_acting(self) -> MasterBase:
        """Run the tests, end and start copies, and return the copy that decides this round, with the current clock."""
        self.end_copies()
        for m, probability in self.starting_orders().items():
            if uniform_pair(self.key, self.lane_ids[0], self.decisions, MASTER, m)[0] < probability:
                self.start_copy(m)
        self.acting = self.copies[min(self.copies)]
        self.acting.advance(max(0.0, self.t - self.acting.t))  # never back in time, even after an error in a decision
        self.acting.t, self.acting.decisions = self.t, self.decisions
        return self.acting

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, valid = self.check_arms(arms, valid)
        index = self.choose_acting().select(arms, valid)
        self.record_value(arms[:, index])
        return index

    def select_from(self, arm_set: ArmSet) -> Array:
        arm_set = self.check_arm_set(arm_set)
        played = self.choose_acting().select_from(arm_set)
        self.record_value(played[:, None])
        return played

    def probabilities(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Array:
        """Return the probability that ``select`` chooses each arm, [1, K], over the starts of copies and over ties.

        The acting copy is the one of the smallest order now, or a new one of an even smaller order. All new copies
        choose alike.
        """
        twin = copy.deepcopy(self)
        twin.end_copies()
        smallest = min(twin.copies, default=ORDERS)
        stays = math.prod(1.0 - p for m, p in twin.starting_orders().items() if m < smallest)
        new = (1.0 - stays) * self.build_copy().probabilities(arms, valid)
        return new if stays == 0.0 else new + stays * twin.copies[smallest].probabilities(arms, valid)

    def record_value(self, played: Array) -> None:
        """Store the optimistic value of the decision for an arm, [1, 1, dim], and count the decision."""
        acting, order = self.acting, min(self.copies)
        self.decision = decision = acting.decision
        assert decision is not None and decision.theta_tilde is not None and decision.multiplier is not None  # noqa: PT018
        # The base does not forget, so the widths have not changed since the decision.
        score = (acting.predict(played, decision.theta_tilde) + acting.bonus(played, decision.multiplier)).item()
        value = min(1.0, max(0.0, score / self.base.width_of_rewards))
        self.ceiling = np.minimum(self.ceiling, value)
        self.log[self.decisions % LOG_LENGTH] = self.t, order, self.starts[order], value
        self.end_round()

    def learn(self, feedback: Feedback) -> None:
        """Pass a checked reward to its copy and to the tests. A reward of an earlier block is only counted."""
        if not feedback.mask[0]:
            return
        known = min(self.decisions - int(self.block[1]), LOG_LENGTH)  # decisions of this block in the log
        times = self.log[(self.decisions - np.arange(1, known + 1)) % LOG_LENGTH, 0]
        age = 1 + int((times > feedback.round[0]).sum())  # 1: the last decision at or before ``round``
        if age > known:
            self.counts[1] += 1
            return
        decided, order, start, value = self.log[(self.decisions - age) % LOG_LENGTH]
        if self.starts[int(order)] == start:  # the copy is alive; its clock has stood still since its last decision
            self.copies[int(order)].update(feedback.x, feedback.reward, round=decided, weight=feedback.weight)
        r, w = float(feedback.reward[0]) / self.base.width_of_rewards, float(feedback.weight[0])
        self.sums += w * (value - r), w
        for m in self.copies:
            if self.starts[m] <= self.decisions - age:
                self.rewards[m] += w * r
                self.weights[m] += w

    def pass_time(self, rounds: float) -> None:
        """Do nothing: stationary policies do not forget, and the clock of a copy is set when it acts."""

    def forget(self, mask: Mask) -> None:
        self.begin_block(self.first_order)
        self.acting = self.build_copy()

    def info(self, *, estimates: bool = True) -> MasterInfo:
        known: dict[str, Any] = vars(self.acting.info(estimates=estimates)) | {"t": self.t, "decisions": self.decisions}
        known |= {"block_order": self.block[:1].copy(), "acting_order": np.array([min(self.copies, default=NONE)])}
        restarts, late = self.counts.copy()[:, None]
        return MasterInfo(**known, ceiling=self.ceiling.copy(), restarts=restarts, late=late)

    def parts(self) -> Mapping[str, Stateful]:
        return {f"order{m}": alive for m, alive in self.copies.items()}

    def build_parts(self, fields: State) -> Mapping[str, Stateful]:
        return {f"order{m}": self.build_copy() for m in np.flatnonzero(fields["starts"] != NONE)}

    def check_fields(self, fields: State, path: str) -> None:
        super().check_fields(fields, path)
        order, start = fields["block"].tolist()
        if not 0 <= order < ORDERS or not 0 <= start <= fields["decisions"].item():
            raise refuse(path, "block", [order, start], "an order and its first decision")

    def adopt_parts(self, parts: Mapping[str, Stateful]) -> None:
        self.copies = {int(name.removeprefix("order")): part for name, part in parts.items()}  # type: ignore[misc]
        self.acting = self.copies[min(self.copies)] if self.copies else self.build_copy()


class MasterPolicy(PerLane):
    """The base class of the registered forms.

    Parameters
    ----------
    first_order
        Order n0 of the first block; 0 in the paper.
    test_scale
        Factor of the margin of the tests. Values below 1 are outside the theorem.
    """

    horizon: int
    first_order: int = 0
    test_scale: float = 1.0
    reward_range: float | None = None
    S: float = 1.0
    lam: float | None = 1.0
    sigma: float = 0.5
    delta: npt.ArrayLike = 0.05
    bonus_scale: npt.ArrayLike = 1.0
    example = "dim=2, horizon=1000"
    base_type: ClassVar[type[MasterBase]]

    def build_lane(self, place: int) -> MasterLane:
        own = {name: self.pick(name, place) for name in ("delta", "bonus_scale")}
        lanes = [int(self.lane_ids[place])]
        return self.derive(MasterLane, base=self.derive(self.base_type, lanes=lanes, **own), lanes=lanes)


def log_quotient(a: float, b: float) -> float:
    """Return log(a / b), even if a / b overflows."""
    return math.log(a) - math.log(max(b, SMALLEST))
