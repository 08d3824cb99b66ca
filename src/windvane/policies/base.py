"""The contract of all policies: many independent bandits ("lanes") that advance in lockstep.

* ``select(arms[lanes, K, dim], valid[lanes, K]=None) -> index[lanes]`` decides round ``t``, then ``t += 1``.
  ``select_from(Ball(r) | Sphere(r)) -> x[lanes, dim]`` does the same for infinite arm sets.
* ``probabilities(arms, valid=None) -> p[lanes, K]`` changes nothing.
* ``update(x[lanes, dim], reward[lanes], round=None, weight=1, mask=None)`` learns rewards. It never changes ``t`` and
  can be called any number of times per round. ``advance(n)`` lets time pass without a decision.
* ``info()`` returns diagnostics. ``state()`` returns a flat dict of arrays, and ``load_state`` replaces the state.

Lanes never influence each other: k lanes together make the same decisions as k policies alone, bit for bit. Random
numbers depend only on the seed, the lane id, the number of the decision and the purpose. Bad input raises
``ArgumentError`` and changes nothing.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from windvane import arguments
from windvane.arguments import Array, Index, Mask, check_mask, check_positive, check_whole
from windvane.arms import ArmSet, Function, best_arm
from windvane.documentation import add_references
from windvane.errors import ArgumentError
from windvane.estimation import Forgetting, Never
from windvane.kernels.random import TIES, uniform
from windvane.kernels.sampling import draw_own_uniforms
from windvane.kernels.scoring import choice_probabilities, choose_lanes
from windvane.links import Identity, Link
from windvane.policies.info import DecisionInfo, PolicyInfo
from windvane.policies.inputs import Feedback, InputChecks
from windvane.policies.settings import Configured, describe
from windvane.state import State, Stateful, check, digest, refuse, save, swap

FORMAT = 4  # version of the state format
LATEST = 2.0**52  # last round; t + 1 is exact up to here
LARGEST_SEED = 2**64 - 1
LARGEST_PURPOSE = 255  # of random numbers that a policy of the user's own draws
MOST_DRAWS = 2**16  # for one purpose of one decision


class Card(NamedTuple):
    """A short description of a policy: its row in the table of ``windvane policies``."""

    rewards: str  #: "linear", "generalized linear", "a mean per arm" or "any"
    forgetting: str  #: "none", "discount", "window", "restarts", "detection" or "adaptive"
    needs: str  #: what the user must know about the world besides S, L, sigma and the link, such as "T, B_T"
    guarantee: str  #: the proven order of the regret and the arm sets it holds for, or "none"
    reference: str  #: keys of :mod:`windvane.bibliography`, such as "faury2021"; "windvane" for our own, "-" for none
    cost: str  #: per round and lane


class Policy(InputChecks, Configured, Stateful):
    """The base class of all policies: clock, randomness, checks of input, and state.

    A subclass declares its settings as annotated fields, builds its parts in ``__post_init__`` and implements
    ``select``, ``select_from``, ``learn``, ``pass_time`` and ``forget`` with the methods of this class. In windvane, a
    class with a ``card`` gets its references in its docstring, and an example if it has none.

    >>> import windvane
    >>> policy = windvane.BVDGLMUCB(dim=2, gamma=0.99)
    >>> policy.select([[[1.0, 0.0]]])  # [lanes, arms, features]
    array([0])
    >>> policy.update([[1.0, 0.0]], reward=1.0)
    >>> policy.t, policy.decisions
    (2.0, 1)
    """

    dim: int = field(kw_only=False)
    L: float = 1.0
    lanes: int | Sequence[int] = 1
    seed: int = 0

    name: ClassVar[str]
    card: ClassVar[Card]
    example: ClassVar[str] = "dim=2"  # arguments of the constructor in the generated example
    takes_prior: ClassVar[bool] = False  # whether an agent can make the policy begin at a guess of theta*
    links: ClassVar[tuple[type[Link], ...]] = (Link,)  # the links that the algorithm is for, if it has a ``link``
    needs_truth: ClassVar[bool] = False  # whether the constructor requires ``truth``, the mean of every arm (an oracle)
    needs_one_hot: ClassVar[bool] = False  # whether arms are indices: arm k must be the k-th unit vector
    needs_bounded_rewards: ClassVar[bool] = False  # whether rewards must be in [0, 2 sigma] where no link bounds them
    stored: ClassVar[tuple[str, ...]] = ("t", "decisions", "last_round", "born")
    invariant: ClassVar[tuple[str, ...]] = stored
    overrides_update: ClassVar[bool] = False  # whether the class has an ``update`` of its own
    is_randomised: ClassVar[bool] = False
    """Whether every decision draws random numbers for more than ties, as Thompson sampling does."""
    uses_rewards: ClassVar[bool] = True
    """Whether rewards matter. False for uniform play, and for an oracle."""
    is_one_pass: ClassVar[bool] = False
    """Whether each reward is used once, when it arrives, so that the order of rewards matters."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        cls.overrides_update = cls.update is not Policy.update
        is_ours = cls.__module__.startswith("windvane.")  # an example must be true, and is run by the tests
        if is_ours and "card" in vars(cls) and cls.__doc__:
            if ">>> " not in cls.__doc__:
                call = f">>> {cls.__name__}({cls.example}).select([[[1.0, 0.0]]])\narray([0])"
                cls.__doc__ = f"{inspect.cleandoc(cls.__doc__)}\n\n{call}\n"
            cls.__doc__ = add_references(cls.__doc__, cls.card.reference)
        super().__init_subclass__(**keywords)

    def __post_init__(self) -> None:
        self.prepare_settings()
        link = getattr(self, "link", None)
        if isinstance(link, Link) and not isinstance(link, self.links):
            names = " or ".join(kind.name for kind in self.links)
            raise ArgumentError("link", link, f"{names}, which {self.name} is for")
        self.dim, self.L = check_whole("dim", self.dim, 1), check_positive("L", self.L)
        self.seed = check_whole("seed", self.seed, 0, LARGEST_SEED)
        self.lane_ids: Index = arguments.check_lanes(self.lanes)
        self.lane_count = len(self.lane_ids)
        self.t = 1.0
        self.decisions = 0
        self.last_round = 0.0  # the round of the last decision; 0 before the first
        self.born = np.ones(self.lane_count)  # the round in which each lane was started or last restarted
        self.decision: DecisionInfo | None = None  # how the last decision was made
        self.is_deciding = False  # whether that decision is still being made
        self.key = np.uint64(self.seed)
        self.has_restarted = False  # whether any lane was restarted
        self.prepare_checks(self.accepted_rewards)

    # --- methods that a subclass overrides -------------------------------------------------------------------------

    @property
    def reward_link(self) -> Link:
        """The link of the rewards: the attribute ``link``, or the identity link for a policy without one."""
        link = getattr(self, "link", None)
        return link if isinstance(link, Link) else Identity()

    @property
    def noise_scale(self) -> float:
        """Sub-Gaussian scale sigma of the noise. If the link bounds the rewards, they are in [0, 2 sigma]."""
        return check_positive("sigma", getattr(self, "sigma", 1.0))

    @property
    def accepted_rewards(self) -> tuple[float, float]:
        """The smallest and the largest reward that can be learned, which are infinite if nothing bounds rewards."""
        if self.needs_bounded_rewards:
            return 0.0, 2.0 * self.noise_scale
        return self.reward_link.reward_range(self.noise_scale)

    @property
    def link_reach(self) -> float:
        """The largest ``|<x, theta>|`` at which the settings describe the link: S L."""
        return float(getattr(self, "S", 1.0) * self.L)

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        """Decide round t. Return the index of the arm that each lane plays, [lanes]."""
        raise NotImplementedError

    def select_from(self, arm_set: ArmSet) -> Array:
        """Decide round t among all arms of a ball or a sphere. Return the arms that are played, [lanes, dim]."""
        raise NotImplementedError

    def probabilities(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Array:
        """Return the probability that ``select`` chooses each arm, [lanes, K]. Nothing changes.

        The result is exact for policies that are random only among ties, which have equal probabilities. A policy with
        ``is_randomised`` overrides this method: with the probability before its numbers are drawn, exact or as an
        estimate that it documents. For BOB it is the probability given the seeded draw of the block.
        """
        if self.is_randomised:  # the scores of one decision depend on what it drew
            raise NotImplementedError(f"{self.name} is randomised: its class must override probabilities()")
        twin = copy.deepcopy(self)
        twin.select(arms, valid)
        decision = twin.info(estimates=False).decision
        if decision is None or decision.scores is None:
            raise NotImplementedError(f"{self.name} does not record the scores of arms")
        order = decision.scores if decision.order is None else decision.order
        return self.share_best(order, self.check_arms(arms, valid)[1])

    def choose_forgetting(self) -> Forgetting:
        """Return the forgetting rule. A policy that forgets has a base class of :mod:`windvane.policies.forgetting`."""
        return Never()

    def carry_settings(self, scale: float, S: float | None) -> dict[str, Any]:
        """Return the settings that differ in a policy of other dimension that continues this one.

        Its vectors are those of this policy times ``scale``, with coordinates added or removed, and its norm bound is
        ``S``. What is remembered, and what it is worth beside the prior, must stay the same.
        """
        return {}

    def learn(self, feedback: Feedback) -> None:
        """Learn checked rewards: those of :meth:`~Policy.update`, or of :meth:`~Policy.receive`."""
        raise NotImplementedError

    def pass_time(self, rounds: float) -> None:
        """Let time pass in the parts of the policy."""
        raise NotImplementedError

    def forget(self, mask: Mask) -> None:
        """Reset the parts of the policy in the lanes of ``mask``."""
        raise NotImplementedError

    def info(self, *, estimates: bool = True) -> PolicyInfo:
        """Return diagnostics: a :class:`PolicyInfo`, or a subclass with more fields.

        Parameters
        ----------
        estimates
            Whether to compute the current estimates, which takes about as long as a decision. If not, they are None.
        """
        return PolicyInfo(t=self.t, decisions=self.decisions, decision=self.decision)

    # --- the contract ----------------------------------------------------------------------------------------------

    def update(
        self,
        x: npt.ArrayLike,
        reward: npt.ArrayLike,
        round: npt.ArrayLike | None = None,
        weight: npt.ArrayLike = 1.0,
        mask: npt.ArrayLike | None = None,
    ) -> None:
        """Learn one reward per lane. It enters with the weight of the age of its decision.

        Parameters
        ----------
        x
            Features of the arms that were played, [lanes, dim].
        reward, round, weight
            Rewards, the rounds of their decisions (not necessarily whole; default: the last one), and weights: a reward
            of weight w counts as w equal rewards. Each is one number, or one per lane.
        mask
            Lanes that have a reward, [lanes]. Default: all.
        """
        self.learn(self.check_feedback(x, reward, round, weight, mask))

    def receive(self, feedback: Feedback) -> None:
        """Learn rewards that an agent, or a policy that contains this one, has checked.

        They go to ``learn``, or to ``update`` if the class overrides it, which then misses no reward.
        """
        if self.overrides_update:
            x, reward, decided, _, weight, mask = feedback
            self.update(x, reward, round=decided, weight=weight, mask=mask)
        else:
            self.learn(feedback)

    def advance(self, n: float = 1.0) -> None:
        """Let ``n`` rounds pass without a decision, a number of at least 0 that need not be whole."""
        n = arguments.check_not_negative("n", n)
        if self.t + n > LATEST:
            raise ArgumentError("n", n, "small enough that t stays below 2**52")
        self.pass_time(n)
        self.t += n

    def restart(self, mask: npt.ArrayLike | None = None) -> None:
        """Forget everything in some lanes. They do not learn rewards of earlier decisions any more."""
        lanes = check_mask(mask, self.lane_count)
        self.forget(lanes)
        self.born[lanes] = self.t
        self.has_restarted = bool((self.born > 1.0).any())

    @property
    def rounds_since_restart(self) -> Array:
        """The number of the round to be decided, counted from the last restart of each lane, [lanes]."""
        return self.t - self.born + 1.0

    def mask_restarted(self, feedback: Feedback) -> Mask:
        """Return the lanes whose reward belongs to a decision since their last restart."""
        return feedback.mask & (feedback.round >= self.born) if self.has_restarted else feedback.mask

    # --- methods for implementing select ---------------------------------------------------------------------------

    def begin_decision(self) -> DecisionInfo:
        """Start the record of the next decision, which ``info()`` returns."""
        self.decision, self.is_deciding = DecisionInfo(), True
        return self.decision

    def play(self, scores: Array, valid: Mask, means: Array | None = None) -> Index:
        """Choose the valid arm with the best score in each lane and end the round. A seeded random number breaks ties.

        ``means`` is the part of ``scores[lanes, K]`` that is prediction, for ``info()``.
        """
        if scores.shape != valid.shape:
            raise ArgumentError("scores", scores, f"of shape {valid.shape}", got=f"shape {scores.shape}")
        decision = self.decision if self.is_deciding and self.decision else self.begin_decision()
        decision.scores, decision.means = scores, means
        index = np.empty(self.lane_count, dtype=np.int64)
        choose_lanes(scores, valid, self.key, self.lane_ids, self.decisions, index)
        self.end_round()
        return index

    def play_highest(self, upper: Array, valid: Mask, means: Array | None = None) -> Index:
        """Choose the valid arm with the largest ``upper``, bounds on <x, theta*>, and end the round.

        The recorded scores are mu(upper), which may round to 1 for several arms. ``means`` is as in ``play``.
        """
        index = self.play(upper, valid)
        assert self.decision is not None  # play has recorded it
        self.decision.scores, self.decision.means = self.reward_link.mean(upper), means
        self.decision.order = upper
        return index

    def share_best(self, scores: Array, valid: Mask) -> Array:
        """Return the probability that ``play`` chooses each arm for these scores, [lanes, K]: ties have equal ones."""
        out = np.empty(scores.shape)
        choice_probabilities(scores, valid, out)
        return out

    def draw_uniforms(self, purpose: int = 0, count: int | None = None) -> Array:
        """Return random numbers of the next decision, uniform in [0, 1), for a randomised policy of one's own.

        They depend on the seed, the lane id, the number of the decision and the purpose only. So a lane draws the same
        alone and among others, and the same again until the decision is made, also in ``probabilities``. They are
        independent of the numbers that windvane draws itself, such as those for ties, rewards and arms.

        Parameters
        ----------
        purpose
            A whole number up to 255. Numbers of one decision for different uses have different purposes.
        count
            How many numbers each lane gets, at most 65,536. Default: one, without an axis of its own.

        Returns
        -------
        array
            [lanes], or [lanes, count].

        Examples
        --------
        >>> import windvane
        >>> windvane.UniformRandom(dim=2, lanes=3).draw_uniforms().round(2)
        array([0.27, 0.65, 0.62])
        """
        purpose = check_whole("purpose", purpose, 0, LARGEST_PURPOSE)
        out = np.empty((self.lane_count, 1 if count is None else check_whole("count", count, 1, MOST_DRAWS)))
        draw_own_uniforms(self.key, self.lane_ids, self.decisions, purpose * MOST_DRAWS, out)
        return out[:, 0] if count is None else out

    def play_from(self, arm_set: ArmSet, theta: Array, metrics: Array, factors: Array, mean: Function) -> Array:
        """Play the arms of an infinite set that maximise mean(<x, theta>) + factor sqrt(x' M x), and end the round.

        ``theta``, ``metrics`` (M) and ``factors`` have one row per lane. Mirror images are ties.
        """
        played = np.empty((self.lane_count, self.dim))
        for lane in range(self.lane_count):
            coin = uniform(self.key, self.lane_ids[lane], self.decisions, TIES)
            played[lane] = best_arm(arm_set, theta[lane], metrics[lane], factors[lane], mean, coin)
        self.end_round()
        return played

    def end_round(self) -> None:
        """Let one round pass and count the decision."""
        self.pass_time(1.0)
        self.last_round, self.is_deciding = self.t, False
        self.decisions += 1
        self.t += 1.0

    # --- methods for policies that contain policies ----------------------------------------------------------------

    def follow_clock(self, other: Policy) -> None:
        """Copy the clock of another policy, such as the one that has just decided for this policy."""
        self.t, self.decisions, self.last_round = other.t, other.decisions, other.last_round

    def join_clock(self, master: Policy) -> None:
        """Set the clock of a new policy to that of ``master``, so that both use the same rounds and random numbers."""
        self.follow_clock(master)
        self.born.fill(master.t)
        self.has_restarted = master.t > 1.0

    def choose_reward_range(self, reward_range: float | None) -> float:
        """Return the width of the range of rewards, with which masters scale rewards to [0, 1].

        The default is 2 sigma. With the identity link, where sigma describes only the noise, the width is at least 1.
        """
        if reward_range is not None:
            return check_positive("reward_range", reward_range)
        is_unbounded = math.isinf(self.accepted_rewards[1])
        return max(1.0 if is_unbounded else 0.0, 2.0 * self.noise_scale)

    # --- state -----------------------------------------------------------------------------------------------------

    def config(self) -> dict[str, Any]:
        """Return the settings as plain data, without the lanes."""
        return {"policy": self.name, **describe(self.get_params(), self.link_reach)}

    @functools.cached_property
    def config_hash(self) -> str:
        """A hash of the settings, without the lanes. A state can only be loaded into a policy with the same hash."""
        return hashlib.sha256(json.dumps(self.config(), sort_keys=True).encode()).hexdigest()

    def state(self) -> State:
        """Return everything that determines the future of the policy, as copies of arrays without pickled objects."""
        header = {"format": np.array(FORMAT), "config": np.array(self.config_hash), "lane_ids": self.lane_ids.copy()}
        state = save(self) | header
        return state | {"checksum": np.array(digest(state))}

    def load_state(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Continue from the ``state()`` of a policy with equal settings and lanes. All of it is checked first."""
        if not isinstance(state, Mapping):
            raise ArgumentError("state", state, "a dict of arrays, as state() returns")
        entries = dict(state)
        header = {name: entries.pop(name, None) for name in ("format", "config", "lane_ids", "checksum")}
        if _single(header["format"], "i") != FORMAT:
            raise refuse("", "format", header["format"], f"{FORMAT}, the format that this version reads")
        if _single(header["config"], "U") != self.config_hash:
            raise refuse("", "config", header["config"], "that of a policy with the same settings")
        if not np.array_equal(np.asarray(header["lane_ids"]), self.lane_ids):
            raise refuse("", "lane_ids", header["lane_ids"], f"the lanes of this policy, {self.lane_ids.tolist()}")
        loaded = check(self, entries)
        if _single(header["checksum"], "U") != digest({n: a for n, a in state.items() if n != "checksum"}):
            raise refuse("", "checksum", header["checksum"], "that of the entries: the state was damaged or changed")
        swap(loaded)

    def prepare_fields(self, fields: State) -> dict[str, Any]:
        """Return the attributes for checked fields. The record of the last decision is lost."""
        has_restarted = bool((fields["born"] > 1.0).any())
        return super().prepare_fields(fields) | {"has_restarted": has_restarted, "decision": None}

    def check_fields(self, fields: State, path: str) -> None:
        t, last, decisions = fields["t"].item(), fields["last_round"].item(), fields["decisions"].item()
        if not 1.0 <= t <= LATEST:
            raise refuse(path, "t", t, "a number in [1, 2**52]")
        if not ((fields["born"] >= 1.0) & (fields["born"] <= t)).all():
            raise refuse(path, "born", fields["born"], f"a round up to t={t:g} for each lane")
        if not 0 <= decisions <= LATEST:
            raise refuse(path, "decisions", decisions, "a whole number in [0, 2**52]")
        if not (1.0 <= last < t if decisions else last == 0.0):
            raise refuse(path, "last_round", last, f"a round before t={t:g}")


def _single(value: Any, kind: str) -> Any:
    """Return the only value of an array whose dtype is of this kind, or None."""
    array = np.asarray(value)
    return array.item() if array.shape == () and array.dtype.kind == kind else None
