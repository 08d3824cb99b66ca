"""The transports of a client to several addresses."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Container

from windvane.client.address import Address
from windvane.client.transport import IDLE_SECONDS, AsyncNetwork, BlockingNetwork, Transport


class TransportPool:
    """The transports of one process and event loop, one for each address. Threads may share it."""

    def __init__(self, build_network: Callable[[], BlockingNetwork | AsyncNetwork]) -> None:
        self._build_network = build_network
        self._transports: dict[Address, Transport] = {}
        self._trusted: ssl.SSLContext | None = None
        self._next_sweep = 0.0

    def get(self, address: Address) -> Transport:
        """Return the transport to an address. If two threads create one at once, one of the two is not used."""
        if (transport := self._transports.get(address)) is not None:
            return transport
        self._trusted = self._trusted or address.load_certificates()
        transport = Transport(address, self._build_network(), self._trusted)
        return self._transports.setdefault(address, transport)

    def is_sweep_due(self) -> bool:
        """Return whether :meth:`sweep` should be called. A single transport closes its old connections itself."""
        return len(self._transports) > 1 and time.monotonic() >= self._next_sweep

    async def sweep(self, used: Container[Address]) -> None:
        """Close connections that have been unused for too long, and all those to addresses not in ``used``."""
        self._next_sweep = time.monotonic() + IDLE_SECONDS
        for address, transport in list(self._transports.items()):
            if address in used:
                await transport.close_expired()
            else:
                self._transports.pop(address, None)
                await transport.close()

    async def close(self) -> None:
        """Close all connections."""
        for address in list(self._transports):
            if (transport := self._transports.pop(address, None)) is not None:
                await transport.close()
