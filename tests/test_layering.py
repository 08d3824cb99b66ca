"""Rules about the source that ruff and import-linter do not check, each with the exceptions that are left.

An exception that no longer occurs must be removed from its list, so the lists can only shrink.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from windvane.policies.registry import POLICIES

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "windvane"
MODULES = {str(path.relative_to(SOURCE)): path for path in sorted(SOURCE.rglob("*.py"))}
MOST_LINES = 60
MOST_KERNEL_LINES = 80
MOST_KERNEL_PARAMETERS = 10
DECORATORS = {"compiled", "compiled_inner", "compiled_sums"}

PUBLIC_UNDERSCORES = {"_asdict", "_fields", "_make", "_replace"}  # the methods that a NamedTuple has
# Of other libraries: the first is documented; numba has no public way to set a dispatcher's cache or to extend its
# compiler.
NUMBA = {"dispatcher._cache", "library._linking_libraries", "other._values", "self._codegen._data_layout"}
LIBRARIES = {"os._exit", *NUMBA}

# --- the rules --------------------------------------------------------------------------------------------------------


def own_names(tree: ast.Module) -> set[str]:
    """The names that a module defines: functions, classes, variables, attributes of classes and of ``self``."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
            names.add(node.attr)
    return names


def is_own(value: ast.expr) -> bool:
    """Whether ``value`` is ``self``, ``cls`` or ``super()``."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_" and name not in PUBLIC_UNDERSCORES


def foreign_private_names(tree: ast.Module) -> set[str]:
    """The private attributes and names that a module takes from elsewhere, as they are written."""
    own, found = own_names(tree), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node.value):
            if node.attr not in own and ast.unparse(node) not in LIBRARIES:
                found.add(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "windvane":
            module = SOURCE.parent.joinpath(*(node.module or "").split("."))
            for alias in node.names:
                if is_private(alias.name) and not (module / f"{alias.name}.py").exists():
                    found.add(f"from {node.module} import {alias.name}")
    return found


def functions(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """All functions with their qualified names."""
    for node in ast.iter_child_nodes(tree):
        name = inside
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{inside}.{node.name}" if inside else node.name
            if not isinstance(node, ast.ClassDef):
                yield name, node
        yield from functions(node, name)


def is_kernel(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(decorator, ast.Name) and decorator.id in DECORATORS for decorator in function.decorator_list)


def count_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines from ``def`` to the end, without the docstring."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        lines -= (function.body[0].end_lineno or 0) - function.body[0].lineno + 1
    return lines


def count_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return sum(len(kind) for kind in (function.args.posonlyargs, function.args.args, function.args.kwonlyargs))


@functools.cache
def parse_modules() -> dict[str, ast.Module]:
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def find_functions(is_wrong: Callable[[ast.FunctionDef | ast.AsyncFunctionDef], bool]) -> set[str]:
    return {
        f"{module}: {name}"
        for module, tree in parse_modules().items()
        for name, node in functions(tree)
        if is_wrong(node)
    }


# --- what is left -----------------------------------------------------------------------------------------------------

PRIVATE_READS: set[str] = set()
LONG_FUNCTIONS: set[str] = set()
WIDE_KERNELS: set[str] = set()


def compare(found: set[str], allowed: set[str], rule: str) -> None:
    assert not found - allowed, f"{rule}:\n" + "\n".join(sorted(found - allowed))
    gone = allowed - found
    assert not gone, "no longer occurs; remove it from the list in this file:\n" + "\n".join(sorted(gone))


def test_no_module_reads_a_private_name_of_another() -> None:
    found = {f"{module}: {name}" for module, tree in parse_modules().items() for name in foreign_private_names(tree)}
    compare(found, PRIVATE_READS, "reads a private name of another module; make the name public")


def test_functions_are_short() -> None:
    found = find_functions(lambda node: count_lines(node) > (MOST_KERNEL_LINES if is_kernel(node) else MOST_LINES))
    rule = f"more than {MOST_LINES} lines (kernels: {MOST_KERNEL_LINES}) without the docstring"
    compare(found, LONG_FUNCTIONS, rule)


def test_kernels_have_few_parameters() -> None:
    found = find_functions(lambda node: is_kernel(node) and count_parameters(node) > MOST_KERNEL_PARAMETERS)
    compare(found, WIDE_KERNELS, f"a kernel with more than {MOST_KERNEL_PARAMETERS} parameters")


def test_every_exception_for_ruff_is_needed() -> None:
    """Each rule that pyproject.toml switches off for a part of the package finds something there."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        lint = tomllib.load(file)["tool"]["ruff"]["lint"]
    rules = ("D", "C901", "PLR0915")
    line = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", ",".join(rules), "--ignore", "D105"]
    for part, name in (("pydocstyle", "convention"), ("mccabe", "max-complexity"), ("pylint", "max-statements")):
        line += ["--config", f"lint.{part}.{name} = {lint[part][name]!r}"]
    line += ["--output-format", "json", str(SOURCE)]
    found = subprocess.run(line, capture_output=True, text=True, check=False)
    findings = [(Path(item["filename"]), str(item["code"])) for item in json.loads(found.stdout)]
    unneeded = [
        f"{pattern}: {rule}"
        for pattern, ignored in lint["per-file-ignores"].items()
        for rule in {*rules} & {*ignored}
        if pattern.startswith("src/")
        and not any(path.match(pattern) and code.startswith(rule) for path, code in findings)
    ]
    assert not unneeded, "remove from [tool.ruff.lint.per-file-ignores]:\n" + "\n".join(sorted(unneeded))


