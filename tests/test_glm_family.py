"""The generalized-linear family: policies against literal transcriptions, radii against the printed formulas."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
from numpy.linalg import norm, solve
from scipy import stats

import naive
from test_against_naive import compare
from windvane import (
    BVDGLMUCB,
    DGLMTS,
    DGLUCB,
    POLICIES,
    SCDGLUCB,
    SCSWGLUCB,
    SWBVDGLMUCB,
    SWGLUCB,
    Ball,
    CustomLink,
    DLinUCB,
    GLBWeightUCB,
    OnePassGLMUCB,
    Policy,
    RestartGLB,
    SCBWeightUCB,
    Sphere,
    check_policy,
    theory,
)
from windvane.policies.glm_index import GLMIndex
from worlds import SIGMA, ball, draw_reward, turning_theta

BENT = CustomLink("bent", lambda z: 0.5 + 0.4 * np.tanh(z), lambda z: 0.4 / np.cosh(z) ** 2)

# --- literal transcriptions ------------------------------------------------------------------------------------------


class NaiveWindow(naive.NaiveBVDGLMUCB):
    """SW-BVD-GLM-UCB: weight 1 on the last w rounds; beta with min(t, w) for the weighted count."""

    def __init__(self, dim: int, window: float, **settings: Any) -> None:
        super().__init__(dim, **settings)
        self.window = window
        self.history = naive.NaiveHistory(dim, self.link, 1.0, self.lam, self.ridge, window)

    def radius(self, delta: float) -> float:
        count = min(self.t, self.window)
        log_term = 2 * np.log(1 / delta) + self.dim * np.log(1 + self.L**2 * count / (self.lam * self.dim))
        return float(np.sqrt(self.lam) * self.c_mu * self.S + self.sigma * np.sqrt(log_term))


class NaiveDGLUCB(naive.NaiveBVDGLMUCB):
    """P0 in the metric V_tilde^-1."""

    def project(self, X: np.ndarray, w: np.ndarray) -> None:
        self.theta_tilde, self.value = naive.p0(
            X, w, self.b, self.V_tilde, self.S, self.ridge, self.link, self.theta_hat
        )
        self.stage = 1 if norm(self.theta_hat) <= self.S else 2


class NaiveSWGLUCB(NaiveDGLUCB, NaiveWindow):
    pass


class Unprojected(naive.NaiveBVDGLMUCB):
    def project(self, X: np.ndarray, w: np.ndarray) -> None:
        self.theta_tilde, self.stage = self.theta_hat, 1 if norm(self.theta_hat) <= self.S else 2


class NaiveRestart(Unprojected):
    """RestartGLB: all is forgotten every H rounds; R_mu in the bonus, not 2 R_mu; t - t_0 rounds in the radius."""

    def __init__(self, dim: int, restart_every: int, **settings: Any) -> None:
        super().__init__(dim, **settings)
        self.H, self.born = restart_every, 1

    def radius(self, delta: float) -> float:
        log_term = 2 * np.log(1 / delta) + self.dim * np.log(
            1 + (self.t - self.born) * self.L**2 / (self.lam * self.dim)
        )
        return float(np.sqrt(self.lam) * self.c_mu * self.S + self.sigma * np.sqrt(log_term))

    def bonus(self, x: np.ndarray) -> float:
        return float(self.R_mu * self.beta * np.sqrt(x @ solve(self.V, x)))

    def update(self, x: np.ndarray, reward: float, round: float | None = None, weight: float = 1.0) -> None:
        decided = self.t - 1
        if decided % self.H == 0:  # the round just decided was the last of its epoch
            self.history = naive.NaiveHistory(self.dim, self.link, 1.0, self.lam, self.ridge)
            self.born = self.t
        else:
            super().update(x, reward, round, weight)


class NaiveSCB(naive.NaiveBVDGLMUCB):
    """SCB-WeightUCB."""

    def radius(self, delta: float) -> float:
        m, lc = 2 * self.sigma, self.lam * self.c_mu
        g = self.gamma
        ratio = self.t if g == 1 else (1 - g ** (2 * self.t)) / (1 - g**2)
        return float(
            np.sqrt(lc) / (2 * m)
            + 2 * m / np.sqrt(lc) * (np.log(1 / delta) + self.dim * np.log(2))
            + self.dim * m / np.sqrt(lc) * np.log(1 + self.L**2 * self.k_mu * ratio / (lc * self.dim))
            + np.sqrt(lc) * self.S
        )

    def bonus(self, x: np.ndarray) -> float:
        factor = 2 * np.sqrt(1 + 2 * self.S) * self.k_mu / np.sqrt(self.c_mu)
        return float(factor * self.beta * np.sqrt(x @ solve(self.V, x)))

    def project(self, X: np.ndarray, w: np.ndarray) -> None:
        self.theta_tilde, self.stage = self.theta_hat, 1
        if norm(self.theta_hat) > self.S:
            start = self.S * self.theta_hat / norm(self.theta_hat)
            data = (X, w, self.b, self.ridge, self.link)
            self.theta_tilde, self.stage = naive.slsqp(lambda theta: h_objective(theta, *data), start, [self.S]), 2


def h_value(theta: np.ndarray, X: np.ndarray, w: np.ndarray, b: np.ndarray, ridge: float, link) -> float:
    """|g(theta) - b|^2 / 2 in the metric H(theta)^-1."""
    gap = naive.g(theta, X, w, ridge, link) - b
    return 0.5 * float(gap @ solve(naive.H(theta, X, w, ridge, link), gap))


def h_objective(theta: np.ndarray, *data: Any) -> tuple[float, np.ndarray]:
    """... and its gradient by central differences."""
    step = 1e-5 * np.eye(len(theta))
    gradient = [(h_value(theta + e, *data) - h_value(theta - e, *data)) / 2e-5 for e in step]
    return h_value(theta, *data), np.array(gradient)


def sc_radii(
    d: int, S: float, lam: float, m: float, delta: float, k: float, T: int, gamma: float = 1.0, n: float | None = None
) -> tuple[float, float]:
    """(inside, outside) of SC-D-GLUCB, or of SC-SW-GLUCB where n = min(t, tau) is given."""
    count = (1 - T**-2) / (1 - gamma**2) if n is None else n
    S_bar = S + (2 * S * k + m) / (T * lam * (1 - gamma)) if n is None else S
    rho = (
        math.sqrt(lam) / (2 * m)
        + 2 * m / math.sqrt(lam) * (math.log(T / delta) + d * math.log(2))
        + d * m / math.sqrt(lam) * math.log(1 + k * count / (d * lam))
    )
    inside = k * math.sqrt(1 + 2 * S) * (math.sqrt(lam) * S + rho)
    base = 1 + S_bar + math.sqrt((1 + S_bar) / lam) * rho + (rho / math.sqrt(lam)) ** 2
    return inside, k * math.sqrt(lam) * base**1.5


class NaiveSC(Unprojected):
    """SC-D-GLUCB; ``lam`` is the paper's: the ridge of the likelihood, with lam / c_mu in V."""

    tau: float | None = None

    def __init__(self, dim: int, *, lam: float, T: int, gamma: float = 1.0, **settings: Any) -> None:
        super().__init__(dim, gamma=gamma, lam=lam, **settings)
        self.T = T
        self.history = naive.NaiveHistory(dim, self.link, gamma, lam / self.c_mu, lam, self.tau)
        self.ridge = lam

    def project(self, X: np.ndarray, w: np.ndarray) -> None:
        super().project(X, w)
        n = None if self.tau is None else min(self.t, self.tau)
        radii = sc_radii(self.dim, self.S, self.lam, 2 * self.sigma, self.delta, self.k_mu, self.T, self.gamma, n)
        self.beta = radii[self.stage - 1]

    def bonus(self, x: np.ndarray) -> float:
        return float(self.beta / np.sqrt(self.c_mu) * np.sqrt(x @ solve(self.V, x)))


