"""The pages about other libraries, followed step by step: what they promise is what comes out."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from mabwiser.mab import MAB

import windvane
from support.pages import DOCS, run_snippets

HOWTO = DOCS / "howto"


def test_scikit_learn(tmp_path: Path) -> None:
    page = run_snippets(HOWTO / "scikit-learn.md", tmp_path)
    assert page["forgetful"].coef_[0, 0] < -1 < page["lasting"].coef_[0, 0] < 0.5
    correct = page["correct"]
    assert min(np.mean(correct[:49]), np.mean(correct[60:])) > 0.75 > np.mean(correct[49:54])
    assert page["search"].best_params_ == {"half_life": 50}
    linear = page["linear"]
    assert np.allclose([linear.coef_[1], linear.intercept_], [-3.0, 20.0], atol=0.5)


def test_river(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = run_snippets(HOWTO / "river.md", tmp_path)
    lines = capsys.readouterr().out.splitlines()
    ours, theirs, chance = (float(re.findall(r"mean reward (\S+)", line)[0]) for line in lines[:3])
    assert ours > 0.65 > theirs
    assert abs(chance - 0.5) < 0.05
    assert page["agent"].info().counts.decisions == 0
    assert page["policy"].learner.info().counts.rewards == 1
    for found in page["alarms"]:
        assert any(1500 < row < 1800 for row in found.rows), found
    assert lines[-1].startswith("Drift detected")


def test_mabwiser(tmp_path: Path) -> None:
    """The page itself asserts that both libraries agree without forgetting."""
    page = run_snippets(HOWTO / "mabwiser.md", tmp_path)
    agent, theirs = page["agent"], page["mab"].predict_expectations([page["young"]])
    ours = {arm: each.prediction for arm, each in agent.predict(context={"age": -0.8}).items()}
    assert abs(theirs["red"] - theirs["blue"]) < 0.1  # both halves of the year, averaged
    assert ours["blue"] - ours["red"] > 0.4
    assert page["decision"].arm == "blue"
    assert set(ours) == {"red", "blue", "green"}


def test_what_stands_for_a_call_of_mabwiser_exists() -> None:
    """The methods and policies that the page names, in both libraries."""
    text = (HOWTO / "mabwiser.md").read_text(encoding="utf-8")
    for library, owner in (("mab", MAB), ("agent", windvane.Agent)):
        names = set(re.findall(rf"`{library}\.(\w+)\(", text))
        assert names
        assert [name for name in names if not hasattr(owner, name)] == []
    for name in re.findall(r"policies `(\w+)`, `(\w+)` and `([\w-]+)` with", text)[0]:
        assert name in windvane.POLICIES
