"""Diagnostics of simulated runs: against their definitions, summed over the stored history; on every environment."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.linalg import norm, solve

import naive
from support.refusals import rejects
from windvane import BVDGLMUCB, DGLMTS, GLMUCB, OFUL, CustomLink, DLinUCB, theory
from windvane.environments import ARM_LAWS, DELAYS, DRIFTS, REWARD_LAWS, Environment, Round
from windvane.lab.run.cells import Cell
from windvane.lab.run.diagnostics import Diagnostics
from windvane.lab.run.play import QUANTITIES, play_cell
from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec, Spec
from windvane.policies.base import Policy

SOLVER = 1e-7  # what the projection, found by iteration, may add to a slack
HORIZON = 160


def around(t: int) -> list[float]:
    """A path of a user's own: a jump every 50 rounds, and a slow turn."""
    angle = t / 40 + 2 * (t // 50)
    return [0.9 * np.cos(angle), 0.9 * np.sin(angle)]


DRIFT_SETTINGS: dict[str, dict[str, Any]] = {
    "switches": {"times": [30, 31, 70], "thetas": [[1, 0], [0, -1], [-0.6, 0.8], [0, 0.5]]},
    "random-switches": {"count": 5},
    "random-walk": {"step": 0.1},
    "sinusoid": {"period": 60},
    "piecewise-linear": {"times": [1, 50, 80], "points": [[1, 0], [0, 1], [-1, 0]]},
    "function": {"function": around},
    "logged": {"thetas": [[0.9, 0.1], [-0.2, 0.7], [0.4, -0.5]], "stretch": True},
}
ARM_SETTINGS: dict[str, dict[str, Any]] = {
    "fixed": {"arms": [[1, 0], [0, 1], [-0.6, 0.8], [0.1, 0.1]]},
    "come-and-go": {"lifetime": 15},
}
DELAY_SETTINGS: dict[str, dict[str, Any]] = {
    "fixed": {"rounds": 7},
    "geometric": {"mean": 6},
    "uniform": {"least": 0, "most": 20},
}
REWARDS = {  # law, settings, link: every law, every link
    "bernoulli": ("bernoulli", {}, "logistic"),
    "bernoulli probit": ("bernoulli", {}, "probit"),
    "gaussian": ("gaussian", {"sd": 0.3}, "identity"),
    "gaussian truncated": ("gaussian", {"sd": 0.2, "sigma": 0.5}, "logistic"),
    "binomial": ("binomial", {"trials": 4}, "logistic"),
    "poisson": ("poisson", {}, "poisson"),
}


def drift(kind: str) -> Any:
    return DRIFTS[kind](**DRIFT_SETTINGS.get(kind, {}))


def arms(kind: str) -> Any:
    return ARM_LAWS[kind](**ARM_SETTINGS.get(kind, {}))


def delay(kind: str) -> Any:
    return DELAYS[kind](**DELAY_SETTINGS.get(kind, {}))


def world(path: str, shown: str, reward: str = "bernoulli", **settings: Any) -> EnvironmentSpec:
    law, details, link = REWARDS[reward]
    return EnvironmentSpec(
        "here", drift(path), arms(shown), REWARD_LAWS[law](**details), **{"link": link, **settings}
    )  # fmt: skip


PAIRS = list(itertools.product(DRIFTS, ARM_LAWS))
WORLDS = {  # every pair of a drift and an arm law, rewards in turn; then the other parts
    **{
        f"{path}, {shown}": world(path, shown, reward)
        for (path, shown), reward in zip(PAIRS, itertools.cycle(REWARDS), strict=False)
    },
    **{f"{reward}, wide": world("arc", "ball", reward, S=1.3, L=1.2) for reward in REWARDS},
    **{f"{kind} delay": world("rotation", "cube", delay=delay(kind)) for kind in DELAYS},
    **{f"{kind} delay, poisson": world("random-walk", "come-and-go", "poisson", delay=delay(kind)) for kind in DELAYS},
    **{f"intercept, {reward}": world("random-switches", "sphere", reward, intercept=-0.5, S=0.8) for reward in REWARDS},
    "intercept, delay": world("sinusoid", "orthogonal", intercept=0.3, S=0.7, delay=delay("geometric")),
    "five dimensions": world("random-walk", "gaussian", "binomial", dim=5),
    "one dimension": world("random-switches", "ball", "gaussian", dim=1, S=2.0),
}


def rows_of(environment: EnvironmentSpec, *policies: PolicySpec, lanes: int = 3) -> list[dict[str, np.ndarray]]:
    """The diagnostics that the engine recorded, [lanes, HORIZON] each, policy by policy."""
    spec = Spec([environment], policies, runs=lanes, horizon=HORIZON, seed=11, diagnostics=True)
    return [play_cell(Cell(0, i, 0, lanes).select_from(spec)).diagnostics for i in range(len(policies))]


@pytest.mark.parametrize("environment", WORLDS.values(), ids=WORLDS)
def test_no_lemma_fails_on_any_environment(environment: EnvironmentSpec) -> None:
    """Round by round, for the discount that theory recommends and for a shorter memory."""
    short = PolicySpec("BVD-GLM-UCB", "short", {"gamma": 0.9})
    recommended, shorter = rows_of(environment, PolicySpec("BVD-GLM-UCB"), short)
    for row in (recommended, shorter):
        assert tuple(row) == QUANTITIES
        for name in ("learning", "beta", "tracking"):
            assert np.isfinite(row[name]).all()
            assert (row[name] >= 0).all()
        assert np.mean(row["learning"] <= row["beta"]) > 0.9
        assert (row["lemma_2_slack"] >= -SOLVER).all()
        assert (row["lemma_3_slack"] >= -SOLVER * np.maximum(1, row["beta"])).all()
        inside = row["learning"] <= row["beta"]
        assert (row["lemma_4_slack"][inside] >= -SOLVER).all()
        assert np.isnan(row["lemma_4_slack"][~inside]).all()
    assert np.isfinite(shorter["tracking_bound"]).all()
    moves = not isinstance(environment.drift, DRIFTS["static"])
    assert (shorter["tracking"].max() > 1e-3) == moves


@pytest.mark.parametrize(
    "environment", [world("arc", "ball"), world("arc", "ball", "gaussian")], ids=["logistic", "linear"]
)
def test_what_is_said_of_the_other_policies(environment: EnvironmentSpec) -> None:
    """A linear policy under logistic rewards keeps its learning term and its regret decomposition, nothing else."""
    specified = environment.link == "identity"
    named = [PolicySpec(name) for name in ("GLM-UCB", "D-LinUCB", "OFUL")]
    for policy, row in zip(named, rows_of(environment, *named), strict=True):
        assert np.mean(row["learning"] <= row["beta"]) > 0.9
        assert row["learning"].max() > 0.1 * row["beta"].min()
        assert (row["lemma_3_slack"] >= -SOLVER * np.maximum(1, row["beta"])).all()
        assert row["lemma_3_slack"].max() > 0
        assert np.isnan(row["lemma_4_slack"]).all()
        if policy.policy != "GLM-UCB" and not specified:
            for name in ("tracking", "tracking_bound", "lemma_2_slack"):
                assert np.isnan(row[name]).all()
        elif policy.policy == "D-LinUCB":
            assert np.isfinite(row["tracking_bound"]).all()
            assert (row["lemma_2_slack"] >= -SOLVER).all()
        else:  # no forgetting: Lemma 2 says nothing
            assert np.isfinite(row["tracking"]).all()
            assert np.isposinf(row["tracking_bound"]).all()
            assert np.isposinf(row["lemma_2_slack"]).all()


def test_a_sweep_is_told_lane_by_lane() -> None:
    """Lanes with discounts of their own have the rows that they have alone."""
    gammas = [0.6, 0.97, 1.0]
    environment = world("random-walk", "ball")
    swept = Spec(
        [environment], [PolicySpec("BVD-GLM-UCB", sweep={"gamma": gammas})], runs=1, horizon=HORIZON, diagnostics=True
    )
    together = play_cell(Cell(0, 0, 0, 3).select_from(swept)).diagnostics
    for lane, gamma in enumerate(gammas):
        alone = Spec(
            [environment], [PolicySpec("BVD-GLM-UCB", settings={"gamma": gamma})], 1, HORIZON, diagnostics=True
        )
        for name, values in play_cell(Cell(0, 0, 0, 1).select_from(alone)).diagnostics.items():
            np.testing.assert_allclose(together[name][lane], values[0], rtol=1e-9, atol=1e-9)


# --- against the definitions -----------------------------------------------------------------------------------------


@dataclass
class Run:
    """A run with all of its history, as an engine would make it; rewards that are late come one lane at a time."""

    environment: Environment
    policy: Policy
    thetas: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        lanes, e = range(self.policy.lane_count), self.policy.estimator
        self.link = naive.LINKS[e.link.name]
        made = [naive.NaiveHistory(e.dim, self.link, gamma, e.lam, e.ridge) for gamma in e.gamma]
        self.histories, self.means, self.since = made, [np.zeros(0) for _ in lanes], [0 for _ in lanes]

    def rounds(self, every: int) -> Iterator[tuple[Round, np.ndarray, dict[str, np.ndarray]]]:
        probe = Diagnostics(self.policy, self.environment)
        waiting: list[tuple[int, int, np.ndarray, float, float, int]] = []
        lanes = np.arange(self.policy.lane_count)
        for t in range(1, self.environment.horizon + 1):
            shown = self.environment.round(t)
            self.thetas.append(shown.theta.copy())
            recorded = t % every == 0 or t == 1
            probe.begin_round(shown, recorded)
            choice = self.policy.select(shown.arms, shown.valid)
            probe.measure_decision(shown, choice)
            if recorded:
                yield shown, choice, probe.read_row()
            x, mean = shown.arms[lanes, choice], shown.means[lanes, choice]
            reward, late = self.environment.reward(t, mean), self.environment.delays(t)
            if late is None:
                self.policy.update(x, reward)
                probe.learn(x, mean, np.full(len(lanes), float(t)))
                for lane in lanes:
                    self.note(lane, x[lane], reward[lane], mean[lane], t)
                continue
            waiting += [(t + late[i], i, x[i], reward[i], mean[i], t) for i in lanes]
            for _, lane, point, value, expected, decided in [item for item in waiting if item[0] == t]:
                mask, when = lanes == lane, np.full(len(lanes), float(decided))
                points, values = np.tile(point, (len(lanes), 1)), np.full(len(lanes), value)
                self.policy.update(points, values, round=when, mask=mask)
                probe.learn(points, np.full(len(lanes), expected), when, mask)
                self.note(lane, point, value, expected, decided)
            waiting = [item for item in waiting if item[0] > t]

    def note(self, lane: int, x: np.ndarray, reward: float, mean: float, t: int) -> None:
        if t >= self.since[lane]:
            self.histories[lane].append(x, reward, t)
            self.means[lane] = np.append(self.means[lane], mean)

    def expected(self, t: int, lane: int) -> dict[str, float]:
        """learning, tracking and Lemma 2's bound from their definitions, theta_bar by solving for it."""
        h, e, theta = self.histories[lane], self.policy.estimator, self.thetas[-1][lane]
        X, w = h.features, h.weights(t)
        target = X.T @ (w * self.means[lane]) + e.ridge * theta
        theta_bar = naive.solve_theta_hat(X, w, target, e.ridge, self.link)
        noise, lag = h.g(theta_bar, t) - h.b(t), h.g(theta_bar, t) - h.g(theta, t)
        found = {
            "learning": float(np.sqrt(noise @ solve(h.V_tilde(t), noise))),
            "tracking": float(norm(solve(h.V(t), lag))),
        }
        if h.gamma < 1:
            depth = int(np.ceil(np.log(self.environment.horizon) / (1 - h.gamma)))
            steps = norm(np.diff([path[lane] for path in self.thetas], axis=0), axis=1)
            found["tracking_bound"] = theory.tracking_bound(
                h.gamma, depth, float(steps[-depth:].sum()), k_mu=naive.constants(self.link, e.S, e.L)[0], S=e.S, L=e.L,
                lam=e.lam, dim=e.dim, arm_geometry="orthogonal" if self.environment.orthogonal else "general",
            )  # fmt: skip
        return found

    def regret_bound(self, shown: Round, choice: np.ndarray, lane: int) -> float:
        """The right-hand side of the regret decomposition, and the regret taken off."""
        h, e, policy = self.histories[lane], self.policy.estimator, self.policy
        decision = policy.info(estimates=False).decision
        V, V_tilde = h.V(shown.t), h.V_tilde(shown.t)
        present = np.ones(len(shown.arms[lane]), bool) if shown.valid is None else shown.valid[lane]
        best = max(np.flatnonzero(present), key=lambda arm: shown.means[lane, arm])
        total = 0.0
        for arm, sign in ((choice[lane], 1), (best, -1)):
            x, mean = shown.arms[lane, arm], shown.means[lane, arm]
            bonus = policy.bonus_scales[lane] * decision.beta[lane]
            if isinstance(policy, BVDGLMUCB | GLMUCB):
                bonus *= 2 * naive.constants(self.link, e.S, e.L)[2] * np.sqrt(x @ solve(V, x))
            elif isinstance(policy, OFUL):
                bonus *= np.sqrt(x @ solve(V, x))
            else:
                bonus *= np.sqrt(solve(V, x) @ V_tilde @ solve(V, x))
            predicted = self.link.mean(x @ decision.theta_tilde[lane])
            total += sign * (bonus + mean) + abs(predicted - mean)
        return total


AGAINST = {
    **{f"{path}": (world(path, "ball"), BVDGLMUCB, {}) for path in DRIFTS},
    **{f"{shown}": (world("arc", shown), BVDGLMUCB, {}) for shown in ARM_LAWS},
    **{f"{reward}": (world("random-walk", "ball", reward), BVDGLMUCB, {}) for reward in REWARDS},
    **{f"{kind} delay": (world("turns", "come-and-go", delay=delay(kind)), BVDGLMUCB, {}) for kind in DELAYS},
    "intercept": (world("arc", "sphere", intercept=0.4), BVDGLMUCB, {}),
    "half the bonus, little ridge": (world("arc", "ball"), BVDGLMUCB, {"bonus_scale": 0.5, "lam": 0.1}),
    "GLM-UCB": (world("arc", "ball"), GLMUCB, {}),
    "D-LinUCB": (world("arc", "ball", "gaussian"), DLinUCB, {"bonus_scale": 0.3}),
    "OFUL": (world("arc", "ball", "gaussian", delay=delay("uniform")), OFUL, {}),
}


@pytest.mark.parametrize(("environment", "cls", "settings"), AGAINST.values(), ids=AGAINST)
def test_against_the_definitions(environment: EnvironmentSpec, cls: type[Policy], settings: dict) -> None:
    built = environment.build(horizon=90, lanes=2, seed=3)
    discounts = {"gamma": [0.85, 0.97]} if cls in (BVDGLMUCB, DLinUCB) else {}
    link = {"link": built.link} if issubclass(cls, BVDGLMUCB | GLMUCB) else {}
    policy = cls(built.dim, S=built.S, L=built.L, sigma=built.sigma, lanes=2, **discounts, **link, **settings)
    run = Run(built, policy)
    for shown, choice, row in run.rounds(every=15):
        for lane in range(2):
            expected = run.expected(shown.t, lane)
            for name, value in expected.items():
                assert row[name][lane] == pytest.approx(value, rel=1e-7, abs=2e-7), name
            assert row["beta"][lane] == policy.decision.beta[lane]
            assert row["lemma_2_slack"][lane] == row["tracking_bound"][lane] - row["tracking"][lane]
            slack = run.regret_bound(shown, choice, lane)
            assert row["lemma_3_slack"][lane] == pytest.approx(slack, rel=1e-8, abs=1e-8)
            if cls is BVDGLMUCB and expected["learning"] < policy.decision.beta[lane]:
                left = expected["tracking"] - policy.decision.projection.value[lane]
                assert row["lemma_4_slack"][lane] == pytest.approx(left, rel=1e-7, abs=2e-7)


# --- what an engine may meet -----------------------------------------------------------------------------------------


def test_rounds_that_are_not_recorded_leave_the_row() -> None:
    built = world("arc", "ball").build(horizon=20, lanes=2, seed=0)
    policy = BVDGLMUCB(2, gamma=0.9, lanes=2)
    probe = Diagnostics(policy, built)
    assert probe.read_row() == {}
    seen = []
    for t in range(1, 6):
        shown = built.round(t)
        probe.begin_round(shown, t == 2)
        probe.measure_decision(shown, policy.select(shown.arms))
        seen.append(probe.read_row())
    assert seen[0] == {}
    assert set(seen[1]) == set(QUANTITIES)
    assert all(row is seen[1] for row in seen[2:])


def test_what_the_estimator_ignores_for_its_age_is_ignored() -> None:
    """Without any observation b and b_bar are 0, and theta* alone is left: ridge |theta*| / sqrt(lam)."""
    slow = world("static", "ball", delay=DELAYS["fixed"](rounds=60)).build(horizon=90, lanes=1, seed=0)
    policy = BVDGLMUCB(2, gamma=0.9, tolerance=1.0)
    assert policy.estimator.memory[0] < 60
    for _, _, row in Run(slow, policy).rounds(every=10):
        assert row["learning"][0] == pytest.approx(policy.estimator.ridge)
        assert row["tracking"][0] == pytest.approx(0, abs=1e-12)


class Restarting(BVDGLMUCB):
    """Begins anew at three decisions, in lane 0 only; earlier decisions are not learnt then."""

    restarts = (31, 32, 61)
    since = 0

    def select(self, arms, valid=None):
        if self.t in self.restarts:
            self.estimator.reset(np.array([True, False]))
            self.since = self.t
        return super().select(arms, valid)

    def update(self, x, reward, round=None, weight=1.0, mask=None):
        if mask is not None:
            mask = mask & ((round >= self.since) | np.array([False, True]))
        super().update(x, reward, round, weight, mask)


@pytest.mark.parametrize("late", [None, delay("uniform")], ids=["at once", "late"])
def test_lanes_that_start_afresh(late: Any) -> None:
    built = world("arc", "ball", delay=late).build(horizon=90, lanes=2, seed=0)
    policy = Restarting(2, gamma=[0.95, 0.95], lanes=2)
    run = Run(built, policy)
    for shown, _, row in run.rounds(every=1):
        lanes = [0, 1]
        if shown.t in policy.restarts:
            assert all(np.isnan(values[0]) for values in row.values())
            run.histories[0] = naive.NaiveHistory(2, run.link, 0.95, policy.estimator.lam, policy.estimator.ridge)
            run.means[0], run.since[0] = np.zeros(0), shown.t
            lanes = [1]
        for lane in lanes:
            expected = run.expected(shown.t, lane)
            for name in ("learning", "tracking"):
                assert row[name][lane] == pytest.approx(expected[name], rel=1e-7, abs=1e-7)
            assert row["lemma_2_slack"][lane] >= -SOLVER


def test_a_policy_told_less_than_the_truth_promises_nothing() -> None:
    built = world("arc", "ball", S=1.5).build(horizon=10, lanes=1, seed=0)
    for S, promised in ((1.4, False), (1.5, True), (2.0, True)):
        for _, _, row in Run(built, BVDGLMUCB(2, gamma=0.9, S=S)).rounds(every=5):
            assert np.isfinite(row["learning"]).all()
            assert np.isfinite(row["lemma_3_slack"]).all()
            assert np.isfinite(row["lemma_2_slack"]).all() == promised


def test_lemma_4_says_nothing_where_the_noise_beats_the_radius() -> None:
    built = world("arc", "ball", "gaussian").build(horizon=60, lanes=3, seed=0)
    policy = BVDGLMUCB(2, "identity", gamma=0.95, sigma=0.01, lam=0.01, lanes=3)  # the noise is thirty times that
    rows = [row for _, _, row in Run(built, policy).rounds(every=1)]
    beaten = np.array([row["learning"] > row["beta"] for row in rows])
    assert beaten.any()
    assert not beaten.all()
    assert np.array_equal(np.isnan([row["lemma_4_slack"] for row in rows]), beaten)


def test_custom_links_are_told_apart_by_their_means() -> None:
    def squashed(steepness: float) -> CustomLink:
        def mean(z):
            return 1 / (1 + np.exp(-steepness * z))

        return CustomLink("squashed", mean, lambda z: steepness * mean(z) * (1 - mean(z)))

    built = world("arc", "ball", link=squashed(2.0)).build(horizon=12, lanes=1, seed=0)
    for steepness in (2.0, 1.0):
        policy = BVDGLMUCB(2, squashed(steepness), gamma=0.9)
        probe = Diagnostics(policy, built)
        for t in range(1, 13):
            shown = built.round(t)
            probe.begin_round(shown, True)
            choice = policy.select(shown.arms)
            probe.measure_decision(shown, choice)
            row = probe.read_row()
            policy.update(shown.arms[[0], choice], [1.0])
            probe.learn(shown.arms[[0], choice], shown.means[[0], choice], np.array([float(t)]))
        assert np.isfinite(row["tracking"]).all() == (steepness == 2.0)
        assert row["lemma_3_slack"] >= -SOLVER


def test_a_policy_without_a_radius_or_a_lemma() -> None:
    built = world("arc", "ball").build(horizon=10, lanes=1, seed=0)
    for _, _, row in Run(built, DGLMTS(2, gamma=0.9)).rounds(every=5):
        assert np.isfinite([row["learning"], row["tracking"], row["lemma_2_slack"]]).all()
        assert np.isnan([row["beta"], row["lemma_3_slack"], row["lemma_4_slack"]]).all()


def test_a_policy_without_a_discounted_estimator_is_refused() -> None:
    built = world("arc", "ball").build(horizon=10, lanes=1, seed=0)
    with rejects("policy", got="SimpleNamespace"):
        Diagnostics(SimpleNamespace(name="mine"), built)


def test_lemma_4_where_the_projection_has_work_to_do() -> None:
    """Arms whose tilt follows the sign of theta* mislead the estimate far out of the ball, with next to no noise.

    P2's value is then positive in every other round, and comes close to the tracking term.
    """
    L, horizon, lanes = 3.0, 320, 4
    policy = BVDGLMUCB(2, "identity", gamma=0.99, L=L, lam=0.1, sigma=0.02, lanes=lanes)
    here: Any = SimpleNamespace(horizon=horizon, orthogonal=False, link=policy.link, S=1.0, L=L)
    probe, rng, slacks, values, tracking = Diagnostics(policy, here), np.random.default_rng(0), [], [], []
    for t in range(1, horizon + 1):
        up = (t - 1) // 3 % 2 == 0
        shown = np.tile([L * np.sqrt(1 - 0.3**2), L * (0.3 if up else -0.3)], (lanes, 1, 1))
        theta = np.tile([0.0, 1.0] if t % 12 == 0 else [1.0 if up else -1.0, 0.0], (lanes, 1))
        means = np.einsum("lkd,ld->lk", shown, theta)
        offer = Round(t, shown, None, theta, means, means[:, 0])
        probe.begin_round(offer, t % 12 == 0)
        probe.measure_decision(offer, policy.select(shown))
        if t % 12 == 0:
            row = probe.read_row()
            covered = row["learning"] <= row["beta"]
            slacks += row["lemma_4_slack"][covered].tolist()
            values += policy.decision.projection.value[covered].tolist()
            tracking += row["tracking"][covered].tolist()
        policy.update(shown[:, 0], means[:, 0] + 0.02 * rng.choice([-1.0, 1.0], lanes))
        probe.learn(shown[:, 0], means[:, 0], np.full(lanes, float(t)))
    assert len(slacks) > 50
    assert min(slacks) >= -SOLVER
    assert np.mean(np.array(values) > 1e-3) > 0.3
    assert max(value / most for value, most in zip(values, tracking, strict=True)) > 0.9
