"""Masters over policies, line by line and one lane: EXP3, BOB and the schedule of MASTER."""

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from naive.glm import NaiveBVDGLMUCB
from naive.linear import NaiveLinear
from support.draws import master_coin


class NaiveEXP3:
    """Auer et al. 2002, with the weights themselves; ``Decimal`` numbers, whose exponents do not overflow."""

    def __init__(self, arms: int, rate: float | Decimal) -> None:
        self.N, self.alpha, self.s = arms, Decimal(rate), [Decimal(1)] * arms

    def p(self) -> list[Decimal]:
        total = sum(self.s)
        return [(1 - self.alpha) * s / total + self.alpha / self.N for s in self.s]

    def learn(self, j: int, gain: float) -> None:
        self.s[j] *= (self.alpha / (self.N * self.p()[j]) * Decimal(gain)).exp()


class NaiveEXP3S(NaiveEXP3):
    """EXP3.S of the same paper: every weight gets e alpha / K times the sum of the old ones (here ``share``)."""

    def __init__(self, arms: int, rate: float | Decimal, share: float | Decimal) -> None:
        super().__init__(arms, rate)
        self.share = Decimal(share)

    def learn(self, j: int, gain: float) -> None:
        W = sum(self.s)
        super().learn(j, gain)
        self.s = [s + Decimal(1).exp() * self.share / self.N * W for s in self.s]


class BlockMaster:
    """EXP3 draws a value of ``grid`` for every block of H rounds, and a fresh worker, ``make(value)``, plays it."""

    T: int
    H: int
    grid: list[float]
    make: Callable[[float], Any]
    gain: Callable[[list[float]], float]

    def begin(self, coins: Callable[[int], float]) -> None:
        self.coins, N = coins, len(self.grid)
        self.exp3 = NaiveEXP3(N, min(1.0, math.sqrt(N * math.log(N) / ((math.e - 1) * math.ceil(self.T / self.H)))))

    def p(self) -> list[float]:
        return [float(p) for p in self.exp3.p()]

    def run(self, arms_of: Callable[[int], Any], reward_of: Callable[[Any, int], float]) -> list[int]:
        choices = []
        self.laws, self.drawn = [], []
        for i in range(1, math.ceil(self.T / self.H) + 1):
            p = self.p()
            j = int(np.searchsorted(np.cumsum(p), self.coins(i - 1), side="right"))
            self.laws.append(p)
            self.drawn.append(self.grid[j])
            worker, rewards = self.make(self.grid[j]), []
            for t in range((i - 1) * self.H + 1, min(i * self.H, self.T) + 1):
                arms = arms_of(t)
                k = worker.select(arms)
                rewards.append(reward_of(arms[k], t))
                worker.update(arms[k], rewards[-1])
                choices.append(k)
            self.exp3.learn(j, self.gain(rewards))
        return choices


class NaiveBOBBVDGLMUCB(BlockMaster):
    """Algorithm 2 (appendix) of Faury et al. 2021. ``coins(block)`` is the uniform number that draws."""

    def __init__(self, dim: int, T: int, sigma: float, coins: Callable[[int], float], S: float = 1.0) -> None:
        self.dim, self.T, self.S, self.sigma = dim, T, S, sigma
        self.H = min(T, math.floor(dim * math.sqrt(T)))
        N = math.ceil(2 / 3 * math.log2(2 * S * T**1.5)) + 1
        mus = [0.5 * 2 ** (i - 1) / (dim ** (2 / 3) * T * (2 * S) ** (2 / 3)) for i in range(1, N + 1)]
        self.grid = [max(0.5, 1 - mu) for mu in mus]
        self.begin(coins)

    def make(self, value: float) -> NaiveBVDGLMUCB:
        return NaiveBVDGLMUCB(self.dim, gamma=value, S=self.S, sigma=self.sigma, delta=1 / self.T)

    def gain(self, rewards: list[float]) -> float:
        return sum(rewards) / (2 * self.sigma * self.H)


class NaiveBOB(BlockMaster):
    """Section 6 of Cheung et al. 2019, over SW-LinUCB."""

    def __init__(self, dim: int, T: int, sigma: float, coins: Callable[[int], float]) -> None:
        self.dim, self.T, self.sigma = dim, T, sigma
        self.H = math.floor(dim ** (2 / 3) * math.sqrt(T))
        delta = math.ceil(math.log(self.H))
        self.grid = [math.floor(self.H ** (j / delta) + 1e-12) for j in range(delta + 1)]
        self.begin(coins)

    def make(self, value: float) -> NaiveLinear:
        return NaiveLinear("SW-LinUCB", self.dim, value, sigma=self.sigma, delta=1 / self.T)

    def gain(self, rewards: list[float]) -> float:
        noise = 4 * self.sigma * math.sqrt(self.H * math.log(self.T / math.sqrt(self.H)))
        return 0.5 + sum(rewards) / (2 * self.H + noise)


def master_schedule(seed: int, lane: int, first_order: int, rounds: int) -> list[tuple[int, int, list[int]]]:
    """MASTER (Wei and Luo 2021) without restarts: per round the block's order, the acting order and all alive."""
    rows, n, begin, alive = [], first_order, 0, {}
    for t in range(rounds):
        if t - begin == 2**n:
            n, begin, alive = n + 1, t, {}
        alive = {m: end for m, end in alive.items() if end > t}
        for m in range(n + 1):
            if (t - begin) % 2**m == 0 and master_coin(seed, lane, t, m) < math.sqrt(2**m / 2**n):
                alive[m] = t + 2**m
        rows.append((n, min(alive), sorted(alive)))
    return rows
