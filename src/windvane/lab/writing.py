"""A spec as text, for people (TOML) and for comparison (a fingerprint)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from windvane._validation import shown
from windvane.environments import FunctionDrift
from windvane.lab.cells import recorded_rounds
from windvane.lab.environment_spec import PARTS, EnvironmentSpec
from windvane.lab.errors import field_errors
from windvane.lab.objects import qualified, resolved_link
from windvane.lab.policy_spec import PolicySpec
from windvane.lab.toml import key, written
from windvane.links import Link

if TYPE_CHECKING:
    from windvane.lab.spec import Spec

_SAMPLED = 1000  # rounds at which the path of a user's function is looked at

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


def _environment(environment: EnvironmentSpec) -> dict[str, Any]:
    """The fields, the tables last."""
    fields = {field.name: getattr(environment, field.name) for field in dataclasses.fields(environment)}
    tables = {name: _table(fields.pop(name)) for name in PARTS}
    return {**fields, **tables}


def _policy(policy: PolicySpec) -> dict[str, Any]:
    table: dict[str, Any] = {"policy": policy.policy, "label": policy.label, **policy.settings}
    return {**table, "sweep": policy.sweep or None}


def _table(part: Any) -> dict[str, Any] | None:
    """A drift or law as a table: its kind, and every field that is not None."""
    if part is None:
        return None
    fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part) if field.init}
    return {"kind": part.kind, **{name: value for name, value in fields.items() if value is not None}}


def _lines(table: Mapping[str, Any]) -> str:
    return "".join(_line(name, value) for name, value in table.items() if value is not None)


def _line(name: str, value: Any) -> str:
    try:
        return f"{key(name)} = {written(value)}\n"
    except TypeError:
        return f"# {key(name)}: {shown(value)} cannot be imported by a name, so it is not written here\n"


# --- fingerprint ------------------------------------------------------------------------------------------------------


def fingerprint(spec: Spec) -> str:
    content: dict[str, Any] = {**_sizes(spec), "environments": []}
    for index, environment in enumerate(spec.environments):
        with field_errors("environments", index):
            content["environments"].append(_environment_content(environment, spec))
    content["policies"] = [_policy_content(policy, spec) for policy in spec.policies]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _environment_content(environment: EnvironmentSpec, spec: Spec) -> dict[str, Any]:
    content = _environment(environment)
    if isinstance(environment.drift, FunctionDrift):
        content["drift"] = {"kind": environment.drift.kind, "path": _sampled_path(environment, spec)}
    with field_errors(known=("link",)):
        content["link"] = _link_content(environment.link, environment.S * environment.L)
    return {name: _canonical(value) for name, value in content.items()}


def _policy_content(policy: PolicySpec, spec: Spec) -> dict[str, Any]:
    content = {**_policy(policy), "name": policy.name, "sweep": list(policy.sweep.items())}
    if "link" in policy.settings:
        largest = max(environment.S * environment.L for environment in spec.environments)
        content["link"] = _link_content(policy.settings["link"], largest)
    return {name: _canonical(value) for name, value in content.items()}


def _link_content(link: str | Link, largest: float) -> Any:
    found = resolved_link("link", link)
    return found if isinstance(found, str) else (*found.fingerprint(largest),)


def _sampled_path(environment: EnvironmentSpec, spec: Spec) -> Any:
    """theta* of run 0 at rounds spread evenly over the horizon."""
    with field_errors("drift", known=("function",), foreign=True):
        path = environment.drift.path(
            horizon=spec.horizon,
            dim=environment.dim,
            S=environment.S,
            lane_ids=np.zeros(1, dtype=np.int64),
            seed=spec.seed,
        )
        return [path.at(int(t))[0].tolist() for t in recorded_rounds(spec.horizon, _SAMPLED)]


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
