"""The command demo: the service with a simulated audience whose taste changes, and a summary."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import signal
import sys
import tempfile
import time
import webbrowser
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from windvane.cli import InputError, interrupts
from windvane.cli.console import Answer, Blocks, ProgressBar, Table, number, remark, share
from windvane.cli.options import PORT_HELP, AsJson
from windvane.records import to_plain

if TYPE_CHECKING:
    from windvane import Client, Environment
    from windvane.records import Drift

TOPICS = ("sport", "politics", "science", "travel", "food", "music", "money", "weather")
STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "adaptive": ("learns how fast the audience changes", {}),
    "never-forgets": ("the same policy, with an infinite memory", {"gamma": 1.0}),
    "random": ("a random topic each time", {"policy": "UniformRandom"}),
}
EXPORTED = "adaptive"  # the stream whose log --export writes
DIM = 5
STRENGTH = 2.5  # of the audience's taste, in log-odds
REST = -1.5  # log-odds of a click on a topic that nobody cares about
TICKS = 1_000_000  # of simulated time: a visit happens at a tick, at any rate of visits
EXPLORATION = 0.1  # epsilon of the exported stream: off-policy evaluation needs a positive probability for every arm
PARTS = 10
BARS = "▁▂▃▄▅▆▇█"  # the highest is for the best possible rate or more


def demo(
    seconds: Annotated[float, typer.Option(help="How long the audience visits.", min=1.0, max=86_400.0)] = 60.0,
    port: Annotated[int, typer.Option(help=PORT_HELP, min=0, max=65535)] = 0,
    open_page: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Show the live page in a browser (default: if there is a desktop)."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep serving after the summary, until Ctrl-C.")] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            help='Write the log of the stream "adaptive", which then explores, to this NDJSON file.',
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the live service for a minute: a simulated audience, whose taste changes, clicks through the HTTP API.

    Three streams serve the same audience with the same random numbers: one learns how fast it changes, one never
    forgets, and one plays at random. The store is temporary. ("make demo" is something else: it runs "windvane
    reproduce", the paper's experiment.)

    With --export, the stream "adaptive" plays a random arm in one decision out of ten, so that other policies can be
    evaluated on its log.

    Examples:
      windvane demo
      windvane demo --seconds 20 --keep
      windvane demo --export log.ndjson   # a log for windvane check, drift and replay
    """
    if export is not None and not export.parent.is_dir():
        raise InputError(f"{export.parent} is not a folder, so --export cannot write to it")
    signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGTERM))  # a closed terminal: the service must not outlive it
    with tempfile.TemporaryDirectory(prefix="windvane-demo-") as folder:
        remark("starting the service (the first time, kernels are compiled: about 10 s)")
        with _serve(Path(folder, "demo.db"), port) as client:
            if not as_json:
                print(f"the live page: {client.url}/", flush=True)
            if (_has_desktop() if open_page is None else open_page) and not webbrowser.open(f"{client.url}/"):
                remark("no browser could be opened")
            for name, (title, settings) in STREAMS.items():
                explore = {"epsilon": EXPLORATION} if export is not None and name == EXPORTED else {}
                client.create(name, title=title, dim=DIM, intercept=True, **settings, **explore)
            with _defer_interrupts():
                results = _play(client, seconds)
            if export is not None:
                _export(client, export)
                results["export"] = export
            drift = client.info(EXPORTED).drift
            assert drift is not None  # the adaptive policy estimates it
            document = {**results, "address": client.url, "drift": to_plain(drift)}
            with contextlib.suppress(KeyboardInterrupt) if keep else contextlib.nullcontext():
                Answer(document, _describe(results, drift)).print(as_json)
                if keep:
                    sys.stdout.flush()
                    remark(f"still serving at {client.url}/ (Ctrl-C stops)")
                    signal.pause()


@contextlib.contextmanager
def _defer_interrupts() -> Iterator[None]:
    """Only record signals in the block: while kernels load, a KeyboardInterrupt may be lost or end Python."""
    signals = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    handlers = {each: signal.signal(each, lambda number, _: interrupts.append(number)) for each in signals}
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)


def _has_desktop() -> bool:
    """Return whether a browser would open in a window, not in this terminal."""
    window = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(window) and sys.stdout.isatty()


@contextlib.contextmanager
def _serve(store: Path, port: int) -> Iterator[Client]:
    """Run the service in a separate process until the end of the block; yield a client."""
    from windvane.testing import ServiceError, serve

    try:
        with serve(store, "--port", str(port), deadline=1.0) as client:
            yield client
    except ServiceError as error:
        raise InputError(str(error).splitlines()[-1].replace("windvane: error: ", "")) from None


# --- the audience --------------------------------------------------------------------------------------------------


