"""Commands about windvane on this machine: doctor, compile, policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from windvane.cli import FAILED, InputError
from windvane.cli.console import Answer, Blocks, Note, ProgressBar, Table, count, number
from windvane.cli.options import complete_policy

if TYPE_CHECKING:
    from windvane.cli.health import Extra, Health


def doctor() -> Answer:
    """Show versions, extras and the compile cache, and run a self-test that compares the kernels with plain NumPy.

    A missing extra is not a fault. The exit code is 1 if a check fails.

    Example:
      windvane doctor
    """
    from windvane.cli.health import examine

    with ProgressBar("compiling", "policies") as report:
        health = examine(report)
    extras = [{**e._asdict(), "missing": e.missing, "install": e.command or None} for e in health.extras]
    document = {"healthy": health.is_healthy, "facts": health.facts, "extras": extras, "checks": health.checks}
    return Answer(document, _describe_health(health), 0 if health.is_healthy else FAILED)


def _describe_health(health: Health) -> Blocks:
    facts = Table(["what", "value"], [[name, str(value)] for name, value in health.facts.items()], left=2)
    rows = [[extra.name or "(core)", _list_packages(extra), extra.command] for extra in health.extras]
    extras = Table(["extra", "packages", "to install what is missing"], rows, left=3)
    unknown = ["extras: unknown, because windvane has no metadata here (it was not installed by pip)"]
    checks = [f"{'ok    ' if check.is_ok else 'FAILED'}  {check.name}: {check.detail}" for check in health.checks]
    verdict = "\nall is well" if health.is_healthy else "\nsomething is wrong: see above"
    return [facts, "", extras, *([] if rows else unknown), "", *checks, verdict]


def _list_packages(extra: Extra) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in extra.packages.items() if version is not None)
    return f"{packages}; missing: {', '.join(extra.missing)}" if extra.missing else packages


def compile_kernels(
    policies: Annotated[
        list[str] | None, typer.Argument(help="Names of policies (default: all).", autocompletion=complete_policy)
    ] = None,
) -> Answer:
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
    done = f"{count(len(names), 'policy', 'policies')} compiled for {host_processor()} in {seconds:.1f} s"
    return Answer(
        {"policies": names, "seconds": seconds, "folder": CACHE_DIR, "processor": host_processor(), "bytes": size},
        [f"{done}; the cache is {CACHE_DIR} ({size / 1e6:.1f} MB)"],
    )


def policies() -> Answer:
    """List all policies: what they assume, need and guarantee, and how long a round of each takes on this machine.

    Example:
      windvane policies
    """
    from windvane.lab.studies import catalogue
    from windvane.lab.studies.catalogue import COLUMNS, card_row
    from windvane.warmup import warm_up

    with ProgressBar("compiling", "policies") as report:
        warm_up(report=report)
    with ProgressBar("measuring", "rounds") as report:
        report(0, catalogue.count_measured_rounds())
        entries = list(catalogue.measure_policies(report))
    rows = [{"name": e.name, **e.card._asdict(), "us_alone": e.alone, "us_together": e.together} for e in entries]
    document = {"lanes": catalogue.LANES, "rounds": catalogue.ROUNDS, "policies": rows}
    fields = tuple(field for field in COLUMNS if field != "cost")  # measured instead
    columns = ["policy", *(COLUMNS[field] for field in fields), "µs, 1 lane", "µs, 50 lanes"]
    lines = [[e.name, *card_row(e.card, fields), number(e.alone), number(e.together, 2)] for e in entries]
    note = (
        f"needs: beyond S, L, σ and the link. µs: of a decision and its update, per lane, in up to "
        f"{catalogue.ROUNDS} rounds of the paper's experiment (d = 2, 10 arms), one lane alone or fifty together."
    )
    return Answer(document, [Table(columns, lines, left=1 + len(fields)), Note(note)])
