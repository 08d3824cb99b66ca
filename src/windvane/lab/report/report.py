"""One self-contained page about an experiment: charts to explore, tables, how to read them, and how it was run.

The page needs no network: plotly.js is inside it, and its content security policy allows its own two scripts, by their
hashes, and nothing else. So text from a spec cannot run, even if it got past the escaping.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from windvane._files import write_atomically
from windvane.lab.figures import charts, curves
from windvane.lab.figures.curves import PublishedCurves
from windvane.lab.results.summary import Row, row_of

if TYPE_CHECKING:
    from windvane.lab.results.results import Entry, Results
    from windvane.lab.results.summary import Difference


class Listing(NamedTuple):
    """A table of one's own for the page: a name and then numbers with their texts in every row."""

    title: str
    caption: str
    heads: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[float, str]]]]


Turning = tuple[float, float] | Mapping[str, tuple[float, float]]
UNKNOWN = "&ndash;"
_NAMED = 5  # curves that the text alternative of a chart names
_TOLD = 4  # environments whose best policy the first lines name


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
    target = Path(target)
    environments = curves.by_environment(results.entries)
    drawn: dict[str, Any] = {}
    sections = [
        *(_listing(i, listing) for i, listing in enumerate(listings)),
        _over_time(environments, curves.MEAN_REWARD if labelled else curves.REGRET, drawn, published, turning),
        "" if labelled else _tables(environments, published),
        *(_note(i, title, lines) for i, (title, lines) in enumerate((notes or {}).items())),
        _differences(comparison_rows, drawn),
        _projection(results.entries, drawn),
        _diagnostics(results.entries, drawn),
        _file("how_to_read_labelled.html" if labelled else "how_to_read.html"),
        _facts(results),
    ]
    script, plotly = _file("report.js"), _plotly()
    page = Template(_file("report.html")).substitute(
        policy=_policy(script, plotly),
        heading=html.escape(curves.tidy(heading, 200)),
        style=_file("report.css"),
        warning=_warning(results),
        lede=_labelled_lede(results) if labelled else _lede(results),
        sections="\n".join(filter(None, sections)),
        charts=_embedded(drawn),
        plotly=plotly,
        script=script,
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, page.encode())
    return target


# --- pieces of the page --------------------------------------------------------------------------------------------


def _file(name: str) -> str:
    return resources.files("windvane.lab.report").joinpath("page", name).read_text(encoding="utf-8")


def _plotly() -> str:
    """plotly.js, so that no part of it ends the script element, and as a browser's parser would leave it."""
    from plotly.offline import get_plotlyjs

    code: str = get_plotlyjs()
    return code.replace("\r\n", "\n").replace("\r", "\n").replace("</script", r"<\/script")


def _policy(*scripts: str) -> str:
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"


