"""Vowpal Wabbit's decision service JSON (dsjson): one JSON object per decision.

The reward is ``-_label_cost`` and the probability ``_label_probability``. ``_labelIndex`` is the place, from 0, of the
chosen arm in ``c._multi``, and ``_label_Action`` the same from 1. ``a`` lists the arms from 0 or from 1, depending on
the producer, and ``p`` their probabilities in the same order. Features are named ``namespace|field``; names that begin
with ``_`` are ignored, as by Vowpal Wabbit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from windvane.logs.formats.json_lines import read_objects, to_number, to_time
from windvane.logs.formats.reader import CHUNK, Reader, Report
from windvane.logs.raw import RawRows
from windvane.logs.row_builder import Row, RowBuilder, RowOffer
from windvane.logs.row_problems import Problems

LABEL = ("_label_cost", "_label_probability", "_labelIndex", "_label_Action")


class DsjsonReader(Reader):
    """Read a file of dsjson."""

    format = "dsjson"

    def read(self, problems: Problems, report: Report) -> Iterator[RawRows]:
        """Yield all decisions in file order."""
        builder = RowBuilder(self.texts, self.arm_texts, problems)
        for place, record in read_objects(self.path, problems, report):
            if "RewardValue" in record and "c" not in record:
                value, expected = record.get("EventId"), "part of its decision (it is not used)"
                problems.add("dangling reward", place, "RewardValue", value, expected, is_dropped=False)
                continue
            try:
                builder.append(parse_decision(record, place, problems))
            except RecursionError:
                problems.add("malformed line", place, "c", "...", "nested less deeply")
                builder.append(Row(place, None, is_bad=True))
            if len(builder) >= CHUNK:
                yield builder.take()
        if len(builder):
            yield builder.take()


def parse_decision(record: Mapping[str, Any], place: int, problems: Problems) -> Row:
    """Return a decision as a row, and add what is wrong with it to ``problems``."""
    row = Row(place, None)

    def mark_bad(kind: str, field: str, value: Any, expected: str) -> None:
        row.is_bad = True
        problems.add(kind, place, field, value, expected)

    context = record.get("c")
    arms = context.get("_multi") if isinstance(context, dict) else None
    if not isinstance(arms, list) or not arms or not all(isinstance(arm, dict) for arm in arms):
        mark_bad("missing arms", "c._multi", arms, "a list of the features of the arms")
        return row
    row.offers = [RowOffer(name, fields=flatten(arm)) for name, arm in zip(name_arms(arms), arms, strict=True)]
    row.context = flatten(context)  # type: ignore[arg-type]
    id_ = record.get("EventId")
    row.id = id_ if isinstance(id_, str) else None
    order = _read_order(record, len(arms), place, problems)
    chances = record.get("p")
    if order is not None and isinstance(chances, list):
        for chance, arm in zip(chances, order, strict=True):
            row.offers[arm].probability = to_number(chance)
    index = _find_chosen(record, order)
    if index is None or not 0 <= index < len(arms):
        got = {name: record.get(name) for name in LABEL[2:]}
        mark_bad("unknown arm", "_labelIndex", got, f"one of the {len(arms)} arms, and one less than _label_Action")
    else:
        row.arm = row.offers[index].name
        row.probability = (
            to_number(record["_label_probability"]) if LABEL[1] in record else row.offers[index].probability
        )
    row.reward, row.time, dropped = (
        -to_number(record.get(LABEL[0])),
        to_time(record.get("Timestamp")),
        _read_drop(record),
    )
    checks = ((row.reward, LABEL[0], "a number"), (row.time, "Timestamp", "a time: ISO 8601"),
              (row.probability, LABEL[1], "in (0, 1]"), (dropped, "pdrop", "in [0, 1)"))  # fmt: skip
    for number, name, expected in checks:
        if math.isinf(number):
            mark_bad("invalid number", name, record.get(name), expected)
    row.weight = 1.0 / (1.0 - dropped) if dropped < 1.0 else 1.0
    row.is_learned = record.get("_skipLearn") is not True
    return row


def _read_drop(record: Mapping[str, Any]) -> float:
    """Return the probability with which decisions like this one were dropped; infinite if it is not in [0, 1)."""
    dropped = to_number(record.get("pdrop", 0.0))
    return dropped if 0.0 <= dropped < 1.0 else math.inf


def _read_order(record: Mapping[str, Any], count: int, place: int, problems: Problems) -> list[int] | None:
    """Return the arms from 0 in the order of ``p``; None if they are not given or malformed."""
    listed, chances = record.get("a"), record.get("p")
    if listed is None and chances is None:
        return None
    if isinstance(listed, list) and isinstance(chances, list) and len(listed) == len(chances):
        is_whole = all(type(arm) is int for arm in listed) and all(math.isfinite(to_number(p)) for p in chances)
        order = [arm - (0 if 0 in listed else 1) for arm in listed] if is_whole else []
        if order and len(set(order)) == len(order) and min(order) >= 0 and max(order) < count:
            return order
    expected = f"the numbers of the {count} arms, all from 0 or all from 1, and `p` a list of their probabilities"
    problems.add("malformed probabilities", place, "a", listed, expected, is_dropped=False)
    return None


def _find_chosen(record: Mapping[str, Any], order: Sequence[int] | None) -> int | None:
    """Return the chosen arm from 0; None if it is not known. Without a label it is the first in ``a``."""
    index, action = record.get("_labelIndex"), record.get("_label_Action")
    if index is None and action is None:
        return order[0] if order and not any(name in record for name in LABEL) else None
    if any(number is not None and type(number) is not int for number in (index, action)):
        return None
    if index is None:
        return action - 1  # type: ignore[operator]
    return index if action is None or action == index + 1 else None


def name_arms(arms: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of arms: their tags or ids if all are different, else numbers from 1."""
    names = []
    for arm in arms:
        inner = arm.get("i")
        name = arm.get("_tag") or (inner.get("id") if isinstance(inner, dict) else None) or arm.get("id")
        names.append(name)
    if all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
        return names  # type: ignore[return-value]
    return [str(place) for place in range(1, len(arms) + 1)]


