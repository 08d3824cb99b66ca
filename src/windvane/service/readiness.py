"""Why the service is not ready: a machine-readable code, and a sentence that is safe to show to anyone."""

from __future__ import annotations

import errno
from typing import NamedTuple

from windvane.errors import WindvaneError
from windvane.service.problems import Problem
from windvane.service.store import STORE_ERRORS, DatabaseError, MisplacedError, NoConnectionError, StoreError, is_damage

CAUSES = {
    "starting": "the service is starting",
    "recovering": "the streams are being rebuilt from the log",
    "compiling": "kernels are being compiled; the first start on a machine takes about ten seconds",
    "damaged": "the store is damaged; it is being repaired, or the repair failed",
    "disk": "the store cannot be read or written",
    "stalled": "the disk does not respond",
    "misplaced": "the store file was moved, removed or replaced",
    "database": "the database does not respond",
    "clock": "the clock of this machine differs from that of the database",
    "address": "this node cannot be reached at its address",
    "token": "other machines can reach this node, and the store has no token: add one",
    "name": "another node has the same name",
    "standby": "the database commits to no standby",
    "format": "the store has another format",
    "internal": "an error in the service itself",
    "stopping": "the service is stopping",
}
"""Every code, with what it means."""


CAUSES_OF_STORES = {
    "unreachable": "database",
    "refused": "database",
    "not_a_store": "database",
    "clock": "clock",
    "name_taken": "name",
    "no_standby": "standby",
    "format": "format",
}
"""The cause by the code of a :class:`windvane.service.store.StoreError`; for any other code it is "damaged"."""
DETAILS_OF_STORES = {
    "refused": "the database cannot be used; the log says why",
    "not_a_store": "the database has tables of another application",
}
"""By the same code: the sentence, where that of the cause is not true."""


class StalledDiskError(WindvaneError, TimeoutError):
    """A write to the store ``name`` has taken ``seconds``, so long that nobody should wait for it."""

    def __init__(self, name: str, seconds: float) -> None:
        self.name, self.seconds = name, seconds
        super().__init__(f"{name}: the disk has not responded for {seconds:g} s")


class NotReady(NamedTuple):
    """Why no request is answered: one of :data:`CAUSES`, and a sentence without private details.

    Examples
    --------
    >>> NotReady.of("recovering", "3 of 10 streams")
    NotReady(code='recovering', text='recovering: 3 of 10 streams')
    >>> NotReady.after(OSError(28, "No space left on device"))
    NotReady(code='disk', text='disk: the store cannot be read or written (ENOSPC)')
    """

    code: str
    text: str

    @classmethod
    def of(cls, code: str, detail: str = "") -> NotReady:
        """Return a cause; ``detail`` is public."""
        return cls(code, f"{code}: {detail or CAUSES[code]}")

    @classmethod
    def after(cls, error: BaseException) -> NotReady:
        """Return the cause for ``error``. Its message goes only to the log, because it may name files."""
        if isinstance(error, StalledDiskError):
            return cls.of("stalled")
        if isinstance(error, MisplacedError):
            return cls.of("misplaced")
        if isinstance(error, StoreError) and error.code in CAUSES_OF_STORES:
            return cls.of(CAUSES_OF_STORES[error.code], DETAILS_OF_STORES.get(error.code, ""))
        if is_damage(error) or isinstance(error, StoreError):
            return cls.of("damaged")
        if isinstance(error, DatabaseError):
            return cls.of("database", "the database cannot be written to; the log says why" if error.is_refusal else "")
        if not isinstance(error, (*STORE_ERRORS, OSError)):
            return cls.of("internal")
        number = error.errno if isinstance(error, OSError) else None
        name = getattr(error, "sqlite_errorname", None) or errno.errorcode.get(number or 0)
        return cls.of("disk", f"{CAUSES['disk']} ({name})" if name else "")


def refuse_read(error: BaseException) -> Problem:
    """Return the problem of a request for which the store could not be read; a TimeoutError: not in time."""
    if isinstance(error, NoConnectionError):
        detail = "all connections of this node to its database are in use; try again"
        return Problem("unavailable", detail, cause="busy")
    cause = "stalled" if isinstance(error, TimeoutError) else NotReady.after(error).code
    return Problem("unavailable", "the store cannot be read", cause=cause)


def unavailable(failure: NotReady) -> Problem:
    """Return the problem of a request that arrives while the service is not ready."""
    return Problem("unavailable", f"not ready: {failure.text}", cause=failure.code)
