"""What a node does in the cluster, step by step: join, renew its lease, read the map, take and release shards."""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Collection, Mapping

from windvane.service.cluster import membership
from windvane.service.cluster.callbacks import Callbacks
from windvane.service.cluster.clocks import WallClock, read_clock
from windvane.service.cluster.lease import Lease
from windvane.service.cluster.membership import JoinResult, MapReading
from windvane.service.cluster.shard_map import Node, ShardMap
from windvane.service.store.postgres.connections import Connection
from windvane.service.store.postgres.eviction import sweep
from windvane.service.store.records import StoreError

log = logging.getLogger("windvane.service")

# As a share of a lease: a node stops relying on its lease this long before it expires, because no two clocks run at
# exactly the same rate.
DEADLINE_MARGIN = 1 / 8
MAX_RELEASED = 8  # shards that a node releases at a time, so that most of its streams stay available
PROPOSE_AGAIN_SECONDS = 10.0
# As a share of a lease: a node that could not renew its own lease in time waits this long before it evicts others. If
# the database was unavailable, their leases have expired too, and they need a moment to reconnect.
SWEEP_GRACE = 1 / 2
STEP_DOWN_TICKS = 2  # how long a node that can renew its lease but not commit keeps its shards: it may be merely slow
PAUSE_SECONDS = 0.01  # after a lease has expired, and before a retry that is expected to succeed
LEFT_MARGIN = 0.1  # seconds before its lease expires within which a node that is gone may have been evicted
MAX_LEFT = 100  # instances that are remembered to have left


