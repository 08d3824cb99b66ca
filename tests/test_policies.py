"""The four policies keep the lanes contract: input checks, time, ties, feedback, state, and what may be read."""

from __future__ import annotations

import io

import numpy as np
import pytest

import naive
from windvane import (
    BVDGLMUCB,
    GLMUCB,
    OFUL,
    POLICIES,
    SWBVDGLMUCB,
    CustomLink,
    DLinUCB,
    Policy,
    check_policy,
    checks,
    get_policy,
    theory,
)
from windvane.policies._saving import FORMAT_VERSION
from windvane.policies._skeleton import Skeleton
from worlds import SIGMA, ball, draw_reward

NAN, INF = float("nan"), float("inf")
BENT = CustomLink("bent", lambda z: 0.5 + 0.4 * np.tanh(z), lambda z: 0.4 / np.cosh(z) ** 2)

# One plain way to build each, for the tests that every policy must pass.
PLAIN = {
    "BVD-GLM-UCB": (BVDGLMUCB, {"gamma": 0.95}),
    "GLM-UCB": (GLMUCB, {}),
    "D-LinUCB": (DLinUCB, {"gamma": 0.95}),
    "OFUL": (OFUL, {}),
    "skeleton": (Skeleton, {"gamma": 0.95}),
}
every_policy = pytest.mark.parametrize(("cls", "settings"), PLAIN.values(), ids=PLAIN)


def id_list(lanes: int | list[int]) -> list[int]:
    return list(range(lanes)) if isinstance(lanes, int) else list(lanes)


def by_lane(cls: type[Policy], **tables: list[float]):
    """A factory whose array settings are a function of the lane id, so that lanes can be compared alone."""

    def build(*, lanes: int | list[int], **kw) -> Policy:
        arrays = {name: [table[i % len(table)] for i in id_list(lanes)] for name, table in tables.items()}
        return cls(lanes=lanes, **arrays, **kw)

    return build


FACTORIES = {
    "bvd": lambda **kw: BVDGLMUCB(gamma=0.95, **kw),
    "bvd gamma 1": lambda **kw: BVDGLMUCB(gamma=1.0, **kw),
    "bvd poisson": lambda **kw: BVDGLMUCB(link="poisson", gamma=0.9, sigma=5.0, S=0.5, L=2.0, **kw),
    "bvd probit": lambda **kw: BVDGLMUCB(link="probit", gamma=0.9, lam=0.1, **kw),
    "bvd identity": lambda **kw: BVDGLMUCB(link="identity", gamma=0.98, L=0.5, **kw),
    "bvd custom": lambda **kw: BVDGLMUCB(link=BENT, gamma=0.95, **kw),
    "bvd tight ball": lambda **kw: BVDGLMUCB(gamma=0.99, S=0.05, lam=0.01, delta=1.0, **kw),
    "bvd from drift": lambda **kw: BVDGLMUCB(horizon=500, drift=2.0, discount="general", confidence="horizon", **kw),
    "bvd gamma lanes": by_lane(BVDGLMUCB, gamma=[0.8, 0.95, 1.0]),
    "bvd all lanes": by_lane(BVDGLMUCB, gamma=[0.9, 1.0], delta=[0.01, 0.5, 1.0], bonus_scale=[0.0, 0.3, 1.0]),
    "glm": GLMUCB,
    "glm probit anytime": lambda **kw: GLMUCB(link="probit", confidence="anytime", S=0.3, **kw),
    "glm custom": lambda **kw: GLMUCB(link=BENT, **kw),
    "glm lanes": by_lane(GLMUCB, delta=[0.01, 1.0], bonus_scale=[0.1, 0.5, 1.0]),
    "dlin": lambda **kw: DLinUCB(gamma=0.95, **kw),
    "dlin gamma 1": lambda **kw: DLinUCB(gamma=1.0, L=3.0, confidence="anytime", **kw),
    "dlin lanes": by_lane(DLinUCB, gamma=[0.5, 0.9, 1.0], delta=[0.1, 0.2], bonus_scale=[1.0, 2.0]),
    "oful": OFUL,
    "oful scaled": lambda **kw: OFUL(S=2.0, L=0.3, lam=0.1, sigma=0.1, **kw),
    "oful lanes": by_lane(OFUL, delta=[0.1, 1.0], bonus_scale=[0.5, 1.0, 2.0]),
    "skeleton": lambda **kw: Skeleton(gamma=0.95, **kw),
    "skeleton poisson gamma 1": lambda **kw: Skeleton(link="poisson", gamma=1.0, sigma=2.0, **kw),
}


class World:
    """Random arms, and rewards of any link with theta* of length 1 turning slowly; the same for every policy."""

    def __init__(self, lanes: int, dim: int, K: int = 4, L: float = 1.0, link: str = "logistic", seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.lanes, self.dim, self.K, self.L, self.link, self.t = lanes, dim, K, L, link, 0

    def arms(self) -> np.ndarray:
        self.t += 1
        return ball(self.rng, (self.lanes, self.K), self.dim, self.L)

    def rewards(self, x: np.ndarray) -> np.ndarray:
        theta = np.zeros(self.dim)
        theta[0] = np.cos(self.t / 30)
        theta[-1] += np.sin(self.t / 30)
        return draw_reward(self.rng, self.link, x @ theta / np.linalg.norm(theta))


def play(policy: Policy, world: World, rounds: int) -> np.ndarray:
    """``rounds`` rounds of select and update; the choices."""
    choices = []
    for _ in range(rounds):
        arms = world.arms()
        index = policy.select(arms)
        x = arms[np.arange(policy.lanes), index]
        policy.update(x, world.rewards(x))
        choices.append(index)
    return np.array(choices)


def same_state(one: dict, other: dict) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype
        and one[name].shape == other[name].shape
        and one[name].tobytes() == other[name].tobytes()
        for name in one
    )


