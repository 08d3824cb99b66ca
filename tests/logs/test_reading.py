"""Reading a log: progress, problems, formats found out, and rows that can be read again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import windvane.logs
from windvane.errors import ArgumentError
from windvane.logs import read
from windvane.logs.raw import FieldColumn, concatenate, format_number, to_texts
from windvane.logs.row_problems import EXAMPLES, Problems

TABLE = "time,arm,reward,propensity,x\n" + "".join(f"{i},{'ab'[i % 2]},{i % 2},0.5,{i}\n" for i in range(50))


def test_public_names() -> None:
    assert {"read", "from_arrays", "FileLog", "Log", "LogBatch", "LogSchema", "Problems"} <= set(windvane.logs.__all__)
    assert windvane.logs.read is read
    with pytest.raises(AttributeError):
        _ = windvane.logs.nonsense


def test_progress_is_reported_up_to_the_end(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("windvane.logs.formats.csv_files.CHUNK", 10)
    file = tmp_path / "log.csv"
    file.write_text(TABLE)
    calls: list[tuple[int, int]] = []
    read(file, progress=lambda done, total, _: calls.append((done, total)))
    done = [call[0] for call in calls]
    assert done == sorted(done)
    assert len(calls) > 3
    assert calls[-1][0] == calls[-1][1] == file.stat().st_size
    event = {"number": 1, "time": "2026-01-01T00:00:00Z", "kind": "decided", "decision": "d", "arm": "a", "index": 0,
             "request": {"arms": ["a", "b"]}}  # fmt: skip
    reward = {**event, "kind": "rewarded", "value": 1, "settled": True}
    file.write_text((json.dumps(event) + "\n") * 1500 + json.dumps(reward))
    calls.clear()
    read(file, progress=lambda done, total, _: calls.append((done, total)))
    assert {total for _, total in calls} == {2 * file.stat().st_size}  # two passes
    assert [call[0] for call in calls] == sorted(call[0] for call in calls)


def test_batches_can_be_read_again_in_any_size(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text(TABLE)
    log = read(file)
    whole = next(log.batches())
    for size in (1, 7, 50):
        parts = list(log.batches(size))
        assert max(map(len, parts)) == size
        for name, value in vars(whole).items():
            if value is not None:
                np.testing.assert_array_equal(np.concatenate([getattr(part, name) for part in parts]), value)
    with pytest.raises(ArgumentError):
        next(log.batches(0))
    assert sum(map(len, log.raw_batches())) == 50


def test_large_batches_are_split(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("windvane.logs.row_encoder.MOST_NUMBERS", 100)
    file = tmp_path / "log.csv"
    file.write_text(TABLE)
    log = read(file)
    assert max(len(batch) for batch in log.batches()) == 100 // (2 * log.schema.dim)


def test_declared_facts_are_in_the_schema(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text(TABLE)
    schema = read(file, floor=0.1, is_adaptive=False, reward_range=(0, 4)).schema
    assert (schema.floor, schema.is_floor_declared, schema.is_adaptive) == (0.1, True, False)
    assert (schema.reward_range, schema.is_range_declared) == ((0.0, 4.0), True)
    assert (read(file).schema.floor, read(file).schema.is_floor_declared) == (0.5, False)  # uniform


def test_a_log_without_rewards_or_with_constant_rewards(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("arm,reward\na,\nb,\n")
    with pytest.raises(ArgumentError) as caught:
        read(file)
    assert caught.value.argument == "reward"
    file.write_text("arm,reward\na,5\nb,5\n")
    log = read(file)
    assert log.schema.reward_range == (0.0, 5.0)
    assert log.problems.count("constant reward") == 1


def test_rewards_before_their_decisions_are_moved(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("time,reward_time,arm,reward\n5,4,a,1\n6,9,b,0\n7,,b,1\n8,9,a,\n")
    log = read(file)
    (batch,) = log.batches()
    assert batch.reward_time.tolist() == [5.0, 9.0, 7.0, np.inf]
    assert log.problems.count("reward before its decision") == 1


def test_the_format_can_be_given(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    file.write_text("arm,reward,text\na,1,x|y\nb,0,z\n")
    assert read(file).schema.format == "table"
    with pytest.raises(ArgumentError):
        read(file, format="vw")


def test_a_mixture_of_formats(tmp_path: Path) -> None:
    decision = {"_label_cost": -1, "_label_probability": 0.5, "_label_Action": 1, "_labelIndex": 0,
                "c": {"_multi": [{"A": {"y": 1}}, {"A": {"y": 2}}]}}  # fmt: skip
    event = {"number": 1, "time": "2026-01-01T00:00:00Z", "kind": "decided", "decision": "d", "arm": "a", "index": 0,
             "request": {"arms": ["a", "b"]}}  # fmt: skip
    reward = {**event, "kind": "rewarded", "value": 1, "settled": True}
    file = tmp_path / "log"
    file.write_text("\n".join(map(json.dumps, [decision, decision, event])))
    assert [(problem.kind, problem.count) for problem in read(file).problems] == [("missing arms", 1)]
    file.write_text("\n".join(map(json.dumps, [event, reward, decision])))
    assert [(problem.kind, problem.count) for problem in read(file).problems] == [("unknown kind of event", 1)]


def test_problems_are_counted_and_the_first_located() -> None:
    problems, others = Problems(), Problems()
    problems.add_rows("wrong", np.arange(10, 30), "x", np.arange(20.0), "right", is_dropped=False)
    others.add("wrong", 3, "x", "a" * 1000, "right", count=2)
    others.rows_read = 5
    problems.include(others)
    (problem,) = problems
    assert (problem.count, problem.is_dropped, len(problem.examples)) == (22, False, EXAMPLES)
    assert str(problem.examples[0]) == "row 10: `x` must be right, got 0.0"
    assert (len(problems), problems.count("other"), problems.rows_read) == (1, 0, 5)
    (other,) = others
    assert len(other.examples[0].value) == 80


def test_texts_of_numbers() -> None:
    assert [format_number(number) for number in (1.0, -2.0, 0.1, 1e20, 1e300)] == ["1", "-2", "0.1", "1e+20", "1e+300"]
    column = to_texts(FieldColumn(np.array([2.0, np.nan, 0.5, 2.0])))
    assert [None if code < 0 else column.values[code] for code in column.data] == ["2", None, "0.5", "2"]


def test_rows_can_be_concatenated(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("windvane.logs.formats.dsjson.CHUNK", 3)
    file = tmp_path / "log"
    records = [
        {"_label_cost": -(i % 2), "_label_probability": 0.5, "_label_Action": 1, "_labelIndex": 0,
         "c": {"U": {"x": i} if i % 3 else {"y": "a"}, "_multi": [{"A": {"f": i, f"g{i}": 1}}, {"A": {"f": 2}}]}}
        for i in range(10)
    ]  # fmt: skip
    file.write_text("\n".join(map(json.dumps, records)))
    log = read(file)
    parts = list(log.raw_batches())
    assert len(parts) == 4
    whole = concatenate(parts)
    again = concatenate([whole.select(slice(0, 4)), whole.select(slice(4, None))])
    for rows in (whole, again):
        assert rows.place.tolist() == list(range(1, 11))
        x = rows.context["U|x"].fill(10)
        np.testing.assert_array_equal(x, [i if i % 3 else np.nan for i in range(10)])
        f = rows.offers.fields["A|f"].fill(20)
        assert f.tolist() == [value for i in range(10) for value in (i, 2)]


def test_a_file_that_has_changed_must_be_read_again(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text(TABLE)
    log = read(file)
    file.write_text(TABLE + "99,c,1,0.5,3\n")
    for rows in (log.batches(), log.raw_batches()):
        with pytest.raises(ArgumentError) as caught:
            next(rows)
        assert caught.value.hint == "read it again"
    assert read(file).schema.arms == ("a", "b", "c")


def test_rows_without_a_time_do_not_decide_what_the_others_have(tmp_path: Path) -> None:
    arms = {"c": {"_multi": [{"A": {"y": 1}}, {"A": {"y": 2}}]}, "_label_probability": 0.5, "_labelIndex": 0}
    timed = {**arms, "_label_cost": -1, "Timestamp": "2026-01-01T00:00:00Z"}
    full = {**arms, "_label_cost": 0, "a": [1, 2], "p": [0.5, 0.5]}
    file = tmp_path / "log"
    file.write_text("\n".join(map(json.dumps, [timed, full, {**full, "Timestamp": "2026-01-01T00:00:01Z"}])))
    log = read(file)
    assert (log.schema.rows, log.schema.propensities) == (2, "played arm")
    assert log.problems.count("missing time") == 1


def test_too_many_fields_are_reported(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("windvane.logs.scan.MOST_FIELDS", 2)
    file = tmp_path / "log"
    file.write_text("1:0:0.5 | a b\n2:1:0.5 | b c\n")
    assert read(file).problems.count("too many fields") == 1


def test_too_many_arms_for_the_dimension(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("windvane.logs.file_log.MOST_NUMBERS", 9)
    file = tmp_path / "log.csv"
    file.write_text(TABLE)
    with pytest.raises(ArgumentError) as caught:
        read(file)
    assert caught.value.hint == "pass a smaller max_dim"
