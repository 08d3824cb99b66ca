"""The experiment of Faury, Russac, Abeille and Calauzènes (2021), their Figure "exps", and its published result.

Logistic rewards, d = 2, S = L = lam = 1, sigma = 1/2, T = 3000, 50 runs, 10 fresh arms a round. theta* rests at (1, 0)
for a third of the time, turns to (0, 1) during the second third, and stays there: B_T = (2T/3) sin(3 pi / (4T)).

The paper leaves some settings open. ``notes.toml`` lists the readings assumed here, and every result prints them. No
setting is claimed to be the authors'.
"""

from __future__ import annotations

import csv
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_choice
from windvane.environments import ARM_LAWS, Rotation
from windvane.lab.results.results import Entry
from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec, Spec
from windvane.lab.studies.notes import read_data, read_notes

PUBLISHED = ("OFUL", "D-LinUCB", "GLM-UCB", "BVD-GLM-UCB")  # the policies of the paper's figure
POLICIES = (*PUBLISHED, "BOB-BVD-GLM-UCB", "AdaptiveGLMUCB")  # the last two do not know the drift
ARMS = ("ball", "sphere", "cube")
HORIZON, RUNS = 3000, 50
ENVIRONMENT = "the paper's rotation"


class Published(NamedTuple):
    """A published curve, read off the paper's vector figure: the mean over its 50 runs."""

    rounds: npt.NDArray[np.int64]
    mean: Array


def published_curves() -> dict[str, Published]:
    """Return the published regret of each policy, every tenth round.

    The figure's bands are left out: its caption calls them one standard deviation, but in the first round they are
    narrower than the spread between runs can be with any of the arm laws here.
    """
    rows = list(csv.DictReader(read_data("published.csv").splitlines()))
    rounds = np.array([int(row["round"]) for row in rows])
    return {name: Published(rounds, np.array([float(row[name]) for row in rows])) for name in PUBLISHED}


def paper_spec(
    *,
    runs: int = RUNS,
    horizon: int = HORIZON,
    arms: str = "ball",
    bonus_scale: float = 1.0,
    seed: int = 0,
    diagnostics: bool = False,
) -> Spec:
    """Return the paper's experiment as a spec; the defaults are its sizes.

    Examples
    --------
    >>> paper_spec(runs=5).horizon
    3000
    """
    law = ARM_LAWS[check_choice("arms", arms, ARMS)]()
    scale = {} if bonus_scale == 1.0 else {"bonus_scale": bonus_scale}  # AdaptiveGLMUCB has a bonus of its own
    world = EnvironmentSpec(name=ENVIRONMENT, drift=Rotation(), arms=law)
    policies = [PolicySpec(name, settings={} if name == "AdaptiveGLMUCB" else scale) for name in POLICIES]
    sizes: dict[str, Any] = {"runs": runs, "horizon": horizon, "seed": seed}
    return Spec([world], policies, title="Faury et al. (2021), reproduced", diagnostics=diagnostics, **sizes)


def paper_recipe(arms: str, bonus_scale: float) -> dict[str, Any]:
    """Return the recipe that the manifest of the paper's experiment stores."""
    return {"name": "paper", "arms": arms, "bonus_scale": bonus_scale}


def turning_period(horizon: int) -> tuple[float, float]:
    """Return the rounds between which theta* turns."""
    turn = Rotation()
    return turn.begin * horizon, turn.end * horizon


def list_readings(arms: str, bonus_scale: float) -> list[str]:
    """Return what is assumed where the paper is silent or contradicts itself."""
    notes = read_notes("paper")
    return [text.format(arms=notes["arms"][arms], bonus_scale=bonus_scale) for text in notes["readings"]]


class PublishedComparison(NamedTuple):
    """Our mean regret beside the published one at a few rounds; ``errors`` are the gaps in standard errors."""

    policy: str
    rounds: list[int]
    ours: list[float]
    published: list[float]
    errors: list[float]

    def __str__(self) -> str:
        far = [error > 2.0 for error in self.errors]
        means = f"{_list(self.ours)} against the published {_list(self.published)}"
        if not all(math.isfinite(error) for error in self.errors):
            return f"{self.policy}: {means}; one run tells nothing about the noise."
        errors = f"{_list(self.errors)} standard errors apart"
        verdict = "differs" if all(far) else "differs in places" if any(far) else "shows no significant difference"
        return f"{self.policy} {verdict}: {means} ({errors})."


def _list(values: list[float]) -> str:
    return " / ".join(f"{value:.1f}" for value in values)


def compare_with_published(entries: list[Entry]) -> list[PublishedComparison]:
    """Compare our results with the published ones at the thirds of the published horizon, the only one there is.

    A gap is measured in standard errors of the difference of two means, ours and that of 50 published runs, which are
    assumed to have the same spread as ours.
    """
    curves, rounds = published_curves(), [HORIZON // 3, 2 * HORIZON // 3, HORIZON]
    comparisons = []
    for entry in entries:
        if entry.policy in curves and entry.horizon == HORIZON and not entry.variant:
            curve, n = curves[entry.policy], len(entry.final)
            at = entry.regret[:, np.searchsorted(entry.rounds, rounds)]
            ours, theirs = at.mean(axis=0), curve.mean[np.searchsorted(curve.rounds, rounds)]
            sd = at.std(axis=0, ddof=1) if n > 1 else np.full(len(rounds), math.nan)
            errors = np.abs(ours - theirs) / (sd * math.sqrt(1.0 / n + 1.0 / RUNS))
            lists = ours.tolist(), theirs.tolist(), errors.tolist()
            comparisons.append(PublishedComparison(entry.policy, rounds, *lists))
    return comparisons


def describe_differences(entries: list[Entry]) -> list[str]:
    """Return :func:`compare_with_published` in words."""
    comparisons = compare_with_published(entries)
    if not comparisons:
        return [f"Nothing to compare: only {HORIZON} rounds were published."]
    rounds = " / ".join(str(t) for t in comparisons[0].rounds)
    return [f"Mean regret after {rounds} rounds:", *map(str, comparisons)]
