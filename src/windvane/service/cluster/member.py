"""A node's part in the cluster, step by step: join, renew, compare with the map, take and give up shards."""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Collection, Mapping

from windvane.service.cluster import membership
from windvane.service.cluster.callbacks import Callbacks
from windvane.service.cluster.clocks import WallClock, read_clock
from windvane.service.cluster.lease import Lease
from windvane.service.cluster.membership import Join, Reading
from windvane.service.cluster.shard_map import Node, ShardMap
from windvane.service.store.postgres.connections import Connection
from windvane.service.store.postgres.expulsion import sweep
from windvane.service.store.records import StoreError

log = logging.getLogger("windvane.service")

MARGIN = 1 / 8  # of a lease: a node stops acting on it so much earlier, since no two clocks run equally fast
STEP = 8  # shards that are given up at a time, so that most streams stay available
PROPOSE_AGAIN_SECONDS = 10.0
# Of a lease: if a node could not renew its own in time, it waits so long before it removes others. If the database was
# away, their leases have run out as well, and they need a moment to connect.
GRACE = 1 / 2
REST_TICKS = 2  # for so long a node that cannot write, but renew its lease, keeps its shards: the commit may be slow
PAUSE_SECONDS = 0.01  # after a lease has run out, or before something is tried again that should succeed now


