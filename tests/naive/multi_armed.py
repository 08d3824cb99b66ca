"""Arms without features, one lane: D-UCB and SW-UCB from all plays at every round, Rexp3 and EXP3.S from the papers."""

import math
from decimal import Decimal

import numpy as np

from naive.masters import NaiveEXP3, NaiveEXP3S


class NaiveIndexUCB:
    """D-UCB (``gamma``) and SW-UCB (``tau``) of Garivier and Moulines 2011; rounds count from 1, rewards in [0, B]."""

    def __init__(self, K: int, B: float, xi: float, *, gamma: float | None = None, tau: float | None = None) -> None:
        self.K, self.B, self.xi, self.gamma, self.tau = K, B, xi, gamma, tau
        self.plays: list[tuple[int, int, float]] = []  # round, arm, reward

    def weight(self, s: int, t: int) -> float:
        """Of the reward of round s, at the decision of round t."""
        if self.gamma is not None:
            return float(self.gamma ** (t - 1 - s))
        assert self.tau is not None
        return 1.0 if s > t - 1 - self.tau else 0.0

    def N(self, i: int, t: int) -> float:
        return sum(self.weight(s, t) for s, arm, _ in self.plays if arm == i)

    def mean(self, i: int, t: int) -> float:
        return sum(self.weight(s, t) * x for s, arm, x in self.plays if arm == i) / self.N(i, t)

    def padding(self, i: int, t: int) -> float:
        if self.gamma is not None:
            n = sum(self.N(j, t) for j in range(self.K))
            return 2 * self.B * math.sqrt(self.xi * math.log(n) / self.N(i, t))
        assert self.tau is not None
        return self.B * math.sqrt(self.xi * math.log(min(t - 1, self.tau)) / self.N(i, t))

    def index(self, i: int, t: int) -> float:
        return self.mean(i, t) + self.padding(i, t) if self.N(i, t) > 0 else math.inf


class NaiveRexp3:
    """Besbes, Gur and Zeevi 2014: EXP3 that restarts after every ``batch`` rounds."""

    def __init__(self, K: int, rate: float | Decimal, batch: int) -> None:
        self.K, self.rate, self.batch = K, rate, batch
        self.t = 0

    def p(self) -> list[Decimal]:
        if self.t % self.batch == 0:
            self.exp3 = NaiveEXP3(self.K, self.rate)
        return self.exp3.p()

    def learn(self, arm: int, reward: float) -> None:
        self.exp3.learn(arm, reward)
        self.t += 1


def draw(p: list[Decimal], u: float) -> int:
    """The first option whose cumulated probability exceeds u."""
    return int(np.searchsorted(np.cumsum([float(x) for x in p]), u, side="right"))


__all__ = ["NaiveEXP3S", "NaiveIndexUCB", "NaiveRexp3", "draw"]
