"""Presenting results: which files are drawn, in what order, and how progress is told."""

from __future__ import annotations

import re

import numpy as np
import pytest

from support import sample_results as samples
from windvane.lab.report.presentation import draw_differences, present, present_benchmark, present_streams
from windvane.lab.results.folder import FolderError
from windvane.lab.studies.reproductions import write_recipe

KINDS = ("png", "pdf", "svg")


def names(paths):
    return [path.name for path in paths]


def test_every_environment_has_its_files_and_progress_counts_them(tmp_path):
    entries = [samples.entry(runs=2, with_diagnostics=True), samples.entry("OFUL", runs=2, environment="elsewhere")]
    told = []
    written = present(samples.results(entries, tmp_path), progress=lambda *counts: told.append(counts))
    stems = ["regret-rotation", "projection-rotation", "diagnostics-rotation-bvd-glm-ucb", "regret-elsewhere"]
    assert names(written) == [*(f"{stem}.{kind}" for stem in stems for kind in KINDS), "report.html"]
    assert all(path.stat().st_size > 1000 for path in written)
    assert told == [(3, 13), (6, 13), (9, 13), (12, 13), (13, 13)]


def test_without_a_page(tmp_path):
    told = []
    entries = [samples.entry("OFUL", runs=2)]
    written = present(samples.results(entries, tmp_path), page=False, progress=lambda *counts: told.append(counts))
    assert names(written) == [f"regret.{kind}" for kind in KINDS]
    assert told == [(3, 3)]
    assert not (tmp_path / "report.html").exists()


def test_nothing_finished_is_refused(tmp_path):
    with pytest.raises(FolderError):
        present(samples.results([], tmp_path))


def test_the_benchmark_page_begins_with_the_leaderboard_and_tells_who_was_told(tmp_path):
    entries = samples.four(runs=3)
    told = []
    results = samples.results(entries, tmp_path, title="A benchmark")
    standings, written = present_benchmark(results, progress=lambda *counts: told.append(counts))
    assert names(written) == [*(f"leaderboard.{kind}" for kind in KINDS), "report.html"]
    assert told == [(3, 4), (4, 4)]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", page)[0] == "Leaderboard"
    heads = re.findall(r'<th scope="col"><button type="button">(.*?)</button>', page)
    assert heads[:7] == ["Policy", "Rank", "Relative regret", "95% interval", "Worst", "Told", "µs a round"]
    assert {standing.label for standing in standings} == {entry.label for entry in entries}


def test_labelled_data_streams(tmp_path):
    entries = [
        samples.entry(policy, environment=name, runs=2, final=200.0 + i)
        for name in ("wind", "rain")
        for i, policy in enumerate(("OFUL", "GLM-UCB"))
    ]
    told = []
    _, written = present_streams(
        samples.results(entries, tmp_path, title="Streams"), progress=lambda *counts: told.append(counts)
    )
    stems = ["mean-reward-wind", "mean-reward-rain", "leaderboard"]
    assert names(written) == [*(f"{stem}.{kind}" for stem in stems for kind in KINDS), "report.html"]
    assert told[-1] == (10, 10)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Results: wind" in page
    assert "Most often right on rain (3,000 rows): " in page
    assert "these are assumptions" in page


def test_differences_are_drawn_per_environment(tmp_path):
    rows = [*samples.differences(2), *samples.differences(1, "elsewhere")]
    written = draw_differences(rows, tmp_path / "new", 0.9)
    assert names(written) == [f"differences-{name}.{kind}" for name in ("rotation", "elsewhere") for kind in KINDS]
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError):
        draw_differences(rows, tmp_path / "file", 0.9)


def test_the_page_says_what_bands_show_and_pairs_with_the_baseline(tmp_path):
    results = samples.results(samples.four(runs=6), tmp_path)
    for bands, caption in (
        ("sd", "one standard deviation"),
        ("se", "one standard error"),
        ("quantiles", "middle 80 %"),
    ):
        (page,) = (path for path in present(results, bands=bands, baseline="D-LinUCB") if path.suffix == ".html")
        text = page.read_text()
        assert f"bands {'hold the' if bands == 'quantiles' else 'reach'} {caption}" in text
        (differences,) = re.findall(r'aria-label="Table: Paired differences".*?</table>', text, re.S)
        assert differences.count("<td>D-LinUCB</td>") == 3  # the baseline of the others
        assert "95% interval" in differences


OLD_RECIPE = {"name": "paper", "arms": "ball", "bonus_scale": 1.0}  # from when there was one paper only


@pytest.mark.parametrize("recipe", [write_recipe("faury2021", "ball", 1.0), OLD_RECIPE], ids=["named", "not named"])
def test_the_paper_is_paired_with_its_own_policy(tmp_path, recipe):
    entries = samples.four(runs=6, environment="the paper's rotation")
    results = samples.results(entries, tmp_path, recipe=recipe)
    (page,) = (path for path in present(results) if path.suffix == ".html")
    (differences,) = re.findall(r'aria-label="Table: Paired differences".*?</table>', page.read_text(), re.S)
    assert differences.count("<td>BVD-GLM-UCB</td>") == 3


def test_the_same_results_give_the_same_page(tmp_path):
    pages = []
    for name in ("one", "two"):
        results = samples.results(samples.four(runs=2), tmp_path / name, title="Same")
        (page,) = (path for path in present(results) if path.suffix == ".html")
        pages.append(page.read_bytes())
    assert pages[0] == pages[1]
    assert np.unique([len(page) for page in pages]).size == 1
