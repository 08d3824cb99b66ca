"""Choose the encoding of a log from the summary of its first pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from windvane.agent.features import Features
from windvane.agent.names import list_values
from windvane.errors import ArgumentError
from windvane.logs.scan import FieldSummary, LogScan

MAX_DIM = 100
MOST_VALUES = 20  # coordinates of a category

CONSTANT = "it has the same value in every row"
RARE = "none of its values occurs more than once"
NO_ROOM = "it does not fit into max_dim"
ALL_MISSING = "it has no value in any row"
NOT_CHOSEN = "it is not among the requested features"


class LeftOut(NamedTuple):
    """A field, or some values of a category, that the encoding does not use.

    Attributes
    ----------
    name : str
        The field.
    values : int
        How many of its values are left out; 0: the field as a whole.
    reason : str
        Why.
    """

    name: str
    values: int
    reason: str


class _Candidate(NamedTuple):
    kind: str  # "shared" or "per_arm"
    name: str
    share: float  # of the rows or offers that have a value
    declaration: Any  # a range, or values by frequency

    @property
    def columns(self) -> int:
        return len(self.declaration) if isinstance(self.declaration, list) else 1


class Plan(NamedTuple):
    """An encoding, and what it leaves out."""

    features: Features
    left_out: list[LeftOut]


def plan_features(
    scan: LogScan, own: Mapping[str, FieldSummary], arms: Sequence[str], *, max_dim: int, fields: Iterable[str] | None
) -> Plan:
    """Choose the features of a log.

    Parameters
    ----------
    scan
        The summary of the first pass.
    own
        The fields of arms. If none of them varies, arms are distinguished by name.
    arms
        The names of the arms.
    max_dim
        The largest dimension.
    fields
        The fields to use. If none of them is a field of arms, all fields of arms are used as well. Default: all that
        fit.

    Returns
    -------
    Plan
        The features, and the fields that were left out.
    """
    left_out: list[LeftOut] = []
    wanted = None if fields is None else set(fields)
    if wanted is not None:
        _check_fields(wanted, [*scan.context, *own])
    total = sum(scan.offered.values()) if scan.own else max(len(arms), 1)
    shared = _list_candidates("shared", scan.context, scan.rows, wanted, left_out)
    has_own = wanted is None or any(name in wanted for name in own)  # a list of fields of contexts does not limit arms
    per_arm = _list_candidates("per_arm", own, total, wanted if has_own else None, left_out)
    if per_arm:
        chosen = _choose([*per_arm, *shared], max_dim - 1, left_out)
        declared = _declare(chosen)
        return Plan(Features(shared=declared["shared"], per_arm=declared["per_arm"]), left_out)
    if 1 + len(arms) > max_dim:
        expected = f"at least {1 + len(arms)}, because the {len(arms)} arms are distinguished only by name"
        hint = "pass a file with features of the arms (arms_from), or another column as the arm"
        raise ArgumentError("max_dim", max_dim, expected, hint=hint)
    if 1 + len(arms) * (1 + sum(candidate.columns for candidate in shared)) <= max_dim:
        return Plan(Features(by_arm=_declare(shared)["shared"], arms=arms), left_out)
    chosen = _choose(shared, max_dim - 1 - len(arms), left_out)
    return Plan(Features(shared=_declare(chosen)["shared"], arms=arms), left_out)


def _list_candidates(
    kind: str, summaries: Mapping[str, FieldSummary], total: int, wanted: set[str] | None, left_out: list[LeftOut]
) -> list[_Candidate]:
    """Return the fields that can be used; add the others to ``left_out``."""
    candidates = []
    for name, summary in summaries.items():
        share = summary.present / max(total, 1)
        if wanted is not None and name not in wanted:
            left_out.append(LeftOut(name, 0, NOT_CHOSEN))
        elif not summary.present:
            left_out.append(LeftOut(name, 0, ALL_MISSING))
        elif summary.has_texts:
            values = _choose_values(name, summary, share < 1.0, left_out)
            if values:
                candidates.append(_Candidate(kind, name, share, values))
        else:
            bounds = _choose_range(summary, share < 1.0)
            if bounds is None:
                left_out.append(LeftOut(name, 0, CONSTANT))
            else:
                candidates.append(_Candidate(kind, name, share, bounds))
    return candidates


def _choose_range(summary: FieldSummary, is_sparse: bool) -> tuple[float, float] | None:
    """Return the range of a number; None if it does not vary.

    A field that some rows lack is 0 there, as in formats with sparse features: its range is symmetric, so that 0 is 0
    in the encoding as well.
    """
    if not is_sparse:
        return (summary.low, summary.high) if summary.low < summary.high else None
    bound = max(abs(summary.low), abs(summary.high))
    return (-bound, bound) if bound > 0.0 else None


def _choose_values(name: str, summary: FieldSummary, is_sparse: bool, left_out: list[LeftOut]) -> list[str]:
    """Return the values of a category that get a coordinate, the most frequent first."""
    ranked = sorted(summary.values.items(), key=lambda item: (-item[1], item[0]))
    if len(ranked) == 1 and not is_sparse:
        left_out.append(LeftOut(name, 0, CONSTANT))
        return []
    if len(ranked) <= MOST_VALUES and not summary.is_cut:
        return [value for value, _ in ranked]
    values = [value for value, count in ranked[:MOST_VALUES] if count > 1]
    if values:
        left_out.append(LeftOut(name, len(ranked) - len(values), f"the {len(values)} most frequent values are used"))
    else:
        left_out.append(LeftOut(name, 0, RARE))
    return values


def _choose(candidates: list[_Candidate], room: int, left_out: list[LeftOut]) -> list[_Candidate]:
    """Return the most frequent fields that fit into ``room`` coordinates, in their original order."""
    chosen: dict[tuple[str, str], _Candidate] = {}
    for candidate in sorted(candidates, key=lambda candidate: -candidate.share):
        if candidate.columns <= room:
            chosen[candidate.kind, candidate.name] = candidate
        elif room > 0 and isinstance(candidate.declaration, list):
            left_out.append(LeftOut(candidate.name, candidate.columns - room, NO_ROOM))
            chosen[candidate.kind, candidate.name] = candidate._replace(declaration=candidate.declaration[:room])
        else:
            left_out.append(LeftOut(candidate.name, 0, NO_ROOM))
            continue
        room -= chosen[candidate.kind, candidate.name].columns
    return [chosen[key] for key in ((each.kind, each.name) for each in candidates) if key in chosen]


def _declare(candidates: Iterable[_Candidate]) -> dict[str, dict[str, Any]]:
    declared: dict[str, dict[str, Any]] = {"shared": {}, "per_arm": {}}
    for candidate in candidates:
        declared[candidate.kind][candidate.name] = candidate.declaration
    return declared


def check_features(features: Features, scan: LogScan, own: Mapping[str, FieldSummary]) -> None:
    """Raise ``ArgumentError`` if declared features name a field that the log does not have."""
    for kind, known in (("shared", scan.context), ("by_arm", scan.context), ("per_arm", own)):
        for field in getattr(features, kind):
            if field.name not in known:
                raise _unknown_field(("features", kind, field.name), field.name, list(known))


def _check_fields(wanted: Iterable[str], known: Sequence[str]) -> None:
    for name in wanted:
        if name not in known:
            raise _unknown_field(("features", name), name, known)


def _unknown_field(path: tuple[str, ...], name: str, known: Sequence[str]) -> ArgumentError:
    close = get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}?" if close else ""
    expected = f"a field of the log: {list_values(known)}" if known else "a field of the log, which has none"
    return ArgumentError(path, name, expected, hint=hint)
