"""Objects of Python named in text, ``module:name``. Naming one imports its module, which runs the code in it."""

from __future__ import annotations

import importlib
from typing import Any

from windvane.errors import format_value


def imported(reference: str) -> Any:
    """The object that ``module:name`` names; ``name`` may be dotted. A ``ValueError`` says what failed."""
    module, _, name = reference.partition(":")
    if not module or not name:
        raise ValueError(f'{format_value(reference)}: must be "module:name"')
    try:
        found = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # whatever the module's own code raises
        raise ValueError(f"cannot import {module!r}: {type(error).__name__}: {error}") from error
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ValueError(f"module {module!r} has no {name!r}") from None
    return found
