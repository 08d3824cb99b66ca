"""The command ``policies``, which lists all policies."""

from __future__ import annotations

from windvane.cli.console import ProgressBar, explain, number, print_json, print_table
from windvane.cli.options import AsJson


def policies(as_json: AsJson = False) -> None:
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
    if as_json:
        rows = [{"name": e.name, **e.card._asdict(), "us_alone": e.alone, "us_together": e.together} for e in entries]
        print_json({"lanes": catalogue.LANES, "rounds": catalogue.ROUNDS, "policies": rows})
        return
    fields = tuple(field for field in COLUMNS if field != "cost")  # measured instead
    columns = ["policy", *(COLUMNS[field] for field in fields), "µs, 1 lane", "µs, 50 lanes"]
    lines = [[e.name, *card_row(e.card, fields), number(e.alone), number(e.together, 2)] for e in entries]
    print_table(columns, lines, left=1 + len(fields))
    explain(
        f"needs: beyond S, L, σ and the link. µs: of a decision and its update, per lane, in up to "
        f"{catalogue.ROUNDS} rounds of the paper's experiment (d = 2, 10 arms), one lane alone or fifty together."
    )
