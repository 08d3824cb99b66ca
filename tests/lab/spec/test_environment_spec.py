"""Environments of specs from files and from Gymnasium, in a run and in the fingerprint."""

from __future__ import annotations

import functools
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from support.spec_objects import a_spec, refused, with_environment
from windvane.environments import BallArms, Environment, LoggedPath, Rotation
from windvane.environments.gymnasium import BanditEnv
from windvane.lab import simulate
from windvane.lab.spec.experiment_spec import EnvironmentSpec, GymnasiumSpec, PolicySpec, Spec


def make_bandit() -> BanditEnv:
    return BanditEnv(Environment(Rotation(), BallArms(count=4), horizon=40))


def make_nothing() -> str:
    return "nothing"


def make_wide() -> gymnasium.Env:
    world = Environment(Rotation(), BallArms(count=4), L=2.0, horizon=40)
    return BanditEnv(world)


GAME = GymnasiumSpec("game", make_bandit)


def write_path(path: Path, rows: int) -> np.ndarray:
    angles = np.linspace(0.0, 1.5, rows)
    thetas = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    lines = "".join(f"{a!r},{b!r}\n" for a, b in thetas.tolist())
    path.write_text(f"first,second\n{lines}")
    return thetas


def test_a_logged_path_is_a_world(tmp_path: Path) -> None:
    thetas = write_path(tmp_path / "theta.csv", 60)
    environment = EnvironmentSpec("logged", LoggedPath(str(tmp_path / "theta.csv")), BallArms(count=3))
    spec = Spec([environment], [PolicySpec("BVD-GLM-UCB"), PolicySpec("OFUL")], runs=2, horizon=50)
    results = simulate(spec, tmp_path / "out", jobs=1)
    length = np.linalg.norm(np.diff(thetas[:50], axis=0), axis=1).sum()
    assert results.entries[0].drift == pytest.approx(length)
    assert results.entries[0].path.theta_star == pytest.approx(thetas[:50])
    assert results.spec.environments[0].drift.sha256 is not None


def test_the_content_of_a_logged_path_counts_and_not_its_name(tmp_path: Path) -> None:
    for name, rows in (("one.csv", 60), ("same.csv", 60), ("other.csv", 61)):
        write_path(tmp_path / name, rows)
    one, same, other = (
        with_environment(drift=LoggedPath(str(tmp_path / name), stretch=True))
        for name in ("one.csv", "same.csv", "other.csv")
    )
    assert one.fingerprint() == same.fingerprint() != other.fingerprint()
    pinned = one.pin()
    assert pinned.fingerprint() == one.fingerprint()
    write_path(tmp_path / "one.csv", 59)
    with refused("environments[0].drift.sha256"):
        pinned.check()
    (tmp_path / "one.csv").unlink()
    with refused("environments[0].drift.file"):
        one.check()


def test_flags_are_flags_and_numbers_are_numbers() -> None:
    text = with_environment(drift=LoggedPath(thetas=[[1, 0], [0, 1]], stretch=True)).to_toml()
    assert Spec.parse(text).environments[0].drift.stretch is True
    with refused("environments[0].drift.stretch", "spec:15"):
        Spec.parse(text.replace("stretch = true", "stretch = 1"))
    with refused("environments[0].drift.thetas[0][0]", "spec:15"):
        Spec.parse(text.replace("[1.0,", "[true,"))


def test_a_gymnasium_environment_runs_in_an_experiment(tmp_path: Path) -> None:
    """It gives the rewards of the world that it wraps, since there and back every reward is the same."""
    assert GAME.make == "test_environment_spec:make_bandit"
    policies = [PolicySpec("UniformRandom"), PolicySpec("OFUL")]
    results = simulate(Spec([GAME], policies, runs=3, horizon=40), tmp_path / "out", jobs=2)
    world = EnvironmentSpec("game", Rotation(), BallArms(count=4))
    direct = simulate(Spec([world], policies, runs=3, horizon=40), tmp_path / "direct", jobs=1)
    random, reference = results.entries[0], direct.entries[0]
    np.testing.assert_array_equal(random.reward, reference.reward)
    np.testing.assert_allclose(random.final, 40 - random.reward)
    assert np.isnan(random.drift).all()


def test_mistakes_in_gymnasium_environments_are_located() -> None:
    for spec, field in (
        (GymnasiumSpec("g", make_nothing), "make"),
        (GymnasiumSpec("g", "nowhere:make"), "make"),
        (GymnasiumSpec("g", make_bandit, arms="os:sep"), "arms"),
    ):
        with refused(f"environments[0].{field}"):
            a_spec(environments=[spec]).check()
    for fields, place in (
        ({"make": "no_colon"}, "make"),
        ({"make": functools.partial(make_bandit)}, "make"),
        ({"make": make_bandit, "reward_range": (1, 0)}, "reward_range"),
        ({"make": make_bandit, "reward_range": (0, 1, 2)}, "reward_range"),
    ):
        with refused(place):
            GymnasiumSpec("g", **fields)
    with refused("environments[0].L"):
        a_spec(environments=[GymnasiumSpec("g", make_wide)], horizon=40).check()


def test_gymnasium_environments_are_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened, closed = [], []
    monkeypatch.setattr(BanditEnv, "close", lambda self: closed.append(id(self)))
    original = BanditEnv.__init__
    monkeypatch.setattr(BanditEnv, "__init__", lambda self, world: opened.append(id(self)) or original(self, world))
    simulate(Spec([GAME], [PolicySpec("OFUL")], runs=3, horizon=5), tmp_path, jobs=1)
    assert opened
    assert sorted(opened) == sorted(closed)


def test_the_source_of_a_gymnasium_environment_counts() -> None:
    game = a_spec(environments=[GAME], horizon=40)
    assert game.fingerprint() == a_spec(environments=[GAME], horizon=40).fingerprint()
    assert game.fingerprint() != a_spec(environments=[GymnasiumSpec("game", make_wide)], horizon=40).fingerprint()
    assert Spec.parse(game.to_toml()) == game
