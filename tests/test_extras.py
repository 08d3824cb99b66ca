"""Without the extras: every command says in one line which one it needs. Run in real virtual environments."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from windvane.cli import EXTRA_MODULES
from windvane.cli.commands import COMMANDS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
INTEGRATIONS = [
    ("environments.gymnasium", "gymnasium"), ("logs.drift.detectors", "river"), ("river", "river"),
    ("sklearn", "sklearn"), ("trace_context", "opentelemetry"),
]  # fmt: skip
HEAVY = {"matplotlib", "plotly", "joblib", "pyarrow", "pandas", "dask"}  # what the service must not bring


def distributions(requirements: list[str]) -> set[str]:
    """The distributions that installing ``requirements`` brings, with their own requirements."""
    names: set[str] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    done = set()
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        if requirement.name == "windvane":  # an extra that includes another
            own = [text for name in requirement.extras for text in PROJECT["optional-dependencies"][name]]
            waiting += [(Requirement(text), "") for text in own]
            continue
        names.add(requirement.name)
        for wanted in {"", *requirement.extras}:
            if (requirement.name, wanted) not in done:
                done.add((requirement.name, wanted))
                needs = distribution(requirement.name).requires or []
                waiting += [(Requirement(text), wanted) for text in needs]
    return names


def create_environment(folder: Path, extra: str | None) -> Path:
    """A virtual environment with windvane's dependencies and those of ``extra``, linked; its Python."""
    venv.create(folder, with_pip=False)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    wanted = PROJECT["dependencies"] + ([] if extra is None else PROJECT["optional-dependencies"][extra])
    for name in distributions(wanted):
        installed = distribution(name)
        for top in {path.parts[0] for path in installed.files or [] if path.parts[0] not in ("..", "__pycache__")}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(installed.locate_file(top))))
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python with windvane installed without extras."""
    return create_environment(tmp_path_factory.mktemp("core"), None)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python with windvane and the extra ``lab``."""
    return create_environment(tmp_path_factory.mktemp("lab"), "lab")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python with windvane and the extra ``service``."""
    return create_environment(tmp_path_factory.mktemp("service"), "service")


def windvane_in(python: Path, words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "PYTHONPATH": str(SOURCE), "WINDVANE_QUIET": "1"}
    line = [python, "-m", "windvane", *words]
    return subprocess.run(line, cwd=folder, env=settings, capture_output=True, text=True, check=False)


def run_python(python: Path, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "PYTHONPATH": str(SOURCE), "WINDVANE_QUIET": "1"}
    return subprocess.run([python, "-c", code], cwd=folder, env=settings, capture_output=True, text=True, check=False)


def assert_needs(extra: str, python: Path, words: list[str], folder: Path) -> None:
    done = windvane_in(python, words, folder)
    assert (done.returncode, done.stdout) == (2, ""), done
    pattern = rf"windvane: error: .*\w+ is missing; install it with: pip install 'windvane\[{extra}\]'\n"
    assert re.fullmatch(pattern, done.stderr), done.stderr


def test_the_library_itself_needs_no_extra(core: Path, tmp_path: Path) -> None:
    code = "import windvane; print(windvane.Agent(dim=2).decide([[0.5, 0.5]]).index)"
    done = run_python(core, code, tmp_path)
    assert done.stdout == "0\n", done.stderr


def test_the_client_names_its_extra(core: Path, tmp_path: Path) -> None:
    done = run_python(core, "import windvane; windvane.Client()", tmp_path)
    assert "pip install 'windvane[client]'" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(("module", "extra"), INTEGRATIONS)
def test_an_integration_names_its_extra(core: Path, tmp_path: Path, module: str, extra: str) -> None:
    done = run_python(core, f"import windvane, windvane.environments; import windvane.{module}", tmp_path)
    assert f"pip install 'windvane[{extra}]'" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("extra", ["river", "sklearn"])
def test_an_integration_needs_its_own_extra_only(tmp_path: Path, extra: str) -> None:
    python = create_environment(tmp_path / "environment", extra)
    done = run_python(python, f"import windvane.{extra}; print('imported')", tmp_path)
    assert done.stdout == "imported\n", done.stderr


def test_the_client_needs_its_own_extra_only(tmp_path: Path) -> None:
    python = create_environment(tmp_path / "environment", "client")
    done = run_python(python, "import windvane; print(windvane.Client(), windvane.AsyncClient())", tmp_path)
    assert re.fullmatch(r"Client\(.*\) AsyncClient\(.*\)\n", done.stdout), done.stderr


@pytest.mark.parametrize("words", [[], ["--help"], ["--version"], ["nonsense"]], ids=str)
def test_without_extras_the_program_needs_lab(core: Path, tmp_path: Path, words: list[str]) -> None:
    assert_needs("lab", core, words, tmp_path)


@pytest.mark.parametrize("command", COMMANDS)
def test_without_extras_every_command_names_its_own(core: Path, tmp_path: Path, command: str) -> None:
    """Also before an option, with options after it, and where only its help is asked for."""
    extra = COMMANDS[command].extra
    for words in ([command], [command, "--help"], ["--json", command, "serve.toml"]):
        assert_needs(extra, core, words, tmp_path)


def test_a_detector_needs_river(tmp_path: Path) -> None:
    logs = create_environment(tmp_path / "environment", "logs")
    assert_needs("river", logs, ["drift", "log.csv", "--detector", "adwin"], tmp_path)


@pytest.mark.parametrize("option", [["--cluster", "local"], ["--cluster=tcp://a:8786"]], ids=" ".join)
@pytest.mark.parametrize("command", ["simulate", "reproduce", "benchmark", "tune", "study"])
def test_without_extras_a_cluster_needs_cluster(core: Path, tmp_path: Path, command: str, option: list[str]) -> None:
    assert_needs("cluster", core, [command, "spec.toml", *option], tmp_path)


def test_with_lab_alone(lab: Path, tmp_path: Path) -> None:
    """The experiments run; the service and a cluster say what they need."""
    assert windvane_in(lab, ["--help"], tmp_path).returncode == 0
    assert windvane_in(lab, ["doctor"], tmp_path).returncode == 0
    assert_needs("service", lab, ["serve"], tmp_path)
    assert_needs("service", lab, ["demo", "--no-open"], tmp_path)
    run = ["reproduce", "--runs", "1", "--horizon", "3", "--json", "--jobs", "1"]
    assert_needs("cluster", lab, [*run, "--cluster", "local"], tmp_path)
    assert windvane_in(lab, run, tmp_path).returncode == 0


def test_with_service_alone(service: Path, tmp_path: Path) -> None:
    """The program, the server, its documentation and the client work; experiments and Parquet say what they need."""
    assert not HEAVY & distributions(PROJECT["optional-dependencies"]["service"])
    assert "windvane serve" in windvane_in(service, ["--help"], tmp_path).stdout
    assert windvane_in(service, ["token", "add", "shop", "--store", "t.db"], tmp_path).returncode == 0
    healthy = windvane_in(service, ["doctor"], tmp_path)
    assert (healthy.returncode, "all is well" in healthy.stdout) == (0, True), healthy.stderr
    assert_needs("lab", service, ["reproduce", "--runs", "1", "--horizon", "3", "--json", "--jobs", "1"], tmp_path)
    code = """