def _embedded(value: Any) -> str:
    """JSON that cannot end its script element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def _section(key: str, title: str, *parts: str) -> str:
    return "\n".join([f'<section aria-labelledby="{key}">', f'<h2 id="{key}">{title}</h2>', *parts, "</section>"])


def _warning(results: Results) -> str:
    if results.complete:
        return ""
    said = f"Incomplete: {results.finished:,} of {results.total:,} parts of this experiment are finished."
    return f'<p class="warning" role="status"><strong>{said}</strong> What follows covers those only.</p>'


def _lede(results: Results) -> str:
    if not results.entries:
        return "Nothing is finished yet."
    said = [
        "In every round a policy chooses one of several options and learns from that one&rsquo;s reward alone, while "
        "what is best may change under its feet. This page shows how much reward "
        f"{_count(len({entry.label for entry in results.entries}), 'policy', 'policies')} lost against always "
        "choosing the best option (the <em>regret</em>; lower is better), in "
        f"{_count(max(len(entry.lanes) for entry in results.entries), 'run', 'runs')} of "
        f"{_count(results.entries[0].horizon, 'round', 'rounds')}."
    ]
    groups = curves.by_environment(results.entries)
    for name, entries in groups.items() if len(groups) <= _TOLD else ():
        rows = [row for row in map(row_of, entries) if math.isfinite(row.mean)]
        if len(rows) > 1:
            best = min(rows, key=lambda row: row.mean)
            where = f" in {html.escape(name)}" if len(groups) > 1 else ""
            said.append(f"Least regret{where}: {html.escape(best.label)}, {_with_error(best.mean, best.se)}.")
    return " ".join(said)


def _labelled_lede(results: Results) -> str:
    labels = {entry.label for entry in results.entries}
    groups = curves.by_environment(results.entries)
    said = [
        "In every round a policy sees the fields of a row, chooses one of the classes, and is told only whether that "
        f"was right. This page shows how often {_count(len(labels), 'policy was', 'policies were')} right on "
        f"{_count(len(groups), 'labelled data stream', 'labelled data streams')}; higher is better."
    ]
    for name, entries in groups.items():
        best = min(entries, key=lambda entry: float(entry.final.mean()))
        said.append(
            f"Most often right on {html.escape(name)} ({_count(best.horizon, 'row', 'rows')}): "
            f"{html.escape(best.label)}, {_share(float(curves.mean_reward(best).mean[-1]))}."
        )
    return " ".join(said)


def _over_time(
    environments: Mapping[str, list[Entry]],
    measure: curves.Measure,
    drawn: dict[str, Any],
    published: PublishedCurves | None,
    turning: Turning | None,
) -> str:
    if not environments:
        return ""
    parts = []
    for i, (name, entries) in enumerate(environments.items()):
        period = turning.get(name) if isinstance(turning, Mapping) else turning
        key = f"{measure.name.replace(' ', '-')}-{i}"
        drawn[key] = charts.over_time(entries, measure, period, published)
        value_axis = _axis_buttons("yaxis", "Regret") if measure is curves.REGRET else ""  # a share needs no log axis
        heading = f"<h3>{html.escape(name)}</h3>" if len(environments) > 1 else ""
        dashed = any(curves.published_for(entry, published) is not None for entry in entries)
        caption = _over_time_caption(entries, period is not None, dashed)
        parts.append(
            f'{heading}<figure data-chart="{key}"><div class="tools">{_axis_buttons("xaxis", "Rounds")}'
            f"{value_axis}"
            '<label><input type="checkbox" class="bands"> bands (&plusmn; 1 sd)</label>'
            '<span><button type="button" data-show="all">show all</button>'
            '<button type="button" data-show="none">hide all</button></span></div>'
            f'<div class="chart" role="img" aria-label="{html.escape(_spoken(entries, measure))}"></div>'
            '<div class="legend" role="group" aria-label="Curves shown" tabindex="0"></div>'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    return _section("results", measure.title, *parts)


def _axis_buttons(axis: str, name: str) -> str:
    buttons = "".join(
        f'<button type="button" data-axis="{axis}" data-type="{kind}" aria-pressed="{pressed}" '
        f'aria-label="{name}: {text}">{text}</button>'
        for kind, text, pressed in (("linear", "linear", "true"), ("log", "log", "false"))
    )
    return f"<span>{name}: {buttons}</span>"


def _over_time_caption(entries: Sequence[Entry], shaded: bool, dashed: bool) -> str:
    runs = max(len(entry.lanes) for entry in entries)
    said = [f"Mean over {runs:,} runs; bands reach one standard deviation to either side." if runs > 1 else "One run."]
    said += ["Shaded: the period in which the world changes."] * shaded
    said += ["Dashed: the published curve."] * dashed
    return " ".join(said)


def _spoken(entries: Sequence[Entry], measure: curves.Measure) -> str:
    """The chart in words, for those who cannot see it: the best policies first."""
    best_first = sorted(entries, key=lambda entry: float(entry.final.mean()))
    values = [(entry.label, float(measure.curve(entry).mean[-1])) for entry in best_first[:_NAMED]]
    ends = [f"{label} ends at {value:,.{measure.digits}f}" for label, value in values if math.isfinite(value)]
    more = [f"and {len(entries) - _NAMED:,} more"] * (len(entries) > _NAMED)
    what = "mean cumulative regret" if measure is curves.REGRET else measure.name
    return f"Line chart of {what} over {entries[0].horizon:,} rounds: {', '.join([*ends, *more])}."


# --- tables --------------------------------------------------------------------------------------------------------


def _tables(environments: Mapping[str, list[Entry]], published: PublishedCurves | None) -> str:
    if not environments:
        return ""
    parts = []
    for name, entries in environments.items():
        known = [curves.published_final(entry, published) for entry in entries]
        with_known = not all(map(math.isnan, known))
        heads = [
            "Policy",
            "Final regret (mean &plusmn; SE)",
            "sd",
            "&micro;s a round",
            "&theta;&#770; outside &Theta;",
            "Projection stages",
            *["Published"] * with_known,
        ]
        rows = [_row(row_of(entry), value, with_known) for entry, value in zip(entries, known, strict=True)]
        caption = f"After {entries[0].horizon:,} rounds in {html.escape(name)}. Click a heading to sort."
        parts.append(_table(heads, rows, caption, name))
    return _section("table", "Results", *parts)


def _table(heads: Sequence[str], rows: Sequence[str], caption: str, name: str) -> str:
    top = "".join(f'<th scope="col"><button type="button">{head}</button></th>' for head in heads)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table: {html.escape(name)}">'
        f'<table class="sortable"><caption><span>{caption}</span></caption><thead><tr>{top}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _listing(number: int, listing: Listing) -> str:
    rows = [
        f'<tr><th scope="row">{html.escape(name)}</th>'
        f"{''.join(_cell(value, html.escape(text)) for value, text in cells)}</tr>"
        for name, cells in listing.rows
    ]
    heads = [html.escape(head) for head in listing.heads]
    table = _table(heads, rows, html.escape(listing.caption), listing.title)
    return _section(f"listing-{number}", html.escape(listing.title), table)


def _row(row: Row, published: float, with_published: bool) -> str:
    stages = [(f"stage {i}" if i else "none", share) for i, share in enumerate(row.stages) if share > 0]
    work = sum(row.stages[2:])
    cells = [
        _cell(row.mean, _with_error(row.mean, row.se)),
        _cell(row.sd, _amount(row.sd)),
        _cell(row.microseconds, _amount(row.microseconds)),
        _cell(row.outside, _share(row.outside)),
        _cell(work, ", ".join(f"{name} {_share(share)}" for name, share in stages) or UNKNOWN, "stages"),
        *[_cell(published, _amount(published))] * with_published,
    ]
    return f'<tr><th scope="row">{html.escape(row.label)}</th>{"".join(cells)}</tr>'


def _cell(value: float, text: str, kind: str = "") -> str:
    known = f"{value:.9g}" if math.isfinite(value) else ""
    return f'<td data-value="{known}"{f" class={kind}" if kind else ""}>{text}</td>'


def _amount(value: float) -> str:
    """Four digits, at most three of them decimals."""
    if not math.isfinite(value):
        return UNKNOWN
    size = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{min(max(3 - size, 0), 3)}f}"


def _with_error(value: float, error: float) -> str:
    """As many digits as the error supports: two of its own."""
    if not math.isfinite(value):
        return UNKNOWN
    if not (math.isfinite(error) and error > 0):
        return _amount(value)
    digits = min(max(1 - math.floor(math.log10(error)), 0), 4)
    return f"{value:,.{digits}f} &plusmn; {error:,.{digits}f}"


def _share(value: float) -> str:
    if not math.isfinite(value):
        return UNKNOWN
    return f"{100 * value:.1f}&nbsp;%" if value == 0 or value >= 0.0005 else "&lt;&nbsp;0.1&nbsp;%"


def _count(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"


def _differences(rows: Sequence[Difference] | None, drawn: dict[str, Any]) -> str:
    if not rows:
        return ""
    drawn["differences"] = charts.differences(rows)
    body = [
        f'<tr><th scope="row">{html.escape(row.label)}</th><td>{html.escape(row.baseline)}</td>'
        f"<td>{html.escape(row.environment)}</td>{_cell(row.mean, _amount(row.mean))}"
        f"{_cell(row.low, f'{_amount(row.low)} to {_amount(row.high)}')}{_cell(row.n, f'{row.n:,}')}</tr>"
        for row in rows
    ]
    heads = ["Policy", "Baseline", "Environment", "Difference", "Interval", "Runs"]
    caption = "Final regret of the policy minus that of its baseline, run by run: below 0 the policy is better."
    spoken = "Chart of the paired differences of the table below, with their intervals."
    figure = f'<figure data-chart="differences"><div class="chart" role="img" aria-label="{spoken}"></div></figure>'
    return _section("differences", "Paired differences", figure, _table(heads, body, caption, "differences"))


# --- charts of one policy ------------------------------------------------------------------------------------------


def _chosen(key: str, labels: Sequence[str], first: int, panels: Sequence[str], caption: str) -> str:
    """A list to choose a policy from, and its charts; ``panels`` says what each shows."""
    options = "".join(
        f'<option value="{i}"{" selected" if i == first else ""}>{html.escape(label)}</option>'
        for i, label in enumerate(labels)
    )
    boxes = "".join(f'<div class="chart" role="img" aria-label="{html.escape(text)}"></div>' for text in panels)
    return (
        f'<figure data-chart="{key}"><div class="tools"><label>Policy: <select>{options}</select></label></div>'
        f'<div class="panels">{boxes}</div><figcaption>{caption}</figcaption></figure>'
    )


def _projection(entries: Sequence[Entry], drawn: dict[str, Any]) -> str:
    shown = [(entry, entry.path) for entry in entries if entry.path is not None]
    if not shown:
        return ""
    names = curves.names([entry for entry, _ in shown])
    drawn["projection"] = {"options": [{"charts": charts.projection(path)} for _, path in shown]}
    projects = [i for i, (_, path) in enumerate(shown) if not np.isnan(path.theta_tilde).all()]
    caption = (
        "Run 0. Black or white line: the truth &theta;*. Dots: the estimate &theta;&#770;. Crosses: the projected "
        "estimate &theta;&#771;, where it differs. Grey: the set &Theta;. Colours tell the round, from dark (early) to "
        "bright (late). With more than two coordinates the first two are drawn."
    )
    panels = ("The parameter and its estimates in the plane.", "Norms of the parameter and its estimates over rounds.")
    section = _chosen("projection", names, projects[-1] if projects else 0, panels, caption)
    return _section("projection", "Estimate and projection", section)


def _diagnostics(entries: Sequence[Entry], drawn: dict[str, Any]) -> str:
    shown = [entry for entry in entries if entry.diagnostics]
    if not shown:
        return ""
    drawn["diagnostics"] = {"options": [{"charts": charts.diagnostics(entry)} for entry in shown]}
    caption = (
        "Medians over runs; bands hold nine runs in ten. The learning term should stay below its radius in most runs, "
        "the tracking term below its bound in all. A lemma holds where its slack is at least 0; it is left out where "
        "it says nothing."
    )
    panels = ("Learning term and its radius.", "Tracking term and its bound.", "Smallest slack of Lemmas 2 to 4.")
    section = _chosen("diagnostics", curves.names(shown), len(shown) - 1, panels, caption)
    return _section("diagnostics", "Diagnostics", section)


# --- words ---------------------------------------------------------------------------------------------------------


def _note(number: int, title: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{html.escape(str(line))}</li>" for line in lines)
    return _section(f"notes-{number}", html.escape(title), f"<ul>{items}</ul>")


def _facts(results: Results) -> str:
    manifest = results.manifest
    versions = manifest.get("versions", {})
    known = {
        "Experiment": manifest.get("title"),
        "Runs": manifest.get("runs"),
        "Rounds": manifest.get("horizon"),
        "Seed": manifest.get("seed"),
        "Begun": manifest.get("begun"),
        "Finished parts": f"{results.finished:,} of {results.total:,}",
        "Versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "Fingerprint of the spec": manifest.get("fingerprint"),
    }
    rows = [
        f"<dt>{name}</dt><dd>{html.escape(str(value))}</dd>" for name, value in known.items() if value not in (None, "")
    ]
    if manifest.get("command"):
        rows.append(f"<dt>Command</dt><dd><code>{html.escape(str(manifest['command']))}</code></dd>")
    return _section("facts", "How it was run", f'<dl class="facts">{"".join(rows)}</dl>')
