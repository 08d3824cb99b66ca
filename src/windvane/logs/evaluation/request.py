"""The checked arguments of an evaluation, and the results of the first pass over the log."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from windvane.arguments import check_choice, check_number, check_whole
from windvane.errors import ArgumentError
from windvane.logs.evaluation.contenders import Contender, list_contenders
from windvane.logs.evaluation.recommendations import Setting
from windvane.logs.evaluation.scores import choose_limits
from windvane.logs.evaluation.survey import Survey, choose_floor, survey_log
from windvane.logs.evaluation.thinning import choose_shares
from windvane.logs.evaluation.tracks import ReplayPlan
from windvane.logs.log import Log, LogSchema

ESTIMANDS = ("recommendations", "thinning", "model")
# Below this many rows times policies, starting worker processes (about two seconds) takes longer than it saves.
WORTH_PROCESSES = 40_000
NO_PROPENSITIES = "the log has no propensities"
NO_EXPLORATION = "the log was written without exploration: every propensity is 1"
NO_FLOOR = "no lower bound on the probability of every arm is known; declare one with `floor` (--floor)"
ZERO_FLOOR = "the declared floor is 0: some arms may never have been played"


@dataclass(frozen=True, kw_only=True)
class EvaluationRequest:
    """The checked arguments of :func:`evaluate`, and the results of the first pass over the log."""

    log: Log
    contenders: list[Contender]
    estimands: tuple[str, ...]
    pairs: list[tuple[int, int]]
    plan: ReplayPlan
    setting: Setting
    floor: float | None
    is_declared: bool
    epsilon: float
    jobs: int
    thinning_refusal: str

    @property
    def survey(self) -> Survey:
        """Counts and extremes over all rows."""
        return self.setting.survey


def check_request(
    log: Log, policies: Any, estimands: Sequence[str], baseline: str | None, epsilon: float, floor: float | None,
    share: float | None, alpha: float, seed: int, jobs: int | None,
) -> EvaluationRequest:  # fmt: skip
    """Check all arguments, and read the log once."""
    wanted = [estimands] if isinstance(estimands, str) else list(estimands)
    for estimand in wanted:
        check_choice("estimands", estimand, ESTIMANDS)
    if not wanted:
        raise ArgumentError("estimands", estimands, f"at least one of {', '.join(ESTIMANDS)}")
    epsilon = check_number("epsilon", epsilon, "in [0, 1]", lambda value: 0.0 <= value <= 1.0)
    alpha = check_number("alpha", alpha, "in (0, 1)", lambda value: 0.0 < value < 1.0)
    seed = check_whole("seed", seed, 0, 2**64 - 1)
    contenders = list_contenders(policies)
    labels = [contender.label for contender in contenders]
    if baseline is not None and baseline not in labels:
        raise ArgumentError("baseline", baseline, f"one of the policies, {', '.join(labels)}")
    pairs = [(i, j) for i, j in combinations(range(len(labels)), 2)]
    if baseline is not None:
        pairs = [(i, labels.index(baseline)) for i in range(len(labels)) if labels[i] != baseline]
    survey = survey_log(log)
    floor, is_declared = choose_floor(log, survey, floor)
    refusal = _find_refusal(log, survey, floor, is_declared)
    thinning_refusal = refusal or ("" if floor else NO_FLOOR)
    shares = choose_shares(share, floor) if "thinning" in wanted and not thinning_refusal else ()
    has_all = log.schema.propensities == "all arms"
    setting = Setting(
        schema=log.schema, survey=survey, limits=choose_limits(floor if is_declared else None, has_all=has_all),
        alpha=alpha, refusal=refusal, least=floor if floor is not None and is_declared else 0.0,
        is_estimated=log.schema.propensities == "none",
    )  # fmt: skip
    plan = ReplayPlan(survey=survey, learns_all=int("recommendations" in wanted), shares=shares, seed=seed)
    cores = (os.cpu_count() or 1) if survey.rows * len(contenders) >= WORTH_PROCESSES else 1
    return EvaluationRequest(
        log=log, contenders=contenders, estimands=tuple(wanted), pairs=pairs, plan=plan, setting=setting, floor=floor,
        is_declared=is_declared, epsilon=epsilon, jobs=cores if jobs is None else check_whole("jobs", jobs, 1),
        thinning_refusal=thinning_refusal,
    )  # fmt: skip


def foresee_refusal(schema: LogSchema, estimands: Sequence[str]) -> str:
    """Return what will be refused, as far as that is known without reading the log again; empty if nothing.

    Examples
    --------
    >>> from windvane.logs import from_arrays
    >>> foresee_refusal(from_arrays([[[1.0]]], [0], [1.0]).schema, ["recommendations", "model"])
    'recommendations will be refused, because the log has no propensities'
    """
    relying = [estimand for estimand in ("recommendations", "thinning") if estimand in estimands]
    if relying and schema.propensities == "none":
        return f"{' and '.join(relying)} will be refused, because {NO_PROPENSITIES}"
    if "thinning" in relying and schema.propensities == "played arm" and not schema.floor:
        return f"thinning will be refused, because {NO_FLOOR}"
    return ""


def _find_refusal(log: Log, survey: Survey, floor: float | None, is_declared: bool) -> str:
    """Return why no policy can be evaluated on the log; empty if policies can be."""
    if not survey.evaluated:
        return "no row has a reward" if not survey.without_propensity else "no row has both a reward and a propensity"
    if log.schema.propensities == "none":
        return NO_PROPENSITIES
    if survey.has_choice and survey.is_certain:
        return NO_EXPLORATION
    if floor is None and is_declared and log.schema.propensities == "played arm":
        return ZERO_FLOOR
    return ""
