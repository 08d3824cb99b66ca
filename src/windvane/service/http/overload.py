"""Limits on concurrent requests and bodies, so that one client leaves room for others."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from windvane.service.problems import Problem

MAX_REQUESTS, MAX_BODY_BYTES = 1000, 64 << 20
"""Largest number of concurrent requests, and of bytes in their bodies. Idle connections do not count."""
SHARE_OF_CLIENT = 0.5  # of both limits, so that one client cannot lock out the others
CROWD = 32  # concurrent requests of one client; beyond that they take turns, and others do not wait for them
SMALL_BODY = 1 << 16  # bytes that are not counted, to save time
UNDER_WAY = "windvane.under_way"  # in the scope: the client and the bytes of the body


class Load:
    """Requests in progress and the bytes of their bodies, in total and by client.

    Examples
    --------
    >>> load, scope = Load(), {}
    >>> load.begin(scope, "token shop")
    >>> len(load.requests), load.end(scope), len(load.requests)
    (1, None, 0)
    """

    def __init__(self) -> None:
        self.requests: dict[str, int] = {}
        self.bytes: dict[str, int] = {}
        self._all_requests = self._all_bytes = 0

    def begin(self, scope: MutableMapping[str, Any], client: str) -> None:
        """Count a request of ``client``, or raise if too many are in progress. :meth:`end` must follow."""
        own = self.requests.get(client, 0)
        _check("requests", self._all_requests + 1, own + 1, MAX_REQUESTS)
        self._all_requests += 1
        self.requests[client] = own + 1
        scope[UNDER_WAY] = [client, 0]

    def is_crowded(self, scope: MutableMapping[str, Any]) -> bool:
        """Return whether the client of a request has many others in progress."""
        return UNDER_WAY in scope and self.requests[scope[UNDER_WAY][0]] > CROWD

    def grow(self, scope: MutableMapping[str, Any], size: int) -> None:
        """Record that a request's body has ``size`` bytes so far, or raise if all bodies together are too large."""
        client, before = scope[UNDER_WAY]
        added, own = size - before, self.bytes.get(client, 0)
        _check("bytes of bodies", self._all_bytes + added, own + added, MAX_BODY_BYTES)
        scope[UNDER_WAY][1] = size
        self._all_bytes += added
        self.bytes[client] = own + added

    def end(self, scope: MutableMapping[str, Any]) -> None:
        """Record the end of a request; do nothing if it was not admitted."""
        if UNDER_WAY in scope:
            client, size = scope.pop(UNDER_WAY)
            self._all_requests -= 1
            self._all_bytes -= size
            _subtract(self.requests, client, 1)
            if size:
                _subtract(self.bytes, client, size)


def _subtract(counts: dict[str, int], client: str, amount: int) -> None:
    """Count less for a client, and forget one that has nothing left."""
    counts[client] -= amount
    if not counts[client]:
        del counts[client]


def _check(what: str, amount: int, own: int, most: int) -> None:
    """Raise if all clients together, or this client, would exceed the limit."""
    if own > SHARE_OF_CLIENT * most:
        detail = f"one client may have {SHARE_OF_CLIENT * most:,.0f} {what} in progress at once; try again"
    elif amount > most:
        detail = f"{most:,} {what} are in progress; try again"
    else:
        return
    raise Problem("overloaded", detail, retry_after=1)
