"""An experiment as a new user would write it: own data, an own policy, a Dask cluster, and results in a data frame."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import windvane.lab
from support.commands import windvane_process

POLICY = '''
import numpy as np


class FollowTheLast:
    """Play the arm that looks most like the last one that was rewarded."""

    def __init__(self, dim, lanes=1, seed=0, stickiness=1.0):
        self.liked = np.zeros((np.size(lanes) if np.ndim(lanes) else lanes, dim))
        self.stickiness = stickiness

    def select(self, arms, valid=None):
        return np.einsum("lkd,ld->lk", arms, self.stickiness * self.liked).argmax(axis=1)

    def update(self, x, reward, round=None, weight=1, mask=None):
        is_rewarded = np.asarray(reward) > 0
        self.liked[is_rewarded] = x[is_rewarded]
'''

SPEC = """
title = "My data and my policy"
runs = 3
horizon = 80
lanes_per_cell = 2

[[environments]]
name = "weather"
kind = "labelled-stream"
file = "weather.csv"
label = "rain"

[[environments]]
name = "my log"
drift = { kind = "logged", file = "theta.csv", stretch = true }
arms = { kind = "ball", count = 5 }

[[policies]]
policy = "my_policies:FollowTheLast"
sweep = { stickiness = [0.5, 1.0] }

[[policies]]
policy = "BVD-GLM-UCB"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a user's files, and the results of ``simulate --cluster local``."""
    folder = tmp_path_factory.mktemp("user")
    rng = np.random.default_rng(5)
    wind = rng.normal(size=100)
    rain = np.where(wind + 0.3 * rng.normal(size=100) > 0, "yes", "no")
    sky = rng.choice(["blue", "grey"], size=100)
    pd.DataFrame({"wind": wind, "sky": sky, "rain": rain}).to_csv(folder / "weather.csv", index=False)
    angles = np.linspace(0, 1.5, 20)
    pd.DataFrame({"a": np.cos(angles), "b": np.sin(angles)}).to_csv(folder / "theta.csv", index=False)
    (folder / "my_policies.py").write_text(POLICY)
    (folder / "mine.toml").write_text(SPEC)
    windvane_process("simulate mine.toml --cluster local --jobs 2", folder)
    return folder


def test_the_results_are_those_of_one_process(folder: Path) -> None:
    windvane_process("simulate mine.toml --jobs 1 --out alone", folder)
    tables = sorted((folder / "alone").rglob("*.parquet"))
    assert len(tables) == 2 * (4 + 2) * 2 + 2 * (2 + 1)  # worlds x cells x (runs, curves), and the paths of run 0
    for path in tables:
        assert path.read_bytes() == (folder / "mine-results" / path.relative_to(folder / "alone")).read_bytes()


def test_the_data_frame_has_the_own_policy_and_its_sweep(folder: Path) -> None:
    results = windvane.lab.open(folder / "mine-results")
    runs = results.frame()
    own = runs[runs.policy == "FollowTheLast"]
    assert sorted(own.sweep_stickiness.unique()) == [0.5, 1.0]
    assert len(own) == 2 * 2 * 3
    by_factor = {factor: rows.final_regret.to_numpy() for factor, rows in own.groupby("sweep_stickiness")}
    np.testing.assert_array_equal(by_factor[0.5], by_factor[1.0])  # a positive factor does not change the choice
    assert "sweep_stickiness" in results.frame("curves")


def test_the_own_policy_is_on_the_leaderboard(folder: Path) -> None:
    line = "benchmark spec mine.toml --policies my_policies:FollowTheLast,OFUL,UniformRandom --runs 2 --jobs 1 --json"
    document = json.loads(windvane_process(line, folder).stdout)
    assert {row["label"] for row in document["leaderboard"]} == {"FollowTheLast", "OFUL", "UniformRandom"}
    assert {world["environment"] for world in document["environments"]} == {"weather", "my log"}


def test_the_report_and_the_spec_say_who_was_told(folder: Path) -> None:
    windvane_process("report mine-results", folder)
    assert "BVD-GLM-UCB (B_T)" in (folder / "mine-results/report.html").read_text()
    stored = (folder / "mine-results/spec.toml").read_text()
    assert 'told = ["drift"]' in stored
    assert stored.count("sha256 = ") == 2
