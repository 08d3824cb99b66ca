"""The arguments that a policy's constructor takes: for code that builds policies from settings in a file."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windvane.policies.base import Policy


class Signature:
    """The constructor arguments of a class: ``names`` of those that have one, ``required`` those without a default.

    Parameters
    ----------
    cls
        The class. It need not be a subclass of :class:`windvane.Policy`.

    Examples
    --------
    >>> from windvane.policies import OFUL
    >>> Signature(OFUL).required
    ['dim']
    """

    def __init__(self, cls: type[Policy]) -> None:
        self.cls = cls
        parameters = inspect.signature(cls).parameters.values()
        self._takes_anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self._parameters = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        self.names = tuple(self._parameters)
        self.required = [p.name for p in self._parameters.values() if p.default is p.empty]

    def accepts(self, name: str) -> bool:
        """Return whether the constructor accepts an argument of this name."""
        return self._takes_anything or name in self._parameters

    def default(self, name: str, otherwise: Any) -> Any:
        """Return the default of an argument; ``otherwise`` if it has none, or None."""
        parameter = self._parameters.get(name)
        return otherwise if parameter is None or parameter.default in (parameter.empty, None) else parameter.default

    def is_number(self, name: str) -> bool:
        """Return whether the argument is certainly a number, so that true or false is a mistake."""
        parameter = self._parameters.get(name)
        if parameter is None:
            return False
        if parameter.annotation is not parameter.empty:
            annotation = str(parameter.annotation)
            return "bool" not in annotation and annotation not in ("Any", "typing.Any", "object")
        return isinstance(parameter.default, int | float) and not isinstance(parameter.default, bool)
