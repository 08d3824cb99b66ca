"""The file of an agent: a ZIP archive, nothing compressed, of one JSON document and NumPy arrays.

``agent.json`` has ``format``, ``version``, ``digest`` and

=============  =====================================================================================================
entry          meaning
=============  =====================================================================================================
settings       the arguments of :class:`windvane.Agent`; null: a link or policy of one's own; features with the ranges
               that were fitted, in the order of the coordinates. A number that is not finite is {"number": "inf"}
feature_names  what each coordinate of the parameter belongs to; a file whose features make other names is refused
columns        of the first frame of raw vectors, which set the order of the coordinates, or null
to_fit         [whether the scaling is still to be fitted, whether ranges of features are]
tally          the counts of :class:`windvane.agent.core.Tally` by name
times          [when the policy's round 1 was, where forgetting goes by the clock; the last time seen], or null
pending        {"id", "arm", "preferred", "rival"}: of each decision that is open, the oldest first
closed         [id, reward, late reward, is_partial, is_dropped] for the last that were closed, the oldest first (see
               :class:`windvane.agent.pending.ClosedOutcome`)
early          the arms with a delay histogram of their own, with ``learn="early"``, or null
=============  =====================================================================================================

``NAME.npy`` are arrays in NumPy's own format (no objects, so nothing in it can run code): ``policy/...``
(:meth:`windvane.Policy.state`), ``center``, ``spread``; of the open decisions ``pending/x`` (the vector played) and a
column for each entry of ``COLUMNS`` (NaN or -1: none); ``early/delays`` and ``early/counts``
(:meth:`windvane.agent.delays.DelayModel.arrays`); ``recent/projected`` and ``recent/dropped`` (0 or 1 for each of the
last decisions, and of the last that were closed).

``digest`` is the SHA-256 of all entries in the order of their names: name, a zero byte, length as 8 bytes
(little-endian), content; ``agent.json`` counts with an empty digest. It guards against damage, not against someone who
can compute a SHA-256. Entries are sorted by name, dates are those of 1980, arrays are little-endian: equal agents give
equal bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import math
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from windvane.agent.alerts import RECENT, RecentShare
from windvane.agent.delays import LOOKS, DelayModel, EarlyLearning
from windvane.agent.features import check_flag, check_name, check_names
from windvane.agent.pending import ClosedOutcome, Pending
from windvane.arguments import NORM_SLACK, check_array, check_number, check_whole
from windvane.errors import ArgumentError, WindvaneError, format_value
from windvane.links import Link
from windvane.policies.base import Policy
from windvane.records import Decision, to_datetime

if TYPE_CHECKING:
    from windvane.agent.core import AgentCore

FORMAT, VERSION = "windvane agent", 5
HEADER = "agent.json"
NAMES = ("id", "arm", "preferred", "rival")
MOST = 2**53
_ANY, _COUNT, _SHARE, _FLAG = ("f8", -math.inf, math.inf), ("i8", 0, MOST), ("f8", 0, 1), ("i1", 0, 1)
COLUMNS: dict[str, tuple[str, float, float]] = {
    "round": _ANY, "time": _ANY, "number": _COUNT, "index": _COUNT, "prediction": _ANY, "bonus": _ANY,
    "propensity": _SHARE, "rival_score": _ANY, "explored": _FLAG, "projected": ("i1", -1, 1), "reward": _ANY,
    "delay": ("f8", 0, math.inf), "looks": ("i1", 0, LOOKS), "credited": _SHARE, "is_learned": _FLAG, "is_miss": _FLAG,
    "is_partial": _FLAG,
}  # fmt: skip
"""Numbers of an open decision: type, smallest and largest value."""
_OPTIONAL = ("propensity", "rival_score", "reward", "delay")  # NaN: None
_CHANGING = ("reward", "delay", "looks", "credited", "is_learned", "is_miss", "is_partial")
_KINDS = "biufU"  # of dtypes that hold data and nothing else

Arrays = dict[str, npt.NDArray[Any]]


class FileError(WindvaneError, ValueError):
    """A file does not hold an agent, or is damaged.

    ``where`` names the file and ``problem`` says what is wrong. ``code`` is the part of the file that is wrong:
    "archive", "header", "version", "digest", "array", "state" or "size". For "state", the error that the agent raised
    is ``__cause__``.
    """

    def __init__(self, where: str, code: str, problem: str) -> None:
        self.where, self.code, self.problem = where, code, problem
        super().__init__(f"{where}: {problem}")


# --- from an agent to its file and back ------------------------------------------------------------------------------


def pack(core: AgentCore) -> Callable[[], bytes]:
    """Copy the state of an agent. The function returned makes the bytes of its file, at any time, in any thread."""
    arrays = {f"policy/{name}": array for name, array in core.policy.state().items()}
    scaling, clock = core.encoder.scaling, core.clock
    arrays["center"], arrays["spread"] = scaling.center, scaling.spread  # replaced, never written to
    arrays["recent/projected"] = np.array(core.recently_projected.marks, dtype=np.int8)
    arrays["recent/dropped"] = np.array(core.recently_dropped.marks, dtype=np.int8)
    pending, dim = list(core.decisions), core.policy.dim
    changing = {name: [getattr(each, name) for each in pending] for name in _CHANGING}  # the rest never changes
    settings = dict(core.settings)
    document: dict[str, Any] = {
        "feature_names": core.feature_names,
        "columns": core.encoder.columns,
        "to_fit": [scaling.to_fit, core.encoder.fits_features],
        "tally": dataclasses.asdict(core.tally),
        "times": [clock.first, None if math.isinf(clock.last) else clock.last],
        "closed": [[key, *outcome] for key, outcome in core.decisions.closed.items()],
        "early": None if core.early is None else list(core.early.model.arms),
    }
    if core.early is not None:
        arrays["early/delays"], arrays["early/counts"] = core.early.model.arrays()

    def finish() -> bytes:
        document["settings"] = {name: _write_setting(name, value) for name, value in settings.items()}
        document["pending"] = {name: [getattr(each.decision, name) for each in pending] for name in NAMES}
        return write_archive(document, arrays | _write_columns(pending, changing, dim))

    return finish


def unpack(
    cls: type[AgentCore], content: bytes, link: Link | None, policy: type[Policy] | None, where: str
) -> AgentCore:
    """Return the agent in ``content``; ``where`` is what an error calls it."""
    document, arrays = read_archive(content, where)
    try:
        settings = {name: _read_setting(value) for name, value in document["settings"].items()}
        is_own = {name: settings[name] is None for name in ("link", "policy")}
    except Exception:  # a forged document can hold anything
        raise FileError(where, "state", "cannot be loaded: it is not the document of an agent") from None
    for name, value in (("link", link), ("policy", policy)):
        if is_own[name] and value is None:
            raise ArgumentError(name, None, f"given, because the agent has a {name} that is not windvane's own")
        if value is not None and not is_own[name]:
            raise ArgumentError(name, value, f"omitted, because the agent already has {settings[name]!r}")
        settings[name] = value if is_own[name] else settings[name]
    try:
        core = cls(**settings)
        _restore(core, document, arrays)
    except Exception as error:  # a forged document can hold anything
        reason = " ".join(str(error).split())
        raise FileError(where, "state", f"cannot be loaded: {reason or type(error).__name__}") from error
    return core


def _restore(core: AgentCore, document: Mapping[str, Any], arrays: Arrays) -> None:
    core.policy.load_state(
        {name.removeprefix("policy/"): array for name, array in arrays.items() if name.startswith("policy/")}
    )
    encoder, scaling, dim = core.encoder, core.encoder.scaling, core.encoder.scaling.raw_dim
    scaling.set(check_array("center", arrays["center"], (dim,)), check_array("spread", arrays["spread"], (dim,)))
    scaling.to_fit, encoder.fits_features = map(bool, document["to_fit"])
    encoder.columns = None if document["columns"] is None else check_names("columns", document["columns"])
    if core.feature_names != document["feature_names"]:
        expected = "the names of the declared features in their order"
        raise ArgumentError("feature_names", document["feature_names"], expected)
    for name, start in dataclasses.asdict(core.tally).items():
        value = document["tally"][name]
        setattr(core.tally, name, _number(value) if isinstance(start, float) else check_whole(name, value, 0, MOST))
    first, last = map(_optional, document["times"])
    core.clock.first, core.clock.last = first, -math.inf if last is None else last
    for pending in _read_columns(document["pending"], arrays, core):
        core.decisions.add(pending)
    core.decisions.closed = OrderedDict(
        (key, ClosedOutcome(_optional(reward), _optional(late), *(check_flag("closed", flag) for flag in flags)))
        for key, reward, late, *flags in document["closed"]
    )
    ids = [*document["pending"]["id"], *core.decisions.closed]
    if len(set(ids)) < len(ids) or not all(isinstance(key, str) for key in ids):
        raise ArgumentError("pending", None, "decisions with different ids that are texts", got="others")
    if core.early is not None:
        arms = check_names("early", document["early"])
        model = DelayModel.from_arrays(arms, arrays["early/delays"], arrays["early/counts"])
        core.early = EarlyLearning(core.decisions, model)
    core.recently_projected = _read_share("recent/projected", arrays)
    core.recently_dropped = _read_share("recent/dropped", arrays)


def _write_columns(pending: Sequence[Pending], changing: Mapping[str, Sequence[Any]], dim: int) -> Arrays:
    """Return all but the names of open decisions as arrays: there may be very many of them."""
    arrays: Arrays = {"pending/x": np.array([each.x for each in pending]).reshape(-1, dim)}
    for name, (dtype, _, _) in COLUMNS.items():
        if name in changing:
            values = changing[name]
        elif name in ("round", "time", "number"):
            values = [getattr(each, name) for each in pending]
        else:
            values = [getattr(each.decision, name) for each in pending]
        none = math.nan if dtype == "f8" else -1
        arrays[f"pending/{name}"] = np.array([none if value is None else value for value in values], dtype=dtype)
    return arrays


def _read_columns(names: Mapping[str, Any], arrays: Arrays, core: AgentCore) -> list[Pending]:
    """Return the open decisions that :func:`_write_columns` wrote, if they are possible."""
    count, policy, columns = len(names["id"]), core.policy, {}
    vectors = check_array("pending", arrays["pending/x"], (count, policy.dim))
    if not (np.linalg.norm(vectors, axis=1) <= policy.L * NORM_SLACK).all():
        raise ArgumentError("pending", None, f"vectors of norm at most {policy.L:g}", got="another one")
    for name, (dtype, low, high) in {**COLUMNS, "reward": ("f8", *core.reward_range)}.items():
        column = arrays[f"pending/{name}"]
        is_allowed = (column >= low) & (column <= high)
        if name in _OPTIONAL:
            is_allowed |= np.isnan(column)
        if column.dtype != dtype or column.shape != (count,) or not is_allowed.all():
            raise ArgumentError(("pending", name), None, f"{count} numbers in [{low:g}, {high:g}]", got="others")
        columns[name] = column.tolist()
        if name in _OPTIONAL:
            columns[name] = [None if math.isnan(value) else value for value in columns[name]]
    if any(round_ > policy.latest_round or not math.isfinite(round_) for round_ in columns["round"]):
        raise ArgumentError(("pending", "round"), None, "rounds of the past", got="others")
    for name in NAMES[1:]:
        if len(names[name]) != count:
            raise ArgumentError(("pending", name), None, f"{count} names", got=str(len(names[name])))
        for value in {(type(value), value) for value in names[name]}:  # 1, 1.0 and True are equal, not the same name
            if name != "rival" or value[1] is not None:
                check_name(("pending", name), value[1])
    rows = zip(*columns.values(), *(names[name] for name in NAMES), strict=True)
    return [
        _read_pending(x, dict(zip((*columns, *NAMES), row, strict=True))) for x, row in zip(vectors, rows, strict=True)
    ]


def _read_pending(x: npt.NDArray[np.float64], row: dict[str, Any]) -> Pending:
    row["projected"] = None if row["projected"] < 0 else bool(row["projected"])
    for name in ("explored", "is_learned", "is_miss", "is_partial"):
        row[name] = bool(row[name])
    at = row["time"]
    row["time"] = to_datetime(at)
    decision = Decision(**{name: row[name] for name in Decision.__dataclass_fields__})
    return Pending(x.copy(), row["round"], row["number"], at, decision, **{name: row[name] for name in _CHANGING})


def _read_share(name: str, arrays: Arrays) -> RecentShare:
    marks = arrays[name]
    if marks.dtype != np.int8 or marks.ndim != 1 or len(marks) > RECENT or not np.isin(marks, (0, 1)).all():
        raise ArgumentError(name, marks, f"at most {RECENT} zeros and ones")
    return RecentShare(marks.astype(bool).tolist())


def _number(value: Any) -> float:
    return check_number("number", value, "that is finite", math.isfinite, booleans=False)


def _optional(value: Any) -> float | None:
    return None if value is None else _number(value)


def _write_setting(name: str, value: Any) -> Any:
    """Return a setting as JSON has it."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": repr(float(value))}
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list):
        return [_write_setting(name, entry) for entry in value]
    if isinstance(value, dict):
        return {key: _write_setting(name, entry) for key, entry in value.items()}
    raise ArgumentError(name, value, "a number, a text or a list of these in an agent that is saved")


