"""CONTRIBUTING.md, "Add a policy to windvane", followed step by step in a copy of the package."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from policy_skeleton import Skeleton

import windvane
from support.processes import run_python
from windvane.policies.registry import POLICIES

ROOT = Path(__file__).parent.parent
PACKAGE = Path(windvane.__file__).parent
FILE, CLASS, NAME = "my_ucb", "MyUCB", "My-UCB"


@pytest.fixture(scope="module")
def contributed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package in which the skeleton is registered under another name.

    The kernels are those of the original: compiled code is cached by path, and a copy would be compiled again.
    """
    folder = tmp_path_factory.mktemp("contributed")
    package = folder / "windvane"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("kernels", "__pycache__"))
    with (package / "__init__.py").open("a", encoding="utf-8") as file:
        file.write(f"\n__path__.append({str(PACKAGE)!r})\n")

    skeleton = (ROOT / "tools" / "policy_skeleton.py").read_text(encoding="utf-8")
    policy = replace_once(replace_once(skeleton, "class Skeleton(", f"class {CLASS}("), '"skeleton"', f'"{NAME}"')
    (package / "policies" / f"{FILE}.py").write_text(policy, encoding="utf-8")

    registry = package / "policies" / "registry.py"
    last = '    "adaptive_glm_ucb.AdaptiveGLMUCB",\n'
    registry.write_text(
        replace_once(registry.read_text(encoding="utf-8"), last, f'{last}    "{FILE}.{CLASS}",\n'), encoding="utf-8"
    )
    shutil.copytree(ROOT / "tools", folder / "tools", ignore=shutil.ignore_patterns("node_modules"))
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "CITATION.cff", folder)
    (folder / "src").symlink_to(folder)
    python(folder, str(folder / "tools" / "generate.py"))
    return folder


def replace_once(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


def python(package: Path, *arguments: str, folder: Path | None = None) -> str:
    """Run Python on the copied package; its standard output."""
    return run_python(*arguments, folder=folder, PYTHONPATH=str(package), WINDVANE_QUIET="1").stdout


def run_benchmark(package: Path, folder: Path, *options: str) -> dict:
    line = ["-m", "windvane", "benchmark", "drift", "--quick", "--json", *options]
    return json.loads(python(package, *line, folder=folder))


def test_the_copied_skeleton_is_exported_and_passes_the_conformance_suite(contributed: Path) -> None:
    code = f"""
import windvane
print(windvane.__file__)
windvane.check_policy(lambda **kw: windvane.{CLASS}(gamma=0.99, **kw))
assert windvane.get_policy("{NAME}") is windvane.{CLASS}
"""
    assert Path(python(contributed, "-c", code).strip()).is_relative_to(contributed)


def test_warm_up_runs_the_copied_skeleton(contributed: Path) -> None:
    python(contributed, "-c", "import windvane; windvane.warm_up()")


def test_the_policies_command_lists_the_copied_skeleton(contributed: Path, tmp_path: Path) -> None:
    listed = json.loads(python(contributed, "-m", "windvane", "policies", "--json", folder=tmp_path))["policies"]
    assert [row["name"] for row in listed] == [*POLICIES, NAME]


def test_the_benchmark_runs_the_copied_skeleton(contributed: Path, tmp_path: Path) -> None:
    """In all of its environments, where the horizon and the true drift are passed to it."""
    found = run_benchmark(contributed, tmp_path, "--policies", NAME, "--jobs", "1")
    assert found["complete"]
    assert [row["label"] for row in found["leaderboard"]] == [NAME]


@pytest.mark.slow
def test_the_benchmark_of_all_policies_includes_the_copied_skeleton(contributed: Path, tmp_path: Path) -> None:
    assert NAME in [row["label"] for row in run_benchmark(contributed, tmp_path)["leaderboard"]]


def test_the_generated_table_lists_the_copied_skeleton(contributed: Path) -> None:
    page = (contributed / "docs" / "reference" / "policies" / "index.md").read_text(encoding="utf-8")
    assert f"| {NAME} | `{CLASS}` | generalized linear | discount | T, B\\_T |" in page


def test_every_registered_policy_is_described() -> None:
    """In a table or a list on the page of its family, beside the generated table; the default policy on its own."""
    folder = ROOT / "docs" / "reference" / "policies"
    families = {page.stem: page.read_text(encoding="utf-8") for page in folder.glob("*.md") if page.stem != "index"}
    for name in POLICIES:
        pages = [
            page
            for page, text in families.items()
            if f"\n| {name} |" in text or f"\n- **{name}**" in text or text.startswith(f"# {name}\n")
        ]
        assert len(pages) >= 1, name


def test_every_family_is_linked_from_the_table() -> None:
    folder = ROOT / "docs" / "reference" / "policies"
    index = (folder / "index.md").read_text(encoding="utf-8")
    for page in folder.glob("*.md"):
        assert page.stem == "index" or f"({page.name})" in index, page.name


def test_contributing_names_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = [quoted for quoted in re.findall(r"`([^`\n]+)`", text) if re.fullmatch(r"[\w/]+/[\w.]+", quoted)]
    assert len(paths) >= 5
    for path in paths:
        assert path.startswith("build/") or (ROOT / path).exists(), path  # make docs writes build/docs


def test_the_page_about_writing_a_policy_names_methods_that_exist() -> None:
    text = (ROOT / "docs" / "howto" / "write-a-policy.md").read_text(encoding="utf-8")
    table = text[text.index("| to change | override |") : text.index("`stored` names the attributes")]
    methods = re.findall(r"`([a-z_]+)`", table)
    assert len(set(methods)) >= 15
    for method in methods:
        assert hasattr(Skeleton, method), method
