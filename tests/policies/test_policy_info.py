"""What ``info()`` tells about a policy."""

import numpy as np
import pytest

from support.cases import every_policy
from support.policies import decision, known
from support.worlds import SIGMA, World, ball, draw_reward, play
from windvane import BVDGLMUCB, GLMUCB, OFUL, DLinUCB

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
    world = World(1, 2)
    outside = 0
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
        far = 6.0 if t < 75 else -6.0
        reward = draw_reward(rng, link, np.clip(far * x[:, 0], -2, 2))
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
