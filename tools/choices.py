"""The table that says which policy to use: for each need, the best policy of both leaderboards that meets it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from blocks import POLICY_PAGES, table
from leaderboards import Standing, read_standings

from windvane.policies.base import Policy
from windvane.policies.registry import POLICIES

Kind = type[Policy]


def asks_only(*known: str) -> Callable[[Kind], bool]:
    """Whether a policy asks for nothing but ``known``, besides S, L, sigma and the link."""
    return lambda policy: set(policy.card.needs.replace("nothing", "").split(", ")) <= {"", *known}


def is_proved_under_drift(policy: Kind) -> bool:
    """Whether a theorem bounds the regret in terms of B_T, for arms that need not be orthogonal or the same."""
    cases = [case for case in policy.card.guarantee.split(";") if not re.search("orthogonal|one set", case)]
    return any(re.search(r"\bB\b", case) and "unknown" not in case for case in cases)


def is_proved_for_one_set(policy: Kind) -> bool:
    """Whether a theorem bounds the regret in terms of B_T, if the same arms are on offer in every round."""
    return "one set" in policy.card.guarantee


def is_proved_at_rest(policy: Kind) -> bool:
    """Whether a theorem bounds the regret for a constant parameter, as the policy is by default."""
    guarantee, doubts = policy.card.guarantee, ("not as printed", "if is_proved", "not checked", "everywhere")
    return "theta* fixed" in guarantee and not any(doubt in guarantee for doubt in doubts)


def has_constant_cost(policy: Kind) -> bool:
    """Whether neither the rounds so far nor those in memory are part of the cost of a round."""
    return re.search(r"\bt\b|memory|window|\bH\b|\bM\b|rejected|per lane", policy.card.cost) is None


NEEDS: dict[str, Callable[[Kind], bool]] = {
    "no settings but S, L, σ and the link": asks_only(),
    "a proof under drift for clicks and any arms, and you know T and B_T": lambda p: (
        is_proved_under_drift(p) and p.card.rewards == "generalized linear" and asks_only("T", "B_T")(p)
    ),
    "a proof under drift for linear rewards and any arms, and you know T and B_T": lambda p: (
        is_proved_under_drift(p) and p.card.rewards == "linear" and asks_only("T", "B_T")(p)
    ),
    "a proof under drift for clicks and one set of arms, and you know only T": lambda p: (
        is_proved_for_one_set(p) and p.card.rewards == "generalized linear" and asks_only("T")(p)
    ),
    "a proof for a parameter that never changes": is_proved_at_rest,
    "a linear model of the rewards": lambda p: p.card.rewards == "linear",
    "a cost per round that does not grow": has_constant_cost,
    "a cost per round that does not grow, without the default policy": lambda p: (
        has_constant_cost(p) and p.name != "AdaptiveGLMUCB"
    ),
    "random choices, to evaluate other policies later": lambda p: p.is_randomised,
    "an alarm at each change": lambda p: p.card.forgetting == "detection",
}


def find_page(policy: str) -> str:
    """Return the page that describes a policy: the first that has its name in a heading, or first in a row or item."""
    pattern = re.compile(rf"^(\| |# |- \*\*){re.escape(policy)}(?![-\w])", re.M)
    pages = (path for path in sorted(POLICY_PAGES.glob("*.md")) if path.stem != "index")
    return next(path.name for path in pages if pattern.search(path.read_text(encoding="utf-8")))


def best_of(standings: Mapping[str, Standing], meets: Callable[[Kind], bool]) -> str:
    """Return the cell of the best policy on a leaderboard that meets a need."""
    recommended = [row for row in standings.values() if row.policy in POLICIES]  # others have settings of their own
    suited = [row for row in recommended if meets(POLICIES[row.policy])]
    if not suited:
        return "–"
    best = min(suited, key=lambda row: row.rank)
    return f"[{best.policy}]({find_page(best.policy)}) {best.score:.2f} (worst {best.worst:.1f})"


def choices_table() -> str:
    """Return the table: a line for each need, a column for each leaderboard."""
    drift, rest = read_standings("drift"), read_standings("stationary")
    rows = [["you need", "best in worlds that drift", "best in worlds at rest"]]
    rows += [[need, best_of(drift, meets), best_of(rest, meets)] for need, meets in NEEDS.items()]
    return table(rows)
