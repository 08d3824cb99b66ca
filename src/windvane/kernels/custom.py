"""The kernels that evaluate a link: compiled for built-in links, interpreted for custom links.

A custom link consists of Python callables, which compiled code cannot call. For a custom link the same kernels run as
plain Python, with the four functions that evaluate the link replaced by NumPy versions. So there is one source and no
second implementation. The other kernels do not depend on the link and are imported by name.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from windvane.kernels import (
    anchors,
    elementary,
    expansion,
    filters,
    history,
    lanes,
    monomials,
    one_pass,
    online,
    projection,
    root,
    scoring,
    sums,
)
from windvane.kernels.jit import callable_kernel

Array = npt.NDArray[np.float64]
MODULES = (
    lanes, elementary, monomials, sums, history, expansion, anchors, root, projection, scoring, one_pass, online,
    filters,
)  # fmt: skip
STEP = 1e-5  # of the difference quotient that replaces mu''; its error, of order 1e-10, affects only Newton's steps


class LinkFunctions(Protocol):
    """The methods of a custom link that the kernels call."""

    def mean(self, z: npt.ArrayLike) -> Array:
        """Return mu(z)."""

    def slope(self, z: npt.ArrayLike) -> Array:
        """Return mu'(z)."""


@dataclass(frozen=True)
class LinkKernels:
    """The kernels that evaluate a link, with the names that they have in their modules."""

    observe_lanes: Callable[..., None] = history.observe_lanes
    solve_lanes: Callable[..., None] = root.solve_lanes
    moments_lanes: Callable[..., None] = expansion.moments_lanes
    project_lanes: Callable[..., None] = projection.project_lanes
    predict_lanes: Callable[..., None] = scoring.predict_lanes
    linearise_lanes: Callable[..., None] = one_pass.linearise_lanes
    newton_lanes: Callable[..., None] = online.newton_lanes
    assess_lanes: Callable[..., None] = filters.assess_lanes
    learn_lanes: Callable[..., None] = filters.learn_lanes


COMPILED = LinkKernels()


def link_kernels(code: int, link: LinkFunctions) -> LinkKernels:
    """Return the kernels for a link.

    Parameters
    ----------
    code
        Code of a built-in link (at least 0), or -1 for a custom link.
    link
        The link. Not used for a built-in link.

    Returns
    -------
    LinkKernels
        Compiled kernels for a built-in link, interpreted ones for a custom link.
    """
    return COMPILED if code >= 0 else _interpret(link)


def _interpret(link: LinkFunctions) -> LinkKernels:
    """Rebind the kernels that call the functions of the link as plain Python. The others stay compiled."""
    namespaces = {module.__name__: dict(vars(module)) for module in MODULES}
    kernels = {k for space in namespaces.values() for k in space.values() if hasattr(k, "py_func")}
    rebound: dict[Any, Any] = {getattr(elementary, name): f for name, f in _evaluate_in_numpy(link).items()}
    interpreted = set(rebound)
    while more := {k for k in kernels - interpreted if _must_interpret(k, namespaces, interpreted)}:
        interpreted |= more
    for kernel in interpreted - set(rebound):
        function = kernel.py_func
        rebound[kernel] = types.FunctionType(function.__code__, namespaces[function.__module__], function.__name__)
    for space in namespaces.values():
        space.update({name: rebound.get(k) or callable_kernel(k) for name, k in space.items() if hasattr(k, "py_func")})
    return LinkKernels(**{field.name: rebound[field.default] for field in fields(LinkKernels)})


def _must_interpret(kernel: Any, namespaces: dict[str, dict[str, Any]], interpreted: set[Any]) -> bool:
    """Return whether a kernel calls an interpreted one, takes a lane's record or returns a view.

    Only compiled callers can pass a record on to a compiled kernel, or take a view from it.
    """
    function = kernel.py_func
    space = namespaces.get(function.__module__, {})
    calls = {space[name] for name in function.__code__.co_names if hasattr(space.get(name), "py_func")}
    hints = function.__annotations__
    is_inner = "np.void" in hints.values() or hints["return"] == "np.ndarray"
    return bool(calls & interpreted) or is_inner


def _evaluate_in_numpy(link: LinkFunctions) -> dict[str, Any]:
    """Return NumPy versions of the functions in :mod:`elementary` that depend on the link."""

    def mean_slope(_code: int, z: float) -> tuple[float, float]:
        point = np.array([z])
        return float(link.mean(point)[0]), float(link.slope(point)[0])

    def mean_slope_array(_code: int, z: Array, mean: Array, slope: Array, _n: int) -> None:
        mean[:] = link.mean(z)
        slope[:] = link.slope(z)

    def bend_array(_code: int, z: Array, _mean: Array, _slope: Array, bend: Array, n: int) -> None:
        bend[:n] = (link.slope(z + STEP) - link.slope(z - STEP)) / (2 * STEP)

    def bend_ratio(_code: int, _largest_z: float) -> float:
        return float("inf")  # unknown, so only the residual determines convergence

    return {
        "mean_slope": mean_slope,
        "mean_slope_array": mean_slope_array,
        "bend_array": bend_array,
        "bend_ratio": bend_ratio,
    }
