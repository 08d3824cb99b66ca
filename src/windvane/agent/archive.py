"""The file of an agent: the line ``windvane agent VERSION DIGEST``, then NumPy arrays in the format of
:func:`numpy.savez`.

DIGEST is the SHA-256 of everything after the line. It detects damage; it is not a signature. Equal agents give equal
bytes. Nothing is pickled, so reading a file cannot run code. The arrays are

=============  =====================================================================================================
name           meaning
=============  =====================================================================================================
policy/...     :meth:`windvane.Policy.state`
pending        of each decision that is open, the oldest first: ``x``, the vector played, and the numbers of
               :class:`windvane.agent.pending.Pending` in ``FIXED`` and ``CHANGING`` (NaN: none)
early          with ``learn="early"``: the table of :class:`windvane.agent.delays.DelayModel`
document       a JSON string (numbers may be Infinity) with the entries that follow
settings       the arguments of :class:`windvane.Agent`; null: a custom link or policy; features and scaling with
               fitted values, features in the order of the coordinates
feature_names  the names of the parameter's coordinates; a file whose features give other names is rejected
columns        of the first frame of raw vectors, which set the order of the coordinates, or null
tally          the counts of :class:`windvane.agent.core.Tally` by name
times          [when the policy's round 1 was, where forgetting goes by the clock; the last time seen]
names          {"id", "arm", "preferred", "rival"}: of each decision in ``pending``
closed         [id, reward, late reward, is_partial, is_dropped] for the last that were closed, the oldest first (see
               :class:`windvane.agent.pending.ClosedOutcome`)
early          the arms with a delay histogram of their own, with ``learn="early"``
recent         for each of the last decisions whether it was projected; of the last that were closed, dropped
calibration    the state of :class:`windvane.agent.calibration.CalibrationMonitor`: the ``fresh`` outcomes, the sums
               of those before, of the last full ``blocks``, of each arm and of ``others``, and the ``start``
pace           [time of the first decision, and those that :class:`windvane.agent.pace.Pace` keeps]
=============  =====================================================================================================
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from windvane.agent.delays import LOOKS, DelayModel
from windvane.agent.info import RecentShare
from windvane.agent.names import check_flag, check_name, check_names
from windvane.agent.pending import ClosedOutcome, Pending
from windvane.arguments import LARGEST, NORM_SLACK, check_number, check_whole
from windvane.errors import ArgumentError, WindvaneError, format_value
from windvane.links import Link
from windvane.policies.base import Policy
from windvane.records import Decision, to_datetime

if TYPE_CHECKING:
    from windvane.agent.core import AgentCore

FORMAT, VERSION = "windvane agent", 8
OLDER = 7
"""An older version that can be read: its calibration has no ``start``, and counts decisions made before it."""
NAMES = ("id", "arm", "preferred", "rival")
MOST = 2**53
_ANY, _COUNT, _SHARE, _FLAG = ("f8", -math.inf, math.inf), ("i8", 0, MOST), ("f8", 0, 1), ("?", 0, 1)
FIXED: dict[str, tuple[str, float, float]] = {
    "round": _ANY, "time": _ANY, "number": _COUNT, "decision.index": _COUNT, "decision.prediction": _ANY,
    "decision.bonus": _ANY, "decision.propensity": _SHARE, "decision.rival_score": _ANY, "decision.explored": _FLAG,
    "decision.projected": _SHARE,
}  # fmt: skip
"""Numbers of an open decision that never change: type, smallest and largest value."""
CHANGING: dict[str, tuple[str, float, float]] = {
    "reward": _ANY, "delay": ("f8", 0, math.inf), "looks": ("i8", 0, LOOKS), "credited": _SHARE, "is_learned": _FLAG,
    "is_miss": _FLAG, "is_partial": _FLAG,
}  # fmt: skip
_OPTIONAL = ("decision.propensity", "decision.rival_score", "decision.projected", "reward", "delay")

Arrays = dict[str, npt.NDArray[Any]]


class FileError(WindvaneError, ValueError):
    """A file does not hold an agent, or is damaged.

    ``where`` names the file and ``problem`` says what is wrong. ``code`` is the part of the file that is wrong:
    "format", "version", "digest", "archive" or "state". For "state", the error that the agent raised is ``__cause__``.
    """

    def __init__(self, where: str, code: str, problem: str) -> None:
        self.where, self.code, self.problem = where, code, problem
        super().__init__(f"{where}: {problem}")


def pack(core: AgentCore) -> Callable[[], bytes]:
    """Copy the state of an agent, and return a function that serialises the copy later, in any thread."""
    arrays = {f"policy/{name}": array for name, array in core.policy.state().items()}
    pending, row_type = list(core.decisions), _row_type(core)
    changing = list(map(attrgetter("x", *CHANGING), pending))  # other features replace x
    document: dict[str, Any] = {
        "settings": dict(core.settings),
        "feature_names": core.feature_names,
        "columns": core.encoder.columns,
        "tally": dataclasses.asdict(core.tally),
        "times": [core.clock.first, core.clock.last],
        "closed": list(core.decisions.closed.items()),
        "recent": [list(core.recently_projected.marks), list(core.recently_dropped.marks)],
        "calibration": core.calibration.to_plain(),
        "pace": core.pace.to_plain(),
    }
    if core.early is not None:
        document["early"], arrays["early"] = list(core.early.model.rows), core.early.model.table.copy()

    def finish() -> bytes:
        for name, value in document["settings"].items():
            try:
                json.dumps(value)
            except TypeError:
                expected = "a number, a string or a list of these in an agent that is saved"
                raise ArgumentError(name, value, expected) from None
        document["closed"] = [[key, *outcome] for key, outcome in document["closed"]]
        document["names"] = {name: [getattr(each.decision, name) for each in pending] for name in NAMES}
        fixed = map(attrgetter(*FIXED), pending)
        rows = [(x, *numbers, *others) for numbers, (x, *others) in zip(fixed, changing, strict=True)]
        return write_archive(document, arrays | {"pending": np.array(rows, dtype=row_type)})

    return finish


def unpack(
    cls: type[AgentCore], content: bytes, link: Link | None, policy: type[Policy] | None, where: str
) -> AgentCore:
    """Return the agent in ``content``; ``where`` names it in errors."""
    document, arrays = read_archive(content, where)
    settings = document.get("settings")
    if not isinstance(settings, dict) or not {"link", "policy"} <= settings.keys():
        raise FileError(where, "state", "cannot be loaded: it is not the document of an agent")
    for name, value in (("link", link), ("policy", policy)):
        if settings[name] is None and value is None:
            raise ArgumentError(name, None, f"given, because the agent has a {name} that is not windvane's own")
        if settings[name] is not None and value is not None:
            raise ArgumentError(name, value, f"omitted, because the agent already has {settings[name]!r}")
        settings[name] = settings[name] if value is None else value
    try:
        core = cls(**settings)
        _restore(core, document, arrays)
    except Exception as error:  # a forged document can hold anything
        raise FileError(where, "state", f"cannot be loaded: {_describe(error)}") from error
    return core


def _restore(core: AgentCore, document: Mapping[str, Any], arrays: Arrays) -> None:
    core.policy.load_state(
        {name.removeprefix("policy/"): array for name, array in arrays.items() if name.startswith("policy/")}
    )
    core.encoder.columns = None if document["columns"] is None else check_names("columns", document["columns"])
    if core.feature_names != document["feature_names"]:
        expected = "the names of the declared features in their order"
        raise ArgumentError("feature_names", document["feature_names"], expected)
    for name, start in dataclasses.asdict(core.tally).items():
        value = document["tally"][name]
        setattr(core.tally, name, _number(value) if isinstance(start, float) else check_whole(name, value, 0, MOST))
    first, last = document["times"]
    core.clock.first, core.clock.last = _optional(first), float(last)
    for key, reward, late, *flags in document["closed"]:
        outcome = ClosedOutcome(_optional(reward), _optional(late), *(check_flag("closed", flag) for flag in flags))
        core.decisions.closed[key] = outcome
    if core.early is not None:
        core.early.model = DelayModel(check_names("early", document["early"]), arrays["early"])
    for pending in _read_pending(core, document["names"], arrays["pending"]):
        if pending.decision.id in core.decisions:
            raise ArgumentError(("names", "id"), pending.decision.id, "all different")
        core.decisions.add(pending)
        if core.early is not None:
            core.early.add(pending)
    if not all(isinstance(key, str) for key in (*core.decisions.open, *core.decisions.closed)):
        raise ArgumentError(("names", "id"), None, "texts", got="others")
    core.recently_projected, core.recently_dropped = (
        RecentShare(check_flag("recent", mark) for mark in marks) for marks in document["recent"]
    )
    core.calibration.restore(document["calibration"])
    core.pace.restore(core.tally.decisions, document["pace"])


def _row_type(core: AgentCore) -> np.dtype[np.void]:
    """Return the type of a row of ``pending``."""
    numbers = ((name, kind) for name, (kind, _, _) in (FIXED | CHANGING).items())
    return np.dtype([("x", "f8", (core.policy.dim,)), *numbers])


def _read_pending(core: AgentCore, names: Mapping[str, Any], rows: npt.NDArray[Any]) -> Iterator[Pending]:
    """Yield the open decisions, if they are possible."""
    L, latest = core.policy.L, core.policy.latest_round
    if rows.dtype != _row_type(core) or rows.ndim != 1:
        raise ArgumentError("pending", rows, f"an array of {_row_type(core)}", got=f"one of {rows.dtype}")
    if not (np.linalg.norm(rows["x"], axis=1) <= L * NORM_SLACK).all():
        raise ArgumentError(("pending", "x"), rows["x"], f"vectors of norm at most {L:g}")
    fields = FIXED | CHANGING | {"round": ("f8", -LARGEST, latest), "reward": ("f8", *core.reward_range)}
    for name, (_, low, high) in fields.items():
        is_allowed = (rows[name] >= low) & (rows[name] <= high)
        if not (is_allowed | np.isnan(rows[name]) if name in _OPTIONAL else is_allowed).all():
            raise ArgumentError(("pending", name), rows[name], f"numbers in [{low:g}, {high:g}]")
    of_decision = [name for name in FIXED if name.startswith("decision.")]
    for id_, arm, preferred, rival, (x, *numbers) in zip(*(names[name] for name in NAMES), rows.tolist(), strict=True):
        values: dict[str, Any] = dict(zip(fields, numbers, strict=True))
        values |= {name: None for name in _OPTIONAL if math.isnan(values[name])}
        own = {name.removeprefix("decision."): values.pop(name) for name in of_decision}
        own["projected"] = None if own["projected"] is None else bool(own["projected"])
        own |= {"id": id_, "time": to_datetime(values["time"])}
        own |= {"arm": check_name("arm", arm), "preferred": check_name("preferred", preferred)}
        own["rival"] = None if rival is None else check_name("rival", rival)
        yield Pending(x=x.copy(), decision=Decision(**own), **values)


def _number(value: Any) -> float:
    return check_number("number", value, "that is finite", math.isfinite, booleans=False)


def _optional(value: Any) -> float | None:
    return None if value is None else _number(value)


def _describe(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


# --- the bytes -------------------------------------------------------------------------------------------------------


def write_archive(document: Mapping[str, Any], arrays: Arrays) -> bytes:
    """Return the content of a file."""
    buffer, text = io.BytesIO(), json.dumps(document).encode()
    if objects := [name for name, array in arrays.items() if array.dtype.hasobject]:
        raise TypeError(f"{objects[0]}: an array of Python objects cannot be stored")
    entries: dict[str, Any] = {"document": np.array(text), **dict(sorted(arrays.items()))}
    np.savez(buffer, **entries)
    content = buffer.getvalue()
    return f"{FORMAT} {VERSION} {hashlib.sha256(content).hexdigest()}\n".encode() + content


def read_archive(content: bytes, where: str) -> tuple[dict[str, Any], Arrays]:
    """Return the document and the arrays, if complete and unchanged; ``where`` names the file in errors."""
    line, _, body = content.partition(b"\n")
    kind, version, digest = ([b"", b"", b""] + line.rsplit(b" ", 2))[-3:]
    if kind != FORMAT.encode():
        problem = f"is not an agent's file, or was written before version {VERSION} of its format"
        raise FileError(where, "format", problem)
    if version not in (str(VERSION).encode(), str(OLDER).encode()):
        problem = (
            f"has version {format_value(version.decode(errors='replace'))} of the format of agents; this release reads "
            f"version {VERSION}, so create a new agent and train it on the history"
        )
        raise FileError(where, "version", problem)
    if digest != hashlib.sha256(body).hexdigest().encode():
        raise FileError(where, "digest", "was damaged, changed or cut short: its digest does not match")
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            infos = archive.infolist()
        # A forged file could hold far more than its length: compressed entries, or entries on top of each other.
        if any(info.compress_type for info in infos) or sum(info.file_size for info in infos) > len(body):
            raise ValueError("its entries are compressed, or overlap")
        arrays = dict(np.load(io.BytesIO(body), allow_pickle=False))
        document = dict(json.loads(arrays.pop("document").item()))
        if version == str(OLDER).encode():
            _add_start(document)
        return document, arrays
    except Exception as error:  # zipfile, NumPy and json raise errors of many types
        raise FileError(where, "archive", f"cannot be read: {_describe(error)}") from None


def _add_start(document: dict[str, Any]) -> None:
    """Complete a document of version :data:`OLDER`, whose calibration counts every decision."""
    tally = document["tally"]
    document["calibration"]["start"] = 0 if tally["settled"] or tally["history_rows"] else None


def refuse_older(content: bytes, where: str) -> None:
    """Raise if an agent's file has an older version: it is read, but a replay with this release gives other sums."""
    if content.startswith(f"{FORMAT} {OLDER} ".encode()):
        raise FileError(
            where, "version", f"has version {OLDER} of the format of agents; a replay gives version {VERSION}"
        )
