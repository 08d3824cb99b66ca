"""The exact estimator with old observations expanded, forced on short histories: against the literal sums."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import access
from support.estimators import TOLERANCE, Twin, feed
from support.expansions import SMALL
from support.worlds import ball, draw_reward, same_state, turning_theta
from windvane.errors import ArgumentError
from windvane.estimation import Discount, Expansion, MaximumLikelihoodEstimator, Window
from windvane.kernels.projection import P0_IN_H, P0_IN_V, P2
from windvane.links import CustomLink

EXACT = Expansion()
OWN_LINK = CustomLink("own", lambda z: 1 / (1 + np.exp(-z)), lambda z: 1 / (2 + np.exp(z) + np.exp(-z)))
by_link = pytest.mark.parametrize("link", ["logistic", "poisson", "probit", "identity"])
by_shape = pytest.mark.parametrize(("dim", "order"), [(1, 10), (2, 4), (2, 10), (3, 6), (5, 6), (10, 4)])


def count_uses(twin: Twin) -> np.ndarray:
    """Solve, and return how many levels the last evaluation of g used in each lane."""
    twin.fast.solve()
    return twin.fast.record["expanded"].copy()


@by_link
@by_shape
def test_a_long_life_against_the_literal_sums(link: str, dim: int, order: int) -> None:
    """Drift, late and weighted rewards, rounds without any, lanes with their own discounts."""
    expansion, lanes = Expansion(order, recent=8, young=40, rate=64 if dim < 10 else 1000), 3
    twin = Twin(dim, link, lanes, 5, gamma=[0.99 if dim < 10 else 0.997, 0.999, 1.0], expansion=expansion)
    # With less to go by, theta_hat moves too fast for a low order.
    per_round, rounds = (1, 600) if dim < 10 else (8, 250)
    rng, uses = np.random.default_rng(6), np.zeros((rounds, lanes))
    for t in range(rounds):
        twin.star = turning_theta(t, rounds, dim, 0.5, turns=0.1)
        twin.advance([1.0, 1.0, 0.5, 1.5][t % 4])
        for _ in range(per_round):
            late = rng.integers(0, rounds // 2, lanes) * (rng.random(lanes) < 0.2)
            twin.observe(np.minimum(late, twin.now), rng.choice([0.5, 1.0, 2.0], lanes), rng.random(lanes) < 0.95)
        if t % 3:
            uses[t] = count_uses(twin)
        if t % 60 == 59:
            twin.check()
    assert (uses.max(axis=0) == 2).all()  # both levels were in use in every lane
    assert (uses[rounds // 2 :] > 0).mean() > 0.1


@by_link
@settings(deadline=None, max_examples=6)
@given(
    seed=st.integers(0, 2**32 - 1), order=st.sampled_from([2, 4, 8]), recent=st.integers(1, 40),
    young=st.integers(1, 200), rate=st.sampled_from([1, 7, 64, 1000]), gamma=st.sampled_from([0.98, 0.999, 1.0]),
    gap=st.sampled_from([0.0, 1.0, 30.0, 1e4]),
)  # fmt: skip
def test_any_settings(link, seed, order, recent, young, rate, gamma, gap) -> None:
    """... with bursts of observations, silence, and solves that skip rounds."""
    twin = Twin(2, link, seed=seed, gamma=gamma, expansion=Expansion(order, recent, young, rate))
    for t in range(400):
        twin.advance(1.0)
        for _ in range([1, 1, 0, 2][t % 4]):
            twin.observe(min(twin.now, float(t % 50)) if t % 9 == 0 else 0.0, 1.0 + t % 2)
        if t % 5:
            twin.fast.solve()
        if t % 100 == 99:
            twin.check_root()
    twin.advance(gap)
    twin.check_root()
    twin.run(80)
    twin.check_root()


def run_both(dim: int, rounds: int, draw: Any, *, expansion: Expansion = SMALL, gamma: float = 0.999) -> Any:
    """Play ``draw(t, theta_hat)`` = (x, reward, age, weight) to an expanding and an exact estimator.

    Yield both after each solve, with how many levels were used.
    """
    fast, slow = (
        MaximumLikelihoodEstimator(dim, forgetting=Discount(gamma), expansion=chosen) for chosen in (expansion, EXACT)
    )
    for t in range(rounds):
        x, reward, age, weight = draw(t, slow.theta_hat)
        for estimator in (fast, slow):
            estimator.advance()
            estimator.observe(x, reward, age=age, weight=weight)
            estimator.solve()
        yield fast, slow, fast.record["expanded"].copy()


def check_near(fast: Any, slow: Any) -> None:
    error = np.linalg.norm(fast.theta_hat - slow.theta_hat, axis=1)
    assert (error <= fast.root_error + slow.root_error + 1e-12).all()
    assert (error + slow.truncation_error <= 1.02 * TOLERANCE).all()


@pytest.mark.parametrize("dim", [2, 5])
def test_collinear_features(dim: int) -> None:
    """V grows along one direction only, so that little error of g is accepted; then along the others too."""
    rng = np.random.default_rng(0)
    axis, uses = np.eye(dim)[0], []

    def draw(t: int, theta: np.ndarray) -> Any:
        x = (axis * rng.uniform(-1, 1) if t < 400 else ball(rng, (), dim))[None]
        return x, float(rng.random() < 0.6), 0.0, 5.0

    for fast, slow, used in run_both(dim, 900, draw, expansion=Expansion(6, 8, 24, 64)):
        check_near(fast, slow)
        uses.append(used[0])
    assert max(uses[500:]) == 2


def test_theta_jumps_across_the_ball() -> None:
    """theta* changes its sign every 150 rounds: expansions fail, pause and return."""
    rng, star, uses = np.random.default_rng(1), np.array([0.9, -0.3]), []

    def draw(t: int, theta: np.ndarray) -> Any:
        x, sign = ball(rng, (1,), 2), 1.0 if t // 150 % 2 == 0 else -1.0
        return x, draw_reward(rng, "logistic", 3 * sign * (x @ star)), 0.0, 1.0

    for fast, slow, used in run_both(2, 900, draw, gamma=0.97, expansion=Expansion(4, 8, 40, 64)):
        check_near(fast, slow)
        uses.append(used[0])
    assert 0 < np.mean(np.array(uses) == 2) < 1


@pytest.mark.parametrize("lam", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("angle", [0.4, 0.7, 1.0])
def test_theta_jumps_across_old_features(lam: float, angle: float) -> None:
    """No term of a polynomial is small there, but all of them cancel: rounding counts, and the bound has it."""
    rng, across = np.random.default_rng(0), np.array([np.cos(angle), np.sin(angle)])
    fast, slow = (MaximumLikelihoodEstimator(2, S=5.0, lam=lam, expansion=chosen) for chosen in (None, EXACT))
    for t in range(860):
        x, reward = (across, t % 2) if t < 800 else (np.array([-across[1], across[0]]), 1.0)
        x = (x * rng.uniform(0.9, 1.0))[None]
        for estimator in (fast, slow):
            estimator.advance()
            estimator.observe(x, float(reward))
            estimator.solve()
        if t < 800:
            continue
        error = np.linalg.norm(fast.theta_hat - slow.theta_hat)
        rounding = 1e-15 * (np.linalg.norm(slow.b) + t) / np.linalg.eigvalsh(slow.moments(slow.theta_hat)[1])[0, 0]
        assert error <= (fast.root_error + slow.root_error).item() + rounding


def test_rewards_ten_thousand_rounds_late() -> None:
    """They enter with the weight of their age, and are remembered as long as any other of that age."""
    rng = np.random.default_rng(2)
    fast, slow = (
        MaximumLikelihoodEstimator(2, forgetting=Discount(0.9997), expansion=chosen)
        for chosen in (Expansion(10, 8, 24, 64), EXACT)
    )
    uses = []
    for t in range(700):
        x, reward = ball(rng, (1,), 2), float(rng.random() < 0.5)
        for estimator in (fast, slow):
            estimator.advance(20.0)
            estimator.observe(x, reward, age=10_000.0 if t > 500 and t % 3 == 0 else 0.0, weight=1.0 + t % 3)
            estimator.solve()
        check_near(fast, slow)
        uses.append(fast.record["expanded"][0])
    assert np.mean(np.array(uses[500:]) == 2) > 0.9
    np.testing.assert_array_equal(fast.remembered, slow.remembered)
    np.testing.assert_array_equal(fast.V, slow.V)
    assert np.sort(access.lane_history(fast)[1]) == pytest.approx(np.sort(access.lane_history(slow)[1]), rel=1e-12)


@pytest.mark.parametrize("silence", [50.0, 2000.0, 1e5])
def test_all_the_weight_is_old(silence: float) -> None:
    """After a long silence nothing is recent; then everything is dropped, and life goes on."""
    twin = Twin(3, gamma=0.999, expansion=SMALL, seed=3)
    twin.run(500)
    for _ in range(10):
        twin.run(1)
        twin.fast.solve()
    twin.advance(silence)
    twin.check_root()
    for _ in range(400):
        twin.run(1)
        twin.fast.solve()
    twin.check_root()
    assert twin.fast.record["anchored"][0, 0] == 1


def test_weights_are_rescaled_while_an_expansion_is_in_use() -> None:
    """gamma^600000 is 1e-261: stored weights are brought back to the present before they overflow."""
    twin = Twin(2, gamma=0.999, expansion=SMALL, seed=4)
    for t in range(700):
        twin.advance(1000.0 if t % 100 == 99 else 1.0)
        twin.observe()
        for _ in range(2):
            twin.observe(weight=3.0)
        twin.fast.solve()
        if t % 100 in (0, 50, 98, 99):
            twin.check_root()


@pytest.mark.parametrize("program", [P2, P0_IN_V, P0_IN_H])
@pytest.mark.parametrize(("dim", "order"), [(2, 10), (3, 6), (5, 6)])
def test_projections_agree_with_exact_sums(program: int, dim: int, order: int) -> None:
    """theta_tilde as a function of (history, beta) within the certified error, however g is evaluated."""
    rng, star, compared = np.random.default_rng([dim, order]), turning_theta(0.0, 1.0, dim, 2.5), 0

    def draw(t: int, theta: np.ndarray) -> Any:
        x = ball(rng, (1,), dim)
        return x, draw_reward(rng, "logistic", x @ star), 0.0, 1.0

    for t, (fast, slow, _) in enumerate(run_both(dim, 700, draw, expansion=Expansion(order, 8, 60, 64))):
        if t < 300 or t % 10:
            continue
        beta = np.array([2.0])
        ours, theirs = (estimator.project(program, beta) for estimator in (fast, slow))
        compared += fast.record["expanded"][0] == 2
        assert (ours.stage == theirs.stage).all()
        assert ours.residual[0] <= TOLERANCE
        np.testing.assert_allclose(ours.theta, theirs.theta, rtol=0, atol=20 * TOLERANCE)
        np.testing.assert_allclose(ours.value, theirs.value, rtol=0, atol=1e-5 * (1 + theirs.value[0]))
    assert compared > 5


def make_lanes(gammas: list[float], expansion: Expansion = SMALL) -> MaximumLikelihoodEstimator:
    return MaximumLikelihoodEstimator(2, forgetting=Discount(gammas), lanes=len(gammas), expansion=expansion)


def test_lanes_together_equal_lanes_alone_bit_for_bit() -> None:
    gammas = [0.97, 1.0, 0.999, 0.9]
    together = make_lanes(gammas)
    feed(together, [0, 1, 2, 3], range(700), 2)
    assert (together.record["anchored"][:3] == 1).any()
    for lane in range(4):
        alone = make_lanes([gammas[lane]])
        feed(alone, [lane], range(700), 2)
        assert same_state(access.lane_state(together, lane), access.lane_state(alone, 0))
        np.testing.assert_array_equal(together.theta_hat[lane], alone.theta_hat[0])


@pytest.mark.parametrize("rounds", [0, 33, 40, 64, 120, *range(330, 480, 7)])
def test_a_loaded_state_goes_on_bit_for_bit_in_the_middle_of_an_expansion(rounds: int) -> None:
    """Built slowly, 16 observations a solve, so that nearly every state is in the middle of building."""
    original, fresh, used = (make_lanes([0.99, 0.9995], Expansion(4, 8, 24, 16)) for _ in range(3))
    feed(original, [0, 1], range(rounds), 2)
    feed(used, [0, 1], range(430), 2)
    for estimator in (fresh, used):
        access.load(estimator, access.save(original))
        assert same_state(access.save(original), access.save(estimator))
    beta = np.ones(2)
    for estimator in (fresh, used):
        np.testing.assert_array_equal(original.project(P2, beta).theta, estimator.project(P2, beta).theta)
    for start in range(rounds, rounds + 90, 30):
        for estimator in (original, fresh, used):
            feed(estimator, [0, 1], range(start, start + 30), 2)
        assert same_state(access.save(original), access.save(fresh))
        assert same_state(access.save(original), access.save(used))


@pytest.mark.parametrize(
    ("dim", "link"),
    [(2, "logistic"), (12, "logistic"), (2, OWN_LINK)],
    ids=["short memory", "12 dimensions", "custom link"],
)
def test_a_state_can_be_loaded_however_often_weights_were_rescaled(dim: int, link: Any) -> None:
    """Without expansions: gamma = 0.5, so that weights are rescaled every 433 rounds."""
    estimator = access.make_estimator(dim, gamma=0.5, link=link)
    for start in range(0, 2400, 300):
        feed(estimator, [0], range(start, start + 300), dim, solve_every=50)
        access.load(access.make_estimator(dim, gamma=0.5, link=link), access.save(estimator))
    estimator.advance(1e6)  # and if nothing is left
    access.load(access.make_estimator(dim, gamma=0.5, link=link), access.save(estimator))


def test_late_rewards_keep_no_state_from_being_loaded() -> None:
    """Every state of a life in which the limits of the expansions move forward and back, beside late rewards."""
    original, loaded = (make_lanes([0.9995], Expansion(10, 8, 100, 64)) for _ in range(2))
    moved_back, limit = 0, 0
    for t in range(700):
        late = 30.0 if t % 5 == 0 and t > 40 else 0.0
        x = ball(np.random.default_rng(t), (1,), 2)
        for estimator in (original, loaded):
            estimator.advance()
            estimator.observe(x, float(t % 3 == 0), age=late)
            estimator.solve()
        limit, before = int(original.record["edge"][0, 0] - original.record["start"][0]), limit
        moved_back += limit < before
        access.load(loaded, access.save(original))
        assert same_state(access.save(original), access.save(loaded))
    assert moved_back


def test_reading_does_not_build() -> None:
    read, unread = make_lanes([0.999]), make_lanes([0.999])
    for t in range(400):
        for estimator in (read, unread):
            feed(estimator, [0], range(t, t + 1), 2, solve_every=3)
        read.theta_hat, read.moments(np.ones((1, 2))), access.save(read)
        assert same_state(access.save(read), access.save(unread))


def test_a_reset_lane_forgets_its_expansions() -> None:
    estimator, fresh = make_lanes([0.999, 0.99]), make_lanes([0.99])
    feed(estimator, [0, 1], range(500), 2)
    estimator.reset(np.array([False, True]))
    for each, lanes in ((estimator, [0, 1]), (fresh, [1])):
        feed(each, lanes, range(500, 900), 2)
    assert same_state(access.lane_state(estimator, 1), access.lane_state(fresh))


def test_short_memories_windows_and_custom_links_are_summed_exactly() -> None:
    assert access.make_estimator(2, window=1e4).expansion == EXACT
    assert access.make_estimator(11, gamma=0.999).expansion == EXACT
    assert access.make_estimator(2, gamma=0.999, link=OWN_LINK).expansion == EXACT
    estimator = access.make_estimator(2, gamma=0.9)
    feed(estimator, [0], range(700), 2)
    assert access.save(estimator)["expansions"].size == 0


@pytest.mark.parametrize(
    ("settings", "argument"),
    [((3, 8, 40, 64), "order"), ((-2, 8, 40, 64), "order"), ((4, 0, 40, 64), "recent"), ((4, 8, 40, 0), "rate")],
)
def test_settings_without_a_bound_are_refused(settings: tuple[int, int, int, int], argument: str) -> None:
    """With an odd order, M sums terms of both signs and bounds nothing."""
    with pytest.raises(ArgumentError) as caught:
        Expansion(*settings)
    assert caught.value.argument == argument


@pytest.mark.parametrize(
    "given", [{"forgetting": Window(300)}, {"link": OWN_LINK}, {"expansion": Expansion(12, 8, 40, 64)}]
)
def test_an_expansion_that_cannot_be_certified_is_refused(given: dict[str, Any]) -> None:
    """A window removes entries, which stay in the tensors; of other links and orders the remainder is not known."""
    with pytest.raises(ArgumentError) as caught:
        MaximumLikelihoodEstimator(2, **{"expansion": SMALL, **given})
    assert caught.value.argument == "expansion"
    MaximumLikelihoodEstimator(2, **{**given, "expansion": EXACT})


def test_work_in_a_round_is_bounded() -> None:
    """No solve adds more than ``rate`` observations to expansions that are being built."""
    estimator = MaximumLikelihoodEstimator(2, forgetting=Discount(0.9999), expansion=Expansion(4, 8, 300, 64))
    feed(estimator, [0], range(3000), 2, solve_every=10**9)  # a long history at once
    begun, before = -1, np.full(2, -1)  # ``built`` of both levels after the last solve
    for t in range(3000, 3300):
        feed(estimator, [0], range(t, t + 1), 2)
        built = estimator.record["built"][0].copy()
        is_building = (built != begun) & (before != begun)
        assert (built - before)[is_building].sum() <= 64
        before = built
    assert (estimator.record["anchored"] == 1).all()


def test_curvature_is_within_a_hundredth_of_the_least_eigenvalue() -> None:
    """... of H as ``moments`` sums it over the whole history."""
    estimator = make_lanes([0.999, 1.0], Expansion(4, 8, 40, 64))
    feed(estimator, [0, 1], range(600), 2)
    rng, uses = np.random.default_rng(0), []
    for _ in range(30):
        theta = estimator.theta_hat + 0.3 * ball(rng, (2,), 2)
        exact, H = estimator.moments(theta)[1], estimator.curvature(theta)
        uses.append(estimator.record["expanded"].copy())
        error = np.abs(np.linalg.eigvalsh(H - exact)).max(axis=1)
        assert (error <= 0.01 * np.linalg.eigvalsh(exact)[:, 0]).all()
    assert {0, 2} <= set(np.array(uses).ravel().tolist())