class Member:
    """A node as the cluster knows it. For one thread; only :attr:`lease` may be asked by others.

    Parameters
    ----------
    node
        The node; its instance is drawn anew.
    where
        The database's name in messages.
    count
        Number of shards.
    callbacks
        What to call.
    clock
        The node's wall clock. While it is wrong, the node takes no shards.
    lease, tick
        Seconds of a lease, and between renewals.

    Attributes
    ----------
    lease
        What the node owns.
    map
        The map as it was last read.
    has_ever_joined
        Whether the node has been in the cluster.
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
        self.is_member = self.has_ever_joined = False
        self.is_leaving = False  # it gives up its shards and joins no more
        self.rests_from = math.inf  # when it begins to leave its shards to other nodes, if there are any
        self.clock = clock
        self._where, self._count, self._callbacks = where, count, callbacks
        self._lease_seconds, self._tick = lease, tick
        self._renewed = self._proposed_at = self._sweeps_from = self._steady_from = -math.inf
        self._name_free_at: float | None = None
        self._proposed: dict[int, int] = {}

    def step(self, connection: Connection, *, adopts: bool = True) -> float:
        """Do what is due; return the seconds until the next step.

        ``adopts``: whether to take shards again that the map gives to this node without its knowledge. Raises
        :class:`StoreError` if the node may not join.
        """
        if not self.is_member and (self.is_leaving or self.rests_from < math.inf):
            self._note_map(membership.read_map(connection, self._count, self.node.instance).map)
            return self._tick
        if not self.is_member:
            pause = self._join(connection)
            if not self.is_member:
                return pause
        if read_clock() >= self._renewed + self._tick and not self._renew(connection):
            return 0.0
        reading = membership.read_map(connection, self._count, self.node.instance)
        if read_clock() < self._sweeps_from:
            reading = reading._replace(needs_sweep=False)
        if not self._compare(reading) or self._change(connection, reading, adopts):
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
        """Try to join; return the seconds after which to try again."""
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

    def _wait_for_name(self, connection: Connection, result: Join) -> float:
        """Give a crashed node of the same name the time of its lease; return the seconds after which to try again."""
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
        """Return False if the node was expelled."""
        start, before = read_clock(), self.clock.read()
        now = membership.renew(connection, self.node, self._lease_seconds)
        if now is None:
            self._note_expulsion()
            return False
        if -math.inf < self._renewed < start - 2 * self._tick:
            self._sweeps_from = start + GRACE * self._lease_seconds
        if read_clock() > self._renewed + 2 * self._tick:
            self._steady_from = read_clock()
        self._renewed = start
        self.lease.extend(start + (1 - MARGIN) * self._lease_seconds)
        self.clock.compare(before, now)
        return True

    def _note_expulsion(self) -> None:
        """The lease ran out, and the node was removed: others may own its shards."""
        log.warning("the lease of this node ran out; it joins the cluster again")
        self._forget_membership()

    def _forget_membership(self) -> None:
        """Own nothing. The node may join again under a new instance."""
        self.is_member, self.node = False, self.node._replace(instance=secrets.token_hex(8))
        self.drop(self.lease.epochs)

    def drop(self, shards: Collection[int]) -> dict[int, int]:
        """Own these shards no longer; return the epochs of those that were owned."""
        dropped = self.lease.drop(shards)
        if dropped:
            self._callbacks.on_lost(frozenset(dropped))
        return dropped

    # --- the map -----------------------------------------------------------------------------------------------------

    def _compare(self, reading: Reading) -> bool:
        """Drop what the map does not give to this node. Return False if the node was expelled."""
        me, holdings = self.node.instance, reading.map.holdings
        if me not in reading.present:
            self._note_expulsion()
            return False
        lost = {shard for shard, epoch in self.lease.epochs.items() if holdings.get(shard) != (epoch, me)}
        self.drop(lost)
        self._note_map(reading.map)
        return True

    def _note_map(self, map_: ShardMap) -> None:
        if map_ != self.map:
            self.map = map_
            self._callbacks.on_map(map_)

    def _change(self, connection: Connection, reading: Reading, adopts: bool) -> bool:
        """Repair the map, take shards, or propose to give up some. Return whether the map has changed.

        What may wait for a lock comes last.
        """
        me, held, free = self.node.instance, self.lease.epochs, reading.map.find_free()
        if self._must_rest() and any(node.instance != me for node in reading.map.nodes):
            log.warning("the commits of this node have stalled; it leaves its shards to other nodes")
            self.leave(connection)
            return False
        if not self.clock.is_right or self.is_leaving:
            self._withdraw(connection)
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
        if strays and adopts:
            return self._adopt(connection, strays, share - len(held))
        if reading.needs_sweep:
            return bool(sweep(connection, self._count, me, wait=True).freed)
        if len(held) > share and not free and self.map.find_node(me) is not None:
            self._propose(min(STEP, len(held) - share))
        return False

    def _must_rest(self) -> bool:
        """Return whether renewals have been in time for a while, although the node cannot write. If they are late as
        well, all commits have stalled, and others cannot write either."""
        return read_clock() >= max(self.rests_from, self._steady_from) + REST_TICKS * self._tick

    def _repair(self, connection: Connection, reading: Reading) -> bool:
        """Add missing rows, and remove nodes that are gone. Return whether the map has changed."""
        has_changed = False
        if reading.map.find_missing(self._count):
            has_changed = bool(membership.add_missing(connection, self._count))
        if reading.needs_sweep:
            result = sweep(connection, self._count, self.node.instance)
            if result.removed:
                log.warning("the lease of a node ran out: %s", ", ".join(result.removed))
            has_changed = has_changed or bool(result.removed or result.freed)
        return has_changed

    def _adopt(self, connection: Connection, strays: list[int], room: int) -> bool:
        """Take shards again that the map gives to this node under other epochs, or free those that are too many.

        The outcome of taking them is unknown, or somebody has edited the map.
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
        """Propose to give up the shards that were taken last, unless a proposal is being followed."""
        held = self.lease.epochs
        is_followed = any(held.get(shard) == epoch for shard, epoch in self._proposed.items())
        if is_followed and read_clock() < self._proposed_at + PROPOSE_AGAIN_SECONDS:
            return
        newest = sorted(held, key=lambda shard: held[shard], reverse=True)[:number]
        self._proposed, self._proposed_at = {shard: held[shard] for shard in newest}, read_clock()
        self._callbacks.on_excess(frozenset(newest))

    def _withdraw(self, connection: Connection) -> None:
        """Give up everything, then leave: a member that takes no shards would keep others from taking its share."""
        if self.lease.epochs:
            self._propose(len(self.lease.epochs))
        else:
            self.leave(connection)

    # --- on behalf of the service ------------------------------------------------------------------------------------

    def retake(self, connection: Connection) -> dict[int, int]:
        """Take all shards of this node again; return the new epochs."""
        self.drop(self.lease.epochs)
        taken = membership.retake(connection, self._count, self.node.instance) if self.is_member else {}
        self._own(taken)
        return taken

    def release(self, connection: Connection, epochs: Mapping[int, int]) -> set[int]:
        """Free shards that were owned under these epochs, and have been dropped; return those that became free."""
        freed = membership.release(connection, self.node.instance, epochs)
        if (not self.clock.is_right or self.is_leaving) and not self.lease.epochs:
            self.leave(connection)
        return freed

    def leave(self, connection: Connection) -> None:
        """Leave the cluster, with all shards."""
        if self.is_member:
            membership.leave(connection, self.node.instance)
            self._forget_membership()
