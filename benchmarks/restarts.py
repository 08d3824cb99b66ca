"""Measure what clients notice of a rolling restart: `python benchmarks/restarts.py`.

Three nodes share a private PostgreSQL server, and are stopped (SIGTERM) and started again, one after the other, while
three kinds of callers ask for decisions of twelve streams, each in threads of its own:

- plain: POST without an Idempotency-Key, over a connection that is kept open. Nothing is repeated. A node to which no
  connection can be opened is left out until it is started again, as a proxy does.
- keyed: the same, with an Idempotency-Key.
- client: windvane.Client with the addresses of all nodes.

For every stop it prints the longest call of each kind that ended within `--window` seconds after the signal, and how
many calls failed, by status ("closed": the connection was closed without an answer). Finally it reads the logs of all
streams: every decision that was acknowledged must be there once, and no key may be there twice.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.nodes import NodeForks, ServiceCluster
from support.plain_callers import Call, PlainLoad
from support.postgres import Cluster

NAMES = ("a", "b", "c")
STREAMS = 12
SETTLE_SECONDS = 2.0


def describe(load: PlainLoad, since: float, until: float) -> str:
    """Return the calls that ended in a period, in words."""
    cells = []
    for kind, calls in load.calls.items():
        some = select_calls(calls, since, until)
        failed = Counter(call.outcome for call in some if call.outcome != "201")
        text = ", ".join(f"{count} x {outcome}" for outcome, count in failed.items()) or "none failed"
        cells.append(f"{kind}: {len(some)} calls, longest {max(call.seconds for call in some):.3f} s, {text}")
    return "; ".join(cells)


def select_calls(calls: list[Call], since: float, until: float) -> list[Call]:
    return [call for call in calls if since <= call.ended < until]


def measure(nodes: ServiceCluster, chosen: argparse.Namespace) -> None:
    nodes.start(*NAMES)
    streams = nodes.create_streams(f"stream-{i}" for i in range(STREAMS))
    load, windows = PlainLoad(nodes, streams, chosen.threads), list[tuple[float, float]]()
    time.sleep(SETTLE_SECONDS)
    quiet = time.monotonic()
    time.sleep(SETTLE_SECONDS)
    print("before:", describe(load, quiet, time.monotonic()), flush=True)
    for i in range(chosen.stops):
        name, began = NAMES[i % len(NAMES)], time.monotonic()
        os.kill(nodes.nodes[name].pid, signal.SIGTERM)
        time.sleep(chosen.window)
        windows.append((began, time.monotonic()))
        print(f"SIGTERM to {name}: {describe(load, *windows[-1])}", flush=True)
        nodes.nodes[name].stop()
        nodes.restart(name)
        nodes.wait_until_balanced()
    load.end()
    for kind, calls in load.calls.items():
        longest = sorted(max(call.seconds for call in select_calls(calls, *window)) for window in windows)
        print(f"{kind}: the longest call after each signal took {', '.join(f'{each:.2f}' for each in longest)} s")
    print(f"all failed calls, those during the starts included: {dict(load.failures)}")
    print(f"{load.check()} decisions in the logs were not acknowledged; load average {os.getloadavg()[0]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stops", type=int, default=6)
    parser.add_argument("--drain", type=float, default=5.0)
    parser.add_argument("--threads", type=int, default=3, help="of each kind")
    parser.add_argument("--window", type=float, default=7.0)
    chosen = parser.parse_args()
    cluster, forks = Cluster(), NodeForks()
    nodes = ServiceCluster(forks, cluster, cluster.create_database(), drain=chosen.drain)
    try:
        measure(nodes, chosen)
    finally:
        nodes.close()
        forks.close()
        cluster.remove()


if __name__ == "__main__":
    main()
