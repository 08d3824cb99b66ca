"""The service's log on standard error: lines of text or JSON, with the request that they belong to.

Secrets are never logged: no tokens, no bodies, no contexts, no query strings.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import re
import sys
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TextIO

from windvane.records import to_datetime, to_plain

REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")  # valid ids of clients and proxies; others are replaced
REPEAT_SECONDS = 60.0  # between two lines of a kind that clients can cause at will
_PLAIN = re.compile(r"[^\s\"'=\\]+")  # a value that needs no quotes

access_log = logging.getLogger("windvane.access")


@dataclass(slots=True)
class RequestInfo:
    """The current request, for its log lines and its answer."""

    id: str
    peer: str
    token: str | None = None
    problem: str | None = None  # the code, if it is refused or fails
    cause: str | None = None  # of the problem "unavailable"


current_request: ContextVar[RequestInfo | None] = ContextVar("windvane_request", default=None)
"""Set in the task of a request and in the tasks that it starts."""


_PREFIX, _numbers = os.urandom(6).hex(), itertools.count(1)  # of new ids: another prefix in every process


def read_request_id(header: bytes | None) -> str:
    """Return the request id from a client or a proxy, or a new one if there is none or it is not valid."""
    text = "" if header is None else header.decode("latin-1")
    return text if text and REQUEST_ID.fullmatch(text) else f"{_PREFIX}-{next(_numbers)}"


def configure_logging(format: str = "text", level: str = "info", stream: TextIO | None = None) -> None:
    """Send the log of the process to ``stream`` (default: standard error).

    Parameters
    ----------
    format
        "text", or "json": one object per line.
    level
        Of the service's own lines; of other libraries, warnings and errors are logged. Lines about requests
        (``windvane.access``) are written at any level.
    stream
        The output stream.

    Examples
    --------
    >>> import io
    >>> output = io.StringIO()
    >>> configure_logging("json", stream=output)
    >>> logging.getLogger("windvane.service").info("ready", extra={"fields": {"streams": 2}})
    >>> line = json.loads(output.getvalue())
    >>> line["level"], line["message"], line["streams"]
    ('info', 'ready', 2)
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_JsonFormatter() if format == "json" else _TextFormatter())
    handler.addFilter(_is_worth_a_line)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("windvane").setLevel(level.upper())
    access_log.setLevel(logging.INFO)
    logging.captureWarnings(True)


class RareLog:
    """Logs lines that clients can cause at will at most once a minute per kind, with the number of omitted lines."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._lines: dict[str, tuple[float, int]] = {}  # time of the last line, omitted since

    def info(self, message: str) -> None:
        """Log ``message``, which must be one of a few kinds."""
        now = time.monotonic()
        last, omitted = self._lines.get(message, (-REPEAT_SECONDS, 0))
        if now - last < REPEAT_SECONDS:
            self._lines[message] = last, omitted + 1
            return
        self._lines[message] = now, 0
        self._log.info(message, extra={"fields": {"omitted": omitted} if omitted else {}})


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Return whether a record is more than uvicorn's traceback of a request that is given up at the end."""
    kind = record.exc_info[0] if record.exc_info else None
    return record.name != "uvicorn.error" or kind is None or not issubclass(kind, asyncio.CancelledError)


def _list_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of a line beside its message."""
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    request = current_request.get()
    known = {} if request is None else {"request_id": request.id, "peer": request.peer}
    return {**fields, **known}


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": to_plain(to_datetime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_list_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        words = [to_plain(to_datetime(record.created)), record.levelname, f"{record.name}:", record.getMessage()]
        words += [f"{name}={_quote(value)}" for name, value in _list_fields(record).items()]
        # An entry stays on one line, whatever a client puts into a name or a path.
        lines = ["".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(map(str, words)))]
        if record.exc_info:
            lines.append(self.formatException(record.exc_info))
        return "\n".join(lines)


def _quote(value: Any) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
