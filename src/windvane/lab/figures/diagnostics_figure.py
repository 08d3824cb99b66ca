"""What the lemmas say of a run: the two terms of the estimation error beside their bounds, and the slacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from windvane.arguments import Array
from windvane.errors import ArgumentError
from windvane.lab.figures.description import (
    Axis,
    Band,
    Corner,
    Figure,
    Mark,
    Panel,
    Series,
    Strip,
    Ticks,
    log_ticks,
    round_axis,
)
from windvane.lab.figures.style import BETTER, INK, LINEAR, WORSE, Dash, number_text, tidy

if TYPE_CHECKING:
    from windvane.lab.results.results import Entry

ROUNDING = 1e-6  # of the largest value on a log axis: what is smaller is left out
LEMMAS: dict[int, tuple[str, Dash]]
LEMMAS = {2: ("#d55e00", "solid"), 3: ("#0072b2", "long"), 4: ("#009e73", "dotted")}


def diagnostics_figure(entry: Entry) -> Figure:
    """Return the learning term and beta, the tracking term and its bound, and the smallest slack of Lemmas 2 to 4.

    Lines are medians over runs, bands hold nine runs in ten. What is nowhere finite is left out, and said so.
    """
    if not entry.diagnostics:
        raise ArgumentError("entry", entry, "an entry with diagnostics", got=repr(entry.label))
    panels = [
        _term(entry, "learning", "beta", "Learning term", "its radius β", WORSE),
        _term(entry, "tracking", "tracking_bound", "Tracking term", "its bound (Lemma 2)", BETTER),
        _slacks(entry),
    ]
    return Figure(panels, f"{tidy(entry.label)}: {len(entry.lanes):,} runs", (7.0, 5.6))


def wants_log(values: Array, bound: Array) -> bool:
    """Whether a term and its bound are so far apart that a linear axis would flatten the term."""
    usual = float(np.nanmedian(values)) if np.isfinite(values).any() else 0.0
    return float(np.nanmax(bound, initial=0.0)) > 20 * max(usual, 1e-12)


def quantile(values: Array, q: float) -> Array:
    """Return a quantile over runs that is one of the values, so that infinite ones do not matter; nan if not finite."""
    ordered = np.sort(values, axis=0)  # nan goes last
    known = np.sum(~np.isnan(values), axis=0)
    place = np.rint(q * np.maximum(known - 1, 0)).astype(int)
    result = np.take_along_axis(ordered, place[None], axis=0)[0]
    return np.where(np.isfinite(result), result, np.nan)


def share_above(values: Array, bound: Array) -> float:
    """Return the share of rounds and runs with ``values`` above ``bound``, of those where both are known."""
    known = ~(np.isnan(values) | np.isnan(bound))
    return float(np.mean(values[known] > bound[known])) if known.any() else float("nan")


def _known(entry: Entry, name: str) -> Array:
    return entry.diagnostics.get(name, np.full((1, len(entry.rounds)), np.nan))


def _term(entry: Entry, name: str, bound: str, title: str, bound_title: str, colour: str) -> Panel:
    values, limit = _known(entry, name), _known(entry, bound)
    low, middle, high = (quantile(values, q) for q in (0.05, 0.5, 0.95))
    top = quantile(limit, 0.5)
    marks: list[Mark] = []
    message = "not defined for this policy here"
    if not np.isnan(middle).all():
        marks = [Band(entry.rounds, low, high, colour), Series(entry.rounds, middle, colour, title.lower(), name)]
        message = ""
    if not np.isnan(top).all():
        marks.append(Series(entry.rounds, top, INK, bound_title, bound, 1.2, "dashed"))
    share = share_above(*np.broadcast_arrays(values, limit))
    says = "" if np.isnan(share) else f": above {bound_title} in {100 * share:.2g} % of recorded rounds"
    axis = _term_axis(title, np.concatenate([low, middle, high, top]), top, is_log=wants_log(middle, top))
    legend: Corner = "upper left" if marks else ""
    return Panel(round_axis(entry.horizon), axis, marks, f"{title}{says}", legend, message)


def _term_axis(title: str, values: Array, top: Array, *, is_log: bool) -> Axis:
    """With room for the legend above the values."""
    if np.isnan(values).all():
        return Axis(title, ticks=Ticks(np.empty(0), []), low=0.0, high=1.0)
    if not is_log:
        return Axis(title, low=0.0, high=1.4 * float(np.nanmax(values)), has_grid=True, value="median")
    most = float(np.nanmax(top))
    low = max(0.5 * float(np.min(values[values > 0])), ROUNDING * most)
    return Axis(title, "log", low, 30 * most, log_ticks(low, 30 * most, 5), has_grid=True, value="median")


def _slacks(entry: Entry) -> Panel:
    """Return the smallest slack over runs of each lemma, on an axis that is linear near 0 and logarithmic beyond."""
    marks: list[Mark] = [Strip("y", 0.0, 0.0, colour=INK)]
    least, largest = 0.0, LINEAR
    for k, (colour, dash) in LEMMAS.items():
        slack = quantile(_known(entry, f"lemma_{k}_slack"), 0.0)
        is_known = not np.isnan(slack).all()
        says = f"least {number_text(float(f'{np.nanmin(slack):.2g}'))}" if is_known else "says nothing here"
        marks.append(Series(entry.rounds, slack, colour, f"Lemma {k} ({says})", f"lemma_{k}", 1.1, dash))
        least = min(least, float(np.nanmin(slack, initial=0.0)))
        largest = max(largest, float(np.nanmax(slack, initial=0.0)))
    low = min(-LINEAR, 1.5 * least)
    decades = 2 + np.log10(largest / LINEAR) + np.log10(-low / LINEAR)
    high = largest * 10 ** (0.25 * decades)  # with room for the legend
    reach = int(np.ceil(np.log10(max(largest, -low) / LINEAR)))
    powers = LINEAR * 10.0 ** np.arange(0, reach + 1, max(1, -(-reach // 3)))
    places = np.concatenate([-powers[::-1], [0.0], powers])
    places = places[(places >= low) & (places <= high)]
    ticks = Ticks(places, [number_text(place) for place in places.tolist()])
    axis = Axis("Slack", "symlog", low, high, ticks, has_grid=True, value="smallest slack", form=".3g")
    title = "Smallest slack over runs: a lemma holds where it is at least 0"
    return Panel(round_axis(entry.horizon), axis, marks, title, legend="upper left")
