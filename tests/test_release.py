"""What surrounds the code agrees with it: release check, citation, workflow, hooks, containers, dashboard."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import release_check
import yaml

import windvane

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_a_release_is_tried_with_every_extra() -> None:
    assert release_check.SMOKE.keys() == release_check.extras() | {""}
    for code in release_check.SMOKE.values():
        compile(code, "smoke test", "exec")


def test_a_release_that_follows_the_page_has_a_section_in_the_changelog() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert release_check.has_section(changelog, windvane.__version__)
    page = (ROOT / "docs" / "developing" / "releasing.md").read_text(encoding="utf-8")
    headings = re.findall(r"`(## [^`]*0\.1\.0[^`]*)`", page)
    assert len(headings) == 2
    for heading in headings:
        assert release_check.has_section(f"# Changelog\n\n## Unreleased\n\n{heading}\n", "0.1.0")
        assert not release_check.has_section(f"{heading}\n", "0.1.1")
        assert not release_check.has_section(f"{heading} or so\n", "0.1.0")


def test_the_source_distribution_has_every_file_of_the_repository() -> None:
    """And a release is checked for what tests read."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is no clone")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tracked = set(listed.splitlines())
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    always = {"pyproject.toml", ".gitignore"}  # hatchling adds them
    assert {name.partition("/")[0] for name in tracked} == {*build["targets"]["sdist"]["include"]} | always
    assert tracked >= release_check.IN_SOURCE
    assert {name for name in tracked if "/" not in name} - release_check.IN_SOURCE == always


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["license"]) == (windvane.__version__, PROJECT["license"])


def test_the_workflow_runs_every_supported_python_and_what_ci_runs() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["test"]
    pythons = job["strategy"]["matrix"]["python"]
    assert PROJECT["requires-python"] == ">=" + pythons[0]
    classifier = "Programming Language :: Python :: 3."
    assert [name for name in PROJECT["classifiers"] if name.startswith(classifier)] == [
        f"Programming Language :: Python :: {version}" for version in pythons
    ]
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands == [".ci/run", "make test"]


def test_hooks_run_the_programs_of_make_lint() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    lint = (ROOT / "Makefile").read_text(encoding="utf-8")
    for hook in hooks:
        program = hook["entry"].removeprefix(".venv/bin/")
        assert re.search(rf"^\t\$\(BIN\)/{program}", lint, re.M), program


def test_the_dockerfile_copies_what_exists_and_runs_without_rights() -> None:
    lines = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    instructions = [line.split(maxsplit=1) for line in lines if re.match("[A-Z]+ ", line)]
    known = {"FROM", "WORKDIR", "COPY", "RUN", "LABEL", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK"}
    assert {word for word, _ in instructions} <= known | {"ENTRYPOINT", "CMD"}
    copied = [
        name for word, rest in instructions if word == "COPY" and "--from" not in rest for name in rest.split()[:-1]
    ]
    kept = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in kept
    extras = re.search(r"'\.\[(.*)\]'", " ".join(lines))
    assert extras is not None
    assert set(extras[1].split(",")) <= PROJECT["optional-dependencies"].keys()
    assert ["USER", "windvane"] in instructions[-7:]
    tags = [rest.split()[0] for word, rest in instructions if word == "FROM"]
    assert all(re.fullmatch(r"python:3\.\d+-slim", tag) for tag in tags), "a fixed version of a slim image"


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    board = json.loads((ROOT / "deploy" / "grafana-dashboard.json").read_text(encoding="utf-8"))
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert place["x"] + place["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