def test_files_of_tests_have_different_names() -> None:
    """Their folders are no packages, so pytest imports each file by its bare name, and refuses the second of a name."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_every_public_method_of_a_policy_is_documented() -> None:
    """By itself or by a method that it overrides."""
    classes = {cls for policy in POLICIES.values() for cls in policy.__mro__ if cls.__module__.startswith("windvane.")}
    public = [getattr(cls, name) for cls in classes for name in vars(cls) if not name.startswith("_")]
    methods = [member for member in public if inspect.isfunction(member) or isinstance(member, property)]
    assert [method for method in methods if not inspect.getdoc(method)] == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("other._x", {"other._x"}),
        ("self.part._x", {"self.part._x"}),
        ("other._x = 1", {"other._x"}),
        ("other.made()._x", {"other.made()._x"}),
        ("from windvane.links import _x", {"from windvane.links import _x"}),
        ("from windvane.kernels.jit import compiled, _lock as lock", {"from windvane.kernels.jit import _lock"}),
        ("from windvane import _files", set()),  # a module
        ("from os import _exit", set()),
        ("self._x; cls._x; super()._x", set()),
        ("other.__dict__; other.x_; row._asdict()", set()),
        ("def _x(): ...\nother._x", set()),
        ("class A:\n    _x: int\n    def same(self, other): return self._x == other._x", set()),
        ("class A:\n    def __init__(self): self._x, self.y = 1, 2\ndef f(a): return a._x", set()),
    ],
)
def test_private_names_are_recognised(code: str, found: set[str]) -> None:
    assert foreign_private_names(ast.parse(code)) == found


def test_lines_and_parameters_are_counted() -> None:
    code = '@compiled\ndef f(a, /, b, *, c):\n    """Two\n    lines."""\n    def g(): ...\n    return 1\n'
    (_, f), (name, g) = functions(ast.parse(code))
    assert (count_lines(f), count_parameters(f), is_kernel(f)) == (3, 3, True)
    assert (name, count_lines(g), is_kernel(g)) == ("f.g", 1, False)


def test_the_lists_can_only_shrink() -> None:
    compare({"a"}, {"a"}, "rule")
    with pytest.raises(AssertionError, match=r"rule:\s+b"):
        compare({"a", "b"}, {"a"}, "rule")
    with pytest.raises(AssertionError, match="no longer occurs"):
        compare(set(), {"a"}, "rule")
