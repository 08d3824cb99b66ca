"""One self-contained page about an experiment: charts to explore, tables, how to read them, and how it was run.

The page needs no network: plotly.js is inside it, and its content security policy allows its own two scripts, by their
hashes, and nothing else. So text from a spec cannot run, even if it got past the escaping.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np

from windvane._files import write_atomically
from windvane.lab.figures import curves, plotly_renderer
from windvane.lab.figures.curves import MEAN_REWARD, REGRET, Measure, PublishedCurves
from windvane.lab.figures.diagnostics_figure import diagnostics_figure
from windvane.lab.figures.difference_figure import difference_figure
from windvane.lab.figures.over_time_figure import over_time_figure
from windvane.lab.figures.projection_figure import projection_figure
from windvane.lab.figures.style import entry_names, tidy
from windvane.lab.report import report_tables
from windvane.lab.report.report_tables import Listing
from windvane.lab.results.summary import row_of, told_text

if TYPE_CHECKING:
    from windvane.lab.results.results import Entry, Results
    from windvane.lab.results.summary import Difference

Turning = tuple[float, float] | Mapping[str, tuple[float, float]]
NAMED = 5  # curves that the text alternative of a chart names
LEADERS = 4  # environments whose best policy the first lines name
TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("windvane.lab.report", "page"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.globals |= {"count": report_tables.count_text, "sort_key": report_tables.sort_key}
TEMPLATES.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}


def write_report(
    results: Results,
    target: Path | str,
    *,
    heading: str,
    notes: Mapping[str, Sequence[str]] | None = None,
    published: PublishedCurves | None = None,
    turning: Turning | None = None,
    comparison_rows: Sequence[Difference] | None = None,
    listings: Sequence[Listing] = (),
    labelled: bool = False,
) -> Path:
    """Write the page to ``target``, in one step.

    ``notes``: what a reader should know, lines by heading. ``published``: curves to compare with, drawn in every
    environment. ``turning``: first and last round of the drift, for all environments or by name.
    ``comparison_rows``: paired differences to show. ``listings``: more tables, which come first. ``labelled``: all
    environments are labelled data streams; the page is about how often policies are right, and listings are its tables.
    """
    target, entries = Path(target), results.entries
    environments = curves.by_environment(entries)
    measure = MEAN_REWARD if labelled else REGRET
    charts: dict[str, Any] = {}
    scripts = [_plotly(), _read("report.js")]
    page = TEMPLATES.get_template("report.html").render(
        security_policy=_security_policy(scripts),
        style=_read("report.css"),
        scripts=scripts,
        heading=tidy(heading, 200),
        results=results,
        labels={entry.label for entry in entries},
        runs=max((len(entry.lanes) for entry in entries), default=0),
        leaders=_leaders(environments, measure) if labelled or len(environments) <= LEADERS else [],
        labelled=labelled,
        listings=listings,
        measure=measure,
        curves=_over_time(environments, measure, published, turning, charts),
        tables=[] if labelled else [report_tables.results_table(*group, published) for group in environments.items()],
        notes=notes or {},
        differences=_differences(comparison_rows, charts),
        projection=_projection([entry for entry in entries if entry.path is not None], charts),
        diagnostics=_diagnostics([entry for entry in entries if entry.diagnostics], charts),
        facts=_facts(results),
        charts=charts,
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, page.encode())
    return target


def _read(name: str) -> str:
    return resources.files("windvane.lab.report").joinpath("page", name).read_text(encoding="utf-8")


def _plotly() -> str:
    """plotly.js, so that no part of it ends the script element, and as a browser's parser would leave it."""
    from plotly.offline import get_plotlyjs

    code: str = get_plotlyjs()
    return code.replace("\r\n", "\n").replace("\r", "\n").replace("</script", r"<\/script")


def _security_policy(scripts: Sequence[str]) -> str:
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"


# --- sections ------------------------------------------------------------------------------------------------------