def refuses(policy: Policy, name: str, call) -> None:
    """``call`` raises a one-line ValueError that names the argument first, and the state stays as it was."""
    before = policy.state()
    with pytest.raises(ValueError, match=rf"^{name}\b") as caught:
        call()
    assert "\n" not in str(caught.value)
    assert same_state(policy.state(), before)


# --- the public conformance suite ------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
def test_conformance(factory, check) -> None:
    """Every check of the public suite, for every policy and for settings that reach every branch of the contract."""
    check(factory)


@every_policy
def test_check_policy(cls, settings) -> None:
    """The public entry point itself, on each policy."""
    check_policy(lambda **kw: cls(**settings, **kw))


def test_registry() -> None:
    """The names the papers give."""
    paper = {"OFUL": OFUL, "D-LinUCB": DLinUCB, "GLM-UCB": GLMUCB, "BVD-GLM-UCB": BVDGLMUCB}
    assert paper.items() <= POLICIES.items()
    for name, policy in POLICIES.items():
        assert get_policy(name) is policy
        assert policy.name == name
    with pytest.raises(ValueError, match=r"^name='LinUCB'"):
        get_policy("LinUCB")


# --- refused at construction -----------------------------------------------------------------------------------------

BAD_EVERYWHERE = {
    "dim": [0, -1, 2.0, "2", True, None],
    "lanes": [0, -1, 2.0, [], [-1], [2**32], [0.5], [[0, 1]], True, None, "ab"],
    "seed": [-1, 2**64, 1.5, None],
    "S": [0.0, -1.0, NAN, INF, None],
    "L": [0.0, -1.0, NAN, INF, "x"],
    "lam": [0.0, -1.0, NAN, INF],
    "sigma": [0.0, -0.5, NAN, INF],
    "bonus_scale": [-1.0, NAN, INF, [1.0, 1.0], "x"],
}
BAD_GAMMA = [0.0, -0.1, 1.0 + 1e-9, NAN, INF, [0.9, 0.9], [[0.9]], "x"]
BAD_DELTA = [0.0, -0.1, 1.0 + 1e-9, NAN, INF, [0.1, 0.1], "x"]
FORGETTING = ("BVD-GLM-UCB", "D-LinUCB", "skeleton")


def bad_arguments() -> list:
    cases = []
    for policy in PLAIN:
        bad = dict(BAD_EVERYWHERE)
        if policy != "skeleton":
            bad["delta"] = BAD_DELTA
        if policy in FORGETTING:
            bad["gamma"] = BAD_GAMMA
        if policy in ("BVD-GLM-UCB", "GLM-UCB", "skeleton"):
            bad["link"] = ["logit", "", None, 3]
        if policy in ("BVD-GLM-UCB", "GLM-UCB"):
            bad["tolerance"] = [0.0, -1e-6, NAN]
        if policy in ("BVD-GLM-UCB", "GLM-UCB", "D-LinUCB"):
            bad["confidence"] = ["uniform", "", None]
        cases += [(policy, name, value) for name, values in bad.items() for value in values]
    return [pytest.param(*case, id=f"{case[0]}-{case[1]}-{case[2]}") for case in cases]


@pytest.mark.parametrize(("policy", "name", "value"), bad_arguments())
def test_bad_arguments_are_named(policy: str, name: str, value: object) -> None:
    """A setting outside its range raises a ValueError that begins with the setting's name."""
    cls, settings = PLAIN[policy]
    with pytest.raises(ValueError, match=rf"^{name}\b"):
        cls(**{"dim": 2} | settings | {name: value})


def test_ragged_lane_ids_are_named() -> None:
    """Ids that do not even form an array are refused like any other bad ``lanes``."""
    with pytest.raises(ValueError, match=r"^lanes\b"):
        OFUL(2, lanes=[[0], [1, 2]])


@pytest.mark.parametrize("cls", [BVDGLMUCB, DLinUCB])
def test_arrays_over_lanes_must_have_one_entry_a_lane(cls) -> None:
    """gamma, delta and bonus_scale: a number or one per lane; the one with the wrong shape is the one named."""
    for name in ("gamma", "delta", "bonus_scale"):
        with pytest.raises(ValueError, match=rf"^{name}\b"):
            cls(2, **{"gamma": 0.9} | {name: [0.5, 0.5, 0.5]}, lanes=2)
        with pytest.raises(ValueError, match=rf"^{name}\b"):
            cls(2, **{"gamma": 0.9} | {name: [0.5, -0.5]}, lanes=2)


@pytest.mark.parametrize("cls", [BVDGLMUCB, DLinUCB])
def test_how_the_discount_may_be_given(cls) -> None:
    """gamma, or horizon and drift; not both, not neither, and an unknown ``discount`` is never overlooked."""
    with pytest.raises(ValueError, match=r"^gamma\b"):
        cls(2, gamma=0.9, horizon=100, drift=1.0)
    for half in ({}, {"horizon": 100}, {"drift": 1.0}):
        with pytest.raises(ValueError, match=r"^gamma\b"):
            cls(2, **half)
    for name, value in {"horizon": 0, "drift": -1.0}.items():
        with pytest.raises(ValueError, match=rf"^{name}\b"):
            cls(2, **{"horizon": 100, "drift": 1.0} | {name: value})
    with pytest.raises(ValueError, match=r"^horizon\b"):
        cls(2, horizon=2.5, drift=1.0)
    with pytest.raises(ValueError, match=r"^drift\b"):
        cls(2, horizon=100, drift=NAN)


