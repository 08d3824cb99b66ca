"""What a saved state of a :class:`windvane.estimation.DiscountedEstimator` must satisfy before it is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from windvane.estimation import DiscountedEstimator

State = dict[str, npt.NDArray[Any]]
HISTORY = ("X", "W", "R", "decided")  # the entries whose last axis is the history


def checked_state(estimator: DiscountedEstimator, state: State) -> State:
    """Copies of the entries of ``state``, if this estimator could continue from them."""
    own = estimator.state()
    if set(state) != set(own):
        odd = sorted(set(state) ^ set(own))
        raise ValueError(f"state: missing or unknown entries {', '.join(odd)}")
    checked = {}
    longest = np.asarray(state["W"]).shape[-1] if np.asarray(state["W"]).ndim else 0
    if longest and not estimator.remember:
        raise ValueError("state['W']: this estimator remembers nothing")
    for name, mine in own.items():
        array = np.array(state[name], order="C")
        wanted = mine.shape if name not in HISTORY else (*mine.shape[:-1], longest)
        if array.dtype != mine.dtype or array.shape != wanted:
            raise ValueError(
                f"state[{name!r}] has shape {array.shape} and type {array.dtype}: must be {wanted}, {mine.dtype}"
            )
        if array.dtype == float and not np.isfinite(array).all():
            raise ValueError(f"state[{name!r}]: must be finite")
        checked[name] = array
    if not ((checked["gamma"] > 0) & (checked["gamma"] <= 1)).all():
        raise ValueError("state['gamma']: must lie in (0, 1]")
    if estimator.windowed and (checked["gamma"] != 1.0).any():
        raise ValueError("state['gamma']: must be 1, since this estimator has a window instead")
    if estimator.windowed and not (checked["window"] > 0).all():
        raise ValueError("state['window']: must be above 0")
    now, origin, dropped = checked["clock"].T
    if (origin > now).any() or (dropped < 0).any():
        raise ValueError("state['clock']: the origin must not be after now, nor the dropped weight negative")
    if not np.isin(checked["stale"], (estimator._k.FRESH, estimator._k.MOVED, estimator._k.LOST)).all():
        raise ValueError("state['stale']: must be 0, 1 or 2")
    counts = checked["counts"]
    if (counts < 0).any() or (counts > longest).any() or (checked["removals"] < 0).any():
        raise ValueError("state['counts']: must lie between 0 and the length of the history")
    for lane, count in enumerate(counts):
        times = checked["decided"][lane, :count]
        if (np.diff(times) < 0).any() or (times > checked["clock"][lane, 0]).any():
            raise ValueError("state['decided']: must be sorted and not in the future")
        if (checked["W"][lane, :count] < 0).any():
            raise ValueError("state['W']: must not be negative")
    for name in ("V", "V_tilde"):
        if not np.allclose(checked[name], checked[name].transpose(0, 2, 1), rtol=1e-9, atol=0.0):
            raise ValueError(f"state[{name!r}]: must be symmetric")
        eigenvalues = np.linalg.eigvalsh(checked[name])
        if (eigenvalues[:, 0] < estimator.lam * (1 - 1e-6) - 1e-12 * eigenvalues[:, -1]).any():
            raise ValueError(f"state[{name!r}]: must be at least lam I")
    _check_roots(estimator, checked)
    return checked


def _check_roots(estimator: DiscountedEstimator, state: State) -> None:
    """A theta that a state calls fresh must be the root of the history beside it."""
    now, origin, _ = state["clock"].T
    for lane in np.flatnonzero(state["stale"] == estimator._k.FRESH):
        theta, H = state["theta"][lane], state["V"][lane]
        g = H @ theta
        if estimator.remember:
            x = state["X"][lane][:, : state["counts"][lane]]
            w = state["W"][lane, : x.shape[1]] * state["gamma"][lane] ** (now[lane] - origin[lane])
            z = theta @ x
            g = x @ (w * estimator.link.mean(z)) + estimator.ridge * theta
            H = (x * (w * estimator.link.slope(z))) @ x.T + estimator.ridge * np.eye(estimator.dim)
        away = np.linalg.norm(np.linalg.solve(H, g - state["b"][lane]))
        if not away <= 1e-3 * (1.0 + np.linalg.norm(theta)) + state["error"][lane]:
            raise ValueError(f"state['theta']: in lane {lane} it is not the root of the history beside it")
