"""One self-contained page about an experiment: charts to explore, tables, how to read them, and how it was run.

The page needs no network: plotly.js is inside it, and its content security policy allows its own two scripts, by their
hashes, and nothing else. So text from a spec cannot run, even if it got past the escaping. Its texts and tables are in
the templates in ``page/``; this module gives them the results and the charts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from windvane._files import write_atomically
from windvane.lab.figures.comparison_figures import difference_figure
from windvane.lab.figures.diagnostics_figure import diagnostics_figure
from windvane.lab.figures.over_time_figure import (
    BANDS,
    DEFAULT_BANDS,
    MEAN_REWARD,
    REGRET,
    Measure,
    PublishedCurves,
    over_time_figure,
    published_final,
)
from windvane.lab.figures.plotly_renderer import Chart, render
from windvane.lab.figures.projection_figure import projection_figure
from windvane.lab.figures.style import entry_names, tidy
from windvane.lab.report.assets import load_templates, page_scripts, read_asset, security_policy
from windvane.lab.results.folder import name_unwritable
from windvane.lab.results.results import group_by_environment
from windvane.lab.results.summary import format_told, summarise_entry
from windvane.lab.studies.streams_benchmark import recent_accuracy

if TYPE_CHECKING:
    from windvane.lab.results.leaderboard import LeaderboardRow
    from windvane.lab.results.results import Entry, Results
    from windvane.lab.results.summary import Difference

UNKNOWN = "–"


def write_report(
    results: Results,
    target: Path | str,
    *,
    heading: str,
    notes: Mapping[str, Sequence[str]] | None = None,
    published: PublishedCurves | None = None,
    turning: tuple[float, float] | None = None,
    differences: Sequence[Difference] = (),
    standings: Sequence[LeaderboardRow] = (),
    confidence: float = 0.95,
    labelled: bool = False,
    bands: str = DEFAULT_BANDS,
) -> Path:
    """Write the page to ``target``, in one step.

    ``notes``: what a reader should know, lines by heading. ``published``: curves to compare with, by environment
    and policy. ``turning``: first and last round of the drift. ``differences``: paired differences to show.
    ``standings``: a leaderboard, which comes first, with intervals at this ``confidence``. ``labelled``: all
    environments are labelled data streams, and the page is about how often policies are right. ``bands``: what bands
    about means show, one of :data:`~windvane.lab.figures.over_time_figure.BANDS`.
    """
    target, entries = Path(target), results.entries
    measure = MEAN_REWARD if labelled else REGRET
    environments, charts = _describe_environments(entries, measure, turning, published, bands)
    if differences:
        charts["differences"] = _draw_differences(differences)
    with_path = [entry for entry in entries if entry.path is not None]
    paths = [entry.path for entry in with_path if entry.path is not None]
    projecting = [i for i, path in enumerate(paths) if not np.isnan(path.theta_tilde).all()]
    checked = [entry for entry in entries if entry.diagnostics]
    charts["projection"] = {"options": [render(projection_figure(path)) for path in paths]}
    charts["diagnostics"] = {"options": [render(diagnostics_figure(entry)) for entry in checked]}
    scripts = page_scripts()
    page = TEMPLATES.get_template("report.html").render(
        security_policy=security_policy(scripts),
        style=read_asset("report.css"),
        scripts=scripts,
        heading=tidy(heading, 200),
        results=results,
        measure=measure,
        bands=BANDS[bands],
        environments=environments,
        labelled=labelled,
        standings=standings,
        confidence=confidence,
        turning=turning,
        notes=notes or {},
        differences=differences,
        projection=entry_names(with_path),
        shown_projection=max(projecting, default=0),
        diagnostics=entry_names(checked),
        charts=charts,
    )
    with name_unwritable(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, page.encode())
    return target


def _describe_environments(
    entries: Sequence[Entry],
    measure: Measure,
    turning: tuple[float, float] | None,
    published: PublishedCurves | None,
    bands: str,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return what the template is told about each environment, and the chart of each by its key."""
    environments, charts = [], {}
    for i, (name, group) in enumerate(group_by_environment(entries).items()):
        key = f"{measure.name.replace(' ', '-')}-{i}"
        (charts[key],) = render(over_time_figure(group, measure, turning=turning, published=published, bands=bands))
        is_labelled = measure is MEAN_REWARD
        recent = [float(recent_accuracy(entry).mean()) if is_labelled else math.nan for entry in group]
        finals = [published_final(entry, published) for entry in group]
        rows = list(zip(map(summarise_entry, group), recent, finals, strict=True))
        environments.append({"key": key, "name": name, "horizon": group[0].horizon, "rows": rows})
    return environments, charts


def _draw_differences(differences: Sequence[Difference]) -> Chart:
    """Return the chart of paired differences, with a row of fixed height for each."""
    (chart,) = render(difference_figure(differences))
    chart["layout"]["height"] = 120 + 34 * len(differences)
    # The caption says the rest, on narrow screens too.
    chart["layout"]["xaxis"]["title"]["text"] = "Left of 0 is better"
    return chart


# --- how the page writes numbers, and its templates --------------------------------------------------------------


def amount_text(value: float) -> str:
    """Four digits, at most three of them decimals."""
    if not math.isfinite(value):
        return UNKNOWN
    size = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{min(max(3 - size, 0), 3)}f}"


def with_error(value: float, error: float) -> str:
    """As many digits as the error supports: two of its own."""
    if not (math.isfinite(value) and math.isfinite(error) and error > 0):
        return amount_text(value)
    digits = min(max(1 - math.floor(math.log10(error)), 0), 4)
    return f"{value:,.{digits}f} ± {error:,.{digits}f}"


def share_text(value: float) -> str:
    """Return a share as a percentage."""
    if not math.isfinite(value):
        return UNKNOWN
    text = f"{100 * value:.1f} %" if value == 0 or value >= 0.0005 else "< 0.1 %"
    return text.replace(" ", "\N{NO-BREAK SPACE}")


TEMPLATES = load_templates("windvane.lab.report")
TEMPLATES.globals |= {
    function.__name__: function for function in (format, format_told, amount_text, with_error, share_text)
}
TEMPLATES.globals["nan"] = math.nan
