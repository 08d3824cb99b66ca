"""Commands for the installation: doctor, compile."""

from __future__ import annotations

from typing import Annotated

import typer

from windvane.cli import FAILED, InputError
from windvane.cli.console import ProgressBar, count, print_json, print_table, say
from windvane.cli.options import AsJson, complete_policy


def doctor(as_json: AsJson = False) -> None:
    """Show versions, extras and the compile cache, and run a self-test that compares the kernels with plain NumPy.

    A missing extra is not a fault. The exit code is 1 if a check fails.

    Example:
      windvane doctor
    """
    from windvane.cli.health import examine

    with ProgressBar("compiling", "policies") as report:
        health = examine(report)
    if as_json:
        extras = [{**e._asdict(), "missing": e.missing, "install": e.command or None} for e in health.extras]
        checks = [check._asdict() for check in health.checks]
        print_json({"healthy": health.is_healthy, "facts": health.facts, "extras": extras, "checks": checks})
    else:
        print_table(["what", "value"], [[name, str(value)] for name, value in health.facts.items()], left=2)
        say()
        rows = []
        for extra in health.extras:
            packages = [f"{name} {version}" for name, version in extra.packages.items() if version is not None]
            missing = [f"missing: {', '.join(extra.missing)}"] if extra.missing else []
            rows.append([extra.name or "(core)", "; ".join([", ".join(packages), *missing]), extra.command])
        print_table(["extra", "packages", "to install what is missing"], rows, left=3)
        if not rows:
            say("extras: unknown, because windvane has no metadata here (it was not installed by pip)")
        say()
        for check in health.checks:
            say(f"{'ok    ' if check.is_ok else 'FAILED'}  {check.name}: {check.detail}")
        say("\nall is well" if health.is_healthy else "\nsomething is wrong: see above")
    if not health.is_healthy:
        raise typer.Exit(FAILED)


def compile_kernels(
    policies: Annotated[
        list[str] | None, typer.Argument(help="Names of policies (default: all).", autocompletion=complete_policy)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile the kernels of policies into the cache in advance, for example for a container image.

    The cache is in $WINDVANE_CACHE_DIR, else in $XDG_CACHE_HOME/windvane, else in ~/.cache/windvane. It is used by the
    same versions of windvane, Python, NumPy and numba on the same kind of processor.

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
    with ProgressBar("compiling", "policies") as report:
        seconds = warm_up(names, report=report)
    size = sum(path.stat().st_size for path in CACHE_DIR.glob("**/*") if path.is_file())
    if as_json:
        cache = {"folder": str(CACHE_DIR), "processor": host_processor(), "bytes": size}
        print_json({"policies": names, "seconds": seconds, **cache})
        return
    done = f"{count(len(names), 'policy', 'policies')} compiled for {host_processor()} in {seconds:.1f} s"
    say(f"{done}; the cache is {CACHE_DIR} ({size / 1e6:.1f} MB)")
