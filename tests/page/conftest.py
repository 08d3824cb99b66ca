"""A server with streams of all kinds, and readers of its page."""

from __future__ import annotations

import contextlib
import functools
import re

import numpy as np
import pytest

from support.page import HOSTILE, PATIENCE, PageServer

LONG = "b" * 190
HOSTILE_ARMS = [HOSTILE, LONG, "other", "%{y} <b>bold</b>", "__proto__", "constructor"]


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """For tests that leave these streams as they are; they may create others."""
    running = PageServer(tmp_path_factory.mktemp("page")).start()
    try:
        running.create("busy", title="Home page", dim=2, reward_timeout="2h")
        running.feed("busy", 150, rewarded=8)
        running.create("ball", dim=2, policy="BVD-GLM-UCB", gamma=0.9, S=1.0)
        running.feed("ball", 40)
        running.create("hostile", title=HOSTILE + "x" * (200 - len(HOSTILE)), dim=2)
        running.feed("hostile", 40, {name: [0.9 - 0.1 * i, 0.1] for i, name in enumerate(HOSTILE_ARMS)})
        running.create("wide", dim=100, policy="D-LinUCB", gamma=0.99)
        for k, row in enumerate(np.random.default_rng(1).normal(scale=0.05, size=(12, 100))):
            running.feed("wide", 10, {f"arm {k}": row.tolist()})
        running.create("unrewarded", dim=2)
        running.feed("unrewarded", 10, rewarded=0)
        device, hour, price = {"values": ["it's a phone", "tablet"]}, {"low": 0, "high": 23}, {"low": 0, "high": 9}
        running.create("featured", features={"shared": {"device": device, "hour": hour}, "per_arm": {"price": price}})
        running.create("turnover", dim=2, reward_timeout=20, default_reward=0.0)
        for name in "abcdefg":
            running.feed("turnover", 60, {name: [0.5, 0.1]}, rewarded=1)
        running.feed("turnover", 100, {"h": [0.5, 0.1]}, rewarded=1)
        running.create("pressed", dim=2, S=0.1)
        running.feed("pressed", 400)
        running.create("old", title="Last summer", dim=2, policy="D-LinUCB", half_life="2d")
        running.feed("old", 20)
        running.request("POST", "/v1/streams/old/archive", {})
        yield running
    finally:
        running.stop()


@pytest.fixture
def own(tmp_path):
    """A server for one test."""
    running = PageServer(tmp_path).start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def open_context(browser):
    """A browser context for each kind of reader, kept for its cache."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def open_once(**settings):
            context = stack.enter_context(contextlib.closing(browser.new_context(**settings)))
            context.set_default_timeout(1000 * PATIENCE)
            return context

        yield open_once


@pytest.fixture
def visit(open_context):
    """Open the page. Afterwards, no request may have left the origin and no error occurred except ``expected``."""
    pages, messages, requests = [], [], []

    def go(address, width=1280, height=900, expected=(), **settings):
        page = open_context(**settings).new_page()
        origin = re.match("http://[^/]+/", address)[0]
        pages.append(page)
        page.set_viewport_size({"width": width, "height": height})
        page.on("console", lambda message: messages.append((message.text, tuple(expected))))
        page.on("pageerror", lambda error: messages.append((f"error: {error}", ())))
        page.on("request", lambda request: requests.append((request.url, (origin, "data:", "blob:"))))
        page.goto(address)
        return page

    yield go
    for page in pages:
        page.close()
    assert [text for text, allowed in messages + requests if not text.startswith(allowed)] == []
