"""The generalized-linear policies: what they have in common, what sets them apart, D-GLM-TS and OnePassGLM."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.linalg import norm
from scipy import stats

import naive
import windvane as wv
from support.cases import GLM_SETTINGS
from support.policies import ESTIMATES, decision, radius
from support.worlds import World, ball, draw_reward, play, same_state, teach, turning_theta
from windvane import BVDGLMUCB, OnePassGLM


def test_defaults_of_lam() -> None:
    c_mu = naive.constants(naive.LINKS["logistic"], 1.0, 1.0)[1]
    assert wv.GLBWeightUCB(3, gamma=0.9).estimator.lam == pytest.approx(3 / c_mu**2, rel=1e-12)
    scb = wv.SCBWeightUCB(3, gamma=0.9, horizon=500)
    assert scb.estimator.lam == pytest.approx(3 * math.log(500) / c_mu, rel=1e-12)
    for policy in (wv.SCDGLUCB(3, gamma=0.9, horizon=500), wv.SCSWGLUCB(3, window=9.0, horizon=500)):
        assert policy.estimator.ridge == pytest.approx(3 * math.log(500), rel=1e-12)


def test_one_pass_depends_on_the_order_of_rewards() -> None:
    """What ``is_one_pass`` leaves out of the suite does not hold for it, with a link that is not linear."""

    class Claiming(OnePassGLM):
        is_one_pass = False

    with pytest.raises(AssertionError, match=r"^check_late_rewards: theta_hat differs"):
        wv.check_policy(lambda **kw: Claiming(gamma=0.95, **kw))


CUSTOM = [wv.SCBWeightUCB, OnePassGLM, wv.DGLMTS, wv.SCSWGLUCB, wv.AdaptiveGLMUCB]


@pytest.mark.parametrize("cls", CUSTOM, ids=lambda cls: cls.name)
def test_a_custom_link(cls) -> None:
    """A custom copy of a built-in link gives the same run, to rounding."""
    copy = wv.CustomLink("copy", lambda z: 1 / (1 + np.exp(-z)), lambda z: 1 / (2 + np.exp(z) + np.exp(-z)))
    rng, runs = np.random.default_rng(3), []
    arms, coins = ball(rng, (25, 1, 4), 2), rng.random(25)
    for link in ("logistic", copy):
        policy, seen = cls(dim=2, link=link, S=0.3, **GLM_SETTINGS[cls]), []
        for x, coin in zip(arms, coins, strict=True):
            choice = policy.select(x)
            policy.update(x[:, choice[0]], float(coin < 0.8))
            info = policy.info()
            seen.append(np.concatenate([choice, info.theta_hat[0], info.theta_tilde[0]]))
        runs.append(np.array(seen))
    np.testing.assert_allclose(runs[0], runs[1], atol=1e-7)


def test_after_a_restart_a_policy_is_as_new() -> None:
    """It decides as one that began then; a reward from before is dropped."""
    rng = np.random.default_rng(6)
    old, new = wv.RestartGLB(2, restart_every=10), wv.RestartGLB(2, restart_every=10)
    for _ in range(10):
        old.update(ball(rng, (1,), 2), 1.0, round=old.t - 1) if old.t > 1 else None
        old.select(ball(rng, (1, 3), 2))
    old.update(ball(rng, (1,), 2), 1.0)
    np.testing.assert_array_equal(old.info().metric[0], np.eye(2))
    for _ in range(8):
        arms = ball(rng, (1, 3), 2)
        one, two = old.select(arms), new.select(arms)
        np.testing.assert_array_equal(decision(old).theta_hat, decision(new).theta_hat)
        np.testing.assert_array_equal(decision(old).beta, decision(new).beta)
        for policy, choice in ((old, one), (new, two)):
            policy.update(arms[:, choice[0]], 1.0)


def test_self_concordant_policies_do_not_mind_the_units_of_arms() -> None:
    """Arms of norm at most 2 and S = 1/2 are arms of norm at most 1 and S = 1."""
    rng = np.random.default_rng(7)
    for cls, settings in ((wv.SCDGLUCB, {"switches": 2}), (wv.SCSWGLUCB, {"window": 30.0})):
        large = cls(2, horizon=300, S=0.5, L=2.0, lanes=3, **settings)
        small = cls(2, horizon=300, S=1.0, L=1.0, lanes=3, **settings)
        for t in range(60):
            arms = ball(rng, (3, 5), 2)
            choice = small.select(arms)
            np.testing.assert_array_equal(large.select(2 * arms), choice)
            np.testing.assert_allclose(decision(large).beta, decision(small).beta, rtol=1e-12)
            x = arms[np.arange(3), choice]
            reward = draw_reward(rng, "logistic", x @ turning_theta(t, 60, 2, 1.0))
            small.update(x, reward)
            large.update(2 * x, reward)


RELATIVES = {  # a policy and the BVD-GLM-UCB that it is as long as theta_hat needs no projection
    "GLM-UCB": (wv.GLMUCB, {"S": 4.0, "lam": 20.0}, {"gamma": 1.0}),
    "GLB-WeightUCB": (wv.GLBWeightUCB, {"gamma": 0.98, "lam": 60.0}, {}),
}


@pytest.mark.parametrize(("cls", "settings", "more"), RELATIVES.values(), ids=RELATIVES)
def test_relatives_are_bvd_glm_ucb_while_theta_hat_is_inside(cls, settings, more) -> None:
    world = World(3, 2), World(3, 2)
    relative, bvd = cls(2, **settings, lanes=3), BVDGLMUCB(2, **settings, **more, lanes=3)
    for _ in range(150):
        assert (play(relative, world[0], 1) == play(bvd, world[1], 1)).all()
        assert (norm(relative.info().theta_hat, axis=1) < relative.S).all()
        one, other = decision(relative), decision(bvd)
        if cls is wv.GLMUCB:
            assert (one.projection.stage == 1).all()
            assert (one.projection.value == other.projection.value).all()
        assert (one.theta_tilde == other.theta_tilde).all()
        assert (one.beta == other.beta).all()
    mine, theirs = relative.state(), bvd.state()
    assert mine.pop("config") != theirs.pop("config")
    assert mine.pop("checksum") != theirs.pop("checksum")
    assert same_state(mine, theirs)


SINGULAR = {wv.DGLMTS: {"link": "identity", "gamma": 1.0}, wv.SCBWeightUCB: {"gamma": 0.99}, BVDGLMUCB: {"gamma": 0.99}}


@pytest.mark.parametrize(("cls", "settings"), SINGULAR.items())
@pytest.mark.parametrize("lam", [1e-18, 1e-50])
def test_next_to_no_regularisation(cls, settings, lam: float) -> None:
    """Matrices that are singular to rounding do not stop a policy."""
    policy, x = cls(3, lam=lam, **settings), np.array([[[0.5, 0.5, 0.5], [0.4, 0.4, 0.4]]])
    for t in range(6):
        policy.update(x[:, policy.select(x)[0]], float(t % 2))
    policy.select_from(wv.Ball(1.0))
    assert np.isfinite(policy.info().theta_hat).all()


def test_a_singular_lane_does_not_change_its_neighbour() -> None:
    def play(lanes: list[int]) -> np.ndarray:
        policy, arms = wv.DGLMTS(2, gamma=0.99, lam=1e-5, lanes=lanes), np.tile(np.eye(2), (len(lanes), 1, 1))
        for _ in range(3):
            policy.select(arms)
            policy.update(arms[:, 0], 1.0, weight=np.where(np.array(lanes) == 0, 1e12, 1.0))
        return policy.info().theta_tilde[lanes.index(1)]

    np.testing.assert_array_equal(play([0, 1]), play([1]))


# --- D-GLM-TS ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_samples_follow_the_laplace_approximation(dim: int) -> None:
    """In lanes that all know the same."""
    lanes, scale, rng, link = 6000, 0.5, np.random.default_rng(9), naive.LINKS["logistic"]
    policy = wv.DGLMTS(dim, gamma=0.97, lanes=lanes, posterior_scale=scale)
    history = naive.NaiveHistory(dim, link, 0.97, 1.0, naive.constants(link, 1.0, 1.0)[1])
    for t in range(1, 41):
        x, reward = ball(rng, (), dim), float(rng.random() < 0.6)
        policy.advance(1.0)
        policy.update(np.tile(x, (lanes, 1)), reward, round=t)
        history.append(x, reward, t)
    mode = naive.theta_hat(history, policy.t, link, history.ridge)
    first = policy.info().theta_tilde
    white = (first - mode) @ np.linalg.cholesky(history.H(mode, policy.t)) / scale
    for i in range(dim):
        assert stats.kstest(white[:, i], "norm").pvalue > 1e-3
    assert np.abs(np.cov(white.T).reshape(dim, dim) - np.eye(dim)).max() < 5 * math.sqrt(2 / lanes)
    assert (policy.info().theta_tilde == first).all()  # asking twice is not drawing twice
    policy.select(np.zeros((lanes, 2, dim)))
    assert (policy.info().theta_tilde != first).all()  # another decision, another draw


# --- OnePassGLM -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.99, 1.0])
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_one_pass_stays_close_to_maximum_likelihood(gamma: float, dim: int) -> None:
    """In the metric of the Hessian, where the estimate's own standard error is about 1 in each direction: a tenth."""
    settings: dict[str, Any] = {"dim": dim, "gamma": gamma, "lanes": 20}
    one, full = OnePassGLM(**settings), BVDGLMUCB(**settings)
    teach([one, full], np.random.default_rng([12, dim]), 600, 1.0, turns=0.25)
    theta_hat = full.info().theta_hat
    H, gap = full.estimator.moments(theta_hat)[1], one.info().theta_hat - theta_hat
    assert np.sqrt(np.einsum("li,lij,lj->l", gap, H, gap) / dim).mean() < 0.1
    # V sums slopes between c_mu and k_mu where H has slopes between mu'(|theta_hat|) and k_mu
    relative = np.linalg.eigvals(np.linalg.solve(H, one.info().metric)).real
    flattest = naive.LINKS["logistic"].slope(norm(theta_hat, axis=1))
    assert (relative >= 1 / full.constants.R_mu - 1e-9).all()
    assert (relative.max(axis=1) <= full.constants.k_mu / flattest + 1e-9).all()


