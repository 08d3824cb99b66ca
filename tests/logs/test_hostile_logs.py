"""Files that are not as they should be: located problems or one clear error, never a traceback of another kind."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from windvane.errors import ArgumentError
from windvane.logs import read

EVENT = {"number": 1, "time": "2026-01-01T00:00:00Z", "kind": "decided", "decision": "d", "key": None, "id": "d",
         "arm": "a", "index": 0, "propensity": 0.5, "preferred": "a", "rival": "b",
         "request": {"context": {"x": 1.0}, "arms": ["a", "b"]}}  # fmt: skip
DECISION = {"_label_cost": -1, "_label_probability": 0.5, "_label_Action": 1, "_labelIndex": 0, "EventId": "e",
            "Timestamp": "2026-01-01T00:00:00Z", "a": [1, 2], "p": [0.5, 0.5],
            "c": {"U": {"x": 1}, "_multi": [{"A": {"y": 1}}, {"A": {"y": 2}}]}}  # fmt: skip


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def events(*changes: dict, good: int = 6) -> list[str]:
    """Good decisions with rewards, and one more for each of ``changes``."""
    lines = []
    for i in range(good + len(changes)):
        change = changes[i - good] if i >= good else {}
        id_ = f"d{i}"
        event = {
            **EVENT,
            "decision": id_,
            "id": id_,
            "arm": "ab"[i % 2],
            "time": f"2026-01-01T00:00:{i:02d}Z",
            **change,
        }
        lines.append(json.dumps(event))
        lines.append(json.dumps({"number": 1, "time": f"2026-01-01T00:00:{i:02d}.5Z", "kind": "rewarded",
                                 "decision": id_, "value": float(i % 2), "settled": True}))  # fmt: skip
    return lines


def decisions(*changes: dict, good: int = 6) -> list[str]:
    lines = []
    for i in range(good + len(changes)):
        change = changes[i - good] if i >= good else {}
        lines.append(json.dumps({**DECISION, "EventId": f"e{i}", "_label_cost": -(i % 2), **change}))
    return lines


def kinds(log) -> dict[str, tuple[int, bool]]:
    """All problems by kind; and check that the rows that are left are sound."""
    rows = 0
    for batch in log.batches(3):
        rows += len(batch)
        assert np.isfinite(batch.arms).all()
        assert np.isfinite(batch.time).all()
        assert (np.isnan(batch.propensity) | ((batch.propensity > 0) & (batch.propensity <= 1))).all()
        assert (np.isnan(batch.reward) | ((batch.reward >= 0) & (batch.reward <= 1))).all()
        assert batch.valid[np.arange(len(batch)), batch.played].all()
        assert (batch.reward_time >= batch.time).all()
        assert not batch.arms[~batch.valid].any()
    assert rows == log.schema.rows == log.problems.rows_read - log.problems.rows_dropped
    for problem in log.problems:
        assert problem.count >= len(problem.examples) > 0
        assert all(example.expected and example.field for example in problem.examples)
    return {problem.kind: (problem.count, problem.is_dropped) for problem in log.problems}


TABLE = "time,arm,reward,propensity,id,x\n" + "".join(f"{i},{'ab'[i % 2]},{i % 2},0.5,{i},{i}\n" for i in range(8))


@pytest.mark.parametrize(
    ("row", "kind", "is_dropped"),
    [
        ("9,a,1,0,9,1", "invalid probability", True),
        ("9,a,1,1.5,9,1", "invalid probability", True),
        ("9,a,1,-0.5,9,1", "invalid probability", True),
        ("9,a,1,nan,9,1", "missing probability", False),
        ("9,a,1,1e400,9,1", "invalid number", True),
        ("9,a,1,half,9,1", "invalid number", True),
        ("9,a,much,0.5,9,1", "invalid number", True),
        ("9,a,1e400,0.5,9,1", "invalid number", True),
        ("9,,1,0.5,9,1", "missing arm", True),
        ("soon,a,1,0.5,9,1", "invalid time", True),
        (",a,1,0.5,9,1", "missing time", True),
        ("9,a,1,0.5,3,1", "repeated id", False),
        ("9,a,1,0.5,9,1e400", "invalid feature", False),
        ("2,a,1,0.5,9,1", "not in time order", False),
        ("9,a,1,0.5,9,1,7,8", "malformed row", True),
        ("9,a,1", "malformed row", True),
        ('9,a,1,0.5,9,"1', "malformed row", True),
        ("9,a,1,0.5,9," + "1" * 1_000_000, "malformed row", True),
    ],
)
def test_a_bad_row_of_a_table(tmp_path: Path, row: str, kind: str, is_dropped: bool) -> None:
    log = read(write(tmp_path / "log.csv", TABLE + row + "\n"))
    assert kinds(log) == {kind: (1, is_dropped)}
    (problem,) = log.problems
    assert problem.examples[0].place == 10
    assert log.schema.rows == 9 - is_dropped


def test_an_unknown_reward_is_no_problem(tmp_path: Path) -> None:
    log = read(write(tmp_path / "log.csv", TABLE + "9,a,,0.5,9,1\n"))
    assert kinds(log) == {}
    assert log.schema.rows == 9
    assert np.isinf(list(log.batches())[-1].reward_time[-1])


@pytest.mark.parametrize(
    ("change", "kind", "is_dropped"),
    [
        ({"arm": "c"}, "arm not on offer", True),
        ({"arm": None}, "missing arm", True),
        ({"propensity": 0}, "invalid probability", True),
        ({"propensity": 7}, "invalid probability", True),
        ({"propensity": None}, "missing probability", False),
        ({"propensity": "x"}, "invalid number", True),
        ({"propensity": float("inf")}, "invalid number", True),
        ({"time": "soon"}, "invalid time", True),
        ({"time": None}, "invalid time", True),
        ({"time": 10**400}, "invalid time", True),
        ({"request": None}, "missing request", True),
        ({"request": []}, "missing request", True),
        ({"request": {"arms": "ab"}}, "malformed arms", True),
        ({"request": {"arms": ["a", "a"]}}, "malformed arms", True),
        ({"request": {"arms": [{"a": 1}]}}, "malformed arms", True),
        ({"request": {"arms": ["a", "b"], "context": [1]}}, "malformed context", True),
        ({"request": {"arms": ["a", "b"], "context": {"x": [1]}}}, "invalid feature", False),
        ({"request": {"arms": ["a", "b"], "context": {"x": 10**400}}}, "invalid feature", False),
        ({"request": {"arms": ["a", "b"], "context": {"x": float("nan")}}}, "invalid feature", False),
        ({"decision": 5}, "missing id", True),
        ({"decision": "d3", "id": "d3"}, "repeated id", False),
    ],
)
def test_a_bad_event(tmp_path: Path, change: dict, kind: str, is_dropped: bool) -> None:
    log = read(write(tmp_path / "log.ndjson", "\n".join(events(change)) + "\n"))
    found = kinds(log)
    found.pop("reward without decision", None)
    found.pop("reward before its decision", None)  # the reward belongs to the other decision with this id
    assert found == {kind: (1, is_dropped)}
    (problem,) = (problem for problem in log.problems if problem.kind == kind)
    assert problem.examples[0].place == 13


@pytest.mark.parametrize(
    ("change", "kind", "is_dropped"),
    [
        ({"_labelIndex": 1}, "unknown arm", True),
        ({"_labelIndex": 5, "_label_Action": 6}, "unknown arm", True),
        ({"_labelIndex": "0"}, "unknown arm", True),
        ({"_label_probability": 0}, "invalid probability", True),
        ({"_label_probability": 1.5}, "invalid probability", True),
        ({"_label_probability": "x"}, "invalid number", True),
        ({"_label_cost": [1]}, "invalid number", True),
        ({"_label_cost": float("inf")}, "invalid number", True),
        ({"pdrop": 1.0}, "invalid number", True),
        ({"Timestamp": "soon"}, "invalid number", True),
        ({"Timestamp": None}, "missing time", True),
        ({"c": {}}, "missing arms", True),
        ({"c": 5}, "missing arms", True),
        ({"p": [0.5, 0.7]}, "probabilities do not sum to 1", False),
        ({"p": [1.5, -0.5]}, "invalid probability", True),
        ({"p": [0.2, 0.8]}, "conflicting probabilities", False),
        ({"p": [0.5]}, "malformed probabilities", False),
        ({"a": [1, 1]}, "malformed probabilities", False),
        ({"a": [1, 7]}, "malformed probabilities", False),
        ({"EventId": "e2"}, "repeated id", False),
        ({"c": {"U": {"x": 10**400}, "_multi": [{"A": {"y": 1}}, {"A": {"y": 2}}]}}, "invalid feature", False),
    ],
)
def test_a_bad_line_of_dsjson(tmp_path: Path, change: dict, kind: str, is_dropped: bool) -> None:
    log = read(write(tmp_path / "log.json", "\n".join(decisions(change)) + "\n"))
    assert kinds(log) == {kind: (1, is_dropped)}
    assert next(iter(log.problems)).examples[0].place == 7


VW = ["1:0:0.5 | a:1 b", "2:1:0.5 | a:2 c", "1:1:0.5 | a:1 b", "2:0:0.5 | a:3"] * 2


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("1:x:0.5 | a", "malformed label"),
        ("1:0 | a", "malformed label"),
        ("1:0:0.5 2:0:0.5 | a", "malformed label"),
        ("| a b", "no label"),
        ("1:0:0.5 | a:x", "malformed line"),
        ("1:0:0.5 | a:1e400", "malformed line"),
        ("1:0:0.5 a b", "malformed line"),
        ("1:0:1.5 | a", "invalid probability"),
        ("1:0:0 | a", "invalid probability"),
        ('{"a": 1}', "malformed line"),
    ],
)
def test_a_bad_line_of_vw_text(tmp_path: Path, line: str, kind: str) -> None:
    log = read(write(tmp_path / "log.vw", "\n".join([*VW, line]) + "\n"))
    assert kinds(log) == {kind: (1, True)}
    assert next(iter(log.problems)).examples[0].place == 9


LINES = {"ndjson": events(), "dsjson": decisions(), "vw": VW}


@pytest.mark.parametrize("format", LINES)
@pytest.mark.parametrize(
    "line",
    [
        b'{"number": 7, "kind": "decided", "decision": "d1',  # truncated
        b"[1, 2]",
        b"null",
        b"\xff\xfe\x00garbage",
        b'{"c": ' + b"[" * 100_000,
        b'{"c": ' + b"9" * 10_000 + b"}",
        b"x" * 1_000_000,
    ],
    ids=["truncated", "list", "null", "binary", "deep", "digits", "long"],
)
def test_a_line_of_something_else(tmp_path: Path, format: str, line: bytes) -> None:
    content = "\n".join(LINES[format]).encode()
    for file in (
        write(tmp_path / "last", content + b"\n" + line),
        write(tmp_path / "middle", content + b"\n" + line + b"\n" + content),
    ):
        log = read(file)
        found = kinds(log)
        found.pop("repeated id", None)
        found.pop("not in time order", None)
        assert found in ({"malformed line": (1, True)}, {"not UTF-8": (1, True)})
        (problem,) = (problem for problem in log.problems if problem.is_dropped)
        assert problem.examples[0].place == len(LINES[format]) + 1


@pytest.mark.parametrize("format", LINES)
def test_line_ends_blank_lines_and_a_byte_order_mark(tmp_path: Path, format: str) -> None:
    lines = LINES[format]
    plain = read(write(tmp_path / "plain", "\n".join(lines)))
    windows = read(write(tmp_path / "windows", "\ufeff" + "\r\n".join(lines) + "\r\n\r\n"))
    assert kinds(plain) == kinds(windows) == {}
    for a, b in zip(plain.batches(), windows.batches(), strict=True):
        for name, value in vars(a).items():
            if value is not None:
                np.testing.assert_array_equal(value, getattr(b, name))


def test_a_line_longer_than_the_limit_is_skipped(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("windvane.logs.formats.reader.LONGEST_LINE", 1000)
    log = read(write(tmp_path / "log", "\n".join([*VW, "1:0:0.5 | " + "a " * 3000, *VW])))
    assert kinds(log) == {"line too long": (1, True)}
    assert [batch.place[-1] for batch in log.batches()] == [17]


@pytest.mark.parametrize(
    "content",
    [b"", b"\n\n", b"\x00\x01\x02" * 100, b"\xff\xfe\xfd" * 100, b"arm,reward\n", b"hello world\n", b"{}\n", b"[1]\n",
     b'{"kind": 1}\n', b"a,b\n1,2\n", b"PAR1 and nothing else", b"1,2\n3,4\n", b"arm,arm,reward\na,b,1\n",
     b"|\n", b"shared |\n\n", b'{"number": 1, "kind": "archived", "time": null}\n', b"arm,reward\n\"a",
     b"arm,reward\na,\n", b"{" * 5000, b'{"c": {}}\n'],
)  # fmt: skip
@pytest.mark.parametrize("format", [None, "windvane", "table", "open-bandit", "dsjson", "vw"])
def test_a_file_that_is_no_log(tmp_path: Path, content: bytes, format: str | None) -> None:
    with pytest.raises(ArgumentError):
        read(write(tmp_path / "log", content), format=format)


def test_a_file_of_bad_rows_is_refused_with_the_first_problems(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError) as caught:
        read(write(tmp_path / "log.csv", "arm,reward,propensity\n" + "a,1,2\n" * 6 + "b,0,0.5\n" * 5))
    assert caught.value.got == "6 unusable rows of 11"
    assert "line 2: `propensity` must be in (0, 1], got 2.0" in caught.value.hint


def test_wrong_arguments(tmp_path: Path) -> None:
    file = write(tmp_path / "log.csv", TABLE)
    wrong = {"format": "excel", "max_dim": 0, "floor": 2.0, "reward_range": (1, 0), "features": "x", "arms_from": 5}
    for name, value in {**wrong, "time": "t"}.items():
        with pytest.raises(ArgumentError) as caught:
            read(file, **{name: value})
        assert caught.value.path[0] == name
    with pytest.raises(ArgumentError):
        read(5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError) as caught:
        read(write(tmp_path / "log.vw", "\n".join(VW)), arm="x")
    assert caught.value.argument == "arm"


def test_too_many_arms_without_features(tmp_path: Path) -> None:
    file = write(tmp_path / "log.csv", "arm,reward\n" + "".join(f"{i},1\n" for i in range(200)))
    with pytest.raises(ArgumentError) as caught:
        read(file)
    assert (caught.value.argument, caught.value.value) == ("max_dim", 100)
    assert read(file, max_dim=201).schema.dim == 201


def test_rewards_outside_the_declared_range_are_problems(tmp_path: Path) -> None:
    log = read(write(tmp_path / "log.csv", TABLE + "9,a,3,0.5,9,1\n"), reward_range=(0, 2))
    assert kinds(log) == {"reward outside its range": (1, True)}
