"""A folder with a small experiment, shared by the tests of the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.commands import windvane_process

SPEC = """
title = "two worlds"
runs = 4
horizon = 60
lanes_per_cell = 3
seed = 0

[[environments]]
name = "turning"
drift = { kind = "rotation" }
arms = { kind = "ball", count = 4 }

[[environments]]
name = "still"
drift = { kind = "static" }
arms = { kind = "ball", count = 4 }

[[policies]]
policy = "OFUL"

[[policies]]
policy = "BVD-GLM-UCB"
"""


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a spec, ``two.toml``, and the results of running it, ``results``."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "two.toml").write_text(SPEC)
    done = windvane_process("simulate two.toml --out results --jobs 1", folder)
    notes = [line for line in done.stderr.splitlines() if "compiling kernels for this machine, once" not in line]
    assert notes == []  # quiet when piped, after the first start on a machine
    assert "turning: 4 runs of 60 rounds" in done.stdout
    assert "BVD-GLM-UCB" in done.stdout
    return folder
