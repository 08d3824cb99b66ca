"""The public names: declared once in the stubs, loaded on first use, seen by type checkers, part of the wheel."""

from __future__ import annotations

import ast
import contextlib
import importlib
import subprocess
import sys
import zipfile
from pathlib import Path

import generate
import pytest
from blocks import replace_block
from leaderboards import write_regrets
from mypy import api

import windvane
from windvane.policies.registry import POLICIES

ROOT = Path(__file__).parent.parent
STUBS = {"windvane": "src/windvane/__init__.pyi", "windvane.policies": "src/windvane/policies/__init__.pyi"}


def declared(package: str) -> list[str]:
    """The names that a stub imports, as often as it does. Without ``as`` a type checker takes a name for private."""
    tree = ast.parse((ROOT / STUBS[package]).read_text(encoding="utf-8"))
    aliases = [alias for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert all(alias.asname == alias.name for alias in aliases)
    return [alias.name for alias in aliases]


@pytest.mark.parametrize("package", STUBS)
def test_every_declared_name_can_be_imported(package: str) -> None:
    module, names = importlib.import_module(package), declared(package)
    assert len(names) == len(set(names))
    assert set(names) == set(module.__all__) - {"__version__"}
    assert set(names) <= set(dir(module))
    for name in names:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = module.nonsense


@pytest.mark.parametrize(
    ("package", "lines"),
    [("windvane", generate.package_stub_lines()), ("windvane.policies", generate.policies_stub_lines())],
)
def test_every_registered_policy_is_declared(package: str, lines: list[str]) -> None:
    present = (ROOT / STUBS[package]).read_text(encoding="utf-8").splitlines()
    missing = [line for line in lines if line not in present]
    assert not missing, f"missing in {STUBS[package]}; run `make generate` or add:\n" + "\n".join(missing)
    module = importlib.import_module(package)
    for policy in POLICIES.values():
        assert getattr(module, policy.__name__) is policy


def test_names_of_policies_are_also_names_of_the_package() -> None:
    missing = set(declared("windvane.policies")) - set(declared("windvane"))
    assert not missing, f"missing in {STUBS['windvane']}: from .policies import {', '.join(sorted(missing))}"


def test_the_least_regret_of_an_environment_is_bold() -> None:
    """That of the oracle, which is 0, is not counted; a policy that is not shown may have the least."""
    regrets = {"Oracle": 0.0, "A": 2.4, "B": 2.3, "C": 1.0}
    rows = [{"policy": name, "regret": regret} for name, regret in regrets.items()]
    all_of_them = write_regrets([{"environment": "one", "policies": rows[:3]}], ["A", "B"])
    without_the_best = write_regrets([{"environment": "one", "policies": rows}], ["A", "B"])
    assert all_of_them.splitlines()[-1] == "| one | 2 | **2** |"
    assert without_the_best.splitlines()[-1] == "| one | 2 | 2 |"


def test_what_is_generated_is_up_to_date() -> None:
    stale = [str(path.relative_to(ROOT)) for path in generate.stale_files()]
    assert not stale, f"out of date: {', '.join(stale)}; run `make generate`"


def test_generating_replaces_the_block_between_the_markers() -> None:
    assert replace_block("a\nB\nold\nE\nb\n", "B\n", "E\n", "new\n") == "a\nB\nnew\nE\nb\n"
    for text in ("a\n", "B\n", "E\nB\n", "B\nB\nE\n"):
        with pytest.raises(ValueError, match="one line 'B'"):
            replace_block(text, "B\n", "E\n", "new\n")


def test_every_way_to_a_name_leads_to_the_same_object() -> None:
    from windvane.policies import BVDGLMUCB

    assert windvane.policies.BVDGLMUCB is BVDGLMUCB is windvane.BVDGLMUCB
    assert windvane.links.Logistic is windvane.Logistic
    assert windvane.theory.discount(horizon=100, drift=1.0, dim=2) < 1
    assert windvane.environments.Environment is windvane.Environment


def test_a_type_checker_sees_the_types(tmp_path: Path) -> None:
    user = tmp_path / "user.py"
    shown = "windvane.BVDGLMUCB(2)", "windvane.policies.BVDGLMUCB", "OFUL(2).select", "windvane.links.Logistic"
    code = "".join(f"reveal_type({what})\n" for what in (*shown, "windvane.__version__"))
    user.write_text(f"import windvane\nfrom windvane.policies import OFUL\n{code}windvane.nonsense\n")
    with contextlib.chdir(ROOT):  # where mypy's settings and its cache are
        out, err, _ = api.run([str(user)])
    assert err == ""
    notes = [line.partition(": note: Revealed type is ")[2].strip('"') for line in out.splitlines() if "note" in line]
    assert notes[0] == "windvane.policies.bvd_glm_ucb.BVDGLMUCB"
    assert notes[1].startswith("def (")
    assert notes[1].endswith("-> windvane.policies.bvd_glm_ucb.BVDGLMUCB")
    assert notes[2].startswith("def (arms: ")
    assert notes[3].endswith("-> windvane.links.Logistic")
    assert notes[4] == "str"
    errors = [line for line in out.splitlines() if ": error: " in line]
    assert len(errors) == 1
    assert 'has no attribute "nonsense"' in errors[0]


def test_the_wheel_has_the_stubs_and_the_version(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(line, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert f"-{windvane.__version__}-" in wheel.name
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"windvane/py.typed", "windvane/__init__.pyi", "windvane/policies/__init__.pyi"} <= names
    assert "windvane/bibliography.bib" in names
