"""What the figures and the page share: a look fixed per policy, means and bands over runs, and how curves are thinned.

Colours are chosen to stay apart for colour-blind readers and to stand out on white and on the page's dark ground; the
policies of ``windvane reproduce`` have theirs for good, any other name gets one by a checksum of the name. Since
colours fail in grey, every look has a marker too, and figures write names at the ends of lines. More than eight colours
cannot be told apart: from the ninth policy on they come again, with other markers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array

if TYPE_CHECKING:
    from windvane.lab.results.results import Entry

PublishedCurves = Mapping[str, Sequence[npt.NDArray[Any]]]
"""A published curve per policy name: rounds, mean regret, and perhaps more that is not drawn."""


class Look(NamedTuple):
    colour: str  # "#rrggbb"
    marker: str  # matplotlib's letter


class Curve(NamedTuple):
    """A measure over recorded rounds: mean and standard deviation over runs (nan throughout for a single run)."""

    rounds: npt.NDArray[np.int64]
    mean: Array
    sd: Array


FIXED = {
    "BVD-GLM-UCB": Look("#d55e00", "o"),
    "D-LinUCB": Look("#0072b2", "s"),
    "GLM-UCB": Look("#009e73", "^"),
    "OFUL": Look("#cc79a7", "D"),
    "BOB-BVD-GLM-UCB": Look("#e1004b", "X"),
    "AdaptiveGLMUCB": Look("#962dff", "v"),
}
FARTHEST = 2.5  # in units of S: how far out theta_hat is shown in the plane
ROUNDING = 1e-6  # of the largest value on a log axis: what is smaller is left out
LINEAR = 1e-3  # slacks within it are drawn to scale, larger ones by their logarithm
OTHERS = (Look("#9678ff", "P"), Look("#d200b4", "*"))
PALETTE = (*FIXED.values(), *OTHERS)
AGAIN = tuple(
    Look(PALETTE[i].colour, PALETTE[(i + shift) % len(PALETTE)].marker)
    for shift in range(1, len(PALETTE))
    for i in range(len(PALETTE))
)


def looks(entries: Sequence[Entry]) -> list[Look]:
    """A look per entry. Variants of one policy share its hue and marker and run from dark to light."""
    of_policy: dict[str, Look] = {}
    named = list(dict.fromkeys(entry.policy for entry in entries))
    pools = [list(OTHERS), [look for name, look in FIXED.items() if name not in named]]
    for name in named:
        if name in FIXED:
            of_policy[name] = FIXED[name]
            continue
        free = next((pool for pool in pools if pool), None)
        if free is None:
            pools.append(free := list(AGAIN))
        of_policy[name] = free.pop(zlib.crc32(name.encode()) % len(free))
    result = []
    for entry in entries:
        look = of_policy[entry.policy]
        siblings = [e for e in entries if e.policy == entry.policy and e.environment == entry.environment]
        place = next(i for i, sibling in enumerate(siblings) if sibling is entry)
        shade = 0.0 if len(siblings) == 1 else -0.45 + 0.9 * place / (len(siblings) - 1)
        result.append(look._replace(colour=shaded(look.colour, shade)))
    return result


def shaded(colour: str, amount: float) -> str:
    """``colour`` mixed with black (amount towards -1) or white (towards 1)."""
    goal = 255 if amount > 0 else 0
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part + (goal - part) * abs(amount)):02x}" for part in parts)


def tidy(text: object, longest: int = 60) -> str:
    """Text from a spec in one line that fits a figure."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def names(entries: Sequence[Entry]) -> list[str]:
    """The entries' labels, with the environment where there are several."""
    several = len({entry.environment for entry in entries}) > 1
    return [f"{entry.label} ({entry.environment})" if several else entry.label for entry in entries]


def by_environment(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.environment, []).append(entry)
    return groups


def curve(entry: Entry) -> Curve:
    regret = np.asarray(entry.regret, dtype=float)
    return Curve(np.asarray(entry.rounds), regret.mean(axis=0), sd_over_runs(regret))


def mean_reward(entry: Entry) -> Curve:
    """The mean reward up to each round, where an entry's regret is its number of mistakes."""
    share = 1.0 - np.asarray(entry.regret, dtype=float) / np.asarray(entry.rounds)
    return Curve(np.asarray(entry.rounds), share.mean(axis=0), sd_over_runs(share))


