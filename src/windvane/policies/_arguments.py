"""What the constructor of a policy takes: for whoever builds one from settings that were written down."""

from __future__ import annotations

import inspect
from typing import Any

from windvane.policies.base import Policy


class Arguments:
    """What a policy's constructor takes."""

    def __init__(self, cls: type[Policy]) -> None:
        self.cls = cls
        parameters = inspect.signature(cls).parameters.values()
        self._anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        self._parameters = {p.name: p for p in parameters if p.kind in named}
        self.names = tuple(self._parameters)
        self.required = [p.name for p in self._parameters.values() if p.default is p.empty]

    def takes(self, name: str) -> bool:
        return self._anything or name in self._parameters

    def default(self, name: str, otherwise: Any) -> Any:
        found = self._parameters.get(name)
        return otherwise if found is None or found.default in (found.empty, None) else found.default

    def wants_number(self, name: str) -> bool:
        """Whether the argument is a number for sure, so that true or false must be a slip."""
        found = self._parameters.get(name)
        if found is None:
            return False
        if found.annotation is not found.empty:
            return "bool" not in str(found.annotation) and str(found.annotation) not in ("Any", "typing.Any", "object")
        return isinstance(found.default, int | float) and not isinstance(found.default, bool)
