"""MASTER: a stationary policy made to notice changes, knowing neither how many nor how large they are.

Wei and Luo, "Non-stationary reinforcement learning without prior knowledge: an optimal black-box approach" (COLT 2021).
A *base* policy with regret of order t rho(t) in a stationary world is run in many copies. Blocks of 2^n rounds follow
each other, n = n0, n0 + 1, ... In a block that begins with round t_n:

* at its rounds t_n + tau with tau divisible by 2^m, for m = n, ..., 0, a fresh copy "of order m" is started with
  probability rho(2^n) / rho(2^m), to live for 2^m rounds;
* of the copies alive, the one of the smallest order acts and learns; the others pause;
* f_t = the optimistic value (largest index) of the copy that acts, clipped to [0, 1]; U_t = min of f since t_n.

After round t everything starts again with n = n0 if one of two tests fails, with rho_hat = 6 (log2 T + 1) log(T/delta)
rho:

* test 1: a copy of order m ends with round t, and the mean reward over its 2^m rounds >= U_t + 9 rho_hat(2^m);
* test 2: the mean of f - reward over the rounds since t_n >= 3 rho_hat(t - t_n + 1).

======  ==================================  ===========================================================
policy  ``MASTER-OFUL``                     ``MASTER-GLM-UCB``
======  ==================================  ===========================================================
index   <x, theta_hat> + 2 beta ||x||_V^-1  mu(<x, theta_tilde>) + 2 beta ||x||_V^-1, as GLM-UCB
beta    4 sqrt(d log(T/delta))              4 R_mu (sqrt(d log(c_mu T/(lam delta))) + c_mu sqrt(lam))
rho(t)  beta sqrt(d log(T/delta) / t)       the same with this beta
======  ==================================  ===========================================================

Guarantee (Wei and Luo): regret of order min(sqrt(T N), T^{2/3} B^{1/3}) up to logarithms and powers of d, N the number
of changes, for a base that meets their conditions. At any practical T these constants switch the tests off: test 2
cannot fail before 3 rho_hat(t) <= 1, which for d = 2, T = 3000, delta = 0.05 means t > 4e10, and the bonus of a copy is
37 ||x||_{V^-1}. ``test_scale`` multiplies rho_hat and ``bonus_scale`` the bonus; below 1 both leave the theorem.

What is uncertain, because it could not be read in the source: rho of the GLM base (we take the form it has for OFUL);
how the GLM base projects (as GLM-UCB does here); that test 1 averages over all rounds of the copy's life, whoever
acted. What is ours: rewards are divided by the width of their range for the tests, and the bonus is multiplied by it
(``reward_range``; 2 sigma where rewards lie in [0, 2 sigma]; for MASTER-OFUL, whose sigma is the noise alone, at least
1); the first order n0 (``first_order``, 0 in the paper; experiments in the literature needed 13); and late rewards. The
tests of a round wait for the next decision. A late reward goes to the copy that decided it if that is alive and the
decision is among the last 1024 of its block; test 2 averages over the rounds whose rewards are in. A reward of weight w
counts as w of them.

Cost per round and lane: that of one base policy. Not batched: one object a lane (:mod:`windvane.policies.per_lane`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_lanes, check_not_negative, check_whole
from windvane.arms import ArmSet
from windvane.links import Link
from windvane.policies._saving import State, check_unchanged, checked_header, part_of, saved
from windvane.policies._wrapping import Wrapping
from windvane.policies.base import Card, Index, Policy
from windvane.policies.master_bases import BaseGLMUCB, BaseOFUL, log_quotient
from windvane.policies.per_lane import PerLane

ORDERS = 53  # no block is longer than 2^52 rounds
_LOG = 1024  # decisions whose rewards find the copy that made them
_NONE = -1


class MasterLane(Wrapping):
    """MASTER over the copies that ``base(dim=, lanes=[id], seed=)`` makes; one lane.

    A base is a :class:`BaseOFUL` or a :class:`BaseGLMUCB`, or anything with their ``optimistic``, ``base_beta`` and
    ``reward_range``.
    """

    name = "MASTER"
    kept = ("block", "starts", "rewards", "weights", "sums", "ceiling", "log", "counts")

    def __init__(
        self,
        base: Callable[..., Any],
        *,
        dim: int,
        horizon: int,
        first_order: int = 0,
        test_scale: float = 1.0,
        lanes: Sequence[int] = (0,),
        seed: int = 0,
    ) -> None:
        ids = check_lanes(lanes)
        self._build = functools.partial(base, dim=dim, lanes=ids.tolist(), seed=seed)
        self.horizon = check_whole("horizon", horizon, 1)
        self.first_order = check_whole("first_order", first_order, 0, 40)
        self.test_scale = check_not_negative("test_scale", test_scale)
        base_copy = self._build()
        self._set_up(base_copy.dim, base_copy.link, base_copy.L, base_copy.sigma, ids, seed)
        self.reward_range = base_copy.reward_range
        log_level = log_quotient(self.horizon, base_copy.delta.item())
        if not log_level > 0.0:
            raise ValueError(f"delta={base_copy.delta.item()!r}: must be below 1 where horizon={self.horizon}")
        self._rho_of_1 = float(base_copy.base_beta) * math.sqrt(base_copy.dim * log_level)
        self._caution = 6.0 * (math.log2(self.horizon) + 1.0) * log_level * self.test_scale
        self._copies: dict[int, Any] = {}  # by order
        self._spare: list[Any] = []  # copies whose life is over: to forget is cheaper than to be built
        self._starts = np.full(ORDERS, _NONE)  # the decision with which the copy of each order began
        self._rewards, self._weights = np.zeros(ORDERS), np.zeros(ORDERS)  # during its life: sum w r, sum w
        self._counts = np.zeros(2, dtype=np.int64)  # restarts, rewards that came too late
        self._log = np.zeros((_LOG, 4))  # round, order, start of the copy, optimistic value; of the last decisions
        self._acting = base_copy  # what is read before the first decision
        self._begin_block(self.first_order)
        self.config = {
            "policy": self.name,
            "base": base_copy.config,
            "horizon": self.horizon,
            "first_order": self.first_order,
            "test_scale": self.test_scale,
            "reward_range": self.reward_range,
        }

    # --- the schedule ------------------------------------------------------------------------------------------------

    def rho(self, t: float) -> float:
        """The average regret of the base over t stationary rounds, up to what rho_hat adds."""
        return self._rho_of_1 / math.sqrt(t)

    def rho_hat(self, t: float) -> float:
        """The margin of the tests."""
        return self._caution * self.rho(t)

    def _begin_block(self, order: int) -> None:
        """A block of 2^order decisions starts with the coming one, and no copy lives on into it."""
        for m in list(self._copies):
            self._drop(m)
        self._block = np.array([order, self._decisions])
        self._sums = np.zeros(2)  # sum of w (f - r), sum of w
        self._ceiling = np.ones(1)  # U_t

    def _turn(self) -> None:
        """Before a decision: tests, the end of copies and blocks, new copies."""
        order, start = self._block.tolist()
        if self._fails():
            self._counts[0] += 1
            self._begin_block(self.first_order)
        elif self._decisions - start == 2**order:
            self._begin_block(order + 1)
        else:
            for m in self._ending():
                self._drop(m)
        order, start = self._block.tolist()
        tau = self._decisions - start
        for m in range(order, -1, -1):
            if tau % 2**m == 0 and self._coin(m) < self.rho(2**order) / self.rho(2**m):
                self._copies[m] = self._fresh()
                self._starts[m], self._rewards[m], self._weights[m] = self._decisions, 0.0, 0.0

    def _fresh(self) -> Policy:
        copy = self._spare.pop() if self._spare else self._build()
        copy.restart()
        return self._start(copy)

    def _drop(self, m: int) -> None:
        self._spare.append(self._copies.pop(m))
        self._starts[m] = _NONE

    def _coin(self, m: int) -> float:
        k: Any = self._k
        return float(k.uniform_pair(np.uint64(self.seed), self.lane_ids[0], self._decisions, k.MASTER, m)[0])

    def _ending(self) -> list[int]:
        """The orders of the copies whose life ended with the last decision."""
        return [m for m in self._copies if self._decisions - self._starts[m] == 2**m]

    def _fails(self) -> bool:
        """Tests 1 and 2, on the rewards that are in."""
        ceiling = self._ceiling.item()
        for m in self._ending():
            if self._rewards[m] / max(2.0**m, self._weights[m]) >= ceiling + 9.0 * self.rho_hat(2**m):
                return True
        gap, weight = self._sums.tolist()
        rounds = min(weight, float(self._decisions - self._block[1]))
        return bool(weight > 0.0 and gap / weight >= 3.0 * self.rho_hat(rounds))

    def _act(self) -> Policy:
        """The copy that decides this round, on the clock of all."""
        self._turn()
        self._acting = self._copies[min(self._copies)]
        self._acting.advance(self.t - self._acting.t)
        self._acting.t, self._acting._decisions = self.t, self._decisions
        return self._acting  # type: ignore[no-any-return]

    def _end_round(self) -> None:
        order = min(self._copies)
        value = min(1.0, max(0.0, self._acting.optimistic / self.reward_range))
        self._ceiling = np.minimum(self._ceiling, value)
        self._log[self._decisions % _LOG] = self.t, order, self._starts[order], value
        super()._end_round()
        self.last = dict(self._acting.last)

    # --- the contract ------------------------------------------------------------------------------------------------

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, present = self._checked_arms(arms, valid)
        index = self._act().select(arms, present)
        self._end_round()
        return index

    def select_from(self, arm_set: ArmSet) -> Array:
        arm_set = self._checked_set(arm_set)
        played = self._act().select_from(arm_set)
        self._end_round()
        return played

    def update(
        self,
        x: npt.ArrayLike,
        reward: npt.ArrayLike,
        round: npt.ArrayLike | None = None,
        weight: npt.ArrayLike = 1.0,
        mask: npt.ArrayLike | None = None,
    ) -> None:
        """The reward goes to the copy that decided ``round`` and to the tests; if its block is over, to neither."""
        points, rewards, rounds, weights, chosen = self._checked_feedback(x, reward, round, weight, mask)
        if not chosen[0]:
            return
        known = min(self._decisions - int(self._block[1]), _LOG)  # decisions of this block in the log
        times = self._log[(self._decisions - np.arange(1, known + 1)) % _LOG, 0]
        age = 1 + int((times > rounds[0]).sum())  # 1: the last decision at or before ``round``
        if age > known:
            self._counts[1] += 1
            return
        decided, order, start, value = self._log[(self._decisions - age) % _LOG]
        if self._starts[int(order)] == start:  # its clock stands at its last decision: later is the same to it
            self._copies[int(order)].update(points, rewards, round=decided, weight=weights)
        decision, r, w = self._decisions - age, float(rewards[0]) / self.reward_range, float(weights[0])
        self._sums += w * (value - r), w
        for m in self._copies:
            if self._starts[m] <= decision:
                self._rewards[m] += w * r
                self._weights[m] += w

    def advance(self, n: float = 1.0) -> None:
        """Let ``n`` rounds pass (at least 0, need not be whole): stationary policies do not forget meanwhile."""
        self.t += self._checked_gap(n)

    def restart(self, mask: npt.ArrayLike | None = None) -> None:
        """Begin with the first block again."""
        self._begin_block(self.first_order)
        self._acting = self._build()

    def info(self) -> dict[str, Any]:
        """Diagnostics of the acting copy, and ``block_order``, ``acting_order``, ``ceiling`` (U_t), ``restarts``,
        ``late`` (rewards that came after their block)."""
        return {
            **self._acting.info(),
            "t": self.t,
            "decisions": self._decisions,
            "block_order": self._block[:1].copy(),
            "acting_order": np.array([min(self._copies, default=_NONE)]),
            "ceiling": self._ceiling.copy(),
            "restarts": self._counts[:1].copy(),
            "late": self._counts[1:].copy(),
        }

    def _within(self) -> Policy:
        return self._acting  # type: ignore[no-any-return]

    def _read(self, name: str) -> Array:
        return np.asarray(getattr(self._acting, name))

    def state(self) -> State:
        """Everything that decides the future; the states of the copies are prefixed."""
        return saved(self, **{f"order{m}": copy.state() for m, copy in self._copies.items()})

    def load_state(self, state: State) -> None:
        """Continue from ``state()`` of a policy built alike. Everything is checked before anything changes."""
        header = checked_header(self, state, *(f"order{m}" for m in range(ORDERS)))
        copies = {int(m): self._build() for m in np.flatnonzero(header.kept["starts"] != _NONE)}
        for m in range(ORDERS):
            part = part_of(state, f"order{m}")
            if m in copies:
                copies[m].load_state(part)
            elif part:
                raise ValueError(f"state['order{m}.t']: there is no copy of order {m} according to state['starts']")
        order, start = header.kept["block"].tolist()
        if not 0 <= order < ORDERS or not 0 <= start <= header.decisions:
            raise ValueError(f"state['block']={[order, start]}: must be an order and the decision it began with")
        check_unchanged(state)
        self._take_header(header)
        self._copies = copies
        self._acting = copies[min(copies)] if copies else self._build()


class _Master(PerLane):
    """What the two registered forms share."""

    def __init__(
        self,
        base: Callable[..., Any],
        *,
        dim: int,
        horizon: int,
        first_order: int,
        test_scale: float,
        delta: npt.ArrayLike,
        bonus_scale: npt.ArrayLike,
        lanes: int | Sequence[int],
        seed: int,
    ) -> None:
        lane = functools.partial(_lane, base, horizon=horizon, first_order=first_order, test_scale=test_scale)
        super().__init__(lane, dim=dim, lanes=lanes, seed=seed, delta=delta, bonus_scale=bonus_scale)


def _lane(base: Callable[..., Any], *, delta: float, bonus_scale: float, **settings: Any) -> MasterLane:
    return MasterLane(functools.partial(base, delta=delta, bonus_scale=bonus_scale), **settings)


class MasterOFUL(_Master):
    """MASTER-OFUL (Wei and Luo 2021): needs the horizon T, not the drift."""

    name = "MASTER-OFUL"
    card = Card(
        "linear",
        "adaptive",
        "T",
        "min(sqrt(T changes), T^(2/3) B^(1/3))",
        "Wei and Luo 2021",
        "O((K + d) d^2), per lane",
    )

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        first_order: int = 0,
        test_scale: float = 1.0,
        reward_range: float | None = None,
        S: float = 1.0,
        L: float = 1.0,
        lam: float = 1.0,
        sigma: float = 0.5,
        delta: npt.ArrayLike = 0.05,
        bonus_scale: npt.ArrayLike = 1.0,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        T = check_whole("horizon", horizon, 1)
        base = functools.partial(BaseOFUL, horizon=T, reward_range=reward_range, S=S, L=L, lam=lam, sigma=sigma)
        super().__init__(
            base,
            dim=dim,
            horizon=horizon,
            first_order=first_order,
            test_scale=test_scale,
            delta=delta,
            bonus_scale=bonus_scale,
            lanes=lanes,
            seed=seed,
        )


class MasterGLMUCB(_Master):
    """MASTER-GLM-UCB: Wei and Luo's master over GLM-UCB; needs the horizon T, not the drift."""

    name = "MASTER-GLM-UCB"
    card = Card(
        "generalized linear",
        "adaptive",
        "T",
        "min(sqrt(T changes), T^(2/3) B^(1/3)), if rho is right",
        "Wei and Luo 2021",
        "O((K + t) d^2), per lane",
    )

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        horizon: int,
        first_order: int = 0,
        test_scale: float = 1.0,
        reward_range: float | None = None,
        S: float = 1.0,
        L: float = 1.0,
        lam: float = 1.0,
        sigma: float = 0.5,
        delta: npt.ArrayLike = 0.05,
        bonus_scale: npt.ArrayLike = 1.0,
        tolerance: float = 1e-6,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        T = check_whole("horizon", horizon, 1)
        base = functools.partial(
            BaseGLMUCB,
            link=link,
            horizon=T,
            reward_range=reward_range,
            S=S,
            L=L,
            lam=lam,
            sigma=sigma,
            tolerance=tolerance,
        )
        super().__init__(
            base,
            dim=dim,
            horizon=horizon,
            first_order=first_order,
            test_scale=test_scale,
            delta=delta,
            bonus_scale=bonus_scale,
            lanes=lanes,
            seed=seed,
        )
