"""Off-policy estimates on a log, row by row, transcribed from the docstrings of windvane.logs.evaluation.

Every sum is a loop, the confidence sequence is integrated numerically, and probabilities come from ``probabilities``.
"""

import math
from itertools import pairwise

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq


def log_mixture(s, v):
    """The logarithm of the integral of exp(lambda s - psi(lambda) v) over the truncated gamma density, rho = 1."""

    def exponent(lam):
        return lam * s + v * (math.log1p(-lam) + lam) - (1 - lam)

    centre = max(s, 0.0) / (max(s, 0.0) + v + 1.0)
    peak, width = exponent(centre), 1 / math.sqrt(v + 1)
    cuts = sorted(
        {0.0, 1.0 - 1e-15, *(min(max(centre + j * width, 0.0), 1.0 - 1e-15) for j in (-40, -8, -2, 0, 2, 8, 40))}
    )
    pieces = pairwise(cuts)
    total = sum(
        quad(lambda x: math.exp(exponent(x) - peak), a, b, epsabs=0, epsrel=1e-11, limit=200)[0] for a, b in pieces
    )
    return peak + math.log(total) - math.log(1 - math.exp(-1))


def lower_bound(scores, limits, offset, span, alpha, weights=None):
    """scores[k]: the scores at truncation k, one per row."""
    weights = [1.0] * len(scores[0]) if weights is None else weights
    sums = []
    for k, row in zip(limits, scores, strict=True):
        total, v = 0.0, 0.0
        for i, (score, w) in enumerate(zip(row, weights, strict=True), start=1):
            x = w * (score + k + offset) / (k + span)
            v += (x - min((0.5 + total) / i, 1.0)) ** 2
            total += x
        sums.append((k, total, v))

    def gap(mean):
        logs = [log_mixture(total - sum(weights) * (mean + k + offset) / (k + span), v) for k, total, v in sums]
        top = max(logs)
        return top + math.log(sum(math.exp(x - top) for x in logs) / len(logs)) - math.log(2 / alpha)

    if gap(-offset) < 0:
        return -offset
    return brentq(gap, -offset, span - offset, xtol=1e-10) if gap(span - offset) < 0 else span - offset


class NaiveEvaluation:
    """One policy on one log. ``rows``: dicts with arms, valid, played, p (of all arms, or None), propensity, ..."""

    def __init__(self, rows, policy, model, epsilon=0.0, floor=None):
        self.rows, self.floor = rows, floor
        self.pi, self.q = [], []
        pending = []
        for number, row in enumerate(rows):
            pending.sort(key=lambda entry: entry[:2])
            while pending and pending[0][0] <= row["time"]:
                self.learn(pending.pop(0), (policy, model))
            arms, valid = row["arms"][None], row["valid"][None]
            pi = policy.probabilities(arms, valid)[0]
            K = valid.sum()
            self.pi.append([(1 - epsilon) * x + epsilon * ok / K for x, ok in zip(pi, valid[0], strict=True)])
            model.select(arms, valid)
            self.q.append(np.where(valid[0], model.decision.means[0], 0.0).astype(np.float32).astype(float))
            policy.select(arms, valid)
            if row["is_learned"] and not math.isnan(row["reward"]) and math.isfinite(row["reward_time"]):
                pending.append((row["reward_time"], number, row))

    @staticmethod
    def learn(entry, policies):
        _, number, row = entry
        for policy in policies:
            x = row["arms"][row["played"]][None]
            policy.update(x, row["reward"], round=float(number + 1), weight=row["weight"])

    def evaluated(self):
        """Yield pi, q and the row for all rows with a reward and a probability."""
        for pi, q, row in zip(self.pi, self.q, self.rows, strict=True):
            if not math.isnan(row["reward"]) and math.isfinite(row["reward_time"]) and row["propensity"] > 0:
                yield pi, q, row

    def score(self, delta, q, row, k=None):
        """D_t for a signed policy; truncated at k unless k is None."""
        cut = []
        for a, (d, value) in enumerate(zip(delta, q, strict=True)):
            if k is not None and d != 0:
                least = self.floor if row["p"] is None else row["p"][a]
                reach = k * least / abs(d)
                value = min(value, reach) if d > 0 else max(value, 1 - reach)
            cut.append(value)
        a = row["played"]
        direct = sum(d * value for d, value in zip(delta, cut, strict=True))
        return direct + delta[a] / row["propensity"] * (row["reward"] - cut[a])

    def variants(self, threshold):
        n = ips = weight = dm = dr = switch = squares = 0.0
        for pi, q, row in self.evaluated():
            w, W = pi[row["played"]] / row["propensity"], row["weight"]
            direct = sum(p * value for p, value in zip(pi, q, strict=True))
            residual = w * (row["reward"] - q[row["played"]])
            n, weight, squares = n + W, weight + W * w, squares + (W * w) ** 2
            ips, dm, dr = ips + W * w * row["reward"], dm + W * direct, dr + W * (direct + residual)
            switch += W * (direct + (residual if w <= threshold else 0.0))
        return {
            "ips": ips / n, "snips": ips / weight, "direct_method": dm / n, "dr": dr / n, "switch_dr": switch / n,
            "ess": weight**2 / squares,
        }  # fmt: skip

    def interval(self, limits, alpha, other=None):
        """The interval of the value, or of the difference to ``other``, another NaiveEvaluation of the same log."""
        offset, span = (0.0, 1.0) if other is None else (1.0, 2.0)
        low, high, weights = [[] for _ in limits], [[] for _ in limits], []
        others = self.evaluated() if other is None else other.evaluated()
        for (pi, q, row), (rho, _, _) in zip(self.evaluated(), others, strict=True):
            delta = pi if other is None else [a - b for a, b in zip(pi, rho, strict=True)]
            weights.append(row["weight"])
            for i, k in enumerate(limits):
                low[i].append(self.score(delta, q, row, k))
                high[i].append(self.score([-d for d in delta], q, row, k))
        weights = [w / max(weights) for w in weights]
        return (
            lower_bound(low, limits, offset, span, alpha, weights),
            -lower_bound(high, limits, span - offset, span, alpha, weights),
        )
