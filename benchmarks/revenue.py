"""How should revenue be learned: as a share of a cap, with the identity link, or with the Poisson link?

    python benchmarks/revenue.py [--runs 12] [--visits 20000] [--jobs 2]

A visitor has a phone or a desktop and sees one of four offers. Nothing drifts. In the world "few buy", one visitor in
twelve to forty buys, for 20 to 110 euros on average, and 200 euros are the cap: what is above counts as that. In "most
buy", two in three do, for 6 to 20 euros, and the cap is 60. Each run draws the rates and the mean amounts of its world
anew; amounts have a gamma distribution of shape 2. Five ways to learn, with the default policy:

share          min(amount, cap) / cap with the logistic link, the default
identity       the amount with ``link="identity", reward_range=(0, cap)``
no range       the amount with ``link="identity"``
poisson        the amount with ``link="poisson", reward_range=(0, cap)``
random         nothing is learned

Printed, over runs: the mean true value of the offers played, in euros a visit, with its standard error; the same as a
share of the way from random play to the best offer for every visitor; and in how many runs ``drift.verdict`` was
"drift" at the end, although nothing moved.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from joblib import Parallel, delayed

import windvane

SHAPE = 2.0  # of the amounts, for which the mean of the capped amount is known in closed form
OFFERS = ("bundle", "single", "gift", "voucher")
DEVICES = ("phone", "desktop")
WORLDS = {"few buy": ((0.025, 0.08), (20.0, 110.0), 200.0), "most buy": ((0.5, 0.8), (6.0, 20.0), 60.0)}
"""The ranges of the probability of a sale and of the mean amount, by offer and device; and the cap."""
SHARE, IDENTITY, NO_RANGE, POISSON, RANDOM = "share", "identity", "no range", "poisson", "random"
WAYS = (SHARE, IDENTITY, NO_RANGE, POISSON, RANDOM)


def find_settings(way: str, cap: float) -> dict[str, Any]:
    """Return the settings of an agent."""
    link = {} if way == SHARE else {"link": "poisson" if way == POISSON else "identity"}
    return link | ({"reward_range": (0.0, cap)} if way in (IDENTITY, POISSON) else {})


def expect_capped(mean: np.ndarray, cap: float) -> np.ndarray:
    """Return the mean of min(amount, cap) for amounts with this mean."""
    x = cap * SHAPE / mean  # below: the distribution functions of shapes 3 and 2
    return mean * (1.0 - np.exp(-x) * (1.0 + x + x * x / 2.0)) + cap * np.exp(-x) * (1.0 + x)


def play(world: str, way: str, visits: int, seed: int) -> tuple[float, float, float, bool]:
    """Return the mean true value played, that of random play and of the best offers, and whether drift was seen."""
    rng = np.random.default_rng([seed, list(WORLDS).index(world)])
    (low, high), (least, most), cap = WORLDS[world]
    size = len(DEVICES), len(OFFERS)
    rates, means = rng.uniform(low, high, size), rng.uniform(least, most, size)
    values = rates * expect_capped(means, cap)
    chance, best = values.mean(), values.max(axis=1).mean()
    if way == RANDOM:
        return chance, chance, best, False
    features = {"by_arm": {"device": list(DEVICES)}, "arms": list(OFFERS)}
    agent = windvane.Agent(features=features, seed=seed, **find_settings(way, cap))
    scale, total = cap if way == SHARE else 1.0, 0.0
    for _ in range(visits):
        device = int(rng.integers(2))
        decision = agent.decide(context={"device": DEVICES[device]})
        offer = OFFERS.index(decision.arm)
        total += values[device, offer]
        buys = rng.random() < rates[device, offer]
        amount = min(rng.gamma(SHAPE, means[device, offer] / SHAPE), cap) if buys else 0.0
        agent.reward(decision, amount / scale)
    drift = agent.drift_estimate()
    return total / visits, chance, best, drift is not None and drift.verdict == "drift"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--visits", type=int, default=20_000)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    print(f"{'world':10}{'way':12}{'euros a visit':>16}{'of the best':>14}{'of the way':>16}{'drift seen':>14}")
    for world in WORLDS:
        for way in WAYS:
            runs = Parallel(arguments.jobs)(
                delayed(play)(world, way, arguments.visits, seed) for seed in range(arguments.runs)
            )
            played, chance, best = np.array([run[:3] for run in runs]).T
            way_up = (played - chance) / (best - chance)
            error = 1.0 / np.sqrt(len(runs))
            drifts = sum(run[3] for run in runs)
            print(
                f"{world:10}{way:12}{played.mean():10.2f} ± {played.std(ddof=1) * error:.2f}{best.mean():14.2f}"
                f"{way_up.mean():9.0%} ± {way_up.std(ddof=1) * error:.0%}{drifts:8} of {len(runs)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
