"""Evaluate policies on a log."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from windvane.lab.run.build import resolve_policy
from windvane.logs.evaluation.answers import phrase_answer
from windvane.logs.evaluation.assessment import Assessor, LogAssessment
from windvane.logs.evaluation.contenders import build_contender, list_assumptions
from windvane.logs.evaluation.estimates import Evaluation, LogSummary, ModelResult, PolicyEvaluation, ThinningResult
from windvane.logs.evaluation.model_based import FittedPath, fit_path, present_model, simulate_policy
from windvane.logs.evaluation.request import ESTIMANDS, EvaluationRequest, check_request
from windvane.logs.evaluation.survey import Survey
from windvane.logs.evaluation.tracks import fit_rewards, replay_policy
from windvane.logs.log import Log, Progress

Step = tuple[str, Callable[..., Any], tuple[Any, ...]]
"""The name of a step, a function and its arguments."""


def evaluate(
    log: Log, policies: Any, *, estimands: Sequence[str] = ESTIMANDS, baseline: str | None = None,
    epsilon: float = 0.0, floor: float | None = None, share: float | None = None, alpha: float = 0.05, seed: int = 0,
    jobs: int | None = None, progress: Progress | None = None,
) -> Evaluation:  # fmt: skip
    """Estimate what policies would have earned on the traffic of a log (log replay).

    Parameters
    ----------
    log
        The log, with rewards scaled to [0, 1].
    policies
        One policy or several: names, classes, ``"module:Class"``, texts such as ``"D-LinUCB(gamma=0.99)"``, tuples
        (label, class or name, settings), or mappings; see :func:`windvane.logs.evaluation.contenders.list_contenders`.
        A policy that needs them gets assumed values: the number of rows as its horizon, S = 1 and B_T = 2 S. The
        result lists them as ``assumed``.
    estimands
        Any of "recommendations" (:mod:`~windvane.logs.evaluation.recommendations`), "thinning"
        (:mod:`~windvane.logs.evaluation.thinning`) and "model" (:mod:`~windvane.logs.evaluation.model_based`).
    baseline
        The label of the policy, one of ``policies``, that all others are compared with. Default: compare all pairs.
    epsilon
        Evaluate recommendations that are replaced by a uniformly random arm with this probability. The other estimands
        ignore it.
    floor
        A lower bound on the probability of every arm in every row of the log, known beforehand. Default: the floor of
        the log's schema.
    share
        The share of the traffic for thinning, at most the floor. Default: the floor.
    alpha
        One minus the confidence level of each interval. With several policies, the level holds for each interval, not
        for all of them together.
    seed
        The seed of random draws.
    jobs
        The number of worker processes. Default: all cores, or none for a short log.
    progress
        Called with the number of finished steps, the number of all steps, and the name of the last one.

    Returns
    -------
    Evaluation
        The estimates, with an ``answer`` in one sentence.

    Raises
    ------
    ArgumentError
        If an argument is not allowed, such as a ``share`` above the floor.

    Notes
    -----
    Intervals are confidence sequences (:mod:`windvane.logs.evaluation.intervals`): they hold at all times at once, for
    any drift, and for logging policies that learned. They need correct propensities in the log. An estimate is refused
    if its effective sample size is below 100 decisions or, where all rewards are 0 or 1, below 50 rewards of 1: then
    its relative standard error would be above 14 %.

    Examples
    --------
    >>> import numpy as np
    >>> from windvane.logs import evaluate, from_arrays
    >>> rng = np.random.default_rng(0)
    >>> arms, played = np.eye(2)[None].repeat(2000, axis=0), rng.integers(2, size=2000)
    >>> reward = (rng.random(2000) < np.where(played == 1, 0.7, 0.3)).astype(float)
    >>> log = from_arrays(arms, played, reward, propensity=np.full(2000, 0.5), floor=0.5)
    >>> result = evaluate(log, "AdaptiveGLMUCB", estimands=["recommendations"])
    >>> estimate = result["AdaptiveGLMUCB"].recommendations.value
    >>> estimate.low < 0.7 < estimate.high
    True
    """
    request = check_request(log, policies, estimands, baseline, epsilon, floor, share, alpha, seed, jobs)
    steps = _Steps(request, progress)
    with tempfile.TemporaryDirectory(prefix="windvane-evaluation-") as name:
        folder = Path(name)
        assumed, models = _run_steps(request, steps, folder, seed)
        labels = [contender.label for contender in request.contenders]
        assessor = Assessor(log, request.setting, request.plan, folder, labels, request.pairs, request.epsilon)
        assessment = assessor.run()
        del assessor  # closes the files before the folder is removed
        steps.report("assessment")
    return _combine(request, assessment, assumed, models, alpha, seed)


class _Steps:
    """Run the steps of an evaluation, in worker processes if that saves time."""

    def __init__(self, request: EvaluationRequest, progress: Progress | None) -> None:
        self._progress, self._done, self._jobs = progress, 0, request.jobs
        has_lanes, has_model = bool(request.plan.lanes), "model" in request.estimands
        self._total = (has_lanes or has_model) + len(request.contenders) * (has_lanes + has_model) + 1

    def report(self, name: str) -> None:
        """Report that a step is done."""
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._total, name)

    def run(self, steps: Sequence[Step]) -> Iterator[Any]:
        """Yield the results of steps (name, function, arguments) in order."""
        if min(self._jobs, len(steps)) <= 1:
            results: Any = (function(*arguments) for _, function, arguments in steps)
        else:
            from joblib import Parallel, delayed

            calls = (delayed(function)(*arguments) for _, function, arguments in steps)
            results = Parallel(n_jobs=min(self._jobs, len(steps)), return_as="generator")(calls)
        for (name, _, _), result in zip(steps, results, strict=True):
            self.report(name)
            yield result


def fit_models(log: Log, survey: Survey, folder: Path, seed: int, has_path: bool) -> FittedPath | None:
    """Fit the reward model and, for a simulation, the path of its parameter."""
    fit = fit_rewards(log, survey, folder, seed)
    return fit_path(log, survey, fit, folder) if has_path else None


def _run_steps(
    request: EvaluationRequest, steps: _Steps, folder: Path, seed: int
) -> tuple[list[dict[str, Any]], list[ModelResult | None]]:
    """Run all passes but the last. Return the assumed settings of each policy, and the results of the simulations."""
    log, survey, contenders = request.log, request.survey, request.contenders
    has_path = "model" in request.estimands
    passes: list[Step] = []
    if request.plan.lanes or has_path:
        passes.append(("reward model", fit_models, (log, survey, folder, seed, has_path)))
    if request.plan.lanes:
        for i, (label, spec) in enumerate(contenders):
            passes.append((label, replay_policy, (log, spec, request.plan, folder, f"policy{i}")))
    results = list(steps.run(passes))
    assumed = results[1:]
    if not request.plan.lanes:  # the policies are built only to list their assumed settings
        built = [build_contender(spec, log.schema, survey.rows, lanes=1, seed=seed) for _, spec in contenders]
        assumed = [list_assumptions(spec, policy) for (_, spec), policy in zip(contenders, built, strict=True)]
    if not has_path:
        return assumed, [None] * len(contenders)
    path: FittedPath = results[0]
    runs: list[Step] = [(label, simulate_policy, (log, survey, spec, path, seed)) for label, spec in contenders]
    return assumed, [present_model(log.schema, means, path) for means in steps.run(runs)]


def _combine(
    request: EvaluationRequest, assessment: LogAssessment, assumed: Sequence[Any], models: Sequence[ModelResult | None],
    alpha: float, seed: int,
) -> Evaluation:  # fmt: skip
    """Combine the parts into the result of an evaluation."""
    survey, schema, policies = request.survey, request.log.schema, []
    for i, (label, spec) in enumerate(request.contenders):
        thinning = ThinningResult(runs=assessment.runs[i], reason=request.thinning_refusal)
        policies.append(
            PolicyEvaluation(
                label=label, policy=resolve_policy(spec.policy).__name__, settings=dict(spec.settings),
                assumed=assumed[i], model=models[i], thinning=thinning if "thinning" in request.estimands else None,
                recommendations=assessment.recommendations[i] if assessment.recommendations else None,
            )
        )  # fmt: skip
    summary = LogSummary(
        source=schema.source, rows=survey.rows, evaluated=survey.evaluated, without_reward=survey.without_reward,
        without_propensity=survey.without_propensity, propensities=schema.propensities, floor=request.floor,
        is_floor_declared=request.is_declared, value=assessment.log,
    )  # fmt: skip
    comparisons = tuple(assessment.comparisons)
    return Evaluation(
        answer=phrase_answer(summary, policies, comparisons), log=summary, policies=tuple(policies),
        comparisons=comparisons, alpha=alpha, epsilon=request.epsilon, seed=seed,
    )  # fmt: skip
