"""Check what a release would contain: `make release-check`, which takes about five minutes and needs the internet.

1. Build the source distribution and the wheel from the last commit, without uncommitted changes.
2. Check that the metadata renders (`twine check --strict`) and that the changelog has a section for the version.
3. Install the source distribution alone, and the wheel alone and with each extra, each into a new virtual environment,
   with the newest dependencies that the metadata allows. Use what was installed.

The exit status is 1 if anything fails.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOR_DEVELOPERS = {"test", "dev", "docs"}  # extras that nobody installs from a release
IN_SOURCE = {  # what a test or a developer needs, besides the package
    *("README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md"),
    *("Makefile", "requirements.lock", ".pre-commit-config.yaml", ".github/workflows/tests.yml", ".ci/run"),
    "tests/conftest.py",
}

CORE = """
import tempfile, pathlib, windvane
agent = windvane.Agent(features=windvane.Features(by_arm={"device": ["phone", "desktop"]}, arms=["red", "blue"]))
decision = agent.decide(context={"device": "phone"})
agent.reward(decision, 1.0)
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "agent.wv"
    agent.save(path)
    same = windvane.Agent.load(path)
context = {"device": "desktop"}
assert same.decide(context=context).arm == agent.decide(context=context).arm
assert (pathlib.Path(windvane.__file__).parent / "py.typed").exists()
"""
COMMANDS = """
import subprocess, sys
for words in (["--version"], ["--help"], ["doctor"]):
    subprocess.run([sys.executable, "-m", "windvane", *words], check=True, stdout=subprocess.DEVNULL)
"""
SERVICE = """
import urllib.request, windvane.testing
with windvane.testing.serve(timeout=120.0) as client:
    client.create("shop", dim=2)
    client.reward("shop", client.decide("shop", [[0.1, 0.2], [0.3, 0.4]]), 1.0)
    assert client.info("shop").counts.decisions == 1
    for path in ("/", "/docs", "/metrics"):
        assert urllib.request.urlopen(client.url + path).status == 200
"""
LAB = """
import subprocess, sys, tempfile
line = [sys.executable, "-m", "windvane", "reproduce", "--runs", "2", "--horizon", "20", "--jobs", "1", "--out", "out"]
with tempfile.TemporaryDirectory() as folder:
    subprocess.run(line, check=True, cwd=folder, stdout=subprocess.DEVNULL)
"""
LOGS = """
import json, subprocess, sys, tempfile, pathlib
with tempfile.TemporaryDirectory() as folder:
    log = pathlib.Path(folder) / "log.csv"
    rows = "".join(f"{i},{'ab'[i % 2]},{i % 3 % 2},0.5\\n" for i in range(99))
    log.write_text("time,arm,reward,propensity\\n" + rows)
    subprocess.run([sys.executable, "-m", "windvane", "check", log], check=True, stdout=subprocess.DEVNULL)
"""
# What is run with each extra; the key "" is none.
SMOKE = {
    "": CORE,
    "cli": COMMANDS,
    "client": "import windvane; windvane.Client().close(); windvane.AsyncClient()",
    "parquet": "import pyarrow.parquet, windvane.frames",
    "service": COMMANDS + SERVICE,
    "postgres": "import psycopg, setproctitle, windvane.service.store.postgres; assert psycopg.pq.__impl__ == 'binary'",
    "lab": COMMANDS + LAB,
    "logs": COMMANDS + LOGS,
    "gymnasium": "import windvane.environments.gymnasium",
    "sklearn": "from windvane.sklearn import WeightedGLMRegressor as R; R(half_life=2).fit([[0], [1]], [0, 1])",
    "river": "import windvane.river, windvane.logs.drift.detectors",
    "opentelemetry": "import windvane.trace_context, opentelemetry.sdk.trace, opentelemetry.exporter.otlp.proto.http",
    "cluster": "import distributed, windvane.lab.run.cluster",
}


def run(*line: str | Path, folder: Path) -> str:
    """Run a program in a clean environment; return what it printed, or end with what it printed."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "WINDVANE"))}
    settings["WINDVANE_QUIET"] = "1"
    done = subprocess.run([*map(str, line)], cwd=folder, env=settings, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"failed: {' '.join(map(str, line))[:200]}\n{done.stdout}{done.stderr}")
    return done.stdout


def create_environment(folder: Path, *requirements: str) -> Path:
    """Create a virtual environment with ``requirements``; return its Python."""
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements, folder=folder)
    return python


def build(folder: Path) -> tuple[Path, Path]:
    """Build the last commit; return the source distribution and the wheel."""
    changed = run("git", "status", "--porcelain", folder=ROOT).splitlines()
    commit = run("git", "log", "-1", "--format=%h %s", folder=ROOT).strip()
    print(f"commit {commit}" + (f"; {len(changed)} changed files are not part of it" if changed else ""))
    run("git", "archive", "--output", folder / "commit.tar", "HEAD", folder=ROOT)
    with tarfile.open(folder / "commit.tar") as archive:
        archive.extractall(folder / "source", filter="data")
    python = create_environment(folder / "builder", "build", "twine")
    run(python, "-m", "build", "--outdir", folder / "dist", folder / "source", folder=folder)
    (source,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    print(run(python, "-m", "twine", "check", "--strict", source, wheel, folder=folder).strip())
    return source, wheel


def check_contents(source: Path, wheel: Path) -> str:
    """Check the names in both files and the changelog; return the version."""
    version = wheel.name.split("-")[1]
    with zipfile.ZipFile(wheel) as archive:
        foreign = [name for name in archive.namelist() if not re.match(rf"windvane(-{version}\.dist-info)?/", name)]
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    missing = IN_SOURCE - names
    if foreign or missing:
        sys.exit(f"the wheel has more than the package: {foreign}; the source distribution lacks {sorted(missing)}")
    if not has_section((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version):
        sys.exit(f"CHANGELOG.md has no section for {version}")
    return version


def has_section(changelog: str, version: str) -> bool:
    """Say whether the changelog has a section for ``version``: with its date, or unreleased."""
    name = re.escape(version)
    return re.search(rf"^## (Unreleased \({name}\)|{name} \(\d{{4}}-\d\d-\d\d\))$", changelog, re.M) is not None


def main() -> None:
    """Build, check, install and use."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", metavar="EXTRA", choices=SMOKE, help="install only these extras")
    only = parser.parse_args().only
    with tempfile.TemporaryDirectory(prefix="windvane-release-") as name:
        folder = Path(name)
        source, wheel = build(folder)
        version = check_contents(source, wheel)
        print(f"windvane {version}: {source.stat().st_size >> 10} kB of source, wheel {wheel.stat().st_size >> 10} kB")
        wanted = [(source, "")] + [(wheel, extra) for extra in SMOKE if only is None or extra in only]
        for number, (file, extra) in enumerate(wanted, 1):
            what = f"{file.name}[{extra}]" if extra else file.name
            print(f"{number}/{len(wanted)} {what} ...", end=" ", flush=True)
            python = create_environment(folder / "user", f"windvane[{extra}] @ {file.as_uri()}" if extra else str(file))
            run(python, "-c", SMOKE[extra], folder=folder)
            print("ok", flush=True)


def extras() -> set[str]:
    """Return the extras that a user may install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return set(project["optional-dependencies"]) - FOR_DEVELOPERS


if __name__ == "__main__":
    main()
