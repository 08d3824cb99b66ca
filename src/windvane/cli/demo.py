"""The command demo: the service with a simulated audience whose taste changes, and a summary."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from windvane.cli import InputError
from windvane.cli.console import ProgressBar, number, print_json, print_table, remark, say, share
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
DIM = 5
STRENGTH = 2.5  # of the audience's taste, in log-odds
REST = -1.5  # log-odds of a click on a topic that nobody cares about
TICKS = 1_000_000  # of simulated time: a visit happens at a tick, at any rate of visits
PARTS = 10
BARS = "▁▂▃▄▅▆▇█"


def demo(
    seconds: Annotated[float, typer.Option(help="How long the audience visits.", min=1.0, max=86_400.0)] = 60.0,
    port: Annotated[int, typer.Option(help=PORT_HELP, min=0, max=65535)] = 0,
    open_page: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Show the live page in a browser (default: if there is a desktop)."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep serving after the summary, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the live service for a minute: a simulated audience, whose taste changes, clicks through the HTTP API.

    Three streams serve the same audience with the same random numbers: one learns how fast it changes, one never
    forgets, and one plays at random. The store is temporary. ("make demo" is something else: it runs "windvane
    reproduce", the paper's experiment.)

    Examples:
      windvane demo
      windvane demo --seconds 20 --keep
    """
    with _Interruption() as interruption, tempfile.TemporaryDirectory(prefix="windvane-demo-") as folder:
        remark("starting the service (the first time, kernels are compiled: about 10 s)")
        with _serve(Path(folder, "demo.db"), port) as client:
            if not as_json:
                say(f"the live page: {client.url}/")
                sys.stdout.flush()
            if open_page or (open_page is None and _has_desktop()):
                _open_browser(f"{client.url}/")
            for name, (title, settings) in STREAMS.items():
                client.create(name, title=title, dim=DIM, intercept=True, **settings)
            with interruption.between_visits():
                results = _play(client, seconds, interruption)
            drift = client.info("adaptive").drift
            assert drift is not None  # the adaptive policy estimates it
            if as_json:
                print_json({**results, "address": client.url, "drift": to_plain(drift)})
            else:
                _print_summary(results, drift)
            if keep:
                sys.stdout.flush()
                remark(f"still serving at {client.url}/ (Ctrl-C stops)")
                with contextlib.suppress(KeyboardInterrupt):
                    signal.pause()


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


def _play(client: Client, seconds: float, interruption: _Interruption) -> dict[str, Any]:
    """Send visitors, one after the other, to all streams, until the time is over or there is an interruption."""
    audience = create_audience()
    audience.reward(1, audience.round(1).best)  # loads kernels before the clock starts
    clicks, regret = np.zeros((2, len(STREAMS), PARTS))
    visits, best = np.zeros((2, PARTS))
    start, tick = time.monotonic(), 0
    pool = ThreadPoolExecutor(len(STREAMS))
    with contextlib.ExitStack() as stack:
        stack.callback(pool.shutdown, cancel_futures=True)
        report = stack.enter_context(ProgressBar("the audience visits", "s"))
        while (passed := (time.monotonic() - start) / seconds) < 1.0:
            tick = max(tick + 1, math.ceil(passed * TICKS))
            offer = audience.round(min(tick, TICKS))
            arms = dict(zip(TOPICS, offer.arms[0, :, :DIM].tolist(), strict=True))
            would_click = [bool(audience.reward(offer.t, [mean])[0]) for mean in offer.means[0]]  # same luck for all
            with interruption.during_visit():
                chosen = list(pool.map(lambda name, a=arms, w=would_click: _visit(client, name, a, w), STREAMS))
            part = int(passed * PARTS)
            visits[part] += 1
            best[part] += offer.best[0]
            for i, index in enumerate(chosen):
                clicks[i, part] += would_click[index]
                regret[i, part] += offer.best[0] - offer.means[0, index]
            report(int(passed * seconds), math.ceil(seconds))
    each = np.maximum(visits, 1.0)
    return {
        "seconds": seconds,
        "visits": int(visits.sum()),
        "best": float(best.sum() / visits.sum()),
        "streams": [
            {
                "stream": name,
                "click_rate": float(clicks[i].sum() / visits.sum()),
                "regret": float(regret[i].sum()),
                "by_tenth": (clicks[i] / each).tolist(),
            }
            for i, name in enumerate(STREAMS)
        ],
    }


