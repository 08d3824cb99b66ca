"""Objects of Python named in text, ``module:name``. Naming one imports its module, which runs the code in it."""

from __future__ import annotations

import importlib
import operator
from typing import Any

from windvane.errors import ArgumentError


def imported(reference: str, argument: str = "reference") -> Any:
    """Return the object that ``module:name`` names; ``name`` may be dotted. Errors are about ``argument``."""
    module, _, name = reference.partition(":")
    if not module or not name:
        raise ArgumentError(argument, reference, 'of the form "module:name"')
    try:
        found = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # the module's own code can raise anything
        hint = " ".join(f"the import raised {type(error).__name__}: {error}".split())
        raise ArgumentError(argument, reference, "a name that can be imported", hint=hint) from error
    try:
        return operator.attrgetter(name)(found)
    except AttributeError:
        raise ArgumentError(argument, reference, f"a name that the module {module!r} has") from None
