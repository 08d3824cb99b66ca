"""Stored tables as data frames and files: documented columns, finished cells only, the same rows in every format."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import windvane.lab
from support.refusals import rejects
from windvane.environments import BallArms, Rotation
from windvane.lab import EnvironmentSpec, PolicySpec, Results, Spec, export, simulate
from windvane.lab.results.folder import TABLES, FolderError
from windvane.lab.results.stored_tables import MissingLibraryError, concat_tables
from windvane.lab.results.summary import summarise_entries
from windvane.lab.run.play import QUANTITIES

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "results-folder.md"
KINDS = {
    "text": pa.dictionary(pa.int32(), pa.string()),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "list of float64": pa.list_(pa.float64()),
}
SPEC = Spec(
    environments=[
        EnvironmentSpec(name="flat", drift=Rotation(), arms=BallArms(count=3)),
        EnvironmentSpec(name="deep", drift=Rotation(), arms=BallArms(count=3), dim=4),
    ],
    policies=[
        PolicySpec("OFUL"),
        PolicySpec("SW-LinUCB"),
        PolicySpec("BVD-GLM-UCB", sweep={"gamma": [0.9, 0.99]}),
        PolicySpec("D-LinUCB", sweep={"bonus_scale": [0.5]}),
    ],
    runs=5,
    horizon=30,
    lanes_per_cell=2,
    diagnostics=True,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables") / "out"
    simulate(SPEC, folder, jobs=1)
    return folder


@pytest.fixture
def results(folder: Path) -> Results:
    return windvane.lab.open(str(folder))


def documented() -> dict[str, dict[str, str]]:
    """The columns of each table and their types, as docs/reference/results-folder.md lists them."""
    section = DOCUMENT.read_text(encoding="utf-8").split("## Tables")[1].split("\n## ")[0]
    parts = re.split(r"^Every table starts|^`(runs|curves|paths)` has a row", section, flags=re.M)
    columns: dict[str, dict[str, str]] = {}
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        rows = re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|", text, flags=re.M)
        columns[name or "all"] = {c: kind for names, kind in rows for c in re.findall(r"`(\w+)`", names)}
    return {table: {**columns["all"], **columns[table]} for table in TABLES}


@pytest.mark.parametrize("table", TABLES)
def test_the_documented_columns_are_the_stored_ones(folder: Path, results: Results, table: str) -> None:
    expected = documented()[table]
    whole = pq.read_table(folder / table)
    for schema in (whole.schema, results.table(table).schema):
        stored = {field.name: field.type for field in schema if not field.name.startswith("sweep_")}
        assert stored == {name: KINDS[kind] for name, kind in expected.items()}
    frame = pd.read_parquet(folder / table)
    assert len(frame) == len(results.frame(table))


@pytest.mark.parametrize("table", TABLES)
def test_the_files_of_all_cells_have_one_schema(folder: Path, table: str) -> None:
    schemas = [pq.read_schema(path) for path in sorted((folder / table).iterdir())]
    assert len(schemas) >= 10
    assert all(schema.equals(schemas[0]) for schema in schemas)


def test_diagnostics_are_null_where_there_are_none(results: Results) -> None:
    curves = results.table("curves")
    for entry in results.entries:
        is_measured = entry.policy != "SW-LinUCB"
        assert set(entry.diagnostics) == (set(QUANTITIES) if is_measured else set())
        rows = curves.filter(pc.equal(curves["policy"].cast(pa.string()), entry.policy))
        assert (rows["learning"].null_count == len(rows)) != is_measured


def test_variants_are_found_where_cells_are_missing(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "out")
    complete = {(e.environment, e.label): e for e in windvane.lab.open(folder).entries}
    swept = sorted((tmp_path / "out" / "cells").glob("e000-p002-*"))
    assert len(swept) == 5  # of ten lanes: runs 0 to 4 with gamma = 0.9, then with 0.99
    for path in swept[1:3]:
        path.unlink()
    for entry in windvane.lab.open(tmp_path / "out").entries:
        whole = complete[entry.environment, entry.label]
        lanes = {"BVD-GLM-UCB γ=0.9": [0, 1], "BVD-GLM-UCB γ=0.99": [1, 2, 3, 4]}
        expected = lanes.get(entry.label, [0, 1, 2, 3, 4]) if entry.environment == "flat" else whole.lanes.tolist()
        assert entry.lanes.tolist() == expected
        np.testing.assert_array_equal(entry.regret, whole.regret[expected])
        np.testing.assert_array_equal(entry.gamma, whole.gamma[expected])
        assert (entry.path is None) == (0 not in expected)


def test_a_frame_has_the_rows_of_all_cells(results: Results) -> None:
    runs = results.frame("runs", "pandas")
    assert len(runs) == 2 * (5 + 5 + 10 + 5)
    assert {"sweep_gamma", "sweep_bonus_scale"} <= set(runs.columns)
    for entry in results.entries:
        rows = runs[(runs.environment == entry.environment) & (runs.policy == entry.policy)]
        if "gamma" in entry.variant:
            rows = rows[rows.sweep_gamma == entry.variant["gamma"]]
        np.testing.assert_array_equal(rows.final_regret, entry.final)
        assert rows.run.tolist() == entry.lanes.tolist()
    assert runs[runs.policy == "OFUL"].sweep_gamma.isna().all()
    curves = results.frame("curves", "polars")
    assert isinstance(curves, pl.DataFrame)
    oful = curves.filter(pl.col("environment").eq("deep") & pl.col("policy").eq("OFUL"))
    first = next(e for e in results.entries if (e.environment, e.policy) == ("deep", "OFUL"))
    np.testing.assert_array_equal(oful["regret"].to_numpy().reshape(5, 30), first.regret)


def test_the_summary_is_a_frame(results: Results) -> None:
    summary, rows = results.summary(), summarise_entries(results)
    assert summary.label.tolist() == [row.label for row in rows]
    assert summary["mean"].tolist() == [row.mean for row in rows]
    assert summary.sweep_gamma.dropna().tolist() == [0.9, 0.99] * 2
    assert summary.stage_1.tolist() == pytest.approx([row.stages[1] for row in rows], nan_ok=True)
    assert results.frame("summary", "polars").shape == summary.shape


def test_only_finished_and_whole_cells_are_read(tmp_path: Path) -> None:
    simulate(SPEC, tmp_path, jobs=1)
    opened = windvane.lab.open(tmp_path)
    names = sorted(path.stem for path in (tmp_path / "cells").iterdir())
    (tmp_path / "cells" / f"{names[0]}.json").unlink()
    victim = tmp_path / "runs" / f"{names[1]}.parquet"
    victim.write_bytes(victim.read_bytes()[:-1])
    again = windvane.lab.open(tmp_path)
    assert again.finished == opened.finished - 2
    assert len(again.table("runs")) == 2 * 25 - 4
    with rejects(error=FolderError, path=victim, code="changed"):  # since it was opened
        opened.table("runs")
    for path in (tmp_path / "cells").iterdir():
        path.unlink()
    with rejects(error=FolderError, path=tmp_path, code="unfinished"):
        windvane.lab.open(tmp_path).frame()


def test_which_library(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(results.frame(), pd.DataFrame)
    with rejects("library", value="spark"):
        results.frame(library="spark")
    with rejects("name", value="lanes"):
        results.table("lanes")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pandas" else find(name))
    assert isinstance(results.frame(), pl.DataFrame)
    with rejects(error=MissingLibraryError, libraries=("pandas",)):
        results.frame(library="pandas")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with rejects(error=MissingLibraryError, libraries=("pandas", "polars")) as caught:
        results.frame()
    assert "pandas or polars" in str(caught.value)


def test_columns_of_different_types_are_joined() -> None:
    parts = [pa.table({"a": [1, 2], "sweep_x": [1.5, 2.5]}), pa.table({"a": [0.5]}), pa.table({"a": [3], "b": ["z"]})]
    assert concat_tables(parts).to_pydict() == {
        "a": [1.0, 2.0, 0.5, 3.0],
        "sweep_x": [1.5, 2.5, None, None],
        "b": [None, None, None, "z"],
    }
    mixed = [pa.table({"sweep_x": values}) for values in ([0.5], ["tight"], [True], [[1, 2]])]
    assert concat_tables(mixed)["sweep_x"].to_pylist() == ["0.5", "tight", "true", "[1, 2]"]


def test_swept_values_are_columns_of_every_table_and_no_diagnostics(tmp_path: Path) -> None:
    """Numbers, texts, flags and lists, alone or mixed in one setting."""
    settings = {"boldness": 1}
    policies = [
        PolicySpec(
            "support.spec_objects:Mine", "flags", settings, sweep={"greedy": [True, False], "gamma": [0.9, 0.99]}
        ),
        PolicySpec("support.spec_objects:Anything", "mixed", sweep={"own": [3, 0.5, "text", True, [1, 2]]}),
        PolicySpec("D-LinUCB", sweep={"confidence": ["anytime", "horizon"]}),
        PolicySpec("OFUL"),
    ]
    spec = dataclasses.replace(SPEC, environments=SPEC.environments[:1], policies=policies, runs=2, diagnostics=False)
    results = simulate(spec, tmp_path, jobs=1)
    assert not any(entry.diagnostics for entry in results.entries)
    for name in (*TABLES, "summary"):
        frame = results.frame(name)
        assert set(frame[frame.policy == "D-LinUCB"].sweep_confidence) == {"anytime", "horizon"}
        assert set(frame[frame.policy == "flags"].sweep_gamma) == {0.9, 0.99}
        assert set(frame[frame.policy == "flags"].sweep_greedy) == {True, False}
        assert set(frame[frame.policy == "mixed"].sweep_own) == {"3", "0.5", '"text"', "true", "[1, 2]"}
        assert frame[frame.policy == "OFUL"].sweep_confidence.isna().all()
    labels = [entry.label for entry in results.entries if entry.policy == "mixed"]
    assert labels == ["mixed own=3", "mixed own=0.5", "mixed own=text", "mixed own=true", "mixed own=[1, 2]"]


# --- export -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [*TABLES, "summary"])
def test_every_format_has_the_same_rows(results: Results, tmp_path: Path, table: str) -> None:
    expected = results.table(table).to_pylist()
    finite = [plain(row) for row in expected]
    assert [plain(row) for row in pq.read_table(export(results, tmp_path / "t.parquet", table)).to_pylist()] == finite
    lines = export(results, tmp_path / "t.ndjson", table).read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert rows == json.loads(export(results, tmp_path / "t.json", table).read_text(encoding="utf-8"))
    assert rows == finite
    csv = pd.read_csv(export(results, tmp_path / "t.csv", table))
    assert len(csv) == len(expected)
    if table == "paths":
        assert [name for name in csv if name.startswith("theta_hat")] == [f"theta_hat_{i}" for i in range(1, 5)]
        flat = csv[csv.environment == "flat"]
        assert flat.theta_star_3.isna().all()
        star = np.array([row["theta_star"] for row in expected if row["environment"] == "deep"])
        deep = csv[csv.environment == "deep"][[f"theta_star_{i}" for i in range(1, 5)]]
        np.testing.assert_allclose(deep.to_numpy(), star)
    else:
        assert csv.columns.tolist() == results.table(table).column_names
        for name in csv.select_dtypes("number"):
            np.testing.assert_allclose(csv[name], [np.nan if r[name] is None else r[name] for r in expected])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "t.json", "t.ndjson", "t.parquet"]


def plain(value: object) -> object:
    """``value`` as JSON has it."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def test_a_file_is_replaced_at_once(results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("precious")
    with monkeypatch.context() as patch:
        patch.setattr("windvane.lab.results.export.fit_schema", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            export(results, path)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]
    export(results, path)
    assert path.read_text().startswith('"environment","policy"')
    with rejects("path", value=".xlsx"):
        export(results, tmp_path / "runs.xlsx")
    with rejects(error=FolderError, path=tmp_path / "nowhere" / "runs.csv", code="unwritable"):
        export(results, tmp_path / "nowhere" / "runs.csv")


def test_one_cell_is_in_memory_at_a_time(results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part is asked for only after the one before it was written."""
    events: list[str] = []
    read = type(results.cells[0]).read
    monkeypatch.setattr(type(results.cells[0]), "read", lambda self, name: (events.append("read"), read(self, name))[1])
    write = pq.ParquetWriter.write_table
    monkeypatch.setattr(pq.ParquetWriter, "write_table", lambda *a, **k: (events.append("write"), write(*a, **k))[1])
    export(results, tmp_path / "curves.parquet", "curves")
    n = len(results.cells)
    assert events == ["read"] * n + ["read", "write"] * n
