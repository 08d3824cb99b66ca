"""Small drifting worlds: arms, a moving theta*, rewards through any link, and the loops that play a policy in them."""

from typing import Any

import numpy as np

from windvane import CustomLink

SIGMA = {"logistic": 0.5, "probit": 0.5, "poisson": 5.0, "identity": 0.5}
BENT = CustomLink("bent", lambda z: 0.5 + 0.4 * np.tanh(z), lambda z: 0.4 / np.cosh(z) ** 2)


def ball(rng: np.random.Generator, shape: tuple[int, ...], dim: int, radius: float = 1.0) -> np.ndarray:
    x = rng.normal(size=(*shape, dim))
    return radius * x * rng.random((*shape, 1)) ** (1 / dim) / np.linalg.norm(x, axis=-1, keepdims=True)


def turning_theta(t: float, horizon: float, dim: int, S: float, turns: float = 0.5) -> np.ndarray:
    """theta* of norm S turning in the plane of the first two axes (flipping its sign half-way for dim 1)."""
    angle = 2 * np.pi * turns * t / horizon
    theta = np.zeros(dim)
    if dim == 1:
        theta[0] = S * np.sign(np.cos(angle) + 1e-12)
    else:
        theta[:2] = S * np.cos(angle), S * np.sin(angle)
    return theta


def draw_reward(rng: np.random.Generator, link: str, z: np.ndarray) -> np.ndarray:
    """A reward with mean mu(z), within the link's range (Poisson counts are capped at 10)."""
    if link == "logistic":
        return (rng.random(z.shape) < 1 / (1 + np.exp(-z))).astype(float)
    if link == "probit":
        return (rng.normal(size=z.shape) < z).astype(float)
    if link == "poisson":
        return np.minimum(rng.poisson(np.exp(z)), 10).astype(float)
    return z + 0.5 * rng.normal(size=z.shape)


class World:
    """Random arms, and rewards of any link with theta* of length 1 that turns slowly.

    Draws come from one generator: two worlds with the same seed show two policies the same as long as both play on.
    """

    def __init__(self, lanes: int, dim: int, K: int = 4, L: float = 1.0, link: str = "logistic", seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.lanes, self.dim, self.K, self.L, self.link, self.t = lanes, dim, K, L, link, 0

    def arms(self, t: int | None = None) -> np.ndarray:
        self.t += 1
        return ball(self.rng, (self.lanes, self.K), self.dim, self.L)

    def rewards(self, x: np.ndarray, t: int | None = None) -> np.ndarray:
        theta = np.zeros(self.dim)
        theta[0] = np.cos(self.t / 30)
        theta[-1] += np.sin(self.t / 30)
        return draw_reward(self.rng, self.link, x @ theta / np.linalg.norm(theta))


class LaneWorld:
    """Arms in a ball, or one-hot, and clicks that depend on (lane id, round) only, so that lanes can be compared alone.

    One-hot arms come in any order, and some of them several times.
    """

    def __init__(self, ids: list[int], dim: int, K: int = 5, L: float = 1.0, one_hot: bool = False) -> None:
        self.ids, self.dim, self.K, self.L, self.one_hot = ids, dim, K, L, one_hot

    @classmethod
    def of(cls, policy: Any, ids: list[int]) -> "LaneWorld":
        """The world with the arms that a policy needs."""
        return cls(ids, policy.dim, L=policy.L, one_hot=policy.needs_one_hot)

    def arms(self, t: int) -> np.ndarray:
        if self.one_hot:
            places = [np.random.default_rng([7, lane, t]).integers(self.dim, size=self.K) for lane in self.ids]
            return np.eye(self.dim)[np.array(places)]
        return np.stack([ball(np.random.default_rng([7, lane, t]), (self.K,), self.dim, self.L) for lane in self.ids])

    def rewards(self, x: np.ndarray, t: int) -> np.ndarray:
        theta = np.zeros(self.dim)
        theta[:2] = np.cos(t / 40), np.sin(t / 40)
        coins = np.array([np.random.default_rng([8, lane, t]).random() for lane in self.ids])
        return (coins < 1 / (1 + np.exp(-4 * x @ theta))).astype(float)


def play(policy: Any, world: World | LaneWorld, rounds: int | range) -> np.ndarray:
    """Select and update for some rounds; return the choices, [rounds, lanes]."""
    choices = []
    for t in range(rounds) if isinstance(rounds, int) else rounds:
        arms = world.arms(t)
        index = policy.select(arms)
        x = arms[np.arange(len(index)), index]
        policy.update(x, world.rewards(x, t))
        choices.append(index)
    return np.array(choices)


def teach(policies: list[Any], rng: np.random.Generator, rounds: int, S: float, turns: float = 0.5) -> None:
    """Random arms and clicks of a theta* of norm S that turns, a round each; no policy chose the arms."""
    lanes, dim = policies[0].lane_count, policies[0].dim
    for t in range(rounds):
        x = ball(rng, (lanes,), dim)
        reward = draw_reward(rng, "logistic", x @ turning_theta(t, rounds, dim, S, turns))
        for policy in policies:
            policy.advance(1.0)
            policy.update(x, reward, round=policy.t - 1)


def regret(policy: Any, environment: Any, rounds: int | None = None) -> np.ndarray:
    """Play an environment from its first round; return the regret of each lane."""
    lanes = np.arange(policy.lane_count)
    total = np.zeros(len(lanes))
    for t in range(1, (rounds or environment.horizon) + 1):
        offer = environment.round(t)
        choice = policy.select(offer.arms, offer.valid)
        means = offer.means[lanes, choice]
        policy.update(offer.arms[lanes, choice], environment.reward(t, means))
        total += offer.best - means
    return total


def train(policy: Any, environment: Any, rounds: int | None = None) -> Any:
    regret(policy, environment, rounds)
    return policy


def same_state(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype
        and one[name].shape == other[name].shape
        and one[name].tobytes() == other[name].tobytes()
        for name in one
    )
