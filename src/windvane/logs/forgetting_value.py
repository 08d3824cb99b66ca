"""The value of forgetting in rewards: the memory that predicted best, compared with never forgetting."""

from __future__ import annotations

import math

from windvane.logs.drift.diagnosis import DriftDiagnosis
from windvane.logs.evaluation.estimates import PolicyComparison
from windvane.logs.evaluation.evaluator import evaluate
from windvane.logs.log import Log

FORGETS, NEVER_FORGETS = "best memory", "never forget"


def value_forgetting(
    log: Log, diagnosis: DriftDiagnosis, *, alpha: float = 0.05, seed: int = 0, jobs: int | None = None
) -> PolicyComparison | None:
    """Estimate how much more the default policy earns with the best memory than if it never forgets.

    Parameters
    ----------
    log
        The log.
    diagnosis
        The diagnosis of the log, which contains the memory that predicted best.
    alpha, seed, jobs
        As in :func:`windvane.logs.evaluate`.

    Returns
    -------
    PolicyComparison or None
        The paired difference of the values of recommendations, in the unit of the log; or why it cannot be answered.
        None if the diagnosis has no memory, if the log has no propensities, or if never forgetting predicted best.

    Examples
    --------
    >>> import numpy as np
    >>> from windvane.logs import diagnose_drift, from_arrays
    >>> log = from_arrays([[[1.0], [0.5]]] * 30, [0, 1] * 15, [1.0, 0.0] * 15)
    >>> value_forgetting(log, diagnose_drift(log)) is None
    True
    """
    if diagnosis.memory is None or log.schema.propensities == "none":
        return None
    memory = diagnosis.memory.correlation_time
    if math.isinf(memory):
        return None
    policies = [
        (FORGETS, "AdaptiveGLMUCB", {"memories": [memory]}),
        (NEVER_FORGETS, "AdaptiveGLMUCB", {"memories": [math.inf]}),
    ]
    evaluation = evaluate(
        log, policies, estimands=("recommendations",), baseline=NEVER_FORGETS, alpha=alpha, seed=seed, jobs=jobs
    )
    return next((each for each in evaluation.comparisons if each.policy == FORGETS), None)
