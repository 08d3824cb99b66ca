"""Vowpal Wabbit's text format, in small files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from windvane.logs import read


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_line_per_decision(tmp_path: Path) -> None:
    log = read(write(tmp_path / "log", "1:0:0.5 |u a:2 b |v:2 a", "2:1.5:0.25 'tag1| c:1e-1", "2:1:0.25 tag2|u b"))
    (batch,) = log.batches()
    assert (log.schema.format, log.schema.arms, log.schema.reward_range) == ("vw", ("1", "2"), (-1.5, 0.0))
    assert batch.played.tolist() == [0, 1, 1]
    assert batch.propensity.tolist() == [0.5, 0.25, 0.25]
    assert [log.schema.to_reward(reward) for reward in batch.reward] == pytest.approx([0.0, -1.5, -1.0])
    (raw,) = log.raw_batches()
    assert raw.id.tolist() == [None, "tag1", "tag2"]
    values = {name: column.fill(3).tolist()[0] for name, column in raw.context.items()}
    assert values == {"u|a": 2.0, "u|b": 1.0, "v|a": 2.0, "c": pytest.approx(np.nan, nan_ok=True)}
    bounds = {field.name: field.high for field in log.schema.features.by_arm}
    assert bounds == {"u|a": 2.0, "u|b": 1.0, "v|a": 2.0, "c": 0.1}


def test_other_actions_of_a_line_are_on_offer(tmp_path: Path) -> None:
    log = read(write(tmp_path / "log", "1 2:0:0.5 3 | a", "3:1:0.5 1 | b", "2:1:0.5 3 | b", "1:0:0.5 | a"))
    assert not len(log.problems)
    valid = np.concatenate([batch.valid for batch in log.batches()])
    assert valid.astype(int).tolist() == [[1, 1, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1]]


def test_blocks(tmp_path: Path) -> None:
    log = read(
        write(
            tmp_path / "log",
            "shared |s x:1", "|a f:1", "0:-1:0.25 |a f:2", "",
            "0:0.5:0.5 |a f:3 f:1", "|a g", "", "",
            "shared |s x:3", "|a f:1", "shared |s x:2", "0:0:1 |a g", "|b h",
        )
    )  # fmt: skip
    (batch,) = log.batches()
    assert [problem.kind for problem in log.problems] == ["no label"]
    assert next(iter(log.problems)).examples[0].place == 9
    assert batch.place.tolist() == [1, 5, 11]
    assert batch.played.tolist() == [1, 0, 0]
    assert log.schema.names == ("1", "s|x", "a|f", "a|g", "b|h")
    scale = log.schema.features.scale
    np.testing.assert_allclose(
        batch.arms[1] / scale, [[1, 0, 1.0, 0, 0], [1, 0, 0, 1, 0]]
    )  # a repeated feature adds up: 4 is the largest value
    assert log.schema.reward_range == (-0.5, 1.0)


def test_tags_are_names_of_arms(tmp_path: Path) -> None:
    log = read(
        write(
            tmp_path / "log", "shared | x", "0:1:0.5 'tea| f", "'beer| g", "", "shared | y", "'beer| g", "0:0:1 'tea| f"
        )
    )
    assert log.schema.arms == ("tea", "beer")
    assert [batch.played.tolist() for batch in log.batches()] == [[0, 0]]
    assert log.arm_counts == {"tea": 2}
