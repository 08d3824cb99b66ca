"""Commands for spec files: new, spec check, spec schema."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from windvane.cli import InputError
from windvane.cli.console import count, print_json, say
from windvane.cli.options import AsJson, CheckPolicies, SpecFile


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
    from windvane.lab.spec.example import write_example

    try:
        with path.open("w" if replace else "x", encoding="utf-8") as file:
            file.write(write_example())
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


SPEC_HELP = """Check a spec file, or print the schema of spec files.

Examples:
  windvane spec check spec.toml
  windvane spec schema > spec.schema.json
"""

spec = typer.Typer(help=SPEC_HELP, no_args_is_help=True)


@spec.command()
def check(file: SpecFile, check_policies: CheckPolicies = False, as_json: AsJson = False) -> None:
    """Check a spec: build all environments and policies once, without running them.

    Examples:
      windvane spec check spec.toml
      windvane spec check spec.toml --check-policies
    """
    from windvane.lab.run.cells import list_cells
    from windvane.lab.spec.experiment_spec import Spec
    from windvane.lab.studies.benchmarks import check_own_policies

    experiment = Spec.read(file)
    if check_policies:
        check_own_policies(experiment.policies)
    pinned = experiment.pin()
    told = {policy.name: list(policy.told or ()) for policy in pinned.policies}
    cells = len(list_cells(experiment))
    if as_json:
        names = [environment.name for environment in experiment.environments]
        print_json({"file": str(file), "environments": names, "told": told, "cells": cells})
        return
    environments = count(len(experiment.environments), "environment")
    policies = count(len(experiment.policies), "policy", "policies")
    say(f"{file}: valid; {policies} in {environments}, {count(cells, 'cell')}")
    for name, truths in told.items():
        if truths:
            say(f"{name} is told the exact {' and '.join(truths)} of each run")


@spec.command()
def schema(as_json: AsJson = False) -> None:
    """Print the JSON schema of spec files, with which editors complete and check them.

    Put the line "#:schema spec.schema.json" at the top of the spec.

    Example:
      windvane spec schema > spec.schema.json
    """
    import json

    from windvane.lab.spec.schema import build_schema

    print(json.dumps(build_schema(), indent=None if as_json else 2))