def _read_setting(value: Any) -> Any:
    """Return what :func:`_write_setting` wrote."""
    if isinstance(value, dict):
        if set(value) == {"number"}:
            return float(value["number"])
        return {key: _read_setting(entry) for key, entry in value.items()}
    return [_read_setting(entry) for entry in value] if isinstance(value, list) else value


# --- the archive -----------------------------------------------------------------------------------------------------


def write_archive(document: Mapping[str, Any], arrays: Arrays) -> bytes:
    """Return the content of a file."""
    entries = {f"{name}.npy": _write_array(array) for name, array in arrays.items()}
    head = {"format": FORMAT, "version": VERSION, "digest": "", **document}
    head["digest"] = _digest(entries | {HEADER: _write_json(head)})
    entries[HEADER] = _write_json(head)
    buffer = io.BytesIO()
    try:
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
            for name, content in sorted(entries.items()):
                info = zipfile.ZipInfo(name)  # its date is that of 1980
                info.create_system = 3  # on every system, so that bytes are equal
                archive.writestr(info, content)
    except zipfile.LargeZipFile:
        problem = "is too large to be saved: its file would be longer than 4 GiB"
        raise FileError("agent", "size", problem) from None
    return buffer.getvalue()


def read_archive(content: bytes, where: str) -> tuple[dict[str, Any], Arrays]:
    """Return the document and the arrays, if all is there and unchanged; ``where`` is what an error calls the file."""
    entries = _read_entries(content, where)
    try:
        head = json.loads(entries[HEADER])
        kind, version, stated = head["format"], head["version"], head["digest"]
        digest = _digest(entries | {HEADER: _write_json({**head, "digest": ""})})
    except (ValueError, TypeError, KeyError, RecursionError):
        raise FileError(where, "header", f"{HEADER} is missing or cannot be read") from None
    if kind != FORMAT or version != VERSION or isinstance(version, bool | float):
        problem = (
            f"has format {format_value(kind)}, version {format_value(version)}; this release reads version {VERSION}, "
            "so create a new agent and train it on the history"
        )
        raise FileError(where, "version", problem)
    if stated != digest or entries[HEADER] != _write_json(head):
        raise FileError(where, "digest", "was damaged or changed: its digest does not match")
    arrays = {
        name.removesuffix(".npy"): _read_array(where, name, data) for name, data in entries.items() if name != HEADER
    }
    return head, arrays


