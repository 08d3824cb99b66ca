"""The experiment of Faury, Russac, Abeille and Calauzènes (2021), the default of ``windvane reproduce``."""

from __future__ import annotations

from windvane.lab.spec.experiment_spec import Spec
from windvane.lab.studies.reproductions import DEFAULT, read_reproduction


def paper_spec(
    *,
    runs: int | None = None,
    horizon: int | None = None,
    arms: str | None = None,
    bonus_scale: float = 1.0,
    seed: int = 0,
    diagnostics: bool = False,
) -> Spec:
    """Return the paper's experiment as a spec; the defaults are its sizes, 50 runs of 3,000 rounds.

    Logistic rewards, d = 2, S = L = lam = 1, sigma = 1/2 and 10 fresh arms a round. theta* rests at (1, 0) for a third
    of the time, turns to (0, 1) during the second third, and stays there: B_T = (2T/3) sin(3 pi / (4T)).

    Parameters
    ----------
    runs, horizon, seed
        As in a spec.
    arms
        How arms are drawn: "ball" (the default), "sphere" or "cube".
    bonus_scale
        Factor of every bonus but that of AdaptiveGLMUCB.
    diagnostics
        Whether the terms of the analysis are recorded.

    Examples
    --------
    >>> paper_spec(runs=5).horizon
    3000
    """
    (spec,) = read_reproduction(DEFAULT).build_specs(
        runs=runs, horizon=horizon, arms=arms, bonus_scale=bonus_scale, seed=seed, diagnostics=diagnostics
    )
    return spec
