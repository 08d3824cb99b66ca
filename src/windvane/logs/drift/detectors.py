"""Drift detectors of river, run on a log beside windvane's own diagnosis.

A detector reads one number per reward, in the order of the decisions: the error of a model that never forgets, which is
the probability that it gave, before the decision, to the other outcome. If the world stands still, the error settles.
If it drifts, such a model gets worse.

This module needs the package river: ``pip install 'windvane[river]'``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from windvane.arguments import Array, check_choice, check_whole
from windvane.logs.drift.replay import mix_losses, replay_experts
from windvane.logs.drift.rows import RewardedRows, read_rows
from windvane.logs.log import Log

try:
    from river import drift
except ModuleNotFoundError as error:
    hint = f"{error.name} is missing; install it with: pip install 'windvane[river]'"
    raise ModuleNotFoundError(hint, name=error.name) from None

DETECTORS: dict[str, Callable[[int], Any]] = {
    "adwin": lambda _seed: drift.ADWIN(),
    "page-hinkley": lambda _seed: drift.PageHinkley(),
    "kswin": lambda seed: drift.KSWIN(seed=seed),
}
"""Detectors by name, with river's settings; KSWIN draws random numbers."""


@dataclass(frozen=True, kw_only=True)
class DetectorAlarms:
    """What a detector found.

    Attributes
    ----------
    detector : str
        Its name.
    rows, decisions, times : tuple
        For each alarm, the line or row of the log after which it was raised, its number and its time.
    by_chance : int
        The number of alarms if the detector reads the same errors in a random order, in which nothing changes.
    """

    detector: str
    rows: tuple[int, ...]
    decisions: tuple[float, ...]
    times: tuple[float, ...]
    by_chance: int


def check_detectors(names: Sequence[str]) -> list[str]:
    """Return the names of detectors, each once; raise ``ArgumentError`` for one that is not in :data:`DETECTORS`."""
    return list(dict.fromkeys(check_choice("detector", name, tuple(DETECTORS)) for name in names))


def measure_errors(rows: RewardedRows) -> Array:
    """Return the error of a model that never forgets for each reward, in [0, 1].

    It is 1 - exp(-loss) for the mixture of the experts of the diagnosis whose memory is infinite.
    """
    losses, _ = replay_experts(rows, np.array([np.inf]), np.arange(1, len(rows) + 1))
    return -np.expm1(-mix_losses(losses))


def run_detectors(log: Log, names: Sequence[str], *, seed: int = 0) -> tuple[DetectorAlarms, ...]:
    """Run detectors of river on a log.

    Parameters
    ----------
    log
        The log. It is read once more than :func:`windvane.logs.diagnose_drift` reads it.
    names
        Names of detectors: "adwin", "page-hinkley" or "kswin".
    seed
        Seed of the random numbers of KSWIN, and of the random order of errors.

    Returns
    -------
    tuple of DetectorAlarms
        In the order of ``names``. The detectors have river's default settings. They have no common level, and can raise
        false alarms in a long log.

    Examples
    --------
    >>> from windvane.logs import from_arrays
    >>> log = from_arrays([[[1.0]]] * 2000, [0] * 2000, [0.0] * 1000 + [1.0] * 1000)
    >>> (found,) = run_detectors(log, ["adwin"])
    >>> 1000 < found.rows[0] < 1100
    True
    """
    chosen, seed = check_detectors(names), check_whole("seed", seed, 0)
    rows = read_rows(log)
    errors = measure_errors(rows)
    mixed = np.random.default_rng(seed).permutation(errors)
    return tuple(_run(name, seed, rows, errors.tolist(), mixed.tolist()) for name in chosen)


def _find_alarms(detector: Any, errors: list[float]) -> list[int]:
    places = []
    for place, error in enumerate(errors):
        detector.update(error)
        if detector.drift_detected:
            places.append(place)
    return places


def _run(name: str, seed: int, rows: RewardedRows, errors: list[float], mixed: list[float]) -> DetectorAlarms:
    places, by_chance = (_find_alarms(DETECTORS[name](seed), each) for each in (errors, mixed))
    return DetectorAlarms(
        detector=name, rows=tuple(rows.place[places].tolist()), decisions=tuple(rows.clock[places].tolist()),
        times=tuple(rows.time[places].tolist()), by_chance=len(by_chance),
    )  # fmt: skip
