"""Environments of windvane for Gymnasium, and environments of Gymnasium for windvane.

:class:`BanditEnv` is one lane of a windvane environment as a Gymnasium environment. :class:`GymnasiumEnvironment` is
any Gymnasium environment with a discrete action space and a feature vector per action as a windvane environment.

This module needs the package gymnasium: ``pip install 'windvane[gymnasium]'``. Importing it registers
:class:`BanditEnv` as "windvane/Bandit-v0":
``gymnasium.make("windvane.environments.gymnasium:windvane/Bandit-v0", environment=world)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, SupportsFloat

import numpy as np
import numpy.typing as npt

from windvane.arguments import (
    LARGEST,
    NORM_SLACK,
    Array,
    Index,
    check_lanes,
    check_not_negative,
    check_number,
    check_positive,
    check_real_array,
    check_whole,
)
from windvane.documentation import documented
from windvane.environments.environment import Environment
from windvane.environments.fields import LATEST
from windvane.environments.labelled_stream import LabelledStream
from windvane.environments.protocol import Outcome, Round
from windvane.environments.rewards import NoDelay
from windvane.errors import ArgumentError, format_value
from windvane.links import Link, get_link

try:
    import gymnasium
    from gymnasium import spaces

    from windvane.environments.episodes import Episodes
except ModuleNotFoundError as error:
    hint = f"{error.name} is missing; install it with: pip install 'windvane[gymnasium]'"
    raise ModuleNotFoundError(hint, name=error.name) from None

BANDIT_ID = "windvane/Bandit-v0"
LANES = 2**32  # the number of lane ids
SEEDS = 2**64
DEFAULT_SIGMA = 0.5  # of rewards in [0, 1]
# A norm may exceed L by this factor, and is then reduced to L: well above the rounding of a vector normalised in single
# precision, about 1e-7, which is the usual type of an observation.
SINGLE_SLACK = 1.0 + 1e-6

Observation = dict[str, npt.NDArray[Any]]
Info = dict[str, Any]


@documented
class BanditEnv(gymnasium.Env[Observation, np.int64]):
    """One lane of a windvane environment as a Gymnasium environment. An episode is one run of ``horizon`` rounds.

    Parameters
    ----------
    environment
        An :class:`~windvane.environments.Environment` without delay, because ``step`` returns the reward at once, or a
        :class:`~windvane.environments.LabelledStream`. Its lanes do not matter.

    Attributes
    ----------
    observation_space
        ``Dict({"arms": Box, "valid": MultiBinary})``: the features of the arms, [K, dim], and which arms are on offer.
    action_space
        ``Discrete(K)``: the arm to play. An arm that is not on offer is refused; ``info["action_mask"]`` is the mask
        for ``action_space.sample(mask)``.

    Notes
    -----
    ``reset(seed=n)`` starts run n: lane n of the environment, as in the lab. For n >= 2**32 it is lane n mod 2**32 of
    the environment whose seed is larger by n // 2**32 (modulo 2**64). ``reset()`` starts a run whose lane is drawn from
    ``np_random``. ``info["lane"]`` is the lane. All lanes of a labelled data stream are equal.

    ``step`` returns the reward and the observation of the next round. The episode is truncated after the last round,
    whose observation is then returned again; it is never terminated. ``info`` describes the round that was played:
    ``round``, the ``mean`` of the arm, the ``best`` mean on offer, their difference ``regret`` and, if there is one,
    ``theta``. ``info["action_mask"]`` belongs to the observation.

    Examples
    --------
    >>> from windvane.environments import BallArms, Rotation
    >>> env = BanditEnv(Environment(Rotation(), BallArms(count=10), horizon=3000))
    >>> observation, info = env.reset(seed=7)
    >>> observation["arms"].shape, info["lane"]
    ((10, 2), 7)
    >>> observation, reward, terminated, truncated, info = env.step(3)
    >>> info["round"], info["regret"] >= 0, terminated, truncated
    (1, True, False, False)
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]

    def __init__(self, environment: Environment | LabelledStream) -> None:
        if not isinstance(environment, Environment | LabelledStream):
            raise ArgumentError("environment", environment, "an Environment or a LabelledStream of windvane")
        if not (environment.delay is None or isinstance(environment.delay, NoDelay)):
            expected = "an environment without a delay law, because `step` returns the reward at once"
            raise ArgumentError("environment", environment, expected, got=repr(environment.delay))
        self.environment = environment
        K, bound = environment.round(1).arms.shape[1], environment.L * NORM_SLACK
        arms = spaces.Box(-bound, bound, (K, environment.dim), dtype=np.float64)
        space: Any = spaces.Dict({"arms": arms, "valid": spaces.MultiBinary(K)})
        self.observation_space = space
        self.action_space = spaces.Discrete(K)
        self._lane = environment
        self._offer: Round | None = None

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Observation, Info]:
        """Start a run; return the observation of its first round and ``info``. ``options`` are not used."""
        super().reset(seed=seed)
        number = int(self.np_random.integers(LANES)) if seed is None else seed
        shift, lane = divmod(number, LANES)
        self._lane = self.environment.with_lanes([lane], seed=(self.environment.seed + shift) % SEEDS)
        self._offer = self._lane.round(1)
        observation = _observe(self._offer)
        return observation, {"action_mask": observation["valid"].copy(), "lane": lane}

    def step(self, action: np.int64 | int) -> tuple[Observation, SupportsFloat, bool, bool, Info]:
        """Play an arm; return the observation of the next round, the reward, False, whether it was the last, info."""
        offer = self._offer
        if offer is None:
            raise gymnasium.error.ResetNeeded("Call `reset` before the first `step` and after the last round.")
        K = offer.arms.shape[1]
        if not self.action_space.contains(action):
            raise ArgumentError("action", action, f"an arm, a whole number in 0..{K - 1}")
        if offer.valid is not None and not offer.valid[0, action]:
            hint = 'sample with `action_space.sample(info["action_mask"])`'
            raise ArgumentError("action", action, "an arm that is on offer", where=f"round {offer.t}", hint=hint)
        reward, mean = self._lane.play(offer, [int(action)])
        is_last = offer.t == self._lane.horizon
        self._offer = None if is_last else self._lane.round(offer.t + 1)
        observation = _observe(self._offer or offer)
        info: Info = {
            "action_mask": observation["valid"].copy(), "round": offer.t, "mean": float(mean[0]),
            "best": float(offer.best[0]), "regret": float(offer.best[0] - mean[0]),
        }  # fmt: skip
        if self.environment.has_theta:  # a NaN would make two equal runs compare as different
            info["theta"] = offer.theta[0].copy()
        return observation, float(reward[0]), False, is_last, info


