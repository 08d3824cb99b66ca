"""The live page in a real browser, in front of a real server: what it shows, how it is used, and what it survives."""

from __future__ import annotations

import json
import math
import re
import shlex
import sqlite3
import subprocess
import sys
import threading

import httpx
import numpy as np
import pytest

from test_report_browser import HOSTILE
from windvane.service.access import new_token
from windvane.service.statistics import MOST_ARMS, MOST_BUCKETS, Statistics
from windvane.service.store import Store

PATIENCE = 60.0  # seconds: a kernel may have to be compiled
ARMS = {"red": [0.9, 0.1], "green": [0.5, 0.5], "blue": [0.1, 0.9]}
LONG = "b" * 190
UNREACHED = "Failed to load resource: net::"
NO_ICON = "Failed to load resource: the server responded with a status of 404"
REFUSED = "Failed to load resource: the server responded with a status of 401"


class Server:
    """The service as a process of its own."""

    def __init__(self, folder):
        self.store, self.url, self._port = folder / "w.db", "", 0
        self.process = None
        self.said = []

    def start(self):
        """Again at the same address, if it ran before."""
        line = [sys.executable, "-m", "windvane.cli", "serve", "--store", str(self.store), "--port", str(self._port)]
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        first = self.process.stdout.readline()
        while first.startswith("stream "):  # said of one that is not served
            first = self.process.stdout.readline()
        assert first.startswith("http://"), first + self.process.stdout.read()
        self.url = first.split()[0]
        self._port = int(self.url.rpartition(":")[2])
        self._reader = threading.Thread(target=lambda: self.said.extend(self.process.stdout))
        self._reader.start()
        return self

    def end(self, *, kill=False):
        if self.process is None:
            return
        if kill:
            self.process.kill()
        else:
            self.process.terminate()
        self.process.wait(PATIENCE)
        self._reader.join()
        self.process.stdout.close()
        self.process = None

    def ask(self, path, body=None, token=None):
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        if body is None:
            found = httpx.get(self.url + path, headers=headers, timeout=PATIENCE)
        else:
            found = httpx.post(self.url + path, json=body, headers=headers, timeout=PATIENCE)
        assert found.is_success, found.text
        return found.json()

    def state(self, name):
        return self.ask(f"/v1/streams/{name}")

    def create(self, name, **settings):
        self.ask("/v1/streams", {"name": name, **settings})

    def feed(self, name, rounds, arms=ARMS, *, answered=10, seed=0):
        """Decisions in batches of ten; ``answered`` of each ten get a reward, which goes with the first coordinate."""
        rng = np.random.default_rng(seed)
        for _ in range(rounds // 10):
            batch = self.ask(f"/v1/streams/{name}/decide/batch", {"items": [{"arms": arms}] * 10})["results"]
            assert all(one["status"] == 200 for one in batch), batch
            told = [one["answer"] for one in batch][:answered]
            rewards = [
                {"decision": d["decision"], "value": float(rng.random() < 0.2 + 0.6 * abs(arms[d["arm"]][0]))}
                for d in told
            ]
            if rewards:
                self.ask(f"/v1/streams/{name}/reward/batch", {"items": rewards})

    def follow(self, command):
        """Do what a command line on the page says."""
        words = shlex.split(command)
        assert words[0] == "curl"
        assert words[1].startswith(self.url)
        assert words[2:5] == ["-H", "Content-Type: application/json", "-d"]
        return self.ask(words[1].removeprefix(self.url), json.loads(words[5]))


@pytest.fixture(scope="module")
def server(browser, tmp_path_factory):
    """With streams of all kinds, for the tests that only look."""
    found = Server(tmp_path_factory.mktemp("served")).start()
    try:
        found.create("busy", title="Home page", dim=2, wait="2h")
        found.feed("busy", 150, answered=8)
        found.create("ball", dim=2, policy="BVD-GLM-UCB", gamma=0.9, S=1.0)
        found.feed("ball", 40)
        found.create("hostile", title=HOSTILE + "x" * (200 - len(HOSTILE)), dim=2)
        names = [HOSTILE, LONG, "other", "%{y} <b>bold</b>", "__proto__", "constructor"]
        found.feed("hostile", 40, {name: [0.9 - 0.1 * i, 0.1] for i, name in enumerate(names)})
        wide = np.random.default_rng(1).normal(scale=0.04, size=(12, 500))
        found.create("wide", dim=500, policy="D-LinUCB", gamma=0.99)
        for k, row in enumerate(wide):
            found.feed("wide", 10, {f"arm {k}": row.tolist()})
        found.create("unanswered", dim=2)
        found.feed("unanswered", 10, answered=0)
        device, hour, price = {"values": ["it's a phone", "tablet"]}, {"low": 0, "high": 23}, {"low": 0, "high": 9}
        found.create("featured", features={"shared": {"device": device, "hour": hour}, "per_arm": {"price": price}})
        found.create("turnover", dim=2, wait=20, missing=0.0)
        for name in "abcdefg":
            found.feed("turnover", 60, {name: [0.5, 0.1]}, answered=1)
        found.feed("turnover", 100, {"h": [0.5, 0.1]}, answered=1)
        found.create("pressed", dim=2, S=0.1)
        found.feed("pressed", 400)  # streams draw a seed: after 200, one in twenty was not at the bound often enough
        found.create("old", title="Last summer", dim=2, policy="D-LinUCB", half_life="2d")
        found.feed("old", 20)
        found.ask("/v1/streams/old/archive", {})
        yield found
    finally:
        found.end()


@pytest.fixture
def own(browser, tmp_path):
    """A server for one test alone."""
    found = Server(tmp_path).start()
    yield found
    found.end()


@pytest.fixture(scope="module")
def contexts(browser):
    """A context for each kind of reader, kept for its cache."""
    found = {}

    def of(**settings):
        kind = json.dumps(settings, sort_keys=True)
        if kind not in found:
            found[kind] = browser.new_context(**settings)
            found[kind].set_default_timeout(1000 * PATIENCE)
        return found[kind]

    yield of
    for context in found.values():
        context.close()


@pytest.fixture
def visit(contexts):
    """Opens the page; afterwards nothing may have left for elsewhere, nor gone wrong except as ``expected``."""
    pages, trouble, requests = [], [], []

    def go(address, width=1280, height=900, expected=(), **settings):
        page = contexts(**settings).new_page()
        pages.append(page)
        page.set_viewport_size({"width": width, "height": height})
        origin = re.match("http://[^/]+/", address)[0]

        def said(message):
            if not message.text.startswith(tuple(expected)):
                trouble.append(f"{message.type}: {message.text}")

        def asked(request):
            if not request.url.startswith((origin, "data:", "blob:")):
                requests.append(request.url)

        page.on("console", said)
        page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
        page.on("request", asked)
        page.goto(address)
        return page

    yield go
    for page in pages:
        page.close()
    assert trouble == []
    assert requests == []


def until(page, script):
    """Wait until an expression holds (by asking: the page's own policy forbids playwright to evaluate text in it)."""
    for _ in range(int(20 * PATIENCE)):
        if page.evaluate(script):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never came true: {script}")


def chart(name):
    return f"document.querySelector('#{name} .chart')"


def drawn(page, *names):
    """Wait until these charts are there; they are drawn when they can be seen."""
    for name in names:
        page.locator(f"#{name}").scroll_into_view_if_needed()
        until(page, f"{chart(name)}.data && !{chart(name)}.hidden")


def figure(page, term):
    """What one of the figures at the top says."""
    return (
        page.locator("#numbers div").filter(has=page.get_by_text(term, exact=True)).locator("dd").first.text_content()
    )


def connection(page):
    return page.evaluate("document.querySelector('.connection').dataset.kind")


def opened(page, name):
    """A part's last table, unfolded."""
    details = page.locator(f"#{name} details:visible").last
    details.locator("summary").click()
    details.locator("table").wait_for()
    return details.locator("table")


# --- a life: nothing, a stream, decisions, rewards, an outage --------------------------------------------------------


def test_from_nothing_to_a_moving_chart_through_an_outage(own, visit):
    page = visit(own.url + "/", expected=[UNREACHED])
    page.wait_for_selector("#welcome:visible")
    assert page.locator("nav").is_hidden()
    own.follow(page.inner_text("#create-command code"))
    page.wait_for_selector("#stream:visible")  # by itself
    assert page.url == f"{own.url}/#/homepage"
    assert page.title() == "Home page · windvane"
    assert page.inner_text("#start-heading") == "No decision yet"
    assert page.locator("#charts").is_hidden()

    own.follow(page.inner_text("#start-command code"))
    until(page, "document.querySelector('#start-heading').textContent === 'No reward yet'")
    assert figure(page, "Decisions") == "1"
    own.follow(page.inner_text("#start-command code"))
    page.wait_for_selector("#start", state="hidden")
    assert figure(page, "Mean reward") == "1"

    drawn(page, "reward")
    before = page.evaluate(f"{chart('reward')}.data[1].y.length")
    own.feed("homepage", 60)
    until(page, f"{chart('reward')}.data[1].y.length > {before}")
    until(page, "document.querySelector('#numbers dd').textContent === '61'")
    drawn(page, "arms")
    assert connection(page) == "live"

    own.end(kill=True)
    page.wait_for_selector(".connection[data-kind=lost]")
    assert page.inner_text("#connection") == "Not connected, trying again"
    assert page.inner_text("#as-of").startswith("as of ")
    assert "not connected" in page.title()
    assert figure(page, "Decisions") == "61"  # what was known stays

    own.start()
    page.wait_for_selector(".connection[data-kind=live]")
    assert "not connected" not in page.title()
    drawn(page, "reward")
    before = page.evaluate(f"{chart('reward')}.data[1].y.length")
    own.feed("homepage", 30, seed=1)
    until(page, f"{chart('reward')}.data[1].y.length > {before}")
    until(page, "document.querySelector('#numbers dd').textContent === '91'")

    own.end()  # with the page open: it does not hold the server up
    page.wait_for_selector(".connection[data-kind=lost]")
    assert [line for line in own.said if "interrupted" not in line] == []


def test_pausing_holds_what_is_shown(server, visit):
    server.create("moving", dim=2)
    server.feed("moving", 10)
    page = visit(server.url + "/#/moving")
    until(page, "document.querySelector('#numbers dd')?.textContent === '10'")
    page.click("#pause")
    until(page, "document.querySelector('#connection').textContent === 'Paused'")
    server.feed("moving", 10)
    server.create("newer", dim=2)
    looks = "performance.getEntriesByType('resource').filter(e => e.name.endsWith('/v1/streams')).length"
    seen = page.evaluate(looks)
    until(page, f"{looks} > {seen}")  # news has come
    assert figure(page, "Decisions") == "10"
    assert "newer" not in page.inner_text("#streams")
    page.click("#pause")
    until(page, "document.querySelector('#numbers dd').textContent === '20'")
    until(page, "document.querySelector('#streams').textContent.includes('newer')")
    assert connection(page) == "live"


# --- what is shown ---------------------------------------------------------------------------------------------------


def test_charts_show_what_the_server_says(server, visit):
    page = visit(server.url + "/#/busy", height=3000)
    drawn(page, "reward", "arms", "memory", "norm", "theta")
    state = server.state("busy")
    buckets = state["statistics"]["buckets"]
    means = [b["total"] / b["rewards"] if b["rewards"] else None for b in buckets]
    dots, line = page.evaluate(f"{chart('reward')}.data.map(t => [...t.y])")
    assert dots == pytest.approx(means)
    last = buckets[-5:]
    assert line[-1] == pytest.approx(sum(b["total"] for b in last) / sum(b["rewards"] for b in last))
    assert page.evaluate(f"{chart('reward')}.layout.shapes[0].y0") == pytest.approx(state["mean_reward"])

    shares = page.evaluate(f"{chart('arms')}.data.map(t => [t.name, [...t.y]])")
    assert {name for name, _ in shares} == set(state["statistics"]["arms"])
    np.testing.assert_allclose(np.sum([y for _, y in shares], axis=0), 100.0)
    for name, y in shares:
        assert y[-1] == pytest.approx(10 * sum(b["arms"].get(name, 0) for b in last) / len(last))
    legend = page.locator("#arms-legend tbody th").all_text_contents()
    assert legend == [name for name, _ in shares]

    norm = page.evaluate(f"[...{chart('norm')}.data[0].y]")
    assert norm[:-1] == pytest.approx([b["model"]["norm"] for b in buckets])
    assert norm[-1] == pytest.approx(math.hypot(*state["theta"].values()))
    assert page.evaluate(f"{chart('norm')}.layout.shapes.length") == 0  # S is learned, so there is no ball
    assert f"the learned scale is S\u00a0=\u00a0{state['S']:g}, which is no bound" in page.inner_text("#norm .reading")
    assert page.evaluate(f"[...{chart('theta')}.data[0].x]") == pytest.approx(list(state["theta"].values()))

    assert page.evaluate(f"{chart('memory')}._fullLayout.yaxis.type") == "log"
    memories = page.evaluate(f"[...{chart('memory')}.data[1].y]")
    known = [(m, b["model"]["memory"]) for m, b in zip(memories, buckets, strict=False) if b["model"]["memory"]]
    assert [m for m, _ in known] == pytest.approx([m for _, m in known])
    assert "Too early to tell" in page.inner_text("#memory .reading")

    assert figure(page, "Decisions") == "150"
    assert figure(page, "Pending") == "30"
    assert page.inner_text("#recent .reading").startswith("30 decisions wait for a reward, 10 of these 50. After 2h")


def test_time_and_decisions_as_axes(server, visit):
    page = visit(server.url + "/#/busy", timezone_id="Asia/Tokyo")
    page.wait_for_selector("#stream:visible")
    page.get_by_label("time", exact=True).check()
    drawn(page, "reward")
    until(page, f"{chart('reward')}._fullLayout.xaxis.type === 'date'")
    until_ = server.state("busy")["statistics"]["buckets"][-1]["until"]
    shown = page.evaluate(f"{chart('reward')}.data[0].x.at(-1)")
    there = np.datetime64(shown).astype("datetime64[ms]").astype(float) / 1000
    assert there - 9 * 3600 == pytest.approx(until_, rel=0, abs=0.002)  # the reader's clock
    page.get_by_label("decisions", exact=True).check()
    until(page, f"{chart('reward')}._fullLayout.xaxis.type === 'linear'")
    suits = "async (buckets) => (await import('/page/stream.js')).inBursts({ statistics: { buckets } })"
    steady = [{"since": 10.0 * i, "until": 10.0 * i + 9} for i in range(20)]
    assert not page.evaluate(suits, steady)
    assert page.evaluate(suits, [*steady, {"since": 900.0, "until": 910.0}])
    assert not page.evaluate(suits, steady[:1])
    assert page.evaluate(f"[...{chart('reward')}.data[0].x]") == list(range(10, 151, 10))


def test_what_is_there_for_those_who_do_not_see_the_charts(server, visit):
    page = visit(server.url + "/#/busy", height=3000)
    until(page, "document.querySelector('#numbers dd')?.textContent === '150'")
    labels = page.evaluate("[...document.querySelectorAll('.chart')].map(d => [d.role, d.getAttribute('aria-label')])")
    assert all(role == "img" and re.search(r"\d", label) for role, label in labels)
    buckets = server.state("busy")["statistics"]["buckets"]
    rows = opened(page, "reward").locator("tbody tr")
    assert rows.count() == len(buckets)
    newest = rows.first.locator("td").all_text_contents()
    assert newest[1:3] == ["10", str(buckets[-1]["rewards"])]
    assert float(newest[3]) == pytest.approx(buckets[-1]["total"] / buckets[-1]["rewards"], abs=1e-3)
    assert opened(page, "memory").locator("tbody tr").count() == len(buckets)
    assert opened(page, "theta").locator("tbody tr").count() == 2
    assert page.evaluate("[...document.querySelectorAll('table')].every(t => t.caption.textContent)")
    assert page.evaluate("[...document.querySelectorAll('thead th')].every(t => t.scope === 'col')")
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.locator("h1:visible").count() == 1
    assert page.get_by_role("navigation", name="Streams").count() == 1
    assert page.get_by_role("status").text_content() == "Live"
    assert page.evaluate("[...document.querySelectorAll('input')].every(e => e.labels.length)")
    named = "document.getElementById(s.getAttribute('aria-labelledby'))"
    assert page.evaluate(f"[...document.querySelectorAll('section')].every(s => {named})")


def test_an_estimate_outside_its_ball_is_projected(server, visit):
    page = visit(server.url + "/#/ball", height=3000)
    drawn(page, "norm")
    state = server.state("ball")
    buckets = state["statistics"]["buckets"]
    assert 0 < state["projected_share"] < 1
    assert sum(b["projected"] for b in buckets) == round(state["projected_share"] * 40)
    strip = page.evaluate(f"[...{chart('norm')}.data[1].y]")
    assert strip[1:] == pytest.approx([100 * b["projected"] / b["decisions"] for b in buckets])
    said = page.inner_text("#norm .reading")
    assert "outside its bound" in said
    assert f"projected back for {100 * state['projected_share']:.1f}" in said
    assert figure(page, "Drift") == "not estimated"
    assert "told how fast to forget" in page.inner_text("#memory .reading")
    assert page.locator("#drift").is_hidden()


def test_what_is_chosen_now_is_named(server, visit):
    """The eighth arm by its count, and the only one lately; and a reward that never came counts as was said."""
    page = visit(server.url + "/#/turnover")
    drawn(page, "arms")
    state = server.state("turnover")
    assert page.inner_text("#arms .reading").startswith("Lately mostly h (100\u00a0%)"), page.inner_text(
        "#arms .reading"
    )
    assert "h" in page.locator("#arms-legend tbody th").all_text_contents()
    assert state["rewards"] == 52
    assert state["defaulted"] > 400
    mean = state["mean_reward"]
    assert mean == pytest.approx(sum(b["total"] for b in state["statistics"]["buckets"]) / state["settled"])
    assert state["settled"] == 52 + state["defaulted"] - state["held"]
    assert mean < 0.1
    assert float(figure(page, "Mean reward")) == pytest.approx(mean, rel=0.05)
    assert "A decision that expires counts as 0" in page.inner_text("#reward figcaption")
    assert page.evaluate(f"{chart('reward')}.layout.shapes[0].y0") == pytest.approx(mean)


@pytest.mark.parametrize("width", [360, 1280])
def test_alerts_say_what_is_wrong_and_what_to_do(server, visit, width):
    """Each in a sentence of its own, above the numbers, and only where there is one."""
    page = visit(server.url + "/#/pressed", width=width)
    drawn(page, "norm")
    sentences = page.locator("#alerts li").all_text_contents()
    alerts = server.state("pressed")["alerts"]
    assert [alert["code"] for alert in alerts] == ["norm_bound_active"]
    assert len(sentences) == 1
    assert sentences[0].startswith("The estimate was at the norm bound S=0.1 in ")
    assert "give a larger S" in sentences[0]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.goto(server.url + "/#/busy")
    until(page, "document.querySelector('#title').textContent === 'Home page'")
    assert not page.is_visible("#alerts")


@pytest.mark.parametrize(("name", "S"), [("ball", 1.0), ("pressed", 0.1)])
def test_a_norm_bound_that_was_given_is_drawn(server, visit, name, S):
    page = visit(f"{server.url}/#/{name}", height=3000)
    drawn(page, "norm")
    assert S in page.evaluate(f"{chart('norm')}.layout.shapes.map(s => s.y1)")
    said = page.inner_text("#norm .reading")
    assert f"its bound S\u00a0=\u00a0{S:g}" in said
    assert ("projected back for" in said) == (name == "ball")  # AdaptiveGLMUCB projects nothing


def test_a_stream_that_is_not_served_is_told(own, visit):
    own.create("sound", dim=2)
    own.create("broken", dim=2)
    own.end()
    with sqlite3.connect(own.store) as store:
        store.execute("UPDATE streams SET config = '{}' WHERE name = 'broken'")
    store.close()
    own.start()
    page = visit(own.url + "/")
    until(page, "!document.querySelector('#broken').hidden")
    assert page.inner_text("#broken").startswith("broken is not served: stream 'broken': its name and configuration")
    assert page.locator("#streams li").count() == 1


def test_five_hundred_coordinates_and_many_arms(server, visit):
    page = visit(server.url + "/#/wide", height=3000)
    drawn(page, "theta", "arms")
    theta = server.state("wide")["theta"]
    largest = sorted(theta.values(), key=abs, reverse=True)[:12]
    assert page.evaluate(f"[...{chart('theta')}.data[0].x]") == pytest.approx(largest)
    assert "The 12 largest of 500" in page.inner_text("#theta .reading")
    assert opened(page, "theta").locator("tbody tr").count() == 500
    names = page.locator("#arms-legend tbody th").all_text_contents()
    assert len(names) == 8
    assert names[-1] == "all others"


def test_states_without_charts(server, visit):
    page = visit(server.url + "/#/unanswered")
    until(page, "document.querySelector('#start-heading').textContent === 'No reward yet'")
    assert page.inner_text("#reward .blank") == "The chart begins with the first reward."
    assert page.locator("#reward .chart").is_hidden()
    assert "nan" not in page.inner_text("main").lower().split()
    page.goto(server.url + "/#/featured")
    until(page, "document.querySelector('#start-heading').textContent === 'No decision yet'")
    assert "it'\\''s a phone" in page.inner_text("#start-command code")
    page.goto(server.url + "/#/old")
    page.wait_for_selector("#archived:visible")
    assert "decides and learns no more" in page.inner_text("#archived")
    assert figure(page, "Memory") == "2.9 days"
    assert page.locator("#streams li").last.inner_text() == "Last summer\narchived"
    page.goto(server.url + "/#/nowhere%22%3Cb%3E")
    page.wait_for_selector("#missing:visible")
    assert 'called “nowhere"<b>”' in page.inner_text("#missing")
    page.goto(server.url + "/#%zz")
    until(page, "document.querySelector('#missing-message').textContent.includes('“%zz”')")


def test_recent_decisions_can_be_narrowed(server, visit):
    page = visit(server.url + "/#/busy", 1600)
    until(page, "document.querySelectorAll('#decisions tbody tr').length === 10")
    state = server.state("busy")["statistics"]["recent"]
    shown = page.locator("#decisions tbody tr").all_text_contents()
    assert all(row["decision"] in text for row, text in zip(state[::-1], shown, strict=False))
    page.get_by_role("button", name="Show all 50").click()
    assert page.locator("#decisions tbody tr").count() == 50
    page.get_by_role("button", name="Pending", exact=True).click()
    assert page.locator("#decisions tbody tr").count() == 10
    assert all("pending" in text for text in page.locator("#decisions tbody tr").all_text_contents())


def test_findings_in_words(server, visit):
    page = visit(server.url + "/healthz", expected=[NO_ICON])  # of this origin: only a module of the page is needed
    say = "async ([name, ...given]) => (await import('/page/words.js'))[name](...given)"
    drift = {"verdict": "drift", "evidence": 140.0}
    state = {"drift": drift, "memory": 80.0, "memory_unit": "decisions", "rewards": 900, "decisions": 1000}
    assert "What works is changing" in page.evaluate(say, ["drift", state])["long"]
    assert "about the last 80 decisions" in page.evaluate(say, ["drift", state])["long"]
    calm = {**state, "drift": {**drift, "verdict": "no drift seen"}, "memory": None}
    assert "seems steady. Decisions go by everything so far" in page.evaluate(say, ["drift", calm])["long"]
    assert "never forgets" in page.evaluate(say, ["drift", {**calm, "drift": None}])["long"]
    early = {**state, "drift": {**drift, "verdict": "too little data to tell"}}
    assert "Too early to tell" in page.evaluate(say, ["drift", early])["long"]
    assert page.evaluate(say, ["evidence", 140.0]) == "more than a million to 1 for change"
    assert page.evaluate(say, ["evidence", -3.0]) == "20 to 1 against change"
    assert [page.evaluate(say, ["count", n]) for n in (999, 1234567, 12345678)] == ["999", "1,234,567", "12.3M"]
    assert [page.evaluate(say, ["number", x]) for x in (0.5, 1.0, -0.01234, 5.46e-5)] == [
        "0.500", "1", "−0.0123", "5.5e−5"
    ]  # fmt: skip
    assert [page.evaluate(say, ["span", s]) for s in (59, 90, 86400, 3e5)] == ["59 s", "1.5 min", "1 day", "3.5 days"]


# --- names from outside ----------------------------------------------------------------------------------------------


def test_hostile_names_are_text(server, visit):
    page = visit(server.url + "/#/hostile", height=3000)
    drawn(page, "arms", "theta")
    title = HOSTILE + "x" * (200 - len(HOSTILE))
    assert page.locator("h1:visible").text_content() == title
    assert title in page.locator("#streams").text_content()
    legend = page.locator("#arms-legend tbody th").all_text_contents()
    chosen = server.state("hostile")["statistics"]["arms"]
    assert legend == list(chosen)
    assert HOSTILE in legend
    assert page.locator("#decisions td.arm").first.get_attribute("title") in chosen
    for details in page.locator("details.data:visible").all():
        details.locator("summary").click()
    page.evaluate(f"Plotly.Fx.hover({chart('arms')}, [{{curveNumber: 0, pointNumber: 1}}])")
    page.wait_for_selector("#arms g.hoverlayer text")
    assert legend[0][:25] in page.locator("#arms g.hoverlayer").text_content()
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() + page.locator("svg a").count() + page.locator("main a").count() == 0


def test_the_policy_forbids_scripts_from_elsewhere(server):
    for path in ("/", "/page/page.js", "/page/plotly.js"):
        found = httpx.get(server.url + path, headers={"accept-encoding": "gzip"})
        assert found.headers["content-encoding"] == "gzip"
        policy = dict(part.strip().split(" ", 1) for part in found.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["connect-src"] == "'self'"
        plain = httpx.get(server.url + path, headers={"accept-encoding": "identity"})
        assert plain.content == found.content
        assert plain.headers["etag"] != found.headers["etag"]
        again = httpx.get(
            server.url + path, headers={"accept-encoding": "gzip", "if-none-match": found.headers["etag"]}
        )
        assert (again.status_code, again.content) == (304, b"")
    text = httpx.get(server.url + "/").text
    assert not re.search(r"(src|href)=[\"']?(https?:|//)", text)
    assert httpx.get(server.url + "/page/..%2fapp.py").status_code == 404


# --- how it is used --------------------------------------------------------------------------------------------------


def focused(page):
    return page.evaluate(
        """(() => {
            const e = document.activeElement, style = getComputedStyle(e);
            const ring = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
            return [e.id || e.textContent.trim().slice(0, 40) || e.name, ring, e.getBoundingClientRect().width > 0];
        })()"""
    )


def test_everything_without_a_mouse(server, visit):
    page = visit(server.url + "/#/busy")
    until(page, "document.querySelectorAll('#decisions tbody tr').length === 10")
    stops = []
    for _ in range(60):
        page.keyboard.press("Tab")
        name, ring, seen = focused(page)
        if page.evaluate("document.activeElement === document.body"):
            break
        assert ring, name
        assert seen, name
        stops.append(name)
    assert stops[0] == "skip"
    expected = ["pause", "Reward rate as a table", "Shares as a table", "Memory as a table", "All", "more", "Settings"]
    assert [name for name in stops if name in expected] == expected
    streams = ["Home page150 decisions", "ball40 decisions", "Last summerarchived", "featuredno decisions"]
    assert [name for name in stops if name.startswith(tuple(streams))] == [
        next(name for name in stops if name.startswith(one)) for one in (*streams[:2], streams[3], streams[2])
    ]

    page.reload()
    until(page, "document.querySelectorAll('#decisions tbody tr').length === 10")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    assert page.url.endswith("#/busy")
    page.keyboard.press("Tab")
    drawn(page, "reward")
    before = page.evaluate(f"{chart('reward')}._fullLayout.xaxis.type")  # of the one that suits
    page.keyboard.press("ArrowRight")
    until(page, f"{chart('reward')}._fullLayout.xaxis.type !== '{before}'")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#reward table")
    link = page.locator("#streams a", has_text="Last summer")
    link.focus()
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#title').textContent === 'Last summer'")
    assert link.get_attribute("aria-current") == "page"
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#/old"
    page.go_back()
    until(page, "document.querySelector('#title').textContent === 'Home page'")


def test_nothing_sticks_out(server, visit):
    page = visit(server.url + "/", 360, 4000)
    page.wait_for_selector("#stream:visible")
    for details in page.locator("details:visible").all():
        details.locator("> summary").click()
    for name in ("busy", "hostile", "wide"):
        page.goto(f"{server.url}/#/{name}")
        until(page, f"document.querySelector('#about code').textContent === '{name}'")
        for width in (360, 768, 1280):
            page.set_viewport_size({"width": width, "height": 4000})
            drawn(page, "reward", "arms", "memory", "norm", "theta")
            widths = "[...document.querySelectorAll('.chart')].map(d => [d._fullLayout.width, d.clientWidth])"
            until(page, f"{widths}.every(([drawn, room]) => Math.abs(drawn - room) < 1)")  # redrawn to fit
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            inside = "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, svg, .unseen, pre'))"
            assert max(page.evaluate(f"{inside}.map(e => e.getBoundingClientRect().right)")) <= width


def rgb(page, script):
    return [int(part) for part in re.findall(r"\d+", page.evaluate(script))[:3]]


def test_dark_mode_and_back(server, visit):
    page = visit(server.url + "/#/busy", color_scheme="dark")
    drawn(page, "reward")
    ground, ink = "getComputedStyle(document.body).backgroundColor", "getComputedStyle(document.body).color"
    labels = f"getComputedStyle({chart('reward')}.querySelector('.xtick text')).fill"
    line = f"{chart('reward')}.data[1].line.color"
    assert max(rgb(page, ground)) < 60
    assert min(rgb(page, ink)) > 180
    assert min(rgb(page, labels)) > 150
    assert page.evaluate(line) == "#4aa8e0"
    page.emulate_media(color_scheme="light")
    until(page, f"{line} === '#0072b2'")
    until(page, f"{labels} === 'rgb(86, 93, 102)'")
    assert min(rgb(page, ground)) > 230


def test_the_list_on_a_phone(server, visit):
    page = visit(server.url + "/#/busy", 360, 740, has_touch=True)
    until(page, "document.querySelector('#title').textContent === 'Home page'")
    assert page.locator("#streams").is_hidden()
    page.tap("#nav summary")
    page.tap("#streams a[href='#/old']")
    until(page, "document.querySelector('#title').textContent === 'Last summer'")
    assert page.locator("#streams").is_hidden()


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_a_token_is_asked_for_and_kept_in_the_tab(tmp_path, browser, visit):
    own = Server(tmp_path)
    store = Store(own.store)
    full, reading = new_token(store, "shop", full=True), new_token(store, "dashboard", full=False)
    store.close()
    own.start()
    try:
        own.ask("/v1/streams", {"name": "guarded", "dim": 2}, token=full)
        page = visit(own.url + "/#guarded", 360, 740, expected=[REFUSED])
        page.wait_for_selector("#access:visible")
        assert page.inner_text("#access-message") == "This server asks for an access token."
        assert page.locator("nav").is_hidden()
        until(page, "document.activeElement.id === 'token'")
        page.keyboard.type("wv_wrong")
        page.keyboard.press("Enter")
        until(page, "document.querySelector('#access-message').textContent.includes('does not know this token')")
        page.keyboard.type(reading)
        page.keyboard.press("Enter")
        page.wait_for_selector("#stream:visible")
        assert page.inner_text("#title") == "guarded"
        assert "$TOKEN" in page.inner_text("#start-command code")
        assert reading not in page.content() + page.url
        assert page.evaluate("[document.cookie, localStorage.length, sessionStorage.length]") == ["", 0, 1]
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.reload()
        page.wait_for_selector("#stream:visible")
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_selector("#access:visible")
        assert page.evaluate("sessionStorage.length") == 0
    finally:
        own.end()


# --- what the charts are made of -------------------------------------------------------------------------------------


def test_buckets_count_everything_and_keep_the_arms_chosen_most():
    found, rng = Statistics(), np.random.default_rng(0)
    played = np.minimum(rng.geometric(0.05, size=5000), 1500)
    for i, arm in enumerate(played.tolist()):
        found.decided(float(i), arm, str(i), 0.5, None if i < 100 else arm > 20, {"norm": float(i)})
        if i % 3 == 0:
            found.settle(1.0)
    document = json.loads(json.dumps(found.document()))
    buckets = document["buckets"]
    assert len(buckets) <= MOST_BUCKETS
    assert sum(b["decisions"] for b in buckets) == 5000
    assert all(sum(b["arms"].values()) + b["others"] == b["decisions"] for b in buckets)
    assert all(len(b["arms"]) <= MOST_ARMS for b in buckets[:-1])
    assert sum(document["arms"].values()) + document["others"] == 5000
    assert sum(b["rewards"] for b in buckets) == sum(b["total"] for b in buckets) == len(range(0, 5000, 3))
    assert sum(b["projected"] or 0 for b in buckets) == int((played[100:] > 20).sum())
    assert [b["model"]["norm"] for b in buckets] == [b["since"] for b in buckets]
    counts = np.bincount(played[: buckets[0]["decisions"]])
    assert max(buckets[0]["arms"].values()) == counts.max()
    assert Statistics.of(document).document() == document
