"""Vowpal Wabbit's dsjson, in small files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from windvane.logs import read
from windvane.logs.formats.dsjson import flatten, name_arms

ARMS = [{"_tag": "tea", "A": {"hot": 1}}, {"_tag": "beer", "A": {"hot": 0, "alcohol": 5}}, {"_tag": "water", "A": {}}]


def decision(i: int, chosen: int, base: int = 1, **more) -> dict:
    order = [chosen, *(arm for arm in range(3) if arm != chosen)]
    return {
        "_label_cost": -(i % 2), "_label_probability": 0.6, "_label_Action": chosen + 1, "_labelIndex": chosen,
        "Timestamp": f"2024-05-01T10:00:{i:02d}.1230000Z", "EventId": f"e{i}",
        "a": [arm + base for arm in order], "p": [0.6, 0.3, 0.1],
        "c": {"User": {"age": i, "_secret": 1, "city": "Oslo" if i % 2 else "Rome"}, "_multi": ARMS}, **more,
    }  # fmt: skip


def write(path: Path, records: list[dict]) -> Path:
    path.write_text("\n".join(json.dumps(record) for record in records))
    return path


@pytest.mark.parametrize("base", [0, 1])
def test_labels_probabilities_and_features(tmp_path: Path, base: int) -> None:
    log = read(write(tmp_path / "log", [decision(i, i % 3, base) for i in range(6)]))
    (batch,) = log.batches()
    assert (log.schema.format, log.schema.arms) == ("dsjson", ("tea", "beer", "water"))
    assert batch.played.tolist() == [0, 1, 2, 0, 1, 2]
    assert batch.reward.tolist() == [0.0, 1.0] * 3
    assert batch.probabilities.tolist()[:3] == [[0.6, 0.3, 0.1], [0.3, 0.6, 0.1], [0.3, 0.1, 0.6]]
    assert batch.propensity.tolist() == [0.6] * 6
    assert np.diff(batch.time).tolist() == pytest.approx([1.0] * 5)
    assert batch.time[0] % 60 == pytest.approx(0.123)
    names = ("1", "User|age", "User|city = Oslo", "User|city = Rome", "A|hot", "A|alcohol")
    assert log.schema.names == names
    expected = log.schema.features.vectors(
        {"User|age": 2, "User|city": "Rome"},
        {
            "tea": {"A|hot": 1, "A|alcohol": 0},
            "beer": {"A|hot": 0, "A|alcohol": 5},
            "water": {"A|hot": 0, "A|alcohol": 0},
        },
    )
    np.testing.assert_array_equal(batch.arms[2], expected)  # an absent feature is 0
    assert [row.id.tolist() for row in log.raw_batches()] == [[f"e{i}" for i in range(6)]]


def test_dropped_rows_and_rows_that_were_not_learned(tmp_path: Path) -> None:
    records = [
        decision(0, 0),
        decision(1, 1, pdrop=0.75),
        decision(2, 2, _skipLearn=True),
        decision(3, 0, _skipLearn=False),
    ]
    (batch,) = read(write(tmp_path / "log", records)).batches()
    assert batch.weight.tolist() == [1.0, 4.0, 1.0, 1.0]
    assert batch.is_learned.tolist() == [True, True, False, True]


def test_dangling_rewards_are_counted(tmp_path: Path) -> None:
    dangling = {"RewardValue": 1.0, "EventId": "x", "EnqueuedTimeUtc": "2024-05-01T10:00:00Z"}
    log = read(write(tmp_path / "log", [decision(0, 0), dangling, decision(1, 1)]))
    (problem,) = log.problems
    assert (problem.kind, problem.count, problem.is_dropped) == ("dangling reward", 1, False)
    assert problem.examples[0].place == 2
    assert log.schema.rows == 2


def test_a_decision_without_a_label_has_an_unknown_reward(tmp_path: Path) -> None:
    last = {name: value for name, value in decision(2, 2).items() if not name.startswith("_label")}
    (batch,) = read(write(tmp_path / "log", [decision(0, 0), decision(1, 1), last])).batches()
    assert batch.played[2] == 2
    assert batch.propensity[2] == 0.6
    assert np.isnan(batch.reward[2])
    assert batch.reward_time[2] == np.inf


def test_without_times_rows_are_numbered(tmp_path: Path) -> None:
    records = [{k: v for k, v in decision(i, 0).items() if k != "Timestamp"} for i in range(5)]
    log = read(write(tmp_path / "log", records))
    assert not log.schema.has_times
    assert [batch.time.tolist() for batch in log.batches(2)] == [[1.0, 2.0], [3.0, 4.0], [5.0]]


def test_names_of_arms() -> None:
    assert name_arms([{"i": {"id": "x"}}, {"_tag": "y"}]) == ["x", "y"]
    assert name_arms([{"_tag": "x"}, {"_tag": "x"}]) == ["1", "2"]
    assert name_arms([{"_tag": 1}, {}]) == ["1", "2"]


def test_nested_features() -> None:
    nested = {"n": 0, "off": False, "none": None, "list": [1.5, "word", None, [2]], "deep": {"deeper": {"x": "y"}}}
    assert flatten(nested) == {"n": 0, "list|0": 2, "list|word": 1.0, "deeper|x": "y"}


def test_probabilities_that_do_not_sum_to_1_are_not_used_for_other_arms(tmp_path) -> None:
    """The probability of the arm that was played may still be right."""
    lines = []
    for i in range(6):
        p = [0.25, 0.25] if i == 3 else [0.5, 0.5]
        multi = [{"_tag": name, "f": {"x": 1}} for name in ("a", "b")]
        lines.append(
            {"_label_cost": -(i % 2), "_label_probability": 0.5, "_label_Action": 1, "_labelIndex": 0,
             "EventId": str(i), "a": [1, 2], "p": p, "c": {"_multi": multi}}
        )  # fmt: skip
    path = tmp_path / "log.json"
    path.write_text("\n".join(map(json.dumps, lines)))
    log = read(path)
    assert log.problems.count("probabilities do not sum to 1") == 1
    assert (log.schema.propensities, log.schema.floor) == ("played arm", None)
    assert next(log.batches()).probabilities is None
