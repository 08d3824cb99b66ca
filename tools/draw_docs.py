"""Draw the pictures of the documentation: ``python tools/draw_docs.py`` draws all, or those that are named.

The same command draws the same files, byte for byte. ``--check`` writes nothing and fails if a file is out of date. Two
pictures are drawn from figures that take minutes to compute and are kept beside the code: ``--simulate`` computes those
of the regret anew, and ``--data elec.csv`` those of the Electricity stream, from its file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pictures import bonus, diagrams, drift, electricity, projection, regret

DOCS = Path(__file__).parent.parent / "docs"
PICTURES: dict[str, tuple[Callable[[], str], str]] = {
    "projection": (projection.draw_projection, "figures/projection.svg"),
    "projection-world": (projection.describe_world, "_static/projection-world.js"),
    "bonus": (bonus.draw_bonus, "figures/bonus.svg"),
    "kinds-of-drift": (drift.draw_kinds, "figures/kinds-of-drift.svg"),
    "weights": (drift.draw_weights, "figures/weights.svg"),
    "tracking": (drift.draw_tracking, "figures/tracking.svg"),
    "regret-by-memory": (regret.draw_curves, "figures/regret-by-memory.svg"),
    "best-memory": (regret.draw_tradeoff, "figures/best-memory.svg"),
    "architecture": (diagrams.draw_architecture, "figures/architecture.svg"),
    "life-of-a-decision": (diagrams.draw_decision_life, "figures/life-of-a-decision.svg"),
    "electricity": (electricity.draw_electricity, "figures/electricity.svg"),
}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Draw the pictures of the documentation.")
    parser.add_argument("names", nargs="*", choices=[*PICTURES, []], metavar="NAME", help=", ".join(PICTURES))
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    parser.add_argument("--simulate", action="store_true", help="compute the regret by memory anew (two minutes)")
    parser.add_argument("--data", type=Path, metavar="CSV", help="compute the rates on this file of Electricity anew")
    options = parser.parse_args(arguments)
    if options.simulate:
        regret.write_regret()
    if options.data is not None:
        electricity.write_rates(options.data)
    stale = 0
    for name in options.names or PICTURES:
        draw, place = PICTURES[name]
        path, content = DOCS / place, draw()
        if path.exists() and path.read_text(encoding="utf-8") == content:
            continue
        stale += 1
        if not options.check:
            path.write_text(content, encoding="utf-8")
        print(f"docs/{place} {'is out of date; run `python tools/draw_docs.py`' if options.check else 'written'}")
    return int(options.check and stale > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
