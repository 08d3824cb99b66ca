"""A spec as text, for people (TOML) and for comparison (a fingerprint)."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from windvane.environments import Environment, FunctionDrift
from windvane.errors import format_value
from windvane.lab.run.cells import recorded_rounds
from windvane.lab.spec.environment_spec import PARTS, EnvironmentSpec
from windvane.lab.spec.policy_spec import PolicySpec
from windvane.lab.spec.python_objects import qualified, resolved_link
from windvane.lab.spec.reading import KINDS
from windvane.lab.spec.spec_errors import field_errors
from windvane.lab.spec.stream_spec import StreamSpec
from windvane.lab.spec.toml_text import key, written
from windvane.links import Link
from windvane.policies.registry import POLICIES

if TYPE_CHECKING:
    from windvane.lab.spec.experiment_spec import Spec

_SAMPLED = 1000  # rounds at which a world with parts of the user's own is looked at

# --- TOML -------------------------------------------------------------------------------------------------------------


def document(spec: Spec) -> str:
    sections = [_lines({"title": spec.title, **_sizes(spec)})]
    for environment in spec.environments:
        sections.append("[[environments]]\n" + _lines(_environment(environment)))
    for policy in spec.policies:
        sections.append("[[policies]]\n" + _lines(_policy(policy)))
    return "\n".join(sections)


def _sizes(spec: Spec) -> dict[str, Any]:
    """The fields that are neither the title nor a list of parts."""
    others = ("title", "environments", "policies")
    names = [field.name for field in dataclasses.fields(spec) if field.init and field.name not in others]
    return {name: getattr(spec, name) for name in names}


def _environment(environment: EnvironmentSpec | StreamSpec) -> dict[str, Any]:
    """The fields, the tables last."""
    fields = {field.name: getattr(environment, field.name) for field in dataclasses.fields(environment)}
    tables = {}
    if isinstance(environment, EnvironmentSpec):
        tables = {name: _table(name, part) for name in PARTS if (part := fields.pop(name)) is not None}
    return {**{name: value for name, value in fields.items() if value is not None}, **tables}


def _policy(policy: PolicySpec) -> dict[str, Any]:
    label = {} if policy.label is None else {"label": policy.label}
    sweep = {"sweep": policy.sweep} if policy.sweep else {}
    return {"policy": policy.policy, **label, **policy.settings, **sweep}


def _table(name: str, part: Any) -> Any:
    """A drift or law as a table: its kind, and every field that is not None. One that has no kind here stays itself."""
    known: type[Any] | None = KINDS[name].get(getattr(part, "kind", ""))
    if known is not type(part):
        return part
    fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part) if field.init}
    return {"kind": part.kind, **{name: value for name, value in fields.items() if value is not None}}


def _lines(table: Mapping[str, Any]) -> str:
    return "".join(_line(name, value) for name, value in table.items())


def _line(name: str, value: Any) -> str:
    try:
        return f"{key(name)} = {written(value)}\n"
    except TypeError:
        return f"# {key(name)}: {format_value(value)} has no form in TOML and cannot be imported by a name: left out\n"


# --- fingerprint ------------------------------------------------------------------------------------------------------


def fingerprint(spec: Spec) -> str:
    content: dict[str, Any] = {**_sizes(spec), "environments": [], "policies": []}
    for index, environment in enumerate(spec.environments):
        with field_errors("environments", index):
            content["environments"].append(_environment_content(environment, spec))
    for index, policy in enumerate(spec.policies):
        with field_errors("policies", index):
            content["policies"].append(_policy_content(policy, spec))
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _environment_content(environment: EnvironmentSpec | StreamSpec, spec: Spec) -> dict[str, Any]:
    content = _environment(environment)
    if isinstance(environment, StreamSpec):
        content = {**content, "stream": None, "sha256": environment.pin().sha256}  # the content counts, not the path
        return {name: _canonical(value) for name, value in content.items()}
    if isinstance(environment.drift, FunctionDrift):
        content["drift"] = {"kind": environment.drift.kind, "path": _path_content(environment, spec)}
    for name in PARTS:
        if isinstance(part := content.get(name), tuple(PARTS.values())):  # a class of the user's own
            content[name] = [qualified(type(part)), *_world_content(environment, spec)]
    largest: Environment | EnvironmentSpec = environment
    if environment.intercept is not None:
        largest = environment.build(horizon=spec.horizon, lanes=1, seed=spec.seed)
    content["link"] = _link_content(environment.link, largest.S * largest.L)
    return {name: _canonical(value) for name, value in content.items()}


def _policy_content(policy: PolicySpec, spec: Spec) -> dict[str, Any]:
    settings = dict(policy.settings)
    if "link" in settings:
        largest = max(environment.S * environment.L for environment in spec.environments)
        settings["link"] = _link_content(settings["link"], largest)
    content: dict[str, Any] = {
        "name": policy.name,
        "policy": policy.policy,
        "settings": settings,
        "sweep": policy.sweep,
    }
    if policy.policy not in POLICIES:
        content["source"] = _source(policy.resolve())
    return {name: _canonical(value) for name, value in content.items()}


def _source(cls: type) -> str | None:
    """A hash of the file that a user's class is written in: edited, it is another policy."""
    try:
        path = inspect.getsourcefile(cls)
    except TypeError:  # made at a prompt
        return None
    return None if path is None else hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _link_content(link: str | Link, largest: float) -> Any:
    with field_errors(known=("link",)):
        found = resolved_link("link", link)
    return found if isinstance(found, str) else (*found.fingerprint(largest),)


def _path_content(environment: EnvironmentSpec, spec: Spec) -> str:
    """theta* of run 0 in every round, hashed."""
    digest = hashlib.sha256()
    with field_errors("drift", known=("function",), foreign=True):
        path = environment.drift.path(
            horizon=spec.horizon,
            dim=environment.dim,
            S=environment.S,
            lane_ids=np.zeros(1, dtype=np.int64),
            seed=spec.seed,
        )
        for t in range(1, spec.horizon + 1):
            digest.update(path.at(t).tobytes())
    return digest.hexdigest()


def _world_content(environment: EnvironmentSpec, spec: Spec) -> list[Any]:
    """What a world with parts of the user's own makes of run 0, at rounds spread evenly over the horizon."""
    world = environment.build(horizon=spec.horizon, lanes=1, seed=spec.seed)
    content: list[Any] = [world.variation.tolist()]
    for t in recorded_rounds(spec.horizon, _SAMPLED):
        offer = world.round(int(t))
        delays = world.delays(int(t))
        content.append([offer.arms.tolist(), offer.theta.tolist(), world.reward(int(t), offer.best).tolist()])
        content.append(None if delays is None else delays.tolist())
    return content


def _canonical(value: Any) -> Any:
    """``value`` for JSON, so that what is equal is written alike (1 and 1.0)."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {name: _canonical(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, Link):
        return _canonical(value.fingerprint(1.0))
    return qualified(value) if callable(value) else value