def create_audience() -> Environment:
    """Return an audience with eight topics around a circle. Its taste goes round once; each topic has its time."""
    from windvane import Environment
    from windvane.environments import Arc, FixedArms

    angles = 2.0 * math.pi * np.arange(len(TOPICS)) / len(TOPICS)
    rest = np.array([[(-1) ** (k >> i) for i in range(DIM - 2)] for k in range(len(TOPICS))])
    vectors = np.hstack([0.8 * np.cos(angles)[:, None], 0.8 * np.sin(angles)[:, None], 0.3 * rest])
    return Environment(
        Arc(), FixedArms(tuple(map(tuple, vectors.tolist()))), dim=DIM, S=STRENGTH, intercept=REST, horizon=TICKS
    )


def _play(client: Client, seconds: float) -> dict[str, Any]:
    """Send visitors, one after the other, to all streams, until the time is over."""
    from windvane.client import ClientError

    audience = create_audience()
    audience.reward(1, audience.round(1).best)  # loads kernels before the clock starts
    visits, clicks = np.zeros(PARTS), np.zeros((len(STREAMS), PARTS))
    best, regret = 0.0, np.zeros(len(STREAMS))
    start, tick = time.monotonic(), 0
    with ThreadPoolExecutor(len(STREAMS)) as pool, ProgressBar("the audience visits", "s") as report:
        while (passed := (time.monotonic() - start) / seconds) < 1.0:
            tick = max(tick + 1, math.ceil(passed * TICKS))
            offer = audience.round(min(tick, TICKS))
            arms = dict(zip(TOPICS, offer.arms[0, :, :DIM].tolist(), strict=True))
            would_click = [bool(audience.reward(offer.t, [mean])[0]) for mean in offer.means[0]]  # same luck for all
            try:
                chosen = list(pool.map(functools.partial(_visit, client, arms, would_click), STREAMS))
            except ClientError:  # Ctrl-C reaches the service too
                if not interrupts:
                    raise
            if interrupts:
                raise KeyboardInterrupt
            part = int(passed * PARTS)
            visits[part] += 1
            clicks[:, part] += [would_click[index] for index in chosen]
            best += offer.best[0]
            regret += offer.best[0] - offer.means[0, chosen]
            report(int(passed * seconds), math.ceil(seconds))
    total, rates = visits.sum(), clicks / np.maximum(visits, 1.0)
    rows = zip(STREAMS, clicks.sum(axis=1) / total, regret, rates, strict=True)
    streams = [dict(zip(("stream", "click_rate", "regret", "by_tenth"), row, strict=True)) for row in rows]
    return {"seconds": seconds, "visits": int(total), "best": best / total, "streams": streams}


def _export(client: Client, file: Path) -> None:
    """Write the log of a stream as NDJSON, atomically: temporary file, then rename."""
    part = file.with_name(f"{file.name}.part")
    with ProgressBar("writing the log", "events") as report, part.open("w", encoding="utf-8") as lines:
        for count, event in enumerate(client.events(EXPORTED), 1):
            lines.write(json.dumps(event) + "\n")
            report(count)
    part.replace(file)


def _visit(client: Client, arms: dict[str, list[float]], would_click: list[bool], stream: str) -> int:
    """Show a visitor what the stream decides, and send the click; return the index of the topic."""
    decision = client.decide(stream, arms)
    client.reward(stream, decision, would_click[decision.index])
    return decision.index


# --- the summary ---------------------------------------------------------------------------------------------------


def _describe(results: dict[str, Any], drift: Drift) -> Blocks:
    best = results["best"]
    rows = [
        [row["stream"], f"{row['click_rate']:.1%}", share(row["click_rate"] / best), number(row["regret"], 0),
         "".join(BARS[min(len(BARS) - 1, int(rate / best * len(BARS)))] for rate in row["by_tenth"])]
        for row in results["streams"]
    ]  # fmt: skip
    rows.append(["best possible", f"{best:.1%}", "100%", "0", ""])
    columns = ["stream", "clicks", "of the best possible", "regret", "by tenth of the time"]
    pace = f"{results['visits']:,} visits to every stream in {results['seconds']:g} s"
    table = Table(columns, rows, f"{pace}; the audience's taste turned once")
    is_clear = drift.verdict == "drift" and drift.evidence is not None
    evidence = f" (log-likelihood {drift.evidence:.0f} nats better than without)" if is_clear else ""
    memory = "all data so far" if math.isinf(drift.memory) else f"about the last {drift.memory:.0f} decisions"
    written = [f'The log of "{EXPORTED}": {results["export"]}'] if "export" in results else []
    return [
        table,
        *written,
        f'What "adaptive" has learned about the drift: {drift.verdict}{evidence}; it uses {memory}.',
    ]
