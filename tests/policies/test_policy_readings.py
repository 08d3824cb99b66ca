"""What can be read of a policy."""

import numpy as np
import pytest

from support import access
from support.cases import CONTRACT, every_policy
from support.worlds import SIGMA, World, ball, draw_reward, play, same_state
from windvane import BVDGLMUCB, GLMUCB, OFUL, DLinUCB, Policy

ALWAYS = {"t", "decisions", "root_passes", "root_error", "truncation_error", "remembered", "memory"}
OF_A_DECISION = {
    "BVD-GLM-UCB": {"theta_hat", "theta_tilde", "beta", "stage", "value", "residual"},
    "GLM-UCB": {"theta_hat", "theta_tilde", "beta", "stage", "value", "residual"},
    "D-LinUCB": {"theta_hat", "theta_tilde", "beta"},
    "OFUL": {"theta_hat", "theta_tilde", "beta"},
    "skeleton": {"theta_hat"},
}


@every_policy
def test_info_keys(cls, settings) -> None:
    """Before a decision the estimator's diagnostics; after it also the decision's, one entry a lane."""
    policy = cls(2, **settings, lanes=3)
    assert set(policy.info()) == ALWAYS
    play(policy, World(3, 2), 3)
    info = policy.info()
    assert set(info) == ALWAYS | OF_A_DECISION[cls.name]
    assert info["t"] == 4.0
    assert info["decisions"] == 3
    for name, value in info.items():
        if name not in ("t", "decisions"):
            assert value.shape == ((3, 2) if name.startswith("theta") else (3,)), name
    expected = 0 if cls in (DLinUCB, OFUL) else 3  # linear policies keep no history
    assert (info["remembered"] == expected).all()


def readings(policy: Policy) -> dict[str, np.ndarray]:
    """Everything a policy lets one read, as arrays."""
    names = ("gamma", "theta_hat", "theta_tilde", "V", "V_tilde", "b")
    arrays = {name: support_policies.read(policy, name) for name in names if hasattr(policy, name)}
    arrays |= {name: value for name, value in policy.info().items() if isinstance(value, np.ndarray)}
    arrays |= {f"state {name}": value for name, value in policy.state().items()}
    if hasattr(policy, "radius"):
        arrays["radius"] = policy.radius()
    if hasattr(policy, "beta"):
        arrays["beta(t)"] = policy.beta(policy.t)
    assert repr(policy)
    assert policy.config_hash
    return arrays


@pytest.mark.parametrize("factory", CONTRACT.values(), ids=CONTRACT)
def test_reading_never_changes_the_run(factory) -> None:
    """Nor does writing to what was read: properties, info() and state() hand out copies."""
    read, silent = (factory(dim=2, lanes=2, seed=0) for _ in range(2))
    worlds = World(2, 2, L=read.L), World(2, 2, L=read.L)
    for _ in range(25):
        for policy, world in zip((read, silent), worlds, strict=True):
            arms = world.arms()
            index = policy.select(arms)
            x = arms[np.arange(2), index]
            reward = world.rewards(x)
            if policy is read:
                for array in readings(policy).values():
                    array[...] = np.zeros((), dtype=array.dtype)
            policy.update(x, reward)
            if policy is read:
                for array in readings(policy).values():
                    array[...] = np.zeros((), dtype=array.dtype)
    assert same_state(read.state(), silent.state())


@pytest.mark.parametrize("cls", [BVDGLMUCB, GLMUCB])
def test_theta_tilde_is_what_the_next_decision_uses(cls) -> None:
    """The property before select and info() after it agree bit for bit, in every stage of the projection."""
    policy = cls(2, S=0.2, lam=0.05, delta=1.0, **({"gamma": 0.99} if cls is BVDGLMUCB else {}))
    world = World(1, 2)
    outside = 0
    for _ in range(60):
        tilde, hat = policy.info().theta_tilde, policy.info().theta_hat
        play(policy, world, 1)
        assert (policy.info().theta_tilde == tilde).all()
        assert (policy.info().theta_hat == hat).all()
        outside += int(np.linalg.norm(hat) > 0.2)
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
            norms = np.linalg.norm(each.info().theta_tilde, axis=1)
            assert (norms <= S * (1 + 1e-12)).all()
            outside = np.linalg.norm(each.info().theta_hat, axis=1) > S
            np.testing.assert_allclose(norms[outside], S, rtol=1e-6)
        stages |= set(decision(policy).projection.stage.tolist())
    assert stages == {1, 2, 3} if dim <= 2 else {1, 2} <= stages