def _observe(offer: Round) -> Observation:
    """Return the observation of a round, in arrays of its own."""
    K = offer.arms.shape[1]
    valid = np.ones(K, dtype=np.int8) if offer.valid is None else offer.valid[0].astype(np.int8)
    return {"arms": offer.arms[0].copy(), "valid": valid}


if BANDIT_ID not in gymnasium.registry:
    gymnasium.register(BANDIT_ID, entry_point="windvane.environments.gymnasium:BanditEnv")


# --- Gymnasium as an environment --------------------------------------------------------------------------------------


@documented
class GymnasiumEnvironment:
    """Gymnasium environments as lanes of a windvane environment: every action is an arm with a feature vector.

    Parameters
    ----------
    L
        Norm bound of the arms on offer; a longer one raises an error. (By up to 1e-6, which can be the rounding of an
        observation in single precision, it is scaled to norm L.)
    make
        Build one Gymnasium environment, a new one at each call; each lane gets its own. Its action space is
        ``Discrete(K)``. Its observation is the features of the arms, [K, dim], or a dict with them under "arms";
        otherwise pass ``arms``. Arms on offer are marked in the observation under "valid" or "action_mask", or in
        ``info`` under "action_mask". Default: all.
    arms
        Return the features of the arms, [K, dim], for an observation. Default: see ``make``.
    link, S, drift, switches
        The link, the norm bound of theta*, B_T and the number of changes, for policies that need them. These are
        assumptions, because theta* is unknown. Default of ``drift``: 2 S, one reversal.
    sigma, reward_range
        The sub-Gaussian scale of the noise, and the smallest and the largest possible reward, (low, high). A reward
        outside raises an error. Default of ``reward_range``: (0, 2 sigma), which is (0, 1) if neither is given. Default
        of ``sigma``: half the width of ``reward_range``, or high/2 if the link bounds the rewards.

    Notes
    -----
    Rounds are played in order, each once: ``round(1)``, ``play``, ``round(2)``, and so on. An episode that ends is
    followed by another, without a new seed. Lane i is seeded with ``reset(seed=seed * 2**32 + i)`` at the start, so
    that a :class:`BanditEnv` plays lane i of its environment.

    The means of the arms are unknown: in a round, ``theta`` and ``means`` are NaN, and the mean in an outcome is the
    reward. Regret compares with always getting the largest possible reward. This includes noise, so it is positive for
    every policy; only differences between policies mean something.

    Examples
    --------
    >>> from windvane import AdaptiveGLMUCB
    >>> from windvane.environments import BallArms, Rotation
    >>> world = Environment(Rotation(), BallArms(count=5), horizon=20)
    >>> game = GymnasiumEnvironment(lambda: BanditEnv(world), horizon=20, lanes=2)
    >>> policy = AdaptiveGLMUCB(game.dim, S=game.S, L=game.L, sigma=game.sigma, lanes=2)
    >>> for t in range(1, 21):
    ...     offer = game.round(t)
    ...     choice = policy.select(offer.arms, offer.valid)
    ...     policy.update(offer.arms[[0, 1], choice], game.play(offer, choice).reward)
    """

    has_theta: ClassVar[bool] = False
    delay, orthogonal, has_fixed_arms = None, False, False

    def __init__(
        self, make: Callable[[], gymnasium.Env[Any, Any]], *, horizon: int,
        arms: Callable[[Any], npt.ArrayLike] | None = None, link: str | Link = "logistic", S: float = 1.0,
        L: float = 1.0, sigma: float | None = None, reward_range: Sequence[float] | None = None,
        drift: float | None = None, switches: int = 1, lanes: int | Sequence[int] = 1, seed: int = 0,
    ) -> None:  # fmt: skip
        if not callable(make):
            raise ArgumentError("make", make, "a function that builds a Gymnasium environment")
        if not (arms is None or callable(arms)):
            raise ArgumentError("arms", arms, "a function of an observation that returns the features of the arms")
        self.link, self.S, self.L = get_link(link), check_positive("S", S), check_positive("L", L)
        self.reward_range, self.sigma = _choose_reward_range(self.link, reward_range, sigma)
        self.horizon, self.seed = check_whole("horizon", horizon, 1, LATEST), check_whole("seed", seed, 0, SEEDS - 1)
        self.lane_ids = check_lanes(lanes)
        self.lanes = len(self.lane_ids)
        self._drift = 2.0 * self.S if drift is None else check_not_negative("drift", drift)
        self._switches = check_whole("switches", switches, 0, LATEST)
        self._t = 1  # the next round
        self._offer: Round | None = None  # the next round, once it was asked for
        self._episodes: list[Episodes] = []
        try:
            for lane, id_ in enumerate(self.lane_ids.tolist()):
                self._add_lane(make(), lane, arms)
                self._episodes[-1].reset(seed=self.seed * LANES + id_)
            self._set_up()
        except BaseException:
            self.close()
            raise

    def _add_lane(self, env: Any, lane: int, arms: Callable[[Any], npt.ArrayLike] | None) -> None:
        if not isinstance(env, gymnasium.Env):
            raise ArgumentError("make", env, "a function that builds a gymnasium.Env", where=f"lane {lane}")
        if any(env is other.env for other in self._episodes):
            expected = "a function that builds a new environment at each call"
            raise ArgumentError("make", env, expected, got="the same one twice", where=f"lane {lane}")
        episodes = Episodes(env, lane, arms)
        if lane and episodes.count != (count := self._episodes[0].count):
            expected, got = f"a function that always builds environments with {count} actions", f"{episodes.count}"
            raise ArgumentError("make", env, expected, got=got, where=f"lane {lane}")
        self._episodes.append(episodes)

    def _set_up(self) -> None:
        """Read the first observation, which says how many features an arm has; all rounds share what is unknown."""
        arms, _ = self._episodes[0].read(1, None)
        self.dim = arms.shape[1]
        self._theta, self._means = np.full((self.lanes, self.dim), np.nan), np.full((self.lanes, len(arms)), np.nan)
        self._best = np.full(self.lanes, self.reward_range[1])
        for shared in (self._theta, self._means, self._best):
            shared.flags.writeable = False
        self._offer = self._read_round()

    def __repr__(self) -> str:
        env = self._episodes[0].env
        return f"GymnasiumEnvironment({env}, dim={self.dim}, horizon={self.horizon}, lanes={self.lanes})"

    def close(self) -> None:
        """Close the Gymnasium environments."""
        for episodes in self._episodes:
            episodes.env.close()

    @property
    def variation(self) -> Array:
        """The B_T that policies assume, [lanes]: the argument ``drift``."""
        return np.full(self.lanes, self._drift)

    @property
    def switches(self) -> Index:
        """The number of changes that policies assume, [lanes]: the argument ``switches``."""
        return np.full(self.lanes, self._switches, dtype=np.int64)

    def round(self, t: int) -> Round:
        """Return round ``t``, which must be the next one. ``theta`` and ``means`` are NaN."""
        self._check_order("t", check_whole("t", t, 1, self.horizon))
        if self._offer is None:
            self._offer = self._read_round()
        return self._offer

    def play(self, offer: Round, choice: npt.ArrayLike) -> Outcome:
        """Play the arms ``choice[lanes]`` of the next round. Return the rewards, which also stand for their means."""
        self._check_order("offer", offer.t)
        arms, t = self.round(offer.t).check_choice(choice).tolist(), self._t
        self._t, self._offer = t + 1, None
        rewards = [episodes.step(arm) for episodes, arm in zip(self._episodes, arms, strict=True)]
        reward = np.array([self._check_reward(lane, t, value) for lane, value in enumerate(rewards)])
        return Outcome(reward, reward.copy())

    def means(self, t: float, arms: npt.ArrayLike) -> Array:
        """Raise ``ArgumentError``: the true means are unknown, so that no policy can be told them."""
        expected, got = "a function that knows the true means", "a Gymnasium environment, which does not know them"
        raise ArgumentError("truth", self, expected, got=got)

    def delays(self, t: int) -> None:
        """Return None: rewards are not delayed."""

    def _check_reward(self, lane: int, t: int, reward: Any) -> float:
        low, high = self.reward_range
        try:
            return check_number("reward", reward, "", lambda value: low <= value <= high)
        except ArgumentError:
            expected, got = "a pair (low, high) that contains every reward", f"the reward {format_value(reward)}"
            where = f"lane {lane}, round {t}"
            raise ArgumentError("reward_range", (low, high), expected, got=got, where=where) from None

    def _check_order(self, name: str, t: int) -> None:
        if t != self._t:
            expected = f"round {self._t}" if self._t <= self.horizon else "no round, because all were played"
            got, hint = f"round {t}", "a Gymnasium environment plays its rounds in order, each once"
            raise ArgumentError(name, t, expected, got=got, hint=hint)

    def _read_round(self) -> Round:
        """Return the next round, from the observations of all lanes."""
        observed = [episodes.read(self._t, self.dim) for episodes in self._episodes]
        arms, valid = (np.stack(parts) for parts in zip(*observed, strict=True))
        with np.errstate(over="ignore", invalid="ignore"):  # features that are too large or NaN are refused below
            norms = np.where(valid, np.sqrt(np.square(arms).sum(axis=2)), 0.0)
        is_outside = ~(norms <= self.L * SINGLE_SLACK)
        if is_outside.any():
            lane, arm = np.argwhere(is_outside)[0]
            where, hint = f"lane {lane}, round {self._t}, arm {arm}", "scale the features, or pass a larger `L`"
            got = f"an arm of norm {norms[lane, arm]:.9g}"
            raise ArgumentError("L", self.L, "at least the norm of every arm", got=got, where=where, hint=hint)
        is_long = norms > self.L * NORM_SLACK
        arms[is_long] *= self.L / norms[is_long, None]
        return Round(self._t, arms, None if valid.all() else valid, self._theta, self._means, self._best)


