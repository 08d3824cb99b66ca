"""Looks: inks, a colour and a marker fixed per policy, and text from outside that fits a figure.

Colours are chosen to stay apart for colour-blind readers and to stand out on white and on the page's dark ground. The
policies of ``windvane reproduce`` have theirs for good; any other name gets one by a checksum of the name. Since
colours fail in grey, every look has a marker too, and figures write names at the ends of lines. More than eight colours
cannot be distinguished: from the ninth policy on they come again, with other markers and other dashes. Colour and dash
of up to 32 policies are distinct.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from windvane.lab.results.results import Entry

INK, MUTED, LINK, SHADE = "#222222", "#666666", "#bbbbbb", "#f0f0f0"
LINEAR = 1e-3  # a symlog axis is linear up to here and logarithmic beyond
BETTER, WORSE = "#0072b2", "#d55e00"
Dash = Literal["solid", "dashed", "long", "dotted", "dashdot"]


class Look(NamedTuple):
    """How an entry is drawn."""

    colour: str  # "#rrggbb"
    marker: str  # matplotlib's letter
    dash: Dash = "solid"


FIXED = {
    "BVD-GLM-UCB": Look("#d55e00", "o"),
    "D-LinUCB": Look("#0072b2", "s"),
    "GLM-UCB": Look("#009e73", "^"),
    "OFUL": Look("#cc79a7", "D"),
    "BOB-BVD-GLM-UCB": Look("#e1004b", "X"),
    "AdaptiveGLMUCB": Look("#962dff", "v"),
}
OTHERS = (Look("#9678ff", "P"), Look("#d200b4", "*"))
PALETTE = (*FIXED.values(), *OTHERS)
DASHES: tuple[Dash, ...] = ("solid", "dotted", "dashdot", "long")  # of the first eight policies, the next eight, ...


def looks(entries: Sequence[Entry]) -> list[Look]:
    """Return a look per entry. Variants of one policy share its hue, marker and dash and run from dark to light."""
    names = list(dict.fromkeys(entry.policy for entry in entries))
    of_policy = {name: FIXED[name] for name in names if name in FIXED}
    unused = [look for name, look in FIXED.items() if name not in names]
    pools = itertools.chain([list(OTHERS), unused], map(_repeat_palette, itertools.count(1)))
    free: list[Look] = []
    for name in names:
        while name not in FIXED and not free:
            free = next(pools)
        if name not in FIXED:
            of_policy[name] = free.pop(zlib.crc32(name.encode()) % len(free))
    siblings = Counter((entry.policy, entry.environment) for entry in entries)
    places: Counter[tuple[str, str]] = Counter()
    result = []
    for entry in entries:
        look, kind = of_policy[entry.policy], (entry.policy, entry.environment)
        amount = 0.0 if siblings[kind] == 1 else -0.45 + 0.9 * places[kind] / (siblings[kind] - 1)
        places[kind] += 1
        result.append(look._replace(colour=shade(look.colour, amount)))
    return result


def _repeat_palette(turn: int) -> list[Look]:
    """Return the colours once more, for the ``turn``-th time, each with another marker and dash than before."""
    markers = [look.marker for look in PALETTE]
    dash = DASHES[turn % len(DASHES)]
    return [Look(look.colour, markers[(i + turn) % len(markers)], dash) for i, look in enumerate(PALETTE)]


def shade(colour: str, amount: float) -> str:
    """Mix ``colour`` with black (amount towards -1) or white (towards 1)."""
    goal = 255 if amount > 0 else 0
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part + (goal - part) * abs(amount)):02x}" for part in parts)


def tidy(text: object, longest: int = 60) -> str:
    """Text from a spec in one line that fits a figure."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def number_text(value: float) -> str:
    """Return a tick's number: 0.01, 500, 2,000, and powers of ten beyond as 10⁻⁶."""
    power = math.floor(math.log10(abs(value)) + 1e-9) if value else 0
    if -4 < power < 6:
        return f"{value:,.10g}".replace("-", "−")
    digits = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    factor = value / 10.0**power
    start = "10" if abs(abs(factor) - 1) < 1e-9 else f"{abs(factor):g}·10"
    return f"{'−' if value < 0 else ''}{start}{digits}"


def entry_names(entries: Sequence[Entry]) -> list[str]:
    """Return the entries' labels, with the environment where there are several."""
    several = len({entry.environment for entry in entries}) > 1
    return [f"{entry.label} ({entry.environment})" if several else entry.label for entry in entries]
