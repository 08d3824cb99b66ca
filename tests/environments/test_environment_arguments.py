"""What drifts, laws and environments refuse."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from support.laws import path_of
from support.refusals import refuses
from windvane import environments as E


def outwards(t: int) -> list[float]:
    return [0.1 * t, 0.0]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: E.Static(["a"]), "theta"),
        (lambda: E.Static([math.nan, 0]), "theta"),
        (lambda: E.Static([]), "theta"),
        (lambda: path_of(E.Static([0.5])), "theta"),
        (lambda: path_of(E.Static([1.0, 0.1])), "theta"),
        (lambda: E.Rotation(begin=0.5, end=0.5), "end"),
        (lambda: E.Rotation(begin=-0.1), "begin"),
        (lambda: E.Rotation(angle=math.inf), "angle"),
        (lambda: path_of(E.Rotation(), dim=1), "dim"),
        (lambda: path_of(E.Arc(), dim=1), "dim"),
        (lambda: E.Turns(count=0), "count"),
        (lambda: E.Turns(share=0), "share"),
        (lambda: E.Switches([1], [[1, 0], [0, 1]]), "times"),
        (lambda: E.Switches([5, 5], [[1, 0]] * 3), "times"),
        (lambda: E.Switches([5], [[1, 0]]), "thetas"),
        (lambda: E.Switches(5, [[1, 0]]), "times"),
        (lambda: E.Switches([5], [[1, 0], [1]]), "thetas"),
        (lambda: path_of(E.Switches([61], [[1, 0], [0, 1]])), "times"),
        (lambda: path_of(E.Switches([6], [[1, 0], [0, 2]])), "thetas"),
        (lambda: E.RandomSwitches(-1), "count"),
        (lambda: path_of(E.RandomSwitches(60)), "count"),
        (lambda: E.RandomWalk(0.0), "step"),
        (lambda: path_of(E.RandomWalk(0.1, [2, 0])), "start"),
        (lambda: E.Sinusoid(period=-3), "period"),
        (lambda: path_of(E.Sinusoid(3, centre=[0.1, 0])), "centre"),
        (lambda: E.PiecewiseLinear([1, 2], [[1, 0]]), "points"),
        (lambda: path_of(E.PiecewiseLinear([1, 70], [[1, 0]] * 2)), "times"),
        (lambda: E.FunctionDrift(3), "function"),
        (lambda: E.FunctionDrift("nowhere"), "function"),
        (lambda: path_of(E.FunctionDrift("nowhere:at_all")), "function"),
        (lambda: path_of(E.FunctionDrift("math:pi")), "function"),
        (lambda: path_of(E.FunctionDrift(outwards)), "function"),
        (lambda: path_of(E.FunctionDrift(lambda _: [1.0])), "function"),
        (lambda: path_of(E.FunctionDrift(lambda _: [math.nan, 0])), "function"),
        (lambda: path_of(E.Static()).at(0), "t"),
        (lambda: path_of(E.Static()).at(61), "t"),
        (lambda: path_of(E.Static(), T=0), "horizon"),
        (lambda: path_of(E.Static(), S=-1), "S"),
        (lambda: path_of(E.Static(), lanes=[-1]), "lanes"),
        (lambda: E.BallArms(0), "count"),
        (lambda: E.BallArms(10**5).bind(dim=1000, L=1.0, lane_ids=1), "count"),
        (lambda: E.SphereArms(2).bind(dim=2, L=0, lane_ids=1), "L"),
        (lambda: E.CubeArms(2).bind(dim=2, L=1, lane_ids=1).at(0), "t"),
        (lambda: E.FixedArms([1, 0]), "arms"),
        (lambda: E.FixedArms([[1, 1]]).bind(dim=2, L=1, lane_ids=1), "arms"),
        (lambda: E.ComeAndGo("gaussian"), "law"),
        (lambda: E.ComeAndGo(lifetime=0), "lifetime"),
        (lambda: E.ComeAndGo(presence=1.1), "presence"),
        (lambda: E.Environment("static", E.BallArms(), horizon=3), "drift"),
        (lambda: E.Environment(E.Static(), E.Static(), horizon=3), "arms"),
        (lambda: E.Environment(E.Static(), E.BallArms(), 3, horizon=3), "rewards"),
        (lambda: E.Environment(E.Static(), E.BallArms(), delay=3, horizon=3), "delay"),
        (lambda: E.Environment(E.Static(), E.BallArms(), link="logit", horizon=3), "link"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3, seed=-1), "seed"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3, dim=0), "dim"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3, intercept="x"), "intercept"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3).round(4), "t"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3).reward(4, [0.5]), "t"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3).reward(1, [0.5, 0.5]), "means"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3).reward(1, [math.nan]), "means"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3).reward(1, [1.5]), "means"),
    ],
)
def test_refused_arguments_are_named(make: Callable[[], Any], name: str) -> None:
    with refuses(name):
        make()
