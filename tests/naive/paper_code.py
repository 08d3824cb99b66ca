"""The rules of the public code of Russac et al. (2019), for one lane, as its recursions have them."""

from __future__ import annotations

import math

import numpy as np


class PublicDLinUCB:
    """D-LinUCB with V_tilde computed from the V that has just been updated: an error of the code."""

    def __init__(self, dim: int, gamma: float, lam: float, delta: float, sigma: float, S: float) -> None:
        self.dim, self.gamma, self.lam, self.delta, self.sigma, self.S = dim, gamma, lam, delta, sigma, S
        self.V, self.V_tilde, self.b = lam * np.eye(dim), lam * np.eye(dim), np.zeros(dim)
        self.updates = 0

    def scores(self, arms: np.ndarray) -> np.ndarray:
        inverse = np.linalg.inv(self.V)
        theta_hat = inverse @ self.b
        squared = self.gamma**2
        growth = (1 - squared**self.updates) / (self.dim * self.lam * (1 - squared))
        root = math.sqrt(2 * math.log(1 / self.delta) + self.dim * math.log(1 + growth))
        beta = math.sqrt(self.lam) * self.S + self.sigma * root
        metric = inverse @ self.V_tilde @ inverse
        return np.array([x @ theta_hat + beta * math.sqrt(x @ metric @ x) for x in arms])

    def update(self, x: np.ndarray, reward: float) -> None:
        identity, outer, gamma = np.eye(self.dim), np.outer(x, x), self.gamma
        self.V = gamma * self.V + outer + (1 - gamma) * self.lam * identity
        self.V_tilde = gamma**2 * self.V + outer + (1 - gamma**2) * self.lam * identity  # self.V is new
        self.b = gamma * self.b + reward * x
        self.updates += 1


class PublicLinUCB:
    """LinUCB with a radius from the number of rounds. It starts again in the rounds ``changes``, counted from 0."""

    def __init__(
        self, dim: int, lam: float, delta: float, sigma: float, S: float, changes: tuple[int, ...] = ()
    ) -> None:
        self.dim, self.lam, self.delta, self.sigma, self.S, self.changes = dim, lam, delta, sigma, S, changes
        self.round = 0
        self.start()

    def start(self) -> None:
        self.V, self.b, self.updates = self.lam * np.eye(self.dim), np.zeros(self.dim), 0

    def scores(self, arms: np.ndarray) -> np.ndarray:
        if self.round in self.changes:
            self.start()
        inverse = np.linalg.inv(self.V)
        theta_hat = inverse @ self.b
        growth = math.log(1 + self.updates / (self.lam * self.dim))
        root = math.sqrt(2 * math.log(1 / self.delta) + self.dim * growth)
        beta = math.sqrt(self.lam) * self.S + self.sigma * root
        return np.array([x @ theta_hat + beta * math.sqrt(x @ inverse @ x) for x in arms])

    def update(self, x: np.ndarray, reward: float) -> None:
        self.V, self.b = self.V + np.outer(x, x), self.b + reward * x
        self.updates += 1
        self.round += 1


class PublicSWLinUCB:
    """SW-LinUCB; ``tau`` is not a whole number. It forgets its oldest arm from the update on that finds ``tau``."""

    def __init__(self, dim: int, tau: float, lam: float, delta: float, sigma: float, S: float) -> None:
        self.tau, self.lam = tau, lam
        self.beta = math.sqrt(lam) * S + sigma * math.sqrt(dim * math.log((1 + tau / lam) / delta))
        self.dim, self.past = dim, []

    def scores(self, arms: np.ndarray) -> np.ndarray:
        inverse = np.linalg.inv(self.lam * np.eye(self.dim) + sum(np.outer(x, x) for x, _ in self.past))
        theta_hat = inverse @ sum((reward * x for x, reward in self.past), np.zeros(self.dim))
        return np.array([x @ theta_hat + self.beta * math.sqrt(x @ inverse @ x) for x in arms])

    def update(self, x: np.ndarray, reward: float) -> None:
        if len(self.past) >= self.tau:
            self.past.pop(0)
        self.past.append((x, reward))
