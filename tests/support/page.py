"""The live page as tests need it: a server with streams, and what a reader sees."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

from support.server import Server, serve

PATIENCE = 60.0  # seconds: a kernel may have to be compiled
ARMS = {"red": [0.9, 0.1], "green": [0.5, 0.5], "blue": [0.1, 0.9]}
HOSTILE = "</script><img src=x onerror=\"window.hacked=1\"><a href='http://example.com/%{x}'>&lt;b&gt;</a>"


class PageServer:
    """The service as a process; it can be started again at the same address."""

    def __init__(self, folder: Path) -> None:
        self.store, self.url = folder / "w.db", ""
        self._server: Server | None = None
        self._client: httpx2.Client | None = None

    def start(self) -> PageServer:
        port = ["--port", self.url.rpartition(":")[2]] if self.url else []
        self._server = serve(self.store, *port)
        self.url, self._client = self._server.address, self._server.client()
        return self

    def stop(self) -> None:
        if server := self._disconnect():
            assert server.stop() == 0

    def kill(self) -> None:
        if server := self._disconnect():
            server.kill()

    def _disconnect(self) -> Server | None:
        if self._client is not None:
            self._client.close()
        server, self._server, self._client = self._server, None, None
        return server

    def request(self, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
        assert self._client is not None
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        answer = self._client.request(method, path, json=body, headers=headers, timeout=PATIENCE)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def info(self, name: str) -> Any:
        return self.request("GET", f"/v1/streams/{name}")

    def charts(self, name: str) -> Any:
        return self.request("GET", f"/v1/streams/{name}/charts")

    def create(self, name: str, **settings: Any) -> None:
        self.request("POST", "/v1/streams", {"name": name, "seed": 0, **settings})

    def reward(self, name: str, decision: str, value: float) -> None:
        self.request("PUT", f"/v1/streams/{name}/decisions/{decision}/reward", {"value": value})

    def feed(
        self, name: str, rounds: int, arms: Mapping[str, Sequence[float]] = ARMS, *, rewarded: int = 10, seed: int = 0
    ) -> None:
        """Decide in batches of ten; ``rewarded`` of each ten get a reward, which depends on the first coordinate."""
        rng = np.random.default_rng(seed)
        for _ in range(rounds // 10):
            batch = self.request("POST", f"/v1/streams/{name}/decisions/batch", {"decisions": [{"arms": arms}] * 10})
            decisions = [result["decision"] for result in batch["results"]][:rewarded]
            clicks = [float(rng.random() < 0.2 + 0.6 * abs(arms[d["arm"]][0])) for d in decisions]
            rewards = [{"decision": d["id"], "value": click} for d, click in zip(decisions, clicks, strict=True)]
            if rewards:
                self.request("POST", f"/v1/streams/{name}/rewards/batch", {"rewards": rewards})

    def run_curl(self, command: str) -> Any:
        """Do what a command on the page says."""
        words = shlex.split(command)
        assert words.pop(0) == "curl"
        method = words.pop(1) if words[0] == "-X" and words.pop(0) else "POST"
        assert words[0].startswith(self.url + "/")
        assert words[1:4] == ["-H", "Content-Type: application/json", "-d"]
        return self.request(method, words[0].removeprefix(self.url), json.loads(words[4]))


def until(page: Any, script: str, *arguments: str) -> Any:
    """Return the first true value of an expression. It polls: the page's policy forbids playwright's own waiting."""
    for _ in range(int(20 * PATIENCE)):
        if value := page.evaluate(script, *arguments):
            return value
        page.wait_for_timeout(50)
    pytest.fail(f"never became true: {script} {arguments}")


CONTRAST = """(() => {
    const parse = (text) => text.match(/[\\d.]+/g).map(Number);
    const luminance = (color) => color.slice(0, 3).map((v) => v / 255)
        .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = (node) => {
        for (; node; node = node.parentElement) {
            const color = parse(getComputedStyle(node).backgroundColor);
            if (color.length < 4 || color[3] > 0) return color;
        }
        return [255, 255, 255];
    };
    const texts = [...document.querySelectorAll('body *')].filter((node) => node.checkVisibility()
        && [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()));
    return texts.filter((node) => {
        const [a, b] = [parse(getComputedStyle(node).color), ground(node)].map(luminance);
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5;
    }).map((node) => node.outerHTML.slice(0, 80));
})()"""
"""Elements whose text is too pale for their background."""


PLOT = """async (selector) => {
    const place = document.querySelector(selector);
    const { plot, spec, isStale } = (await import('/page/chart.js')).chartOf(place);
    if (!plot || isStale || place.clientWidth === 0) return null;
    const lines = Object.fromEntries(spec.lines.map((line, i) => [line.label, [...plot.data[i + 1]]]));
    const colors = plot.series.slice(1).map((series) => series.stroke(plot, 1));
    const { kind, band } = spec;
    return { x: [...plot.data[0]], lines, colors, kind, band, isLog: plot.scales.y.distr === 3, width: plot.width };
}"""


def plot(page: Any, selector: str) -> dict[str, Any]:
    """What a chart shows; wait until it is drawn, which it is when it can be seen."""
    if selector.startswith(("#norm", "#theta")):
        open_estimate(page)
    page.locator(selector).first.scroll_into_view_if_needed()
    return dict(until(page, PLOT, selector))


def open_estimate(page: Any) -> None:
    """Unfold the panels of the estimate, as a reader does."""
    if not page.evaluate("document.querySelector('#estimate').open"):
        page.locator("#estimate > summary").click()


def figure(page: Any, term: str) -> str:
    """One of the figures at the top."""
    return str(page.locator(f"#numbers div[data-key='{term}'] dd").first.text_content())


def connection(page: Any) -> str:
    return str(page.evaluate("document.querySelector('.connection').dataset.kind"))


def open_table(page: Any, section: str) -> Any:
    """A section's last table, unfolded."""
    if section in ("norm", "theta"):
        open_estimate(page)
    details = page.locator(f"#{section} details:visible").last
    details.locator("summary").click()
    details.locator("table").wait_for()
    return details.locator("table")
