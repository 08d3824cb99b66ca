"""What a node of a cluster checks now and then: whether nodes answer at their addresses, itself first, and its tokens.

Every node sends a probe to every node of the map, with a header that only a node can make: who asks whom, sealed with
the shared secret, which is not sent itself. The answer is sealed in the same way, so that another program, or another
node, at an address is recognised. A node whose address is wrong says so itself: it is not ready, and its log says why.
If it cannot reach itself, as in some container networks, it is enough that another node can.
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
PROBE, PROOF = "x-windvane-probe", "x-windvane-node"  # headers of the request and of the answer
PAUSE_SECONDS, RETRY_SECONDS = 10.0, 1.0  # between checks: if all is well, and otherwise
PROBE_SECONDS = 2.0  # in which a node must answer
PATIENCE = 3  # checks in a row after which something wrong is logged: a node that was killed may have left its row
CLEAN = 3  # checks in a row after which the own address is right again, after another program had answered there

log = logging.getLogger("windvane.service")


class Outcome(Enum):
    """What was found at the address of a node."""

    NODE = "the node"
    OTHER = "another program, or another node"
    NOTHING = "nothing"


class NodeChecks:
    """The checks of the node of ``placement``; they run in :meth:`run`."""

    def __init__(self, placement: Placement, access: Access) -> None:
        self._placement, self._access = placement, access
        self._own: Outcome | None = None  # of the last check of the own address
        self._is_confirmed = False  # this node, or another one, has reached it at its address
        self._clean = CLEAN  # checks since another program answered at the own address
        self._failures: dict[str, int] = {}  # by name of a node, how often in a row it could not be reached
        self._names: frozenset[str] = frozenset()
        self._changed, self._problems = asyncio.Event(), 0  # checks in a row in which the own address was wrong
        self._is_logged = False  # that it is wrong, or cannot be reached from here

    # --- answers to other nodes ------------------------------------------------------------------------------------

    def answer(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers that answer a probe, none if the request is no probe of a node of this cluster."""
        nonce, _, rest = headers.get(PROBE, "").partition(" ")
        sender, _, seal = rest.partition(" ")
        name = self._placement.node.name
        if not seal or not self._is_sealed(seal, "probe", nonce, sender, name):
            # Whoever asks for another node gets the name of this one: its address is wrong.
            return {}
        self._is_confirmed = True
        return {PROOF: self._seal("proof", nonce, name)}

    def _seal(self, *words: str) -> str:
        return hmac.new(self._placement.read_secret().encode(), " ".join(words).encode(), hashlib.sha256).hexdigest()

    def _is_sealed(self, seal: str, *words: str) -> bool:
        return bool(self._placement.read_secret()) and hmac.compare_digest(seal.encode(), self._seal(*words).encode())

    # --- the result ------------------------------------------------------------------------------------------------

    def find_problem(self) -> NotReady | None:
        """Return why this node should get no requests."""
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
        if self._clean < CLEAN:
            return NotReady.of("address", f"another server answers at {own.url}, the address of this node")
        has_others = any(node.instance != me for node in keeper.map.nodes)
        if self._own is Outcome.NOTHING and has_others and not self._is_confirmed:
            return NotReady.of("address", f"no node reaches this one at its address, {own.url}")
        return None

    # --- the checks ------------------------------------------------------------------------------------------------

    def note_map(self, shard_map: ShardMap) -> None:
        """Check soon if there are other nodes than before."""
        names = frozenset(node.name for node in shard_map.nodes)
        if names != self._names:
            self._names = names
            self._changed.set()

    async def run(self) -> None:
        """Check again and again."""
        while True:
            self._changed.clear()
            try:
                is_well = await self._check()
            except Exception:  # a node that never became ready would be worse
                log.exception("the addresses of nodes cannot be checked")
                self._own, is_well = self._own or Outcome.NOTHING, False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_SECONDS if is_well else RETRY_SECONDS):
                    await self._changed.wait()

    async def _check(self) -> bool:
        """Check everything once; return whether all is well."""
        if self._access.is_closed:
            with contextlib.suppress(Problem):  # the store cannot be read; others report it
                await self._access.refresh()
        keeper = self._placement.keeper
        if keeper is None:
            return False
        me = keeper.node.instance
        nodes = [node for node in keeper.map.nodes if node.instance != me]
        own = Node(me, *self._placement.node, 0)
        outcomes = await asyncio.gather(*(self._probe(node) for node in (own, *nodes)))
        self._note_own(outcomes[0])
        for node, outcome in zip(nodes, outcomes[1:], strict=True):
            self._note_other(node, outcome)
        self._placement.reachable = {
            node.name: outcome is Outcome.NODE for node, outcome in zip((own, *nodes), outcomes, strict=True)
        }
        self._failures = {node.name: self._failures[node.name] for node in nodes}
        return self.find_problem() is None and all(outcome is Outcome.NODE for outcome in outcomes)

    async def _probe(self, node: Node) -> Outcome:
        """Return what answers at the address of a node, over a new connection: it may lead to several servers."""
        nonce, sender = secrets.token_hex(8), self._placement.node.name
        headers = {PROBE: f"{nonce} {sender} {self._seal('probe', nonce, sender, node.name)}"}
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                address = Address(node.url, headers, PROBE_SECONDS)
                transport = await asyncio.to_thread(Transport, address, AsyncNetwork())  # it may load certificates
                try:
                    answer = await transport.exchange(address.build_request("GET", PATH))
                finally:
                    await transport.close()
        except (ValueError, OSError, *FAILURES):  # the address may have been edited by hand
            return Outcome.NOTHING
        if self._is_sealed(get_header(answer.headers, PROOF.encode()) or "", "proof", nonce, node.name):
            return Outcome.NODE
        return Outcome.NOTHING if answer.status >= 500 else Outcome.OTHER  # a proxy whose server is not there

    def _note_own(self, outcome: Outcome) -> None:
        url, self._own = self._placement.node.url, outcome
        if outcome is Outcome.NODE:
            self._clean = min(CLEAN, self._clean + 1)
        elif outcome is Outcome.OTHER:
            self._clean = 0
        problem = self.find_problem()
        if problem is not None and problem.code == "address":
            self._problems += 1
            if self._problems == PATIENCE:
                log.error("%s; requests to other nodes for its streams fail: set --node-url", problem.text)
                self._is_logged = True
            return
        self._problems = 0
        if outcome is Outcome.NOTHING and not self._is_logged:
            log.warning("this node cannot reach itself at its address, %s; others must be able to", url)
            self._is_logged = True
        elif outcome is Outcome.NODE and self._is_logged:
            log.info("this node can be reached at its address, %s", url)
            self._is_logged = False

    def _note_other(self, node: Node, outcome: Outcome) -> None:
        failures = self._failures.get(node.name, 0)
        if outcome is Outcome.NODE and failures >= PATIENCE:
            log.info("node %r can be reached again at %s", node.name, node.url)
        self._failures[node.name] = 0 if outcome is Outcome.NODE else failures + 1
        if self._failures[node.name] == PATIENCE:
            log.warning("node %r cannot be reached at its address, %s: %s answers", node.name, node.url, outcome.value)
