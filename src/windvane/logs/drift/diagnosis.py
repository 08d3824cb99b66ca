"""The diagnosis of drift: whether the rewards of a log drift, how fast, where, and which settings to use."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from windvane.arguments import check_number, check_whole
from windvane.logs.drift.answers import judge, phrase_answer
from windvane.logs.drift.best_memory import BestMemory, Cost, choose_memory, measure_cost
from windvane.logs.drift.change_points import ChangePoint, find_change_points
from windvane.logs.drift.evidence import NO_DRIFT, UNKNOWN, Evidence, find_refusal, weigh_evidence
from windvane.logs.drift.feature_drift import FeatureDrifts, find_feature_drifts
from windvane.logs.drift.logistic_fit import fit_logistic, means
from windvane.logs.drift.rate import Rate, estimate_rate
from windvane.logs.drift.recommendation import explain, recommend
from windvane.logs.drift.replay import replay_log
from windvane.logs.drift.rows import RewardedRows, read_rows
from windvane.logs.drift.score_process import CLOSE, build_process
from windvane.logs.drift.what_drifts import WhatDrifts, find_what_drifts
from windvane.logs.log import Log, Progress
from windvane.plain_data import to_plain

PARTS = ("reading", "evidence", "memory", "rate", "features", "change points", "what drifts")
CAVEAT = (
    "A model that does not fit, together with contexts that shift, also looks like drift, because no single parameter "
    "fits all parts of the log."
)


@dataclass(frozen=True, kw_only=True)
class DriftDiagnosis:
    """The result of :func:`diagnose_drift`. Parts other than ``evidence`` are None if there is no verdict.

    Attributes
    ----------
    answer : str
        A few sentences: the verdict with its error statement, and what follows from it.
    verdict : str
        "drift" (valid at any time), "drift likely" (a fixed-sample test rejects), "no drift seen" or "cannot be
        answered": see :func:`windvane.logs.drift.answers.judge`.
    source : str
        Where the log comes from.
    decisions, rewards, seconds
        The number of decisions, the number of rewards used, and the time from the first decision to the last (None if
        the log has no times).
    dim, rank
        The dimension of the vectors, and the number of coefficients that the log determines.
    alpha, seed
        The level of all tests, and the seed.
    evidence, memory, rate, features, change_points, what, cost
        The parts of the diagnosis. Change points are searched only if the log drifts: without that there are none.
    recommendation : dict
        Settings of :class:`windvane.Agent`. Without ``half_life`` and ``gamma``, its default policy learns the memory.
    recommendation_note : str
        What the settings mean.
    caveat : str
        What else looks like drift.
    """

    answer: str
    verdict: str
    source: str
    decisions: float
    rewards: int
    seconds: float | None
    dim: int
    rank: int
    alpha: float
    seed: int
    evidence: Evidence
    memory: BestMemory | None
    rate: Rate | None
    features: FeatureDrifts | None
    change_points: tuple[ChangePoint, ...] | None
    what: WhatDrifts | None
    cost: Cost | None
    recommendation: dict[str, Any]
    recommendation_note: str
    caveat: str = CAVEAT

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: dicts, lists, numbers and strings. Numbers that are not finite become None."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    def to_json(self, **options: Any) -> str:
        """Return JSON text; ``options`` are those of :func:`json.dumps`."""
        return json.dumps(self.to_dict(), **options)


def diagnose_drift(
    log: Log, *, alpha: float = 0.05, seed: int = 0, calendar: bool = True, progress: Progress | None = None
) -> DriftDiagnosis:
    """Diagnose whether theta* drifts in a log, how fast, where and when, under a logistic model.

    Parameters
    ----------
    log
        The log. It is read once. The vectors of the played arms are kept in memory: at most 5e7 numbers (400 MB).
    alpha
        The level of all tests, in (0, 1).
    seed
        Seed of all random numbers.
    calendar
        Whether to test if hour of day and weekday explain the drift.
    progress
        Called with the number of finished parts, the number of all parts, and the name of the next one.

    Returns
    -------
    DriftDiagnosis
        The diagnosis.

    Notes
    -----
    The verdict "drift" uses an e-process (:mod:`windvane.logs.drift.evidence`) that is valid at any time and for any
    logging policy. All other intervals and p-values, and the verdict "drift likely", assume a sample of fixed size, and
    are approximate if the logging policy learned from its rewards. There is no verdict with fewer than 200 rewards,
    fewer than 50 rewards of the rarer kind, or fewer than 10 of the rarer kind per coefficient that the log determines.

    Examples
    --------
    >>> from windvane.logs import from_arrays
    >>> diagnose_drift(from_arrays([[[1.0], [0.5]]] * 30, [0, 1] * 15, [1.0, 0.0] * 15)).answer
    'Cannot be answered, because the log has 30 rewards, and at least 200 are needed.'
    """
    alpha = check_number("alpha", alpha, "in (0, 1)", lambda value: 0.0 < value < 1.0)
    seed = check_whole("seed", seed, 0)
    report = progress or (lambda _done, _total, _part: None)

    def begin(part: str) -> None:
        report(PARTS.index(part), len(PARTS), part)

    begin("reading")
    rows = read_rows(log)
    if reason := find_refusal(rows):
        empty = Evidence(
            verdict=UNKNOWN, reason=reason, log_e=0.0, threshold=math.log(1.0 / alpha), decisions=(), curve=(),
            first_decision=None, first_time=None,
        )  # fmt: skip
        return _assemble(rows, alpha, seed, empty)
    begin("evidence")
    theta = np.zeros(rows.dim)
    theta[rows.columns] = fit_logistic(rows.design, rows.reward, close=CLOSE).theta
    replay = replay_log(rows, measure_information_per_decision(rows, theta))
    evidence = weigh_evidence(rows, replay, alpha)
    begin("memory")
    memory, cost = choose_memory(rows, replay, seed), measure_cost(rows, replay, seed)
    begin("rate")
    rate = estimate_rate(rows, memory.effective, seed)
    begin("features")
    process = build_process(rows.design, rows.reward, theta[rows.columns])
    features = find_feature_drifts(rows, process, memory.effective, alpha, seed)
    verdict = judge(evidence, features.test, alpha)
    begin("change points")
    change_points = () if verdict == NO_DRIFT else find_change_points(rows, seed)
    begin("what drifts")
    what = find_what_drifts(
        rows, memory.effective, features.test.p, has_drift=verdict != NO_DRIFT, alpha=alpha, calendar=calendar,
        seed=seed,
    )  # fmt: skip
    report(len(PARTS), len(PARTS), "done")
    return _assemble(rows, alpha, seed, evidence, memory, rate, features, change_points, what, cost)


def measure_information_per_decision(rows: RewardedRows, theta: np.ndarray[Any, Any]) -> float:
    """Return the mean information of a decision per coordinate, mu' ||x||^2 / d."""
    mu = means(rows.x @ theta)
    total = float((mu * (1.0 - mu) * np.square(rows.x).sum(axis=1)).sum())
    return total / (rows.dim * rows.decisions)


def _assemble(
    rows: RewardedRows,
    alpha: float,
    seed: int,
    evidence: Evidence,
    memory: BestMemory | None = None,
    rate: Rate | None = None,
    features: FeatureDrifts | None = None,
    change_points: tuple[ChangePoint, ...] | None = None,
    what: WhatDrifts | None = None,
    cost: Cost | None = None,
) -> DriftDiagnosis:
    test = None if features is None else features.test
    verdict = judge(evidence, test, alpha)
    settings = recommend(rows, verdict, memory)
    answer = phrase_answer(rows.schema, verdict, evidence, test, memory, rate, change_points or (), alpha)
    return DriftDiagnosis(
        answer=answer, verdict=verdict, source=rows.schema.source, decisions=rows.decisions, rewards=len(rows),
        seconds=rows.seconds, dim=rows.dim, rank=rows.rank, alpha=alpha, seed=seed, evidence=evidence, memory=memory,
        rate=rate, features=features, change_points=change_points, what=what, cost=cost, recommendation=settings,
        recommendation_note=explain(settings, memory, rows.schema),
    )  # fmt: skip