class NaiveSCSW(NaiveSC):
    def __init__(self, dim: int, *, window: float, **settings: Any) -> None:
        self.tau = window
        super().__init__(dim, **settings)


DIMS = pytest.mark.parametrize("dim", [1, 2, 5])
LINKS = pytest.mark.parametrize("link", ["logistic", "poisson", "probit"])


@DIMS
@LINKS
@pytest.mark.parametrize(("fast", "slow"), [(SWBVDGLMUCB, NaiveWindow), (SWGLUCB, NaiveSWGLUCB)])
@pytest.mark.parametrize("window", [15.0, 80.0])
def test_windows(fast, slow, dim: int, link: str, window: float) -> None:
    settings = {"dim": dim, "link": link, "sigma": SIGMA[link], "window": window}
    compare(fast(**settings), slow(**settings), link, 160, 12, dim, 1.0)


@pytest.mark.parametrize("dim", [2, 5])
def test_a_window_where_p2_is_solved_in_full(dim: int) -> None:
    """theta* far outside the assumed ball, little regularisation: the value of P2 is positive."""
    settings = {"dim": dim, "window": 150.0, "S": 0.3, "lam": 0.01, "sigma": 0.5, "delta": 1.0}
    stages = compare(SWBVDGLMUCB(**settings), NaiveWindow(**settings), "logistic", 250, 15, 7, 6.0)
    assert stages.get(3, 0) >= 3, stages


@DIMS
@LINKS
@pytest.mark.parametrize(
    ("fast", "slow"),
    [(DGLUCB, NaiveDGLUCB), (GLBWeightUCB, naive.NaiveGLMUCB), (SCBWeightUCB, NaiveSCB)],
    ids=["D-GLUCB", "GLB", "SCB"],
)
def test_discounts(fast, slow, dim: int, link: str) -> None:
    """At lam = 1, where theta_hat often leaves the ball."""
    settings = {"dim": dim, "link": link, "sigma": SIGMA[link], "gamma": 0.97, "lam": 1.0}
    stages = compare(fast(**settings), slow(**settings), link, 160, 12, 10 + dim, 2.0)
    assert set(stages) == {1, 2}


