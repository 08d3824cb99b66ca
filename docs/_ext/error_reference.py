"""The lists of exceptions, codes of problems and causes, from where the code declares them."""

from __future__ import annotations

import builtins
import inspect

import markdown_text

import windvane
from windvane.agent import ConflictingRewardError, DecisionError, FileError, UnknownDecisionError
from windvane.client import BatchError, ClientError
from windvane.errors import ArgumentError, WindvaneError
from windvane.lab import SpecError
from windvane.lab.results.folder import FolderError
from windvane.lab.results.folder_writer import FolderWriteError
from windvane.lab.results.stored_tables import MissingLibraryError
from windvane.lab.results.summary import PairingError
from windvane.lab.run.cluster import ClusterError
from windvane.lab.run.workers import CellError
from windvane.service.problems import KINDS, REQUEST_CAUSES
from windvane.service.readiness import CAUSES
from windvane.testing import ServiceError

RAISED_BY = {
    "any part": [WindvaneError, ArgumentError],
    "`Agent`": [DecisionError, UnknownDecisionError, ConflictingRewardError, FileError],
    "`Client`, `AsyncClient`": [ClientError, BatchError],
    "the lab": [
        SpecError, FolderError, FolderWriteError, CellError, PairingError, MissingLibraryError, ClusterError,
    ],
    "`windvane.testing`": [ServiceError],
}  # fmt: skip


def write_exceptions() -> str:
    """Return the table of the exceptions."""
    rows = []
    for raised_by, exceptions in RAISED_BY.items():
        for exception in exceptions:
            bases = [base for base in exception.__mro__[1:] if base not in (WindvaneError, Exception, BaseException)]
            is_a = [f"`{base.__name__}`" for base in bases if base.__name__ in (*dir(builtins), *dir(windvane))]
            summary = markdown_text.read_docstring(inspect.getdoc(exception) or "").partition("\n\n")[0]
            rows.append((f"{{any}}`{exception.__name__}`", raised_by, ", ".join(is_a[:1]), summary))
    return markdown_text.table(("exception", "raised by", "is also a", "meaning"), rows)


def write_problems() -> str:
    """Return the table of the codes of problems, by status."""
    kinds = sorted(KINDS.items(), key=lambda item: item[1].status)
    return markdown_text.table(
        ("status", "code", "meaning"),
        [(str(kind.status), f"`{code}`", markdown_text.escape(kind.title)) for code, kind in kinds],
    )


def write_causes() -> str:
    """Return the table of the causes of the problem "unavailable"."""
    causes = {**CAUSES, **REQUEST_CAUSES}
    return markdown_text.table(
        ("cause", "meaning"), [(f"`{cause}`", markdown_text.escape(text)) for cause, text in causes.items()]
    )
