"""Settings as data: constructor arguments are attributes, and what is derived from them."""

import inspect
import json
import sys
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import windvane as wv
from support.cases import CASES, every_policy
from support.policies import Skeleton
from support.refusals import refuses
from support.worlds import BENT, ball
from windvane import BVDGLMUCB, Discount, UniformRandom
from windvane.links import Link


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_constructor_arguments_are_attributes(case) -> None:
    """As given, but for a link's name; ``get_params`` has every argument, and ``config`` is plain data."""
    given = {"dim": 3, "lanes": [4, 1], "seed": 7}
    policy = case.factory(**given)
    params = policy.get_params()
    assert params.keys() == inspect.signature(type(policy)).parameters.keys()
    keywords = getattr(case.factory, "keywords", {})
    for name, value in (given | keywords).items():
        if isinstance(params[name], Link):
            assert value in (params[name], params[name].name)
        else:
            assert params[name] is value or params[name] == value
        assert getattr(policy, name) is params[name]
    config = policy.config()
    assert json.loads(json.dumps(config)) == config
    assert config["policy"] == policy.name
    again = type(policy)(**params)
    assert again.config_hash == policy.config_hash
    assert repr(again) == repr(policy)


def test_repr_shows_what_is_not_the_default() -> None:
    assert repr(BVDGLMUCB(2, gamma=0.9)) == "BVDGLMUCB(dim=2, gamma=0.9)"
    assert repr(BVDGLMUCB(2, "logistic", gamma=0.9, S=1.0, seed=0)) == "BVDGLMUCB(dim=2, gamma=0.9)"
    assert repr(wv.OFUL(5, lanes=[3, 4], delta=0.1)) == "OFUL(dim=5, lanes=[3, 4], delta=0.1)"
    assert repr(BVDGLMUCB(2, "probit", forgetting=Discount(0.9))) == (
        "BVDGLMUCB(dim=2, forgetting=Discount(gamma=0.9), link='probit')"
    )
    shown = repr(BVDGLMUCB(2, BENT, gamma=np.array([0.9, 0.99]), lanes=2, bonus_scale=[0.5, 1.0]))
    for part in ("gamma=[0.9 , 0.99]", "lanes=2", "link='bent'", "bonus_scale=[0.5, 1.0]"):
        assert part in shown
    assert len(repr(BVDGLMUCB(2, gamma=np.full(1000, 0.9), lanes=1000))) < 200


STEEPER = wv.CustomLink("bent", lambda z: 0.5 + 0.41 * np.tanh(z), lambda z: 0.41 / np.cosh(z) ** 2)


def fingerprint(**settings: Any) -> str:
    return BVDGLMUCB(**{"dim": 2, "gamma": 0.9} | settings).config_hash


OTHERS = [
    {"dim": 3}, {"gamma": 0.91}, {"gamma": [0.9, 0.8], "lanes": 2}, {"gamma": [0.8, 0.9], "lanes": 2}, {"seed": 1},
    {"gamma": None, "horizon": 100, "drift": 1.0}, {"horizon": 100}, {"arm_geometry": "general"}, {"S": 2.0},
    {"L": 2.0}, {"lam": 2.0}, {"sigma": 1.0}, {"delta": 0.1}, {"delta": [0.1, 0.2], "lanes": 2}, {"bonus_scale": 0.5},
    {"tolerance": 1e-7}, {"confidence": "anytime"}, {"gamma": None, "forgetting": Discount(0.9)},
    {"gamma": None, "forgetting": Discount(0.8)}, {"gamma": None, "forgetting": wv.Never()}, {"link": "probit"},
    {"link": BENT}, {"link": STEEPER},
]  # fmt: skip


def test_the_hash_tells_settings_apart() -> None:
    """Equal settings, however they were written, have equal hashes; all others differ; lanes do not count."""
    base = fingerprint()
    for same in ({}, {"lanes": 5}, {"lanes": [9]}, {"link": "logistic"}, {"link": wv.Logistic()},
                 {"gamma": 0.9 + 1e-15}, {"gamma": np.float64(0.9)}, {"gamma": np.array(0.9)}):  # fmt: skip
        assert fingerprint(**same) == base, same
    assert len({base, *(fingerprint(**settings) for settings in OTHERS)}) == 1 + len(OTHERS)
    assert fingerprint(gamma=[0.9, 0.8], lanes=2) == fingerprint(gamma=np.array([0.9, 0.8]), lanes=[3, 4])
    assert base != wv.DLinUCB(2, gamma=0.9).config_hash
    assert fingerprint(link=BENT) == fingerprint(link=wv.CustomLink("bent", BENT.mean, BENT.slope))


def test_settings_of_a_subclass_are_declared() -> None:
    """A subclass with a field of its own has it in its signature, ``get_params``, ``repr`` and hash."""

    class Bolder(Skeleton):
        boldness: float = 2.0
        name = "bolder"

        def __post_init__(self) -> None:
            super().__post_init__()
            self.bonus_scales *= self.boldness

    bold, plain = Bolder(2, gamma=0.9, boldness=3.0), Bolder(2, gamma=0.9)
    assert repr(bold) == "Bolder(dim=2, gamma=0.9, boldness=3.0)"
    assert repr(plain) == "Bolder(dim=2, gamma=0.9)"
    assert bold.get_params()["boldness"] == 3.0
    assert bold.config_hash != plain.config_hash
    with pytest.raises(TypeError, match="timidity"):
        Bolder(2, gamma=0.9, timidity=1.0)


@every_policy
def test_one_lane_is_still_an_axis(cls, settings) -> None:
    """What most people get wrong first is met with what to do about it, also where the one lane is all there is."""
    policy = cls(2, **settings)
    arms = np.full((4, 2), 0.3)
    for call in (policy.select, policy.probabilities):
        with refuses("arms") as caught:
            call(arms)
        assert caught.value.hint == "add a leading lanes axis: arms[None]"
        with refuses("arms") as caught:
            call(arms.tolist())
        assert caught.value.hint == "add a leading lanes axis: arms[None]"
        with refuses("arms") as caught:
            call(arms[None, None])
        assert not caught.value.hint
    policy.select(arms[None])


def test_uniform_play_in_a_ball_leaves_no_scores_of_the_decision_before() -> None:
    policy = UniformRandom(2)
    policy.select(np.full((1, 3, 2), 0.3))
    assert policy.info().decision.scores.shape == (1, 3)
    policy.select_from(wv.Ball(1.0))
    assert policy.info().decision.scores is None
    assert policy.info().decisions == 2


def python_frames(call: Any) -> list[str]:
    """The Python functions that ``call`` enters. A compiled kernel reports its source as entered: it does not count."""
    kernels = [module for name, module in sys.modules.items() if name.startswith("windvane.kernels.")]
    compiled = {f.py_func.__code__ for module in kernels for f in vars(module).values() if hasattr(f, "py_func")}
    entered: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code not in compiled:
            entered.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}")

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


def test_one_decision_of_bvd_glm_ucb_passes_few_python_frames() -> None:
    """At most 20, whether or not theta_hat is projected; the first decision may also allocate what it keeps."""
    policy, rng, stages = BVDGLMUCB(2, gamma=0.99, S=0.3, lam=0.1), np.random.default_rng(0), set()
    for t in range(60):
        arms = ball(rng, (1, 6), 2)
        frames = python_frames(partial(policy.select, arms))
        assert len(frames) <= 20 or t == 0, frames
        stages |= set(policy.info(estimates=False).decision.projection.stage.tolist())
        policy.update(arms[:, 0], float(arms[0, 0, 0] > 0))
    assert {1, 2} <= stages