@DIMS
@LINKS
def test_restarts(dim: int, link: str) -> None:
    settings = {"dim": dim, "link": link, "sigma": SIGMA[link], "restart_every": 40}
    compare(RestartGLB(**settings), NaiveRestart(**settings), link, 150, 25, 20 + dim, 1.0)


@DIMS
@LINKS
@pytest.mark.parametrize("lam", [0.3, None])
def test_self_concordant(dim: int, link: str, lam: float | None) -> None:
    """Both radii are met: lam = 0.3 lets theta_hat leave the ball."""
    T, settings = 150, {"dim": dim, "link": link, "sigma": SIGMA[link], "S": 0.7}
    written = dim * math.log(T) if lam is None else lam
    stages = compare(
        SCDGLUCB(**settings, horizon=T, gamma=0.98, lam=lam),
        NaiveSC(**settings, T=T, gamma=0.98, lam=written),
        link, T, 15, 30 + dim, 2.0,
    )  # fmt: skip
    compare(
        SCSWGLUCB(**settings, horizon=T, window=40.0, lam=lam),
        NaiveSCSW(**settings, T=T, window=40.0, lam=written),
        link, T, 15, 40 + dim, 2.0,
    )  # fmt: skip
    assert lam is None or 2 in stages


def test_defaults_of_lam() -> None:
    c_mu = naive.constants(naive.LINKS["logistic"], 1.0, 1.0)[1]
    assert GLBWeightUCB(3, gamma=0.9).estimator.lam == pytest.approx(3 / c_mu**2, rel=1e-12)
    assert SCBWeightUCB(3, gamma=0.9, horizon=500).estimator.lam == pytest.approx(3 * math.log(500) / c_mu, rel=1e-12)
    for policy in (SCDGLUCB(3, gamma=0.9, horizon=500), SCSWGLUCB(3, window=9.0, horizon=500)):
        assert policy.estimator.ridge == pytest.approx(3 * math.log(500), rel=1e-12)


# --- radii and tuning ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.9, 0.99, 0.9998])
@pytest.mark.parametrize("d", [1, 4])
def test_the_radius_of_sc_d_glucb(gamma: float, d: int) -> None:
    T, settings = 3000, {"dim": d, "S": 1.3, "lam": 7.0, "sigma": 0.4, "delta": 0.1, "k_mu": 0.25}
    beta = theory.SelfConcordantRadius(**settings, L=1.0, horizon=T, gamma=gamma)
    inside, outside = sc_radii(d, 1.3, 7.0, 0.8, 0.1, 0.25, T, gamma)
    assert float(beta.inside(5.0)) == pytest.approx(inside, rel=1e-10)
    assert float(beta.outside(5.0)) == pytest.approx(outside, rel=1e-10)
    assert inside < outside


def test_the_radius_of_sc_sw_glucb() -> None:
    settings = {"dim": 2, "S": 1.3, "lam": 7.0, "sigma": 0.4, "delta": 0.1, "k_mu": 0.25}
    beta = theory.SelfConcordantRadius(**settings, L=1.0, horizon=900, window=np.array([30.0, 60.0]))
    for t in (1.0, 45.0, 200.0):
        for lane, tau in enumerate((30.0, 60.0)):
            wanted = sc_radii(2, 1.3, 7.0, 0.8, 0.1, 0.25, 900, n=min(t, tau))
            assert beta.inside(t)[lane] == pytest.approx(wanted[0], rel=1e-12)
            assert beta.outside(t)[lane] == pytest.approx(wanted[1], rel=1e-12)


def test_the_self_concordant_radius_without_forgetting() -> None:
    """At gamma = 1 nothing is older than the run: S_bar = S, and T observations at most."""
    settings = {"dim": 2, "S": 1.0, "L": 1.0, "lam": 7.0, "sigma": 0.5, "delta": 0.1, "k_mu": 0.25, "horizon": 900}
    whole = theory.SelfConcordantRadius(**settings, gamma=1.0)
    inside, outside = sc_radii(2, 1.0, 7.0, 1.0, 0.1, 0.25, 900, n=900.0)
    assert float(whole.inside(1.0)) == pytest.approx(inside, rel=1e-12)
    assert float(whole.outside(1.0)) == pytest.approx(outside, rel=1e-12)
    assert SCDGLUCB(2, horizon=900, switches=0).gamma[0] == 1.0
    close = theory.SelfConcordantRadius(**settings, gamma=0.99999)  # (1 - T^-2) / (1 - gamma^2) is beyond T
    assert float(close.rho(1.0)) == float(whole.rho(1.0))


