"""What drifts, laws and environments refuse."""

from __future__ import annotations

import math
import pytest
from numpy.linalg import norm
from windvane import environments as E
from windvane.environments import Arc, BallArms, Environment, FixedArms, Rotation, Static, Switches

def outwards(t: int) -> list[float]:
    return [0.1 * t, 0.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: E.Static(["a"]), "theta="),
        (lambda: E.Static([math.nan, 0]), "theta="),
        (lambda: E.Static([]), "theta="),
        (lambda: path_of(E.Static([0.5])), "theta=.* dim=2"),
        (lambda: path_of(E.Static([1.0, 0.1])), "theta=.* norm 1.00498756, must be at most S=1"),
        (lambda: E.Rotation(begin=0.5, end=0.5), "end=0.5: .* begin=0.5"),
        (lambda: E.Rotation(begin=-0.1), "begin=-0.1"),
        (lambda: E.Rotation(angle=math.inf), "angle=inf"),
        (lambda: path_of(E.Rotation(), dim=1), "dim=1: rotation"),
        (lambda: path_of(E.Arc(), dim=1), "dim=1: arc"),
        (lambda: E.Turns(count=0), "count=0"),
        (lambda: E.Turns(share=0), "share=0"),
        (lambda: E.Switches([1], [[1, 0], [0, 1]]), r"times\[0\]=1"),
        (lambda: E.Switches([5, 5], [[1, 0]] * 3), "times=.*increasing"),
        (lambda: E.Switches([5], [[1, 0]]), "thetas=.* must be 2, one more than times, not 1"),
        (lambda: E.Switches(5, [[1, 0]]), "times=5"),
        (lambda: E.Switches([5], [[1, 0], [1]]), "thetas="),
        (lambda: path_of(E.Switches([61], [[1, 0], [0, 1]])), "times=.* horizon, 60"),
        (lambda: path_of(E.Switches([6], [[1, 0], [0, 2]])), "thetas=.* norm 2"),
        (lambda: E.RandomSwitches(-1), "count=-1"),
        (lambda: path_of(E.RandomSwitches(60)), "count=60: .*59"),
        (lambda: E.RandomWalk(0.0), "step=0.0"),
        (lambda: path_of(E.RandomWalk(0.1, [2, 0])), "start="),
        (lambda: E.Sinusoid(period=-3), "period=-3"),
        (lambda: path_of(E.Sinusoid(3, centre=[0.1, 0])), r"centre \+ amplitude=.* norm 1.1"),
        (lambda: E.PiecewiseLinear([1, 2], [[1, 0]]), "points="),
        (lambda: path_of(E.PiecewiseLinear([1, 70], [[1, 0]] * 2)), "times=.* horizon"),
        (lambda: E.FunctionDrift(3), "function=3"),
        (lambda: E.FunctionDrift("nowhere"), "function='nowhere'"),
        (lambda: path_of(E.FunctionDrift("nowhere:at_all")), "function='nowhere:at_all'"),
        (lambda: path_of(E.FunctionDrift("math:pi")), "function='math:pi'"),
        (lambda: path_of(E.FunctionDrift(outwards)), r"function\(11\)=.* norm 1.1"),
        (lambda: path_of(E.FunctionDrift(lambda _: [1.0])), r"function\(1\) has shape"),
        (lambda: path_of(E.FunctionDrift(lambda _: [math.nan, 0])), r"function\(1\)="),
        (lambda: path_of(E.Static()).at(0), "t=0"),
        (lambda: path_of(E.Static()).at(61), "t=61"),
        (lambda: path_of(E.Static(), T=0), "horizon=0"),
        (lambda: path_of(E.Static(), S=-1), "S=-1"),
        (lambda: path_of(E.Static(), lanes=[-1]), "lanes="),
        (lambda: E.BallArms(0), "count=0"),
        (lambda: E.BallArms(10**5).bind(dim=1000, L=1.0, lane_ids=1), "count=100000 and dim=1000"),
        (lambda: E.SphereArms(2).bind(dim=2, L=0, lane_ids=1), "L=0"),
        (lambda: E.CubeArms(2).bind(dim=2, L=1, lane_ids=1).at(0), "t=0"),
        (lambda: E.FixedArms([1, 0]), "arms="),
        (lambda: E.FixedArms([[1, 1]]).bind(dim=2, L=1, lane_ids=1), "arms=.* L=1"),
        (lambda: E.ComeAndGo("gaussian"), "law='gaussian'"),
        (lambda: E.ComeAndGo(lifetime=0), "lifetime=0"),
        (lambda: E.ComeAndGo(presence=1.1), "presence=1.1"),
        (lambda: E.Environment("static", E.BallArms(), horizon=3), "drift='static'"),
        (lambda: E.Environment(E.Static(), E.Static(), horizon=3), "arms=Static"),
        (lambda: E.Environment(E.Static(), E.BallArms(), 3, horizon=3), "rewards=3"),
        (lambda: E.Environment(E.Static(), E.BallArms(), delay=3, horizon=3), "delay=3"),
        (lambda: E.Environment(E.Static(), E.BallArms(), link="logit", horizon=3), "link='logit'"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3, seed=-1), "seed=-1"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3, dim=0), "dim=0"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3, intercept="x"), "intercept='x'"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3).round(4), "t=4"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3).reward(4, [0.5]), "t=4"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3).reward(1, [0.5, 0.5]), "means has shape"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3).reward(1, [math.nan]), "means=nan in lane 0"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3).reward(1, [1.5]), r"means=1.5 .*\[0, 1\]"),
    ],
)
def test_bad_arguments_are_refused_in_one_line_that_names_them(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        make()  # type: ignore[operator]
    assert "\n" not in str(refusal.value)