@pytest.mark.parametrize("cls", [BVDGLMUCB, DLinUCB])
@pytest.mark.parametrize("source", [{"horizon": 100, "drift": 1.0}, {"gamma": 0.9}], ids=["drift", "gamma"])
def test_unknown_discount_is_named(cls, source) -> None:
    """``discount`` must be one of the two that exist, whether or not it is used."""
    with pytest.raises(ValueError, match=r"^discount\b"):
        cls(2, **source, discount="orthogonl")


@pytest.mark.parametrize(("cls", "settings"), [(BVDGLMUCB, {"gamma": 0.9}), (DLinUCB, {"gamma": 0.9}), (GLMUCB, {})])
def test_the_horizon_form_of_delta_needs_a_horizon(cls, settings) -> None:
    """confidence="horizon" divides delta by T, so T must be there and whole."""
    for horizon in (None, 0, 1.5):
        with pytest.raises(ValueError, match=r"^horizon\b"):
            cls(2, **settings, confidence="horizon", horizon=horizon)
    cls(2, **settings, confidence="horizon", horizon=10)


@pytest.mark.parametrize("cls", [BVDGLMUCB, DLinUCB])
@pytest.mark.parametrize("kind", ["orthogonal", "general"])
@pytest.mark.parametrize("drift", [0.0, 1.5708, 1e9])
def test_horizon_and_drift_give_the_discount_of_theorem_1(cls, kind: str, drift: float) -> None:
    """gamma = theory.discount in every lane; no drift: 1; the clip at 1/2."""
    policy = cls(2, horizon=3000, drift=drift, discount=kind, lanes=3)
    assert (policy.gamma == theory.discount(horizon=3000, drift=drift, dim=2, kind=kind)).all()
    if cls is BVDGLMUCB and kind == "orthogonal" and drift == 1.5708:
        assert policy.gamma[0] == pytest.approx(0.995908, abs=5e-7)  # the paper's experiment
    if drift == 0.0:
        assert policy.gamma[0] == 1.0


def test_settings_are_copied() -> None:
    """What the caller does to the arrays it built a policy with has no effect."""
    arrays = {"gamma": np.array([0.9, 0.99]), "delta": np.array([0.1, 0.2]), "bonus_scale": np.array([1.0, 0.5])}
    ids = np.array([4, 9])
    policy, twin = (BVDGLMUCB(2, lanes=ids.copy(), **{k: v.copy() for k, v in arrays.items()}) for _ in range(2))
    owned = BVDGLMUCB(2, lanes=ids, **arrays)
    for array in (*arrays.values(), ids):
        array[:] = 1
    expected = play(twin, World(2, 2), 10)
    assert (play(policy, World(2, 2), 10) == expected).all()
    assert (play(owned, World(2, 2), 10) == expected).all()
    assert same_state(owned.state(), twin.state())


# --- refused in use --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("link", ["logistic", "poisson", "probit", BENT], ids=str)
@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_rewards_outside_their_range_are_refused(link, sigma: float) -> None:
    """[0, 2 sigma], ends included, for links with bounded rewards."""
    policy = BVDGLMUCB(2, link, gamma=0.9, sigma=sigma, lanes=2)
    play(policy, World(2, 2), 3)
    x = np.full((2, 2), 0.1)
    for bad in (-1e-9, 2 * sigma * (1 + 1e-9), NAN, INF, -INF):
        refuses(policy, "reward", lambda bad=bad: policy.update(x, [0.5, bad]))
        refuses(policy, "reward", lambda bad=bad: policy.update(x, bad))
    policy.update(x, [0.0, 2 * sigma])
    policy.update(x, [0.5, -7.0], mask=[True, False])  # what a masked lane holds does not count


@pytest.mark.parametrize(
    "build", [OFUL, lambda d: DLinUCB(d, gamma=0.9), lambda d: BVDGLMUCB(d, "identity", gamma=0.9)]
)
def test_linear_policies_take_any_finite_reward(build) -> None:
    """For the identity link sigma is the scale of the noise, not a range."""
    policy = build(2)
    policy.select(np.full((1, 1, 2), 0.5))
    policy.update([[0.5, 0.5]], -1e6)
    policy.update([[0.5, 0.5]], [1e6])
    assert np.isfinite(policy.theta_hat).all()
    for bad in (NAN, INF, -INF):
        refuses(policy, "reward", lambda bad=bad: policy.update([[0.5, 0.5]], bad))


@every_policy
@pytest.mark.parametrize("L", [0.5, 3.0])
def test_the_bound_on_norms_is_kept_up_to_rounding(cls, settings, L: float) -> None:
    """An arm 1e-12 longer than L is rounding; one longer by 1e-6 is an error."""
    policy = cls(2, **settings, L=L)
    arm = L * np.array([[0.6, 0.8]])
    policy.select((1 + 1e-12) * arm[:, None])
    policy.update((1 + 1e-12) * arm, 1.0)
    refuses(policy, "arms", lambda: policy.select((1 + 1e-6) * arm[:, None]))
    refuses(policy, "x", lambda: policy.update((1 + 1e-6) * arm, 1.0))