@pytest.mark.parametrize("confidence", theory.CONFIDENCES)
def test_the_radius_of_scb_weight_ucb(confidence: str) -> None:
    gamma, t, T = np.array([0.95, 1.0]), 17.0, 400
    beta = theory.WeightedSelfConcordantRadius(
        dim=3, gamma=gamma, S=1.2, L=0.8, lam=5.0, sigma=0.5, delta=0.05, k_mu=0.25, c_mu=0.2,
        confidence=confidence, horizon=T,
    )  # fmt: skip
    slow = NaiveSCB(3, S=1.2, lam=5.0, L=0.8)
    slow.k_mu, slow.c_mu, slow.t = 0.25, 0.2, t
    for lane, slow.gamma in enumerate(gamma):
        wanted = slow.radius(naive.delta_at(t, 0.05, confidence, T))
        assert beta(t)[lane] == pytest.approx(wanted, rel=1e-12)


def test_recommended_tuning() -> None:
    T, d, B, n = 2000, 3, 1.7, 4
    k, c, _ = naive.constants(naive.LINKS["logistic"], 1.0, 1.0)
    assert GLBWeightUCB(d, horizon=T, drift=B).gamma[0] == pytest.approx(1 - math.sqrt(k * c * B / (d * T)), rel=1e-12)
    assert SCBWeightUCB(d, horizon=T, drift=B).gamma[0] == pytest.approx(1 - math.sqrt(k * B / (d * T)), rel=1e-12)
    assert DGLUCB(d, horizon=T, switches=n).gamma[0] == pytest.approx(1 - (n / (d * T)) ** (2 / 3), rel=1e-12)
    assert SCDGLUCB(d, horizon=T, switches=n).gamma[0] == pytest.approx(
        1 - (math.sqrt(c) * n / (d * T)) ** (2 / 3), rel=1e-12
    )
    windows = {
        SWBVDGLMUCB(d, horizon=T, drift=B): (d * T / B) ** (2 / 3),
        SWGLUCB(d, horizon=T, switches=n): (d * T / n) ** (2 / 3),
        SCSWGLUCB(d, horizon=T, switches=n): (d * T / (math.sqrt(c) * n)) ** (2 / 3),
    }
    for policy, length in windows.items():
        assert policy.estimator.window[0] == math.floor(length)
    assert RestartGLB(d, horizon=T, drift=B).restart_every[0] == math.floor((d * T / B) ** (2 / 3))


def test_no_drift_at_all() -> None:
    assert GLBWeightUCB(2, horizon=50, drift=0.0).gamma[0] == 1 - 1 / 50
    assert DGLUCB(2, horizon=50, switches=0).gamma[0] == 1.0
    assert SWGLUCB(2, horizon=50, switches=0).estimator.window[0] == 50
    assert RestartGLB(2, horizon=50, drift=0.0).restart_every[0] == 50


def test_tuning_lane_by_lane() -> None:
    several = SCSWGLUCB(2, horizon=900, switches=[0, 3], lanes=2)
    assert several.estimator.window.tolist() == [
        float(SCSWGLUCB(2, horizon=900, switches=s).estimator.window[0]) for s in (0, 3)
    ]


PLAIN: dict[type[Policy], dict[str, Any]] = {
    SWBVDGLMUCB: {"window": 15.0},
    DGLUCB: {"gamma": 0.95},
    SWGLUCB: {"window": 15.0},
    RestartGLB: {"restart_every": 15},
    GLBWeightUCB: {"gamma": 0.95},
    SCBWeightUCB: {"gamma": 0.95, "lam": 0.5},
    SCDGLUCB: {"gamma": 0.95, "horizon": 100},
    SCSWGLUCB: {"window": 15.0, "horizon": 100},
    DGLMTS: {"gamma": 0.95},
    OnePassGLMUCB: {"gamma": 0.95},
}
every_policy = pytest.mark.parametrize(("cls", "settings"), PLAIN.items(), ids=[cls.name for cls in PLAIN])


@every_policy
def test_how_forgetting_may_be_given(cls, settings) -> None:
    """Told, or from the horizon and what the world does; not both, and not neither."""
    name = next(name for name in ("gamma", "window", "restart_every") if name in settings)
    by = "switches" if cls in (DGLUCB, SWGLUCB, SCDGLUCB, SCSWGLUCB) else "drift"
    assert POLICIES[cls.name] is cls
    with pytest.raises(ValueError, match=rf"^{name}=.*give one or the other$"):
        cls(dim=2, **{**settings, "horizon": 100, by: 1.0})
    with pytest.raises(ValueError, match=rf"^{name}=None: give {name}, or horizon and {by}$"):
        cls(dim=2, **{k: v for k, v in settings.items() if k != name})
    with pytest.raises(ValueError, match=rf"^{by}\b"):
        cls(dim=2, horizon=100, **{by: -1.0})
    bad = {"lanes": 0, "link": "logit", "S": 0.0, "sigma": -1.0, "bonus_scale": -1.0, "lam": 0.0, name: 0.0, "dim": 0}
    for argument, value in bad.items():
        with pytest.raises(ValueError, match=rf"^{argument}\b"):
            cls(**{"dim": 2, **settings, argument: value})


