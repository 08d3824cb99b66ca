"""The file an agent is saved to: a ZIP archive, nothing compressed, of one JSON document and NumPy arrays.

``agent.json``       {"format": "windvane agent", "version": 1, "digest": ..., and what the agent wrote}
``NAME.npy``         its arrays, each in NumPy's own format (no objects, so nothing in it can run code)

``digest`` is the SHA-256 of all entries in the order of their names: name, a zero byte, length as 8 bytes
(little-endian), content; ``agent.json`` counts with its digest left empty. Equal agents give equal bytes: entries are
sorted, times are those of 1980. Any tool that reads ZIP, JSON and .npy can read it.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane._validation import shown

FORMAT, VERSION = "windvane agent", 1
HEADER = "agent.json"

Arrays = dict[str, npt.NDArray[Any]]


class FileError(ValueError):
    """Not an agent's file, or a damaged one."""


def packed(document: dict[str, Any], arrays: Arrays) -> bytes:
    """One file's content."""
    entries = {f"{name}.npy": _array_bytes(array) for name, array in arrays.items()}
    head = {"format": FORMAT, "version": VERSION, "digest": "", **document}
    head["digest"] = _digest(entries | {HEADER: _json_bytes(head)})
    entries[HEADER] = _json_bytes(head)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(entries):
            archive.writestr(zipfile.ZipInfo(name), entries[name])
    return buffer.getvalue()


def unpacked(content: bytes, where: str) -> tuple[dict[str, Any], Arrays]:
    """The document and the arrays, if all is there and unchanged; ``where`` is what an error calls the file."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            infos = archive.infolist()
            if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
                raise FileError(f"{where}: has compressed entries, which an agent's file never has")
            entries = {info.filename: archive.read(info) for info in infos}
    except (zipfile.BadZipFile, EOFError, OSError, RuntimeError, NotImplementedError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{where}: is not an agent's file, or is cut short ({error})") from None
    if HEADER not in entries or len(entries) != len(infos):
        raise FileError(f"{where}: is not an agent's file (it has no {HEADER})")
    try:
        head = json.loads(entries[HEADER])
        known = head["format"] == FORMAT
        version, digest = head["version"], head["digest"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise FileError(f"{where}: its {HEADER} cannot be read") from None
    if not known or version != VERSION:
        raise FileError(
            f"{where}: is of format {shown(head['format'])}, version {shown(version)}; this reads version {VERSION}"
        )
    if digest != _digest(entries | {HEADER: _json_bytes({**head, "digest": ""})}):
        raise FileError(f"{where}: was damaged or changed: its digest does not fit")
    arrays = {}
    for name, data in entries.items():
        if name != HEADER:
            try:
                arrays[name.removesuffix(".npy")] = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
            except (ValueError, EOFError, SyntaxError) as error:
                raise FileError(f"{where}: its array {name} cannot be read ({error})") from None
    return head, arrays


def _json_bytes(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()


def _array_bytes(array: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array, order="C"), allow_pickle=False)
    return buffer.getvalue()


def _digest(entries: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name in sorted(entries):
        digest.update(name.encode() + b"\0" + len(entries[name]).to_bytes(8, "little"))
        digest.update(entries[name])
    return digest.hexdigest()
