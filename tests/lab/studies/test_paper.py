"""The paper's experiment with enough runs that the standard errors separate the policies."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest

from windvane.lab.experiment import simulate
from windvane.lab.results.results import Entry
from windvane.lab.results.summary import compare_pair
from windvane.lab.studies.paper import paper_spec
from windvane.lab.studies.reproductions import read_reproduction

RUNS = 400
PAPER = read_reproduction("faury2021")
PUBLISHED = ("OFUL", "D-LinUCB", "GLM-UCB", "BVD-GLM-UCB")
PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "reproducing.md"


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Entry]:
    spec = paper_spec(runs=RUNS)
    published = dataclasses.replace(spec, policies=spec.policies[: len(PUBLISHED)])
    results = simulate(published, tmp_path_factory.mktemp("paper") / "out")
    return {entry.policy: entry for entry in results.entries}


def test_the_order_is_the_published_one(entries: dict[str, Entry]) -> None:
    """BVD-GLM-UCB < D-LinUCB < GLM-UCB < OFUL, each step by more than its paired 99.9 % interval."""
    order = ["BVD-GLM-UCB", "D-LinUCB", "GLM-UCB", "OFUL"]
    for better, worse in itertools.pairwise(order):
        assert compare_pair(entries[worse], entries[better], confidence=0.999).low > 0, (better, worse)


def test_the_table_of_the_documentation_is_what_comes_out(entries: dict[str, Entry]) -> None:
    """Its 50 runs are the first ones here; other processors round differently, by much less than the standard error."""
    ends = {name: curve.mean[-1] for (_, name), curve in PAPER.curves.items()}
    section = PAGE.read_text(encoding="utf-8").partition("\n## Faury et al. (2021)")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([\w-]+) \| ([\d.]+) ± ([\d.]+) \| ([\d.]+) \|", section, re.M)
    assert [row[0] for row in rows] == ["OFUL", "GLM-UCB", "D-LinUCB", "BVD-GLM-UCB"]
    for name, *numbers in rows:
        mean, error, published = map(float, numbers)
        final = entries[name].final[: PAPER.runs]
        assert final.mean() == pytest.approx(mean, abs=0.1 + 0.1 * error)
        assert final.std(ddof=1) / math.sqrt(PAPER.runs) == pytest.approx(error, rel=0.05)
        assert ends[name] == pytest.approx(published, abs=0.051)


def test_bvd_glm_ucb_is_where_it_should_be(entries: dict[str, Entry]) -> None:
    """Tens of thousands of independent runs elsewhere put its mean near 88.4, with an sd of 6.8 between runs."""
    final = entries["BVD-GLM-UCB"].final
    assert len(final) == RUNS
    assert 86 < final.mean() < 91
    assert 5.5 < final.std(ddof=1) < 8.5


def test_the_estimate_leaves_the_admissible_set(entries: dict[str, Entry]) -> None:
    entry = entries["BVD-GLM-UCB"]
    assert 0.30 < entry.outside.mean() < 0.60
    stages = entry.stages.mean(axis=0)
    assert stages[0] == 0
    assert stages[1:].sum() == pytest.approx(1.0)
    assert stages[2:].sum() == pytest.approx(entry.outside.mean(), abs=1e-9)


def test_the_world_is_the_paper_s(entries: dict[str, Entry]) -> None:
    T = PAPER.horizon
    for entry in entries.values():
        np.testing.assert_allclose(entry.drift, 2 * T / 3 * math.sin(3 * math.pi / (4 * T)), rtol=1e-12)
        assert (entry.switches == T / 3).all()
    np.testing.assert_allclose(entries["BVD-GLM-UCB"].gamma, 0.995908, atol=5e-7)
    path = entries["BVD-GLM-UCB"].path
    assert path is not None
    np.testing.assert_allclose(path.theta_star[[0, -1]], [[1, 0], [0, 1]], atol=1e-15)
    assert (np.linalg.norm(path.theta_tilde, axis=1) <= 1 + 1e-9).all()


def test_what_differs_from_the_published_curve_is_said(entries: dict[str, Entry]) -> None:
    found = {comparison.policy: comparison for comparison in PAPER.compare(list(entries.values()))}
    bvd = found["BVD-GLM-UCB"]
    assert min(bvd.errors) > 10  # the formulas taken literally do not give the published curve
    assert "BVD-GLM-UCB differs: " in str(bvd)
    assert "against the published 19.9 / 43.6 / 59.1" in str(bvd)
    assert bvd.ours[-1] == pytest.approx(entries["BVD-GLM-UCB"].final.mean())
    for t, values in {1000: (57.95, 39.78, 12.08, 19.87), 2000: (112.12, 71.44, 56.82, 43.57)}.items():
        curves = [PAPER.curves["", name] for name in PUBLISHED]
        at = [float(curve.mean[curve.rounds == t][0]) for curve in curves]
        assert at == pytest.approx(values)


def test_half_the_bonus_comes_near_the_published_curve_of_bvd(tmp_path: Path) -> None:
    spec = paper_spec(runs=50, bonus_scale=0.5)
    alone = dataclasses.replace(spec, policies=[p for p in spec.policies if p.policy == "BVD-GLM-UCB"])
    (entry,) = simulate(alone, tmp_path / "out").entries
    assert 50 < entry.final.mean() < 65
