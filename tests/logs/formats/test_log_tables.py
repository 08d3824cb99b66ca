"""Logs in CSV and Parquet tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from windvane.errors import ArgumentError
from windvane.logs import read
from windvane.logs.formats.conversions import parse_time, scale_time

ROWS = pd.DataFrame(
    {
        "when": pd.to_datetime(
            ["2024-05-01T10:00:00Z", "2024-05-01T10:00:01.5Z", "2024-05-01T10:00:03Z"], format="ISO8601"
        ),
        "item": ["b", "a", "b"],
        "click": [1, 0, 1],
        "p": [0.5, 0.25, 0.75],
        "seen": pd.to_datetime(["2024-05-01T10:00:09Z", None, "2024-05-01T10:00:03Z"], format="ISO8601"),
        "key": ["x", "y", "z"],
        "age": [10.0, 20.0, 40.0],
        "device": ["phone", "desktop", "phone"],
    }
)
MAPPING = {"time": "when", "arm": "item", "reward": "click", "propensity": "p", "reward_time": "seen", "id": "key"}


def write(path: Path, table: pd.DataFrame) -> Path:
    if path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False)
    return path


def join(log) -> dict[str, np.ndarray]:
    batches = list(log.batches())
    names = [name for name, value in vars(batches[0]).items() if value is not None]
    return {name: np.concatenate([getattr(batch, name) for batch in batches]) for name in names}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_mapping_says_which_column_is_what(tmp_path: Path, suffix: str) -> None:
    log = read(write(tmp_path / f"log{suffix}", ROWS), **MAPPING)
    schema, rows = log.schema, join(log)
    assert (schema.format, schema.rows, schema.arms, schema.has_times) == ("table", 3, ("a", "b"), True)
    assert (schema.propensities, schema.floor, schema.reward_range) == ("played arm", None, (0.0, 1.0))
    assert rows["time"].tolist() == [t.timestamp() for t in ROWS.when]
    assert rows["reward_time"].tolist() == [ROWS.seen[0].timestamp(), rows["time"][1], rows["time"][2]]
    assert rows["played"].tolist() == [1, 0, 1]
    assert rows["propensity"].tolist() == [0.5, 0.25, 0.75]
    assert schema.features is not None
    for i, row in ROWS.iterrows():
        expected = schema.features.vectors({"age": row.age, "device": row.device}, ["a", "b"])
        np.testing.assert_array_equal(rows["arms"][i], expected)
    assert schema.context_names == ("age", "device = phone", "device = desktop")
    assert rows["context"].shape == (3, 3)
    assert not len(log.problems)
    assert log.arm_counts == {"a": 1, "b": 2}


def test_columns_with_the_names_of_roles_need_no_mapping(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("time,arm,reward,propensity,weight,x\n5,1,2.5,0.5,2,1\n6,10,-1,0.5,1,2\n7,2,0,0.5,1,3\n")
    log = read(file)
    assert log.schema.arms == ("1", "2", "10")
    assert log.schema.reward_range == (-1.0, 2.5)
    assert not log.schema.is_range_declared
    rows = join(log)
    assert rows["reward"].tolist() == [1.0, 0.0, 1.0 / 3.5]
    assert rows["weight"].tolist() == [2.0, 1.0, 1.0]
    declared = read(file, reward_range=(-5, 5))
    assert declared.schema.is_range_declared
    assert declared.schema.to_reward(float(join(declared)["reward"][0])) == pytest.approx(2.5)


def test_a_file_of_arms_gives_their_features(tmp_path: Path) -> None:
    items = pd.DataFrame({"item": ["a", "b", "c"], "price": [1.0, 2.0, 4.0], "colour": ["red", "blue", "red"]})
    log = read(
        write(tmp_path / "log.csv", ROWS), **MAPPING, features=["age", "price", "colour"],
        arms_from=write(tmp_path / "items.csv", items),
    )  # fmt: skip
    assert log.schema.arms == ("a", "b", "c")
    assert log.schema.names == ("1", "age", "price", "colour = red", "colour = blue")
    assert (
        log.schema.names
        == read(tmp_path / "log.csv", **MAPPING, features=["age"], arms_from=tmp_path / "items.csv").schema.names
    )  # a list of fields of the context does not limit those of arms
    own = {row["item"]: {"price": row["price"], "colour": row["colour"]} for _, row in items.iterrows()}
    expected = [log.schema.features.vectors({"age": age}, own) for age in ROWS.age]
    np.testing.assert_array_equal(join(log)["arms"], expected)


def test_fields_of_arms_and_contexts_can_be_chosen_in_one_list(tmp_path: Path) -> None:
    items = write(tmp_path / "items.parquet", pd.DataFrame({"arm": ["a", "b"], "price": [1.0, 2.0]}))
    with pytest.raises(ArgumentError) as caught:
        read(write(tmp_path / "log.csv", ROWS), **MAPPING, features=["aeg", "price"], arms_from=items)
    assert caught.value.path == ("features", "aeg")
    assert "did you mean 'age'?" in caught.value.hint


def test_arms_that_the_file_of_arms_lacks_are_problems(tmp_path: Path) -> None:
    items = write(tmp_path / "items.csv", pd.DataFrame({"item": ["b", "c"], "price": [1.0, 2.0]}))
    log = read(write(tmp_path / "log.csv", ROWS), **MAPPING, arms_from=items)
    assert log.schema.rows == 2
    (problem,) = log.problems
    assert (problem.kind, problem.count, problem.is_dropped, problem.examples[0].place) == ("unknown arm", 1, True, 3)


@pytest.mark.parametrize(
    ("content", "reason"),
    [("", "header"), ("item\na\n", "features"), ("item,x\na,1\na,2\n", "different name"), ("item,x\n", "row for each")],
)
def test_a_file_of_arms_must_be_a_table_of_arms(tmp_path: Path, content: str, reason: str) -> None:
    items = tmp_path / "items.csv"
    items.write_text(content)
    with pytest.raises(ArgumentError) as caught:
        read(write(tmp_path / "log.csv", ROWS), **MAPPING, arms_from=items)
    assert caught.value.argument == "arms_from"
    assert reason in caught.value.expected


def test_errors_name_the_column(tmp_path: Path) -> None:
    file = write(tmp_path / "log.csv", ROWS)
    with pytest.raises(ArgumentError) as caught:
        read(file, reward="click")
    assert caught.value.argument == "arm"
    assert "when, item, click" in caught.value.expected
    with pytest.raises(ArgumentError) as caught:
        read(file, arm="itme", reward="click")
    assert (caught.value.argument, caught.value.hint) == ("arm", "did you mean 'item'?")
    with pytest.raises(ArgumentError) as caught:
        read(tmp_path / "missing.csv")
    assert (caught.value.argument, caught.value.hint) == ("path", "No such file or directory")
    with pytest.raises(ArgumentError) as caught:
        read(tmp_path)
    assert caught.value.hint == "Is a directory"


def test_a_column_that_turns_out_to_hold_texts_is_read_as_texts(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("windvane.logs.formats.csv_files.CHUNK", 2)
    file = tmp_path / "log.csv"
    file.write_text("arm,reward,code\na,1,007\nb,0,007\na,1,x\nb,0,7\n")
    log = read(file)
    assert log.schema.features.by_arm[0].values == ("007", "7", "x")


def test_delimiters_quotes_and_line_ends(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_bytes('\ufeffarm;reward;text\r\na;1;"x;\r\ny"\r\n\r\nb;0;z\r\n'.encode())
    log = read(file)
    assert log.schema.rows == 2
    assert [batch.place.tolist() for batch in log.batches()] == [[2, 5]]
    assert set(log.schema.features.by_arm[0].values) == {"x;\r\ny", "z"}


def test_times_in_other_units() -> None:
    assert scale_time(1.7e9) == scale_time(1.7e12) == scale_time(1.7e15) == scale_time(1.7e18) == 1.7e9
    assert parse_time("2024-05-01 12:00:00+02:00") == parse_time("2024-05-01T10:00:00Z") == parse_time("2024-05-01T10")
    assert parse_time("1612012912300") == 1612012912.3  # in ISO 8601 it would be a time of the year 1612
    assert parse_time("yesterday") == parse_time("1e400") == np.inf


def test_large_integer_ids_stay_different(tmp_path: Path) -> None:
    table = pd.DataFrame({"arm": ["a", "b", "a"], "reward": [0, 1, 1], "id": [2**60, 2**60 + 1, 2**60]})
    for suffix in (".csv", ".parquet"):
        log = read(write(tmp_path / f"log{suffix}", table))
        assert log.problems.count("repeated id") == 1
        assert next(iter(log.problems)).examples[0].place == (4 if suffix == ".csv" else 3)


def test_parquet_types(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {
            "arm": pd.Categorical(["a", "b", "a"]),
            "reward": [True, False, True],
            "time": pd.to_datetime(["2024-05-01", "2024-05-02", "2024-05-03"]).date,
            "x": pd.array([1, None, 3], dtype="Int32"),
        }
    )
    log = read(write(tmp_path / "log.parquet", table))
    rows = join(log)
    assert rows["reward"].tolist() == [1.0, 0.0, 1.0]
    assert np.diff(rows["time"]).tolist() == [86400.0, 86400.0]
    assert log.schema.features.by_arm[0].low == -3.0  # a field that some rows lack has a symmetric range
    lists = write(tmp_path / "lists.parquet", pd.DataFrame({"arm": ["a"], "reward": [1], "x": [[1, 2]]}))
    with pytest.raises(ArgumentError) as caught:
        read(lists)
    assert caught.value.path == ("columns", "x")


def test_without_pyarrow_the_error_says_what_to_install(tmp_path: Path, monkeypatch) -> None:
    file = write(tmp_path / "log.parquet", ROWS)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ArgumentError) as caught:
        read(file, **MAPPING)
    assert caught.value.hint == "pip install 'windvane[parquet]'"
    assert read(write(tmp_path / "log.csv", ROWS), **MAPPING).schema.rows == 3


def test_a_damaged_parquet_file(tmp_path: Path) -> None:
    file = write(tmp_path / "log.parquet", ROWS)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ArgumentError) as caught:
        read(file, **MAPPING)
    assert caught.value.expected == "a Parquet file"