def _choose_reward_range(link: Link, reward_range: Any, sigma: float | None) -> tuple[tuple[float, float], float]:
    """Return the smallest and the largest reward, and sigma; each follows from the other if it is not given."""
    if reward_range is None:
        sigma = DEFAULT_SIGMA if sigma is None else check_positive("sigma", sigma)
        reward_range = 0.0, 2.0 * sigma
    expected = "a pair (low, high) of numbers with low < high, within [-1e100, 1e100]"
    ends = check_real_array("reward_range", reward_range, expected)
    if ends.shape != (2,) or not -LARGEST <= ends[0] < ends[1] <= LARGEST:
        raise ArgumentError("reward_range", reward_range, expected)
    low, high = ends.tolist()
    if sigma is None:  # rewards in an interval are sub-Gaussian with half its width (Hoeffding's lemma)
        sigma = (high - low if link.any_reward else high) / 2.0
    least, most = link.reward_range(check_positive("sigma", sigma))
    most = most if link.any_reward else min(most, link.largest_mean)
    if not least <= low < high <= most:
        expected = f"within ({least:g}, {most:g}) with the {link.name} link and sigma={sigma:g}"
        raise ArgumentError("reward_range", reward_range, expected, hint='scale the rewards, or use link="identity"')
    return (low, high), sigma