def flatten(features: Mapping[str, Any]) -> dict[str, float | str]:
    """Return nested features as ``{"namespace|field": value}``. The namespace is the innermost object with a name.

    Examples
    --------
    >>> flatten({"_tag": "x", "Geo": {"city": "Oslo", "_dma": 1}, "j": [{"hot": True}, {"Tags": {"rap": 0.5}}]})
    {'Geo|city': 'Oslo', 'j|hot': 1.0, 'Tags|rap': 0.5}
    """
    flat: dict[str, Any] = {}
    _flatten("", features, flat)
    return flat


def _flatten(namespace: str, features: Mapping[str, Any], flat: dict[str, Any]) -> None:
    for key, value in features.items():
        if key.startswith("_"):
            continue
        name = f"{namespace}|{key}" if namespace else key
        if isinstance(value, dict):
            _flatten(key, value, flat)
        elif isinstance(value, list):
            _flatten_list(key, value, flat)
        elif value is True:
            flat[name] = 1.0
        elif value is not None and value is not False and value != "":
            flat[name] = value


def _flatten_list(key: str, values: Sequence[Any], flat: dict[str, Any]) -> None:
    """Add the objects of a list to the namespace ``key``; numbers are named by index, and strings become flags."""
    for place, value in enumerate(values):
        if isinstance(value, dict):
            _flatten(key, value, flat)
        elif isinstance(value, list):
            _flatten_list(key, value, flat)
        elif isinstance(value, str):
            flat[f"{key}|{value}"] = 1.0
        elif value is not None and value is not False:
            flat[f"{key}|{place}"] = value
