"""Counters for Prometheus, at ``/metrics``."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import sqlite3
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

import windvane
from windvane.agent import AgentCore
from windvane.agent.info import CODES
from windvane.records import Counts
from windvane.service.http.cluster_metrics import ClusterNumbers, collect_cluster
from windvane.service.http.model_metrics import ModelNumbers, collect_models, read_model
from windvane.service.problems import KINDS
from windvane.service.readiness import CAUSES
from windvane.service.store import STORE_ERRORS
from windvane.service.turns import Pauses, wait_while_changing

if TYPE_CHECKING:
    from windvane.service.engine import Engine
    from windvane.service.http.other_nodes import OtherNodes

# They are a second series for every counter; process_start_time_seconds says enough.
disable_created_metrics()  # type: ignore[no-untyped-call]
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0)
WAIT_SECONDS = 1.0  # for streams that cannot be read now, all together
SIZE_SECONDS = 1.0  # for the sizes of the store, which a disk or a database may not tell
_COUNTS = {
    "decisions": (CounterMetricFamily, "Decisions made"),
    "rewards": (CounterMetricFamily, "Rewards that arrived in time"),
    "settled": (CounterMetricFamily, "Decisions whose outcome was learned"),
    "expired": (CounterMetricFamily, "Decisions whose timeout passed without a reward"),
    "defaulted": (CounterMetricFamily, "Expired decisions that count as the default reward"),
    "dropped": (CounterMetricFamily, "Decisions dropped by max_pending"),
    "history_rows": (CounterMetricFamily, "Rows of history learned"),
    "pending": (GaugeMetricFamily, "Decisions whose reward has not arrived"),
    "held": (GaugeMetricFamily, "Rewards to be learned at the timeout"),
}
"""The fields of :class:`windvane.records.Counts`, as metrics."""
_SIZES = {
    "store_bytes": "Size of the store",
    "wal_bytes": "Size of the store's write-ahead log",
    "disk_bytes": "Size of the store's disk",
    "disk_free_bytes": "Free space on the store's disk",
}
"""What :meth:`windvane.service.store.CheckableStore.measure` returns, as metrics."""


class StreamNumbers(NamedTuple):
    """What is reported about a stream, as it was when it was read."""

    counts: Counts
    mean_reward: float | None
    alerts: frozenset[str]
    model: ModelNumbers

    @classmethod
    def read(cls, core: AgentCore) -> StreamNumbers:
        """Return the numbers of a stream as they are now."""
        alerts = frozenset(alert.code for alert in core.alerts)
        return cls(core.counts, core.mean_reward, alerts, read_model(core))


class Metrics:
    """The service's own counters; those of streams are read when a client asks."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter("windvane_requests", "Requests answered", ["route", "status"], registry=self._registry)
        self._seconds = Histogram(
            "windvane_request_seconds", "Time to answer", ["route"], buckets=_SECONDS, registry=self._registry
        )
        self._commits = Counter("windvane_commits", "Transactions flushed to disk", registry=self._registry)
        self._commit_seconds = Histogram(
            "windvane_commit_seconds", "Time to flush a transaction", buckets=_SECONDS, registry=self._registry
        )
        self._events = Counter("windvane_events", "Events stored", registry=self._registry)
        self._problems = Counter("windvane_problems", "Requests refused or failed", ["code"], registry=self._registry)
        for code in KINDS:  # zero until it occurs: a rate can be computed from the first one on
            self._problems.labels(code)
        Info("windvane_build", "Versions", registry=self._registry).info(
            {"version": windvane.__version__, "python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
        )
        ProcessCollector(registry=self._registry)  # its start, memory, processor time and open files
        self._counter, self._timer = cache(self._requests.labels), cache(self._seconds.labels)  # labels() is slow

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._counter(route, status).inc()
        self._timer(route).observe(seconds)

    def count_problem(self, code: str) -> None:
        """Count a request that was refused or failed."""
        self._problems.labels(code).inc()

    def count_commit(self, events: int, seconds: float) -> None:
        """Count a transaction."""
        self._commits.inc()
        self._commit_seconds.observe(seconds)
        self._events.inc(events)

    async def to_text(self, engine: Engine, others: OtherNodes | None = None) -> bytes:
        """Return everything in the text format of Prometheus.

        Streams are read some at a time, with other requests in between, and the text is made in a thread: with 1,000
        streams both take long. A stream that a thread does not stop changing is left out. ``others``: the
        other nodes of a cluster.
        """
        numbers, pauses = dict[str, StreamNumbers](), Pauses(engine.turnstile)
        end = asyncio.get_running_loop().time() + WAIT_SECONDS
        for name, stream in list(engine.streams.items()):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(end):
                    await wait_while_changing(stream)
                    numbers[name] = StreamNumbers.read(stream.core)
            await pauses.take()
        families = [*_collect_engine(engine), *await _measure_store(engine)]
        return await asyncio.to_thread(self._write, families, numbers, ClusterNumbers.read(engine, others))

    def _write(
        self, families: list[Metric], streams: Mapping[str, StreamNumbers], cluster: ClusterNumbers | None
    ) -> bytes:
        families += _collect_streams(streams)
        if cluster is not None:
            families += collect_cluster(cluster)
        return b"".join(map(generate_latest, (self._registry, _Collected(families))))


class _Collected(CollectorRegistry):
    """Metrics that were collected before."""

    def __init__(self, families: list[Metric]) -> None:
        super().__init__()
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _collect_engine(engine: Engine) -> Iterable[Metric]:
    failure = engine.not_ready
    yield GaugeMetricFamily("windvane_ready", "1 if the service is ready", failure is None)
    not_ready = GaugeMetricFamily("windvane_not_ready", "1 for the cause why it is not ready", labels=["cause"])
    for cause in CAUSES:
        not_ready.add_metric([cause], failure is not None and failure.code == cause)
    yield not_ready
    yield GaugeMetricFamily("windvane_unavailable_streams", "Streams not recovered", len(engine.unavailable))
    yield CounterMetricFamily("windvane_recoveries", "Times that all streams were rebuilt", engine.recoveries)
    yield CounterMetricFamily("windvane_snapshots", "Snapshots made of streams", engine.journal.snapshots)
    waiting, seconds = engine.backlog
    yield GaugeMetricFamily("windvane_waiting_events", "Events that wait for the disk", waiting)
    yield GaugeMetricFamily("windvane_oldest_wait_seconds", "How long the oldest event has waited", seconds)


def _collect_streams(streams: Mapping[str, StreamNumbers]) -> Iterable[Metric]:
    for field, (family, text) in _COUNTS.items():
        metric = family(f"windvane_{field}", text, labels=["stream"])
        for name, numbers in streams.items():
            metric.add_metric([name], getattr(numbers.counts, field))
        yield metric
    mean = GaugeMetricFamily("windvane_mean_reward", "Mean of the outcomes that were learned", labels=["stream"])
    alert = GaugeMetricFamily("windvane_alert", "1 if the alert is raised", labels=["stream", "code"])
    for name, numbers in streams.items():
        if numbers.mean_reward is not None:
            mean.add_metric([name], numbers.mean_reward)
        for code in CODES:
            alert.add_metric([name, code], float(code in numbers.alerts))
    yield from (mean, alert)
    yield from collect_models({name: numbers.model for name, numbers in streams.items()})


async def _measure_store(engine: Engine) -> list[Metric]:
    """Return sizes, in so far as they are known and the store tells them in time."""
    if engine.failure is not None and engine.store.is_remote:
        return []
    with contextlib.suppress(TimeoutError, *STORE_ERRORS):
        async with asyncio.timeout(SIZE_SECONDS):
            sizes = await asyncio.to_thread(engine.store.measure)
            return [GaugeMetricFamily(f"windvane_{name}", _SIZES[name], size) for name, size in sizes.items()]
    return []
