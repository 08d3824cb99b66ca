"""The one-sentence answer of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence

from windvane.logs.evaluation.estimates import Estimate, LogSummary, PolicyComparison, PolicyEvaluation

CANNOT = "Cannot be answered, because {}."


def format_number(value: float) -> str:
    """Return a mean reward with three significant digits, without an exponent unless it is huge or tiny.

    Examples
    --------
    >>> format_number(0.06149), format_number(12.0)
    ('0.0615', '12.0')
    """
    text = f"{value:#.3g}"
    if "e" not in text:
        return text.rstrip(".")
    return f"{value:.0f}" if 1.0 <= abs(value) < 1e15 else f"{value:.3g}"


def phrase_answer(
    log: LogSummary, policies: Sequence[PolicyEvaluation], comparisons: Sequence[PolicyComparison]
) -> str:
    """Return a sentence about the policy with the highest estimate.

    Parameters
    ----------
    log, policies, comparisons
        The parts of the evaluation. The sentence is about the value of recommendations if it was estimated, else about
        the thinned run with the largest share, else about the simulation of the model.

    Returns
    -------
    str
        What the best policy would have earned, or why that cannot be answered.
    """
    headlines = [_find_headline(policy) for policy in policies]
    known = {i: estimate.value for i, (estimate, _) in enumerate(headlines) if estimate and estimate.value is not None}
    if not known:
        reasons = [estimate.reason for estimate, _ in headlines if estimate is not None]
        reasons += [policy.thinning.reason for policy in policies if policy.thinning and policy.thinning.reason]
        return CANNOT.format(reasons[0] if reasons else "nothing was estimated")
    best = max(known, key=known.__getitem__)
    estimate, beginning = headlines[best]
    interval = ""
    if estimate and estimate.low is not None and estimate.high is not None:
        interval = f" ({format_number(estimate.low)}–{format_number(estimate.high)})"
    label = policies[best].label
    text = f"{beginning}{label} would have earned {format_number(known[best])} per decision{interval}"
    if log.value.value is not None:
        text += f", compared with {format_number(log.value.value)} for the log"
    refused = [policies[i].label for i in range(len(policies)) if i not in known]
    parts = [text, *_describe_rivals(label, comparisons)]
    if refused:
        parts.append(f"{join_names(refused)} cannot be evaluated on this log")
    return "; ".join(parts) + "."


def _find_headline(policy: PolicyEvaluation) -> tuple[Estimate | None, str]:
    """Return the estimate that the sentence is about, and the words before the policy's name that say what it means."""
    if policy.recommendations is not None:
        return policy.recommendations.value, "The recommendations of "
    if policy.thinning is not None and policy.thinning.runs:
        run = policy.thinning.runs[0]
        return run.value, f"With a share of {run.share:.2g} of its rewards observed, "
    if policy.model is not None:
        return policy.model.value, "If the model is right, "
    return None, ""


def _describe_rivals(label: str, comparisons: Sequence[PolicyComparison]) -> list[str]:
    """Return how the policy compares with the others."""
    better: list[str] = []
    unclear: list[str] = []
    for comparison in comparisons:
        if label in (comparison.policy, comparison.baseline) and comparison.is_significant is not None:
            rival = comparison.baseline if comparison.policy == label else comparison.policy
            (better if comparison.is_significant else unclear).append(rival)
    parts = [f"the difference from {join_names(better)} is significant"] if better else []
    return parts + ([f"the difference from {join_names(unclear)} is not significant"] if unclear else [])


def join_names(names: Sequence[str]) -> str:
    """Return names as a list in a sentence.

    Examples
    --------
    >>> join_names(["A", "B", "C"])
    'A, B and C'
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
