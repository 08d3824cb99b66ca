"""Commands about windvane on this machine: doctor, compile, policies."""

from __future__ import annotations

from textwrap import shorten, wrap
from typing import TYPE_CHECKING, Annotated

import typer

from windvane.cli import FAILED, InputError
from windvane.cli.console import Answer, Blocks, Note, ProgressBar, Table, count, number
from windvane.cli.options import complete_policies, complete_policy, split_names

if TYPE_CHECKING:
    from windvane.cli.health import Health

WIDTH = 79  # of what doctor says
MOST_MISSING = 24  # characters of the names of packages that an extra lacks, so that a line fits into that


def doctor(
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also show the version of every package, and what each check computes.")
    ] = False,
) -> Answer:
    """Check this installation: versions, extras, the compile cache, and a self-test against plain NumPy.

    The first run on a machine compiles all policies, which takes about a minute. A missing extra is not a fault. The
    exit code is 1 if a check fails.

    Examples:
      windvane doctor
      windvane doctor --verbose   # for a report of a bug
    """
    from windvane.cli.health import examine

    with ProgressBar("compiling", "policies") as report:
        health = examine(report)
    extras = [{**e._asdict(), "missing": e.missing, "install": e.command or None} for e in health.extras]
    document = {"healthy": health.is_healthy, "facts": health.facts, "extras": extras, "checks": health.checks}
    return Answer(document, _describe_health(health, verbose), 0 if health.is_healthy else FAILED)


def _describe_health(health: Health, verbose: bool) -> Blocks:
    facts = [f"{name:15}{value}" for name, value in health.facts.items()]  # a path is not broken
    complete = [extra.name or "(core)" for extra in health.extras if not extra.missing]
    lacking = [
        [extra.name or "(core)", shorten(", ".join(extra.missing), MOST_MISSING, placeholder=" ..."), extra.command]
        for extra in health.extras
        if extra.missing
    ]
    extras: list[str | Table] = [*wrap(f"extras installed: {', '.join(complete) or 'none'}", WIDTH)]
    if lacking:
        extras += ["", Table(["not installed", "missing", "to install it"], lacking, left=3)]
    if not health.extras:
        extras = ["extras: unknown, because windvane has no metadata here (it was not installed by pip)"]
    if verbose:
        versions = {name: version for extra in health.extras for name, version in extra.packages.items() if version}
        extras += ["", *(f"{name} {version}" for name, version in sorted(versions.items()))]
    checks = [
        f"{'ok    ' if check.is_ok else 'FAILED'}  {check.name}"
        + (f" ({check.detail})" if verbose or not check.is_ok else "")
        for check in health.checks
    ]
    verdict = "\nall is well" if health.is_healthy else "\nsomething is wrong: see above"
    return [*facts, "", *extras, "", *checks, verdict]


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


def policies(
    cite: Annotated[
        str | None,
        typer.Option(
            help="Instead print the BibTeX entries of these policies, separated by commas: OFUL,BVD-GLM-UCB",
            autocompletion=complete_policies,
        ),
    ] = None,
) -> Answer:
    """List all policies: what they assume, need and guarantee, and how long a round of each takes on this machine.

    With --cite, print what to cite for policies instead, in BibTeX. Policies that come from no paper are cited by
    windvane itself.

    Examples:
      windvane policies
      windvane policies --cite BVD-GLM-UCB
      windvane policies --cite OFUL,D-LinUCB,AdaptiveGLMUCB > references.bib
    """
    if cite is not None:
        return _cite(split_names(cite) or [])
    from windvane.bibliography import label_references
    from windvane.lab.studies import catalogue
    from windvane.lab.studies.catalogue import COLUMNS, card_row
    from windvane.warmup import warm_up

    with ProgressBar("compiling", "policies") as report:
        warm_up(report=report)
    with ProgressBar("measuring", "rounds") as report:
        report(0, catalogue.count_measured_rounds())
        entries = list(catalogue.measure_policies(report))
    rows = [
        {
            "name": entry.name,
            **entry.card._asdict(),
            "cited_as": label_references(entry.card.reference),
            "us_alone": entry.alone,
            "us_together": entry.together,
        }
        for entry in entries
    ]
    document = {"lanes": catalogue.LANES, "rounds": catalogue.ROUNDS, "policies": rows}
    fields = tuple(field for field in COLUMNS if field != "cost")  # measured instead
    columns = ["policy", *(COLUMNS[field] for field in fields), "µs, 1 lane", "µs, 50 lanes"]
    lines = [[e.name, *card_row(e.card, fields), number(e.alone), number(e.together, 2)] for e in entries]
    note = (
        f"needs: beyond S, L, σ and the link. µs: of a decision and its update, per lane, in up to "
        f"{catalogue.ROUNDS} rounds of the paper's experiment (d = 2, 10 arms), one lane alone or fifty together. "
        "Policies with a mean per arm know arms by their index, and have the same ten arms in all rounds."
    )
    return Answer(document, [Table(columns, lines, left=1 + len(fields)), Note(note)])


def _cite(names: list[str]) -> Answer:
    """Return the BibTeX entries of these policies, each entry once."""
    from windvane.bibliography import NONE, OWN, find_references
    from windvane.policies.registry import get_policy

    cited: dict[str, list[str]] = {}
    entries = {}
    for name in dict.fromkeys(names):
        keys = get_policy(name).card.reference
        for reference in find_references(OWN if keys == NONE else keys):
            entries[reference.key] = reference
            cited.setdefault(reference.key, []).append(name)
    document = [
        {
            "key": key,
            "label": entry.label,
            "policies": cited[key],
            "type": entry.kind,
            "fields": {name: entry.read(name) for name in entry.fields},
            "text": entry.text,
            "bibtex": entry.bibtex,
        }
        for key, entry in entries.items()
    ]
    return Answer(document, ["\n\n".join(entry.bibtex for entry in entries.values())])