import urllib.request, windvane.testing
with windvane.testing.serve(timeout=120.0) as client:
    client.create("a", dim=2, policy="UniformRandom")
    print(client.reward("a", client.decide("a", [[0.1, 0.2]]), 1.0))
    for path in ("/", "/docs", "/v1/streams/a/events?format=parquet"):
        try:
            print(urllib.request.urlopen(client.url + path).status)
        except urllib.error.HTTPError as error:
            print(error.code, b"windvane[parquet]" in error.read())
"""
    done = run_python(service, code, tmp_path)
    assert done.stdout.split("\n") == ["recorded", "200", "200", "501 True", ""], done.stderr


def test_with_postgres(tmp_path: Path) -> None:
    """The extra brings what PostgreSQL needs, without a compiler; the service alone brings none of it."""
    brought = distributions(PROJECT["optional-dependencies"]["postgres"])
    added = brought - distributions(PROJECT["optional-dependencies"]["service"])
    assert {"psycopg", "psycopg-binary", "setproctitle"} <= added
    assert not HEAVY & brought
    python = create_environment(tmp_path / "environment", "postgres")
    code = "import psycopg, setproctitle, uvicorn; print(psycopg.pq.__impl__)"
    done = run_python(python, code, tmp_path)
    assert done.stdout == "binary\n", done.stderr


def test_the_lists_of_the_program_are_complete() -> None:
    imported: set[str] = set()
    for path in (SOURCE / "windvane").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.partition(".")[0])
    core = {"numpy", "scipy", "numba", "llvmlite", "lazy_loader", "filelock", "windvane"}
    assert imported - core - sys.stdlib_module_names <= EXTRA_MODULES
    assert {command.extra for command in COMMANDS.values()} <= PROJECT["optional-dependencies"].keys()
