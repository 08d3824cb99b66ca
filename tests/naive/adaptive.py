"""AdaptiveGLMUCB on one lane, transcribed from the docstrings of the policy and its bank, with full matrices."""

import math

import numpy as np
from scipy import stats
from scipy.optimize import brentq

from windvane import get_link

MEMORIES = (32.0, 128.0, 512.0, 2048.0, 8192.0, 32768.0, math.inf)


def log_density(link, r, z, v, phi):
    """Return the log density of a reward with belief N(z, phi v), up to a term that depends on the reward only."""
    if link in ("logistic", "probit"):
        p = (
            stats.logistic.cdf(z / math.sqrt(1 + math.pi * v / 8))
            if link == "logistic"
            else stats.norm.cdf(z / math.sqrt(1 + v))
        )
        return r * math.log(p) + (1 - r) * math.log1p(-p)
    if link == "identity":
        constant = stats.t.logpdf(0.0, 5)
        return stats.t.logpdf(r, 5, z, math.sqrt(phi * (1 + v))) - constant
    mean = math.exp(z)
    variance = phi * mean + phi * v * mean**2
    shape = mean**2 / max(variance - mean, 1e-6 * mean**2)
    return log_count(r, shape, mean)


def log_count(r, shape, mean):
    """The negative binomial log density, for any r: a limited count need not be whole."""
    binomial = math.lgamma(r + shape) - math.lgamma(shape) - math.lgamma(r + 1)
    return binomial + shape * math.log(shape / (shape + mean)) + r * math.log(mean / (shape + mean))


class NaiveAdaptiveGLMUCB:
    def __init__(self, dim, link="logistic", S=None, L=1.0, sigma=0.5):
        self.kind, self.link = link, get_link(link)
        self.phi = sigma**2 if link == "identity" else 1.0
        scales = [s * math.sqrt(self.phi) / L for s in (1, 8, 64)] if S is None else [S]
        self.experts = [
            {
                "a": 1 - 1 / m,
                "q": s**2 / dim / self.phi,
                "theta": np.zeros(dim),
                "loss": 0.0,
                "phi": self.phi,
                "count": {"identity": 3.0, "poisson": 20.0}.get(link, 500.0),
            }
            for m in MEMORIES
            for s in scales
        ]
        for e in self.experts:
            e["P"] = e["q"] * np.eye(dim)

    def weights(self):
        p = np.exp([min(e["loss"] for e in self.experts) - e["loss"] for e in self.experts])
        return p / p.sum()

    def acting(self):
        """Return the expert at the 40 % quantile of the weights, from the fastest theta* to the slowest."""
        speed = [(1 - e["a"] ** 2) * e["q"] for e in self.experts]
        order = sorted(range(len(speed)), key=lambda g: -speed[g])
        total = np.cumsum(self.weights()[order])
        return self.experts[order[int(np.argmax(total >= 0.4))]]

    def upper(self, arms):
        e = self.acting()
        return np.array([x @ e["theta"] + math.sqrt(e["phi"] * (x @ e["P"] @ x)) for x in arms])

    def age(self):
        for e in self.experts:
            e["theta"] = e["a"] * e["theta"]
            e["P"] = e["a"] ** 2 * e["P"] + (1 - e["a"] ** 2) * e["q"] * np.eye(len(e["P"]))

    def learn(self, x, told, k=0.0, w=1.0):
        for e in self.experts:
            fade = e["a"] ** k
            z, Px = fade * (x @ e["theta"]), fade * e["P"] @ x
            v = fade * (x @ Px) + (1 - fade**2) * e["q"] * (x @ x)
            r = self.limit(e["phi"], z, v, told)
            if e["count"] >= 20:
                e["loss"] = 0.998**w * e["loss"] - w * log_density(self.kind, r, z, v, e["phi"])
            self.learn_dispersion(e, z, v, r, w)
            ends = sorted([z, z + w * v * (r - float(self.link.mean(z)))])
            if self.kind == "poisson":  # beyond log r the mean exceeds the reward
                ends[1] = min(ends[1], max(z, math.log(max(r, 1e-9))))
            y = brentq(
                lambda y: y - z - w * v * (r - float(self.link.mean(y))),
                ends[0] - 1e-9,
                ends[1] + 1e-9,
                xtol=1e-15,
                rtol=1e-15,
            )
            s = w * float(self.link.slope(y))
            e["theta"] = e["theta"] + Px * (y - z) / v
            e["P"] = e["P"] - s / (1 + s * v) * np.outer(Px, Px)

    def limit(self, phi, z, v, r):
        """Ten standard deviations from the prediction, at most."""
        if self.kind == "identity":
            return float(np.clip(r, z - 10 * math.sqrt(phi * (1 + v)), z + 10 * math.sqrt(phi * (1 + v))))
        if self.kind == "poisson":
            highest = math.exp(min(z + 10 * math.sqrt(phi * v), 708.0))
            return min(r, highest + 10 * math.sqrt(phi * highest))
        return r

    def learn_dispersion(self, e, z, v, r, w):
        if self.kind in ("logistic", "probit"):
            return
        mean = float(self.link.mean(z))
        expected = e["phi"] * (1 + v) if self.kind == "identity" else e["phi"] * (mean + mean**2 * v)
        e["phi"] *= (e["count"] + w * min((r - mean) ** 2 / expected, 100.0)) / (e["count"] + w)
        if self.kind == "poisson":
            e["phi"] = max(e["phi"], 1.0)
        e["count"] = min(e["count"] + w, 500.0)