class Measure(NamedTuple):
    """What is drawn over rounds: its name, the title of its section, the label of its axis, and the digits shown."""

    name: str
    title: str
    axis: str
    digits: int
    curve: Callable[[Entry], Curve]


REGRET = Measure("regret", "Regret over time", "Cumulative regret (units of reward)", 1, curve)
MEAN_REWARD = Measure("mean reward", "Mean reward over time", "Mean reward so far (share right)", 3, mean_reward)


def settled_range(values: Iterable[Curve]) -> tuple[float, float]:
    """The least and the largest mean after the first twentieth of the rounds: before, means of few rewards jump."""
    late = [one.mean[one.rounds >= one.rounds[-1] / 20] for one in values]
    return min(float(means.min()) for means in late), max(float(means.max()) for means in late)


def sd_over_runs(values: Array) -> Array:
    """The standard deviation over runs (the first axis), unbiased; nan for a single run."""
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    with np.errstate(invalid="ignore"):
        return np.asarray(values.std(axis=0, ddof=1))


def quantile(values: Array, q: float) -> Array:
    """A quantile over runs that is one of the values, so that infinite ones do no harm; nan where all are nan."""
    ordered = np.sort(values, axis=0)  # nan goes last
    known = np.sum(~np.isnan(values), axis=0)
    place = np.rint(q * np.maximum(known - 1, 0)).astype(int)
    return np.asarray(np.take_along_axis(ordered, place[None], axis=0)[0])


def finite(values: Array) -> Array:
    """``values`` with gaps where nothing can be drawn."""
    return np.where(np.isfinite(values), values, np.nan)


def share_above(values: Array, bound: Array) -> float:
    """The share of rounds and runs with ``values`` above ``bound``, of those where both are known."""
    known = ~(np.isnan(values) | np.isnan(bound))
    return float(np.mean(values[known] > bound[known])) if known.any() else float("nan")


def published_for(entry: Entry, published: PublishedCurves | None) -> tuple[Array, Array] | None:
    """The published (rounds, mean) of the entry's policy within its horizon; None for none, or for a variant."""
    if published is None or entry.policy not in published or entry.variant:
        return None
    rounds, mean = (np.asarray(part, dtype=float) for part in published[entry.policy][:2])
    within = rounds <= entry.horizon
    return (rounds[within], mean[within]) if within.any() else None


def published_final(entry: Entry, published: PublishedCurves | None) -> float:
    """The published mean at the entry's horizon; nan where the published curve does not get there."""
    if published is None or published_for(entry, published) is None:
        return float("nan")
    rounds, mean = (np.asarray(part, dtype=float) for part in published[entry.policy][:2])
    return float(np.interp(entry.horizon, rounds, mean, right=np.nan))


def outside(theta: Array, S: float) -> npt.NDArray[np.bool_]:
    """Rows of norm above S, beyond rounding; False where unknown."""
    return np.asarray(np.linalg.norm(theta, axis=1) > S * (1 + 1e-9))


def frame(hat: Array, star: Array, S: float, farthest: float = FARTHEST) -> tuple[Array, float]:
    """Centre and half the side of the square about Theta, theta* and theta_hat in the plane, nothing too far away."""
    corners = S * np.array([[-1.0, -1.0], [1.0, 1.0]])
    seen = np.concatenate([hat, star, corners]).clip(-farthest * S, farthest * S)
    low, high = np.nanmin(seen, axis=0), np.nanmax(seen, axis=0)
    return (low + high) / 2, 0.54 * float((high - low).max())


def wants_log(values: Array, bound: Array) -> bool:
    """Whether a term and its bound are so far apart that a linear axis would flatten the term."""
    usual = float(np.nanmedian(values)) if np.isfinite(values).any() else 0.0
    most = float(np.nanmax(bound)) if np.isfinite(bound).any() else 0.0
    return most > 20 * max(usual, 1e-12)


def thinned(count: int, most: int = 300) -> npt.NDArray[np.int64]:
    """At most ``most`` of the indices 0..count-1: both ends, two thirds evenly, one third closer at the start.

    The dense start keeps a curve smooth on a logarithmic axis.
    """
    if count <= most:
        return np.arange(count)
    even = np.linspace(0, count - 1, most - most // 3)
    early = np.geomspace(1, count, most // 3) - 1
    return np.unique(np.rint(np.concatenate([even, early])).astype(np.int64))
