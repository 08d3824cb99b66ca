"""Where requests go: to one of the given addresses, or to the node of a cluster that owns the stream."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator

from windvane.client.address import Address, Headers
from windvane.client.messages import ClientError
from windvane.cluster_map import ClusterInfo, shard_of

OWNER = b"x-windvane-owner"  # header of an answer that was forwarded: the address of the node that owns the stream
OWNER_LENGTH = len(OWNER)
FETCH_SECONDS = 1.0  # between two requests for the map
SUSPENSION_SECONDS = 60.0  # in which no map is used, after one named a node that this client cannot use
# Codes of errors that another service may give, or a node that does not expect requests from outside.
FOREIGN = ("untrusted", "not-understood", "http", "wrong-host", "no-token", "wrong-token")


class ClusterMap:
    """Which node owns which shard. Never changed, so that threads may share it.

    ``nodes``: addresses by URL, of those nodes to which requests may be sent directly.
    """

    def __init__(self, info: ClusterInfo, nodes: dict[str, Address]) -> None:
        self._shards, self._nodes = info.shards, nodes
        self._owners = {shard: _clean(node.url) for node in info.nodes for shard in node.shards}

    def find_url(self, stream: str) -> str | None:
        """Return the URL of the node that owns a stream."""
        return self._owners.get(shard_of(stream, self._shards))

    def find_address(self, stream: str) -> Address | None:
        """Return the address of the node that owns a stream, if requests may be sent to it."""
        url = self.find_url(stream)
        return None if url is None else self._nodes.get(url)


class Router:
    """What all calls of a client know about addresses.

    Threads, event loops and, after a fork, processes share it without waiting: each change is a single assignment.

    Parameters
    ----------
    given
        The addresses that the caller knows, by URL.
    build
        Returns the address of another node.
    is_following
        Whether to use the map of the cluster.
    """

    def __init__(self, given: dict[str, Address], build: Callable[[str], Address], *, is_following: bool) -> None:
        self.given, self.is_following = tuple(given.values()), is_following
        self._given_by_url, self._build = given, build
        self.place = 0  # of the given address that calls begin with
        self.map: ClusterMap | None = None
        self.wants_map = False
        self._nodes: dict[str, Address] = {}  # of the last map, by URL
        self._next_fetch = self._suspended_until = -math.inf
        self._fetching: dict[int, threading.Lock] = {}  # by process, because a fork copies a lock as it is
        self._confirmed: frozenset[str] = frozenset()  # URLs of nodes that have answered this client
        # What is meant for https, token included, must not be sent over a connection that others can read.
        self._schemes = {"https"} if any(address.scheme == "https" for address in self.given) else {"http", "https"}

    def list_given(self) -> Iterator[Address]:
        """Yield the given addresses, beginning with the one that calls begin with."""
        first = self.place
        for step in range(len(self.given)):
            yield self.given[(first + step) % len(self.given)]

    def list_addresses(self) -> set[Address]:
        """Return the addresses that are in use."""
        return {*self.given, *self._nodes.values()}

    def leave(self, address: Address) -> None:
        """Begin later calls with another of the given addresses than ``address``."""
        if self.given[self.place] is address:
            self.place = (self.place + 1) % len(self.given)

    def is_given(self, address: Address) -> bool:
        """Return whether the caller gave this address."""
        return address in self.given

    # --- the map ---------------------------------------------------------------------------------------------------

    def begin_fetch(self, now: float) -> threading.Lock | None:
        """Return a lock to release after the map has been fetched; None if it should not be fetched now."""
        lock = self._fetching.setdefault(os.getpid(), threading.Lock())
        if now < self._next_fetch or not lock.acquire(blocking=False):
            return None
        self._next_fetch = now + FETCH_SECONDS
        return lock

    def use(self, info: ClusterInfo, now: float) -> None:
        """Use a new map from now on."""
        self.wants_map = False
        if info.shards < 1:
            self.suspend(now)
            return
        urls = {_clean(node.url) for node in info.nodes}
        nodes = {url: address for url in urls if (address := self._find_node(url)) is not None}
        self._confirmed &= nodes.keys()
        self._nodes, self.map = nodes, ClusterMap(info, nodes)

    def _find_node(self, url: str) -> Address | None:
        """Return the address of a node, always the same one; None if no request may be sent to it."""
        try:
            address = self._given_by_url.get(url) or self._nodes.get(url) or self._build(url)
        except ValueError:
            return None
        return address if address.scheme in self._schemes else None

    def want_map(self, now: float) -> None:
        """Forget the map, and let the next call fetch it."""
        self.map, self.wants_map = None, now >= self._suspended_until

    def drop_map(self, outdated: ClusterMap | None) -> None:
        """Forget a map, unless there is a newer one."""
        if self.map is outdated:
            self.map = None

    def suspend(self, now: float) -> None:
        """Use no map for a while."""
        self._suspended_until, self.map, self.wants_map = now + SUSPENSION_SECONDS, None, False

    def confirm(self, address: Address) -> None:
        """Remember that a node has answered."""
        if address.url not in self._confirmed:
            self._confirmed |= {address.url}

    def is_confirmed(self, address: Address) -> bool:
        """Return whether a node has ever answered."""
        return address.url in self._confirmed or self.is_given(address)


class Route:
    """Where the attempts of one call go; ``address`` is that of the next one.

    ``is_direct``: whether that is the node which owns ``stream`` according to the map.
    """

    __slots__ = ("_map", "_place", "_router", "_unreachable", "address", "attempts", "is_direct", "pauses", "stream")

    def __init__(self, router: Router, stream: str | None = None) -> None:
        self._router, self._map, self.stream = router, router.map, stream
        self._place, self.is_direct = router.place, False
        self.attempts = self.pauses = self._unreachable = 0
        self.address = router.given[self._place]
        if self._map is not None and stream is not None and (owner := self._map.find_address(stream)) is not None:
            self.address, self.is_direct = owner, True

    def read_owner(self, headers: Headers, now: Callable[[], float]) -> None:
        """Read in an answer whether another node owns the stream: then the map is missing or out of date."""
        for name, value in headers:
            if len(name) == OWNER_LENGTH and name.lower() == OWNER:
                self._note_owner(_clean(value.decode("latin-1")), now)

    def _note_owner(self, url: str, now: Callable[[], float]) -> None:
        router, known = self._router, self._map
        if self.stream is None or not router.is_following or router.map is not known:  # it was fetched meanwhile
            return
        if known is None or known.find_url(self.stream) != url:  # else the node must not be asked directly
            router.want_map(now())

    def note_progress(self) -> None:
        """Count the attempts from here on: the last one was answered."""
        self.attempts = self.pauses = self._unreachable = 0
        if self.is_direct:
            self._router.confirm(self.address)

    def leave_owner(self, error: ClientError, now: float) -> bool:
        """Stop using the map if it led to a node that fails; return whether to ask a given address at once.

        The map is right for the nodes. A client behind a load balancer, or in another network, may find nothing at
        their addresses, or another service. Its call must not fail because of this.
        """
        router, is_foreign, is_given = self._router, error.code in FOREIGN, self._router.is_given(self.address)
        if not self.is_direct or _is_busy(error) or not (error.is_temporary or (is_foreign and not is_given)):
            return False
        is_lost = error.code in ("unreachable", "no-answer") and not router.is_confirmed(self.address)
        if not is_given and (is_foreign or is_lost):
            router.suspend(now)
        else:
            router.drop_map(self._map)
        self._map, self.is_direct = None, False
        if is_given or not (is_foreign or error.code == "unreachable"):
            return False
        self.address = router.given[self._place]
        return True

    def move_on(self, error: ClientError) -> bool:
        """Choose the address of the next attempt; return whether it may begin at once.

        It may if nothing was sent, until each of the given addresses has been tried.
        """
        if _is_busy(error):
            return False
        given, is_unreachable = self._router.given, error.code == "unreachable"
        self._router.leave(self.address)
        if self.address is given[self._place]:
            self._place = (self._place + 1) % len(given)
        self.address = given[self._place]
        self._unreachable += is_unreachable
        return is_unreachable and self._unreachable < len(given)


def _is_busy(error: ClientError) -> bool:
    """Return whether a node asks this client to slow down: another address would be no answer to that."""
    return error.status == 429 or error.code == "overloaded"


def _clean(url: str) -> str:
    return url.rstrip("/")
