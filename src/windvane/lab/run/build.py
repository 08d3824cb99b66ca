"""Build the environments and policies that a spec describes.

The experiment fills in what the environment knows, as far as the class of a policy accepts it: ``dim``, ``lanes`` and
``seed`` always; ``link``, ``S``, ``L``, ``sigma`` and ``horizon`` unless they are set. ``told`` of a policy's spec says
what else it is told, which nobody knows in practice: the exact B_T ("drift") and number of changes ("switches") of
every run. A class that takes ``gamma`` but not ``drift`` gets the discount that theory recommends for B_T
(:func:`windvane.theory.discount`, for the arms that its ``arm_geometry`` names).

A policy that knows arms by their index (``needs_one_hot``) runs where every round has the same K arms in the same
order. It is shown the K unit vectors (:func:`list_unit_vectors`), and ``dim`` is K. The drift that it is told is a
bound on how far the mean rewards move: k_mu L B_T.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from windvane import theory
from windvane._importing import imported
from windvane.arguments import Array, check_choice
from windvane.environments import Environment, LabelledStream
from windvane.errors import ArgumentError, format_value
from windvane.links import Link
from windvane.policies.registry import POLICIES, Signature

if TYPE_CHECKING:
    from windvane.environments import AnyEnvironment
    from windvane.lab.spec.environment_spec import AnyEnvironmentSpec
    from windvane.lab.spec.policy_spec import PolicySpec
    from windvane.policies.base import Policy

FILLED_ALWAYS = ("dim", "lanes", "seed")  # these belong to the experiment and cannot be set
FILLED = (*FILLED_ALWAYS, "link", "S", "L", "sigma", "horizon", "gamma", "drift", "switches")
FORGETTING = {"gamma", "window", "restart_every", "drift", "switches"}  # if one is set, nothing is told by default
TRUTHS = ("drift", "switches")  # what a policy can be told
PER_LANE = ("gamma", "bonus_scale", "posterior_scale", "delta")  # settings that can be swept lane by lane
LISTABLE = FORGETTING | set(PER_LANE)  # settings that policies accept as a list with one value per lane


def build_environment(
    spec: AnyEnvironmentSpec, *, horizon: int | None, lanes: int | Sequence[int], seed: int
) -> AnyEnvironment:
    """Return the environment of ``spec``; for a labelled data stream, the horizon None means all rows."""
    if spec.kind == "labelled-stream":
        return LabelledStream.read(
            spec.file, label=spec.label, sha256=spec.sha256, rows=horizon, missing=spec.missing, S=spec.S,
            drift=spec.drift, switches=spec.switches, lanes=lanes, seed=seed,
        )  # fmt: skip
    assert horizon is not None  # only a file has a length of its own
    if spec.kind == "gymnasium":
        from windvane.environments.gymnasium import GymnasiumEnvironment

        make, arms = (resolve_function(name, getattr(spec, name)) for name in ("make", "arms"))
        return GymnasiumEnvironment(
            make, arms=arms, link=resolve_link("link", spec.link), S=spec.S, L=spec.L, sigma=spec.sigma,
            reward_range=spec.reward_range, drift=spec.drift, switches=spec.switches, horizon=horizon, lanes=lanes,
            seed=seed,
        )  # fmt: skip
    return Environment(
        spec.drift, spec.arms, spec.rewards, dim=spec.dim, link=resolve_link("link", spec.link), S=spec.S, L=spec.L,
        intercept=spec.intercept, delay=spec.delay, horizon=horizon, lanes=lanes, seed=seed,
    )  # fmt: skip


def resolve_link(name: str, link: str | Link) -> str | Link:
    """Return ``link`` as environments and policies accept it: "module:name" is imported."""
    if not isinstance(link, str) or ":" not in link:
        return link
    value = imported(link, name)
    if not isinstance(value, Link):
        raise ArgumentError(name, link, "the name of a Link", hint=f"it names {format_value(value)}")
    return value


def resolve_function(name: str, function: Any) -> Any:
    """Return a function that is given as an object, as "module:name", or as None."""
    value = imported(function, name) if isinstance(function, str) else function
    if value is not None and not callable(value):
        raise ArgumentError(name, function, "the name of a function", hint=f"it names {format_value(value)}")
    return value


def resolve_policy(policy: str | type[Policy]) -> type[Policy]:
    """Return the class of a policy that is given as a class, by its registered name, or as "module:Class"."""
    if isinstance(policy, str):
        return POLICIES[policy] if policy in POLICIES else check_class(imported(policy, "policy"))
    return check_class(policy)


def check_class(policy: Any) -> type[Policy]:
    """Return ``policy`` if it is a class that follows the lanes contract, as far as that can be seen."""
    has_methods = isinstance(policy, type) and all(
        callable(getattr(policy, name, None)) for name in ("select", "update")
    )
    if not has_methods or not all(Signature(policy).accepts(name) for name in FILLED_ALWAYS):
        expected = "a class with select and update whose constructor accepts dim, lanes and seed"
        raise ArgumentError("policy", policy, expected)
    return policy  # type: ignore[no-any-return]


def find_per_lane(spec: PolicySpec) -> list[str]:
    """Return the swept settings that the policy accepts lane by lane; none if it does not derive from ``Policy``."""
    from windvane.policies.base import Policy

    names = [name for name in PER_LANE if name in spec.sweep]
    return names if names and issubclass(resolve_policy(spec.policy), Policy) else []


def close_environment(environment: AnyEnvironment) -> None:
    """Release what an environment holds, such as the windows or processes of Gymnasium environments."""
    if callable(close := getattr(environment, "close", None)):
        close()


def find_told(signature: Signature, settings: Collection[str]) -> tuple[str, ...]:
    """Return what a policy is told by default: nothing, if one of its ``settings`` says how to forget."""
    if FORGETTING & set(settings):
        return ()
    names = tuple(name for name in TRUTHS if name in signature.names)
    return names or (TRUTHS[:1] if signature.accepts("gamma") else ())


def build_policy(
    spec: PolicySpec, environment: AnyEnvironment, variants: Sequence[Mapping[str, Any]] | None = None
) -> Policy:
    """Return the policy of ``spec`` for ``environment``; ``variants`` has the point of the sweep of each lane.

    All lanes share their swept settings, except those that the policy accepts lane by lane (:func:`find_per_lane`).
    """
    signature, lanes = Signature(resolve_policy(spec.policy)), environment.lanes
    points = [{}] * lanes if variants is None else list(variants)
    if len(points) != lanes or any(set(point) != set(spec.sweep) for point in points):
        swept = ", ".join(spec.sweep) or "nothing, since nothing is swept"
        raise ArgumentError("variants", variants, f"given with {swept} for each of the {lanes} lanes")
    per_lane = find_per_lane(spec)
    shared = {name: points[0][name] for name in spec.sweep if name not in per_lane}
    if any(point[name] != value for point in points for name, value in shared.items()):
        raise ArgumentError("variants", variants, f"the same in all lanes for {', '.join(shared)}")
    settings = {**spec.settings, **shared}
    if "link" in settings:
        settings["link"] = resolve_link("link", settings["link"])
    needs_one_hot = getattr(signature.cls, "needs_one_hot", False)
    if needs_one_hot and not environment.has_fixed_arms:
        expected = "one that chooses by features, because the arms of this environment are not the same in every round"
        raise ArgumentError("policy", spec.policy, expected)
    learns_scale = not environment.has_theta and signature.may_be_none("S")
    arguments: dict[str, Any] = {
        "dim": environment.round(1).means.shape[1] if needs_one_hot else environment.dim,
        "link": environment.link,
        "S": None if learns_scale else environment.S,
        "L": environment.L,
        "sigma": environment.sigma,
        "horizon": environment.horizon,
        "lanes": environment.lane_ids,
        "seed": environment.seed,
        **settings,
        **{name: np.array([point[name] for point in points]) for name in per_lane},
    }
    told = find_told(signature, {*spec.settings, *spec.sweep}) if spec.told is None else spec.told
    arguments |= _tell(signature, environment, told, arguments)
    policy = signature.cls(**{name: value for name, value in arguments.items() if signature.accepts(name)})
    _check_rewards(policy, spec.policy, environment)
    return policy


def _check_rewards(policy: Any, name: Any, environment: AnyEnvironment) -> None:
    """Raise unless a policy of ours accepts every reward of the environment."""
    low, high = environment.reward_range
    least, most = getattr(policy, "accepted_rewards", (low, high))
    if not least <= low <= high <= most:
        expected = f"one that accepts the rewards of this environment, in [{low:g}, {high:g}]"
        raise ArgumentError("policy", name, expected, got=f"{name}, which accepts those in [{least:g}, {most:g}]")


def list_unit_vectors(policy: Policy, environment: AnyEnvironment) -> Array | None:
    """Return the arms of every round as a policy sees them that knows them by their index, [lanes, K, K]; else None."""
    if not getattr(policy, "needs_one_hot", False):
        return None
    return np.tile(np.eye(policy.dim), (environment.lanes, 1, 1))


def _tell(
    signature: Signature, environment: AnyEnvironment, told: Collection[str], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments with the truth about the environment."""
    truths: dict[str, Any] = {"drift": environment.variation, "switches": environment.switches}
    if getattr(signature.cls, "needs_one_hot", False):
        truths["drift"] = (
            environment.link.constants(environment.S, environment.L).k_mu * environment.L * truths["drift"]
        )
    told_arguments = {name: truths[name] for name in told if name in signature.names}
    if "drift" in told and not told_arguments:
        default = getattr(signature.cls, "arm_geometry", theory.ARM_GEOMETRIES[0])
        arm_geometry = arguments.get("arm_geometry", default)
        told_arguments["gamma"] = _recommend_discounts(environment, arguments["horizon"], arm_geometry)
    if getattr(signature.cls, "needs_truth", False):
        told_arguments["truth"] = environment.means
    return told_arguments


def _recommend_discounts(environment: AnyEnvironment, horizon: int, arm_geometry: str) -> Array:
    """Return the recommended gamma for the exact B_T of each lane."""
    check_choice("arm_geometry", arm_geometry, theory.ARM_GEOMETRIES)
    drifts = environment.variation.tolist()
    problem: dict[str, Any] = {"horizon": horizon, "dim": environment.dim, "arm_geometry": arm_geometry}
    gammas = {drift: theory.discount(drift=drift, **problem) for drift in set(drifts)}
    return np.array([gammas[drift] for drift in drifts])
