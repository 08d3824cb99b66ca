"""The command demo: the service, an audience whose taste turns, and what was learnt about it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from windvane.cli.console import Bar, InputError, number, output, print_json, remark, share, table
from windvane.cli.options import AsJson

if TYPE_CHECKING:
    from windvane import Client, Environment

TOPICS = ("sport", "politics", "science", "travel", "food", "music", "money", "weather")
STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "adaptive": ("learns how fast the audience changes", {}),
    "never-forgets": ("the same policy, told that nothing changes", {"gamma": 1.0}),
    "random": ("any topic, whatever happened", {"policy": "UniformRandom"}),
}
DIM = 5
STRENGTH = 2.5  # of the audience's taste, in log-odds
REST = -1.5  # log-odds of a click on a topic that nobody minds
TICKS = 1_000_000  # into which the time is cut: a visit happens at a tick, whatever the rate that is reached
PARTS = 10
BARS = "▁▂▃▄▅▆▇█"


def demo(
    seconds: Annotated[float, typer.Option(help="How long the audience comes.", min=1.0, max=86_400.0)] = 60.0,
    port: Annotated[int, typer.Option(help="The port of the service; 0 takes a free one.", min=0, max=65535)] = 0,
    open_page: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Show the live page in a browser (default: if there is a desktop)."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Serve on after the summary, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """A minute of the service: a simulated audience, whose taste turns, clicks through the HTTP API.

    Three streams serve the same audience with the same luck: one that learns how fast it changes, one that never
    forgets, and one that plays at random. Nothing is left behind: the store is a temporary one.

    \b
    Examples:
      windvane demo
      windvane demo --seconds 20 --keep
    """
    from windvane.client import Client

    with _Stop() as stop, tempfile.TemporaryDirectory(prefix="windvane-demo-") as folder:
        remark("starting the service (the first time, kernels are compiled: about 30 s)")
        with _service(Path(folder), port) as address, Client(address, retries=2) as client:
            if not as_json:
                output().print(f"the live page: {address}/", markup=False, soft_wrap=True)
                sys.stdout.flush()
            if open_page or (open_page is None and _on_a_desktop()):
                _show(f"{address}/")
            for name, (title, settings) in STREAMS.items():
                client.create(name, title=title, dim=DIM, intercept=True, **settings)
            with stop.between_visits():
                seen = _played(client, seconds, stop)
            seen["address"], seen["drift"] = address, client.state("adaptive")["drift"]
            if as_json:
                print_json(seen)
            else:
                _summary(seen)
            if keep:
                sys.stdout.flush()
                remark(f"serving on at {address}/ (Ctrl-C stops)")
                with contextlib.suppress(KeyboardInterrupt):
                    signal.pause()


# --- the audience --------------------------------------------------------------------------------------------------


def audience() -> Environment:
    """Eight topics around a circle; the taste goes round it once, so that each is the favourite in its turn."""
    from windvane import Environment
    from windvane.environments import Arc, FixedArms

    angles = 2.0 * math.pi * np.arange(len(TOPICS)) / len(TOPICS)
    rest = np.array([[(-1) ** (k >> i) for i in range(DIM - 2)] for k in range(len(TOPICS))])
    vectors = np.hstack([0.8 * np.cos(angles)[:, None], 0.8 * np.sin(angles)[:, None], 0.3 * rest])
    return Environment(
        Arc(), FixedArms(tuple(map(tuple, vectors.tolist()))), dim=DIM, S=STRENGTH, intercept=REST, horizon=TICKS
    )


def _played(client: Client, seconds: float, stop: _Stop) -> dict[str, Any]:
    """Visits, one after the other, to every stream at once, until the time is over, or ``stop`` is asked for."""
    world = audience()
    world.reward(1, world.round(1).best)  # kernels are loaded before the clock starts
    clicks, regret = np.zeros((2, len(STREAMS), PARTS))
    visits, best = np.zeros((2, PARTS))
    bar = Bar("the audience", "s")
    began, tick = time.monotonic(), 0
    pool = ThreadPoolExecutor(len(STREAMS))
    bar.begin(math.ceil(seconds), 0)
    try:
        while (passed := (time.monotonic() - began) / seconds) < 1.0:
            if stop.asked:
                raise KeyboardInterrupt
            tick = max(tick + 1, math.ceil(passed * TICKS))
            offer = world.round(min(tick, TICKS))
            arms = dict(zip(TOPICS, offer.arms[0, :, :DIM].tolist(), strict=True))
            would = [bool(world.reward(offer.t, [mean])[0]) for mean in offer.means[0]]  # one luck for all topics
            chosen = list(pool.map(lambda name, a=arms, w=would: _visit(client, name, a, w), STREAMS))
            part = int(passed * PARTS)
            visits[part] += 1
            best[part] += offer.best[0]
            for i, index in enumerate(chosen):
                clicks[i, part] += would[index]
                regret[i, part] += offer.best[0] - offer.means[0, index]
            bar.show(int(passed * seconds))
    finally:
        pool.shutdown(cancel_futures=True)
        bar.end()
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


def _visit(client: Client, stream: str, arms: dict[str, list[float]], would: list[bool]) -> int:
    """A visitor sees what the stream decides, and clicks or not; returns the place of what was shown."""
    decision = client.decide(stream, arms)
    client.reward(stream, decision, would[decision.index])
    return decision.index


# --- what was learnt -----------------------------------------------------------------------------------------------


def _summary(seen: dict[str, Any]) -> None:
    console, best = output(), seen["best"]
    rows = [
        [one["stream"], _percent(one["click_rate"]), share(one["click_rate"] / best), number(one["regret"], 0),
         _line(one["by_tenth"], best)]
        for one in seen["streams"]
    ]  # fmt: skip
    pace = f"{seen['visits']:,} visits to every stream in {seen['seconds']:g} s"
    columns = ["stream", "clicks", "of the best possible", "regret", "by tenth of the time"]
    console.print(
        table(
            columns,
            [*rows, ["best possible", _percent(best), "100%", "0", ""]],
            f"{pace}; the taste of the audience turned once around",
        )
    )
    console.print(_said(seen["drift"]), markup=False, soft_wrap=True)


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _line(rates: list[float], best: float) -> str:
    """Bars, the highest for what is best on average, or luckier."""
    return "".join(BARS[min(len(BARS) - 1, int(rate / best * len(BARS)))] for rate in rates)


def _said(drift: dict[str, Any]) -> str:
    """What the adaptive stream found out about the drift, which nobody told it."""
    text = f'What "adaptive" says about the drift: {drift["verdict"]}'
    if drift["verdict"] == "drift":
        text += f" (log-likelihood {drift['evidence']:.0f} nats better than without)"
    longest = drift["memory"]
    memory = "everything" if longest is None else f"the last {longest:.0f} decisions or so"
    return f"{text}; it goes by {memory}."


# --- the service ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _service(folder: Path, port: int) -> Iterator[str]:
    """The address of a server in a process of its own, which ends with the block, whatever happens in it."""
    line = [sys.executable, "-m", "windvane.cli", "serve", "--store", str(folder / "demo.db"), "--port", str(port)]
    errors = folder / "stderr"
    with errors.open("w") as sink:  # a session of its own: Ctrl-C is for us, and we tell it
        process = subprocess.Popen(
            [*line, "--json"], stdout=subprocess.PIPE, stderr=sink, text=True, start_new_session=True
        )
    try:
        assert process.stdout is not None  # a pipe, as asked for
        told = process.stdout.readline()
        if not told:
            process.wait()
            said = errors.read_text().strip().splitlines() or ["it ended without a word"]
            raise InputError(f"the service did not start: {said[-1].removeprefix('windvane: error: ')}")
        yield json.loads(told)["address"]
    finally:
        process.terminate()
        try:
            process.communicate(timeout=10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


class _Stop:
    """Ctrl-C, SIGTERM and a terminal that is closed all end the demo in order: the service must not outlive it."""

    def __init__(self) -> None:
        self.asked = self._later = False

    def __enter__(self) -> _Stop:
        signals = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
        self._before = {one: signal.signal(one, self._interrupt) for one in signals}
        return self

    def __exit__(self, *_: object) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)

    def _interrupt(self, _signal: int, _frame: object) -> None:
        self.asked = True
        if not self._later:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def between_visits(self) -> Iterator[None]:
        """In the block ``asked`` is looked at: an interrupt while kernels are loaded may be lost in a callback."""
        self._later = True
        try:
            yield
        finally:
            self._later = False


def _on_a_desktop() -> bool:
    """Whether a browser would open in a window, and not in this terminal."""
    window = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(window) and sys.stdout.isatty()


def _show(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        remark("no browser could be opened")
