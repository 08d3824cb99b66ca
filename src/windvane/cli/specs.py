"""The command ``new``: a spec to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from windvane.cli import InputError
from windvane.cli.console import print_json, say
from windvane.cli.options import AsJson


def new(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("spec.toml"),
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a commented example of an experiment, ready to be run and changed.

    Example:
      windvane new spec.toml
      windvane simulate spec.toml
    """
    from windvane.lab.spec.example import EXAMPLE

    try:
        with path.open("w" if replace else "x", encoding="utf-8") as file:
            file.write(EXAMPLE)
    except FileExistsError:
        raise InputError(f"{path}: already exists; name another file, or use --replace") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; name a file in it") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    if as_json:
        print_json({"file": str(path)})
    else:
        say(f"{path} written; run it with: windvane simulate {path}")