def test_a_horizon_is_needed_where_the_rule_has_one() -> None:
    with pytest.raises(ValueError, match=r"^lam=None"):
        SCBWeightUCB(2, gamma=0.9)
    with pytest.raises(ValueError, match=r"^horizon=None"):
        SCDGLUCB(2, gamma=0.9)


# --- the contract ----------------------------------------------------------------------------------------------------

LINK_SETTINGS: list[dict[str, Any]] = [
    {},
    {"link": "poisson", "sigma": 2.0, "S": 0.5, "L": 1.5},
    {"link": "probit", "S": 0.2},
    {"link": "identity"},
]


@every_policy
@pytest.mark.parametrize("link", LINK_SETTINGS, ids=lambda settings: settings.get("link", "logistic"))
def test_check_policy(cls, settings, link) -> None:
    randomised = cls is DGLMTS
    one_pass = cls is OnePassGLMUCB and link.get("link") != "identity"
    check_policy(lambda **kw: cls(**{**settings, **link}, **kw), deterministic=not randomised, one_pass=one_pass)


def test_one_pass_depends_on_the_order_of_rewards() -> None:
    """What ``one_pass=True`` leaves out of the suite does not hold for it, with a link that is not linear."""
    with pytest.raises(AssertionError, match=r"^check_late_rewards: theta_hat differs"):
        check_policy(lambda **kw: OnePassGLMUCB(gamma=0.95, **kw))


@pytest.mark.parametrize("cls", [SCBWeightUCB, OnePassGLMUCB, DGLMTS, SCSWGLUCB], ids=lambda cls: cls.name)
def test_a_custom_link(cls) -> None:
    """A custom copy of a built-in link gives the same run, to rounding."""
    copy = CustomLink("copy", lambda z: 1 / (1 + np.exp(-z)), lambda z: 1 / (2 + np.exp(z) + np.exp(-z)))
    rng, runs = np.random.default_rng(3), []
    arms, coins = ball(rng, (25, 1, 4), 2), rng.random(25)
    for link in ("logistic", copy):
        policy, seen = cls(dim=2, link=link, S=0.3, **PLAIN[cls]), []
        for x, coin in zip(arms, coins, strict=True):
            choice = policy.select(x)
            policy.update(x[:, choice[0]], float(coin < 0.8))
            seen.append(np.concatenate([policy.theta_hat[0], policy.theta_tilde[0]]))
        runs.append(np.array(seen))
    np.testing.assert_allclose(runs[0], runs[1], atol=1e-7)


@pytest.mark.parametrize("arm_set", [Ball(0.8), Sphere(1.0)])
@pytest.mark.parametrize("cls", [cls for cls in PLAIN if issubclass(cls, GLMIndex)], ids=lambda cls: cls.name)
def test_infinite_sets(cls, arm_set) -> None:
    """No arm of the set has a higher index than the one that was played."""
    rng = np.random.default_rng(5)
    policy = cls(dim=3, lanes=2, bonus_scale=0.2, **PLAIN[cls])
    for t in range(20):
        x = ball(rng, (2,), 3)
        policy.advance(1.0)
        policy.update(x, draw_reward(rng, "logistic", x @ turning_theta(t, 20, 3, 3.0)), round=policy.t - 1)
    theta, V, beta = policy.theta_tilde, policy.V, policy.radius()
    played = policy.select_from(arm_set)
    np.testing.assert_array_equal(policy.last["theta_tilde"], theta)
    np.testing.assert_array_equal(policy.last["beta"], beta)
    others = rng.normal(size=(3000, 3))
    others *= arm_set.radius / norm(others, axis=1, keepdims=True)
    for lane in range(2):
        x = np.vstack([played[lane], others])
        width = np.sqrt(np.einsum("ij,ij->i", x, solve(V[lane], x.T).T))
        index = naive.LINKS["logistic"].mean(x @ theta[lane]) + policy.factor() * 0.2 * beta[lane] * width
        assert index[0] >= index.max() - 1e-7


def test_after_a_restart_a_policy_is_as_new() -> None:
    """It decides as one that began then; a reward from before is dropped."""
    rng = np.random.default_rng(6)
    old, new = RestartGLB(2, restart_every=10), RestartGLB(2, restart_every=10)
    for _ in range(10):
        old.update(ball(rng, (1,), 2), 1.0, round=old.t - 1) if old.t > 1 else None
        old.select(ball(rng, (1, 3), 2))
    old.update(ball(rng, (1,), 2), 1.0)
    np.testing.assert_array_equal(old.V[0], np.eye(2))
    for _ in range(8):
        arms = ball(rng, (1, 3), 2)
        one, two = old.select(arms), new.select(arms)
        np.testing.assert_array_equal(old.last["theta_hat"], new.last["theta_hat"])
        np.testing.assert_array_equal(old.last["beta"], new.last["beta"])
        for policy, choice in ((old, one), (new, two)):
            policy.update(arms[:, choice[0]], 1.0)


