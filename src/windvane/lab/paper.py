"""The experiment of Faury, Russac, Abeille and Calauzènes (2021), their Figure "exps", and what they published of it.

Logistic rewards, d = 2, S = L = lam = 1, sigma = 1/2, T = 3000, 50 runs, 10 fresh arms a round. theta* rests at (1, 0)
for a third of the time, turns to (0, 1) during the second third, and stays there: B_T = (2T/3) sin(3 pi / (4T)).

The paper leaves some of it open. The readings assumed here are listed in :data:`READINGS` and printed with every
result. None of them is claimed to be what the authors ran.
"""

from __future__ import annotations

import csv
import math
from importlib import resources
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windvane._validation import Array, one_of
from windvane.environments import ARM_LAWS, Rotation
from windvane.lab.results import Entry
from windvane.lab.spec import EnvironmentSpec, PolicySpec, Spec

POLICIES = ("OFUL", "D-LinUCB", "GLM-UCB", "BVD-GLM-UCB")
ARMS = ("ball", "sphere", "cube")
HORIZON, RUNS = 3000, 50
ENVIRONMENT = "the paper's rotation"

_ARM_TEXT = {
    "ball": "uniform in the unit ball",
    "sphere": "uniform on the unit sphere",
    "cube": "uniform in the cube [-1, 1]^2, longer ones pulled back to the unit ball",
}
READINGS = (
    "Arms are {arms}; the paper does not say how they are drawn.",
    "delta = 0.05; the paper does not say.",
    "theta* goes from (1, 0) to (0, 1), as the published figure and B_T have it; the text contradicts both.",
    "The bonus is multiplied by {bonus_scale:g} (1 is as printed); the radius is the printed one, of a fixed round.",
    "gamma = 1 - (B_T/(dT))^(2/3), with the exact B_T, which the policies are told.",
    "V_tilde follows its definition; the solution of the projection, which is not unique, is the canonical one.",
    "Equal scores are broken at random.",
)


class Published(NamedTuple):
    """A published curve, read off the paper's vector figure: mean and one standard deviation over its 50 runs."""

    rounds: npt.NDArray[np.int64]
    mean: Array
    sd: Array


def published_curves() -> dict[str, Published]:
    """The published regret of each policy, every tenth round."""
    text = resources.files("windvane.lab").joinpath("published.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    rounds = np.array([int(row["round"]) for row in rows])
    return {
        name: Published(rounds, *(np.array([float(row[f"{name}{what}"]) for row in rows]) for what in ("", " sd")))
        for name in POLICIES
    }


def paper_spec(
    *,
    runs: int = RUNS,
    horizon: int = HORIZON,
    arms: str = "ball",
    bonus_scale: float = 1.0,
    seed: int = 0,
    diagnostics: bool = False,
) -> Spec:
    """The paper's experiment as a spec; the defaults are its sizes."""
    law = ARM_LAWS[one_of("arms", arms, ARMS)]()
    scale = {} if bonus_scale == 1.0 else {"bonus_scale": bonus_scale}
    return Spec(
        title="Faury et al. (2021), reproduced",
        environments=(EnvironmentSpec(name=ENVIRONMENT, drift=Rotation(), arms=law),),
        policies=tuple(PolicySpec(policy=name, settings=scale) for name in POLICIES),
        runs=runs,
        horizon=horizon,
        seed=seed,
        diagnostics=diagnostics,
    )


def turning_period(horizon: int) -> tuple[float, float]:
    """The rounds between which theta* turns."""
    turn = Rotation()
    return turn.begin * horizon, turn.end * horizon


def readings(arms: str, bonus_scale: float) -> list[str]:
    """What was assumed where the paper is silent or contradicts itself."""
    return [text.format(arms=_ARM_TEXT[arms], bonus_scale=bonus_scale) for text in READINGS]


class Against(NamedTuple):
    """Our final regret beside the published one; ``errors`` is the gap in standard errors of the two means."""

    policy: str
    ours: float
    published: float
    errors: float

    def __str__(self) -> str:
        gap = f"{abs(self.ours / self.published - 1.0):.0%} {'above' if self.ours > self.published else 'below'}"
        says = "agrees within noise with" if self.errors <= 2.0 else f"is {gap}"
        far = f" ({self.errors:.1f} standard errors)" if math.isfinite(self.errors) else ""
        return f"{self.policy}: our final regret {self.ours:.1f} {says} the published {self.published:.1f}{far}."


def against_published(entries: list[Entry]) -> list[Against]:
    """Where our result differs from the published one: at its horizon only, since nothing else was published."""
    curves = published_curves()
    found = []
    for entry in entries:
        if entry.policy in curves and entry.horizon == HORIZON:
            curve, n = curves[entry.policy], len(entry.final)
            ours, theirs = float(entry.final.mean()), float(curve.mean[-1])
            variance = entry.final.var(ddof=1) / n if n > 1 else math.nan
            error = math.sqrt(variance + curve.sd[-1] ** 2 / RUNS)
            found.append(Against(entry.policy, ours, theirs, abs(ours - theirs) / error))
    return found


def differences(entries: list[Entry]) -> list[str]:
    """:func:`against_published` in words."""
    found = [str(one) for one in against_published(entries)]
    return found or [f"Nothing to compare: only {HORIZON} rounds were published."]