def _leaders(environments: Mapping[str, Sequence[Entry]], measure: Measure) -> list[tuple[str, int, str, str]]:
    """Environment, horizon, best policy and its value, where there is more than one policy to choose from."""
    leaders = []
    for name, entries in environments.items():
        rows = [(row_of(entry), entry) for entry in entries if np.isfinite(entry.final.mean())]
        if len(rows) > 1:
            row, best = min(rows, key=lambda pair: pair[0].mean)
            share = report_tables.share_text(float(curves.mean_reward(best).mean[-1]))
            value = report_tables.with_error(row.mean, row.se) if measure is REGRET else share
            leaders.append((name, best.horizon, best.label, value))
    return leaders


def _over_time(
    environments: Mapping[str, Sequence[Entry]],
    measure: Measure,
    published: PublishedCurves | None,
    turning: Turning | None,
    charts: dict[str, Any],
) -> list[dict[str, Any]]:
    """What the template needs for each environment's curves; the charts themselves go to ``charts``."""
    result = []
    for i, (name, entries) in enumerate(environments.items()):
        period = turning.get(name) if isinstance(turning, Mapping) else turning
        figure = over_time_figure(entries, measure, turning=period, published=published)
        key = f"{measure.name.replace(' ', '-')}-{i}"
        (charts[key],) = plotly_renderer.render(figure)
        is_dashed = bool(figure.panels[0].marks_with("published"))
        runs = max(len(entry.lanes) for entry in entries)
        spoken = _speak(entries, measure)
        result.append({"key": key, "name": name, "runs": runs, "spoken": spoken, "shaded": period, "dashed": is_dashed})
    return result


def _speak(entries: Sequence[Entry], measure: Measure) -> str:
    """The chart in words, for those who cannot see it: the best policies first."""
    best_first = sorted(entries, key=lambda entry: float(entry.final.mean()))
    values = [(entry.label, float(measure.curve(entry).mean[-1])) for entry in best_first[:NAMED]]
    ends = [f"{label} ends at {value:{measure.form}}" for label, value in values if math.isfinite(value)]
    more = [f"and {len(entries) - NAMED:,} more"] * (len(entries) > NAMED)
    what = "mean cumulative regret" if measure is REGRET else measure.name
    return f"Line chart of {what} over {entries[0].horizon:,} rounds: {', '.join([*ends, *more])}."


def _differences(rows: Sequence[Difference] | None, charts: dict[str, Any]) -> Listing | None:
    if not rows:
        return None
    (charts["differences"],) = plotly_renderer.render(difference_figure(rows))
    layout = charts["differences"]["layout"]
    layout["height"] = 120 + 34 * len(rows)
    layout["xaxis"]["title"]["text"] = "Left of 0 is better"  # the caption says the rest, on narrow screens too
    return report_tables.differences_table(rows)


def _projection(entries: Sequence[Entry], charts: dict[str, Any]) -> list[tuple[str, bool]]:
    """The policies to choose from, and whether each is the one shown first: the last that projects."""
    paths = [entry.path for entry in entries if entry.path is not None]
    charts["projection"] = {"options": [plotly_renderer.render(projection_figure(path)) for path in paths]}
    projecting = [i for i, path in enumerate(paths) if not np.isnan(path.theta_tilde).all()]
    first = projecting[-1] if projecting else 0
    return [(name, i == first) for i, name in enumerate(entry_names(entries))]


def _diagnostics(entries: Sequence[Entry], charts: dict[str, Any]) -> list[tuple[str, bool]]:
    """The policies to choose from, and whether each is the one shown first: the last."""
    charts["diagnostics"] = {"options": [plotly_renderer.render(diagnostics_figure(entry)) for entry in entries]}
    return [(name, i == len(entries) - 1) for i, name in enumerate(entry_names(entries))]


def _facts(results: Results) -> dict[str, Any]:
    manifest = results.manifest
    told = {entry.label: told_text(entry.told) for entry in results.entries if entry.told}
    facts = {
        "Experiment": manifest.get("title"),
        "Runs": manifest.get("runs"),
        "Rounds": manifest.get("horizon"),
        "Seed": manifest.get("seed"),
        "Begun": manifest.get("begun"),
        "Finished parts": f"{results.finished:,} of {results.total:,}",
        "Told the exact drift": "; ".join(f"{label} ({truths})" for label, truths in told.items()),
        "Versions": ", ".join(f"{name} {version}" for name, version in manifest.get("versions", {}).items()),
        "Fingerprint of the spec": manifest.get("fingerprint"),
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}
