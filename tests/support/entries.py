"""Entries with given final regrets, and results that hold them: what summaries are computed from, without a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windvane.lab.results.results import Entry, Results


def entry(
    policy: str,
    final: Sequence[float] | np.ndarray,
    *,
    runs: Sequence[int] | None = None,
    environment: str = "rotation",
    horizon: int = 100,
    drift: float = 1.5,
    **others: Any,
) -> Entry:
    """A curve that ends at ``final``, one value per run."""
    n = len(final)
    values: dict[str, Any] = {
        "variant": {},
        "rounds": np.array([1, horizon // 2, horizon]),
        "reward": np.zeros(n),
        "drift": np.full(n, drift),
        "switches": np.zeros(n, dtype=np.int64),
        "gamma": np.full(n, 0.99),
        "outside": np.full(n, np.nan),
        "stages": np.full((n, 4), np.nan),
        "microseconds": 2.0,
    }
    return Entry(
        environment=environment,
        policy=policy,
        horizon=horizon,
        lanes=np.arange(n) if runs is None else np.array(runs),
        regret=np.outer(final, [0.0, 0.5, 1.0]),
        **values | others,
    )


def results(entries: Sequence[Entry], folder: Path | str = "one", spec: Any = None, seed: int = 0) -> Results:
    """As if read from ``folder``; ``spec`` stands for what its spec.toml says."""
    horizon = entries[0].horizon if entries else 100
    found = Results(Path(folder), {"seed": seed, "horizon": horizon}, list(entries), finished=1, total=1)
    if spec is not None:
        vars(found).update(spec=spec, environments=spec.environments)
    return found