def test_self_concordant_policies_do_not_mind_the_units_of_arms() -> None:
    """Arms of norm at most 2 and S = 1/2 are arms of norm at most 1 and S = 1."""
    rng = np.random.default_rng(7)
    for cls, settings in ((SCDGLUCB, {"switches": 2}), (SCSWGLUCB, {"window": 30.0})):
        large = cls(2, horizon=300, S=0.5, L=2.0, lanes=3, **settings)
        small = cls(2, horizon=300, S=1.0, L=1.0, lanes=3, **settings)
        for t in range(60):
            arms = ball(rng, (3, 5), 2)
            choice = small.select(arms)
            np.testing.assert_array_equal(large.select(2 * arms), choice)
            np.testing.assert_allclose(large.last["beta"], small.last["beta"], rtol=1e-12)
            x = arms[np.arange(3), choice]
            reward = draw_reward(rng, "logistic", x @ turning_theta(t, 60, 2, 1.0))
            small.update(x, reward)
            large.update(2 * x, reward)


def test_glb_weight_ucb_is_bvd_glm_ucb_while_theta_hat_is_inside() -> None:
    rng, settings = np.random.default_rng(8), {"dim": 2, "gamma": 0.98, "lam": 60.0}
    one, other = GLBWeightUCB(**settings), BVDGLMUCB(**settings)
    for _ in range(40):
        arms = ball(rng, (1, 5), 2)
        choice = one.select(arms)
        np.testing.assert_array_equal(other.select(arms), choice)
        reward = float(rng.random() < 0.7)
        for policy in (one, other):
            policy.update(arms[:, choice[0]], reward)


# --- Thompson sampling -----------------------------------------------------------------------------------------------


def taught(lanes: int, dim: int, **settings: Any) -> tuple[DGLMTS, naive.NaiveHistory]:
    """A policy whose lanes all know the same, and what they know."""
    rng = np.random.default_rng(9)
    policy = DGLMTS(dim, gamma=0.97, lanes=lanes, **settings)
    c_mu = naive.constants(naive.LINKS["logistic"], 1.0, 1.0)[1]
    history = naive.NaiveHistory(dim, naive.LINKS["logistic"], 0.97, 1.0, c_mu)
    for t in range(1, 41):
        x, reward = ball(rng, (), dim), float(rng.random() < 0.6)
        policy.advance(1.0)
        policy.update(np.tile(x, (lanes, 1)), reward, round=t)
        history.append(x, reward, t)
    return policy, history


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_samples_follow_the_laplace_approximation(dim: int) -> None:
    lanes, scale = 6000, 0.5
    policy, history = taught(lanes, dim, bonus_scale=scale)
    t = policy.t
    mode = naive.theta_hat(history, t, history.link, history.ridge)
    white = (policy.theta_tilde - mode) @ np.linalg.cholesky(history.H(mode, t)) / scale
    for i in range(dim):
        assert stats.kstest(white[:, i], "norm").pvalue > 1e-3
    error = np.cov(white.T).reshape(dim, dim) - np.eye(dim)
    assert np.abs(error).max() < 5 * math.sqrt(2 / lanes)
    assert policy.theta_tilde[0].tolist() == policy.theta_tilde[0].tolist()  # asking twice is not drawing twice
    first = policy.theta_tilde
    policy.select(np.zeros((lanes, 2, dim)))
    assert (policy.theta_tilde != first).all()  # another decision, another draw


def test_propensities() -> None:
    """In one dimension an arm and its opposite: P(theta_tilde > 0) in closed form, and what select really does."""
    lanes = 4000
    policy, history = taught(lanes, 1)
    mode = naive.theta_hat(history, policy.t, history.link, history.ridge)[0]
    sd = 1 / math.sqrt(history.H(np.array([mode]), policy.t)[0, 0])
    wanted = stats.norm.cdf(mode / sd)
    one = DGLMTS(1, gamma=0.97, seed=4)
    one.estimator.load_state({name: array[:1] for name, array in policy.estimator.state().items()})
    before = one.estimator.state()
    found = one.propensities([[[0.5], [-0.5]]], draws=20_000)[0]
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    assert found[0] == pytest.approx(wanted, abs=4 * math.sqrt(wanted * (1 - wanted) / 20_000))
    assert all(np.array_equal(before[name], value) for name, value in one.estimator.state().items())
    choices = policy.select(np.tile([[0.5], [-0.5]], (lanes, 1, 1)))
    assert np.mean(choices == 0) == pytest.approx(wanted, abs=4 * math.sqrt(wanted * (1 - wanted) / lanes))


