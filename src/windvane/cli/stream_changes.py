"""The command ``streams configure``: what ``PATCH /v1/streams/NAME`` changes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from windvane.cli import InputError
from windvane.records import to_plain

if TYPE_CHECKING:
    from windvane.records import StreamInfo
    from windvane.service.engine import Engine

NOTHING = ("none", "forever")  # values of options that stand for null
NUMBERS = ("reward_timeout", "default_reward")  # settings whose texts may be numbers
_RETENTION_HELP = "How long events are kept, such as 90d; forever: all of them."
_TIMEOUT_HELP = "When a decision is closed: after a time such as 30m, or a number of decisions; none: never."
_DEFAULT_HELP = "The reward of a decision that is closed without one; none: it is forgotten."
_FEATURES_HELP = "A JSON file with the complete new declaration of contexts and arms."


@dataclass(frozen=True)
class Changes:
    """The settings to change. None: leave it as it is."""

    title: Annotated[str | None, typer.Option(help="A title; none: no title.", show_default=False)] = None
    retention: Annotated[str | None, typer.Option(help=_RETENTION_HELP, show_default=False)] = None
    reward_timeout: Annotated[str | None, typer.Option(help=_TIMEOUT_HELP, show_default=False)] = None
    default_reward: Annotated[str | None, typer.Option(help=_DEFAULT_HELP, show_default=False)] = None
    learn: Annotated[
        str | None, typer.Option(help="When outcomes are learned: on_arrival, at_timeout or early.", show_default=False)
    ] = None
    max_pending: Annotated[
        int | None, typer.Option(help="The largest number of open decisions.", min=1, show_default=False)
    ] = None
    epsilon: Annotated[
        float | None,
        typer.Option(help="Probability of a random arm instead of the recommended one.", show_default=False),
    ] = None
    features: Annotated[Path | None, typer.Option(help=_FEATURES_HELP, show_default=False)] = None

    def read(self) -> dict[str, Any]:
        """Return the changes by the names of the settings."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        changes = {name: _read(value, name in NUMBERS) for name, value in given.items()}
        if self.features is not None:
            changes["features"] = _read_file(self.features)
        if not changes:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in vars(self))
            raise InputError(f"name what to change: {options}")
        return changes


def _read(value: Any, may_be_number: bool) -> Any:
    """Return the value of an option: null, a number, or a text."""
    if value in NOTHING:
        return None
    if may_be_number:
        with contextlib.suppress(ValueError):
            return float(value)
    return value


def _read_file(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON ({error})") from None


def describe(info: StreamInfo, names: Iterable[str]) -> dict[str, Any]:
    """Return the settings of a stream with these names."""
    known = to_plain(info)
    return {name: known[name] if name in known else known["settings"].get(name) for name in names}


async def change(engine: Engine, name: str, changes: dict[str, Any]) -> StreamInfo:
    """Change a stream of a store that no server has open."""
    from windvane.service.creation import configure
    from windvane.service.problems import invalid
    from windvane.service.stream_settings import StreamChanges

    try:
        checked = StreamChanges.model_validate(changes).model_dump(exclude_unset=True)
    except ValueError as error:
        raise invalid(error) from None
    await configure(engine, engine.stream(name), checked)
    return await engine.views.read_info(engine.stream(name))
