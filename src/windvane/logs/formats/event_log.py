"""windvane's own event log, as the service exports it: NDJSON or Parquet (docs/reference/event-log.md).

Rewards are separate events. A first pass collects them, together with the arms that were declared at each time: a
decision that names no arms had all of these. The log does not hold the features that a stream was created with. Until
they are changed, the arms are those that were played, preferred or runner-up in some decision.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windvane.logs.formats.declared_arms import DeclaredArms
from windvane.logs.formats.json_lines import parse_object, read_objects, to_number, to_time
from windvane.logs.formats.outcomes import Outcomes, hash_id
from windvane.logs.formats.parquet_files import read_batches
from windvane.logs.formats.reader import CHUNK, Reader, Report
from windvane.logs.formats.tables import is_parquet
from windvane.logs.raw import NAN, RawRows
from windvane.logs.row_builder import Row, RowBuilder, RowOffer
from windvane.logs.row_problems import Problems, Verbatim

REWARDS = ("rewarded", "reward_part", "late", "closed")
SETTINGS = ("configured", "refitted", "refit_undone")
OTHERS = ("archived", "unarchived", "erased", "compacted")
PARQUET_COLUMNS = ("number", "time", "kind", "decision", "outcome", "request")


class EventReader(Reader):
    """Read the events of a stream.

    Parameters
    ----------
    path
        The exported file.
    arms
        The declared arms, if the caller knows them.
    """

    format = "windvane"
    extra_passes = 1

    def __init__(self, path: Path, arms: Sequence[str] | None = None) -> None:
        super().__init__(path)
        self._is_parquet = is_parquet(path)
        self.place = "row" if self._is_parquet else "line"
        self._outcomes, self._declared = Outcomes(), DeclaredArms(arms)
        self._prepared = Problems(self.place)
        self._dim: int | None = None

    def _read_events(
        self, problems: Problems, report: Report, words: Sequence[str] = ("",)
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the place and the fields of each event; of lines of JSON, only those that contain one of ``words``."""
        if not self._is_parquet:
            yield from read_objects(self.path, problems, report, words)
            return
        place = 0
        for batch in read_batches(self.path, PARQUET_COLUMNS, report):
            for row in batch.to_pylist():
                place += 1
                event = parse_object(row.pop("outcome") or "{}", place, problems)
                if event is None:
                    continue
                request = row.pop("request")
                if request is not None:
                    try:
                        event["request"] = json.loads(request)
                    except (ValueError, RecursionError):
                        event["request"] = request  # reported as malformed later
                moment = row.pop("time")
                yield place, {**event, **row, "time": None if moment is None else moment.timestamp()}

    def prepare(self, report: Report) -> None:
        """Collect rewards and declared arms."""
        decisions = array("q")
        problems = self._prepared
        for place, event in self._read_events(problems, report):
            kind = event.get("kind")
            if kind == "decided":
                self._declared.note_decision(event)
                decisions.append(hash_id(event.get("decision")))
            elif kind in REWARDS:
                time = to_time(event.get("time"))
                if not np.isfinite(time) or not self._outcomes.add(event, time):
                    expected = "a well-formed event"
                    problems.add("malformed reward", place, str(kind), event, expected, is_dropped=False)
            elif kind in SETTINGS:
                if not self._declared.note_change(event):
                    problems.add("malformed settings", place, str(kind), event, "a well-formed event", is_dropped=False)
            elif kind not in OTHERS:
                _report_other(place, event, problems)
        self._outcomes.finish()
        hashes = np.array(decisions, dtype=np.int64)
        for count, kind, expected in zip(
            self._outcomes.count_unused(hashes),
            ("reward without decision", "late reward"),
            ("rewards of decisions in the log", "in time (the value learned at the timeout is used)"),
            strict=True,
        ):
            if count:
                value = Verbatim(f"{count:,} that are not")
                problems.add(kind, 0, "rewards", value, expected, is_dropped=False, count=count)
        self._declared.finish(problems)

    def read(self, problems: Problems, report: Report) -> Iterator[RawRows]:
        """Yield the decisions with their rewards."""
        problems.include(self._prepared)
        declared = self._declared.restart()
        builder = RowBuilder(self.texts, self.arm_texts, problems)
        for place, event in self._read_events(Problems(), report, ("decided", *SETTINGS)):
            kind = event.get("kind")
            if kind == "decided":
                builder.append(self._to_row(place, event, declared, problems))
                if len(builder) >= CHUNK:
                    yield self._join(builder.take())
            elif kind in SETTINGS:
                declared.note_change(event)
        if len(builder):
            yield self._join(builder.take())

    def _join(self, rows: RawRows) -> RawRows:
        assert rows.id is not None
        hashes = np.array(list(map(hash_id, rows.id.tolist())), dtype=np.int64)
        reward, reward_time = self._outcomes.look_up(hashes)
        return rows.replace(reward=reward, reward_time=reward_time)

    def _to_row(self, place: int, event: Mapping[str, Any], declared: DeclaredArms, problems: Problems) -> Row:
        id_, request, arm = event.get("decision"), event.get("request"), event.get("arm")
        time, chance = to_time(event.get("time")), to_number(event.get("propensity"))
        row = Row(place, None if arm is None else str(arm), id=id_ if isinstance(id_, str) else None, time=time)
        context: Any = None
        if not isinstance(request, dict):
            _mark_bad(row, problems, "missing request", "request", request, "a mapping with arms and context")
        else:
            context, arms = request.get("context"), request.get("arms")
            row.offers = self._list_offers(arms, declared)
            if row.offers is None:
                _mark_bad(row, problems, "malformed arms", "arms", arms, "names, or features or vectors by name")
        if context is not None and not isinstance(context, dict):
            _mark_bad(row, problems, "malformed context", "context", context, "a mapping from fields to values")
        elif context is not None:
            row.context = context
        if not isinstance(id_, str):
            _mark_bad(row, problems, "missing id", "decision", id_, "the id of the decision")
        if not abs(time) < np.inf:
            _mark_bad(row, problems, "invalid time", "time", event.get("time"), "a time: RFC 3339")
            row.time = NAN
        if chance == np.inf:
            _mark_bad(row, problems, "invalid number", "propensity", event.get("propensity"), "a number or null")
        elif row.offers:
            row.probability = chance
            is_complete = request.get("arms") is not None or declared.is_complete  # type: ignore[union-attr]
            if is_complete and row.arm is not None:
                _spread_probability(row.offers, row.arm, str(event.get("preferred")), chance)
        return row

    def _list_offers(self, arms: Any, declared: DeclaredArms) -> list[RowOffer] | None:
        """Return the arms of a request; None if they are malformed."""
        if arms is None:
            return [RowOffer(name) for name in declared.current]
        if isinstance(arms, dict):
            pairs = [(str(name), own) for name, own in arms.items()]
        elif isinstance(arms, list) and all(isinstance(arm, list) for arm in arms):
            pairs = [(str(place), vector) for place, vector in enumerate(arms)]
        elif isinstance(arms, list) and all(isinstance(arm, str | int) for arm in arms):
            pairs = [(str(name), {}) for name in arms]
        else:
            return None
        offers = []
        for name, own in pairs:
            if isinstance(own, dict):
                offers.append(RowOffer(name, fields=own))
            elif isinstance(own, list) and self._is_vector(own):
                offers.append(RowOffer(name, vector=[float(number) for number in own]))
            else:
                return None
        return offers if len({offer.name for offer in offers}) == len(offers) else None

    def _is_vector(self, vector: list[Any]) -> bool:
        """Return whether a list is a vector of the dimension that the first one has."""
        if self._dim is None:
            self._dim = len(vector)
        return len(vector) == self._dim and bool(np.isfinite([to_number(number) for number in vector]).all())


