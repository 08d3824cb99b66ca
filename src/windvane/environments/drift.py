"""Drifts: how theta* moves. ``path`` binds a drift to a horizon T, a dimension and lanes.

Turns are in the plane of the first two axes, on the circle of radius S; angles are in radians.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from windvane._importing import imported
from windvane.arguments import Array, check_array, check_lanes, check_number, check_positive, check_whole
from windvane.environments import fields
from windvane.environments.fields import LATEST, Record, Vector, check_norms, check_rounds, check_vectors, number, whole
from windvane.environments.paths import Curve, Frame, Path, Rounds, SwitchingPath, WalkingPath
from windvane.errors import ArgumentError

_angle = number("within [-1e6, 1e6]", lambda v: abs(v) <= 1e6)
_optional_vector = fields.optional(fields.check_vector)


class Drift(Record):
    """Base class of drifts: frozen dataclasses with a ``kind``.

    A subclass implements ``_thetas`` if all lanes share the path, and overrides ``_path`` otherwise.

    Examples
    --------
    >>> Rotation().path(horizon=3000, dim=2, S=1.0, lane_ids=1).variation.round(4)
    array([1.5708])
    """

    def path(self, *, horizon: int, dim: int, S: float, lane_ids: int | Sequence[int] | Rounds, seed: int = 0) -> Path:
        """Return theta*_t for rounds 1..horizon in every lane: of dimension ``dim``, in the ball of radius S."""
        horizon, dim = check_whole("horizon", horizon, 1, LATEST), check_whole("dim", dim, 1)
        S, ids = check_positive("S", S), check_lanes(lane_ids)  # type: ignore[arg-type]
        return self._path(Frame(horizon, dim, S, ids, check_whole("seed", seed, 0, 2**64 - 1)))

    def _path(self, frame: Frame) -> Path:
        path = Curve(frame, self._thetas)
        path.at(1)  # raises if the fields do not fit the arguments
        return path

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        """Return theta*_t, [rounds, dim]."""
        raise NotImplementedError


def _parameters(frame: Frame, name: str, points: Any) -> Array:
    """Return one parameter or several, checked; S e_1 for None."""
    if points is None:
        return np.asarray(frame.S * np.eye(frame.dim)[0])
    return check_norms(name, points, frame.dim, frame.S, "S")


def _turn(frame: Frame, kind: str, angle: Array) -> Array:
    """Return the points on the circle of radius S at these angles from the first axis."""
    if frame.dim < 2:
        raise ArgumentError("dim", frame.dim, f"at least 2 for the drift {kind!r}, which turns in a plane")
    theta = np.zeros((len(angle), frame.dim))
    theta[:, 0], theta[:, 1] = frame.S * np.cos(angle), frame.S * np.sin(angle)
    return theta


@dataclass(frozen=True)
class Static(Drift):
    """theta* does not move.

    Parameters
    ----------
    theta : the parameter; by default S e_1

    Examples
    --------
    >>> Static([0.6, 0.8]).path(horizon=9, dim=2, S=1.0, lane_ids=1).at(5)
    array([[0.6, 0.8]])
    """

    kind: ClassVar[str] = "static"
    checks: ClassVar = {"theta": _optional_vector}
    theta: Vector | None = None

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        return np.tile(_parameters(frame, "theta", self.theta), (len(t), 1))


@dataclass(frozen=True)
class Rotation(Drift):
    """theta* rests, turns, rests: at angle ``angle`` clip((t/T - begin)/(end - begin), 0, 1) from the first axis.

    The defaults are the paper's experiment, with B_T = (2T/3) sin(3 pi/(4T)) S for T divisible by 3.

    Parameters
    ----------
    angle : the angle of the turn
    begin, end : when the turn begins and ends, as shares of the horizon

    Examples
    --------
    >>> Rotation().path(horizon=9, dim=2, S=1.0, lane_ids=1).at(9).round(12)
    array([[0., 1.]])
    """

    kind: ClassVar[str] = "rotation"
    angle: float = math.pi / 2
    begin: float = 1 / 3
    end: float = 2 / 3

    def __post_init__(self) -> None:
        begin = check_number("begin", self.begin, "in [0, 1)", lambda v: 0 <= v < 1)
        end = check_number("end", self.end, f"above begin={begin:g} and at most 1", lambda v: begin < v <= 1)
        self.set_fields(angle=_angle("angle", self.angle), begin=begin, end=end)

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        turned = np.clip((t / frame.horizon - self.begin) / (self.end - self.begin), 0.0, 1.0)
        return _turn(frame, self.kind, self.angle * turned)


@dataclass(frozen=True)
class Arc(Drift):
    """theta* turns at constant speed: at angle ``start`` + ``angle`` t/T from the first axis.

    B_T = 2 (T-1) S |sin(angle/(2T))|.

    Parameters
    ----------
    angle : the angle of the whole turn
    start : the angle before the first round

    Examples
    --------
    >>> Arc(angle=math.pi).path(horizon=8, dim=2, S=1.0, lane_ids=1).at(4).round(12)
    array([[0., 1.]])
    """

    kind: ClassVar[str] = "arc"
    checks: ClassVar = {"angle": _angle, "start": _angle}
    angle: float = 2 * math.pi
    start: float = 0.0

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        return _turn(frame, self.kind, self.start + self.angle * (t / frame.horizon))


@dataclass(frozen=True)
class Turns(Drift):
    """theta* rests and then turns by ``angle``, in each of ``count`` equal periods.

    Parameters
    ----------
    count : number of periods
    angle : the angle of each turn
    share : the share of a period during which theta* turns, at its end

    Examples
    --------
    >>> Turns(count=2).path(horizon=8, dim=2, S=1.0, lane_ids=1).at(6).round(12)
    array([[0., 1.]])
    """

    kind: ClassVar[str] = "turns"
    checks: ClassVar = {
        "count": whole(1, 10**6), "angle": _angle, "share": number("in (0, 1]", lambda v: 0 < v <= 1)
    }  # fmt: skip
    count: int = 3
    angle: float = math.pi / 2
    share: float = 0.5

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        done, into = np.divmod(t * self.count, frame.horizon)  # whole numbers, so that theta* does not move at rest
        turned = 1.0 + (into / frame.horizon - 1.0) / self.share
        return _turn(frame, self.kind, self.angle * (done + np.maximum(turned, 0.0)))


@dataclass(frozen=True)
class Switches(Drift):
    """theta* jumps at given rounds: it is ``thetas[0]`` first and ``thetas[i]`` from round ``times[i-1]`` on.

    Parameters
    ----------
    times : strictly increasing rounds, from 2 on
    thetas : the parameters, one more than ``times``

    Examples
    --------
    >>> Switches([5], [[1, 0], [0, 1]]).path(horizon=9, dim=2, S=1.0, lane_ids=1).at(5)
    array([[0., 1.]])
    """

    kind: ClassVar[str] = "switches"
    times: tuple[int, ...]
    thetas: tuple[Vector, ...]

    def __post_init__(self) -> None:
        self.set_fields(times=check_rounds("times", self.times, 2), thetas=check_vectors("thetas", self.thetas))
        _check_length("thetas", self.thetas, len(self.times) + 1, "one more than times")

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        _check_times(frame, self.times)
        segment = np.searchsorted(np.array(self.times, dtype=np.int64), t, side="right")
        return np.asarray(_parameters(frame, "thetas", self.thetas)[segment])


def _check_times(frame: Frame, times: tuple[int, ...]) -> None:
    if times and times[-1] > frame.horizon:
        raise ArgumentError("times", times, f"at most the horizon, {frame.horizon}")


def _check_length(name: str, vectors: tuple[Vector, ...], length: int, why: str) -> None:
    if len(vectors) != length:
        raise ArgumentError(name, vectors, f"a list of {length} vectors, {why}", got=f"{len(vectors)}")


@dataclass(frozen=True)
class RandomSwitches(Drift):
    """theta* jumps at random rounds between parameters uniform on the sphere of radius S; each lane has its own path.

    In one dimension the sphere has two points, so that some jumps do not change the parameter.

    Parameters
    ----------
    count : number of jumps, at distinct rounds uniform in 2..T

    Examples
    --------
    >>> RandomSwitches(3).path(horizon=100, dim=2, S=1.0, lane_ids=2).switches
    array([3, 3])
    """

    kind: ClassVar[str] = "random-switches"
    checks: ClassVar = {"count": whole(0, 10**6)}
    count: int

    def _path(self, frame: Frame) -> Path:
        if self.count > frame.horizon - 1:
            raise ArgumentError("count", self.count, f"at most horizon - 1 = {frame.horizon - 1}")
        from windvane.kernels.random import LARGEST_BLOCK

        most = LARGEST_BLOCK + 1  # the counter of the generator has no room for more numbers in one round of a lane
        if (self.count + 1) * frame.dim > most:
            raise ArgumentError("count", self.count, f"at most {most // frame.dim - 1} with dim={frame.dim}")
        return SwitchingPath(frame, self.count)


@dataclass(frozen=True)
class RandomWalk(Drift):
    """theta* is a random walk in the ball of radius S; each lane has its own path.

    theta*_{t+1} is the projection onto the ball of theta*_t + ``step`` z / sqrt(d), z standard normal.

    Parameters
    ----------
    step : the root mean square length of a step
    start : the first parameter; by default S e_1

    Examples
    --------
    >>> RandomWalk(0.1).path(horizon=9, dim=2, S=1.0, lane_ids=1).at(1)
    array([[1., 0.]])
    """

    kind: ClassVar[str] = "random-walk"
    checks: ClassVar = {"step": check_positive, "start": _optional_vector}
    step: float
    start: Vector | None = None

    def _path(self, frame: Frame) -> Path:
        return WalkingPath(frame, self.step, _parameters(frame, "start", self.start))


@dataclass(frozen=True)
class Sinusoid(Drift):
    """theta* oscillates: ``centre`` + ``amplitude`` sin(2 pi t/``period`` + ``phase``).

    Parameters
    ----------
    period : number of rounds of one oscillation
    amplitude : by default S e_1
    centre : by default 0
    phase : the phase before the first round

    Examples
    --------
    >>> Sinusoid(period=8).path(horizon=8, dim=2, S=1.0, lane_ids=1).at(2)
    array([[1., 0.]])
    """

    kind: ClassVar[str] = "sinusoid"
    checks: ClassVar = {
        "period": check_positive, "amplitude": _optional_vector, "centre": _optional_vector, "phase": _angle
    }  # fmt: skip
    period: float
    amplitude: Vector | None = None
    centre: Vector | None = None
    phase: float = 0.0

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        amplitude = _parameters(frame, "amplitude", self.amplitude)
        centre = np.zeros(frame.dim) if self.centre is None else _parameters(frame, "centre", self.centre)
        _parameters(frame, "centre + amplitude", (centre + amplitude).tolist())
        _parameters(frame, "centre - amplitude", (centre - amplitude).tolist())
        return np.asarray(centre + amplitude * np.sin(2 * math.pi * t / self.period + self.phase)[:, None])


@dataclass(frozen=True)
class PiecewiseLinear(Drift):
    """theta* moves on straight lines through ``points[i]`` at round ``times[i]``.

    Parameters
    ----------
    times : strictly increasing rounds; theta* rests before the first and after the last
    points : the parameters at these rounds

    Examples
    --------
    >>> PiecewiseLinear([1, 5], [[1, 0], [0, 1]]).path(horizon=9, dim=2, S=1.0, lane_ids=1).at(3)
    array([[0.5, 0.5]])
    """

    kind: ClassVar[str] = "piecewise-linear"
    times: tuple[int, ...]
    points: tuple[Vector, ...]

    def __post_init__(self) -> None:
        self.set_fields(times=check_rounds("times", self.times, 1), points=check_vectors("points", self.points))
        _check_length("points", self.points, len(self.times), "as many as times")

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        _check_times(frame, self.times)
        points = _parameters(frame, "points", self.points)
        return np.stack([np.interp(t, self.times, axis) for axis in points.T], axis=1)


@dataclass(frozen=True)
class FunctionDrift(Drift):
    """theta* is given by a function.

    The function is called for every round when the path is made, so that a parameter outside the ball raises an error
    before a run.

    Parameters
    ----------
    function : ``function(t)`` returns theta*_t, the same at every call; or the name of a function, as ``"module:name"``

    Examples
    --------
    >>> FunctionDrift(lambda t: [1 / t, 0.0]).path(horizon=4, dim=2, S=1.0, lane_ids=1).at(4)
    array([[0.25, 0.  ]])
    """

    kind: ClassVar[str] = "function"
    function: Callable[[int], npt.ArrayLike] | str

    def __post_init__(self) -> None:
        is_name = isinstance(self.function, str) and all(self.function.partition(":"))
        if not (is_name or callable(self.function)):
            raise ArgumentError("function", self.function, 'callable, or text like "module:name"')

    def _load(self) -> Callable[[int], npt.ArrayLike]:
        if not isinstance(self.function, str):
            return self.function
        function = imported(self.function, "function")
        if not callable(function):
            raise ArgumentError("function", self.function, "the name of a callable")
        return cast("Callable[[int], npt.ArrayLike]", function)

    def _path(self, frame: Frame) -> Path:
        path = super()._path(frame)
        path.measure()
        return path

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        function = self._load()
        points = np.empty((len(t), frame.dim))
        for i, now in enumerate(t.tolist()):
            theta = check_array(f"function({now})", function(now), (frame.dim,))
            points[i] = _parameters(frame, f"function({now})", theta.tolist())
        return points


_ALL = (Static, Rotation, Arc, Turns, Switches, RandomSwitches, RandomWalk, Sinusoid, PiecewiseLinear, FunctionDrift)
DRIFTS: dict[str, type[Drift]] = {drift.kind: drift for drift in _ALL}
