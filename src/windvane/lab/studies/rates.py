"""A study: how fast regret grows with the horizon, beside the proven rates.

BVD-GLM-UCB at its own discount, with orthogonal arms (Theorem 1's assumption) and theta* turning at constant speed, for
horizons from :data:`SHORTEST` on, in two families: B_T = 1.5, where T^(2/3) is proven (up to logarithms), and
B_T = 1.5 (T / 3000)^(1/3), where B_T^(1/3) T^(2/3), that is T^(7/9), is proven.
``docs/explanation/studies.md`` says how to read the slopes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from windvane.arguments import Array, check_whole
from windvane.environments import OrthogonalArms
from windvane.lab.results.summary import measure_spread
from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec, Spec
from windvane.lab.studies.benchmarks import Conduct, ExperimentPart, run_parts, simulate_part
from windvane.lab.studies.bounds import evaluate
from windvane.lab.studies.unknown_drift import DIM, make_arc

SHORTEST, LONGEST, RUNS = 3000, 100_000, 20
DRIFT = 1.5  # at the shortest horizon
FAMILIES = {"B_T fixed": (0.0, 2 / 3), "B_T ∝ T^(1/3)": (1 / 3, 7 / 9)}  # (power of T in B_T, proven rate)
POLICY = "BVD-GLM-UCB"


@dataclass(frozen=True)
class Slope:
    """One family: mean regret at every horizon, and the slope of its logarithm with a confidence interval.

    ``bound`` is Theorem 1 at the same horizons, logarithms included.
    """

    name: str
    proven: float
    horizons: list[int]
    drifts: list[float]
    mean: list[float]
    se: list[float]
    bound: list[float]
    bound_slope: float
    slope: float
    slope_se: float
    low: float
    high: float


def choose_horizons(longest: int) -> list[int]:
    """Return horizons from :data:`SHORTEST` (or a quarter of ``longest``) to ``longest`` by factors of about 2."""
    end = check_whole("horizon", longest, 40, 10**9)
    start = min(SHORTEST, end // 4)
    count = 1 + max(2, round(math.log2(end / start)))
    return [round(T) for T in np.geomspace(start, end, count)]


def drift_at(power: float, horizon: int) -> float:
    """Return B_T of the family with this power of T."""
    return DRIFT * float((horizon / SHORTEST) ** power)


def rates_spec(horizon: int, *, runs: int = RUNS, seed: int = 0) -> Spec:
    """Return the experiment at one horizon."""
    worlds = [
        EnvironmentSpec(name, make_arc(drift_at(power, horizon), horizon), OrthogonalArms())
        for name, (power, _) in FAMILIES.items()
    ]
    title = f"Rates: T = {horizon}"
    return Spec(worlds, [PolicySpec(POLICY)], runs=runs, horizon=horizon, seed=seed, title=title, lanes_per_cell=5)


def run_rates(
    folder: Path,
    conduct: Conduct = simulate_part,
    *,
    horizons: Sequence[int],
    runs: int = RUNS,
    seed: int = 0,
    confidence: float = 0.95,
) -> list[Slope]:
    """Run the study in ``folder``, an experiment per horizon."""
    parts = [ExperimentPart(f"horizon-{T}", f"T = {T}", rates_spec(T, runs=runs, seed=seed)) for T in horizons]
    finished = run_parts(parts, folder, conduct, {"name": "study", "study": "rates"})
    slopes = []
    for name, (power, proven) in FAMILIES.items():
        entries = [entry for results in finished for entry in results.entries if entry.environment == name]
        finals, drifts = np.array([entry.final for entry in entries]), [drift_at(power, T) for T in horizons]
        bound = [evaluate(horizon=T, drift=B, dim=DIM).orthogonal.total for T, B in zip(horizons, drifts, strict=True)]
        slope, se, half = fit_slope(horizons, finals, confidence)
        family = Slope(
            name=name, proven=proven, horizons=list(horizons), drifts=drifts, mean=finals.mean(axis=1).tolist(),
            se=[measure_spread(values)[0] for values in finals], slope=slope, slope_se=se, low=slope - half,
            high=slope + half, bound=bound, bound_slope=fit_slope(horizons, np.array(bound)[:, None])[0],
        )  # fmt: skip
        slopes.append(family)
    return slopes


def fit_slope(horizons: Sequence[int], regrets: Array, confidence: float = 0.95) -> tuple[float, float, float]:
    """Return the slope of log mean regret on log T, its standard error, and half its interval.

    ``regrets`` is [horizon, run]. The slope is sum_j w_j log m_j with the weights of least squares. To first order, run
    i moves it by sum_j w_j (r_ij / m_j - 1) / n, and the spread of that over runs gives the error (nan for one run).
    """
    from scipy.special import stdtrit

    x = np.log(np.asarray(horizons, dtype=float))
    weights = (x - x.mean()) / np.square(x - x.mean()).sum()
    mean = regrets.mean(axis=1)
    slope = float(weights @ np.log(mean))
    se, _ = measure_spread(weights @ (regrets / mean[:, None]))
    return slope, se, se * float(stdtrit(max(regrets.shape[1] - 1, 1), 0.5 + 0.5 * confidence))


def draw(slopes: Sequence[Slope], folder: Path) -> list[Path]:
    """Draw regret against the horizon on log axes, as PNG, PDF and SVG."""
    from windvane.lab.figures.comparison_figures import slopes_figure
    from windvane.lab.figures.matplotlib_renderer import save

    title = f"{POLICY} with orthogonal arms: regret against the horizon"
    return save(slopes_figure(slopes, title=title), folder, "rates")
