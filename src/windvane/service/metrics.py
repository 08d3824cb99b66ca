"""Counters for Prometheus, at ``/metrics``."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from windvane.agent.alerts import CODES, RECENT

if TYPE_CHECKING:
    from windvane.service.engine import Engine

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class Metrics:
    """What the service counts itself; what streams count is read from them when asked."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter("windvane_requests", "Requests answered", ["route", "status"], registry=self.registry)
        self._seconds = Histogram(
            "windvane_request_seconds", "Time to answer", ["route"], buckets=_SECONDS, registry=self.registry
        )
        self._commits = Counter("windvane_commits", "Transactions flushed to disk", registry=self.registry)
        self._events = Counter("windvane_events", "Events stored", registry=self.registry)
        self._counter, self._timer = cache(self._requests.labels), cache(self._seconds.labels)  # looking up is slow

    def request(self, route: str, status: int, seconds: float) -> None:
        self._counter(route, status).inc()
        self._timer(route).observe(seconds)

    def committed(self, events: int) -> None:
        self._commits.inc()
        self._events.inc(events)

    def watch(self, engine: Engine) -> None:
        self.registry.register(_Streams(engine))

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _Streams(Collector):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterable[Metric]:
        ready = GaugeMetricFamily("windvane_ready", "1 if requests are answered")
        ready.add_metric([], float(self._engine.failure is None))
        broken = GaugeMetricFamily("windvane_broken_streams", "Streams that could not be rebuilt and are not served")
        broken.add_metric([], float(len(self._engine.broken)))
        decisions = CounterMetricFamily("windvane_decisions", "Decisions made", labels=["stream"])
        rewards = CounterMetricFamily("windvane_rewards", "Rewards that arrived in time", labels=["stream"])
        defaulted = CounterMetricFamily("windvane_defaulted", "Expired decisions with a default", labels=["stream"])
        settled = CounterMetricFamily("windvane_settled", "Decisions whose outcome was learned", labels=["stream"])
        total = CounterMetricFamily("windvane_reward_value", "Sum of the outcomes that were learned", labels=["stream"])
        expired = CounterMetricFamily(
            "windvane_expired", "Decisions whose wait ended without a reward", labels=["stream"]
        )
        dropped = CounterMetricFamily("windvane_dropped", "Decisions dropped by max_pending", labels=["stream"])
        pending = GaugeMetricFamily("windvane_pending", "Decisions whose reward has not arrived", labels=["stream"])
        held = GaugeMetricFamily("windvane_held", "Rewards to be learned when their wait ends", labels=["stream"])
        projected = GaugeMetricFamily(
            "windvane_recent_projected_share",
            f"Share of the last {RECENT} decisions whose estimate was at the norm bound",
            labels=["stream"],
        )
        alert = GaugeMetricFamily("windvane_alert", "1 if the alert is raised", labels=["stream", "code"])
        for name, stream in list(self._engine.streams.items()):
            agent = stream.agent
            decisions.add_metric([name], agent.decisions)
            rewards.add_metric([name], agent.rewards)
            defaulted.add_metric([name], agent.defaulted)
            settled.add_metric([name], agent.settled)
            total.add_metric([name], agent.reward_total)
            expired.add_metric([name], agent.expired)
            dropped.add_metric([name], agent.dropped)
            pending.add_metric([name], agent.waiting)
            held.add_metric([name], agent.held)
            projected.add_metric([name], agent.recent_projected_share)
            raised = {one.code for one in agent.alerts}
            for code in CODES:
                alert.add_metric([name, code], float(code in raised))
        by_stream = [decisions, rewards, defaulted, settled, total, expired, dropped, pending, held, projected, alert]
        return [ready, broken, *by_stream]
