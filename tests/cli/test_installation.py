"""``windvane compile`` and ``windvane doctor``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import windvane
from support.commands import SCRIPT, run_on_terminal, windvane_process
from support.processes import run_python
from support.server import parse_json, run_command
from windvane.cli import health
from windvane.kernels import cache

DECIDE = """
import windvane
agent = windvane.Agent(dim=2, policy="UniformRandom")
agent.reward(agent.decide([[0.1, 0.2]]), 1.0)
"""


def list_kernels(folder: Path) -> dict[str, int]:
    """Return when the files of compiled code were written, by name."""
    return {path.name: path.stat().st_mtime_ns for path in folder.rglob("*.nb[ci]")}


@pytest.mark.slow
def test_compiled_code_is_used(tmp_path: Path) -> None:
    settings = {"WINDVANE_CACHE_DIR": str(tmp_path), "WINDVANE_QUIET": "1"}
    line = [sys.executable, "-m", "windvane", "compile", "UniformRandom", "--json"]
    done = subprocess.run(line, env={**os.environ, **settings}, capture_output=True, text=True, check=True)
    report, kernels = json.loads(done.stdout), list_kernels(tmp_path)
    assert (report["policies"], report["seconds"] > 0.0, report["bytes"] > 1000) == (["UniformRandom"], True, True)
    assert Path(report["folder"]).parent == tmp_path
    assert not [name for name in kernels if "project_lanes" in name or "find_lanes" in name]  # of other policies
    run_python("-c", DECIDE, **settings)
    assert {name: list_kernels(tmp_path)[name] for name in kernels} == kernels  # nothing was compiled again


def test_what_compile_says(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run_command("compile", "UniformRandom", "UniformRandom")
    assert (done.returncode, done.stdout.startswith("1 policy compiled for ")) == (0, True)
    assert str(cache.CACHE_DIR) in done.stdout
    assert run_command("compile", "Nonsense").returncode == 2
    monkeypatch.setattr(cache, "CACHE_ERROR", "read-only")
    failed = run_command("compile", "UniformRandom")
    assert (failed.returncode, "set WINDVANE_CACHE_DIR" in failed.stderr) == (2, True)


@pytest.mark.slow
def test_a_terminal_sees_how_far_compiling_is(tmp_path: Path) -> None:
    settings = {"WINDVANE_CACHE_DIR": str(tmp_path), "WINDVANE_QUIET": "1"}
    out, shown = run_on_terminal([str(SCRIPT), "compile", "UniformRandom", "--json"], **settings)
    assert json.loads(out)["policies"] == ["UniformRandom"]
    assert re.search(r"compiling .* 0/1 policies", shown), shown


def test_doctor(tmp_path: Path) -> None:
    """In plain words, and no line is wider than a terminal, except for the path of the cache."""
    text = windvane_process("doctor", tmp_path, COLUMNS="80").stdout
    assert text.endswith("\nall is well\n")
    assert f"windvane       {windvane.__version__}" in text
    assert re.search(r"^extras installed: \(core\), .*\bservice\b", text, re.M | re.S)
    assert re.search(r"^ok {6}the estimate fits them$", text, re.M)
    assert "theta" not in text
    assert max(len(line) for line in text.splitlines() if not line.startswith("compile cache")) < 80


def test_doctor_tells_all_if_asked() -> None:
    text = run_command("doctor", "--verbose").stdout
    assert re.search(r"^fastapi \d", text, re.M)
    assert re.search(r"^ok {6}the estimate fits them \(theta_hat solves g\(theta\) = b: off by .*\)$", text, re.M)


def test_what_is_missing_fits_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also piped, where tables are not wrapped."""
    packages = dict.fromkeys([f"opentelemetry-{name}" for name in ("api", "sdk", "exporter-otlp-proto-http")])
    extras = [health.Extra(name, packages) for name in ("", "opentelemetry", "lab")]
    monkeypatch.setattr(health, "examine", lambda _: health.Health({"cores": 2}, extras, []))
    text = run_command("doctor").stdout
    assert "'windvane[opentelemetry]'" in text
    assert max(len(line.rstrip()) for line in text.splitlines()) < 80


def test_doctor_lists_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An extra that is not installed is no fault; a check that fails is."""
    checks = [health.Check("a check", True, "fine")]
    extras = [health.Extra("", {"numpy": "2.0"}), health.Extra("lab", {"plotly": None, "rich": "14.0"})]
    monkeypatch.setattr(health, "examine", lambda _: health.Health({"cores": 2}, extras, checks))
    done = run_command("doctor")
    assert done.returncode == 0
    assert "extras installed: (core)\n" in done.stdout
    assert re.search(r"^lab +plotly +pip install 'windvane\[lab\]' *$", done.stdout, re.M)
    assert parse_json(run_command("doctor", "--json").stdout) == {
        "healthy": True,
        "facts": {"cores": 2},
        "extras": [
            {"name": "", "packages": {"numpy": "2.0"}, "missing": [], "install": None},
            {
                "name": "lab",
                "packages": {"plotly": None, "rich": "14.0"},
                "missing": ["plotly"],
                "install": "pip install 'windvane[lab]'",
            },
        ],
        "checks": [{"name": "a check", "is_ok": True, "detail": "fine"}],
    }
    checks[0] = health.Check("a check", False, "broken")
    done = run_command("doctor")
    assert (done.returncode, "FAILED  a check (broken)" in done.stdout) == (1, True)
    extras.clear()
    assert "extras: unknown" in run_command("doctor").stdout
