"""All compiled code, imported when the first policy or estimator is built, so that ``import windvane`` is quick.

:func:`load` returns the kernels for a link. For a built-in link they are compiled. For a custom link the very same
functions run interpreted, with the four that evaluate the link replaced by NumPy versions: one source, no second
implementation to keep in step.
"""

from __future__ import annotations

import types
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from windvane.links import Link

_LINK_FUNCTIONS = ("mean_slope", "mean_slope_array", "bend_array", "bend_ratio")


@cache
def _compiled() -> dict[str, Any]:
    from windvane.kernels import (
        drawing,
        elementary,
        history,
        linalg,
        one_pass,
        projecting,
        random,
        root,
        sampling,
        scoring,
        sums,
    )

    namespace: dict[str, Any] = {}
    for module in (elementary, linalg, random, sums, history, root, projecting, scoring, drawing, sampling, one_pass):
        namespace.update(vars(module))
    return namespace


def _numpy_link_functions(link: Link) -> dict[str, Any]:
    """The functions of :mod:`elementary` that depend on the link, for any Python callables."""
    import numpy as np

    small = 1e-5

    def mean_slope(_code: int, z: float) -> tuple[float, float]:
        at = np.array([z])
        return float(link.mean(at)[0]), float(link.slope(at)[0])

    def mean_slope_array(_code: int, z: np.ndarray, mean: np.ndarray, slope: np.ndarray, _n: int) -> None:
        mean[:] = link.mean(z)
        slope[:] = link.slope(z)

    def bend_array(_code: int, z: np.ndarray, _mean: np.ndarray, _slope: np.ndarray, bend: np.ndarray, n: int) -> None:
        bend[:n] = (link.slope(z + small) - link.slope(z - small)) / (2 * small)

    def bend_ratio(_code: int, _largest_z: float) -> float:
        return float("inf")  # unknown: convergence is then judged by the residual alone

    return {
        "mean_slope": mean_slope,
        "mean_slope_array": mean_slope_array,
        "bend_array": bend_array,
        "bend_ratio": bend_ratio,
    }


def _interpreted(link: Link) -> dict[str, Any]:
    """The compiled namespace with every function that reaches a link function re-bound, in pure Python."""
    namespace = dict(_compiled())
    kernels = {name: f for name, f in namespace.items() if hasattr(f, "py_func")}
    reaching = set(_LINK_FUNCTIONS)
    while True:
        more = {name for name, f in kernels.items() if reaching & set(f.py_func.__code__.co_names)} - reaching
        if not more:
            break
        reaching |= more
    for name in reaching:
        namespace[name] = types.FunctionType(kernels[name].py_func.__code__, namespace, name)
    namespace.update(_numpy_link_functions(link))
    return namespace


def load(link: Link) -> types.SimpleNamespace:
    """The kernels for ``link``, as attributes."""
    return types.SimpleNamespace(**(_compiled() if link.code >= 0 else _interpreted(link)))
