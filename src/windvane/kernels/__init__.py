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

_LINK_FUNCTIONS = ("mean_slope", "moments", "bend_gram", "bend_ratio")


@cache
def _compiled() -> dict[str, Any]:
    from windvane.kernels import elementary, history, linalg, projecting, random, root, scoring

    namespace: dict[str, Any] = {}
    for module in (elementary, linalg, random, history, root, projecting, scoring):
        namespace.update(vars(module))
    return namespace


def _numpy_link_functions(link: Link) -> dict[str, Any]:
    """The functions of :mod:`elementary` and :mod:`history` that depend on the link, for any Python callables."""
    import numpy as np

    small = 1e-5

    def mean_slope(_code: int, z: float) -> tuple[float, float]:
        at = np.array([z])
        return float(link.mean(at)[0]), float(link.slope(at)[0])

    def moments(
        _code: int,
        X: np.ndarray,
        W: np.ndarray,
        start: int,
        end: int,
        scale: float,
        ridge: float,
        theta: np.ndarray,
        buffers: np.ndarray,
        g: np.ndarray,
        H: np.ndarray,
    ) -> None:
        x, w = X[:, start:end], W[start:end] * scale
        z = theta @ x
        buffers[0, : end - start] = z
        g[:] = x @ (w * link.mean(z)) + ridge * theta
        H[:] = (x * (w * link.slope(z))) @ x.T + ridge * np.eye(len(theta))

    def bend_gram(
        _code: int,
        X: np.ndarray,
        W: np.ndarray,
        start: int,
        end: int,
        scale: float,
        u: np.ndarray,
        buffers: np.ndarray,
        out: np.ndarray,
    ) -> None:
        x, z = X[:, start:end], buffers[0, : end - start]
        bend = (link.slope(z + small) - link.slope(z - small)) / (2 * small)
        out[:] = (x * (W[start:end] * scale * bend * (u @ x))) @ x.T

    def bend_ratio(_code: int, _largest_z: float) -> float:
        return float("inf")  # unknown: convergence is then judged by the residual alone

    return {"mean_slope": mean_slope, "moments": moments, "bend_gram": bend_gram, "bend_ratio": bend_ratio}


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
