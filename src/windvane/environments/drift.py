"""Drifts: how theta* moves. Each is a small frozen record; ``path`` binds it to a horizon, a dimension and lanes.

==================  ====================================================================================================
kind                theta*_t, for a norm bound S and a horizon T
==================  ====================================================================================================
static              one parameter (default S e_1)
rotation            rests at S e_1 until ``begin`` T, turns by ``angle`` at constant speed until ``end`` T, rests
arc                 turns at constant speed over the whole horizon, by ``angle`` in all
turns               ``count`` equal periods; in each it rests, then turns by ``angle`` in the last ``share`` of it
switches            ``thetas[i]`` from round ``times[i-1]`` on
random-switches     ``count`` switches at random times, each lane its own, between parameters uniform on the sphere
random-walk         theta + ``step`` z / sqrt(d), z standard normal, projected onto the ball; each lane its own
sinusoid            ``centre`` + ``amplitude`` sin(2 pi t / ``period`` + ``phase``)
piecewise-linear    straight lines through ``points`` at rounds ``times``; rests before the first and after the last
function            whatever ``function(t)`` says
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
from windvane.environments._fields import LATEST, Vector, keep, rounds, vector, vectors, within
from windvane.environments.paths import Curve, Frame, Path, Rounds, SwitchingPath, WalkingPath
from windvane.errors import format_value


class Drift:
    """A way for theta* to move. Subclasses are frozen dataclasses with a ``kind``.

    Where all lanes share the path, a subclass gives ``_thetas``; else it overrides ``_path``.
    """

    kind: ClassVar[str]

    def path(self, *, horizon: int, dim: int, S: float, lane_ids: int | Sequence[int] | Rounds, seed: int = 0) -> Path:
        """theta*_t for rounds 1..horizon in every lane; refused where a parameter would leave the ball of radius S."""
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
        path.at(1)  # refuses fields that do not fit
        return path

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        """theta*_t, [rounds, dim]."""
        raise NotImplementedError


def _first_axis(frame: Frame) -> Array:
    """S e_1."""
    return np.asarray(frame.S * np.eye(frame.dim)[0])


def _parameters(frame: Frame, name: str, points: Any) -> Array:
    return within(name, points, frame.dim, frame.S, "S")


def _turned(frame: Frame, kind: str, angle: Array) -> Array:
    """The points on the circle of radius S at these angles from the first axis."""
    if frame.dim < 2:
        raise ValueError(f"dim={frame.dim}: {kind} turns in a plane, it needs at least 2")
    theta = np.zeros((len(angle), frame.dim))
    theta[:, 0], theta[:, 1] = frame.S * np.cos(angle), frame.S * np.sin(angle)
    return theta


def _angle(name: str, value: Any) -> float:
    return check_number(name, value, "within [-1e6, 1e6]", lambda v: abs(v) <= 1e6)


@dataclass(frozen=True)
class Static(Drift):
    """theta* stays where it is: at ``theta``, by default S e_1."""

    kind: ClassVar[str] = "static"
    theta: Vector | None = None

    def __post_init__(self) -> None:
        keep(self, theta=None if self.theta is None else vector("theta", self.theta))

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        theta = _first_axis(frame) if self.theta is None else _parameters(frame, "theta", self.theta)
        return np.tile(theta, (len(t), 1))


@dataclass(frozen=True)
class Rotation(Drift):
    """Rest, turn, rest: at angle ``angle`` clip((t/T - begin)/(end - begin), 0, 1) from the first axis.

    The defaults are the paper's experiment, with B_T = (2T/3) sin(3 pi/(4T)) S for T divisible by 3.
    """

    kind: ClassVar[str] = "rotation"
    angle: float = math.pi / 2
    begin: float = 1 / 3
    end: float = 2 / 3

    def __post_init__(self) -> None:
        begin = check_number("begin", self.begin, "in [0, 1)", lambda v: 0 <= v < 1)
        end = check_number("end", self.end, f"above begin={begin:g} and at most 1", lambda v: begin < v <= 1)
        keep(self, angle=_angle("angle", self.angle), begin=begin, end=end)

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        turned = np.clip((t / frame.horizon - self.begin) / (self.end - self.begin), 0.0, 1.0)
        return _turned(frame, self.kind, self.angle * turned)


@dataclass(frozen=True)
class Arc(Drift):
    """Constant speed over the whole horizon: at angle ``start`` + ``angle`` t/T. B_T = 2 (T-1) S |sin(angle/(2T))|."""

    kind: ClassVar[str] = "arc"
    angle: float = 2 * math.pi
    start: float = 0.0

    def __post_init__(self) -> None:
        keep(self, angle=_angle("angle", self.angle), start=_angle("start", self.start))

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        return _turned(frame, self.kind, self.start + self.angle * (t / frame.horizon))


@dataclass(frozen=True)
class Turns(Drift):
    """``count`` equal periods, each a rest and then a turn by ``angle`` during the last ``share`` of the period."""

    kind: ClassVar[str] = "turns"
    count: int = 3
    angle: float = math.pi / 2
    share: float = 0.5

    def __post_init__(self) -> None:
        share = check_number("share", self.share, "in (0, 1]", lambda v: 0 < v <= 1)
        keep(self, count=check_whole("count", self.count, 1, 10**6), angle=_angle("angle", self.angle), share=share)

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        done, into = np.divmod(t * self.count, frame.horizon)  # whole numbers: a rest is exactly at rest
        turned = 1.0 + (into / frame.horizon - 1.0) / self.share
        return _turned(frame, self.kind, self.angle * (done + np.maximum(turned, 0.0)))


@dataclass(frozen=True)
class Switches(Drift):
    """Jumps: ``thetas[0]`` first, ``thetas[i]`` from round ``times[i-1]`` on."""

    kind: ClassVar[str] = "switches"
    times: tuple[int, ...]
    thetas: tuple[Vector, ...]

    def __post_init__(self) -> None:
        keep(self, times=rounds("times", self.times, 2), thetas=vectors("thetas", self.thetas))
        if len(self.thetas) != len(self.times) + 1:
            wanted = f"must be {len(self.times) + 1}, one more than times"
            raise ValueError(f"thetas={format_value(self.thetas)}: {wanted}, not {len(self.thetas)}")

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        _before_end(frame, self.times)
        segment = np.searchsorted(np.array(self.times, dtype=np.int64), t, side="right")
        return np.asarray(_parameters(frame, "thetas", self.thetas)[segment])


def _before_end(frame: Frame, times: tuple[int, ...]) -> None:
    if times and times[-1] > frame.horizon:
        raise ValueError(f"times={format_value(times)}: must be within the horizon, {frame.horizon}")


@dataclass(frozen=True)
class RandomSwitches(Drift):
    """``count`` jumps at distinct rounds uniform in 2..T between parameters uniform on the sphere of radius S.

    Each lane has its own. In one dimension the sphere has two points, so that some jumps go nowhere.
    """

    kind: ClassVar[str] = "random-switches"
    count: int

    def __post_init__(self) -> None:
        keep(self, count=check_whole("count", self.count, 0, 10**6))

    def _path(self, frame: Frame) -> Path:
        if self.count > frame.horizon - 1:
            raise ValueError(f"count={self.count}: must be at most horizon - 1 = {frame.horizon - 1}")
        from windvane.kernels.random import LARGEST_BLOCK

        most = LARGEST_BLOCK + 1  # the counter of the generator has room for no more numbers in one round of a lane
        if (self.count + 1) * frame.dim > most:
            raise ValueError(f"count={self.count} and dim={frame.dim}: (count + 1) dim must be at most {most}")
        return SwitchingPath(frame, self.count)


@dataclass(frozen=True)
class RandomWalk(Drift):
    """theta*_{t+1} = the projection onto the ball of radius S of theta*_t + ``step`` z / sqrt(d), z standard normal.

    It starts at ``start``, by default S e_1; each lane has its own.
    """

    kind: ClassVar[str] = "random-walk"
    step: float
    start: Vector | None = None

    def __post_init__(self) -> None:
        keep(
            self,
            step=check_positive("step", self.step),
            start=None if self.start is None else vector("start", self.start),
        )

    def _path(self, frame: Frame) -> Path:
        start = _first_axis(frame) if self.start is None else _parameters(frame, "start", self.start)
        return WalkingPath(frame, self.step, start)


@dataclass(frozen=True)
class Sinusoid(Drift):
    """``centre`` + ``amplitude`` sin(2 pi t/``period`` + ``phase``); by default about 0, with amplitude S e_1."""

    kind: ClassVar[str] = "sinusoid"
    period: float
    amplitude: Vector | None = None
    centre: Vector | None = None
    phase: float = 0.0

    def __post_init__(self) -> None:
        keep(
            self,
            period=check_positive("period", self.period),
            amplitude=None if self.amplitude is None else vector("amplitude", self.amplitude),
            centre=None if self.centre is None else vector("centre", self.centre),
            phase=_angle("phase", self.phase),
        )

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        amplitude = _first_axis(frame) if self.amplitude is None else _parameters(frame, "amplitude", self.amplitude)
        centre = np.zeros(frame.dim) if self.centre is None else _parameters(frame, "centre", self.centre)
        _parameters(frame, "centre + amplitude", (centre + amplitude).tolist())
        _parameters(frame, "centre - amplitude", (centre - amplitude).tolist())
        return np.asarray(centre + amplitude * np.sin(2 * math.pi * t / self.period + self.phase)[:, None])


@dataclass(frozen=True)
class PiecewiseLinear(Drift):
    """Straight lines through ``points[i]`` at round ``times[i]``; rests before the first and after the last."""

    kind: ClassVar[str] = "piecewise-linear"
    times: tuple[int, ...]
    points: tuple[Vector, ...]

    def __post_init__(self) -> None:
        keep(self, times=rounds("times", self.times, 1), points=vectors("points", self.points))
        if len(self.points) != len(self.times):
            raise ValueError(
                f"points={format_value(self.points)}: must be as many as the {len(self.times)} times, not {len(self.points)}"
            )

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        _before_end(frame, self.times)
        points = _parameters(frame, "points", self.points)
        return np.stack([np.interp(t, self.times, axis) for axis in points.T], axis=1)


@dataclass(frozen=True)
class FunctionDrift(Drift):
    """Any path: ``function(t)`` gives theta*_t, the same whenever it is asked. Or its name, as ``"module:name"``.

    It is called for every round when it is bound, so that a parameter outside the ball is refused before a run.
    """

    kind: ClassVar[str] = "function"
    function: Callable[[int], npt.ArrayLike] | str

    def __post_init__(self) -> None:
        named = isinstance(self.function, str) and all(self.function.partition(":"))
        if not (named or callable(self.function)):
            raise ValueError(f"function={format_value(self.function)}: must be callable, or text like 'module:name'")

    def _found(self) -> Callable[[int], npt.ArrayLike]:
        if not isinstance(self.function, str):
            return self.function
        try:
            found = imported(self.function)
        except ValueError as error:
            raise ValueError(f"function={self.function!r}: {error}") from error
        if not callable(found):
            raise ValueError(f"function={self.function!r}: must name a callable")
        return cast("Callable[[int], npt.ArrayLike]", found)

    def _path(self, frame: Frame) -> Path:
        path = super()._path(frame)
        path.measure()
        return path

    def _thetas(self, frame: Frame, t: Rounds) -> Array:
        function = self._found()
        points = np.empty((len(t), frame.dim))
        for i, moment in enumerate(t.tolist()):
            theta = check_array(f"function({moment})", function(moment), (frame.dim,))
            points[i] = _parameters(frame, f"function({moment})", theta.tolist())
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
