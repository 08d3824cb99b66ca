"""AdaptiveGLMUCB, one lane, as its docstring states it."""

import numpy as np
from scipy.optimize import brentq

from windvane import get_link
from windvane.policies.adaptive_glm_ucb import MEMORIES


class NaiveAdaptiveGLMUCB:
    def __init__(self, dim, link="logistic", S=1.0, L=1.0, sigma=0.5):
        self.link, self.S = get_link(link), S
        self.phi = sigma**2 if link == "identity" else 1.0
        self.ridge = self.phi * dim / S**2 * np.eye(dim)
        self.gammas = [1 - 1 / m for m in MEMORIES]
        self.least = self.link.constants(S, L).c_mu
        self.H, self.G = [[self.ridge.copy() for _ in MEMORIES] for _ in range(2)]
        self.b = [np.zeros(dim) for _ in MEMORIES]
        self.loss = np.zeros(len(MEMORIES))

    def theta(self, g):
        theta = np.linalg.solve(self.H[g], self.b[g])
        return theta * min(1.0, self.S / max(np.linalg.norm(theta), 1e-300))

    def weights(self):
        p = np.exp(-2 * (self.loss - self.loss.min()))
        return p / p.sum()

    def index(self, arms):
        g = int(np.searchsorted(np.cumsum(self.weights()), 0.5))
        z, inverse = arms @ self.theta(g), np.linalg.inv(self.H[g])
        variance = np.array([x @ inverse @ self.G[g] @ inverse @ x for x in arms])
        return self.link.mean(z) + self.link.slope(z) * np.sqrt(self.phi * variance)

    def learn(self, x, r):
        self.loss *= 0.998
        for g, gamma in enumerate(self.gammas):
            self.H[g] = gamma * self.H[g] + (1 - gamma) * self.ridge
            self.G[g] = gamma**2 * self.G[g] + (1 - gamma**2) * self.ridge
            self.b[g] = gamma * self.b[g]
            z = x @ self.theta(g)
            self.loss[g] += (self.link.primitive(z) - r * z) / self.phi
            start, pull = x @ np.linalg.solve(self.H[g], self.b[g]), x @ np.linalg.solve(self.H[g], x)
            y = brentq(lambda y: y - start + pull * (self.link.mean(y) - r), -50, 50, xtol=1e-14, rtol=1e-14)
            slope = max(float(self.link.slope(y)), self.least)
            self.H[g] += slope * np.outer(x, x)
            self.G[g] += slope * np.outer(x, x)
            self.b[g] += slope * (y + (r - float(self.link.mean(y))) / slope) * x
