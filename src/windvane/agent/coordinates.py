"""New features for a running agent: coordinates with the same name keep what was learned.

Vectors are divided by the square root of the number of active fields (:mod:`windvane.agent.features`). Let c be the old
divisor over the new one. A vector x becomes c x in the coordinates that are kept, loses those that are removed, and
gets 0 in those that are new. Parameters become theta / c, S becomes S / c, and the regularisation is chosen so that it
weighs as much as before: a mere change of units has no effect. Then

* With coordinates added (an arm, a field, a value of a category), all predictions stay the same up to rounding, for
  every policy that can change coordinates, as long as its estimate is within the ball of radius S: new coordinates
  have coefficient 0. The adaptive policy's bonus of a vector that is 0 in the new coordinates also stays the same;
  bonuses of other policies depend on the dimension.
* With coordinates removed, the adaptive policy marginalises: its predictions for the rest, and their bonuses, stay
  the same without the removed part of the sum. Estimators with sums or a history become what they would be if the
  rewards had been observed without these coordinates: an exact estimator equals one that was fed the mapped vectors.
  A reward of a removed arm therefore still counts for the shared coordinates, and predictions change.
* Removed coordinates are forgotten. If added again, they start from the prior.

Open decisions keep their vectors, mapped. The rate of forgetting does not change, even if it was tuned for the number
of coordinates. A prior is not applied again: it was learned before. A number whose range changes would mix two
coordinates and is rejected. So are policies that do not define how their state depends on coordinates: BOB, MASTER and
dLinUCB, which start anew on their own, Rexp3, EXP3.S, and custom policies by default. :meth:`windvane.Agent.refit`
learns the log again instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from windvane import theory
from windvane.agent.features import KINDS, Features
from windvane.agent.names import list_values
from windvane.agent.vectors import parse_features
from windvane.arguments import NORM_SLACK, Array
from windvane.errors import ArgumentError
from windvane.policies.registry import Signature
from windvane.records import Name
from windvane.state import CoordinateChange, check, map_state, swap

if TYPE_CHECKING:
    from windvane.agent.core import AgentCore

REFIT = "`refit` learns the log again under other features"


def move_core(core: AgentCore, features: Any) -> tuple[AgentCore, list[Array]]:
    """Return what ``features`` make of an agent, which stays as it is: a core with its policy, encoder and settings,
    and the vectors of the open decisions, the oldest first."""
    old, new = core.encoder.features, parse_features(features, needs_one_hot=core.encoder.needs_one_hot)
    if old is None or new is None:
        expected = "omitted, because the agent has no declared features" if old is None else "a declaration of features"
        raise ArgumentError("features", features, expected)
    if core.encoder.to_fit or not core.encoder.scaling.is_identity:
        raise ArgumentError("features", features, "omitted, because of the agent's `scaling`", hint=REFIT)
    change = match_coordinates(old, new)
    successor = type(core)(**name_parts(core) | carry_settings(core, new, change.scale))
    state = map_state(core.policy, successor.policy, change)
    if state is None:
        expected = f"unchanged, because {core.policy.name} cannot change its coordinates"
        raise ArgumentError("features", features, expected, hint=REFIT)
    swap(check(successor.policy, state, is_own=True))
    vectors = [change.move(pending.x, change.scale) for pending in core.decisions]
    if not all(np.sqrt(x @ x) <= successor.policy.L * NORM_SLACK for x in vectors):
        expected = "a declaration under which the vectors of all open decisions are at most L long"
        raise ArgumentError("features", features, expected, hint="declare ranges of all numbers")
    return successor, vectors


def declare_arms(core: AgentCore, added: Name | None = None, removed: Name | None = None) -> dict[str, Any]:
    """Return the declaration of an agent's features with one arm more, or one less."""
    declaration: dict[str, Any] | None = core.settings["features"]
    arms = [] if declaration is None else declaration["arms"]
    if declaration is None or not arms:
        raise ArgumentError("features", declaration, "given with `arms` when the agent was created")
    if removed is not None and removed not in arms:
        raise ArgumentError("name", removed, f"one of the declared arms {list_values(arms)}")
    return declaration | {"arms": [*arms, added] if removed is None else [arm for arm in arms if arm != removed]}


def match_coordinates(old: Features, new: Features) -> CoordinateChange:
    """Return the index in ``old`` of each coordinate of ``new``, by name."""
    fields = dict(old.coordinates)
    for name, field in new.coordinates:
        before = fields.get(name, field)
        is_category = before is not None and field is not None and before.values and field.values
        if before != field and not is_category:
            owner = name if field is None else field.name
            kind = next((kind for kind in KINDS if field in getattr(new, kind)), "arms")
            expected = "as it was" if before is None else f"{before.declaration()}, as it was"
            got = None if field is None else field.declaration()
            raise ArgumentError(("features", kind, owner), got, expected, hint=REFIT)
    places = {name: place for place, name in enumerate(fields)}
    return CoordinateChange(np.array([places.get(name, -1) for name in new.names]), new.scale / old.scale)


def name_parts(core: AgentCore) -> dict[str, Any]:
    """Return the settings of an agent as arguments; a custom link or policy is the object itself."""
    own = {"link": core.policy.reward_link, "policy": type(core.policy)}
    return core.settings | {name: value for name, value in own.items() if core.settings[name] is None}


def carry_settings(core: AgentCore, features: Features, scale: float) -> dict[str, Any]:
    """Return the settings that change with the features; see the module."""
    settings, signature = core.settings, Signature(type(core.policy))
    S = None if settings["S"] is None else settings["S"] / scale
    kept = core.policy.carry_settings(scale, S)
    changes = {name: value for name, value in kept.items() if name in settings or signature.accepts(name)}
    drift, horizon = settings["drift"], settings["horizon"]
    if drift is not None and "drift" not in kept:  # the agent has tuned the discount for the dimension
        changes |= {"drift": None, "gamma": theory.discount(horizon=horizon, drift=drift, dim=core.policy.dim)}
        changes |= {} if signature.accepts("horizon") else {"horizon": None}
    return changes | {"features": features.declaration(), "prior": None, "S": S}
