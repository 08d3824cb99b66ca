"""Settings as data: constructor arguments are attributes; what is derived from them, and what ``info()`` tells."""

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
from support.policies import Skeleton, decision, known
from support.refusals import refuses_unchanged
from support.worlds import BENT, SIGMA, World, ball, draw_reward, play
from windvane import BVDGLMUCB, GLMUCB, OFUL, Discount, DLinUCB, UniformRandom
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
    assert repr(OFUL(5, lanes=[3, 4], delta=0.1)) == "OFUL(dim=5, lanes=[3, 4], delta=0.1)"
    assert repr(BVDGLMUCB(2, "probit", forgetting=Discount(0.9))) == (
        "BVDGLMUCB(dim=2, forgetting=Discount(gamma=0.9), link='probit')"
    )
    shown = repr(BVDGLMUCB(2, BENT, gamma=np.array([0.9, 0.99]), lanes=2, bonus_scale=[0.5, 1.0]))
    for part in ("gamma=[0.9 , 0.99]", "lanes=2", "link='bent'", "bonus_scale=[0.5, 1.0]"):
        assert part in shown
    assert len(repr(BVDGLMUCB(2, gamma=np.full(1000, 0.9), lanes=1000))) < 200


STEEPER = wv.CustomLink("bent", lambda z: 0.5 + 0.41 * np.tanh(z), lambda z: 0.41 / np.cosh(z) ** 2)


def build(**settings: Any) -> BVDGLMUCB:
    return BVDGLMUCB(**{"dim": 2, "gamma": 0.9} | settings)


def fingerprint(**settings: Any) -> str:
    return build(**settings).config_hash


OTHERS = [
    {"dim": 3}, {"gamma": 0.91}, {"gamma": [0.9, 0.8], "lanes": 2}, {"gamma": [0.8, 0.9], "lanes": 2}, {"seed": 1},
    {"gamma": None, "horizon": 100, "drift": 1.0}, {"horizon": 100}, {"arm_geometry": "general"}, {"S": 2.0},
    {"L": 2.0}, {"lam": 2.0}, {"sigma": 1.0}, {"delta": 0.1}, {"delta": [0.1, 0.2], "lanes": 2}, {"bonus_scale": 0.5},
    {"tolerance": 1e-7}, {"confidence": "anytime"}, {"gamma": None, "forgetting": Discount(0.9)},
    {"gamma": None, "forgetting": Discount(0.8)}, {"gamma": None, "forgetting": wv.Never()}, {"link": "probit"},
    {"link": BENT}, {"link": STEEPER},
]  # fmt: skip


def test_the_hash_tells_settings_apart() -> None:
    base = fingerprint()
    for same in ({}, {"lanes": 5}, {"lanes": [9]}, {"link": "logistic"}, {"link": wv.Logistic()},
                 {"gamma": 0.9 + 1e-15}, {"gamma": np.float64(0.9)}, {"gamma": np.array(0.9)}):  # fmt: skip
        assert fingerprint(**same) == base, same
    assert len({base, *(fingerprint(**settings) for settings in OTHERS)}) == 1 + len(OTHERS)
    assert fingerprint(gamma=[0.9, 0.8], lanes=2) == fingerprint(gamma=np.array([0.9, 0.8]), lanes=[3, 4])
    assert base != DLinUCB(2, gamma=0.9).config_hash
    assert fingerprint(link=BENT) == fingerprint(link=wv.CustomLink("bent", BENT.mean, BENT.slope))
    assert fingerprint(seed=2**53) != fingerprint(seed=2**53 + 1)
    BVDGLMUCB(2, gamma=0.9, S=2.0).load_state(BVDGLMUCB(2, gamma=0.9, S=2).state())  # whole numbers and floats


@pytest.mark.parametrize("settings", OTHERS, ids=str)
def test_a_state_of_other_settings_is_refused(settings: dict[str, Any]) -> None:
    source, policy = build(**settings), build(lanes=settings.get("lanes", 1))
    play(source, World(source.lane_count, source.dim, L=0.9), 3)
    refuses_unchanged(policy, "state", lambda: policy.load_state(source.state()))


def test_settings_of_a_subclass_are_declared() -> None:
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


# --- info() -----------------------------------------------------------------------------------------------------------

CLOCK = {"t", "decisions"}
ESTIMATES = {"theta_hat", "theta_tilde", "metric", "squared_metric", "b", "gamma", "memory"}
OF_A_HISTORY = {"remembered", "root_passes", "root_error", "truncation_error"}
OF_A_DECISION = {"scores", "means", "theta_hat", "theta_tilde", "beta", "multiplier"}
SHAPES = {"theta_hat": (3, 2), "theta_tilde": (3, 2), "b": (3, 2), "metric": (3, 2, 2), "squared_metric": (3, 2, 2)}


