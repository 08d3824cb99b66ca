"""Commands to get started: compile, new, doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from windvane.cli import FAILED
from windvane.cli.console import Bar, InputError, output, print_json, remark, table
from windvane.cli.options import AsJson


def compile_kernels(
    policies: Annotated[list[str] | None, typer.Argument(help="Names of policies (default: all).")] = None,
    as_json: AsJson = False,
) -> None:
    """Compile the kernels of policies into the cache in advance, for example for a container image.

    The cache is in $WINDVANE_CACHE_DIR, else in $XDG_CACHE_HOME/windvane, else in ~/.cache/windvane. It is used by the
    same versions of windvane, Python, NumPy and numba on the same kind of processor.

    \b
    Examples:
      windvane compile
      windvane compile AdaptiveGLMUCB OnePassGLM
    """
    from windvane.kernels.cache import CACHE_DIR, CACHE_ERROR, host_processor
    from windvane.policies.registry import POLICIES, get_policy
    from windvane.warmup import warm_up

    names = list(dict.fromkeys(policies or POLICIES))
    for name in names:
        get_policy(name)  # raises before anything is compiled
    if CACHE_ERROR is not None:
        raise InputError(f"{CACHE_DIR}: cannot be written ({CACHE_ERROR}); set WINDVANE_CACHE_DIR to another folder")
    bar = Bar("compiling", "policies")

    def report(done: int, total: int) -> None:
        if done:
            bar.show(done)
        else:
            bar.begin(total, 0)

    try:
        seconds = warm_up(names, report=report)
    finally:
        bar.end()
    size = sum(path.stat().st_size for path in CACHE_DIR.glob("**/*") if path.is_file())
    if as_json:
        found = {"folder": str(CACHE_DIR), "processor": host_processor(), "bytes": size}
        print_json({"policies": names, "seconds": seconds, **found})
        return
    count = f"{len(names)} polic{'y' if len(names) == 1 else 'ies'}"
    text = f"{count} compiled for {host_processor()} in {seconds:.1f} s; the cache is {CACHE_DIR} ({size / 1e6:.1f} MB)"
    output().print(text, markup=False, highlight=False, soft_wrap=True)


def new(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("spec.toml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a commented example of an experiment, ready to be run and changed.

    \b
    Example:
      windvane new spec.toml
      windvane simulate spec.toml
    """
    from windvane.lab.spec.example import write_example

    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(write_example())
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
    """Show versions, cores and the compile cache, and run a self-test that compares the kernels with plain NumPy.

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
