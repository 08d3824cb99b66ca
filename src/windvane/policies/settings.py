"""Settings as data: the constructor arguments of a policy are annotated fields and become attributes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np

from windvane.documentation import documented
from windvane.links import Link, get_link

MOST_EXACT = 1e11  # larger whole numbers, such as seeds, are not rounded
DIGITS = 12  # significant digits in a hash, because exp and similar functions can differ in the last digit

Derived = TypeVar("Derived", bound="Configured")


@dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
class Configured:
    """A class whose annotated fields are the keyword arguments of its constructor, as in a dataclass.

    ``__post_init__`` checks the arguments and builds the parts of the object. The attributes keep the values as passed,
    except that the name of a link is replaced by the link. Assigning to them later does not change the parts. A class
    may also write its own ``__init__``, which its subclasses inherit.
    """

    has_generated_init: ClassVar[bool] = False

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        has_docstring = bool(vars(cls).get("__doc__"))
        owner = next(base for base in cls.__mro__ if "__init__" in vars(base))
        is_generated = owner is object or vars(owner).get("has_generated_init", False)
        dataclasses.dataclass(init=is_generated, kw_only=True, eq=False, repr=False)(cls)
        cls.has_generated_init = is_generated
        if has_docstring:
            documented(cls)
        for name, method in vars(cls).items():
            if inspect.isfunction(method) and not name.startswith("_"):
                documented(method, *(vars(base)[name] for base in cls.__mro__[1:] if name in vars(base)))

    def get_params(self) -> dict[str, Any]:
        """Return the constructor arguments by name: ``type(p)(**p.get_params())`` has the same settings as ``p``."""
        names = (field.name for field in dataclasses.fields(self) if field.init)  # type: ignore[arg-type]
        settings = {name: getattr(self, name) for name in names}
        return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in settings.items()}

    def pick_settings(self, *names: str) -> dict[str, Any]:
        """Return those of the settings ``names`` that this class has."""
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    def derive(self, cls: type[Derived], **changes: Any) -> Derived:
        """Return an object of another class with the settings that both have, except for ``changes``."""
        names = {field.name for field in dataclasses.fields(cls) if field.init}  # type: ignore[arg-type]
        return cls(**{name: value for name, value in self.get_params().items() if name in names} | changes)

    def prepare_settings(self) -> None:
        """Replace the name of a link with the link, and arrays, lists and forgetting rules with copies."""
        for name, value in self.get_params().items():
            is_rule = dataclasses.is_dataclass(value) and not isinstance(value, Configured)
            if name == "link":
                setattr(self, name, get_link(value))
            elif is_rule or isinstance(value, np.ndarray | list):
                setattr(self, name, copy.deepcopy(value))

    def __repr__(self) -> str:
        """Return the constructor call with the arguments that differ from their defaults."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        settings = self.get_params().items()
        texts = [f"{name}={_show(value)}" for name, value in settings if not _is_default(value, defaults[name])]
        return f"{type(self).__name__}({', '.join(texts)})"


def describe(settings: Mapping[str, Any], reach: float) -> dict[str, Any]:
    """Return settings as plain data.

    Links become fingerprints over |z| <= ``reach``, and numbers are rounded to 12 digits. Functions are left
    out, and so are the lanes, whose ids a state stores separately.
    """
    included = {name: value for name, value in settings.items() if name != "lanes" and not callable(value)}
    return {name: _plain(value, reach) for name, value in included.items()}


def _plain(value: Any, reach: float) -> Any:
    if isinstance(value, Link):
        return _plain(value.fingerprint(reach), reach)
    if isinstance(value, Configured):
        return {"kind": type(value).__name__, **describe(value.get_params(), reach)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__, **_plain(vars(value), reach)}
    if isinstance(value, Mapping):
        return {str(name): _plain(entry, reach) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry, reach) for entry in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(float(value) if isinstance(value, np.floating) else value.tolist(), reach)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(f"{float(value):.{DIGITS - 1}e}") if abs(value) < MOST_EXACT else value
    return value


def _is_default(value: Any, default: Any) -> bool:
    if isinstance(value, Link):
        return bool(value.name == default)
    return type(value) is type(default) and not isinstance(value, np.ndarray) and bool(value == default)


def _show(value: Any) -> str:
    if isinstance(value, Link):
        return repr(value.name)
    return np.array2string(value, separator=", ", threshold=6) if isinstance(value, np.ndarray) else repr(value)
