"""AdaptiveGLMUCB: agreement with its transcription, its contract, and its regret."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from support.refusals import refuses
from support.worlds import regret, train
from windvane import AdaptiveGLMUCB, ArgumentError, CustomLink, Greedy
from windvane.environments import Arc, BallArms, Environment, FixedArms, Rotation, Static, Switches
from windvane.policies.adaptive_glm_ucb import MEMORIES, SCALES

LINKS = {
    "logistic": {},
    "logistic, S given": {"S": 1.0},
    "poisson": {"link": "poisson", "sigma": 20.0, "L": 1.5},
    "probit": {"link": "probit", "S": 0.7},
    "identity": {"link": "identity", "sigma": 0.3},
    "identity, S given": {"link": "identity", "sigma": 0.3, "S": 2.0},
}


@pytest.mark.parametrize("options", LINKS.values(), ids=LINKS)
def test_it_decides_as_the_literal_rule(options) -> None:
    """Rewards arrive late, out of order and with weights. Both learn the rewards of the arms that the policy plays."""
    rng = np.random.default_rng(5)
    policy, literal = AdaptiveGLMUCB(3, **options), naive.NaiveAdaptiveGLMUCB(3, **options)
    link, L, waiting = options.get("link", "logistic"), options.get("L", 1.0), []
    for t in range(1, 151):
        arms = rng.normal(size=(1, 6, 3))
        arms *= L / np.linalg.norm(arms, axis=2, keepdims=True)
        upper = literal.upper(arms[0])
        chosen = int(policy.select(arms)[0])
        assert upper[chosen] >= upper.max() - 1e-8
        literal.age()
        z = float(arms[0, chosen, 0])
        reward = {"poisson": rng.poisson(math.exp(z)), "identity": z + rng.normal()}.get(
            link, rng.random() < 0.5 + z / 3
        )
        waiting.append((t, arms[0, chosen], float(reward), float(rng.choice([1.0, 1.0, 0.4, 3.0]))))
        while waiting and rng.random() < 0.7:
            told, x, r, w = waiting.pop(int(rng.integers(len(waiting))))
            policy.update(x[None], [r], round=told, weight=w)
            literal.learn(x, r, t - told, w)
        info = policy.info()
        np.testing.assert_allclose(info.weights[0].ravel(), literal.weights(), atol=1e-8)
        acting = literal.acting()
        np.testing.assert_allclose(info.dispersion[0], acting["phi"], rtol=1e-9)
        np.testing.assert_allclose(info.theta_hat[0], acting["theta"], atol=1e-8 * (1 + np.abs(acting["theta"]).max()))
        np.testing.assert_allclose(np.linalg.inv(info.metric[0]), acting["phi"] * acting["P"], rtol=1e-6, atol=1e-9)


def test_a_reward_in_parts_fades_earlier_losses_as_much_as_a_whole_one() -> None:
    """At x = 0 all experts predict the same, so the weights change by fading alone; eight parts count as one reward."""
    whole, parts = (train(AdaptiveGLMUCB(2), Environment(Rotation(), BallArms(), horizon=120)) for _ in range(2))
    trained = whole.info().weights
    for _ in range(200):
        whole.update(np.zeros((1, 2)), 0.0)
        for _ in range(8):
            parts.update(np.zeros((1, 2)), 0.0, weight=0.125)
    np.testing.assert_allclose(parts.info().weights, whole.info().weights, atol=1e-12)
    assert np.abs(whole.info().weights - trained).max() > 1e-3


@pytest.mark.parametrize("dim", [5, 40])
def test_zeros_and_collected_changes_make_no_difference(dim) -> None:
    """Compare sparse vectors with full matrices, in a dimension with and one without a buffer."""
    rng = np.random.default_rng(0)
    policy, literal = AdaptiveGLMUCB(dim), naive.NaiveAdaptiveGLMUCB(dim)
    for _ in range(60):
        arms = np.where(rng.random((1, 4, dim)) < 0.2, rng.uniform(-0.3, 0.3, (1, 4, dim)), 0.0)
        arms /= np.maximum(1.0, np.linalg.norm(arms, axis=2, keepdims=True))
        upper = literal.upper(arms[0])
        chosen = int(policy.select(arms)[0])
        assert upper[chosen] >= upper.max() - 1e-8
        literal.age()
        reward = float(rng.random() < 0.3)
        policy.update(arms[:, chosen], [reward])
        literal.learn(arms[0, chosen], reward)
    acting = literal.acting()
    np.testing.assert_allclose(policy.info().theta_hat[0], acting["theta"], atol=1e-8)
    np.testing.assert_allclose(np.linalg.inv(policy.info().metric[0]), acting["P"], atol=1e-9 * acting["q"])


def test_without_drift_and_noise_known_it_is_bayesian_regression() -> None:
    """With the identity link, the expert with infinite memory is ridge regression, for any order of the rewards."""
    rng = np.random.default_rng(2)
    policy, told = AdaptiveGLMUCB(2, link="identity", S=2.0, memories=[math.inf], sigma=0.5, lanes=2), []
    for t in range(1, 41):
        policy.select(np.full((2, 1, 2), 0.1))
        x, reward = rng.uniform(-0.5, 0.5, (2, 2)), rng.normal(size=2)
        weight = float(rng.uniform(0, 3))
        policy.update(x, reward, round=float(rng.integers(1, t + 1)), weight=weight)
        told.append((x, reward, weight))
    for lane in range(2):
        precision = np.eye(2) / (2.0**2 / 2 / 0.25) + sum(w * np.outer(x[lane], x[lane]) for x, _, w in told)
        theta = np.linalg.solve(precision, sum(w * r[lane] * x[lane] for x, r, w in told))
        np.testing.assert_allclose(policy.info().theta_hat[lane], theta, rtol=1e-9)


def test_a_late_reward_is_about_the_parameter_of_its_round() -> None:
    """Compare with the filter whose state is (theta* now, theta* then). For the identity link the result is exact."""
    m, k, dim, S, sigma = 20.0, 7, 2, 1.5, 0.5
    policy = AdaptiveGLMUCB(dim, link="identity", memories=[m], S=S, sigma=sigma)
    x, r = np.array([0.6, -0.3]), 0.8
    for _ in range(k + 1):
        policy.select(np.full((1, 1, dim), 0.1))
    policy.update(x[None], r, round=1.0)
    a, q = (1 - 1 / m) ** k, S**2 / dim
    prior = q * np.block([[np.eye(dim), a * np.eye(dim)], [a * np.eye(dim), np.eye(dim)]])
    h = np.concatenate([np.zeros(dim), x])
    gain = prior @ h / (h @ prior @ h + sigma**2)
    np.testing.assert_allclose(policy.info().theta_hat[0], (gain * r)[:dim], rtol=1e-12)
    P = (prior - np.outer(gain, h @ prior))[:dim, :dim]
    covariance = policy.bank.covariance(np.array([0]))[0] * sigma**2
    np.testing.assert_allclose(covariance, P, rtol=1e-12)


def play(policy, arms, rewards, change=None):
    """Return the choices on fixed arms and rewards. ``change`` is applied to every vector."""
    chosen = []
    for offer, outcome in zip(arms, rewards, strict=True):
        shown = offer if change is None else np.ascontiguousarray(offer @ change)
        index = int(policy.select(shown[None])[0])
        policy.update(shown[None, index], outcome[index])
        chosen.append(index)
    return chosen


@given(seed=st.integers(0, 10**6), dim=st.integers(1, 6), S=st.sampled_from([None, 2.0]))
@settings(max_examples=15, deadline=None)
def test_the_basis_and_the_order_of_features_do_not_matter(seed, dim, S) -> None:
    rng = np.random.default_rng(seed)
    arms = rng.normal(size=(60, 4, dim))
    arms /= 1.01 * np.linalg.norm(arms, axis=2, keepdims=True)
    rewards = (rng.random((60, 4)) < 0.4).astype(float)
    rotation = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    plain = AdaptiveGLMUCB(dim, S=S)
    chosen = play(plain, arms, rewards)
    for change in (rotation, np.eye(dim)[rng.permutation(dim)]):
        other = AdaptiveGLMUCB(dim, S=S)
        assert play(other, arms, rewards, change) == chosen
        np.testing.assert_allclose(other.info().theta_hat[0] @ change.T, plain.info().theta_hat[0], atol=1e-7)
        np.testing.assert_allclose(other.info().weights, plain.info().weights, atol=1e-7)


def eigenvalues(policy):
    bank = policy.bank
    return np.array([
        np.linalg.eigvalsh(bank.covariance(np.full(policy.lane_count, g)) / bank.beliefs["q"][0, g])
        for g in range(bank.theta.shape[1])
    ])  # fmt: skip


@given(seed=st.integers(0, 10**6), dim=st.integers(2, 5), link=st.sampled_from(["logistic", "identity", "poisson"]))
@settings(max_examples=10, deadline=None)
def test_covariances_stay_positive_definite_with_collinear_features(seed, dim, link) -> None:
    """Large weights stand for many rounds: 10^6 in all, along two nearly equal directions."""
    rng = np.random.default_rng(seed)
    policy = AdaptiveGLMUCB(dim, link=link, sigma=50.0 if link == "poisson" else 0.5)
    base = rng.normal(size=dim)
    base /= 2 * np.linalg.norm(base)
    for i in range(400):
        x = base + (i % 2) * 1e-7 * rng.normal(size=dim)
        policy.select(x[None, None])
        policy.update(x[None], float(rng.random() < 0.3), weight=float(rng.choice([1.0, 5000.0])))
    assert (eigenvalues(policy) > 0.0).all()


@pytest.mark.slow
def test_covariances_stay_positive_definite_over_a_million_rounds() -> None:
    rng = np.random.default_rng(1)
    policy = AdaptiveGLMUCB(3, link="identity", sigma=0.01)
    base = np.array([0.5, -0.4, 0.3])
    noise = 1e-6 * rng.normal(size=(1000, 3))
    rewards = rng.normal(size=1000)
    for t in range(10**6):
        x = base + noise[t % 1000]
        policy.select(x[None, None])
        policy.update(x[None], rewards[t % 997])
        if t % 100_000 == 99_999:
            assert (eigenvalues(policy) > 0.0).all()
    assert np.isfinite(policy.info().theta_hat).all()


@given(
    rewards=st.lists(st.sampled_from([0.0, 1.0, 50.0, 1e6, 1e12]), min_size=5, max_size=60),
    S=st.sampled_from([None, 1.0, 20.0]),
)
@settings(max_examples=40, deadline=None)
def test_counts_of_any_size_leave_numbers(rewards, S) -> None:
    policy = AdaptiveGLMUCB(2, link="poisson", S=S, sigma=1e12)
    x = np.array([[0.8, 0.1]])
    for reward in rewards:
        policy.select(np.array([[[0.8, 0.1], [0.1, 0.8]]]))
        policy.update(x, reward)
    info = policy.info()
    for value in (info.theta_hat, info.weights, info.dispersion, info.drift.evidence, info.metric):
        assert np.isfinite(value).all()
    assert (eigenvalues(policy) > 0.0).all()


@pytest.mark.parametrize("S", [None, 20.0, 1000.0])
@pytest.mark.parametrize("reward", [50.0, 1e6, 1e9, 1e12])
def test_one_count_moves_a_wide_prior_to_it(S, reward) -> None:
    policy = AdaptiveGLMUCB(1, link="poisson", S=S, sigma=1e13)
    policy.select([[[1.0]]])
    policy.update([[1.0]], reward)
    widest = policy.bank.theta[0, -1, 0]
    assert widest == pytest.approx(math.log(reward), abs=0.1)


def test_rewards_that_never_vary_leave_numbers() -> None:
    policy = AdaptiveGLMUCB(2, link="identity")
    for _ in range(200):
        policy.select([[[0.5, 0.1]]])
        policy.update([[0.5, 0.1]], 0.0, weight=1e12)
    assert np.isfinite(policy.info().weights).all()
    assert (policy.info().dispersion > 0.0).all()


def test_long_pauses_leave_numbers_and_a_state_that_loads() -> None:
    policy = AdaptiveGLMUCB(1, link="identity", L=10.0)
    for _ in range(5):
        policy.select([[[10.0]]])
        policy.update([[10.0]], 1.0)
    for pause in (371_500.0, 3_000.0, 1.0, 1.0, 1e9):
        policy.advance(pause)
    assert np.isfinite(policy.bank.lanes["variation"]).all()
    AdaptiveGLMUCB(1, link="identity", L=10.0).load_state(policy.state())


@pytest.mark.parametrize(("link", "sigma", "outlier"), [("identity", 0.5, 1e6), ("poisson", 1e6, 1000.0)])
def test_an_outlier_is_forgotten(link, sigma, outlier) -> None:
    """One absurd reward at round 500, in a static world with five arms: by round 1500 the choices are good again."""
    lanes, rng = 10, np.random.default_rng(0)
    policy, lost = AdaptiveGLMUCB(2, link=link, sigma=sigma, lanes=lanes), np.zeros(lanes)
    for t in range(2000):
        arms = rng.normal(size=(lanes, 5, 2))
        arms /= 1.001 * np.linalg.norm(arms, axis=2, keepdims=True)
        x = arms[np.arange(lanes), policy.select(arms)]
        z = x[:, 0]
        reward = z + 0.5 * rng.normal(size=lanes) if link == "identity" else rng.poisson(np.exp(z)).astype(float)
        policy.update(x, np.full(lanes, outlier) if t == 500 else reward)
        lost += (arms[:, :, 0].max(axis=1) - z) * (t >= 1500)
    assert lost.mean() / 500 < 0.01


def test_the_dispersion_is_learned() -> None:
    rng = np.random.default_rng(0)
    policy, theta = AdaptiveGLMUCB(2, link="identity"), np.array([40.0, -20.0])
    for _ in range(600):
        arms = rng.uniform(-0.7, 0.7, (1, 3, 2))
        chosen = int(policy.select(arms)[0])
        policy.update(arms[:, chosen], arms[0, chosen] @ theta + 3.0 * rng.normal())
    assert math.sqrt(policy.info().dispersion[0]) == pytest.approx(3.0, rel=0.15)
    np.testing.assert_allclose(policy.info().theta_hat[0], theta, atol=2.0)


@pytest.mark.parametrize("calls_left", [0, 1, 5, 60, 150])
def test_a_failing_link_changes_nothing(calls_left) -> None:
    """Wherever in the update of two lanes the link raises."""
    left = [10**6]

    def mean(z):
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("no more")
        return 1 / (1 + np.exp(-z))

    link = CustomLink("failing", mean, lambda z: np.exp(-z) / (1 + np.exp(-z)) ** 2)
    policy = AdaptiveGLMUCB(2, link=link, S=1.0, lanes=2)
    for _ in range(2):
        policy.select([[[0.5, 0.1]]] * 2)
        policy.update([[0.5, 0.1]] * 2, 1.0)
    policy.select([[[0.5, 0.1]]] * 2)
    before = policy.state()
    left[0] = calls_left
    with pytest.raises(RuntimeError):
        policy.update([[0.5, 0.1]] * 2, 1.0)
    after = policy.state()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_custom_identity_link_learns_its_noise_as_the_built_in_one() -> None:
    link = CustomLink("mine", lambda z: z * 1.0, np.ones_like, any_reward=True)
    rng = np.random.default_rng(0)
    x, rewards = rng.uniform(-0.7, 0.7, (60, 1, 2)), 100.0 * rng.normal(size=60)
    custom, built_in = (AdaptiveGLMUCB(2, link=kind, sigma=10.0) for kind in (link, "identity"))
    for policy in (custom, built_in):
        for row, reward in zip(x, rewards, strict=True):
            policy.select(row[None])
            policy.update(row, reward)
    np.testing.assert_allclose(custom.info().dispersion, built_in.info().dispersion, rtol=1e-6)
    np.testing.assert_allclose(custom.info().weights, built_in.info().weights, atol=1e-6)


def test_a_custom_link_with_a_wrong_slope_is_refused_before_the_first_decision() -> None:
    wrong = CustomLink("wrong", mean=np.tanh, slope=np.cos)
    for S in (None, 2.0):
        with refuses("link", value=wrong):
            AdaptiveGLMUCB(2, link=wrong, S=S)


def test_a_custom_logistic_link_decides_as_the_built_in_one() -> None:
    link = CustomLink(
        "mine", lambda z: 1 / (1 + np.exp(-z)), lambda z: np.exp(-np.abs(z)) / (1 + np.exp(-np.abs(z))) ** 2
    )
    env = Environment(Arc(), BallArms(4), horizon=40)
    custom, built_in = (train(AdaptiveGLMUCB(2, link=kind, S=1.0), env) for kind in (link, "logistic"))
    np.testing.assert_allclose(custom.info().theta_hat, built_in.info().theta_hat, atol=1e-9)
    np.testing.assert_allclose(custom.info().weights, built_in.info().weights, atol=1e-6)


def test_saturated_predictions_are_not_ties() -> None:
    """mu is about 1 for both arms, but the better arm is still played."""
    policy = AdaptiveGLMUCB(1, S=1000.0, bonus_scale=0.0)
    for _ in range(60):
        policy.select([[[1.0]]])
        policy.update([[1.0]], 1.0, weight=1e6)
    arms = np.array([[[1.0], [0.9]]])
    np.testing.assert_array_equal(policy.probabilities(arms), [[1.0, 0.0]])
    assert policy.select(arms)[0] == 0
    assert np.ptp(policy.info().decision.scores) < 1e-9


def test_constant_memory_and_what_info_shows() -> None:
    env = Environment(Static(), BallArms(), horizon=300, lanes=2)
    policy = AdaptiveGLMUCB(2, lanes=2)
    size = sum(array.nbytes for array in policy.state().values())
    info = train(policy, env).info()
    assert sum(array.nbytes for array in policy.state().values()) == size
    assert info.weights.shape == (2, len(MEMORIES), len(SCALES))
    np.testing.assert_allclose(info.weights.sum(axis=(1, 2)), 1.0)
    assert set(info.acting_memory) <= set(info.memories)
    assert set(info.acting_scale) <= set(info.scales)
    assert (info.effective_memory <= info.acting_memory).all()
    assert AdaptiveGLMUCB(2, S=3.0).info().scales.tolist() == [3.0]


def test_one_memory_is_a_filter_for_it() -> None:
    env = Environment(Arc(), BallArms(), horizon=80, lanes=2)
    policy = train(AdaptiveGLMUCB(2, S=1.0, memories=[50], bonus_scale=[0.0, 2.5], lanes=2), env)
    arms, info = env.round(80).arms, policy.info()
    variance = np.einsum("lki,lij,lkj->lk", arms, np.linalg.inv(info.metric), arms)
    upper = np.einsum("lki,li->lk", arms, info.theta_hat) + np.array([[0.0], [2.5]]) * np.sqrt(variance)
    np.testing.assert_array_equal(policy.select(arms), upper.argmax(axis=1))
    assert policy.info().drift is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fill", 7),
        ("scale", 1e-300),
        ("N", 1e9),
        ("dispersion", 77.0),
        ("least", 1e9),
        ("surprises", 1e9),
        ("rounds", 0.0),
    ],
)
def test_a_damaged_state_is_refused(name, value) -> None:
    policy = train(AdaptiveGLMUCB(2), Environment(Static(), BallArms(), horizon=20))
    state = policy.state()
    state[f"bank.{name}"] = np.full_like(state[f"bank.{name}"], value)
    with pytest.raises(ArgumentError) as caught:
        policy.load_state(state)
    assert caught.value.argument == f"state['bank.{name}']"


CIRCLE = FixedArms([[math.cos(a), math.sin(a)] for a in np.arange(10) * math.pi / 5])
JUMPS = Switches(times=(1001, 2001), thetas=((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)))


@pytest.mark.slow
@pytest.mark.parametrize("drift", [Arc(), JUMPS], ids=["smooth", "switching"])
def test_greedy_fails_where_the_arms_are_always_the_same(drift) -> None:
    """The best arm changes while it is not being played: without a bonus that is never noticed."""
    ids = list(range(40))
    adaptive, greedy = (
        regret(policy, Environment(drift, CIRCLE, horizon=3000, lanes=ids, seed=12)).mean()
        for policy in (AdaptiveGLMUCB(2, S=1.0, lanes=ids), Greedy(2, gamma=0.99, lanes=ids))
    )
    assert adaptive <= 130
    assert greedy >= 1.5 * adaptive


@pytest.mark.parametrize(("S", "L"), [(1e3, 1e6), (1e5, 100.0), (1e9, 1e3)])
def test_a_huge_scale_stays_within_double_precision(S: float, L: float) -> None:
    """Of a prior variance of <x, theta> above 1e16 noise variances, the filter could not subtract what it learned."""
    policy, rng = AdaptiveGLMUCB(1, "identity", S=S, L=L), np.random.default_rng(0)
    for _ in range(100):
        policy.select([[[L]]])
        policy.update([[L]], 0.5 + 0.1 * rng.standard_normal())
    assert np.isfinite(policy.bank.theta).all()
    assert policy.info().theta_hat[0, 0] * L == pytest.approx(0.5, abs=0.1)