class Member:
    """A node's membership in the cluster. Only one thread may use it; other threads may read :attr:`lease`.

    Parameters
    ----------
    node
        The node. Its instance is replaced by a new random one.
    where
        The database's name in messages.
    count
        Number of shards.
    callbacks
        The functions to call when shards or the map change.
    clock
        The node's wall clock. While it is wrong, the node takes no shards.
    lease, tick
        Duration of a lease, and time between renewals, in seconds.

    Attributes
    ----------
    lease
        The shards that the node owns.
    map
        The map that was read last.
    has_ever_joined
        Whether the node has joined the cluster at least once.
    left
        The instances that have left by themselves, most recent last. Others were evicted.
    """

    def __init__(
        self,
        node: Node,
        where: str,
        count: int,
        callbacks: Callbacks,
        clock: WallClock,
        *,
        lease: float,
        tick: float,
    ) -> None:
        self.node = node._replace(instance=secrets.token_hex(8))
        self.lease, self.map = Lease(), ShardMap()
        self.left: tuple[str, ...] = ()
        self._valid_until: dict[str, float] = {}  # the leases of the nodes in the map, on the clock of this process
        self.is_member = self.has_ever_joined = False
        self.is_draining = False  # the node releases its shards to others, leaves, and does not join again
        self.step_down_requested_at = math.inf  # infinity: not requested
        self.clock = clock
        self._where, self._count, self._callbacks = where, count, callbacks
        self._lease_seconds, self._tick = lease, tick
        self._renewed = self._proposed_at = self._sweeps_from = self._steady_from = -math.inf
        self._name_free_at: float | None = None
        self._proposed: dict[int, int] = {}

    def step(self, connection: Connection, *, adopt: bool = True) -> float:
        """Do everything that is due. Return the number of seconds until the next step.

        ``adopt``: whether to take over shards that the map assigns to this node although the node does not hold them.
        Raises :class:`StoreError` if the node may not join.
        """
        if not self.is_member and (self.is_draining or self.step_down_requested_at < math.inf):
            self._read_map(connection)
            return self._tick
        if not self.is_member:
            pause = self._join(connection)
            if not self.is_member:
                return pause
        if read_clock() >= self._renewed + self._tick and not self._renew(connection):
            return 0.0
        reading = self._read_map(connection)
        if read_clock() < self._sweeps_from:
            reading = reading._replace(needs_sweep=False)
        if not self._compare(reading) or self._change(connection, reading, adopt):
            return 0.0
        pause = self._renewed + self._tick - read_clock()
        if 0 < reading.next_expiry < pause:
            return reading.next_expiry + PAUSE_SECONDS
        return max(0.0, pause)

    @property
    def problem(self) -> StoreError | None:
        """Why the node takes no shards."""
        if self.clock.is_right:
            return None
        text = f"the clock of this node differs from the database's by {self.clock.skew:+.1f} s; set both by NTP"
        return StoreError(self._where, "clock", text)

    # --- the lease ---------------------------------------------------------------------------------------------------

    def _join(self, connection: Connection) -> float:
        """Try to join. Return the number of seconds to wait before the next attempt."""
        before = self.clock.read()
        self.clock.compare(before, membership.read_time(connection))
        if not self.clock.is_right:
            return self._tick
        result = membership.join(connection, self.node, self._lease_seconds)
        if result.has_joined:
            self.is_member = self.has_ever_joined = True
            self._name_free_at, self._renewed = None, -math.inf
            return 0.0
        if result.format != str(self.node.format):
            problem = f"has format {result.format}; this version of windvane needs format {self.node.format}"
            raise StoreError(self._where, "format", problem)
        return self._wait_for_name(connection, result)

    def _wait_for_name(self, connection: Connection, result: JoinResult) -> float:
        """Wait until the lease of a crashed node of this name expires. Return the seconds until the next attempt."""
        if result.holder is None or result.remaining < 0:
            sweep(connection, self._count, self.node.instance)
            return PAUSE_SECONDS
        now = read_clock()
        if self._name_free_at is None:
            self._name_free_at = now + result.remaining
        if now > self._name_free_at:
            problem = f"a node named {self.node.name} is already running at {result.holder.url}; use another name"
            raise StoreError(self._where, "name_taken", problem)
        return min(self._tick, result.remaining + PAUSE_SECONDS)

    def _renew(self, connection: Connection) -> bool:
        """Renew the lease. Return False if the node was evicted."""
        start, before = read_clock(), self.clock.read()
        now = membership.renew(connection, self.node, self._lease_seconds)
        if now is None:
            self._note_eviction()
            return False
        if -math.inf < self._renewed < start - 2 * self._tick:
            self._sweeps_from = start + SWEEP_GRACE * self._lease_seconds
        if read_clock() > self._renewed + 2 * self._tick:
            self._steady_from = read_clock()
        self._renewed = start
        self.lease.extend(start + (1 - DEADLINE_MARGIN) * self._lease_seconds)
        self.clock.compare(before, now)
        return True

    def _note_eviction(self) -> None:
        """Drop all shards: the lease expired, the node was evicted, and other nodes may own its shards."""
        log.warning("the lease of this node expired and it was evicted; it is joining the cluster again")
        self._forget_membership()

    def _forget_membership(self) -> None:
        """Drop all shards, and prepare to join again under a new instance."""
        self.is_member, self.node = False, self.node._replace(instance=secrets.token_hex(8))
        self.drop(self.lease.epochs)

    def drop(self, shards: Collection[int]) -> dict[int, int]:
        """Stop owning these shards. Return the epochs of those that were owned."""
        dropped = self.lease.drop(shards)
        if dropped:
            self._callbacks.on_lost(frozenset(dropped))
        return dropped

    # --- the map -----------------------------------------------------------------------------------------------------

    def _read_map(self, connection: Connection) -> MapReading:
        """Read the map, and note which nodes have left. A member compares it with its shards before others see it.

        A node whose row is gone although its lease had not expired has left by itself: others evict it only afterwards.
        """
        began = read_clock()
        reading = membership.read_map(connection, self._count, self.node.instance)
        gone = (node.instance for node in self.map.nodes if node.instance not in reading.instances)
        end = read_clock() + LEFT_MARGIN
        self.left = (*self.left, *(each for each in gone if end < self._valid_until.get(each, 0.0)))[-MAX_LEFT:]
        self._valid_until = {instance: began + seconds for instance, seconds in reading.remaining.items()}
        if not self.is_member:
            self._note_map(reading.map)
        return reading

    def _compare(self, reading: MapReading) -> bool:
        """Drop the shards that the map does not assign to this node. Return False if the node was evicted."""
        me, holdings = self.node.instance, reading.map.holdings
        if me not in reading.instances:
            self._note_eviction()
            return False
        lost = {shard for shard, epoch in self.lease.epochs.items() if holdings.get(shard) != (epoch, me)}
        self.drop(lost)
        self._note_map(reading.map)
        return True

    def _note_map(self, map_: ShardMap) -> None:
        if map_ != self.map:
            self.map = map_
            self._callbacks.on_map(map_)

    def _change(self, connection: Connection, reading: MapReading, adopt: bool) -> bool:
        """Repair the map, take shards, or propose shards to release. Return whether the map has changed.

        The operations that may wait for a lock come last.
        """
        me, held, free = self.node.instance, self.lease.epochs, reading.map.find_free()
        has_others = any(node.instance != me for node in reading.map.nodes)
        if self._should_step_down() and has_others:
            log.warning("this node cannot write; it is leaving its shards to other nodes")
            self.leave(connection)
            return False
        if not self.clock.is_right or (self.is_draining and has_others):
            self._drain(connection)
            return False
        if self._repair(connection, reading):
            return True
        strays = [shard for shard, holding in self.map.holdings.items() if holding.instance == me and shard not in held]
        share = self.map.compute_share(me, self._count)
        room = share - len(held) - len(strays)
        if free and room > 0:
            taken = membership.take(connection, self._count, me, room)
            self._own(taken)
            return bool(taken)
        if strays and adopt:
            return self._adopt(connection, strays, share - len(held))
        if reading.needs_sweep:
            return bool(sweep(connection, self._count, me, wait=True).freed)
        if len(held) > share and not free and self.map.find_node(me) is not None:
            self._propose(min(MAX_RELEASED, len(held) - share))
        return False

    def _should_step_down(self) -> bool:
        """Return whether the node has renewed its lease in time for a while, although it cannot commit.

        If renewals are late as well, the whole database has stalled, and other nodes cannot commit either.
        """
        return read_clock() >= max(self.step_down_requested_at, self._steady_from) + STEP_DOWN_TICKS * self._tick

    def _repair(self, connection: Connection, reading: MapReading) -> bool:
        """Add missing rows, and evict nodes whose leases have expired. Return whether the map has changed."""
        has_changed = False
        if reading.map.find_missing(self._count):
            has_changed = bool(membership.add_missing(connection, self._count))
        if reading.needs_sweep:
            result = sweep(connection, self._count, self.node.instance)
            if result.removed:
                log.warning("nodes were evicted because their leases expired: %s", ", ".join(result.removed))
            has_changed = has_changed or bool(result.removed or result.freed)
        return has_changed

    def _adopt(self, connection: Connection, strays: list[int], room: int) -> bool:
        """Take over shards that the map assigns to this node under unknown epochs, and free those above its share.

        This happens if the outcome of an earlier attempt to take them is unknown, or if somebody has edited the map.
        """
        room = max(0, room)
        excess = {shard: self.map.holdings[shard].epoch for shard in strays[room:]}
        freed = membership.release(connection, self.node.instance, excess)
        taken = membership.retake(connection, self._count, self.node.instance, strays[:room])
        self._own(taken)
        return bool(freed or taken)

    def _own(self, taken: Mapping[int, int]) -> None:
        if taken:
            self.lease.add(taken)
            self._callbacks.on_taken(taken)

    def _propose(self, number: int) -> None:
        """Propose to release the shards that were taken last, unless an earlier proposal is still being carried out."""
        held = self.lease.epochs
        is_followed = any(held.get(shard) == epoch for shard, epoch in self._proposed.items())
        if is_followed and read_clock() < self._proposed_at + PROPOSE_AGAIN_SECONDS:
            return
        newest = sorted(held, key=lambda shard: held[shard], reverse=True)[:number]
        self._proposed, self._proposed_at = {shard: held[shard] for shard in newest}, read_clock()
        self._callbacks.on_excess(frozenset(newest))

    def _drain(self, connection: Connection) -> None:
        """Release all shards, then leave: a member without shards would keep the others from taking its share."""
        if self.lease.epochs:
            self._propose(len(self.lease.epochs))
        else:
            self.leave(connection)

    # --- on behalf of the service ------------------------------------------------------------------------------------

    def retake(self, connection: Connection) -> dict[int, int]:
        """Take all shards of this node again, under new epochs. Return these epochs."""
        self.drop(self.lease.epochs)
        taken = membership.retake(connection, self._count, self.node.instance) if self.is_member else {}
        self._own(taken)
        return taken

    def release(self, connection: Connection, epochs: Mapping[int, int]) -> set[int]:
        """Free shards that this node owned under these epochs and has dropped. Return those that are free now."""
        freed = membership.release(connection, self.node.instance, epochs)
        if (not self.clock.is_right or self.is_draining) and not self.lease.epochs:
            self.leave(connection)
        return freed

    def leave(self, connection: Connection) -> None:
        """Release all shards and leave the cluster."""
        if self.is_member:
            membership.leave(connection, self.node.instance)
            self._forget_membership()
