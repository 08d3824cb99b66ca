"""The one place where tests of estimators, projections and kernels read what is not part of the public contract."""

from types import ModuleType, SimpleNamespace
from typing import Any

import numba
import numpy as np

from windvane import state
from windvane.estimation import Discount, Estimator, MaximumLikelihoodEstimator, Never, RidgeEstimator, Window
from windvane.kernels import lanes, sums, threads
from windvane.kernels import projection as programs
from windvane.kernels.custom import link_kernels
from windvane.kernels.jit import callable_kernel
from windvane.links import Link, get_link

# --- estimators -------------------------------------------------------------------------------------------------------


def make_estimator(
    dim: int, link: str | Link = "logistic", *, gamma: Any = None, window: Any = None, **settings: Any
) -> MaximumLikelihoodEstimator:
    """Build the exact estimator; ``settings`` are S, L, lam, lanes, tolerance."""
    return MaximumLikelihoodEstimator(dim, link, forgetting=make_forgetting(gamma, window), **settings)


def make_ridge(dim: int, *, gamma: Any = None, window: Any = None, **settings: Any) -> RidgeEstimator:
    return RidgeEstimator(dim, forgetting=make_forgetting(gamma, window), **settings)


def make_forgetting(gamma: Any = None, window: Any = None) -> Discount | Window | Never:
    return Window(window) if window is not None else Never() if gamma is None else Discount(gamma)


def save(component: Any) -> state.State:
    return state.save(component) if isinstance(component, Estimator) else component.state()


def load(component: state.Stateful, entries: dict[str, Any]) -> None:
    state.swap(state.check(component, entries))


def callable_module(module: ModuleType) -> Any:
    """The compiled functions of a module of kernels, also those that are only called by kernels, and its constants."""
    entries = {name: entry for name, entry in vars(module).items() if not name.startswith("__")}
    return SimpleNamespace(
        **{name: callable_kernel(entry) if hasattr(entry, "py_func") else entry for name, entry in entries.items()}
    )


def lane_history(source: Any, lane: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features [n, dim], weights [n] and b of what an estimator remembers of a lane."""
    record, d = source.record[lane], source.dim
    rows = source.history[lane, :, record["start"] : record["end"]]
    return rows[:d].T, rows[d] * record["scale"], source.b[lane]


def lane_state(source: Any, lane: int = 0) -> dict[str, np.ndarray]:
    """The part of an estimator's state that belongs to a lane, its history cut to length."""
    entries = save(source)
    used = {"history": int(entries["count"][lane])}
    if not entries["expansions"][lane].any():  # other lanes may have expansions
        used["expansions"] = 0
    return {name: array[lane, :, : used[name]] if name in used else array[lane] for name, array in entries.items()}


def history_size(source: Any) -> int:
    return save(source)["history"].size


# --- projections ------------------------------------------------------------------------------------------------------


@numba.njit
def _differentiate(program, record, dense, history, expansions, work, buffers):  # type: ignore[no-untyped-def]
    """f at the trial point; its gradient, Gauss-Newton part and Hessian are left in the workspace."""
    lane, row, rows, expansion = record[0], dense[0], history[0], expansions[0]
    f, nu = programs._evaluate(program, lane, row, rows, expansion, work, buffers)
    programs._form_gradient(program, lane, rows, expansion, work, buffers)
    programs._form_gauss_newton(program, work[programs._ETA, 0], nu, work)
    gauss_newton = work[programs._B].copy()
    programs._add_curvature(program, lane, rows, expansion, work, buffers)
    return f, work[programs._GRADIENT, 0].copy(), gauss_newton, work[programs._B].copy()


def differentiate_program(program: int, case: Any, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, Any]:
    """f, its gradient, the Gauss-Newton part of its Hessian and its Hessian, as the compiled program has them."""
    d, n = len(case.b), len(case.weights)
    record, work, buffers = np.zeros(1, lanes.RECORD), np.zeros((lanes.WORK, d, d)), np.zeros((lanes.BUFFERS, n))
    dense, history = np.zeros((1, lanes.dense_rows(d, linearised=True), d)), np.zeros((1, d + 3, n))
    settings = {"link": get_link(case.link).code, "ridge": case.ridge, "scale": 1.0, "end": n, "S": case.S}
    for name, value in settings.items():
        record[name] = value
    dense[0, lanes.B], history[0, :d], history[0, d] = case.b, case.features.T, case.weights
    metric = case.V_tilde if program == programs.P0_IN_V_TILDE else case.V
    work[programs._LOWER], work[programs._LOWER_M] = np.linalg.cholesky(metric), np.linalg.cholesky(case.V_tilde)
    if program == programs.P2:
        callable_kernel(programs._set_slack_operator)(case.beta, work)
    work[programs._TRIAL, 0] = theta
    return _differentiate(program, record, dense, history, np.zeros((1, lanes.LEVELS, 0)), work, buffers)


# --- kernels and environments -----------------------------------------------------------------------------------------


def kernels_for(link: Link) -> SimpleNamespace:
    """All kernels that evaluate a link: compiled for a built-in one, interpreted for a custom one."""
    return SimpleNamespace(
        **(vars(callable_module(sums)) if link.code >= 0 else link_kernels(-1, link).moments_lanes.__globals__)
    )


def threads_from_environment() -> int:
    return threads._threads_from_environment()


def block_length(path: Any) -> int:
    return path._length
