"""Create streams, ensure that a stream with given settings exists, and change settings."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import secrets
from typing import TYPE_CHECKING, Any

from windvane import Agent
from windvane.agent.coordinates import carry_settings
from windvane.agent.core import CHANGEABLE, AgentCore
from windvane.agent.refit import NOT_OF_THE_AGENT
from windvane.agent.times import Span, read_clock
from windvane.service.problems import MAX_DETAIL, Problem, invalid, shorten
from windvane.service.retention import check_retention, read_retention
from windvane.service.stream_settings import NewStream, check_features
from windvane.service.streams import Done, Stream
from windvane.warmup import warm_up

if TYPE_CHECKING:
    from windvane.service.engine import Engine

MOST_FIXED = 3  # settings that a remedy names
MAX_VALUE = 60  # characters of a setting in a problem
_AGENT_ARGUMENTS = inspect.signature(Agent).parameters


async def build_core(new: NewStream) -> AgentCore:
    """Return the agent of a new stream. Its default seed is random; otherwise all streams would explore in the same
    rounds."""
    arguments = {"seed": secrets.randbits(63), **new.agent_arguments()}

    def build() -> AgentCore:
        check_features(arguments.get("features"))
        core = Agent(**arguments).core
        check_retention(new.retention, core.settings["reward_timeout"])
        return core

    try:
        return await asyncio.to_thread(build)
    except (ValueError, TypeError) as error:
        raise invalid(error) from None


async def create_stream(engine: Engine, new: NewStream) -> Stream:
    """Create a stream."""
    await engine.registry.refuse_if_taken(new.name)
    core = await build_core(new)  # errors come before anything is stored
    await asyncio.to_thread(warm_up, [type(core.policy)])
    config = {"title": new.title, "retention": new.retention, "agent": core.settings}
    return await engine.registry.add(new.name, json.dumps(config))


async def configure(engine: Engine, stream: Stream, changes: dict[str, Any]) -> Done:
    """Change settings of ``stream``; a shorter timeout may have passed for some decisions."""
    features = changes.get("features")
    try:
        check_features(features)
    except ValueError as error:
        raise invalid(error) from None
    size = 0 if features is None else math.inf  # to move the model to many of them takes long
    done = await engine.operations.carry_out(stream, lambda: stream.configure(changes, read_clock()), size=size)
    engine.timeouts.begin(stream)
    stream.compact_at = 0.0
    return done


async def ensure_stream(engine: Engine, new: NewStream) -> tuple[Stream, bool]:
    """Return the stream with this name and these settings, and whether it was created now.

    Raises :class:`Problem` "settings-differ" if it exists with other settings, "archived" if it was archived.
    """
    try:
        return await create_stream(engine, new), True
    except Problem as problem:
        if problem.code != "stream-exists":
            raise
    stream, wanted = await engine.find(new.name), await build_core(new)
    if stream.archived is not None:
        raise Problem("archived", f"the stream {new.name!r} is archived")
    await engine.journal.commit(stream)  # its settings may have been changed just now
    created = json.loads(stream.row.config)["agent"]
    names = find_differences(created, stream.core, wanted, with_seed=new.seed is not None)
    if "title" in new.model_fields_set and new.title != stream.title:
        names.append("title")
    if "retention" in new.model_fields_set and read_retention(new.retention) != read_retention(stream.retention):
        names.append("retention")
    if names := [name for name in names if not _is_derived(name, names, stream, new, wanted)]:
        raise _describe_differences(stream, names, new, wanted)
    return stream, False


def find_differences(created: dict[str, Any], core: AgentCore, wanted: AgentCore, *, with_seed: bool) -> list[str]:
    """Return the names of settings that differ in meaning: "1h" equals "60m", and an omitted setting its default.

    ``created``: the settings that ``core`` was created with, before anything was fitted.
    """
    target = json.loads(json.dumps(wanted.settings))
    fitted = [name for name in ("scaling", "features") if wanted.encoder.to_fit and created[name] == target[name]]
    names = [name for name in {**target, **core.settings} if name not in fitted and (with_seed or name != "seed")]
    moved = _list_moved(wanted) if created["features"] != core.settings["features"] else set()
    same = [name for name in moved if created.get(name) == target.get(name)]
    names = [name for name in names if name not in same]
    return [name for name in names if _read(core.settings, core, name) != _read(target, wanted, name)]


def _list_moved(core: AgentCore) -> set[str]:
    """Return the settings that other features change with them, such as S: nobody asks for the values they get."""
    features = core.encoder.features
    other_scale = 2.0  # any but 1
    return set() if features is None else carry_settings(core, features, other_scale).keys() - {"features"}


def _read(settings: dict[str, Any], core: AgentCore, name: str) -> Any:
    """Return the value of a setting in a form that can be compared."""
    if name == "learn":
        return core.learn  # None stands for a default that depends on other settings
    if name not in _AGENT_ARGUMENTS:  # of the policy, which knows its defaults
        value: Any = core.policy.get_params().get(name)
        return value.tolist() if hasattr(value, "tolist") else value
    value = settings[name]
    return Span.parse(name, value) if name in ("half_life", "reward_timeout") and value is not None else value


def _is_derived(name: str, names: list[str], stream: Stream, new: NewStream, wanted: AgentCore) -> bool:
    """Whether a setting that differs only follows from others in ``names``: nobody asked for its value."""
    if name in new.model_fields_set or name in new.settings:
        return False
    if name == "learn":  # its default depends on default_reward
        return stream.core.settings[name] is None is wanted.settings[name]
    return "policy" in names and (name in ("S", "link") or name not in _AGENT_ARGUMENTS)


def _describe_differences(stream: Stream, names: list[str], new: NewStream, wanted: AgentCore) -> Problem:
    """Return the problem of a stream whose settings ``names`` differ: both values of each, and what to do."""
    pairs = {}
    for name in names:
        if name in NOT_OF_THE_AGENT:
            pairs[name] = getattr(stream, name), getattr(new, name)
        elif name in _AGENT_ARGUMENTS:
            pairs[name] = stream.core.settings[name], wanted.settings[name]
        else:
            pairs[name] = _read({}, stream.core, name), _read({}, wanted, name)
    values = {name: tuple(map(_to_json, _drop_equal(has, asked))) for name, (has, asked) in pairs.items()}
    fixed = [f"`{name}`" for name in names if name not in ("features", *CHANGEABLE, *NOT_OF_THE_AGENT)]
    remedy = (
        f"PATCH cannot change {' and '.join(fixed[:MOST_FIXED])}: "
        if fixed
        else "change them by PATCH (`configure`), or "
    )
    remedy = f"; {remedy}use another name"
    text = " and ".join(f"`{name}` is {has}, not {asked}" for name, (has, asked) in values.items())
    text = shorten(f"the stream {new.name!r} exists with other settings: {text}", MAX_DETAIL - len(remedy))
    problem = Problem("settings-differ", text + remedy)
    for name, (has, asked) in values.items():
        pointer = f"#/settings/{name}" if name in new.settings else f"#/{name}"
        problem.add_error(pointer, f"the stream has {has}, not {asked}")
    return problem


def _drop_equal(has: Any, asked: Any) -> tuple[Any, Any]:
    """Return two values without the entries in which they agree, so that a short text shows the others."""
    if not (isinstance(has, dict) and isinstance(asked, dict)):
        return has, asked
    names = [name for name in {**has, **asked} if has.get(name) != asked.get(name)]
    pairs = {name: _drop_equal(has.get(name), asked.get(name)) for name in names}
    return {name: pair[0] for name, pair in pairs.items()}, {name: pair[1] for name, pair in pairs.items()}


def _to_json(value: Any) -> str:
    """Return a setting as short JSON; null stands for a setting that is not given."""
    return shorten(json.dumps(value, default=str), MAX_VALUE)
