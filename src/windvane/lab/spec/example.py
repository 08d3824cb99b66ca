"""The commented spec that ``windvane new`` writes."""

from __future__ import annotations

import math
import textwrap
from importlib import resources

from windvane.policies.registry import POLICIES

WIDTH = 120  # columns of a line
PLACE = "# POLICIES\n"  # the line of the template that the list of policies replaces


def wobble(t: int) -> list[float]:
    """Return theta* at round t, as an example of a drift function: ``dim`` entries, of norm at most S."""
    return [math.cos(t / 500), 0.5 * math.sin(t / 500)]


def write_example() -> str:
    """Return the example, with the names of all registered policies."""
    template = resources.files("windvane.lab.spec").joinpath("example.toml").read_text(encoding="utf-8")
    indexed = ", ".join(name for name, policy in POLICIES.items() if policy.needs_one_hot)
    names = (
        f'# policy is one of {", ".join(POLICIES)}, or a class of yours as "module:Class". These need the arms '
        f'"fixed": {indexed}.'
    )
    return template.replace(PLACE, textwrap.fill(names, WIDTH, subsequent_indent="# ", break_on_hyphens=False) + "\n")