def _visit(client: Client, stream: str, arms: dict[str, list[float]], would_click: list[bool]) -> int:
    """Show a visitor what the stream decides, and send the click; return the index of the topic."""
    decision = client.decide(stream, arms)
    client.reward(stream, decision, would_click[decision.index])
    return decision.index


# --- the summary ---------------------------------------------------------------------------------------------------


def _print_summary(results: dict[str, Any], drift: Drift) -> None:
    best = results["best"]
    rows = [
        [row["stream"], f"{row['click_rate']:.1%}", share(row["click_rate"] / best), number(row["regret"], 0),
         _draw_line(row["by_tenth"], best)]
        for row in results["streams"]
    ]  # fmt: skip
    pace = f"{results['visits']:,} visits to every stream in {results['seconds']:g} s"
    columns = ["stream", "clicks", "of the best possible", "regret", "by tenth of the time"]
    rows.append(["best possible", f"{best:.1%}", "100%", "0", ""])
    print_table(columns, rows, f"{pace}; the audience's taste turned once")
    say(_describe_drift(drift))


def _draw_line(rates: list[float], best: float) -> str:
    """Return bars; the highest is for the best possible rate or more."""
    return "".join(BARS[min(len(BARS) - 1, int(rate / best * len(BARS)))] for rate in rates)


def _describe_drift(drift: Drift) -> str:
    """Return what the adaptive stream has learned about the drift."""
    text = f'What "adaptive" has learned about the drift: {drift.verdict}'
    if drift.verdict == "drift" and drift.evidence is not None:
        text += f" (log-likelihood {drift.evidence:.0f} nats better than without)"
    memory = "all data so far" if drift.memory is None else f"about the last {drift.memory:.0f} decisions"
    return f"{text}; it uses {memory}."


# --- the service ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _serve(store: Path, port: int) -> Iterator[Client]:
    """Run the service in a separate process until the end of the block; yield a client."""
    from windvane.testing import ServiceError, serve

    try:
        with serve(store, "--port", str(port), deadline=1.0) as client:
            yield client
    except ServiceError as error:
        raise InputError(str(error).splitlines()[-1].replace("windvane: error: ", "")) from None


class _Interruption:
    """Ctrl-C, SIGTERM and a closed terminal end the demo in order, because the service must not outlive it."""

    def __init__(self) -> None:
        self._is_requested = self._is_deferred = False

    def __enter__(self) -> _Interruption:
        signals = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
        self._handlers = {each: signal.signal(each, self._interrupt) for each in signals}
        return self

    def __exit__(self, *_: object) -> None:
        for each, handler in self._handlers.items():
            signal.signal(each, handler)

    def _interrupt(self, _signal: int, _frame: object) -> None:
        self._is_requested = True
        if not self._is_deferred:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def between_visits(self) -> Iterator[None]:
        """In the block, interrupt only after a visit: while kernels load, a KeyboardInterrupt may be lost."""
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False

    @contextlib.contextmanager
    def during_visit(self) -> Iterator[None]:
        """Surround a visit. Ctrl-C reaches the service too, so a visit that fails then is not an error."""
        from windvane.client import ClientError

        try:
            yield
        except ClientError:
            if not self._is_requested:
                raise
        if self._is_requested:
            raise KeyboardInterrupt


def _has_desktop() -> bool:
    """Return whether a browser would open in a window, not in this terminal."""
    window = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(window) and sys.stdout.isatty()


def _open_browser(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        remark("no browser could be opened")