def _spread_probability(offers: Sequence[RowOffer], arm: str, preferred: str, chance: float) -> None:
    """Set the probabilities of all arms.

    With ``epsilon``, every arm other than the preferred one has probability epsilon/K; the preferred arm has the rest.
    """
    if not 0.0 < chance <= 1.0 or not any(offer.name == preferred for offer in offers):
        return
    others = len(offers) - 1
    if arm == preferred:
        first, rest = chance, (1.0 - chance) / max(others, 1)
    else:
        first, rest = 1.0 - others * chance, chance
    if first < -1e-9:
        return
    for offer in offers:
        offer.probability = max(first, 0.0) if offer.name == preferred else rest


def _mark_bad(row: Row, problems: Problems, kind: str, field: str, value: Any, expected: str) -> None:
    row.is_bad = True
    problems.add(kind, row.place, field, value, expected)


def _report_other(place: int, event: Mapping[str, Any], problems: Problems) -> None:
    """Report an event that is not used."""
    kind = event.get("kind")
    if kind == "history":
        rows = int(number) if (number := to_number(event.get("rows"))) >= 1.0 and np.isfinite(number) else 1
        value, expected = Verbatim(f"{rows:,} past decisions"), "absent (past decisions are not read)"
        problems.add("history", place, "history", value, expected, is_dropped=False, count=rows)
    elif kind == "lost":
        problems.add("lost events", place, "lost", event, "absent", is_dropped=False)
    elif kind == "unreadable":
        problems.add("unreadable event", place, "unreadable", event.get("error"), "absent", is_dropped=False)
    else:
        problems.add(
            "unknown kind of event", place, "kind", kind, "a kind of event that windvane writes", is_dropped=False
        )
