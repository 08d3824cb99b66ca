"""Metrics of a node in a cluster: its lease, its shards, the other nodes, and the requests that it forwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from windvane.cluster_map import shard_of
from windvane.service.cluster.clocks import read_clock

if TYPE_CHECKING:
    from windvane.service.engine import Engine
    from windvane.service.http.other_nodes import OtherNodes

ForwardOutcome = Literal["answered", "unavailable", "moved", "no-answer"]
OUTCOMES: tuple[ForwardOutcome, ...] = get_args(ForwardOutcome)
"""Outcomes of a request to another node: it answered; it answered with status 503; it did not execute the request,
because the stream has moved; it could not be reached, or did not answer."""


class ClusterNumbers(NamedTuple):
    """What a node reports about itself and the cluster at one moment.

    Attributes
    ----------
    node
        The name of the node.
    others
        The names of the other nodes whose leases have not expired.
    is_member
        Whether the node itself is a member of the cluster.
    shards, unowned
        The number of shards, and the number of those that no node owns.
    epochs
        The epochs of the shards that this node owns.
    lease_seconds
        Seconds until the lease of this node expires; 0 if it never had one, negative if it has expired.
    skew
        How many seconds the clock of this machine is ahead of the database's; None if it is not known.
    fenced
        The number of commits that were refused in part.
    forwarded
        The number of requests sent to other nodes, by node and outcome.
    reachable
        Whether a node answered at its address, by name of the node.
    streams
        The number of a stream's last event, by name of the stream; None if the stream is not in memory yet.
    lacks_standby
        Whether the database commits to no standby although this node requires one; None if it does not.
    """

    node: str
    others: frozenset[str]
    is_member: bool
    shards: int
    unowned: int
    epochs: Mapping[int, int]
    lease_seconds: float
    skew: float | None
    fenced: int
    forwarded: Mapping[tuple[str, ForwardOutcome], int]
    reachable: Mapping[str, bool]
    streams: Mapping[str, int | None]
    lacks_standby: bool | None = None

    @classmethod
    def read(cls, engine: Engine, others: OtherNodes | None) -> ClusterNumbers | None:
        """Read the current numbers. Return None for a service on a file."""
        placement = engine.placement
        if placement is None:
            return None
        keeper, outcomes = placement.keeper, {} if others is None else dict(others.forwarder.outcomes)
        streams = {name: stream.number for name, stream in engine.streams.items()}
        numbers = cls(
            node=placement.node.name, others=frozenset(), is_member=False, shards=placement.store.shards, unowned=0,
            epochs={}, lease_seconds=0.0, skew=None, fenced=placement.fenced, forwarded=outcomes,
            reachable=placement.reachable, streams=dict.fromkeys(engine.rows) | streams,
            lacks_standby=placement.store.lacks_standby,
        )  # fmt: skip
        if keeper is None:
            return numbers
        names, deadline = frozenset(node.name for node in keeper.map.nodes), keeper.deadline
        return numbers._replace(
            others=names - {placement.node.name},
            is_member=placement.node.name in names,
            unowned=placement.store.shards - len(keeper.map.owners),
            epochs={shard: epoch for shard, epoch in keeper.epochs.items() if keeper.owns(shard) == epoch},
            lease_seconds=deadline - read_clock() if deadline else 0.0,
            skew=keeper.skew,
        )


def collect_cluster(numbers: ClusterNumbers) -> Iterable[Metric]:
    """Yield the metrics of a node. This takes a few microseconds per stream: call it in a thread."""
    yield InfoMetricFamily("windvane_node", "This node", {"node": numbers.node})
    count = len(numbers.others) + numbers.is_member
    yield GaugeMetricFamily("windvane_cluster_nodes", "Nodes of the cluster whose leases have not expired", count)
    yield GaugeMetricFamily("windvane_owned_shards", "Shards that this node owns", len(numbers.epochs))
    yield GaugeMetricFamily("windvane_unowned_shards", "Shards that no node owns", numbers.unowned)
    text = "Seconds until the lease of this node expires, unless it is renewed"
    yield GaugeMetricFamily("windvane_lease_seconds", text, numbers.lease_seconds)
    skew = GaugeMetricFamily("windvane_clock_skew_seconds", "How far this machine's clock is ahead of the database's")
    if numbers.skew is not None:
        skew.add_metric([], numbers.skew)
    yield skew
    text = "Commits that were refused in part, because another node had taken the shard"
    yield CounterMetricFamily("windvane_fenced_commits", text, numbers.fenced)
    text = "Whether the database commits to no standby, although this node was started with --ha"
    standby = GaugeMetricFamily("windvane_standby_missing", text)
    if numbers.lacks_standby is not None:
        standby.add_metric([], numbers.lacks_standby)
    yield standby
    yield _collect_forwarded(numbers)
    reachable = GaugeMetricFamily("windvane_node_reachable", "Whether a node answers at its address", labels=["node"])
    for node, is_reachable in sorted(numbers.reachable.items()):
        reachable.add_metric([node], is_reachable)
    yield reachable
    yield from _collect_shards(numbers)


def _collect_forwarded(numbers: ClusterNumbers) -> Metric:
    metric = CounterMetricFamily(
        "windvane_forwarded_requests", "Requests sent to another node", labels=["node", "outcome"]
    )
    known = numbers.others | {node for node, _ in numbers.forwarded}
    for node in sorted(known):
        for outcome in OUTCOMES:  # start at zero, so that a rate includes the first occurrence
            metric.add_metric([node, outcome], numbers.forwarded.get((node, outcome), 0))
    return metric


def _collect_shards(numbers: ClusterNumbers) -> Iterable[Metric]:
    """Yield the metrics of each shard that this node owns."""
    streams, events = Counter[int](), Counter[int]()
    if numbers.shards:
        for name, number in numbers.streams.items():
            shard = shard_of(name, numbers.shards)
            streams[shard] += 1
            events[shard] += number or 0
    for name, text, values in (
        ("epoch", "Epoch of the shard", numbers.epochs),
        ("streams", "Streams of the shard", streams),
        ("events", "Events of the shard's streams, including removed ones", events),
    ):
        metric = GaugeMetricFamily(f"windvane_shard_{name}", text, labels=["shard"])
        for shard in sorted(numbers.epochs):
            metric.add_metric([str(shard)], values.get(shard, 0))
        yield metric
