"""What a node has to do with the other nodes of its cluster over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from windvane.service.cluster.placement import Placement
from windvane.service.http.access import Access
from windvane.service.http.forwarding import Forwarder
from windvane.service.http.node_checks import NodeChecks


class OtherNodes:
    """Forwards requests to other nodes, and checks whether all nodes answer at their addresses.

    Parameters
    ----------
    placement
        The streams of this node.
    access
        The tokens, which the checks refresh.
    closing
        Set when the server is about to stop.
    """

    def __init__(self, placement: Placement, access: Access, closing: asyncio.Event) -> None:
        self.checks = NodeChecks(placement, access, closing)
        self.placement = placement
        self.forwarder = Forwarder(placement.read_secret, self.checks.is_wrong_url, placement.has_left)
        placement.find_problem = self.checks.find_problem
        placement.on_map += [self.forwarder.note_map, self.checks.note_map]

    @contextlib.asynccontextmanager
    async def watch(self) -> AsyncIterator[None]:
        """Check the nodes periodically inside the block. Afterwards, close the connections to them."""
        checking = asyncio.create_task(self.checks.run())
        yield
        checking.cancel()
        await self.forwarder.close()
