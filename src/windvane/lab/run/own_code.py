"""The user's own code that a spec names, and hashes of it: results depend on it as they depend on ours.

A class counts by the source files of itself and its base classes, a function by its source file, and each file with the
modules that it imports from its own folder. Other modules are not covered. Code that is not in a file, such as a cell
of a notebook, counts by its source or its bytecode. Policies that windvane's own studies add are hashed as well.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import marshal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windvane._importing import imported
from windvane.errors import ArgumentError
from windvane.lab.run.build import resolve_policy
from windvane.policies.registry import POLICIES

if TYPE_CHECKING:
    from windvane.lab.spec.environment_spec import AnyEnvironmentSpec
    from windvane.lab.spec.policy_spec import PolicySpec

_LIBRARIES = {*sys.stdlib_module_names, "windvane", "numpy", "gymnasium"}  # these have versions, or come with Python
_STUDIES = "windvane.lab.studies."  # policies in there are not part of the code that every result depends on
_hashes: dict[str, tuple[Any, str]] = {}  # of source files when they were first hashed, with the spec of the module


def hash_code(value: Any) -> str:
    """Return a hash of what defines a class or function."""
    if isinstance(value, type):
        parts = [_hash_definition(part) for part in inspect.getmro(value)]
    else:
        parts = [_hash_definition(value), *_list_bindings(value)]
    return hashlib.sha256("\n".join(filter(None, parts)).encode()).hexdigest()


Parts = Iterable["AnyEnvironmentSpec | PolicySpec"]
"""Environments and policies of a spec."""


def hash_own_code(parts: Parts) -> str:
    """Return a hash of all code that ``parts`` name and that is not part of windvane; empty if there is none."""
    hashes = [hash_code(value) for value in _list_own_code(parts)]
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()[:16] if hashes else ""


def hash_own_modules(parts: Parts) -> dict[str, str]:
    """Return the hash of every source file that :func:`hash_own_code` covers, by the name of the module."""
    values = list(_list_own_code(parts))
    definitions = [part for value in values for part in (inspect.getmro(value) if isinstance(value, type) else [value])]
    return {module: _hash_file(module) for part in definitions for module in _list_source(part)}


def uses_own_code(parts: Parts) -> bool:
    """Return whether ``parts`` name code that is not part of windvane."""
    return any(True for _ in _list_own_code(parts))


def _list_own_code(parts: Parts) -> Iterator[Any]:
    for part in parts:
        policy = getattr(part, "policy", None)
        if policy is not None and policy not in POLICIES:
            yield resolve_policy(policy)
        yield from _resolve(getattr(part, "settings", {}).get("link"))
        for name in ("make", "arms", "link"):
            yield from _resolve(getattr(part, name, None))
        yield from _resolve(getattr(getattr(part, "drift", None), "function", None))


def _resolve(value: Any) -> Iterator[Any]:
    """Yield a function, given as an object or as "module:name"; nothing for other values, such as names of links."""
    resolved = imported(value) if isinstance(value, str) and ":" in value else value
    resolved = getattr(resolved, "mean_function", resolved)  # of a link
    if inspect.isroutine(resolved) or isinstance(resolved, type):
        yield resolved


def _hash_definition(value: Any) -> str:
    """Return a hash of the file of a class or function, or else of its own source or bytecode."""
    if _is_library(_find_module(value)):
        return ""
    if modules := _list_source(value):
        return "".join(map(_hash_file, modules))
    try:
        return hashlib.sha256(inspect.getsource(value).encode()).hexdigest()
    except (OSError, TypeError):
        code = [member.__code__ for member in vars(value).values() if inspect.isfunction(member)]
        code += [value.__code__] if inspect.isfunction(value) else []
        return hashlib.sha256(b"".join(map(marshal.dumps, code))).hexdigest()


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in _LIBRARIES and not module.startswith(_STUDIES)


def _find_module(value: Any) -> str:
    return str(getattr(value, "__module__", ""))


def _list_source(value: Any) -> list[str]:
    """Return the modules that define a class or function; none for a library, and for code that is not in a file."""
    module = _find_module(value)
    path = getattr(sys.modules.get(module), "__file__", None)
    is_own = not _is_library(module) and path is not None and Path(path).is_file()
    return sorted(_list_modules(module, {})) if is_own else []


def _list_modules(module: str, known: dict[str, None]) -> dict[str, None]:
    """Return a module and, recursively, the modules that it imports and that are in its folder or below."""
    path = Path(str(sys.modules[module].__file__))
    known[module] = None
    for node in ast.walk(ast.parse(path.read_bytes())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = sys.modules[module].__package__ or ""
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            home = ".".join(filter(None, (base, node.module)))
            names = [home, *(f"{home}.{alias.name}" for alias in node.names)]
        for name in names:
            file = getattr(sys.modules.get(name), "__file__", None)
            if file and name not in known and Path(file).suffix == ".py" and Path(file).is_relative_to(path.parent):
                _list_modules(name, known)
    return known


def _hash_file(module: str) -> str:
    """Return the hash of a source file; raise if it changed since the module was imported."""
    loaded = sys.modules[module].__spec__  # another object after the module is loaded again
    now = hashlib.sha256(Path(str(sys.modules[module].__file__)).read_bytes()).hexdigest()
    before = _hashes.setdefault(module, (loaded, now))
    if before[0] is not loaded:
        before = _hashes[module] = loaded, now
    if before[1] != now:
        raise ArgumentError("module", module, "unchanged since it was imported", hint="restart Python, or reload it")
    return now


def _list_bindings(function: Any) -> list[str]:
    """Return what tells apart functions that one ``def`` or ``lambda`` makes: code, closure and defaults."""
    if not inspect.isfunction(function):
        return []
    closure = [repr(cell.cell_contents) for cell in function.__closure__ or ()]
    return [marshal.dumps(function.__code__).hex(), *closure, repr(function.__defaults__)]
