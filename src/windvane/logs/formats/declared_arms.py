"""The arms that a stream declares, at each point of its event log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windvane.logs.row_problems import Problems, Verbatim


class DeclaredArms:
    """Follow the changes of the declared arms through a log.

    Parameters
    ----------
    arms
        The arms declared at the end of the log, if the caller knows them.

    Attributes
    ----------
    current : list of str
        The arms declared now. Those at the beginning of the log are inferred by :meth:`finish`.
    """

    def __init__(self, arms: Sequence[str] | None = None) -> None:
        self._given = None if arms is None else list(arms)
        self._first: list[str] = list(arms or ())
        self._is_first_complete = True
        self._stack: list[list[str] | None] = [None]  # None: those at the beginning, not yet known
        self._seen: dict[int, str] = {}
        self._others: dict[str, None] = {}
        self._preferred_chance = self._other_chance = 0.0
        self._count: float | None = None
        self._has_changes = False

    @property
    def current(self) -> list[str]:
        """The arms declared now."""
        arms = self._stack[-1]
        return self._first if arms is None else arms

    @property
    def is_complete(self) -> bool:
        """Whether ``current`` is known to hold all arms."""
        return self._stack[-1] is not None or self._is_first_complete

    def restart(self) -> DeclaredArms:
        """Go back to the beginning of the log, and return self."""
        self._stack = [None]
        return self

    def note_change(self, event: Mapping[str, Any]) -> bool:
        """Apply an event that changes settings; return False if it is malformed."""
        kind = event.get("kind")
        self._preferred_chance = self._other_chance = 0.0
        if kind == "refit_undone":
            self._stack = self._stack[:-1] or self._stack
            return True
        changes = event.get("changes" if kind == "configured" else "settings") or {}
        features = changes.get("features") if isinstance(changes, dict) else None
        arms = self._stack[-1]
        if isinstance(features, dict):
            declared = features.get("arms") or []
            if not isinstance(declared, list):
                return False
            arms = [str(name) for name in declared]
            self._has_changes = True
        if kind == "refitted":
            self._stack.append(arms)
        else:
            self._stack[-1] = arms
        return isinstance(changes, dict)

    def note_decision(self, event: Mapping[str, Any]) -> None:
        """Collect names of arms from a decision that offered all arms declared at the beginning."""
        request, index = event.get("request"), event.get("index")
        if self._stack[-1] is not None or not isinstance(request, dict) or request.get("arms") is not None:
            return
        if isinstance(index, int) and index >= 0 and event.get("arm") is not None:
            self._seen[index] = str(event["arm"])
        for name in ("preferred", "rival"):
            if event.get(name) is not None:
                self._others[str(event[name])] = None
        chance = event.get("propensity")
        if self._count is None and isinstance(chance, float) and 0.0 < chance <= 1.0:
            if event.get("arm") == event.get("preferred"):
                self._preferred_chance = chance
            else:
                self._other_chance = chance
            if self._preferred_chance and self._other_chance:
                # With epsilon, preferred = 1 - (K - 1) other.
                self._count = 1.0 + (1.0 - self._preferred_chance) / self._other_chance

    def finish(self, problems: Problems) -> None:
        """Infer the arms that were declared at the beginning."""
        if self._given is not None and not self._has_changes:
            return
        if not self._seen:
            return
        named = [self._seen[index] for index in sorted(self._seen)]
        self._first = [*named, *(name for name in self._others if name not in named)]
        least = max(self._seen) + 1
        count = least if self._count is None else round(self._count)
        self._is_first_complete = len(self._first) >= max(least, count)
        if not self._is_first_complete:
            value = Verbatim(f"{len(self._first)} of {max(least, count)}")
            expected = "seen at least once each (declare them with `features`)"
            problems.add("arms never seen", 0, "arms", value, expected, is_dropped=False)
