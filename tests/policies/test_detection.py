"""Policies that restart on an alarm: their evidence, their false alarms, and what they notice."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

import naive
from support.worlds import ball
from windvane import GLMUCB, OFUL, DetectGLMUCB, DetectLogisticUCB1, DetectOFUL, LogisticUCB1
from windvane.policies.detection import SHIFTS, accumulate


@pytest.mark.parametrize(("cls", "link"), [(DetectGLMUCB, {"link": "identity"}), (DetectOFUL, {})])
def test_evidence_is_the_shiryaev_roberts_sum(cls, link: dict[str, str]) -> None:
    """Against the sum over all beginnings, written out, for a linear policy and its recursive residuals."""
    rng, sigma = np.random.default_rng(0), 0.3
    policy = cls(2, **link, sigma=sigma, lam=0.5, run_length=1e12)
    X, rewards, zs = np.zeros((0, 2)), np.zeros(0), []
    for _ in range(30):
        arms = ball(rng, (1, 4), 2)
        x = arms[0, policy.select(arms)[0]]
        reward = float(x[0] + sigma * rng.normal())
        V = 0.5 * np.eye(2) + X.T @ X
        predicted, q = x @ np.linalg.solve(V, X.T @ rewards), x @ np.linalg.solve(V, x)
        zs.append((reward - predicted) / (sigma * math.sqrt(1 + q)))
        policy.update(x[None], [reward])
        X, rewards = np.vstack([X, x]), np.append(rewards, reward)
        beginnings = product(SHIFTS, (1, -1), range(len(zs)))
        ratios = [math.exp(sum(a * sign * z - a * a / 2 for z in zs[begin:])) for a, sign, begin in beginnings]
        assert policy.info().evidence[0] == pytest.approx(sum(ratios) / 8, rel=1e-9)


@pytest.mark.parametrize("weight", [1.0, 3.0])
@pytest.mark.parametrize(("cls", "lam", "own"), [(DetectGLMUCB, 0.7, 0.7), (DetectLogisticUCB1, 9.0, 1.0)])
def test_the_surprise_of_a_click(cls, lam: float, own: float, weight: float) -> None:
    """(r - mu) / (sigma sqrt(1/w + R_mu^2 |x|^2 in V^-1)): that of the mean of w equal rewards."""
    policy = cls(2, S=2.0, sigma=0.4, lam=lam, run_length=1e12)
    x, theta_hat = np.array([0.6, -0.3]), np.zeros(2)
    R = naive.constants(naive.LINKS["logistic"], 2.0, 1.0)[2]
    z = (0.8 - 1 / (1 + math.exp(-x @ theta_hat))) / (0.4 * math.sqrt(1 / weight + R**2 * x @ x / own))
    policy.select(x[None, None])
    policy.update(x[None], 0.8, weight=weight)
    expected = np.mean([math.exp(a * s * z - a * a / 2) for a in SHIFTS for s in (1, -1)])
    assert policy.info().evidence[0] == pytest.approx(expected, rel=1e-9)


def test_false_alarms_of_the_test_itself() -> None:
    """Independent normal surprises: at most the stated share of runs has an alarm, and the bound is not idle."""
    rng, runs, T, rate = np.random.default_rng(0), 10_000, 500, 0.1
    evidence, alarmed = np.zeros((runs, 2, len(SHIFTS))), np.zeros(runs, dtype=bool)
    for _ in range(T):
        evidence = accumulate(evidence, rng.normal(size=runs))
        alarmed |= evidence.mean(axis=(1, 2)) >= T / rate
    assert rate / 4 < alarmed.mean() <= rate


def build(kind: str, rounds: int, lanes: int, S: float = 1.0) -> Any:
    settings = {"horizon": rounds, "lanes": lanes, "S": S}
    if kind in ("OFUL", "Logistic-UCB-1"):
        return (DetectOFUL if kind == "OFUL" else DetectLogisticUCB1)(2, **settings)
    return DetectGLMUCB(2, kind, **settings)


def first_alarms(kind: str, lanes: int, rounds: int, jump: float, *, prior: bool, S: float = 1.0) -> np.ndarray:
    """Rounds of the first alarm of each lane (inf: none), in a world whose theta* changes its sign at ``jump``.

    ``kind``: the link of DetectGLMUCB, or another base.
    """
    rng, first, link = np.random.default_rng(3), np.full(lanes, np.inf), "identity" if kind == "OFUL" else kind
    policy = build(kind, rounds, lanes, S)
    theta = 0.5 * rng.normal(size=(lanes, 2))  # the prior of covariance (sigma^2 / lam) I
    if not prior:
        theta *= S / np.linalg.norm(theta, axis=1, keepdims=True)
    for t in range(rounds):
        arms = ball(rng, (lanes, 6), 2)
        x = arms[np.arange(lanes), policy.select(arms)]
        z = (1.0 if t < jump else -1.0) * np.einsum("ij,ij->i", x, theta)
        noisy = z + 0.5 * rng.normal(size=lanes)
        reward = noisy if link == "identity" else (rng.random(lanes) < 1 / (1 + np.exp(-z))).astype(float)
        policy.update(x, reward)
        first = np.where(np.isinf(first) & (policy.info().alarms > 0), float(t), first)
    return first


@pytest.mark.parametrize(
    ("kind", "prior", "S"),
    [("identity", True, 1.0), ("identity", False, 1.0), ("logistic", False, 1.0), ("OFUL", True, 1.0),
     ("OFUL", False, 1.0), ("Logistic-UCB-1", False, 1.0), ("Logistic-UCB-1", False, 3.0)],
)  # fmt: skip
def test_false_alarms_of_the_policy(kind: str, prior: bool, S: float) -> None:
    """A stationary world: at most the stated share of runs (5 %) has an alarm, 1000 runs of 250 rounds."""
    assert np.isfinite(first_alarms(kind, 1000, 250, math.inf, prior=prior, S=S)).mean() <= 0.05


@pytest.mark.parametrize("S", [1.0, 3.0])
@pytest.mark.parametrize("kind", ["logistic", "Logistic-UCB-1"])
def test_false_alarms_where_all_arms_have_a_feature_in_common(kind: str, S: float) -> None:
    """What an estimate with a large ridge does not know yet shows as errors of one sign: 300 runs of 300 rounds."""
    rng, lanes, alarmed = np.random.default_rng(4), 300, np.zeros(300, dtype=bool)
    policy = build(kind, 300, lanes, S)
    for _ in range(300):
        arms = np.concatenate([np.full((lanes, 6, 1), 0.8), rng.uniform(-0.6, 0.6, (lanes, 6, 1))], axis=2)
        x = arms[np.arange(lanes), policy.select(arms)]
        policy.update(x, (rng.random(lanes) < 1 / (1 + np.exp(-S * x[:, 0]))).astype(float))
        alarmed |= policy.info(estimates=False).alarms > 0
    assert alarmed.mean() <= 0.05


@pytest.mark.parametrize("L", [2.0**-9, 2.0**7])
def test_the_predictor_of_logistic_ucb_1_does_not_depend_on_units(L: float) -> None:
    """The same evidence and alarms for the arms L x and the norm bound S / L."""
    settings = {"horizon": 300, "run_length": 100.0}
    policies = [DetectLogisticUCB1(2, S=2.0 / unit, L=unit, tolerance=1e-6 / unit, **settings) for unit in (1.0, L)]
    rng = np.random.default_rng(5)
    for t in range(300):
        arms = ball(rng, (1, 5), 2)
        index = [policy.select(unit * arms)[0] for policy, unit in zip(policies, (1.0, L), strict=True)]
        assert index[0] == index[1]
        x = arms[:, index[0]]
        reward = float(rng.random() < 1 / (1 + np.exp(-3 * (x[0, 0] if t < 150 else -x[0, 0]))))
        for policy, unit in zip(policies, (1.0, L), strict=True):
            policy.update(unit * x, reward)
    own, other = (policy.info() for policy in policies)
    assert own.alarms == other.alarms
    assert other.evidence == pytest.approx(own.evidence, rel=1e-4)


@pytest.mark.parametrize(("detecting", "base"), [(DetectOFUL, OFUL), (DetectLogisticUCB1, LogisticUCB1)])
def test_without_an_alarm_a_policy_is_its_base(detecting, base) -> None:
    """The same decisions and estimates; and the predictor of DetectLogisticUCB1 is the estimate of GLM-UCB."""
    rng, settings = np.random.default_rng(6), {"horizon": 100} if base is LogisticUCB1 else {}
    policies = [detecting(2, run_length=1e12, **settings), base(2, **settings), GLMUCB(2)]
    for _ in range(60):
        arms = ball(rng, (1, 5), 2)
        index = [policy.select(arms) for policy in policies]
        assert index[0] == index[1]
        for policy in policies:
            policy.update(arms[:, index[0][0]], float(arms[0, 0, 0] > 0))
    np.testing.assert_array_equal(policies[0].info().theta_hat, policies[1].info().theta_hat)
    if base is LogisticUCB1:
        np.testing.assert_allclose(policies[0].predictor.theta_hat, policies[2].info().theta_hat, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "within"), [("identity", 60), ("logistic", 200), ("OFUL", 60), ("Logistic-UCB-1", 250)]
)
def test_a_reversal_is_noticed(kind: str, within: int) -> None:
    """theta* changes its sign once it is well known: all but a few lanes restart soon after, and few before."""
    first = first_alarms(kind, 60, 800 + within, 800, prior=False)
    assert np.isfinite(first).mean() >= 0.95
    assert (first < 800).mean() <= 0.1


def test_an_alarm_restarts_its_lane_alone() -> None:
    policy, x = DetectGLMUCB(2, run_length=50.0, lanes=2), np.array([[0.8, 0.0], [0.8, 0.0]])
    for _ in range(40):
        policy.select(x[:, None, :])
        policy.update(x, [1.0, 1.0])
    rounds = policy.t
    while not policy.info().alarms.any():
        policy.select(x[:, None, :])
        policy.update(x, [0.0, 1.0])
    assert policy.t - rounds < 30
    assert policy.info().alarms.tolist() == [1, 0]
    assert policy.info().remembered[0] == 0
    assert policy.info().remembered[1] > 40
    policy.update(x, [0.0, 1.0], round=policy.t - 1)  # decided before the alarm
    assert policy.info().remembered[0] == 0
    assert policy.info().evidence[0] == 0.0
