"""From what an agent is told to the policy that it runs: one lane, with the settings that the policy takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from windvane.agent.times import forgetting
from windvane.arguments import check_array, check_positive
from windvane.errors import ArgumentError
from windvane.kernels.scoring import LARGEST_WEIGHT
from windvane.links import LINKS, Link, get_link
from windvane.policies.adaptive_glm_ucb import AdaptiveGLMUCB
from windvane.policies.base import Policy
from windvane.policies.inputs import Feedback
from windvane.policies.optimism import EstimatingPolicy
from windvane.policies.registry import POLICIES, Signature

DEFAULT_LINK = "logistic"
LONGEST_PRIOR = 1000.0  # norm of a prior, times L, where no S is given
_OWN = ("lanes", "dim", "truth")  # of a policy; not the user's to set


class Built(NamedTuple):
    """A policy; the names it and its link are registered under (None: the user's own); its S; what a round is."""

    policy: Policy
    name: str | None
    link: str | None
    S: float | None
    by_clock: bool


def built(
    policy: str | type[Policy],
    dim: int,
    link: str | Link,
    settings: Mapping[str, Any],
    *,
    S: float | None,
    L: float,
    sigma: float,
    seed: int,
    **memory: Any,
) -> Built:
    """``memory``: the arguments of :func:`forgetting`."""
    cls, link_ = _policy_class(policy), get_link(link)
    signature = Signature(cls)
    taken = signature.names
    if "link" not in taken and link_.name not in (DEFAULT_LINK, "identity"):
        raise ArgumentError("link", link, f"omitted, because {cls.name} is linear and takes no link")
    forget = forgetting(cls, dim, **memory)
    sigma = check_positive("sigma", sigma)
    if S is not None or not signature.may_be_none("S"):  # otherwise the policy learns the scale
        S = check_positive("S", 1.0 if S is None else S)
    world = {"link": link_, "S": S, "L": L, "sigma": sigma, "seed": seed}
    given = {**{name: value for name, value in world.items() if name in taken}, **forget.settings}
    _check_settings(signature, settings, given)
    made = cast(Callable[..., Policy], cls)(dim=dim, **given, **settings)
    registered = cls.name if POLICIES.get(cls.name) is cls else None
    return Built(made, registered, link_.name if type(link_) is LINKS.get(link_.name) else None, S, forget.by_clock)


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
    if not isinstance(policy, EstimatingPolicy | AdaptiveGLMUCB):
        expected = f"omitted, because {policy.name} restarts by itself and would forget it"
        raise ArgumentError("prior", theta.tolist(), expected)
    means = np.asarray(policy.reward_link.mean(policy.L * theta))
    low, high = reward_range
    if not ((means >= low) & (means <= high)).all():
        mean = float(means[np.argmax(~((means >= low) & (means <= high)))])
        raise ArgumentError(
            "prior",
            theta.tolist(),
            f"a parameter whose mean rewards lie in [{low:g}, {high:g}]",
            got=f"a mean reward of {mean:.4g}",
            hint="or give a larger `sigma`",
        )
    if isinstance(policy, AdaptiveGLMUCB):
        policy.start_at(theta, weight)
        return
    rewards = means + policy.estimator.ridge * theta / (weight * policy.L)
    decided, age, weights, mask = np.array([policy.t]), np.zeros(1), np.array([weight]), np.array([True])
    policy.advance(1.0)  # a round of its own: policies that may restart take no reward from before the first
    for x, reward in zip(np.eye(policy.dim) * policy.L, rewards, strict=True):  # may be outside the range of rewards
        policy.learn(Feedback(x[None], np.array([reward]), decided, age, weights, mask))


def plain(value: Any) -> Any:
    """Numbers, texts and lists as Python has them, whatever library they come from; the rest as it is."""
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def _check_settings(signature: Signature, settings: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """``settings`` must be among what the constructor takes, not said already, and all it needs must be there."""
    policy = signature.cls.name
    for name in settings:
        if name in _OWN or not signature.accepts(name):
            raise ArgumentError(name, settings[name], f"omitted, because neither Agent nor {policy} takes it")
        if name in given:
            expected = "omitted when `half_life`, `gamma` or `drift` is given"
            raise ArgumentError(name, settings[name], expected)
    for name in signature.required:
        if name not in {"dim", *settings, *given}:
            raise ArgumentError(name, None, f"given, because {policy} needs it", got="nothing")


def _policy_class(policy: str | type[Policy]) -> type[Policy]:
    if isinstance(policy, str):
        name = AdaptiveGLMUCB.name if policy == "adaptive" else policy
        if name not in POLICIES:
            raise ArgumentError("policy", policy, f'"adaptive", a class, or one of {", ".join(POLICIES)}')
        policy = POLICIES[name]
    if not (isinstance(policy, type) and issubclass(policy, Policy) and hasattr(policy, "name")):
        raise ArgumentError("policy", policy, "the name of a policy, or a policy class")
    if policy.needs_truth:
        raise ArgumentError("policy", policy.name, "one that does not need the truth, which only a simulation has")
    return policy