@every_policy
def test_bad_calls_name_the_argument(cls, settings) -> None:
    """Each refused call names what was wrong first, and leaves every bit of the state alone."""
    policy = cls(2, **settings, lanes=2)
    x, arms = np.full((2, 2), 0.3), np.full((2, 3, 2), 0.3)
    refuses(policy, "round", lambda: policy.update(x, 1.0))  # nothing has been decided yet
    play(policy, World(2, 2), 5)
    nan_arms, long_x, no_arm = arms.copy(), x.copy(), np.ones((2, 3), dtype=bool)
    nan_arms[1, 2, 0], long_x[1], no_arm[1] = NAN, 2.0, False
    refuses(policy, "arms", lambda: policy.select(nan_arms))
    refuses(policy, "arms", lambda: policy.select(arms[:, :0]))
    refuses(policy, "arms", lambda: policy.select(arms[0]))
    refuses(policy, "arms", lambda: policy.select("arms"))
    refuses(policy, "valid", lambda: policy.select(arms, no_arm))
    refuses(policy, "valid", lambda: policy.select(arms, no_arm.astype(int)))
    refuses(policy, "valid", lambda: policy.select(arms, no_arm[:, :2]))
    refuses(policy, "x", lambda: policy.update(long_x, 1.0))
    refuses(policy, "x", lambda: policy.update(x[0], 1.0))
    refuses(policy, "x", lambda: policy.update(np.where(np.eye(2) > 0, NAN, x), 1.0))
    refuses(policy, "reward", lambda: policy.update(x, [1.0]))
    refuses(policy, "reward", lambda: policy.update(x, "high"))
    refuses(policy, "round", lambda: policy.update(x, 1.0, round=5.5))
    refuses(policy, "round", lambda: policy.update(x, 1.0, round=[5.0, 6.0]))
    refuses(policy, "round", lambda: policy.update(x, 1.0, round=NAN))
    refuses(policy, "round", lambda: policy.update(x, 1.0, round=-INF))
    refuses(policy, "weight", lambda: policy.update(x, 1.0, weight=-1e-9))
    refuses(policy, "weight", lambda: policy.update(x, 1.0, weight=[1.0, INF]))
    refuses(policy, "weight", lambda: policy.update(x, 1.0, weight=[1.0, 1.0, 1.0]))
    refuses(policy, "mask", lambda: policy.update(x, 1.0, mask=[1, 0]))
    refuses(policy, "mask", lambda: policy.update(x, 1.0, mask=[True]))
    refuses(policy, "n", lambda: policy.advance(-0.5))
    refuses(policy, "n", lambda: policy.advance(INF))
    refuses(policy, "n", lambda: policy.advance("soon"))
    policy.update(x, 1.0, round=5.0)  # the last round itself is fine


# --- lanes -----------------------------------------------------------------------------------------------------------


@every_policy
def test_lanes_with_one_id_and_one_setting_are_one_bandit(cls, settings) -> None:
    """Repeated ids draw the same ties: shown the same, such lanes never part."""
    policy = cls(2, **settings, lanes=[5, 1, 5], seed=3)
    rng = np.random.default_rng(0)
    parted = False
    for _ in range(60):
        arms = np.repeat(ball(rng, (1, 1), 2), 4, axis=1)  # all arms equal: every choice is a tie
        index = policy.select(np.repeat(arms, 3, axis=0))
        assert index[0] == index[2]
        parted |= bool(index[0] != index[1])
        policy.update(np.repeat(arms[:, 0], 3, axis=0), draw_reward(rng, "logistic", np.zeros(1)).repeat(3))
    assert parted  # 60 ties among 4: another id agrees throughout with probability 4^-60
    for name in ("theta_hat", "V", "V_tilde", "b"):
        value = getattr(policy, name)
        assert (value[0] == value[2]).all()


SWEEPS = {
    "BVD gamma": (BVDGLMUCB, {"gamma": [0.7, 0.95, 1.0]}),
    "BVD delta": (BVDGLMUCB, {"gamma": [0.97] * 3, "delta": [0.001, 0.1, 1.0]}),
    "BVD bonus": (BVDGLMUCB, {"gamma": [0.97] * 3, "bonus_scale": [0.0, 0.1, 1.0]}),
    "GLM bonus": (GLMUCB, {"bonus_scale": [0.0, 0.1, 1.0]}),
    "D-LinUCB gamma": (DLinUCB, {"gamma": [0.7, 0.95, 1.0]}),
    "OFUL delta": (OFUL, {"delta": [0.001, 0.1, 1.0]}),
    "skeleton gamma": (Skeleton, {"gamma": [0.7, 0.95, 1.0]}),
}


@pytest.mark.parametrize(("cls", "arrays"), SWEEPS.values(), ids=SWEEPS)
def test_a_sweep_over_lanes_equals_separate_policies(cls, arrays) -> None:
    """Lanes that share an id but not a setting decide as policies of their own would, bit for bit."""

    class OneWorld(World):
        """Every lane sees the arms and the noise of lane 0."""

        def arms(self) -> np.ndarray:
            self.t += 1
            return np.repeat(ball(self.rng, (1, self.K), self.dim), self.lanes, axis=0)

        def rewards(self, x: np.ndarray) -> np.ndarray:
            return (self.rng.random() < 1 / (1 + np.exp(-x[:, 0]))).astype(float)

    together = cls(2, **arrays, lanes=[7, 7, 7], seed=1)
    choices = play(together, OneWorld(3, 2), 120)
    for lane in range(3):
        alone = cls(2, **{name: values[lane] for name, values in arrays.items()}, lanes=[7], seed=1)
        assert (play(alone, OneWorld(1, 2), 120)[:, 0] == choices[:, lane]).all()
        for name in ("theta_hat", "V", "V_tilde", "b"):
            assert (getattr(alone, name)[0] == getattr(together, name)[lane]).all(), name
    assert (choices != choices[:, :1]).any(), "the settings must matter for this to mean anything"


