"""``windvane report``, ``compare`` and ``export`` through the real command."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer.main

from support.commands import fails, windvane_command
from support.server import parse_json, run_command
from windvane.cli.app import build_app
from windvane.cli.commands import HAVE_OUT
from windvane.lab.results.results import Results


def test_report(bench: Path) -> None:
    out = windvane_command("report results", bench).stdout.split()
    assert "results/report.html" in out
    assert {f"results/figures/regret-{w}.{k}" for w in ("turning", "still") for k in ("png", "pdf", "svg")} <= set(out)
    found = json.loads(windvane_command("report results --json", bench).stdout)
    assert found["complete"]
    assert all((bench / name).stat().st_size > 1000 for name in found["files"])
    fails("report nowhere", bench, "nowhere: ")
    fails("report .", bench, ".: ", "manifest.json")


def test_a_folder_that_cannot_be_written_to_is_named(bench: Path, tmp_path: Path) -> None:
    shutil.copytree(bench / "results", tmp_path / "results")
    shutil.rmtree(tmp_path / "results" / "figures", ignore_errors=True)
    (tmp_path / "results" / "figures").write_text("a file in place of the folder")
    fails("report results", tmp_path, "results/figures: cannot be written to (File exists)")
    fails("compare results --out results/figures", tmp_path, "results/figures: cannot", "another folder with --out")
    (tmp_path / "results" / "figures").unlink()
    (tmp_path / "results" / "report.html").unlink(missing_ok=True)
    (tmp_path / "results" / "report.html").mkdir()
    fails("report results", tmp_path, "results: cannot be written to (Is a directory)")


def test_commands_with_the_option_out_mention_it() -> None:
    commands = typer.main.get_command(build_app()).commands  # type: ignore[attr-defined]

    def has_out(command: Any) -> bool:
        groups = getattr(command, "commands", {}).values()
        return any(map(has_out, groups)) or any("--out" in parameter.opts for parameter in command.params)

    assert {name for name, command in commands.items() if has_out(command)} == HAVE_OUT


def test_compare(bench: Path) -> None:
    text = windvane_command("compare results", bench).stdout
    assert "turning: final regret minus that of OFUL\n" in text
    for note in ("95% confidence interval (paired Student t)", "corrected for the 2 differences here", "is below 0.05"):
        assert note in text
    line = "compare results --baseline BVD-GLM-UCB --confidence 0.9 --out shown --json"
    found = json.loads(windvane_command(line, bench).stdout)
    entries = {(e.environment, e.policy): e for e in Results.open(bench / "results").entries}
    for row in found["differences"]:
        gaps = entries[row["environment"], "OFUL"].final - entries[row["environment"], "BVD-GLM-UCB"].final
        assert row["mean"] == pytest.approx(gaps.mean())
        assert row["low"] < gaps.mean() < row["high"]
        assert row["p"] <= row["p_adjusted"] <= 1
        assert (row["verdict"] == "no significant difference") == (row["p_adjusted"] >= 0.1)
    assert {f"shown/differences-{w}.png" for w in ("turning", "still")} <= set(found["files"])
    fails("compare results --baseline UCB1", bench, "`baseline`", "OFUL, BVD-GLM-UCB", "'UCB1'")
    fails("compare results --confidence 1.5", bench, "--confidence")
    fails("compare results results", bench, "`folders`", "results")
    fails("compare", bench, "'folders'")


def test_compare_folders(bench: Path, tmp_path: Path) -> None:
    """The same worlds and seed: runs can be paired across folders."""
    source = (bench / "two.toml").read_text()
    (tmp_path / "linear.toml").write_text(source.replace('"BVD-GLM-UCB"', '"GLM-UCB"'))
    windvane_command("simulate linear.toml --jobs 1 --out linear", tmp_path)
    found = json.loads(windvane_command(f"compare {bench / 'results'} linear --json", tmp_path).stdout)
    gaps = {(d["environment"], d["label"]): d["mean"] for d in found["differences"]}
    assert gaps["turning", "linear/OFUL"] == 0.0
    (tmp_path / "other.toml").write_text(source.replace("seed = 0", "seed = 1"))
    windvane_command("simulate other.toml --jobs 1 --out other", tmp_path)
    fails(f"compare {bench / 'results'} other", tmp_path, "results", "other", "turning", "seed", "0 and 1")


READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    "csv": pd.read_csv,
    "parquet": pd.read_parquet,
    "json": pd.read_json,
    "ndjson": lambda path: pd.read_json(path, lines=True),
}


@pytest.mark.parametrize("ending", READERS)
@pytest.mark.parametrize("table", ["runs", "curves", "summary"])
def test_an_export_holds_what_results_hold(bench: Path, tmp_path: Path, ending: str, table: str) -> None:
    file = tmp_path / f"table.{ending}"
    done = run_command("export", bench / "results", file, "--table", table)
    assert done == (0, f"{file} written ({table} of {bench / 'results'})\n", "")
    expected = Results.open(bench / "results").frame(table)
    found = READERS[ending](file)
    assert list(found.columns) == list(expected.columns)
    for name in expected.columns:
        column = found[name].fillna("") if name == "told" else found[name]
        pd.testing.assert_series_equal(column, expected[name], check_dtype=False, check_categorical=False)


def test_an_export_of_paths_has_a_column_per_coordinate(bench: Path, tmp_path: Path) -> None:
    file = tmp_path / "paths.csv"
    document = parse_json(run_command("export", bench / "results", file, "--table", "paths", "--json").stdout)
    assert document == {"folder": str(bench / "results"), "table": "paths", "complete": True, "file": str(file)}
    found, expected = pd.read_csv(file), Results.open(bench / "results").frame("paths")
    assert found["theta_star_2"].tolist() == pytest.approx([vector[1] for vector in expected["theta_star"]])


def test_the_summary_is_exported_as_a_latex_table(bench: Path, tmp_path: Path) -> None:
    """A row per policy, a column per environment, the smallest mean bold."""
    windvane_command(f"export {bench / 'results'} table.tex --table summary", tmp_path)
    lines = (tmp_path / "table.tex").read_text().splitlines()
    assert lines[0] == "% Mean final regret and its standard error over 4 runs of 60 rounds."
    assert r"\begin{tabular}{lrr}" in lines
    assert r"policy & turning & still \\" in lines
    rows = [line.removesuffix(r" \\").split(" & ") for line in lines if line.startswith(("OFUL", "BVD"))]
    assert [row[0] for row in rows] == ["OFUL", "BVD-GLM-UCB"]
    summary = Results.open(bench / "results").summary()
    for column, environment in enumerate(("turning", "still"), start=1):
        here = summary[summary["environment"] == environment].set_index("label")
        for label, *cells in rows:
            mean, error = re.findall(r"[\d.]+", cells[column - 1])
            assert float(mean) == pytest.approx(here["mean"][label], abs=0.1 * here["se"][label])
            assert float(error) == pytest.approx(here["se"][label], rel=0.1)
            assert ("mathbf" in cells[column - 1]) == (here["mean"][label] == here["mean"].min())
    fails(f"export {bench / 'results'} runs.tex", tmp_path, "`table`", "summary", "'runs'")


def test_export_refuses(bench: Path, tmp_path: Path) -> None:
    fails(f"export {bench / 'results'} runs.xlsx", tmp_path, "`path`", ".csv, .parquet", "'.xlsx'")
    fails(f"export {bench / 'results'} runs.csv --table arms", tmp_path, "curves, runs, paths, summary", "'arms'")
    fails(f"export {bench / 'results'} nowhere/runs.csv", tmp_path, "nowhere/runs.csv: ", "cannot be written")
    fails("export nowhere runs.csv", tmp_path, "nowhere: ")
    shutil.copytree(bench / "results", tmp_path / "started", ignore=shutil.ignore_patterns("*.json", "*.parquet"))
    shutil.copy(bench / "results" / "manifest.json", tmp_path / "started")
    fails("export started runs.csv", tmp_path, "started: ", "nothing to export")
    fails("compare started", tmp_path, "started: ", "nothing to compare")
    assert not (tmp_path / "runs.csv").exists()
