"""Periodic checks of a node: whether all nodes, itself included, answer at their addresses, and its tokens.

Every node sends a probe to every node of the map. A header names the sender and the receiver, and an HMAC with the
shared secret authenticates it. The secret itself is not sent. The answer is authenticated in the same way, so that
another program or another node at the address is recognised. A node whose own address is wrong is not ready, and its
log says why. If a node cannot reach itself, as in some container networks, it is enough that another node can.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import secrets
from collections.abc import Mapping
from enum import Enum

from windvane.client.address import Address
from windvane.client.transport import FAILURES, AsyncNetwork, Transport, get_header
from windvane.service.cluster.placement import Placement
from windvane.service.cluster.shard_map import Node, ShardMap
from windvane.service.http.access import Access
from windvane.service.problems import Problem
from windvane.service.readiness import NotReady

PATH = "/healthz"
PROBE, PROOF = "x-windvane-probe", "x-windvane-node"  # headers of the probe and of its answer
PAUSE_SECONDS, RETRY_SECONDS = 10.0, 1.0  # between checks: without and with a problem
PROBE_SECONDS = 2.0  # how long a node may take to answer
# A problem is logged after this many failed checks in a row: a node may be starting, or may have left its row behind.
CHECKS_BEFORE_LOG = 3
# After another program has answered at the own address, the address counts as right again after this many good checks.
CLEAN_CHECKS = 3

log = logging.getLogger("windvane.service")


class Outcome(Enum):
    """What answers at the address of a node."""

    NODE = "the node"
    OTHER = "another program, or another node"
    NOTHING = "nothing"


class NodeChecks:
    """The periodic checks of the node of ``placement``, run by :meth:`run`."""

    def __init__(self, placement: Placement, access: Access) -> None:
        self._placement, self._access = placement, access
        self._own: Outcome | None = None  # what answered at the own address in the last check
        self._is_confirmed = False  # whether this node or another one has reached this node at its address
        self._clean = CLEAN_CHECKS  # good checks since another program answered at the own address
        self._wrong_urls: frozenset[str] = frozenset()  # addresses of nodes at which another program answers
        self._failures: dict[str, int] = {}  # failed checks in a row, by name of the node
        self._names: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        self._problems = self._silences = 0  # checks in a row in which the own address was wrong, or nothing answered
        self._is_logged = False  # whether the log says that the own address is wrong or cannot be reached

    # --- answers to other nodes ------------------------------------------------------------------------------------

    def answer(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers that answer a probe. There are none if the request is not a probe from this cluster."""
        nonce, _, rest = headers.get(PROBE, "").partition(" ")
        sender, _, seal = rest.partition(" ")
        name = self._placement.node.name
        if not seal or not self._is_sealed(seal, "probe", nonce, sender, name):
            # A probe for another node gets no answer either: that node has a wrong address.
            return {}
        self._is_confirmed = True
        return {PROOF: self._seal("proof", nonce, name)}

    def _seal(self, *words: str) -> str:
        return hmac.new(self._placement.read_secret().encode(), " ".join(words).encode(), hashlib.sha256).hexdigest()

    def _is_sealed(self, seal: str, *words: str) -> bool:
        return bool(self._placement.read_secret()) and hmac.compare_digest(seal.encode(), self._seal(*words).encode())

    # --- the result ------------------------------------------------------------------------------------------------

    def find_problem(self) -> NotReady | None:
        """Return why this node is not ready; None if the checks found no problem."""
        keeper, own = self._placement.keeper, self._placement.node
        if self._access.is_locked:
            return NotReady.of("token")
        if keeper is None:
            return None
        if self._own is None:
            return NotReady.of("starting", "the address of this node is being checked")
        me = keeper.node.instance
        for node in keeper.map.nodes:  # the oldest first
            if node.instance == me:
                break
            if node.url == own.url:
                return NotReady.of("address", f"node {node.name!r} has the same address, {own.url}")
        if self._clean < CLEAN_CHECKS:
            return NotReady.of("address", f"another server answers at {own.url}, the address of this node")
        has_others = any(node.instance != me for node in keeper.map.nodes)
        if self._own is Outcome.NOTHING and has_others and not self._is_confirmed:
            return NotReady.of("address", f"no node reaches this one at its address, {own.url}")
        return None

    def is_wrong_url(self, url: str) -> bool:
        """Return whether another program answers at this address of a node: it must get no tokens."""
        return url in self._wrong_urls

    # --- the checks ------------------------------------------------------------------------------------------------

    def note_map(self, shard_map: ShardMap) -> None:
        """Check soon if the set of nodes has changed."""
        names = frozenset(node.name for node in shard_map.nodes)
        if names != self._names:
            self._names = names
            self._changed.set()

    async def run(self) -> None:
        """Check periodically."""
        while True:
            self._changed.clear()
            try:
                is_well = await self._check()
            except Exception:  # otherwise the node would never become ready
                log.exception("the addresses of nodes cannot be checked")
                self._own, is_well = self._own or Outcome.NOTHING, False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_SECONDS if is_well else RETRY_SECONDS):
                    await self._changed.wait()

    async def _check(self) -> bool:
        """Run all checks once. Return whether none of them found a problem."""
        if self._access.is_closed:
            with contextlib.suppress(Problem):  # the store cannot be read, which is reported elsewhere
                await self._access.refresh()
        keeper = self._placement.keeper
        if keeper is None:
            return False
        me = keeper.node.instance
        nodes = [node for node in keeper.map.nodes if node.instance != me]
        own = Node(me, *self._placement.node, 0)
        outcomes = await asyncio.gather(*(self._probe(node) for node in (own, *nodes)))
        self._wrong_urls = frozenset(
            node.url for node, outcome in zip(nodes, outcomes[1:], strict=True) if outcome is Outcome.OTHER
        )
        self._note_own(outcomes[0])
        for node, outcome in zip(nodes, outcomes[1:], strict=True):
            self._note_other(node, outcome)
        self._placement.reachable = {
            node.name: outcome is Outcome.NODE for node, outcome in zip((own, *nodes), outcomes, strict=True)
        }
        self._failures = {node.name: self._failures[node.name] for node in nodes}
        return self.find_problem() is None and all(outcome is Outcome.NODE for outcome in outcomes)

    async def _probe(self, node: Node) -> Outcome:
        """Probe the address of a node over a new connection, because it may lead to several servers."""
        nonce, sender = secrets.token_hex(8), self._placement.node.name
        headers = {PROBE: f"{nonce} {sender} {self._seal('probe', nonce, sender, node.name)}"}
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                address = Address(node.url, headers, PROBE_SECONDS, uses_proxy=False)
                transport = await asyncio.to_thread(Transport, address, AsyncNetwork())  # this may load certificates
                try:
                    answer = await transport.open(address.build_request("GET", PATH))
                    async with contextlib.aclosing(answer.parts) as parts:  # type: ignore[type-var]
                        await anext(parts, None)  # only the first part: another program may send an endless answer
                finally:
                    await transport.close()
        except (ValueError, OSError, *FAILURES):  # ValueError: somebody may have edited the address
            return Outcome.NOTHING
        if self._is_sealed(get_header(answer.headers, PROOF.encode()) or "", "proof", nonce, node.name):
            return Outcome.NODE
        return Outcome.NOTHING if answer.status >= 500 else Outcome.OTHER  # 5xx: a proxy without a server behind it

    def _note_own(self, outcome: Outcome) -> None:
        url, self._own = self._placement.node.url, outcome
        if outcome is Outcome.NODE:
            self._clean = min(CLEAN_CHECKS, self._clean + 1)
        elif outcome is Outcome.OTHER:
            self._clean = 0
        self._silences = self._silences + 1 if outcome is Outcome.NOTHING else 0
        problem = self.find_problem()
        if problem is not None and problem.code == "address":
            self._problems += 1
            if self._problems == CHECKS_BEFORE_LOG:
                log.error("%s; other nodes cannot forward requests to this node: set --node-url", problem.text)
                self._is_logged = True
            return
        self._problems = 0
        if self._silences >= CHECKS_BEFORE_LOG and not self._is_logged:
            log.warning("this node cannot reach itself at its address, %s; other nodes must be able to reach it", url)
            self._is_logged = True
        elif outcome is Outcome.NODE and self._is_logged:
            log.info("this node can be reached at its address, %s", url)
            self._is_logged = False

    def _note_other(self, node: Node, outcome: Outcome) -> None:
        failures = self._failures.get(node.name, 0)
        if outcome is Outcome.NODE and failures >= CHECKS_BEFORE_LOG:
            log.info("node %r can be reached again at %s", node.name, node.url)
        self._failures[node.name] = 0 if outcome is Outcome.NODE else failures + 1
        if self._failures[node.name] == CHECKS_BEFORE_LOG:
            log.warning("node %r cannot be reached at its address, %s: %s answers", node.name, node.url, outcome.value)
