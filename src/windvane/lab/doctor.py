"""Is this installation healthy? Versions, cores, the compile cache, and a self-test against plain NumPy."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import windvane

OPTIONAL = ("numpy", "scipy", "numba", "pyarrow", "joblib", "rich", "typer", "matplotlib", "plotly", "distributed")
_ROUNDS, _LANES = 120, 3


class Check(NamedTuple):
    """One thing that was tried."""

    name: str
    fine: bool
    found: str


@dataclass(frozen=True)
class Health:
    """What the doctor found."""

    facts: dict[str, Any]
    checks: list[Check]

    @property
    def healthy(self) -> bool:
        return all(check.fine for check in self.checks)


def examine() -> Health:
    """Look at everything once; takes a second, or the time to compile."""
    from windvane.kernels.cache import CACHE_DIR, CACHE_ERROR
    from windvane.kernels.threads import available_cores

    seconds = windvane.warm_up()
    files = [path for path in CACHE_DIR.rglob("*") if path.is_file()]
    facts = {
        "windvane": windvane.__version__,
        "python": f"{platform.python_version()} ({platform.system()} {platform.machine()})",
        **{name: _version(name) for name in OPTIONAL},
        "cores": f"{available_cores()} usable of {os.cpu_count()}",
        "threads": windvane.get_threads(),
        "compile cache": f"{CACHE_DIR} ({len(files)} files, {sum(p.stat().st_size for p in files) / 1e6:.1f} MB)",
        "kernels ready": f"after {seconds:.1f} s",
    }
    return Health(facts, [_check_cache(CACHE_DIR, CACHE_ERROR, len(files)), *_self_test()])


def _check_cache(folder: Path, write_error: str | None, files: int) -> Check:
    """Check that compiled code is kept from one start to the next."""
    if write_error is not None:
        text = f"{folder} cannot be written ({write_error}): every start compiles again; set WINDVANE_CACHE_DIR"
        return Check("compile cache", False, text)
    return Check("compile cache", files > 0, "is written and read" if files else f"nothing was stored in {folder}")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _self_test() -> list[Check]:
    """Play a little, then recompute what the kernels keep, from the definitions, in NumPy."""
    policy, alone, played, rewards = _play()
    gamma, lane = 0.95, 1
    weights = gamma ** np.arange(len(played) - 1, -1, -1.0)
    X, r = played[:, lane], rewards[:, lane]
    V = (X * weights[:, None]).T @ X + np.eye(2)
    b = X.T @ (weights * r)
    info, single = policy.info(), alone.info()
    found = (info.theta_hat, info.theta_tilde, info.metric, info.b, single.theta_hat)
    theta_hat, theta_tilde, metric, sums, single_theta = (np.asarray(array) for array in found)
    theta = theta_hat[lane]
    g = X.T @ (weights / (1.0 + np.exp(-X @ theta))) + policy.estimator.ridge * theta
    errors = {
        "V and b follow their sums": max(_gap(metric[lane], V), _gap(sums[lane], b)),
        "theta_hat solves g(theta) = b": _gap(g, b),
        "a lane alone gives the same bits": _gap(single_theta[0], theta) and np.inf,
        "theta_tilde is admissible": max(0.0, float(np.linalg.norm(theta_tilde, axis=1).max()) - 1.0),
    }
    limit = 1e-6
    return [Check(name, error <= limit, f"off by {error:.1e} (at most {limit:g})") for name, error in errors.items()]


def _gap(found: Any, wanted: Any) -> float:
    return float(np.abs(np.asarray(found) - np.asarray(wanted)).max())


def _play() -> tuple[windvane.BVDGLMUCB, windvane.BVDGLMUCB, Any, Any]:
    """Three lanes and, beside them, the second of them alone, in the same world."""
    from windvane.environments import BallArms, Environment, Rotation

    world = Environment(Rotation(), BallArms(), horizon=_ROUNDS, lanes=_LANES)
    policy = windvane.BVDGLMUCB(dim=2, gamma=0.95, lanes=_LANES)
    alone = windvane.BVDGLMUCB(dim=2, gamma=0.95, lanes=[1])
    everyone = np.arange(_LANES)
    played, rewards = np.zeros((_ROUNDS, _LANES, 2)), np.zeros((_ROUNDS, _LANES))
    for t in range(1, _ROUNDS + 1):
        offer = world.round(t)
        choice = policy.select(offer.arms)
        x, r = offer.arms[everyone, choice], world.reward(t, offer.means[everyone, choice])
        policy.update(x, r)
        mine = alone.select(offer.arms[1:2])
        alone.update(offer.arms[[1], mine], r[1:2])
        played[t - 1], rewards[t - 1] = x, r
    return policy, alone, played, rewards
