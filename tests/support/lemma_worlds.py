"""Runs of BVD-GLM-UCB in which everything that the paper's lemmas speak of is known."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.linalg import norm, solve

import naive
from support.worlds import ball
from windvane import BVDGLMUCB, theory

CHECK = 12  # rounds from one checkpoint to the next


@dataclass
class Setting:
    """A world and the policy's assumptions about it, which it keeps: |theta*| <= S, |x| <= L, rewards within range."""

    link: str
    dim: int
    gamma: float
    path: str
    S: float = 1.0
    L: float = 1.0
    lam: float = 1.0
    delta: float = 0.05
    K: int = 5
    arms: str = "general"
    extra: dict = field(default_factory=dict)

    @property
    def sigma(self) -> float:
        """Rewards in [0, 2 sigma] have any mean up to sup mu; for the identity, the size of the noise."""
        if self.link == "poisson":
            return 0.5 * float(np.exp(self.S * self.L))
        return self.extra.get("sigma", 0.5)

    def thetas(self, rounds: int, rng: np.random.Generator) -> np.ndarray:
        """theta*_1 .. theta*_rounds in the ball of radius S."""
        d, S, t, theta = self.dim, self.S, np.arange(rounds), np.zeros((rounds, self.dim))
        if self.path == "still":
            return theta + ball(rng, (), d, S)
        if self.path == "turning":
            theta[:, 0] = S * np.cos(t / 25)
            theta[:, -1] = S * np.sin(t / 25) if d > 1 else theta[:, 0]
        elif self.path == "walk":
            theta[0] = ball(rng, (), d, S)
            for s in t[1:]:
                step = theta[s - 1] + 0.05 * S * rng.normal(size=d)
                theta[s] = step * min(1.0, S / norm(step))
        elif self.path == "jumps":
            points = rng.normal(size=(rounds // 30 + 1, d))
            return (S * points / norm(points, axis=1, keepdims=True))[t // 30]
        else:  # "flip": from one end of the ball to the other, again and again
            theta[:, 0] = S * np.where(t // self.extra.get("period", 40) % 2 == 0, 1.0, -1.0)
            if self.extra.get("aside"):  # ... and at every checkpoint to the side that the misleading arms point to
                theta[CHECK - 1 :: CHECK] = S * np.eye(d)[1]
        return theta

    def show(self, t: int, lanes: int, rng: np.random.Generator, frame: np.ndarray) -> np.ndarray:
        """The arms of round t, [lanes, K, dim]."""
        if self.arms == "orthogonal":  # Assumption 4: every arm is a multiple of a fixed orthonormal basis' vector
            axis = rng.integers(0, self.dim, (lanes, self.K))
            return self.L * rng.uniform(-1, 1, (lanes, self.K, 1)) * frame[axis]
        if self.arms == "misleading":  # whichever sign theta* has, the second coordinate takes the blame
            tilt = 0.3 if t // self.extra.get("period", 40) % 2 == 0 else -0.3
            arm = np.zeros(self.dim)
            arm[:2] = self.L * np.sqrt(1 - 0.3**2), self.L * tilt
            return np.tile(arm, (lanes, 1, 1))
        return ball(rng, (lanes, self.K), self.dim, self.L)


@dataclass
class Moment:
    """Round t of a run, as the policy saw it, with what only a simulation knows."""

    setting: Setting
    t: int
    path: np.ndarray  # theta*_1 .. theta*_t
    arms: np.ndarray  # [lanes, K, dim]
    x: np.ndarray  # [lanes, dim], what was played
    past: np.ndarray  # [t - 1, lanes, dim], what was played before
    V: np.ndarray
    V_tilde: np.ndarray
    b: np.ndarray
    beta: np.ndarray
    theta_tilde: np.ndarray
    value: np.ndarray  # of the projection

    def __post_init__(self) -> None:
        s = self.setting
        self.theta_star, self.lanes, self.link = self.path[-1], range(len(self.x)), naive.LINKS[s.link]
        self.constants = naive.constants(self.link, s.S, s.L)
        self.ridge = s.lam * self.constants[1]
        self.weights = s.gamma ** np.arange(self.t - 1)[::-1]

    def g(self, theta: np.ndarray, lane: int) -> np.ndarray:
        return naive.g(theta, self.past[:, lane], self.weights, self.ridge, self.link)

    def g_bar(self, lane: int) -> np.ndarray:
        """g_t(theta_bar_t), by way of theta_bar_t itself."""
        X = self.past[:, lane]
        means = self.link.mean(np.sum(X * self.path[:-1], axis=1))
        target = X.T @ (self.weights * means) + self.ridge * self.theta_star
        theta_bar = naive.solve_theta_hat(X, self.weights, target, self.ridge, self.link)
        return self.g(theta_bar, lane)

    def learning(self, lane: int) -> float:
        """||g(theta_bar) - g(theta_hat)|| in V_tilde^-1; g(theta_hat) is b."""
        gap = self.g_bar(lane) - self.b[lane]
        return float(np.sqrt(gap @ solve(self.V_tilde[lane], gap)))

    def tracking(self, lane: int) -> float:
        """||g(theta_bar) - g(theta*)|| in V^-2."""
        return float(norm(solve(self.V[lane], self.g_bar(lane) - self.g(self.theta_star, lane))))

    def recent_drift(self, depth: int) -> float:
        """sum of ||theta*_s - theta*_(s+1)|| over the last ``depth`` rounds s < t."""
        return float(norm(np.diff(self.path, axis=0), axis=1)[-depth:].sum())

    def tracking_bound(self, depth: int, arm_geometry: str) -> float:
        s, k_mu = self.setting, self.constants[0]
        known = {"k_mu": k_mu, "S": s.S, "L": s.L, "lam": s.lam, "dim": s.dim, "arm_geometry": arm_geometry}
        return float(theory.tracking_bound(s.gamma, depth, self.recent_drift(depth), **known))

    def width(self, x: np.ndarray, lane: int) -> np.ndarray:
        """||x|| in V^-1 for rows x."""
        return np.sqrt(np.einsum("...i,...i->...", x, solve(self.V[lane], x[..., None])[..., 0]))

    def errors(self, x: np.ndarray, lane: int) -> np.ndarray:
        """Delta_t(x) = |mu(<x, theta_tilde>) - mu(<x, theta*>)| for rows x."""
        return np.abs(self.link.mean(x @ self.theta_tilde[lane]) - self.link.mean(x @ self.theta_star))


def simulate(setting: Setting, rounds: int, lanes: int, seed: int, **kw) -> Iterator[Moment]:
    """Run BVD-GLM-UCB in the world of ``setting``; rewards take the two most extreme values that have their mean."""
    s, rng = setting, np.random.default_rng(seed)
    kw |= {name: getattr(s, name) for name in ("dim", "link", "gamma", "S", "L", "lam", "sigma", "delta")}
    policy = BVDGLMUCB(lanes=lanes, **kw)
    path = s.thetas(rounds, rng)
    frame = np.linalg.qr(rng.normal(size=(s.dim, s.dim)))[0]
    played = np.zeros((rounds, lanes, s.dim))
    for t in range(1, rounds + 1):
        arms = s.show(t - 1, lanes, rng, frame)
        V, V_tilde, b = policy.estimator.metric(), policy.estimator.V_tilde.copy(), policy.estimator.b
        index = policy.select(arms)
        played[t - 1] = x = arms[np.arange(lanes), index]
        made = policy.info(estimates=False).decision
        solution = made.beta, made.theta_tilde, made.projection.value
        yield Moment(s, t, path[:t], arms, x, played[: t - 1], V, V_tilde, b, *solution)
        mean = naive.LINKS[s.link].mean(x @ path[t - 1])
        if s.link == "identity":
            reward = mean + s.sigma * rng.choice([-1.0, 1.0], lanes)
        else:
            reward = 2 * s.sigma * (rng.random(lanes) < mean / (2 * s.sigma))
        policy.update(x, reward)