@every_policy
def test_fields(cls, settings) -> None:
    """Before a decision the clock and the estimates; after it also the decision's; one entry a lane."""
    policy = cls(2, **settings, lanes=3)
    linear = cls in (DLinUCB, OFUL)  # these keep no history
    expected = CLOCK | ESTIMATES | (set() if linear else OF_A_HISTORY)
    assert set(known(policy.info())) == expected
    assert set(known(policy.info(estimates=False))) == CLOCK
    play(policy, World(3, 2), 3)
    info = policy.info()
    assert set(known(info)) == {*expected, "decision"}
    assert set(known(policy.info(estimates=False))) == {*CLOCK, "decision"}
    assert (info.t, info.decisions) == (4.0, 3)
    for name in expected - CLOCK:
        assert getattr(info, name).shape == SHAPES.get(name, (3,)), name
    assert linear or (info.remembered == 3).all()
    projected = {"projection"} if cls in (BVDGLMUCB, GLMUCB) else set()
    assert set(known(info.decision)) == OF_A_DECISION | projected
    for name in OF_A_DECISION - {"scores", "means"}:
        assert getattr(info.decision, name).shape == SHAPES.get(name, (3,)), name
    for name in projected and ("stage", "value", "residual"):
        assert getattr(info.decision.projection, name).shape == (3,)
    assert info.decision.scores.shape == info.decision.means.shape == (3, 4)
    told = info.to_dict()
    assert set(told) == {*expected, "decision"}
    assert set(told["decision"]) == OF_A_DECISION | projected


@pytest.mark.parametrize("cls", [BVDGLMUCB, GLMUCB])
def test_theta_tilde_is_what_the_next_decision_uses(cls) -> None:
    """``info()`` before and after select agree bit for bit, in every stage of the projection."""
    policy = cls(2, S=0.2, lam=0.05, delta=1.0, **({"gamma": 0.99} if cls is BVDGLMUCB else {}))
    world, outside = World(1, 2), 0
    for _ in range(60):
        before = policy.info()
        play(policy, world, 1)
        assert (decision(policy).theta_tilde == before.theta_tilde).all()
        assert (decision(policy).theta_hat == before.theta_hat).all()
        outside += int(np.linalg.norm(before.theta_hat) > 0.2)
    assert outside > 10


@pytest.mark.parametrize("link", ["logistic", "poisson", "probit", "identity"])
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_theta_tilde_stays_in_the_ball(link: str, dim: int) -> None:
    """||theta_tilde|| <= S in every stage, to rounding, even where theta_hat is far outside; then on the border."""
    S, rng, stages = 0.25, np.random.default_rng(dim), set()
    policy = BVDGLMUCB(dim, link, gamma=[0.9, 0.99, 0.999, 1.0], S=S, lam=0.01, sigma=SIGMA[link], delta=1.0, lanes=4)
    glm = GLMUCB(dim, link, S=S, lam=0.01, sigma=SIGMA[link], lanes=4)
    for t in range(150):
        x = ball(rng, (4,), dim)
        reward = draw_reward(rng, link, np.clip((6.0 if t < 75 else -6.0) * x[:, 0], -2, 2))
        for each in (policy, glm):
            each.select(x[:, None])
            each.update(x, reward)
            info = each.info()
            norms = np.linalg.norm(info.theta_tilde, axis=1)
            assert (norms <= S * (1 + 1e-12)).all()
            outside = np.linalg.norm(info.theta_hat, axis=1) > S
            np.testing.assert_allclose(norms[outside], S, rtol=1e-6)
        stages |= set(decision(policy).projection.stage.tolist())
    assert stages == {1, 2, 3} if dim <= 2 else {1, 2} <= stages


def test_predictions_do_not_change_the_record_of_the_last_decision() -> None:
    policy, arms = BVDGLMUCB(2, gamma=0.9), np.eye(2)[None]
    policy.select(arms)
    record = decision(policy)
    means = record.means
    policy.predict(arms, np.ones((1, 2)))
    assert record.means is means
    policy.select(arms)
    assert decision(policy) is not record


def test_uniform_play_in_a_ball_leaves_no_scores_of_the_decision_before() -> None:
    policy = UniformRandom(2)
    policy.select(np.full((1, 3, 2), 0.3))
    assert policy.info().decision.scores.shape == (1, 3)
    policy.select_from(wv.Ball(1.0))
    assert policy.info().decision.scores is None
    assert policy.info().decisions == 2