# --- ties ------------------------------------------------------------------------------------------------------------


def chi_square(counts: np.ndarray) -> float:
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2).sum() / expected)


@every_policy
def test_ties_are_broken_uniformly_and_independently(cls, settings) -> None:
    """Among K equal arms each is chosen equally often, whatever was chosen in the lane's last decision.

    A chi-square statistic with k degrees of freedom exceeds k + 8 sqrt(k) + 16 with probability below 1e-6.
    """
    lanes, K = 4000, 5
    policy = cls(2, **settings, lanes=lanes)
    arms = np.full((lanes, K, 2), 0.5)
    first, second = policy.select(arms), policy.select(arms)
    for index in (first, second):
        assert chi_square(np.bincount(index, minlength=K)) < 4 + 8 * 2 + 16
    assert chi_square(np.bincount(K * first + second, minlength=K * K)) < 24 + 8 * np.sqrt(24) + 16
    neighbours = K * first[:-1:2] + first[1::2]
    assert chi_square(np.bincount(neighbours, minlength=K * K)) < 24 + 8 * np.sqrt(24) + 16


def test_ties_among_valid_arms_only() -> None:
    """Arms that are not there take no share; what they hold is irrelevant."""
    lanes = 3000
    policy = OFUL(2, lanes=lanes)
    arms = np.full((lanes, 5, 2), 0.5)
    valid = np.array([False, True, True, False, True]) & np.ones((lanes, 1), dtype=bool)
    arms[:, 0], arms[:, 3] = 9.0, NAN
    counts = np.bincount(policy.select(arms, valid), minlength=5)
    assert counts[0] == counts[3] == 0
    assert chi_square(counts[[1, 2, 4]]) < 2 + 8 * np.sqrt(2) + 16


def test_ties_depend_on_seed_lane_id_and_decision_only() -> None:
    """Not on the policy, the place of the lane, its companions, the clock, nor on the rewards."""
    ids = [9, 2, 2**32 - 1, 40, 0]
    arms = np.full((5, 7, 2), 0.5)

    def ties(policy: Policy, between=None, shown: np.ndarray = arms) -> np.ndarray:
        choices = []
        for _ in range(30):
            choices.append(policy.select(shown))
            if between is not None:
                between(policy)
        return np.array(choices)

    expected = ties(OFUL(2, lanes=ids, seed=6))
    for cls, settings in PLAIN.values():
        assert (ties(cls(2, **settings, lanes=ids, seed=6)) == expected).all()
    assert (ties(OFUL(2, lanes=ids[::-1], seed=6))[:, ::-1] == expected).all()
    assert (ties(OFUL(2, lanes=[40], seed=6), shown=arms[:1])[:, 0] == expected[:, 3]).all()
    assert (ties(OFUL(2, lanes=ids, seed=6), lambda p: p.advance(2.5)) == expected).all()
    assert (
        ties(OFUL(2, lanes=ids, seed=6), lambda p: p.update(arms[:, 0], [0.0, 1.0, 1.0, 0.0, 1.0])) == expected
    ).all()
    assert (ties(OFUL(2, lanes=ids, seed=6), lambda p: p.info()) == expected).all()
    assert (ties(OFUL(2, lanes=ids, seed=7)) != expected).any()
    assert (ties(OFUL(2, lanes=ids, seed=6 + 2**32)) != expected).any()


def test_what_counts_as_a_tie() -> None:
    """Scores within 1e-12 max(1, |best|) of the best are equal; a relative 1e-9 is a difference."""
    lanes = 400
    close, apart = (np.full((lanes, 2, 1), 1.0) for _ in range(2))
    close[:, 1] -= 1e-14
    apart[:, 1] -= 1e-9
    index = OFUL(1, lanes=lanes).select(close)
    assert 0 < index.sum() < lanes
    assert (OFUL(1, lanes=lanes).select(apart) == 0).all()
    assert (OFUL(1, lanes=lanes).select(apart[:, ::-1]) == 1).all()


# --- time and feedback -----------------------------------------------------------------------------------------------


