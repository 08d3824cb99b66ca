"""The fingerprint of a spec: a hash of everything that decides its results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from windvane.environments import FunctionDrift, LoggedPath
from windvane.lab.run.build import build_environment, resolve_function, resolve_link, resolve_policy
from windvane.lab.run.cells import choose_recorded_rounds
from windvane.lab.run.own_code import hash_code
from windvane.lab.spec.field_types import PARTS
from windvane.lab.spec.python_objects import qualify
from windvane.lab.spec.spec_errors import located
from windvane.lab.spec.toml_writer import describe_environment, list_sizes
from windvane.links import Link
from windvane.policies.registry import POLICIES

if TYPE_CHECKING:
    from windvane.lab.spec.environment_spec import AnyEnvironmentSpec, EnvironmentSpec
    from windvane.lab.spec.experiment_spec import Spec
    from windvane.lab.spec.policy_spec import PolicySpec

SAMPLED = 1000  # rounds in which an environment with parts of the user is evaluated


def compute(spec: Spec) -> str:
    """Return the SHA-256 of everything in ``spec`` but its title."""
    content: dict[str, Any] = {**list_sizes(spec), "environments": [], "policies": []}
    for index, environment in enumerate(spec.environments):
        with located("environments", index):
            content["environments"].append(_describe_environment(environment, spec))
    for index, policy in enumerate(spec.policies):
        with located("policies", index):
            content["policies"].append(_describe_policy(policy, spec))
    return hashlib.sha256(json.dumps(_canonical(content), sort_keys=True).encode()).hexdigest()


def _describe_environment(environment: AnyEnvironmentSpec, spec: Spec) -> dict[str, Any]:
    content = describe_environment(environment.pin())
    if environment.kind == "labelled-stream":
        return {**content, "file": None}  # its content counts, not its path
    if environment.kind == "gymnasium":
        functions = {name: resolve_function(name, getattr(environment, name)) for name in ("make", "arms")}
        content["code"] = [hash_code(function) for function in functions.values() if function]
        return {**content, "link": _describe_link(environment.link, environment.S * environment.L)}
    if isinstance(environment.drift, LoggedPath):
        content["drift"]["file"] = None
    if isinstance(environment.drift, FunctionDrift):
        content["drift"] = {"kind": environment.drift.kind, "path": _hash_path(environment, spec)}
    for name in PARTS:
        if name in content and not isinstance(content[name], dict):  # a class of the user
            content[name] = [qualify(type(content[name])), *_sample_rounds(environment, spec)]
    largest = environment.S * environment.L
    if environment.intercept is not None:
        built = build_environment(environment, horizon=spec.horizon, lanes=1, seed=spec.seed)
        largest = built.S * built.L
    content["link"] = _describe_link(environment.link, largest)
    return content


def _describe_policy(policy: PolicySpec, spec: Spec) -> dict[str, Any]:
    resolved = policy.resolve()
    settings, sweep = dict(resolved.settings), dict(resolved.sweep)
    largest = max(environment.S * environment.L for environment in spec.environments)
    if "link" in settings:
        with located("settings"):
            settings["link"] = _describe_link(settings["link"], largest)
    if "link" in sweep:
        with located("sweep"):
            sweep["link"] = [_describe_link(link, largest) for link in sweep["link"]]
    content = {
        "name": policy.name,
        "policy": policy.policy,
        "settings": settings,
        "sweep": sweep,
        "told": resolved.told,
    }
    if policy.policy not in POLICIES:
        content["code"] = hash_code(resolve_policy(policy.policy))
    return content


def _describe_link(link: str | Link, largest: float) -> Any:
    with located(known=("link",)):
        resolved = resolve_link("link", link)
    return resolved if isinstance(resolved, str) else resolved.fingerprint(largest)


def _hash_path(environment: EnvironmentSpec, spec: Spec) -> str:
    """Return a hash of theta* of run 0 in every round."""
    digest = hashlib.sha256()
    run_0 = np.zeros(1, dtype=np.int64)
    with located("drift", known=("function",), foreign=True):
        path = environment.drift.path(
            horizon=spec.horizon, dim=environment.dim, S=environment.S, lane_ids=run_0, seed=spec.seed
        )
        for t in range(1, spec.horizon + 1):
            digest.update(path.at(t).tobytes())
    return digest.hexdigest()


def _sample_rounds(environment: EnvironmentSpec, spec: Spec) -> list[Any]:
    """Return what an environment with parts of the user does in run 0, in rounds spread over the horizon."""
    world = build_environment(environment, horizon=spec.horizon, lanes=1, seed=spec.seed)
    content: list[Any] = [world.variation.tolist()]
    for t in map(int, choose_recorded_rounds(spec.horizon, SAMPLED)):
        offer, delays = world.round(t), world.delays(t)
        means = offer.means if offer.valid is None else np.where(offer.valid, offer.means, -np.inf)
        reward = world.play(offer, means.argmax(axis=1)).reward
        content.append([offer.arms.tolist(), offer.theta.tolist(), reward.tolist()])
        content.append(None if delays is None else delays.tolist())
    return content


def _canonical(value: Any) -> Any:
    """Return ``value`` for JSON so that equal values are written alike, 1 and 1.0 too."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {name: _canonical(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, Link):
        return _canonical(value.fingerprint(1.0))
    return [qualify(value), hash_code(value)] if callable(value) else value
