"""``windvane tune`` through the real command."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np

from support.commands import fails, windvane_command
from windvane.lab.results.results import Results


def test_tune(bench: Path, tmp_path: Path) -> None:
    text = windvane_command(
        "tune --gammas 0.9,0.99 --scales 0.5,1 --runs 3 --horizon 40 --seed 2 --jobs 1", tmp_path
    ).stdout
    assert "best: γ = " in text
    found = Results.open(tmp_path / "tune-paper-BVD-GLM-UCB")
    assert [tuple(entry.variant.values()) for entry in found.entries] == [
        (0.9, 0.5),
        (0.9, 1.0),
        (0.99, 0.5),
        (0.99, 1.0),
    ]
    assert (tmp_path / "tune-paper-BVD-GLM-UCB/figures/tuning.png").stat().st_size > 5000
    source = shlex.quote(str(bench / "two.toml"))
    line = f"tune {source} --policy D-LinUCB --environment still --discounts 3 --scales 1 --out tuned --json"
    swept = json.loads(windvane_command(line, tmp_path).stdout)
    assert len(swept["gammas"]) == 3
    assert np.array(swept["mean"]).shape == (3, 1)
    fails(f"tune {source}", tmp_path, "`--environment`", "turning, still")
    fails(f"tune {source} --environment moon", tmp_path, "`--environment`", "turning, still", "'moon'")
    fails("tune --gammas 0.9,x", tmp_path, "`--gammas`", "'0.9,x'")
    fails("tune --gammas 0.9,1.5 --out w", tmp_path, "gamma", "(0, 1]", "1.5")
    fails("tune --policy nobody --out w", tmp_path, "nobody")
    fails("tune --policy GLM-UCB --out w", tmp_path, "gamma")
