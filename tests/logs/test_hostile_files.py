"""Files that are no plain text, columns that leak the reward, and texts that no encoding holds."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from windvane.errors import ArgumentError
from windvane.logs import check, read
from windvane.logs.report.check_page import describe_check
from windvane.logs.report.pages import write_page

TABLE = "time,arm,reward,propensity,x\n" + "".join(f"{i},{'ab'[i % 2]},{i % 3 % 2},0.5,{i}\n" for i in range(60))


@pytest.mark.parametrize(
    ("content", "mentions"),
    [
        (gzip.compress(TABLE.encode()), "gzip"),
        (b"PK\x03\x04\x14\x00\x00\x00" + TABLE.encode(), "Excel"),
        (TABLE.encode("utf-16"), "UTF-8"),
        (TABLE.replace("\n", "\r").encode(), "carriage return"),
    ],
)
def test_a_foreign_file_is_named(tmp_path: Path, content: bytes, mentions: str) -> None:
    (tmp_path / "log.csv").write_bytes(content)
    with pytest.raises(ArgumentError, match=mentions):
        read(tmp_path / "log.csv")


@pytest.mark.parametrize("argument", ["path", "arms_from"])
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path, argument: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "log.csv").write_text(TABLE)
    paths = {"path": tmp_path / "log.csv", argument: tmp_path / "pipe"}
    with pytest.raises(ArgumentError, match="more than once"):
        read(**paths)


@pytest.mark.parametrize("column", ["reward", "reward_time"])
def test_the_reward_is_no_context(tmp_path: Path, column: str) -> None:
    (tmp_path / "log.csv").write_text(TABLE.replace(",x\n", ",reward_time\n"))
    with pytest.raises(ArgumentError, match="features"):
        read(tmp_path / "log.csv", features=[column])
    with pytest.raises(ArgumentError, match="reward"):
        read(tmp_path / "log.csv", arm="reward")


def test_a_column_that_is_named_like_the_option_is_found(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(TABLE.replace(",x\n", ",reward-time\n"))
    log = read(tmp_path / "log.csv")
    assert "reward-time" not in " ".join(log.schema.names)
    batch = next(log.batches())
    assert batch.reward_time.tolist() == batch.time.tolist()


def test_lone_surrogates_are_written_to_the_page(tmp_path: Path) -> None:
    lines = []
    for i in range(60):
        event = {"number": 2 * i, "time": i, "kind": "decided", "decision": f"d{i}", "arm": ["a", "\ud800"][i % 2],
                 "propensity": 0.5, "request": {"context": {"\udc00": i}, "arms": ["a", "\ud800"]}}  # fmt: skip
        reward = {"number": 2 * i + 1, "time": i, "kind": "rewarded", "decision": f"d{i}", "value": i % 3 % 2,
                  "settled": True}  # fmt: skip
        lines += [json.dumps(event), json.dumps(reward)]
    (tmp_path / "log.ndjson").write_text("\n".join(lines))
    page = describe_check(check(read(tmp_path / "log.ndjson")), source="log", facts={"Vectors": "\udc00"})
    assert "\\ud800" in write_page(page, tmp_path / "page.html").read_text()


@pytest.mark.parametrize("content", [TABLE * 2, TABLE[:400], TABLE.replace("a", "c"), "arm,reward\n"])
def test_a_file_that_has_changed_is_not_checked(tmp_path: Path, content: str) -> None:
    (tmp_path / "log.csv").write_text(TABLE)
    log = read(tmp_path / "log.csv")
    (tmp_path / "log.csv").write_text(content)
    os.utime(tmp_path / "log.csv", (1.0, 1.0))
    with pytest.raises(ArgumentError, match="has changed"):
        check(log)


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(TABLE)
    batches = read(tmp_path / "log.csv").batches(10)
    next(batches)
    (tmp_path / "log.csv").write_text(TABLE[:400])
    with pytest.raises(ArgumentError, match="has changed"):
        list(batches)
