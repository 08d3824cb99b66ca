"""The best arm of a ball or a sphere, against grids and many-start ascent that share nothing with the library."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import naive
from windvane import BVDGLMUCB, GLMUCB, OFUL, Ball, DLinUCB, Policy, Sphere
from windvane.arms import best_arm
from windvane.policies._skeleton import Skeleton
from worlds import SIGMA, ball

SETS = [Ball, Sphere]
NEUTRAL = {"logistic": 0.5, "probit": 0.5, "poisson": 1.0, "identity": 0.0}  # mu(0)
HIGHEST = {"logistic": 1.0, "probit": 1.0, "poisson": 10.0, "identity": 3.0}
MOST_CONCAVE = {"logistic": 0.0963, "probit": 0.2420, "poisson": 0.0, "identity": 0.0}  # sup of -mu''


class Index:
    """f(x) = mu(<x, theta>) + factor ||x||_M for rows x."""

    def __init__(self, link: str, theta: np.ndarray, M: np.ndarray, factor: float) -> None:
        self.link, self.theta, self.M, self.factor = naive.LINKS[link], theta, (M + M.T) / 2, factor
        self.shift = MOST_CONCAVE[link] * float(theta @ theta)  # f + shift |x|^2 / 2 is convex

    def width(self, x: np.ndarray) -> np.ndarray:
        return np.sqrt(np.maximum(np.einsum("...i,ij,...j->...", x, self.M, x), 0.0))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self.link.mean(x @ self.theta) + self.factor * self.width(x)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        pull = self.link.slope(x @ self.theta)[..., None] * self.theta
        return pull + self.factor * (x @ self.M) / np.maximum(self.width(x), 1e-300)[..., None]


def on_sphere(x: np.ndarray, r: float) -> np.ndarray:
    return r * x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-300)


def grid_maximum(index: Index, r: float, whole_ball: bool) -> float:
    """The largest f on a fine grid; in three dimensions the grid is refined around its best points."""
    d = len(index.theta)
    if d == 1:
        points = np.linspace(-r, r, 20_001)[:, None] if whole_ball else np.array([[-r], [r]])
        return float(index(points).max())
    if d == 2:
        angle = np.linspace(0, 2 * np.pi, 20_001)
        directions = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    else:
        z, angle = np.meshgrid(np.linspace(-1, 1, 101), np.linspace(0, 2 * np.pi, 201))
        flat = np.sqrt(1 - z**2)
        directions = np.stack([flat * np.cos(angle), flat * np.sin(angle), z], axis=-1).reshape(-1, 3)
    values = index(r * directions)
    best = float(values.max())
    if whole_ball:
        best = max(best, float(index(0 * directions[0])), *(float(index(q * r * directions).max()) for q in (0.3, 0.9)))
    if d == 3:
        steps = np.stack(np.meshgrid(*[np.linspace(-1, 1, 15)] * 3), axis=-1).reshape(-1, 3)
        for start in directions[np.argsort(values)[-8:]]:
            centre = start
            for size in (0.05, 0.01, 2e-3, 4e-4, 8e-5):
                around = on_sphere(centre + size * steps, 1.0)
                values = index(r * around)
                centre = around[np.argmax(values)]
            best = max(best, float(values.max()))
    return best


def ascent_maximum(index: Index, r: float, rng: np.random.Generator, starts: int = 1000) -> float:
    """The best of many monotone ascents on the sphere (x <- the direction of f's gradient + shift x), polished.

    Adding shift |x|^2 / 2, a constant on the sphere, makes f convex, and a convex function never falls when x
    moves to where its linearisation is largest.
    """
    x = on_sphere(rng.normal(size=(starts, len(index.theta))), r)
    x[:2] = on_sphere(np.stack([index.theta, -index.theta]) + 1e-12 * x[:2], r)
    x[2:4] = r * np.linalg.eigh(index.M)[1].T[-1] * np.array([[1.0], [-1.0]])
    for _ in range(60):
        x = on_sphere(index.gradient(x) + (index.shift + 1e-9) * x, r)
    values = index(x)
    best = float(values.max())

    def falling(z: np.ndarray) -> tuple[float, np.ndarray]:
        y = on_sphere(z, r)
        slope = index.gradient(y) * r / np.linalg.norm(z)
        return -float(index(y)) / size, -(slope - (slope @ y) * y / r**2) / size

    size = max(1.0, abs(best))
    for start in x[np.argsort(values)[-3:]]:
        found = minimize(falling, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-12})
        best = max(best, -size * float(found.fun))
    return best


def oracle(index: Index, r: float, whole_ball: bool, rng: np.random.Generator) -> float:
    return grid_maximum(index, r, whole_ball) if len(index.theta) <= 3 else ascent_maximum(index, r, rng)


def assert_best(index: Index, x: np.ndarray, arm_set: Ball | Sphere, rng: np.random.Generator) -> None:
    """x lies in the set and no arm of the oracle scores more than 1e-6 above it (plus rounding of huge scores)."""
    r, length = arm_set.radius, np.linalg.norm(x)
    assert length <= r * (1 + 1e-12)
    if isinstance(arm_set, Sphere):
        assert length == pytest.approx(r, rel=1e-12)
    best, mine = oracle(index, r, isinstance(arm_set, Ball), rng), float(index(x))
    assert mine >= best - 1e-6 - 1e-10 * abs(best), (mine, best)


# --- best_arm itself -------------------------------------------------------------------------------------------------


def rotation(rng: np.random.Generator, d: int) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(d, d)))[0]


def problem(rng: np.random.Generator, d: int, kind: str) -> tuple[np.ndarray, np.ndarray, float]:
    """(theta, M, factor) of one kind."""
    Q = rotation(rng, d)
    eigenvalues = 10 ** rng.uniform(-3, 1, d)
    theta = ball(rng, (), d)
    factor = 10 ** rng.uniform(-2, 1)
    if kind == "ill-conditioned":
        eigenvalues = 10 ** rng.uniform(-8, 2, d)
    elif kind == "isotropic":
        eigenvalues[:] = eigenvalues[0]
    elif kind == "top repeated":
        eigenvalues = np.sort(eigenvalues)
        eigenvalues[-min(3, d) :] = eigenvalues[-1]
    elif kind == "along an eigenvector":
        theta = Q[:, rng.integers(d)] * rng.uniform(0.1, 1)
    elif kind == "exactly zero cross term":
        Q = np.eye(d)
        theta = np.zeros(d)
        theta[rng.integers(d)] = rng.uniform(0.1, 1)
    elif kind == "almost zero cross term":
        theta = Q[:, 0] + 1e-9 * Q[:, -1]
    elif kind == "zero theta":
        theta = np.zeros(d)
    elif kind == "tiny theta":
        theta = theta * 10 ** rng.uniform(-200, -6)
    elif kind == "border":
        theta = theta / np.linalg.norm(theta)
    elif kind == "long theta":
        theta = 30 * theta / np.linalg.norm(theta)
    elif kind == "no bonus":
        factor = 0.0
    elif kind == "small bonus":
        factor = 1e-6 * factor
    elif kind == "huge bonus":
        factor = 1e6 * factor
    elif kind == "against the widest":  # the prediction and the width pull to opposite sides of a plane
        top = Q[:, np.argmax(eigenvalues)]
        theta = on_sphere(theta - 0.99 * (theta @ top) * top, 1.0)
    return theta, (Q * eigenvalues) @ Q.T, factor


KINDS = [
    "generic",
    "ill-conditioned",
    "isotropic",
    "top repeated",
    "along an eigenvector",
    "exactly zero cross term",
    "almost zero cross term",
    "zero theta",
    "tiny theta",
    "border",
    "long theta",
    "no bonus",
    "small bonus",
    "huge bonus",
    "against the widest",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 2, 3, 10])
def test_best_arm(kind: str, d: int) -> None:
    """No arm of a fine grid (d <= 3) or of a 1,000-start ascent (d = 10) does better, for any theta, M and factor."""
    rng = np.random.default_rng([d, KINDS.index(kind)])
    for trial in range(6 if d < 10 else 3):
        theta, M, factor = problem(rng, d, kind)
        link = list(NEUTRAL)[(trial + d) % 4]
        if link == "poisson" and kind == "long theta":
            theta = theta / 10
        arm_set = SETS[trial % 2](rng.choice([0.3, 1.0, 2.0]))
        x = best_arm(arm_set, theta, M, factor, naive.LINKS[link].mean, rng.random())
        assert_best(Index(link, theta, M, factor), x, arm_set, rng)


@pytest.mark.parametrize("d", [1, 2, 3, 6])
def test_both_sides_of_the_coin_score_the_same(d: int) -> None:
    """The coin picks between mirror images; where there are none, it must not cost anything."""
    rng = np.random.default_rng(d)
    for kind in KINDS:
        theta, M, factor = problem(rng, d, kind)
        index = Index("logistic", theta, M, factor)
        heads, tails = (best_arm(Sphere(1.0), theta, M, factor, index.link.mean, coin) for coin in (0.1, 0.9))
        assert float(index(heads)) == pytest.approx(float(index(tails)), rel=1e-12, abs=1e-12), kind
        if kind == "zero theta":
            assert (heads == -tails).all()


@pytest.mark.parametrize("link", list(NEUTRAL))
@pytest.mark.parametrize("d", [1, 2, 5])
def test_a_larger_set_is_never_worse(link: str, d: int) -> None:
    """Ball(r) grows with r, and contains the sphere of its radius."""
    rng = np.random.default_rng(d)
    for kind in KINDS:
        theta, M, factor = problem(rng, d, kind)
        if kind == "long theta":
            theta = theta / 10
        index, last = Index(link, theta, M, factor), -np.inf
        for r in (0.01, 0.8, 1.0):
            arms = [best_arm(cls(r), theta, M, factor, index.link.mean, 0.2) for cls in (Ball, Sphere)]
            whole, surface = (float(index(x)) for x in arms)
            slack = 1e-9 * max(1.0, abs(whole))  # the maximiser is searched for, not exact
            assert whole >= last - slack, (kind, r)
            assert whole >= surface - slack, (kind, r)
            last = whole


# --- through the policies --------------------------------------------------------------------------------------------

SCALES = [1.0, 0.0, 1e-4, 0.1, 1e3, 1e6]
LANES = 18  # every state below with three of the scales


def into_states(policy: Policy, rng: np.random.Generator) -> None:
    """Put each lane into a state of its own: empty, tiny theta, at the border, ill-conditioned, symmetric, generic."""
    lanes, d, link = policy.lanes, policy.dim, policy.link.name
    kind = np.arange(lanes) % 6
    axis = np.stack([rotation(rng, d) for _ in range(lanes)])  # rows: an orthonormal basis for each lane
    high = HIGHEST[link]
    for k in range(30):
        x = ball(rng, (lanes,), d, policy.L)
        reward = NEUTRAL[link] + rng.uniform(-0.4, 0.4, lanes)
        weight = np.ones(lanes)
        reward[kind == 1] = NEUTRAL[link] + 1e-9
        border = kind == 2
        x[border] = policy.L * axis[border, 0]
        reward[border] = high
        narrow = kind == 3
        x[narrow] = policy.L * axis[narrow, k % d]
        weight[narrow] = 10.0 ** (-6 + 12 * (k % d) / max(d - 1, 1))
        even = kind == 4
        x[even] = policy.L * axis[even, k % d]
        policy.update(x, reward, round=0.0, weight=weight, mask=kind != 0)
    policy.advance(0.5)


def build(name: str, d: int, lanes: int | list[int] = LANES, **kw) -> Policy:
    count = lanes if isinstance(lanes, int) else len(lanes)
    scale = [SCALES[(i + i // 6) % 6] for i in range(count)]
    kw = {"bonus_scale": scale, "lam": 0.1, "lanes": lanes} | kw
    if name == "D-LinUCB":
        return DLinUCB(d, gamma=0.9, **kw)
    if name == "OFUL":
        return OFUL(d, **kw)
    if name == "skeleton":
        return Skeleton(d, gamma=0.9, **kw)
    if name == "GLM-UCB":
        return GLMUCB(d, **kw)
    return BVDGLMUCB(d, name, gamma=0.9, sigma=SIGMA[name], **kw)


POLICIES = ["logistic", "poisson", "probit", "identity", "D-LinUCB", "OFUL", "GLM-UCB", "skeleton"]


def index_of(policy: Policy, lane: int, V: np.ndarray, V_tilde: np.ndarray) -> Index:
    """The optimistic index that the lane maximised, from what the policy reports and the definition of its bonus."""
    info, link = policy.info(), policy.link.name
    inverse = np.linalg.inv(V[lane])
    scale = policy.bonus_scale[lane]
    if policy.name == "skeleton":
        return Index(link, info["theta_hat"][lane], inverse, scale)
    theta, beta = info["theta_tilde"][lane], info["beta"][lane]
    if policy.name == "D-LinUCB":
        return Index(link, theta, inverse @ V_tilde[lane] @ inverse, scale * beta)
    if policy.name == "OFUL":
        return Index(link, theta, inverse, scale * beta)
    _, _, R_mu = naive.constants(naive.LINKS[link], policy.estimator.S, policy.L)
    return Index(link, theta, inverse, scale * 2 * R_mu * beta)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("d", [1, 2, 3, 10])
def test_the_arm_played_is_the_best(name: str, d: int) -> None:
    """In any state, for any size of bonus: within 1e-6 of the best score over the set, and never outside it."""
    rng = np.random.default_rng([d, POLICIES.index(name)])
    policy = build(name, d, L=1.5)
    into_states(policy, rng)
    V, V_tilde, t = policy.V, policy.V_tilde, policy.t
    arm_set = SETS[(d + POLICIES.index(name)) % 2](1.5 if d % 2 else 0.7)
    played = policy.select_from(arm_set)
    assert played.shape == (LANES, d)
    assert policy.t == t + 1
    assert policy.info()["decisions"] == 1
    lanes = range(LANES) if d < 10 else range(0, LANES, 2)
    for lane in lanes:
        assert_best(index_of(policy, lane, V, V_tilde), played[lane], arm_set, rng)
    if name in ("logistic", "poisson", "probit"):  # the states are what they are meant to be
        lengths = np.linalg.norm(policy.info()["theta_tilde"], axis=1)
        assert (lengths[::6] == 0).all()
        assert ((lengths[1::6] > 0) & (lengths[1::6] < 1e-6)).all()
        np.testing.assert_allclose(lengths[2::6], 1.0, rtol=1e-6)
        if d > 1:
            assert (np.linalg.cond(V[3::6]) > 1e5).all()


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("cls", SETS)
def test_a_whole_run_over_an_infinite_set(name: str, cls) -> None:
    """Arms of the sphere of radius L are taken back by update, to rounding; the round and the score are right."""
    rng = np.random.default_rng(0)
    policy = build(name, 3, lanes=2, L=2.0, bonus_scale=0.3)
    for t in range(1, 9):
        V, V_tilde = policy.V, policy.V_tilde
        x = policy.select_from(cls(2.0))
        assert policy.t == t + 1
        for lane in range(2):
            assert_best(index_of(policy, lane, V, V_tilde), x[lane], cls(2.0), rng)
        policy.update(x, (rng.random(2) < 0.5).astype(float))


@pytest.mark.parametrize("name", POLICIES)
def test_lanes_do_not_meet(name: str) -> None:
    """A lane plays the same arm alone as among others, bit for bit."""
    ids = [4, 0, 9]
    together = build(name, 4, lanes=ids, bonus_scale=0.3, seed=2)
    alone = [build(name, 4, lanes=[i], bonus_scale=0.3, seed=2) for i in ids]
    for t in range(8):
        x = together.select_from(Ball(1.0))
        reward = np.random.default_rng(t).integers(0, 2, 3).astype(float)
        for place, policy in enumerate(alone):
            assert (policy.select_from(Ball(1.0))[0] == x[place]).all()
            policy.update(x[[place]], reward[[place]])
        together.update(x, reward)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("d", [1, 3])
def test_the_seed_decides_between_mirror_images(name: str, d: int) -> None:
    """With nothing known x and -x are equal: both are played, about equally often, and the seed settles it."""
    first, again, other = (build(name, d, lanes=200, bonus_scale=1.0, seed=s) for s in (3, 3, 4))
    x, same, different = (policy.select_from(Sphere(1.0)) for policy in (first, again, other))
    assert (x == same).all()
    assert (x != different).any()
    side = np.sign(x[:, np.argmax(np.abs(x[0]))])
    assert abs(side.sum()) < 6 * np.sqrt(200)  # six standard deviations


@pytest.mark.parametrize("name", POLICIES)
def test_what_is_not_a_set_within_reach_is_refused(name: str) -> None:
    """A radius above L (beyond rounding), or anything else than a Ball or a Sphere; the state stays as it was."""
    policy = build(name, 2, lanes=2, L=0.5)
    policy.update(np.full((2, 2), 0.3), 1.0, round=0.0)
    before = policy.state()
    wrong = [Ball(0.6), Sphere(0.6), Ball(0.5 * (1 + 1e-6)), 0.5, None, "ball", np.zeros((2, 3, 2)), Ball, (Ball(0.5),)]
    for arm_set in wrong:
        with pytest.raises(ValueError, match=r"^arm_set\b"):
            policy.select_from(arm_set)
        after = policy.state()
        assert all(before[key].tobytes() == after[key].tobytes() for key in before)
    policy.select_from(Sphere(0.5 * (1 + 1e-12)))
    assert policy.t == 2.0


@pytest.mark.parametrize("cls", SETS)
@pytest.mark.parametrize("radius", [0.0, -1.0, float("nan"), float("inf"), None, "1 m"])
def test_a_radius_is_a_positive_number(cls, radius: object) -> None:
    """Refused where the set is made."""
    with pytest.raises(ValueError, match=r"^`radius`"):
        cls(radius)
