"""The file an agent is saved to: a ZIP archive, nothing compressed, of one JSON document and NumPy arrays.

``agent.json``       {"format": "windvane agent", "version": 4, "digest": ..., and what the agent wrote}
``NAME.npy``         its arrays, each in NumPy's own format (no objects, so nothing in it can run code)

``digest`` is the SHA-256 of all entries in the order of their names: name, a zero byte, length as 8 bytes
(little-endian), content; ``agent.json`` counts with its digest left empty, no spaces. It guards against damage, not
against someone who can compute a SHA-256.

The keys of ``agent.json`` stand in the order in which the agent wrote them: the order of declared fields is the order
of the model's coefficients. Versions 1 and 2 sorted the keys and so gave coefficients to other features than they were
learned for; their files are refused. So are those of version 3, whose policies had other state.

There is one file for every content: archive entries are sorted by name and follow each other without gaps, dates are
those of 1980, arrays are little-endian. So equal agents give equal bytes, and a file with any other byte in it is
refused. Any tool that reads ZIP, JSON and .npy can read it.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.errors import WindvaneError, format_value

FORMAT, VERSION = "windvane agent", 4
SORTED = (1, 2)  # versions whose keys were sorted
HEADER = "agent.json"
_LARGEST = 2**32 - 1  # bytes, as the plain ZIP format has it
TOO_LARGE = "is too large to be saved: its file would be longer than 4 GiB"
_DATE = 0x21  # the first of January 1980
_TYPES = "biufU"  # kinds of dtypes that hold data and nothing else

Arrays = dict[str, npt.NDArray[Any]]


class FileError(WindvaneError, ValueError):
    """A file does not hold an agent, or is damaged.

    ``where`` names the file and ``problem`` says what is wrong. ``code`` is the part of the file that is wrong:
    "archive", "header", "version", "digest", "layout", "array", "state" or "size". For "state", the error that the
    agent raised is ``__cause__``.
    """

    def __init__(self, where: str, code: str, problem: str) -> None:
        self.where, self.code, self.problem = where, code, problem
        super().__init__(f"{where}: {problem}")


def packed(document: Mapping[str, Any], arrays: Arrays) -> bytes:
    """One file's content."""
    entries = {f"{name}.npy": _array_bytes(array) for name, array in arrays.items()}
    head = {"format": FORMAT, "version": VERSION, "digest": "", **document}
    head["digest"] = _digest(entries | {HEADER: _json_bytes(head)})
    return _archive(entries | {HEADER: _json_bytes(head)})


def unpacked(content: bytes, where: str) -> tuple[dict[str, Any], Arrays]:
    """The document and the arrays, if all is there and unchanged; ``where`` is what an error calls the file."""
    entries = _entries(content, where)
    try:
        head = json.loads(entries[HEADER])
        kind, version, digest = head["format"], head["version"], head["digest"]
        found = _digest(entries | {HEADER: _json_bytes({**head, "digest": ""})})
    except (ValueError, TypeError, KeyError, RecursionError):
        raise FileError(where, "header", f"{HEADER} is missing or cannot be read") from None
    if kind == FORMAT and version in SORTED:
        raise FileError(
            where,
            "version",
            f"has version {version!r}, which stored fields in alphabetical order, so its coefficients may belong to "
            "the wrong features; create a new agent and train it on the history",
        )
    if kind != FORMAT or version != VERSION or isinstance(version, bool | float):
        found_format = f"has format {format_value(kind)}, version {format_value(version)}"
        raise FileError(where, "version", f"{found_format}; this release reads version {VERSION}")
    if digest != found or entries[HEADER] != _json_bytes(head):
        raise FileError(where, "digest", "was damaged or changed: its digest does not match")
    if content != _archive(entries):
        raise FileError(where, "layout", "was damaged or changed: it is not laid out as it was written")
    arrays = {name.removesuffix(".npy"): _array(where, name, data) for name, data in entries.items() if name != HEADER}
    return head, arrays


def _entries(content: bytes, where: str) -> dict[str, bytes]:
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


def _archive(entries: Mapping[str, bytes]) -> bytes:
    """The one ZIP archive of ``entries``; written here, so that it is the same wherever and whenever it is written."""
    body, directory = bytearray(), bytearray()
    for name, data in sorted(entries.items()):
        if max(len(body), len(data)) > _LARGEST:
            raise FileError("agent", "size", TOO_LARGE)
        encoded = name.encode()
        # version needed, flags (bit 11: names are UTF-8), method 0: stored, time, date, CRC, two sizes, lengths
        common = struct.pack("<5H3L2H", 20, 0x800, 0, 0, _DATE, zlib.crc32(data), len(data), len(data), len(encoded), 0)
        directory += b"PK\1\2" + struct.pack("<H", 20) + common + struct.pack("<3H2L", 0, 0, 0, 0, len(body)) + encoded
        body += b"PK\3\4" + common + encoded + data
    if len(body) > _LARGEST:
        raise FileError("agent", "size", TOO_LARGE)
    end = struct.pack("<4H2LH", 0, 0, len(entries), len(entries), len(directory), len(body), 0)
    return bytes(body + directory + b"PK\5\6" + end)


def _json_bytes(document: Mapping[str, Any]) -> bytes:
    """In the order of the document: it is that of the declared features."""
    return json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


def _array_bytes(array: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    little = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
    np.lib.format.write_array(buffer, little, allow_pickle=False)
    return buffer.getvalue()


def _array(where: str, name: str, data: bytes) -> npt.NDArray[Any]:
    """Return an array of numbers or text that takes up all of ``data``."""
    stream = io.BytesIO(data)
    try:
        if np.lib.format.read_magic(stream) != (1, 0):
            raise _array_error(where, name, "its version is not 1.0")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        if dtype.kind not in _TYPES or fortran:
            raise _array_error(where, name, "it may hold numbers and texts only, row by row")
        if math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
            raise _array_error(where, name, "its size does not match its content")
        found = np.frombuffer(data, dtype, offset=stream.tell()).reshape(shape)
        return found.astype(dtype.newbyteorder("="))
    except FileError:
        raise
    except Exception as error:  # NumPy raises errors of many types for an invalid header
        raise _array_error(where, name, " ".join(str(error).split())) from None


def _array_error(where: str, name: str, reason: str) -> FileError:
    return FileError(where, "array", f"the array {name} cannot be read ({reason})")


def _digest(entries: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name in sorted(entries):
        digest.update(name.encode() + b"\0" + len(entries[name]).to_bytes(8, "little"))
        digest.update(entries[name])
    return digest.hexdigest()
