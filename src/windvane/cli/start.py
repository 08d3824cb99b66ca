"""Commands to begin with: new, doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from windvane.cli import FAILED
from windvane.cli.console import InputError, output, print_json, remark, table
from windvane.cli.options import AsJson


def new(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("spec.toml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a commented example of an experiment, ready to be run and changed.

    \b
    Example:
      windvane new spec.toml
      windvane simulate spec.toml
    """
    from windvane.lab.example import EXAMPLE

    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(EXAMPLE)
    except FileExistsError:
        raise InputError(f"{path}: already exists; name another file, or use --force") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; name a file in it") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    if as_json:
        print_json({"file": str(path)})
    else:
        output().print(f"{path} written; run it with: windvane simulate {path}", markup=False)


def doctor(as_json: AsJson = False) -> None:
    """Versions, cores, the compile cache, and a self-test that compares the kernels with plain NumPy.

    \b
    Example:
      windvane doctor
    """
    from windvane.lab.doctor import examine

    remark("examining (the first time, kernels are compiled: about 20 s)")
    found = examine()
    if as_json:
        print_json({"healthy": found.healthy, "facts": found.facts, "checks": [c._asdict() for c in found.checks]})
    else:
        console = output()
        console.print(table(["what", "found"], [[name, str(value)] for name, value in found.facts.items()], left=2))
        for check in found.checks:
            console.print(f"{'ok    ' if check.fine else 'FAILED'}  {check.name}: {check.found}", markup=False)
        console.print("\nall is well" if found.healthy else "\nsomething is wrong: see above", markup=False)
    if not found.healthy:
        raise typer.Exit(FAILED)
