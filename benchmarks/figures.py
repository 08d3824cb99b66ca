"""Figures of versions that were measured in turn, and the ratios between them."""

from __future__ import annotations

import numpy as np
from versions import Version


class Figures:
    """Figures of each version, one for each repeat, by what was measured."""

    def __init__(self, versions: list[Version]) -> None:
        self._names = [version.name for version in versions]
        self._values: dict[str, dict[str, list[float]]] = {}

    def add(self, what: str, version: Version, value: float) -> None:
        self._values.setdefault(what, {name: [] for name in self._names})[version.name].append(value)

    def compare(self, new: str, old: str) -> float:
        """Return the median ratio of a figure of the new version to one of the old version in the same repeat."""
        return float(np.median(np.array(self._values[new]["new"]) / np.array(self._values[old]["old"])))

    def print(self, title: str, form: str, *, less_is_better: bool = False) -> None:
        """Print the medians, and with two versions the median and the range of their ratios."""
        print(f"\n{title:<52}" + "".join(f"{name:>9}" for name in self._names) + "   new/old" * (len(self._names) > 1))
        for what, values in self._values.items():
            verdict, ratio = "", ""
            if len(self._names) > 1:
                ratios = np.array(values["new"]) / np.array(values["old"])
                low, median, high = np.min(ratios), np.median(ratios), np.max(ratios)
                worst, best = (high, low) if less_is_better else (low, high)
                gains = [1.0 - x if less_is_better else x - 1.0 for x in (worst, best)]
                verdict = "ok" if gains[0] >= 0.0 else "MISS" if gains[1] < 0.0 else "open"
                ratio = f"   {median:.2f}x ({low:.2f} to {high:.2f})"
            medians = "".join(f"{format(float(np.median(values[name])), form):>9}" for name in self._names)
            print(f"{verdict:4}  {what:<46}{medians}{ratio}", flush=True)