def test_propensities_of_absent_and_equal_arms() -> None:
    policy, _ = taught(2, 2)
    arms = np.zeros((2, 3, 2))
    arms[:, 2] = np.nan
    valid = np.array([[True, True, False]] * 2)
    np.testing.assert_array_equal(policy.propensities(arms, valid, draws=7), [[0.5, 0.5, 0.0]] * 2)
    np.testing.assert_array_equal(policy.propensities(arms, valid, draws=7)[:1], taught(1, 2)[0].propensities(
        arms[:1], valid[:1], draws=7
    ))  # fmt: skip
    with pytest.raises(ValueError, match=r"^draws\b"):
        policy.propensities(arms, valid, draws=0)


# --- one pass --------------------------------------------------------------------------------------------------------


def test_one_pass_is_ridge_regression_for_the_identity_link() -> None:
    rng, settings = np.random.default_rng(10), {"dim": 3, "gamma": [0.9, 0.99, 1.0], "lanes": 3, "lam": 0.7}
    one, ridge = OnePassGLMUCB(link="identity", **settings), DLinUCB(**settings)
    for t in range(80):
        x, reward = ball(rng, (3,), 3), rng.normal(size=3)
        late = float(max(1, t - rng.integers(0, 5)))
        for policy in (one, ridge):
            policy.advance(1.0)
            policy.update(x, reward, round=late, weight=[1.0, 0.3, 4.0])
        np.testing.assert_allclose(one.theta_hat, ridge.theta_hat, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(one.V, ridge.V, rtol=1e-12)


@pytest.mark.parametrize("link", ["logistic", "poisson", "probit"])
@DIMS
def test_one_pass_takes_the_implicit_step(link: str, dim: int) -> None:
    """theta+ = argmin of weight * loss + |theta - theta_t|^2 / 2 in V_t, then V+ = V_t + weight max(mu', c_mu) x x'."""
    rng, nlink = np.random.default_rng([11, dim]), naive.LINKS[link]
    policy = OnePassGLMUCB(dim, link=link, gamma=0.9, sigma=SIGMA[link])
    c_mu = naive.constants(nlink, 1.0, 1.0)[1]
    for t in range(1, 30):
        policy.advance(1.0)
        theta, V = policy.theta_hat[0], policy.V[0]
        x, weight, decided = ball(rng, (), dim), float(rng.uniform(0.1, 5.0)), float(rng.integers(1, t + 1))
        reward = float(draw_reward(rng, link, np.array([2.0 * x[0]]))[0])
        if link == "poisson":
            reward = min(reward, 2 * SIGMA[link])
        policy.update(x[None], reward, round=decided, weight=weight)
        w, after = weight * 0.9 ** (t - decided), policy.theta_hat[0]
        z = x @ after
        gradient = w * (nlink.mean(z) - reward) * x + V @ (after - theta)
        assert norm(gradient) <= 1e-9 * (1 + norm(V) * (1 + norm(theta)))
        slope = max(float(nlink.slope(z)), c_mu)
        np.testing.assert_allclose(policy.V[0], V + w * slope * np.outer(x, x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("weight", [1e-12, 1.0, 1e6, 1e12])
@pytest.mark.parametrize("link", ["logistic", "poisson", "probit", "identity"])
def test_the_proximal_point(link: str, weight: float) -> None:
    from windvane import kernels
    from windvane.links import get_link

    made, nlink = get_link(link), naive.LINKS[link]
    k = kernels.load(made)
    for z in (-30.0, -3.0, 0.0, 0.4, 8.0):
        for reward in (0.0, 1.0, 10.0):
            y = k.proximal_point(made.code, z, weight, reward)
            gap = y - z + weight * (float(nlink.mean(np.float64(y))) - reward)
            slope = 1.0 + weight * float(nlink.slope(np.float64(y)))
            rounding = 1e-15 * (abs(y) + abs(z) + weight * (abs(float(nlink.mean(np.float64(y)))) + reward))
            assert abs(gap) <= 4 * rounding + 1e-13 * (1 + abs(y)) * slope


@pytest.mark.parametrize("gamma", [0.99, 1.0])
@DIMS
def test_one_pass_stays_close_to_maximum_likelihood(gamma: float, dim: int) -> None:
    """In the metric of the Hessian, where the estimate's own standard error is about 1 in each direction: a tenth."""
    rng, lanes = np.random.default_rng([12, dim]), 20
    settings = {"dim": dim, "gamma": gamma, "lanes": lanes}
    one, full = OnePassGLMUCB(**settings), BVDGLMUCB(**settings)
    for t in range(600):
        x = ball(rng, (lanes,), dim)
        reward = draw_reward(rng, "logistic", x @ turning_theta(t, 600, dim, 1.0, turns=0.25))
        for policy in (one, full):
            policy.advance(1.0)
            policy.update(x, reward, round=policy.t - 1)
    H = full.estimator.moments(full.theta_hat)[1]
    gap = one.theta_hat - full.theta_hat
    away = np.sqrt(np.einsum("li,lij,lj->l", gap, H, gap) / dim)
    assert away.mean() < 0.1
    # V sums slopes between c_mu and k_mu where H has slopes between mu'(|theta_hat|) and k_mu
    relative, flattest = np.linalg.eigvals(np.linalg.solve(H, one.V)).real, norm(full.theta_hat, axis=1)
    assert (relative >= 1 / full.constants.R_mu - 1e-9).all()
    assert (relative.max(axis=1) <= full.constants.k_mu / naive.LINKS["logistic"].slope(flattest) + 1e-9).all()


def test_one_pass_keeps_no_history() -> None:
    rng, policy = np.random.default_rng(13), OnePassGLMUCB(3, gamma=1.0, lanes=2)
    sizes = set()
    for _ in range(50):
        arms = ball(rng, (2, 4), 3)
        policy.update(arms[np.arange(2), policy.select(arms)], 1.0)
        sizes.add(sum(array.nbytes for array in policy.state().values()))
        assert policy.info()["remembered"].tolist() == [0, 0]
    assert len(sizes) == 1
    assert policy.estimator._X.size == policy.estimator._W.size == 0


def test_one_pass_masks_and_zero_weights() -> None:
    policy, untouched = OnePassGLMUCB(2, gamma=0.9, lanes=3), OnePassGLMUCB(2, gamma=0.9, lanes=3)
    for t in range(5):
        x = np.array([[0.5, 0.1], [0.3, 0.2], [np.nan, 1.0]])
        policy.advance(1.0)
        untouched.advance(1.0)
        policy.update(x, 1.0, round=float(t + 1), weight=[1.0, 0.0, np.nan], mask=[True, True, False])
    for name in ("V", "V_tilde", "b", "theta_hat"):
        np.testing.assert_array_equal(getattr(policy, name)[1:], getattr(untouched, name)[1:])
    assert (policy.theta_hat[0] != 0).all()


def test_the_bonus_of_one_pass_is_at_most_half_of_the_papers() -> None:
    """k_mu / sqrt(c_mu) ||x|| in its V^-1 against 2 R_mu ||x|| in the V^-1 of BVD-GLM-UCB, fed the same."""
    rng, settings = np.random.default_rng(14), {"dim": 3, "gamma": 0.98, "lanes": 4, "S": 2.0}
    one, paper = OnePassGLMUCB(**settings), BVDGLMUCB(**settings)
    for t in range(60):
        x = ball(rng, (4,), 3)
        reward = draw_reward(rng, "logistic", x @ turning_theta(t, 60, 3, 2.0))
        for policy in (one, paper):
            policy.advance(1.0)
            policy.update(x, reward, round=policy.t - 1)
    np.testing.assert_array_equal(one.radius(), paper.radius())
    k_mu, c_mu, _ = naive.constants(naive.LINKS["logistic"], 2.0, 1.0)
    assert one.factor() == pytest.approx(k_mu / math.sqrt(c_mu), rel=1e-9)
    arms = ball(rng, (4, 50), 3)
    assert (one.factor() * one._widths(arms) <= 0.5 * paper.factor() * paper._widths(arms) * (1 + 1e-12)).all()


@pytest.mark.parametrize(
    ("cls", "settings"),
    [(DGLMTS, {"link": "identity", "gamma": 1.0}), (SCBWeightUCB, {"gamma": 0.99}), (BVDGLMUCB, {"gamma": 0.99})],
    ids=["D-GLM-TS", "SCB", "BVD"],
)
@pytest.mark.parametrize("lam", [1e-18, 1e-50])
def test_next_to_no_regularisation(cls, settings, lam: float) -> None:
    """Matrices that are singular to rounding do not stop a policy."""
    policy, x = cls(3, lam=lam, **settings), np.array([[[0.5, 0.5, 0.5], [0.4, 0.4, 0.4]]])
    for t in range(6):
        policy.update(x[:, policy.select(x)[0]], float(t % 2))
    policy.select_from(Ball(1.0))
    assert np.isfinite(policy.theta_hat).all()


def test_two_threads_on_one_policy_do_not_crash() -> None:
    """D-GLM-TS reads its history for every decision, while another thread lengthens it."""
    policy, arms = DGLMTS(2, gamma=0.999), np.full((1, 3, 2), 0.4)
    policy.select(arms)
    decided = threading.Event()

    def learn() -> None:
        while not decided.is_set():
            policy.update(arms[:, 0], 1.0, round=1.0)

    learner = threading.Thread(target=learn)
    learner.start()
    for _ in range(400):
        policy.select(arms)
    decided.set()
    learner.join()
    assert np.isfinite(policy.theta_hat).all()
