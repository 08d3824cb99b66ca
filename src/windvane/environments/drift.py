"""Drifts: how theta* moves. Each is a small frozen record; ``path`` binds it to a horizon, a dimension and lanes.

==================  ====================================================================================================
kind                theta*_t, for a norm bound S and a horizon T
==================  ====================================================================================================
static              one parameter (by default S e_1)
rotation            rests at S e_1 until ``begin`` T, turns by ``angle`` at constant speed until ``end`` T, rests
arc                 turns at constant speed over the whole horizon, by ``angle`` in all
turns               ``count`` equal periods; in each it rests, then turns by ``angle`` in the last ``share`` of it
switches            ``thetas[i]`` from round ``times[i-1]`` on
random-switches     ``count`` switches at random times, each lane its own, between parameters uniform on the sphere
random-walk         theta + ``step`` z / sqrt(d), z standard normal, projected onto the ball; each lane its own
sinusoid            ``centre`` + ``amplitude`` sin(2 pi t / ``period`` + ``phase``)
piecewise-linear    straight lines through ``points`` at rounds ``times``; rests before the first and after the last
function            ``function(t)``
==================  ====================================================================================================

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
from windvane.environments.fields import (
    LATEST,
    Vector,
    check_norms,
    check_optional_vector,
    check_rounds,
    check_vectors,
    set_fields,
)
from windvane.environments.paths import Curve, Frame, Path, Rounds, SwitchingPath, WalkingPath
from windvane.errors import ArgumentError


class Drift:
    """Base class of drifts: frozen dataclasses with a ``kind``.

    A subclass implements ``_thetas`` if all lanes share the path, and overrides ``_path`` otherwise.

    Examples
    --------
    >>> Rotation().path(horizon=3000, dim=2, S=1.0, lane_ids=1).variation.round(4)
    array([1.5708])
    """

    kind: ClassVar[str]

    def path(self, *, horizon: int, dim: int, S: float, lane_ids: int | Sequence[int] | Rounds, seed: int = 0) -> Path:
        """Return theta*_t for rounds 1..horizon in every lane.

        Parameters
        ----------
        horizon : number of rounds T
        dim : dimension of the parameter
        S : bound on the norm of parameters
        lane_ids : a number of lanes, or lane ids
        seed : seed of the random numbers
        """
        return self._path(
            Frame(
                check_whole("horizon", horizon, 1, LATEST),
                check_whole("dim", dim, 1),
                check_positive("S", S),
                check_lanes(lane_ids),  # type: ignore[arg-type]
                check_whole("seed", seed, 0, 2**64 - 1),
            )
        )

    def _path(self, frame: Frame) -> Path:
        path = Curve(frame, self._thetas)
        path.at(1)  # raises if the fields do not fit the arguments
        return path

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        """Return theta*_t, [rounds, dim]."""
        raise NotImplementedError


def _first_axis(frame: Frame) -> Array:
    """Return S e_1."""
    return np.asarray(frame.S * np.eye(frame.dim)[0])


def _check_parameters(frame: Frame, name: str, points: Any) -> Array:
    return check_norms(name, points, frame.dim, frame.S, "S")


def _turn(frame: Frame, kind: str, angle: Array) -> Array:
    """Return the points on the circle of radius S at these angles from the first axis."""
    if frame.dim < 2:
        raise ArgumentError("dim", frame.dim, f"at least 2 for the drift {kind!r}, which turns in a plane")
    theta = np.zeros((len(angle), frame.dim))
    theta[:, 0], theta[:, 1] = frame.S * np.cos(angle), frame.S * np.sin(angle)
    return theta


def _check_angle(name: str, value: Any) -> float:
    return check_number(name, value, "within [-1e6, 1e6]", lambda v: abs(v) <= 1e6)


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
    theta: Vector | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        set_fields(self, theta=check_optional_vector("theta", self.theta))

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        theta = _first_axis(frame) if self.theta is None else _check_parameters(frame, "theta", self.theta)
        return np.tile(theta, (len(t), 1))


@dataclass(frozen=True)
class Rotation(Drift):
    """theta* rests, turns, rests: at angle ``angle`` clip((t/T - begin)/(end - begin), 0, 1) from the first axis.

    Parameters
    ----------
    angle : the angle of the turn
    begin, end : when the turn begins and ends, as shares of the horizon

    Notes
    -----
    The defaults are the paper's experiment, with B_T = (2T/3) sin(3 pi/(4T)) S for T divisible by 3.

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
        """Check the fields."""
        begin = check_number("begin", self.begin, "in [0, 1)", lambda v: 0 <= v < 1)
        end = check_number("end", self.end, f"above begin={begin:g} and at most 1", lambda v: begin < v <= 1)
        set_fields(self, angle=_check_angle("angle", self.angle), begin=begin, end=end)

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        turned = np.clip((t / frame.horizon - self.begin) / (self.end - self.begin), 0.0, 1.0)
        return _turn(frame, self.kind, self.angle * turned)


