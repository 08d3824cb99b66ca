"""Build the one-lane policy of an agent from its settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from windvane import theory
from windvane.agent.times import TICKS, Span
from windvane.arguments import check_array, check_number, check_positive, check_real_array
from windvane.errors import ArgumentError
from windvane.kernels.scoring import LARGEST_REWARD, LARGEST_WEIGHT
from windvane.links import LINKS, Link, Logistic, Probit, get_link
from windvane.policies.adaptive_glm_ucb import AdaptiveGLMUCB
from windvane.policies.base import Policy
from windvane.policies.inputs import Feedback
from windvane.policies.optimism import EstimatingPolicy
from windvane.policies.registry import POLICIES, Signature, describe_unknown_policy

DEFAULT_LINK, DEFAULT_SIGMA = "logistic", 0.5
LARGER_REWARDS = (
    'divide amounts by the largest that you want to count; link="poisson" is for counts, link="identity" for gains and '
    "losses"
)
"""What to do about rewards above 1, as docs/howto/revenue-and-counts.md says it."""
LONGEST_PRIOR = 1000.0  # norm of a prior, times L, where no S is given
_OWN = ("lanes", "dim", "truth")  # of a policy; not the user's to set


class BuiltPolicy(NamedTuple):
    """A policy, the registered names of it and its link (None: custom), its S, and whether a round is a tick."""

    policy: Policy
    name: str | None
    link: str | None
    S: float | None
    by_clock: bool

    def accepted_rewards(self, reward_range: list[float] | None) -> tuple[float, float]:
        """Return the smallest and the largest reward: those of the policy, within ``reward_range``."""
        low, high = self.policy.accepted_rewards
        if reward_range is None:
            return max(low, -LARGEST_REWARD), min(high, LARGEST_REWARD)
        if not low <= reward_range[0] <= reward_range[1] <= high:
            scaled = self.policy.needs_bounded_rewards
            reason = (
                f"because {self.policy.name} divides by the largest"
                if scaled
                else f"with the {self.policy.reward_link.name} link"
            )
            raise ArgumentError("reward_range", reward_range, f"(0, largest reward) {reason}")
        if isinstance(self.policy.reward_link, Logistic | Probit) and reward_range[1] > 1.0:
            expected = f"within (0, 1) with the {self.policy.reward_link.name} link, whose predictions are"
            raise ArgumentError("reward_range", reward_range, expected, hint=LARGER_REWARDS)
        return reward_range[0], reward_range[1]

    def hint_for_larger_rewards(self) -> str:
        """Return what to set for rewards beyond the default range."""
        is_share = isinstance(self.policy.reward_link, Logistic | Probit)
        return LARGER_REWARDS if is_share else "give `reward_range`"


def check_reward_range(reward_range: Any) -> tuple[list[float] | None, float]:
    """Return the range of rewards and the noise level sigma that follows: rewards in an interval are sub-Gaussian with
    half its width (Hoeffding's lemma)."""
    if reward_range is None:
        return None, DEFAULT_SIGMA
    expected = f"a pair (low, high) of numbers with low < high, within [-{LARGEST_REWARD:g}, {LARGEST_REWARD:g}]"
    ends = check_real_array("reward_range", reward_range, expected)
    if ends.shape != (2,) or not -LARGEST_REWARD <= ends[0] < ends[1] <= LARGEST_REWARD:
        raise ArgumentError("reward_range", reward_range, expected)
    low, high = ends.tolist()
    return [low, high], (high - low) / 2.0


def build_policy(
    policy: str | type[Policy], dim: int, link: str | Link, settings: Mapping[str, Any], *, S: float | None, L: float,
    sigma: float, seed: int, **memory: Any,
) -> BuiltPolicy:  # fmt: skip
    """Build a policy of one lane. ``memory``: the arguments of :func:`choose_forgetting`."""
    cls, link_ = find_policy_class(policy), get_link(link)
    signature = Signature(cls)
    accepted = signature.names
    if "link" not in accepted and link_.name not in (DEFAULT_LINK, "identity"):
        raise ArgumentError("link", link, f"omitted, because {cls.name} takes no link")
    forgetting, by_clock = choose_forgetting(cls, dim, **memory)
    if S is not None or not signature.may_be_none("S"):  # otherwise the policy learns the scale
        S = check_positive("S", 1.0 if S is None else S)
    world = {"link": link_, "S": S, "L": L, "sigma": sigma, "seed": seed}
    given = {**{name: value for name, value in world.items() if name in accepted}, **forgetting}
    _check_settings(signature, settings, given)
    built = cast(Callable[..., Policy], cls)(dim=dim, **given, **settings)
    name = cls.name if POLICIES.get(cls.name) is cls else None
    link_name = link_.name if type(link_) is LINKS.get(link_.name) else None
    return BuiltPolicy(built, name, link_name, S, by_clock)


def choose_forgetting(
    policy: type[Policy], dim: int, *, half_life: Any, gamma: Any, horizon: Any, drift: Any
) -> tuple[dict[str, Any], bool]:
    """Return the policy's settings for forgetting, and whether its rounds are ticks of the clock.

    The rate is ``half_life`` (a duration, or a number of decisions), ``gamma``, or ``drift`` with ``horizon``: one of
    them or none."""
    rates = {"half_life": half_life, "gamma": gamma, "drift": drift}
    names = [name for name, value in rates.items() if value is not None]
    if len(names) > 1:
        raise ArgumentError(names[1], rates[names[1]], f"omitted when `{names[0]}` is given")
    accepted = Signature(policy).names
    settings: dict[str, Any] = {}
    if horizon is not None and "horizon" in accepted:
        settings["horizon"] = horizon
    by_clock, discount = False, None  # its gamma, and its memory in rounds
    if half_life is not None:
        span = Span.parse("half_life", half_life, least=0.01)
        by_clock = span.by_clock
        rate = math.log(2.0) / (span.length * TICKS if by_clock else span.length)
        discount = math.exp(-rate), -1.0 / math.expm1(-rate)
    elif gamma is not None:
        gamma = check_number("gamma", gamma, "in (0, 1]", lambda g: 0.0 < g <= 1.0)
        discount = gamma, memory_of_discount(gamma)
    elif drift is not None:
        if horizon is None:
            raise ArgumentError("drift", drift, "given with `horizon`, the number of decisions it is spread over")
        if "drift" in accepted:
            settings["drift"] = drift
        else:
            gamma = theory.discount(horizon=horizon, drift=drift, dim=dim)
            discount = gamma, memory_of_discount(gamma)
    elif horizon is not None and "horizon" not in accepted:
        hint = "or give `drift` as well"
        raise ArgumentError("horizon", horizon, f"omitted, because {policy.name} takes no horizon", hint=hint)
    if discount is not None:
        if "memories" in accepted:
            settings["memories"] = [max(discount[1], 1.0 + 1e-9)]
        elif "gamma" in accepted:
            settings["gamma"] = discount[0]
        else:
            expected = f"omitted, because {policy.name} does not forget with a discount"
            raise ArgumentError(names[0], rates[names[0]], expected)
    return settings, by_clock


def memory_of_discount(gamma: float) -> float:
    """Return how many rounds back the past counts under a discount: 1/(1 - gamma)."""
    return 1.0 / (1.0 - gamma) if gamma < 1.0 else math.inf


def learn_prior(policy: Policy, prior: Any, weight: float, S: float | None, reward_range: tuple[float, float]) -> None:
    """Make ``policy`` begin at theta = ``prior``. A policy with an estimator learns, for each axis e_i, the observation

        x = L e_i,   reward mu(<x, prior>) + ridge prior_i / (weight L),   of that ``weight``,

    all in one round. Without the second term the ridge would draw the estimate towards zero; with it, ``prior`` is the
    root of g(theta) = b. They age as rewards do, and the estimate then moves towards zero as for any past.
    """
    theta = check_array("prior", prior, (policy.dim,))
    length = float(np.linalg.norm(theta))
    largest = LONGEST_PRIOR / policy.L if S is None else S
    if not length <= largest:  # written this way so that NaN is rejected
        expected = f"finite, of norm at most {'S' if S is not None else '1000 / L'} = {largest:g}"
        raise ArgumentError("prior", theta.tolist(), expected, hint="" if S is None else "or give a larger `S`")
    if not weight <= LARGEST_WEIGHT:
        raise ArgumentError("prior_weight", weight, f"at most {LARGEST_WEIGHT:g}")
    if not (isinstance(policy, EstimatingPolicy | AdaptiveGLMUCB) and policy.takes_prior):
        raise ArgumentError("prior", theta.tolist(), f"omitted, because {policy.name} cannot begin at a guess")
    means = np.asarray(policy.reward_link.mean(policy.L * theta))
    low, high = reward_range
    if not ((means >= low) & (means <= high)).all():
        mean = float(means[np.argmax(~((means >= low) & (means <= high)))])
        expected, got = f"a parameter whose mean rewards lie in [{low:g}, {high:g}]", f"a mean reward of {mean:.4g}"
        raise ArgumentError("prior", theta.tolist(), expected, got=got, hint="or give a wider `reward_range`")
    if isinstance(policy, AdaptiveGLMUCB):
        policy.start_at(theta, weight)
        return
    rewards = means + policy.estimator.ridge * theta / (weight * policy.L)
    decided, age, weights, mask = np.array([policy.t]), np.zeros(1), np.array([weight]), np.array([True])
    policy.advance(1.0)  # a round of its own: policies that may restart take no reward from before the first
    for x, reward in zip(np.eye(policy.dim) * policy.L, rewards, strict=True):  # may be outside the range of rewards
        policy.learn(Feedback(x[None], np.array([reward]), decided, age, weights, mask))


def _check_settings(signature: Signature, settings: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Check that the constructor takes ``settings``, that none is in ``given``, and that nothing is missing."""
    policy = signature.cls.name
    for name in settings:
        if name in _OWN or not signature.accepts(name):
            raise ArgumentError(name, settings[name], f"omitted, because neither Agent nor {policy} takes it")
        if name in given:
            instead = "`reward_range`" if name == "sigma" else "`half_life`, `gamma` or `drift`"
            raise ArgumentError(name, settings[name], f"omitted: {instead} sets it")
    for name in signature.required:
        if name not in {"dim", *settings, *given}:
            raise ArgumentError(name, None, f"given, because {policy} needs it", got="nothing")


def find_policy_class(policy: str | type[Policy]) -> type[Policy]:
    """Return the class of a policy that an agent can use, given by its name or itself."""
    if isinstance(policy, str):
        name = AdaptiveGLMUCB.name if policy == "adaptive" else policy
        if name not in POLICIES:
            raise describe_unknown_policy("policy", policy, '"adaptive", a class, or the name of a policy')
        policy = POLICIES[name]
    if not (isinstance(policy, type) and issubclass(policy, Policy) and hasattr(policy, "name")):
        raise ArgumentError("policy", policy, "the name of a policy, or a policy class")
    if policy.needs_truth:
        raise ArgumentError("policy", policy.name, "one that does not need the truth, which only a simulation has")
    return policy