def test_one_pass_keeps_no_history() -> None:
    rng, policy, sizes = np.random.default_rng(13), OnePassGLM(3, gamma=1.0, lanes=2), set()
    for _ in range(50):
        arms = ball(rng, (2, 4), 3)
        policy.update(arms[np.arange(2), policy.select(arms)], 1.0)
        sizes.add(sum(array.nbytes for array in policy.state().values()))
    assert len(sizes) == 1
    assert policy.info().remembered is None
    assert policy.estimator.history.size == 0


def test_one_pass_masks_and_zero_weights() -> None:
    policy, untouched = (OnePassGLM(2, gamma=0.9, lanes=3) for _ in range(2))
    x = np.array([[0.5, 0.1], [0.3, 0.2], [np.nan, 1.0]])
    ignored = {"weight": [1.0, 0.0, np.nan], "mask": [True, True, False]}
    for t in range(1, 6):
        policy.advance(1.0)
        untouched.advance(1.0)
        policy.update(x, 1.0, round=float(t), **ignored)
    info, other = policy.info(), untouched.info()
    for name in ESTIMATES:
        np.testing.assert_array_equal(getattr(info, name)[1:], getattr(other, name)[1:])
    assert (info.theta_hat[0] != 0).all()


def test_the_bonus_of_one_pass_is_at_most_half_of_the_papers() -> None:
    """k_mu / sqrt(c_mu) ||x|| in its V^-1 against 2 R_mu ||x|| in the V^-1 of BVD-GLM-UCB, fed the same."""
    rng, settings = np.random.default_rng(14), {"dim": 3, "gamma": 0.98, "lanes": 4, "S": 2.0}
    one, paper = OnePassGLM(**settings), BVDGLMUCB(**settings)
    teach([one, paper], rng, 60, 2.0)
    np.testing.assert_array_equal(radius(one), radius(paper))
    k_mu, c_mu, _ = naive.constants(naive.LINKS["logistic"], 2.0, 1.0)
    np.testing.assert_allclose(one.bonus_factors, k_mu / math.sqrt(c_mu), rtol=1e-9)
    arms = ball(rng, (4, 50), 3)
    half = 0.5 * paper.bonus(arms, paper.bonus_factors)
    assert (one.bonus(arms, one.bonus_factors) <= half * (1 + 1e-12)).all()
