"""Results as plain data, which every JSON parser accepts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any


def to_plain(value: Any) -> Any:
    """Return dicts, lists, numbers and texts.

    Dataclasses and named tuples become dicts, arrays lists, NaN and infinity None, and anything else, such as a path,
    its text.

    Parameters
    ----------
    value
        A result, or any part of one.

    Returns
    -------
    object
        Data for :func:`json.dumps`.

    Examples
    --------
    >>> to_plain({"low": (0.5, float("-inf")), 1: None})
    {'low': [0.5, None], '1': None}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif hasattr(value, "_asdict"):  # a named tuple
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): to_plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(entry) for entry in value]
    if hasattr(value, "tolist"):
        return to_plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