@dataclass(frozen=True)
class Arc(Drift):
    """theta* turns at constant speed: at angle ``start`` + ``angle`` t/T from the first axis.

    Parameters
    ----------
    angle : the angle of the whole turn
    start : the angle before the first round

    Notes
    -----
    B_T = 2 (T-1) S |sin(angle/(2T))|.

    Examples
    --------
    >>> Arc(angle=math.pi).path(horizon=8, dim=2, S=1.0, lane_ids=1).at(4).round(12)
    array([[0., 1.]])
    """

    kind: ClassVar[str] = "arc"
    angle: float = 2 * math.pi
    start: float = 0.0

    def __post_init__(self) -> None:
        """Check the fields."""
        set_fields(self, angle=_check_angle("angle", self.angle), start=_check_angle("start", self.start))

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
    count: int = 3
    angle: float = math.pi / 2
    share: float = 0.5

    def __post_init__(self) -> None:
        """Check the fields."""
        share = check_number("share", self.share, "in (0, 1]", lambda v: 0 < v <= 1)
        set_fields(
            self, count=check_whole("count", self.count, 1, 10**6), angle=_check_angle("angle", self.angle), share=share
        )

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
        """Check the fields."""
        set_fields(self, times=check_rounds("times", self.times, 2), thetas=check_vectors("thetas", self.thetas))
        if len(self.thetas) != len(self.times) + 1:
            wanted = f"a list of {len(self.times) + 1} vectors, one more than times"
            raise ArgumentError("thetas", self.thetas, wanted, got=f"{len(self.thetas)}")

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        _check_times(frame, self.times)
        segment = np.searchsorted(np.array(self.times, dtype=np.int64), t, side="right")
        return np.asarray(_check_parameters(frame, "thetas", self.thetas)[segment])


def _check_times(frame: Frame, times: tuple[int, ...]) -> None:
    if times and times[-1] > frame.horizon:
        raise ArgumentError("times", times, f"at most the horizon, {frame.horizon}")


@dataclass(frozen=True)
class RandomSwitches(Drift):
    """theta* jumps at random rounds between parameters uniform on the sphere of radius S; each lane has its own path.

    Parameters
    ----------
    count : number of jumps, at distinct rounds uniform in 2..T

    Notes
    -----
    In one dimension the sphere has two points, so that some jumps do not change the parameter.

    Examples
    --------
    >>> RandomSwitches(3).path(horizon=100, dim=2, S=1.0, lane_ids=2).switches
    array([3, 3])
    """

    kind: ClassVar[str] = "random-switches"
    count: int

    def __post_init__(self) -> None:
        """Check the fields."""
        set_fields(self, count=check_whole("count", self.count, 0, 10**6))

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

    Parameters
    ----------
    step : the root mean square length of a step
    start : the first parameter; by default S e_1

    Notes
    -----
    theta*_{t+1} is the projection onto the ball of theta*_t + ``step`` z / sqrt(d), z standard normal.

    Examples
    --------
    >>> RandomWalk(0.1).path(horizon=9, dim=2, S=1.0, lane_ids=1).at(1)
    array([[1., 0.]])
    """

    kind: ClassVar[str] = "random-walk"
    step: float
    start: Vector | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        set_fields(
            self,
            step=check_positive("step", self.step),
            start=check_optional_vector("start", self.start),
        )

    def _path(self, frame: Frame) -> Path:
        start = _first_axis(frame) if self.start is None else _check_parameters(frame, "start", self.start)
        return WalkingPath(frame, self.step, start)


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
    period: float
    amplitude: Vector | None = None
    centre: Vector | None = None
    phase: float = 0.0

    def __post_init__(self) -> None:
        """Check the fields."""
        set_fields(
            self,
            period=check_positive("period", self.period),
            amplitude=check_optional_vector("amplitude", self.amplitude),
            centre=check_optional_vector("centre", self.centre),
            phase=_check_angle("phase", self.phase),
        )

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        amplitude = (
            _first_axis(frame) if self.amplitude is None else _check_parameters(frame, "amplitude", self.amplitude)
        )
        centre = np.zeros(frame.dim) if self.centre is None else _check_parameters(frame, "centre", self.centre)
        _check_parameters(frame, "centre + amplitude", (centre + amplitude).tolist())
        _check_parameters(frame, "centre - amplitude", (centre - amplitude).tolist())
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
        """Check the fields."""
        set_fields(self, times=check_rounds("times", self.times, 1), points=check_vectors("points", self.points))
        if len(self.points) != len(self.times):
            wanted = f"a list of {len(self.times)} vectors, as many as times"
            raise ArgumentError("points", self.points, wanted, got=f"{len(self.points)}")

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        _check_times(frame, self.times)
        points = _check_parameters(frame, "points", self.points)
        return np.stack([np.interp(t, self.times, axis) for axis in points.T], axis=1)


@dataclass(frozen=True)
class FunctionDrift(Drift):
    """theta* is given by a function.

    Parameters
    ----------
    function : ``function(t)`` returns theta*_t, the same at every call; or the name of a function, as ``"module:name"``

    Notes
    -----
    The function is called for every round when the path is made, so that a parameter outside the ball raises an error
    before a run.

    Examples
    --------
    >>> FunctionDrift(lambda t: [1 / t, 0.0]).path(horizon=4, dim=2, S=1.0, lane_ids=1).at(4)
    array([[0.25, 0.  ]])
    """

    kind: ClassVar[str] = "function"
    function: Callable[[int], npt.ArrayLike] | str

    def __post_init__(self) -> None:
        """Check the fields."""
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
            points[i] = _check_parameters(frame, f"function({now})", theta.tolist())
        return points


DRIFTS: dict[str, type[Drift]] = {
    drift.kind: drift
    for drift in (
        Static,
        Rotation,
        Arc,
        Turns,
        Switches,
        RandomSwitches,
        RandomWalk,
        Sinusoid,
        PiecewiseLinear,
        FunctionDrift,
    )
}
