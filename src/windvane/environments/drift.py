"""Drifts: how theta* moves. ``path`` binds a drift to a horizon T, a dimension and lanes.

Turns are in the plane of the first two axes, on the circle of radius S; angles are in radians.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from windvane._importing import imported
from windvane.arguments import Array, Index, check_array, check_between, check_number, check_positive, check_whole
from windvane.environments.fields import Frame, Record, Vector, check_rounds, check_vectors, record, setting
from windvane.environments.paths import Curve, Path, SwitchingPath, WalkingPath
from windvane.errors import ArgumentError

_ANGLE = check_between, -1e6, 1e6  # the check of an angle; the sine of a larger one has few correct digits


class Drift(Record):
    """Base class of drifts.

    A subclass implements ``_thetas`` if all lanes share the path, and overrides ``_path`` otherwise.

    >>> Rotation().path(horizon=3000, dim=2, S=1.0, lane_ids=1).variation.round(4)
    array([1.5708])
    """

    def path(self, *, horizon: int, dim: int, S: float, lane_ids: int | Sequence[int] | Index, seed: int = 0) -> Path:
        """Return theta*_t for rounds 1..horizon in every lane: of dimension ``dim``, in the ball of radius S."""
        return self._path(Frame.check("S", S, dim, lane_ids, seed, horizon))

    def _path(self, frame: Frame) -> Path:
        path = Curve(frame, self._thetas)
        path.at(1)  # raises if the fields do not fit the arguments
        return path

    def _thetas(self, frame: Frame, t: Index) -> Array:
        """Return theta*_t, [rounds, dim]."""
        raise NotImplementedError

    def _turn(self, frame: Frame, angle: Array) -> Array:
        """Return the points on the circle of radius S at these angles from the first axis."""
        if frame.dim < 2:
            raise ArgumentError("dim", frame.dim, f"at least 2 for the drift {self.kind!r}, which turns in a plane")
        theta = np.zeros((len(angle), frame.dim))
        theta[:, 0], theta[:, 1] = frame.radius * np.cos(angle), frame.radius * np.sin(angle)
        return theta


@record("static")
class Static(Drift):
    """theta* does not move.

    >>> Static([0.6, 0.8]).path(horizon=9, dim=2, S=1.0, lane_ids=1).at(5)
    array([[0.6, 0.8]])
    """

    theta: Vector | None = setting("The parameter. Default: S e_1.", check_vectors, 1, default=None)

    def _thetas(self, frame: Frame, t: Index) -> Array:
        return np.tile(frame.check_points("theta", self.theta), (len(t), 1))


@record("rotation")
class Rotation(Drift):
    """theta* rests, turns, and rests, at angle ``angle`` clip((t/T - begin)/(end - begin), 0, 1) from the first axis.

    The defaults are those of the paper's experiment, with B_T = (2T/3) sin(3 pi/(4T)) S for T divisible by 3.

    >>> Rotation().path(horizon=9, dim=2, S=1.0, lane_ids=1).at(9).round(12)
    array([[0., 1.]])
    """

    angle: float = setting("The angle of the turn.", *_ANGLE, default=math.pi / 2)
    begin: float = setting("Start of the turn, as t/T.", check_number, "in [0, 1)", lambda v: 0 <= v < 1, default=1 / 3)
    end: float = setting("End of the turn, as t/T.", default=2 / 3)

    def __post_init__(self) -> None:
        super().__post_init__()
        expected = f"above begin={self.begin:g} and at most 1"
        self.set_field("end", check_number("end", self.end, expected, lambda v: self.begin < v <= 1))

    def _thetas(self, frame: Frame, t: Index) -> Array:
        progress = np.clip((t / frame.horizon - self.begin) / (self.end - self.begin), 0.0, 1.0)
        return self._turn(frame, self.angle * progress)


@record("arc")
class Arc(Drift):
    """theta* turns at constant speed: at angle ``start`` + ``angle`` t/T from the first axis.

    B_T = ``2 (T-1) S |sin(angle/(2T))|``.

    >>> Arc(angle=math.pi).path(horizon=8, dim=2, S=1.0, lane_ids=1).at(4).round(12)
    array([[0., 1.]])
    """

    angle: float = setting("The angle of the whole turn.", *_ANGLE, default=2 * math.pi)
    start: float = setting("The angle before the first round.", *_ANGLE, default=0.0)

    def _thetas(self, frame: Frame, t: Index) -> Array:
        return self._turn(frame, self.start + self.angle * (t / frame.horizon))


@record("turns")
class Turns(Drift):
    """theta* rests and then turns by ``angle``, in each of ``count`` equal periods.

    >>> Turns(count=2).path(horizon=8, dim=2, S=1.0, lane_ids=1).at(6).round(12)
    array([[0., 1.]])
    """

    count: int = setting("Number of periods.", check_whole, 1, 10**6, default=3)
    angle: float = setting("The angle of each turn.", *_ANGLE, default=math.pi / 2)
    share: float = setting(
        "Share of a period, at its end, spent turning.", check_number, "in (0, 1]", lambda v: 0 < v <= 1, default=0.5
    )

    def _thetas(self, frame: Frame, t: Index) -> Array:
        done, into = np.divmod(t * self.count, frame.horizon)  # exact integers, so that theta* does not move at rest
        progress = 1.0 + (into / frame.horizon - 1.0) / self.share
        return self._turn(frame, self.angle * (done + np.maximum(progress, 0.0)))


@record("switches")
class Switches(Drift):
    """theta* jumps at fixed rounds: it starts at ``thetas[0]`` and is ``thetas[i]`` from round ``times[i-1]`` on.

    >>> Switches([5], [[1, 0], [0, 1]]).path(horizon=9, dim=2, S=1.0, lane_ids=1).at(5)
    array([[0., 1.]])
    """

    times: tuple[int, ...] = setting("Strictly increasing rounds, from 2 on.", check_rounds, 2)
    thetas: tuple[Vector, ...] = setting("The parameters, one more than ``times``.", check_vectors)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_length("thetas", self.thetas, len(self.times) + 1, "one more than times")

    def _thetas(self, frame: Frame, t: Index) -> Array:
        _check_times(frame, self.times)
        segment = np.searchsorted(np.array(self.times, dtype=np.int64), t, side="right")
        return np.asarray(frame.check_points("thetas", self.thetas)[segment])


def _check_times(frame: Frame, times: tuple[int, ...]) -> None:
    if times and times[-1] > frame.horizon:
        raise ArgumentError("times", times, f"at most the horizon, {frame.horizon}")


def _check_length(name: str, vectors: tuple[Vector, ...], length: int, why: str) -> None:
    if len(vectors) != length:
        raise ArgumentError(name, vectors, f"a list of {length} vectors, {why}", got=f"{len(vectors)}")


@record("random-switches")
class RandomSwitches(Drift):
    """theta* jumps at random rounds between parameters uniform on the sphere of radius S; each lane has its own path.

    In one dimension the sphere has two points, so some jumps do not change the parameter.

    >>> RandomSwitches(3).path(horizon=100, dim=2, S=1.0, lane_ids=2).switches
    array([3, 3])
    """

    count: int = setting("Number of jumps, at distinct rounds uniform in 2..T.", check_whole, 0, 10**6)

    def _path(self, frame: Frame) -> Path:
        return SwitchingPath(frame, self.count)


@record("random-walk")
class RandomWalk(Drift):
    """theta* is a random walk in the ball of radius S; each lane has its own path.

    theta*_{t+1} is the projection onto the ball of theta*_t + ``step`` z / sqrt(d), z standard normal.

    >>> RandomWalk(0.1).path(horizon=9, dim=2, S=1.0, lane_ids=1).at(1)
    array([[1., 0.]])
    """

    step: float = setting("The root mean square length of a step.", check_positive)
    start: Vector | None = setting("The first parameter. Default: S e_1.", check_vectors, 1, default=None)

    def _path(self, frame: Frame) -> Path:
        return WalkingPath(frame, self.step, frame.check_points("start", self.start))


@record("sinusoid")
class Sinusoid(Drift):
    """theta* oscillates: ``centre`` + ``amplitude`` sin(2 pi t/``period`` + ``phase``).

    >>> Sinusoid(period=8).path(horizon=8, dim=2, S=1.0, lane_ids=1).at(2)
    array([[1., 0.]])
    """

    period: float = setting("Number of rounds of one oscillation.", check_positive)
    amplitude: Vector | None = setting("Largest displacement. Default: S e_1.", check_vectors, 1, default=None)
    centre: Vector | None = setting("Middle of the oscillation. Default: 0.", check_vectors, 1, default=None)
    phase: float = setting("The phase before the first round.", *_ANGLE, default=0.0)

    def _thetas(self, frame: Frame, t: Index) -> Array:
        amplitude = frame.check_points("amplitude", self.amplitude)
        centre = np.zeros(frame.dim) if self.centre is None else frame.check_points("centre", self.centre)
        frame.check_points("centre + amplitude", (centre + amplitude).tolist())
        frame.check_points("centre - amplitude", (centre - amplitude).tolist())
        return np.asarray(centre + amplitude * np.sin(2 * math.pi * t / self.period + self.phase)[:, None])


@record("piecewise-linear")
class PiecewiseLinear(Drift):
    """theta* moves on straight lines through ``points[i]`` at round ``times[i]``; it rests before and after them.

    >>> PiecewiseLinear([1, 5], [[1, 0], [0, 1]]).path(horizon=9, dim=2, S=1.0, lane_ids=1).at(3)
    array([[0.5, 0.5]])
    """

    times: tuple[int, ...] = setting("Strictly increasing rounds.", check_rounds, 1)
    points: tuple[Vector, ...] = setting("The parameters at these rounds.", check_vectors)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_length("points", self.points, len(self.times), "as many as times")

    def _thetas(self, frame: Frame, t: Index) -> Array:
        _check_times(frame, self.times)
        points = frame.check_points("points", self.points)
        return np.stack([np.interp(t, self.times, axis) for axis in points.T], axis=1)


@record("function")
class FunctionDrift(Drift):
    """theta* is a function of the round.

    The function must return the same value at every call. It is called for every round when the path is built, so that
    a parameter outside the ball raises an error before a run.

    >>> FunctionDrift(lambda t: [1 / t, 0.0]).path(horizon=4, dim=2, S=1.0, lane_ids=1).at(4)
    array([[0.25, 0.  ]])
    """

    function: Callable[[int], npt.ArrayLike] | str = setting('Function of t, or its name "module:name".')

    def __post_init__(self) -> None:
        is_name = isinstance(self.function, str) and all(self.function.partition(":"))
        if not (is_name or callable(self.function)):
            raise ArgumentError("function", self.function, 'callable, or text like "module:name"')

    def _path(self, frame: Frame) -> Path:
        path = super()._path(frame)
        path.follow()
        return path

    def _thetas(self, frame: Frame, t: Index) -> Array:
        function = imported(self.function, "function") if isinstance(self.function, str) else self.function
        if not callable(function):
            raise ArgumentError("function", self.function, "the name of a callable")
        points = np.empty((len(t), frame.dim))
        for i, now in enumerate(t.tolist()):
            name = f"function({now})"
            points[i] = frame.check_points(name, check_array(name, function(now), (frame.dim,)).tolist())
        return points


DRIFTS: dict[str, type[Drift]] = {drift.kind: drift for drift in Drift.__subclasses__()}