def assert_equals_history(policy: Policy, histories: list[naive.NaiveHistory], t: float) -> None:
    """V, V_tilde, b to rounding; theta_hat to what the estimator promises (1e-8 for the root; nothing is dropped)."""
    for lane, history in enumerate(histories):
        np.testing.assert_allclose(policy.V[lane], history.V(t), rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(policy.V_tilde[lane], history.V_tilde(t), rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(policy.b[lane], history.b(t), rtol=1e-11, atol=1e-13)
        expected = naive.theta_hat(history, t, history.link, history.ridge)
        np.testing.assert_allclose(policy.theta_hat[lane], expected, rtol=0, atol=2e-8)


@pytest.mark.parametrize("link", ["logistic", "poisson", "probit", "identity"])
@pytest.mark.parametrize("seed", range(3))
def test_any_course_of_events_equals_the_sums(link: str, seed: int) -> None:
    """Decisions, pauses of any length, rewards late, repeated, weighted, masked: always the sums of the definition."""
    rng = np.random.default_rng(seed)
    gammas, dim, lam = [0.9, 0.985, 1.0], 3, 0.5
    policy = BVDGLMUCB(dim, link, gamma=gammas, lam=lam, sigma=SIGMA[link], lanes=3)
    _, c_mu, _ = naive.constants(naive.LINKS[link], 1.0, 1.0)
    histories = [naive.NaiveHistory(dim, naive.LINKS[link], gamma, lam, lam * c_mu) for gamma in gammas]
    t, last, decisions = 1.0, None, 0
    for _ in range(80):
        event = rng.choice(["select", "advance", "update", "update"])
        if event == "select" or last is None:
            policy.select(ball(rng, (3, 4), dim))
            last, t, decisions = t, t + 1, decisions + 1
        elif event == "advance":
            gap = float(rng.choice([0.0, 0.25, 1.0, 2.0, np.pi]))
            policy.advance(gap)
            t += gap
        else:
            x = ball(rng, (3,), dim)
            reward = draw_reward(rng, link, x[:, 0])
            rounds = None if rng.random() < 0.3 else rng.uniform(max(0.0, t - 30), t - 1, 3)
            weight = rng.choice([0.0, 0.5, 1.0, 3.0], 3) if rng.random() < 0.5 else 1.0
            mask = rng.random(3) < 0.7 if rng.random() < 0.5 else None
            policy.update(x, reward, round=rounds, weight=weight, mask=mask)
            for lane in range(3):
                if mask is None or mask[lane]:
                    moment = last if rounds is None else rounds[lane]
                    histories[lane].append(x[lane], reward[lane], moment, np.broadcast_to(weight, 3)[lane])
        assert policy.t == pytest.approx(t, rel=1e-14)
        assert policy.info()["decisions"] == decisions
    assert_equals_history(policy, histories, t)


@every_policy
def test_update_never_moves_time(cls, settings) -> None:
    """Only select (by one) and advance (by n) do."""
    policy = cls(2, **settings)
    assert policy.t == 1.0
    policy.select(np.full((1, 2, 2), 0.1))
    assert policy.t == 2.0
    for moment in (None, 1.0, 0.5, -3.0):
        policy.update([[0.1, 0.1]], 1.0, round=moment)
        assert policy.t == 2.0
    policy.advance(0.75)
    assert policy.t == 2.75
    policy.advance()
    assert policy.t == 3.75
    policy.select(np.full((1, 2, 2), 0.1))
    assert policy.t == 4.75


@every_policy
def test_the_default_round_is_the_last_decided_one(cls, settings) -> None:
    """However long ago that was: its reward enters with the weight of its age."""
    x = np.array([[0.6, -0.3]])
    implicit, explicit = (cls(2, **settings) for _ in range(2))
    for policy in (implicit, explicit):
        policy.advance(1.5)
        policy.select(x[:, None])
        policy.advance(3.25)
    implicit.update(x, 1.0)
    explicit.update(x, 1.0, round=2.5)
    assert same_state(implicit.state(), explicit.state())
    gamma = implicit.gamma[0]
    np.testing.assert_allclose(implicit.V[0], np.eye(2) + gamma**3.25 * x.T @ x, rtol=1e-14)
    np.testing.assert_allclose(implicit.V_tilde[0], np.eye(2) + gamma**6.5 * x.T @ x, rtol=1e-14)
    np.testing.assert_allclose(implicit.b[0], gamma**3.25 * x[0], rtol=1e-14)


@every_policy
def test_the_last_round_can_be_rewarded_at_any_fractional_time(cls, settings) -> None:
    """(t + 1) - 1 may round below t: the round just decided must still not count as the future."""
    rng, policy = np.random.default_rng(0), cls(2, **settings)
    for _ in range(100):
        policy.advance(rng.random())
        policy.select(np.full((1, 2, 2), 0.5))
        policy.update([[0.5, 0.5]], 1.0)


@every_policy
def test_weight_two_is_the_same_observation_twice(cls, settings) -> None:
    """In V, V_tilde, b to rounding and in theta_hat to the root's tolerance; weight 0 and a closed mask are nothing."""
    world = World(1, 3)
    double, twice = (cls(3, **settings) for _ in range(2))
    for _ in range(30):
        arms = world.arms()
        x = arms[:, 0]
        reward = world.rewards(x)
        for policy in (double, twice):
            policy.select(arms)
        double.update(x, reward, weight=2.0)
        before = twice.state()
        twice.update(x, reward, weight=0.0)
        twice.update(np.full((1, 3), NAN), NAN, round=NAN, weight=NAN, mask=[False])
        assert same_state(twice.state(), before)
        twice.update(x, reward)
        twice.update(x, reward, weight=[1.0], mask=[True])
    for name in ("V", "V_tilde", "b"):
        np.testing.assert_allclose(getattr(double, name), getattr(twice, name), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(double.theta_hat, twice.theta_hat, rtol=0, atol=2e-8)


@pytest.mark.parametrize("weight", [1.0, 1e4])
def test_a_reward_older_than_the_memory(weight: float) -> None:
    """However late, a reward moves theta_hat as if it had been on time, to the tolerance of 1e-6: heavy ones too."""
    x = np.array([[1.0]])
    punctual, late = (BVDGLMUCB(1, gamma=0.9) for _ in range(2))
    for policy in (punctual, late):
        policy.select(x[:, None])
    pause = float(late.info()["memory"][0]) + 1.0
    punctual.update(x, 1.0, weight=weight)
    for policy in (punctual, late):
        policy.advance(pause)
    late.update(x, 1.0, round=1.0, weight=weight)
    np.testing.assert_allclose(late.theta_hat, punctual.theta_hat, rtol=0, atol=1e-6)


@every_policy
def test_time_may_pass_in_pieces(cls, settings) -> None:
    """advance(n) is n advances of 1, or of any parts that add up to n."""
    whole, ones, parts = (cls(3, **settings) for _ in range(3))
    for policy, gaps in ((whole, [3.0]), (ones, [1.0, 1.0, 1.0]), (parts, [0.5, 0.0, 2.125, 0.375])):
        play(policy, World(1, 3), 20)
        for gap in gaps:
            policy.advance(gap)
    for policy in (ones, parts):
        assert policy.t == whole.t
        for name in ("V", "V_tilde", "b"):
            np.testing.assert_allclose(getattr(policy, name), getattr(whole, name), rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(policy.theta_hat, whole.theta_hat, rtol=0, atol=2e-8)


# --- what can be read ------------------------------------------------------------------------------------------------

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
    arrays = {name: getattr(policy, name) for name in names if hasattr(policy, name)}
    arrays |= {name: value for name, value in policy.info().items() if isinstance(value, np.ndarray)}
    arrays |= {f"state {name}": value for name, value in policy.state().items()}
    if hasattr(policy, "radius"):
        arrays["radius"] = policy.radius()
    if hasattr(policy, "beta"):
        arrays["beta(t)"] = policy.beta(policy.t)
    assert repr(policy)
    assert policy.config_hash
    return arrays


@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
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
        tilde, hat = policy.theta_tilde, policy.theta_hat
        play(policy, world, 1)
        assert (policy.info()["theta_tilde"] == tilde).all()
        assert (policy.info()["theta_hat"] == hat).all()
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
            norms = np.linalg.norm(each.theta_tilde, axis=1)
            assert (norms <= S * (1 + 1e-12)).all()
            outside = np.linalg.norm(each.theta_hat, axis=1) > S
            np.testing.assert_allclose(norms[outside], S, rtol=1e-6)
        stages |= set(policy.info()["stage"].tolist())
    assert stages == {1, 2, 3} if dim <= 2 else {1, 2} <= stages


def test_glm_ucb_is_bvd_glm_ucb_without_forgetting_while_theta_hat_is_inside() -> None:
    """With gamma = 1 and no projection the two run the same decisions to the last bit."""
    world = World(3, 2), World(3, 2)
    glm, bvd = (
        GLMUCB(2, S=4.0, lam=20.0, lanes=3),
        BVDGLMUCB(2, gamma=1.0, S=4.0, lam=20.0, lanes=3),
    )
    for _ in range(150):
        assert (play(glm, world[0], 1) == play(bvd, world[1], 1)).all()
        assert (np.linalg.norm(glm.theta_hat, axis=1) < 4.0).all()
        info, other = glm.info(), bvd.info()
        assert (info["stage"] == 1).all()
        for name in ("theta_tilde", "beta", "value"):
            assert (info[name] == other[name]).all()
    mine, theirs = glm.state(), bvd.state()
    assert mine.pop("config") != theirs.pop("config")
    assert mine.pop("checksum") != theirs.pop("checksum")
    assert same_state(mine, theirs)


# --- state -----------------------------------------------------------------------------------------------------------


def through_a_file(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a store without pickle gives back."""
    file = io.BytesIO()
    np.savez(file, **state)
    file.seek(0)
    with np.load(file, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
def test_a_run_resumed_from_a_file_goes_on_bit_for_bit(factory) -> None:
    """Saved between a decision and its reward, after a pause, with rewards outstanding and ties to come."""
    original = factory(dim=2, lanes=3, seed=8)
    world = World(3, 2, L=original.L)
    play(original, world, 30)
    original.advance(0.375)
    arms = world.arms()
    original.select(arms)
    state = original.state()
    resumed = factory(dim=2, lanes=3, seed=8)
    resumed.load_state(through_a_file(state))
    assert same_state(resumed.state(), state)
    again = np.random.default_rng(1)
    events = [(ball(again, (3, 4), 2, original.L), (again.random(3) < 0.5).astype(float)) for _ in range(30)]
    choices = []
    for policy in (original, resumed):
        policy.update(arms[:, 0], np.ones(3))  # the outstanding reward, by default of the last round
        policy.update(arms[:, 1], np.zeros(3), round=17.0)
        chosen = []
        for k, (shown, reward) in enumerate(events):
            index = policy.select(np.repeat(shown[:, :1], 4, axis=1) if k % 3 == 0 else shown)
            chosen.append(index)
            policy.update(shown[:, 0], reward)
        choices.append(chosen)
    assert (np.array(choices[0]) == np.array(choices[1])).all()
    assert same_state(original.state(), resumed.state())
    if hasattr(original, "theta_tilde"):
        assert (original.theta_tilde == resumed.theta_tilde).all()


@every_policy
def test_loading_copies_and_forgets_the_past(cls, settings) -> None:
    """A loaded policy shares no memory with the state, and its own history leaves no trace."""
    source, target = cls(2, **settings, lanes=2), cls(2, **settings, lanes=2)
    play(source, World(2, 2), 20)
    play(target, World(2, 2, seed=5), 90)  # longer: its buffers are larger
    state = source.state()
    target.load_state(state)
    for array in state.values():
        array[...] = np.zeros((), dtype=array.dtype)
    assert same_state(target.state(), source.state())
    assert set(target.info()) == ALWAYS  # no decision of its own yet
    assert (play(target, World(2, 2, seed=6), 40) == play(source, World(2, 2, seed=6), 40)).all()
    assert same_state(target.state(), source.state())


OTHER_SETTINGS = {
    "gamma": 0.94,
    "S": 1.1,
    "L": 1.1,
    "lam": 0.9,
    "sigma": 0.6,
    "delta": 0.06,
    "bonus_scale": 0.9,
    "seed": 1,
    "link": "probit",
    "tolerance": 1e-7,
    "confidence": "anytime",
}


@pytest.mark.parametrize("name", OTHER_SETTINGS)
def test_a_state_of_other_settings_is_refused(name: str) -> None:
    """The state carries a fingerprint of everything the policy was built with."""
    source = BVDGLMUCB(2, **{"gamma": 0.95} | {name: OTHER_SETTINGS[name]})
    play(source, World(1, 2, L=0.9), 3)
    policy = BVDGLMUCB(2, gamma=0.95)
    refuses(policy, "state", lambda: policy.load_state(source.state()))


def test_a_state_of_another_policy_or_other_lanes_is_refused() -> None:
    """Policies of equal numbers are still different policies; so are other ids, another order, another count."""
    policy = BVDGLMUCB(2, gamma=1.0, lanes=[1, 2])
    play(policy, World(2, 2), 3)
    others = [
        GLMUCB(2, lanes=[1, 2]),
        OFUL(2, lanes=[1, 2]),
        BVDGLMUCB(3, gamma=1.0, lanes=[1, 2]),
        BVDGLMUCB(2, gamma=1.0, lanes=[2, 1]),
        BVDGLMUCB(2, gamma=1.0, lanes=[1, 3]),
        BVDGLMUCB(2, gamma=1.0, lanes=[1]),
        BVDGLMUCB(2, gamma=1.0, lanes=[1, 2, 3]),
        BVDGLMUCB(2, gamma=1.0, lanes=[1, 2], confidence="horizon", horizon=10),
    ]
    for other in others:
        refuses(policy, "state", lambda other=other: policy.load_state(other.state()))
    ten, twenty = (BVDGLMUCB(2, gamma=1.0, confidence="horizon", horizon=T) for T in (10, 20))
    refuses(ten, "state", lambda: ten.load_state(twenty.state()))


def test_the_horizon_counts_only_where_it_is_used() -> None:
    """With another form of delta the horizon does not enter a decision, so states move between horizons."""
    one, other = BVDGLMUCB(2, gamma=0.9, horizon=10), BVDGLMUCB(2, gamma=0.9, horizon=20)
    play(one, World(1, 2), 3)
    other.load_state(one.state())
    assert same_state(one.state(), other.state())


SPOILT = {
    "format of the future": {"format": np.array(FORMAT_VERSION + 1)},
    "format missing": {"format": None},
    "settings": {"config": np.array("0" * 64)},
    "settings as bytes": {"config": np.zeros(3)},
    "other ids": {"lane_ids": np.array([0, 2])},
    "no ids": {"lane_ids": None},
    "time zero": {"t": np.array(0.0)},
    "time NaN": {"t": np.array(NAN)},
    "time in a row": {"t": np.ones(2)},
    "negative decisions": {"decisions": np.array(-1)},
    "half a decision": {"decisions": np.array(2.5)},
    "last round ahead": {"last_round": np.array(99.0)},
    "last round missing": {"last_round": None},
    "last round NaN": {"last_round": np.array(NAN)},
    "unknown entry": {"extra": np.zeros(1)},
    "unknown estimator entry": {"estimator.extra": np.zeros(1)},
    "V missing": {"estimator.V": None},
    "V of another shape": {"estimator.V": np.eye(2)},
    "V below lam": {"estimator.V": np.zeros((2, 2, 2))},
    "V_tilde NaN": {"estimator.V_tilde": np.full((2, 2, 2), NAN)},
    "b as integers": {"estimator.b": np.zeros((2, 2), dtype=int)},
    "b infinite": {"estimator.b": np.full((2, 2), INF)},
    "gamma above 1": {"estimator.gamma": np.full(2, 1.5)},
    "more counted than held": {"estimator.counts": np.full(2, 10**6)},
    "negative count": {"estimator.counts": np.full(2, -1)},
    "half a NaN in pull": {"estimator.pull": np.array([[0.0, NAN], [0.0, 0.0]])},
}


@pytest.mark.parametrize("change", SPOILT.values(), ids=SPOILT)
def test_a_spoilt_state_is_refused_whole(change: dict[str, np.ndarray | None]) -> None:
    """Missing, unknown, misshapen, non-finite or impossible entries: refused before anything is swapped."""
    source, policy = (BVDGLMUCB(2, gamma=0.95, lanes=2) for _ in range(2))
    play(source, World(2, 2), 10)
    play(policy, World(2, 2, seed=1), 4)
    state = source.state() | change
    state = {name: value for name, value in state.items() if value is not None}
    refuses(policy, "state", lambda: policy.load_state(state))


@pytest.mark.parametrize("spoil", ["order", "future", "weight"])
def test_a_spoilt_history_is_refused(spoil: str) -> None:
    """The remembered observations must be sorted, in the past, and weigh something."""
    source, policy = (BVDGLMUCB(2, gamma=0.95, lanes=2) for _ in range(2))
    play(source, World(2, 2), 10)
    state = source.state()
    if spoil == "order":
        state["estimator.decided"][1, [3, 6]] = state["estimator.decided"][1, [6, 3]]
    elif spoil == "future":
        state["estimator.decided"][1, 9] = 1e6
    else:
        state["estimator.W"][1, 4] = -1.0
    refuses(policy, "state", lambda: policy.load_state(state))


def test_a_state_with_another_window_is_refused() -> None:
    source, policy = (SWBVDGLMUCB(2, window=30.0, lanes=2) for _ in range(2))
    play(source, World(2, 2), 10)
    state = source.state() | {"estimator.window": np.full(2, 31.0)}
    refuses(policy, r"state\['estimator.window'\]: differs", lambda: policy.load_state(state))
