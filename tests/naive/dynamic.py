"""dLinUCB of Wu, Iyer and Wang 2018, one lane, after the authors' public code (lib/dLinUCB.py), class by class.

As in the independent code by Russac: badness is the mean of the last ``tau`` failures, comparisons are < and >=, sigma
is not squared in eta, and the confidence radius, not a constant, is used to play. The radius is the authors'.
"""

import math
from typing import Any

import numpy as np
from scipy.special import erfinv


class NaiveSlave:
    def __init__(self, d: int, lam: float, born: int) -> None:
        self.d, self.lam, self.createTime = d, lam, born
        self.A, self.b, self.update_num = lam * np.eye(d), np.zeros(d), 0
        self.failList: list[int] = []
        self.badness, self.badness_CB = 0.0, 0.5

    @property
    def UserTheta(self) -> Any:
        return np.linalg.inv(self.A) @ self.b

    def getBadness(self, tau: int, delta_2: float) -> None:
        last = self.failList[-tau:]
        self.badness = sum(last) / len(last)
        self.badness_CB = math.sqrt(math.log(1.0 / delta_2) / (2.0 * len(last)))

    def updateParameters(self, x: Any, click: float) -> None:
        self.A += np.outer(x, x)
        self.b += x * click
        self.update_num += 1


class NaiveDynamicLinUCB:
    def __init__(
        self, d: int, *, S: float = 1.0, lam: float = 1.0, sigma: float = 0.5, delta: float = 0.01,
        delta_1: float = 0.01, delta_1_tilde: float = 0.002, delta_2: float = 0.1, tau: int = 100,
    ) -> None:  # fmt: skip
        self.d, self.S, self.lam, self.NoiseScale, self.sigma = d, S, lam, sigma, delta
        self.delta_1, self.tilde_delta_1, self.delta_2, self.tau = delta_1, delta_1_tilde, delta_2, tau
        self.eta = math.sqrt(2.0) * sigma * erfinv(1.0 - delta_1)
        self.time = 0
        self.SLAVEs = [NaiveSlave(d, lam, 0)]
        self.discarded = 0

    def alpha_t(self, slave: NaiveSlave) -> float:
        ratio = (self.lam + slave.update_num) / (self.sigma * self.lam)
        return self.NoiseScale * math.sqrt(self.d * math.log(ratio)) + math.sqrt(self.lam) * self.S

    def var(self, slave: NaiveSlave, x: Any) -> float:
        return math.sqrt(x @ np.linalg.inv(slave.A) @ x)

    def selected(self) -> NaiveSlave:
        min_badness, min_alg = math.inf, self.SLAVEs[0]
        for alg in self.SLAVEs:
            badness_LCB = alg.badness - math.sqrt(math.log(self.tau)) * alg.badness_CB
            if badness_LCB < min_badness:
                min_badness, min_alg = badness_LCB, alg
        return min_alg

    def decide(self, arms: Any) -> Any:
        """The index of every arm."""
        slave = self.selected()
        return np.array([slave.UserTheta @ x + self.alpha_t(slave) * self.var(slave, x) for x in arms])

    def update(self, x: Any, click: float) -> None:
        self.time += 1
        CreateNewFlag, good_alg, algs_to_remove = True, [], []
        for alg in self.SLAVEs:
            if abs(alg.UserTheta @ x - click) <= self.var(alg, x) * self.alpha_t(alg) + self.eta:
                good_alg.append(alg)
                alg.failList.append(0)
            else:
                alg.failList.append(1)
            alg.getBadness(self.tau, self.delta_2)
            if alg.badness < alg.badness_CB + self.tilde_delta_1:
                CreateNewFlag = False
            elif alg.badness >= alg.badness_CB + self.delta_1:
                algs_to_remove.append(alg)
        for alg in algs_to_remove:
            self.SLAVEs.remove(alg)
            self.discarded += 1
        if CreateNewFlag or len(self.SLAVEs) == 0:
            self.SLAVEs.append(NaiveSlave(self.d, self.lam, self.time))
        for alg in self.SLAVEs:
            if alg in good_alg:
                alg.updateParameters(x, click)
