"""Options from a file: ``--config service.toml``, whose keys are the options of the command."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import typer

from windvane.cli import InputError


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Read the options that are set neither on the command line nor in the environment from the file at ``path``."""
    if path is None:
        return None
    parameters = {option.removeprefix("--"): p for p in context.command.params for option in p.opts}
    allowed = sorted(parameters.keys() - {"config", "help", "json"})
    try:
        settings: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:  # TOML and UTF-8
        raise InputError(f"{path}: is not TOML ({error})") from None
    context.default_map = {}
    for key, value in settings.items():
        if key not in allowed:
            raise InputError(f"{path}: {key}: unknown; allowed are {', '.join(allowed)}")
        parameter = parameters[key]
        is_flag = getattr(parameter, "is_flag", False)
        if not isinstance(value, str | int | float) or isinstance(value, bool) != is_flag:
            raise InputError(f"{path}: {key}: must be {'true or false' if is_flag else 'a string or a number'}")
        try:
            parameter.process_value(context, value)
        except typer.BadParameter as error:
            raise InputError(f"{path}: {key}: {error.message}") from None
        context.default_map[parameter.name] = value
    return path
