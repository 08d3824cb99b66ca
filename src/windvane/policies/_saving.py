"""What every saved state of a policy holds, whatever the policy is made of, and how it is checked before it is loaded.

The header: format, configuration, lanes, time, and the arrays that the policy names in ``kept``. Beside it stand the
parts, entries with a prefix such as ``estimator.``, which whoever they belong to checks; a checksum closes the whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.errors import format_value

if TYPE_CHECKING:
    from windvane.policies.base import Policy

FORMAT_VERSION = 3
LATEST = 2.0**52  # beyond it t + 1 would be t

State = dict[str, npt.NDArray[Any]]
_OWN = {"format", "config", "lane_ids", "t", "born", "decisions", "last_round", "checksum"}


class Header(NamedTuple):
    """The part of a state that :func:`checked_header` found to be in order."""

    t: float
    born: Array
    decisions: int
    last_round: float
    kept: State


def saved(policy: Policy, **parts: State) -> State:
    """The header of ``policy`` and the ``parts``, their names prefixed, under one checksum."""
    own: State = {
        "format": np.array(FORMAT_VERSION),
        "config": np.array(policy.config_hash),
        "lane_ids": policy.lane_ids.copy(),
        "t": np.array(policy.t),
        "born": policy._born.copy(),
        "decisions": np.array(policy._decisions),
        "last_round": np.array(policy._last_rounds[0]),
        **{name: getattr(policy, f"_{name}").copy() for name in policy.kept},
    }
    for part, entries in parts.items():
        own |= {f"{part}.{name}": array for name, array in entries.items()}
    return own | {"checksum": np.array(_checksum(own))}


def to_12_digits(value: Any) -> Any:
    """Plain data in which every number is rounded so."""
    if isinstance(value, Mapping):
        return {name: to_12_digits(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_12_digits(one) for one in value]
    if isinstance(value, np.ndarray | np.generic):
        return to_12_digits(value.tolist())
    return float(f"{value:.11e}") if isinstance(value, float) else value


def part_of(state: State, part: str) -> State:
    """The entries of one part, under the names they have there."""
    return {str(n).removeprefix(f"{part}."): a for n, a in state.items() if str(n).startswith(f"{part}.")}


def checked_header(policy: Policy, state: Any, *parts: str) -> Header:
    """The header of ``state`` if ``policy`` could continue from it; nothing beside it and ``parts`` may be there."""
    if not isinstance(state, Mapping):
        raise ValueError(f"state={format_value(state)}: must be a dict of arrays, as state() gives")
    version = _scalar(state, "format", "i")
    if version != FORMAT_VERSION:
        raise ValueError(f"state['format']={version!r}: this version reads format {FORMAT_VERSION}")
    if _scalar(state, "config", "U") != policy.config_hash:
        raise ValueError("state['config']: was made by a policy with other settings")
    if not np.array_equal(np.asarray(state.get("lane_ids")), policy.lane_ids):
        raise ValueError("state['lane_ids']: belongs to other lanes")
    t, last = _scalar(state, "t", "f"), _scalar(state, "last_round", "f")
    born, decisions = np.array(state.get("born")), _scalar(state, "decisions", "i")
    if not 1.0 <= t <= LATEST:
        raise ValueError(f"state['t']={t!r}: must be a number in [1, 2**52]")
    if born.shape != (policy.lanes,) or born.dtype != float or not ((born >= 1.0) & (born <= t)).all():
        raise ValueError(f"state['born']={format_value(born)}: must be a round up to t={t:g} for each lane")
    if not 0 <= decisions <= LATEST:
        raise ValueError(f"state['decisions']={decisions!r}: must be a whole number in [0, 2**52]")
    if decisions > 0 and not 1.0 <= last < t:
        raise ValueError(f"state['last_round']={last!r}: must be a round before t={t:g}")
    prefixes = tuple(f"{part}." for part in parts)
    unknown = {str(n) for n in state if not str(n).startswith(prefixes)} - _OWN - set(policy.kept)
    if unknown:
        raise ValueError(f"state: unknown entries {', '.join(sorted(unknown))}")
    kept = {name: _like(name, state.get(name), getattr(policy, f"_{name}")) for name in policy.kept}
    return Header(t, born, decisions, last, kept)


def check_unchanged(state: State) -> None:
    """To be asked last: what else is wrong with a state is then told by its name."""
    if _scalar(state, "checksum", "U") != _checksum(state):
        raise ValueError("state['checksum']: does not fit; the state was damaged or changed")


def _like(name: str, value: Any, own: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A copy of ``value`` if it has the shape and the type of ``own``, and is finite."""
    array = np.array(value, order="C")
    if array.shape != own.shape or array.dtype != own.dtype:
        raise ValueError(
            f"state[{name!r}] has shape {array.shape} and type {array.dtype}: must be {own.shape}, {own.dtype}"
        )
    if array.dtype == float and not np.isfinite(array).all():
        raise ValueError(f"state[{name!r}]: must be finite")
    return array


def _checksum(state: Mapping[str, npt.NDArray[Any]]) -> str:
    """SHA-256 over names, types, shapes and bytes of all entries but the checksum itself."""
    digest = hashlib.sha256()
    for name in sorted(set(state) - {"checksum"}):
        array = np.asarray(state[name], order="C")
        digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _scalar(state: Mapping[str, npt.NDArray[Any]], name: str, kind: str) -> Any:
    """The single value of an entry whose dtype is of this kind."""
    value = np.asarray(state.get(name))
    if value.shape != () or value.dtype.kind != kind:
        raise ValueError(f"state[{name!r}]: must be a single value, as state() gives")
    return value.item()