def _read_entries(content: bytes, where: str) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            infos = archive.infolist()
            if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
                raise FileError(where, "archive", "has compressed entries, which an agent's file never has")
            if sum(info.file_size for info in infos) > len(content):  # entries on top of each other
                raise FileError(where, "archive", "declares more content than the file has bytes")
            return {info.filename: archive.read(info) for info in infos}
    except FileError:
        raise
    except Exception as error:  # zipfile raises errors of many types for a damaged archive
        reason = " ".join(str(error).split())
        raise FileError(where, "archive", f"is not an agent's file, or is cut short ({reason})") from None


def _write_json(document: Mapping[str, Any]) -> bytes:
    """Return JSON in the order of the document, which is that of the declared features."""
    return json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


def _write_array(array: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    little = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
    np.lib.format.write_array(buffer, little, allow_pickle=False)
    return buffer.getvalue()


def _read_array(where: str, name: str, data: bytes) -> npt.NDArray[Any]:
    """Return an array of numbers or text that takes up all of ``data``."""
    stream = io.BytesIO(data)
    try:
        if np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError("its version is not 1.0")
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        if dtype.kind not in _KINDS or is_fortran:
            raise ValueError("it may hold numbers and texts only, row by row")
        if math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
            raise ValueError("its size does not match its content")
        return np.frombuffer(data, dtype, offset=stream.tell()).reshape(shape).astype(dtype.newbyteorder("="))
    except Exception as error:  # NumPy raises errors of many types for an invalid header
        reason = " ".join(str(error).split())
        raise FileError(where, "array", f"the array {name} cannot be read ({reason})") from None


def _digest(entries: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name in sorted(entries):
        digest.update(name.encode() + b"\0" + len(entries[name]).to_bytes(8, "little"))
        digest.update(entries[name])
    return digest.hexdigest()
