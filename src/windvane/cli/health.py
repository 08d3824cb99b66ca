"""Whether this installation works: versions, extras, the compile cache, and a self-test against plain NumPy."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import windvane

DEVELOPMENT = ("dev", "docs", "test")  # extras for work on windvane itself
_ROUNDS, _GAMMA = 120, 0.95  # of the self-test
_LARGEST_ERROR = 1e-6  # of the self-test: rounding gives about 1e-10, a wrong kernel far more


class Check(NamedTuple):
    """The result of one check; ``detail`` says what was found, in the symbols of the paper where it is mathematics."""

    name: str
    is_ok: bool
    detail: str


class Extra(NamedTuple):
    """An extra, or the core (""), and the versions of its packages; None: the package is missing."""

    name: str
    packages: dict[str, str | None]

    @property
    def missing(self) -> list[str]:
        """The packages that are missing."""
        return [package for package, version in self.packages.items() if version is None]

    @property
    def command(self) -> str:
        """The command that installs what is missing; empty if nothing is."""
        target = f"'windvane[{self.name}]'" if self.name else "windvane"
        return f"pip install {target}" if self.missing else ""


@dataclass(frozen=True)
class Health:
    """The state of this installation. A missing extra is not a fault."""

    facts: dict[str, Any]
    extras: list[Extra]
    checks: list[Check]

    @property
    def is_healthy(self) -> bool:
        """Whether no check failed."""
        return all(check.is_ok for check in self.checks)


def examine(report: Callable[[int, int], None] = lambda _done, _total: None) -> Health:
    """Examine this installation. It takes a second, or the time to compile; ``report`` is that of ``warm_up``."""
    from windvane.kernels.cache import CACHE_DIR, CACHE_ERROR
    from windvane.kernels.threads import available_cores

    seconds = windvane.warm_up(report=report)
    files = [path for path in CACHE_DIR.rglob("*") if path.is_file()]
    facts = {
        "windvane": windvane.__version__,
        "python": f"{platform.python_version()} ({platform.system()} {platform.machine()})",
        "cores": f"{available_cores()} usable of {os.cpu_count()}",
        "threads": windvane.get_threads(),
        "compile cache": f"{CACHE_DIR} ({len(files)} files, {sum(p.stat().st_size for p in files) / 1e6:.1f} MB)",
        "kernels ready": f"after {seconds:.1f} s",
    }
    return Health(facts, read_extras(), [check_cache(CACHE_DIR, CACHE_ERROR, len(files)), *_self_test()])


def read_extras() -> list[Extra]:
    """Read the core and the extras from the metadata of the installed package; none if there is no metadata."""
    try:
        names = ["", *(metadata.metadata("windvane").get_all("Provides-Extra") or [])]
        texts = metadata.requires("windvane") or []
    except metadata.PackageNotFoundError:
        return []
    requirements: dict[str, list[str]] = {name: [] for name in names}
    for text in texts:
        extra = re.search(r"extra == ['\"]([\w.-]+)", text)
        requirements[extra[1] if extra else ""].append(text)

    def list_packages(extra: str) -> Iterator[str]:
        for text in requirements[extra]:
            if included := re.match(r"windvane\[([^]]+)\]", text):  # an extra that includes others
                for name in included[1].split(","):
                    yield from list_packages(name.strip())
            else:
                yield re.findall(r"^[\w.-]+", text)[0]

    packages = {name: sorted({*list_packages(name)}) for name in names if name not in DEVELOPMENT}
    return [Extra(name, {package: _find_version(package) for package in packages[name]}) for name in packages]


def _find_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check_cache(folder: Path, write_error: str | None, files: int) -> Check:
    """Check that compiled code is kept from one start to the next."""
    if write_error is not None:
        text = f"{folder} cannot be written ({write_error}): every start compiles again; set WINDVANE_CACHE_DIR"
        return Check("compile cache", False, text)
    return Check("compile cache", files > 0, "is written and read" if files else f"nothing was stored in {folder}")


def _self_test() -> list[Check]:
    """Let a policy learn in three lanes, and compute from the definitions, in NumPy, what it keeps of the second."""
    generator, lane = np.random.default_rng(0), 1
    X = generator.uniform(-0.7, 0.7, (_ROUNDS, 3, 2))
    r = generator.integers(0, 2, (_ROUNDS, 3)).astype(float)
    policy = windvane.BVDGLMUCB(dim=2, gamma=_GAMMA, lanes=3)
    alone = windvane.BVDGLMUCB(dim=2, gamma=_GAMMA, lanes=[lane])
    for t in range(_ROUNDS):
        for learner, lanes in ((policy, slice(None)), (alone, slice(lane, lane + 1))):
            learner.select(X[t, lanes, None, :])  # one arm
            learner.update(X[t, lanes], r[t, lanes])
    info, X, r = policy.info(), X[:, lane], r[:, lane]
    theta_hat, V, b = (np.asarray(value)[lane] for value in (info.theta_hat, info.metric, info.b))
    weights = _GAMMA ** np.arange(_ROUNDS - 1, -1, -1.0)
    g = X.T @ (weights / (1.0 + np.exp(-X @ theta_hat))) + policy.estimator.ridge * theta_hat
    sums = max(_gap(V, (X.T * weights) @ X + np.eye(2)), _gap(b, X.T @ (weights * r)))
    repeated = _gap(np.asarray(alone.info().theta_hat)[0], theta_hat) and np.inf
    beyond = max(0.0, float(np.linalg.norm(np.asarray(info.theta_tilde)[lane])) - 1.0)
    return [
        _compare("rewards add up", "V and b follow their sums", sums),
        _compare("the estimate fits them", "theta_hat solves g(theta) = b", _gap(g, b)),
        _compare("results repeat to the last bit", "a lane alone gives the same bits", repeated),
        _compare("the estimate keeps within its bound", "theta_tilde is admissible", beyond),
    ]


def _compare(name: str, formula: str, error: float) -> Check:
    """Return the check that what a ``formula`` says is true up to rounding."""
    return Check(name, error <= _LARGEST_ERROR, f"{formula}: off by {error:.1e} (at most {_LARGEST_ERROR:g})")


def _gap(actual: Any, expected: Any) -> float:
    return float(np.abs(np.asarray(actual) - np.asarray(expected)).max())
