"""Commands for spec files: new, spec check, spec schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from windvane.cli import InputError
from windvane.cli.commands import Group
from windvane.cli.console import Answer, count
from windvane.cli.options import CheckPolicies, SpecFile


def new(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("spec.toml"),
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing file.")] = False,
) -> Answer:
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
    return Answer({"file": path}, [f"{path} written; run it with: windvane simulate {path}"])


def check(file: SpecFile, check_policies: CheckPolicies = False) -> Answer:
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
    told = {policy.name: policy.told or () for policy in experiment.pin().policies}
    cells = len(list_cells(experiment))
    environments = [environment.name for environment in experiment.environments]
    sizes = f"{count(len(told), 'policy', 'policies')} in {count(len(environments), 'environment')}"
    lines = [f"{file}: valid; {sizes}, {count(cells, 'cell')}"]
    lines += [
        f"{name} is told the {' and '.join(truths)} of each run (the exact one, or what the environment assumes)"
        for name, truths in told.items()
        if truths
    ]
    has_theta = any(environment.kind == "simulated" for environment in experiment.environments)
    told_S = [policy.name for policy in experiment.policies if has_theta and policy.has_optional_S]
    way = 'settings = { S = "none" } lets it'
    lines += [f"{name} is told S, although it could learn the scale ({way})" for name in told_S]
    document = {"file": file, "environments": environments, "told": told, "told_S": told_S, "cells": cells}
    return Answer(document, lines)


def schema() -> Answer:
    """Print the JSON schema of spec files, which editors use for completion and checking.

    Put the line "#:schema spec.schema.json" at the top of the spec.

    Example:
      windvane spec schema > spec.schema.json
    """
    from windvane.lab.spec.schema import build_schema

    document = build_schema()
    return Answer(document, [json.dumps(document, indent=2)])


spec = Group(
    """Check a spec file, or print the schema of spec files.

Examples:
  windvane spec check spec.toml
  windvane spec schema > spec.schema.json
""",
    {"check": check, "schema": schema},
)
