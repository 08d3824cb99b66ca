"""The page through a stream's life: nothing, a stream, decisions, rewards, an outage, a pause, tokens."""

from __future__ import annotations

import sqlite3

from support.page import PageServer, connection, figure, plot, until
from support.server import run_command

REFUSED = "Failed to load resource: "


def test_from_nothing_to_a_moving_chart_through_an_outage(own, visit):
    page = visit(own.url + "/", expected=[REFUSED])
    page.wait_for_selector("#new-stream:visible")
    assert page.locator("nav").is_hidden()
    own.run_curl(page.inner_text("#create-command code"))
    page.wait_for_selector("#stream:visible")  # by itself
    assert page.url == f"{own.url}/#/homepage"
    assert page.title() == "Home page · windvane"
    assert page.inner_text("#start-heading") == "No decision yet"
    assert page.locator("#charts").is_hidden()

    own.run_curl(page.inner_text("#start-command code"))
    until(page, "document.querySelector('#start-heading').textContent === 'No reward yet'")
    assert figure(page, "Decisions") == "1"
    page.get_by_role("button", name="Send").click()
    page.wait_for_selector("#start", state="hidden")
    assert figure(page, "Mean reward") == "1"

    before = len(plot(page, "#reward .chart")["x"])
    own.feed("homepage", 60)
    until(page, "document.querySelector('#numbers dd').textContent === '61'")
    assert len(plot(page, "#reward .chart")["x"]) > before
    assert connection(page) == "live"

    own.kill()
    page.wait_for_selector(".connection[data-kind=lost]")
    assert page.inner_text("#connection") == "Not connected, retrying"
    assert page.inner_text("#as-of").startswith("as of ")
    assert "not connected" in page.title()
    assert figure(page, "Decisions") == "61"  # the last known state stays

    own.start()
    page.wait_for_selector(".connection[data-kind=live]")
    assert "not connected" not in page.title()
    own.feed("homepage", 30, seed=1)
    until(page, "document.querySelector('#numbers dd').textContent === '91'")
    assert plot(page, "#norm .norm")["lines"]["norm"][0] is None  # the model is known since the server started
    assert "since the server started" in page.inner_text("#norm figcaption")
    own.stop()  # an open page does not delay it
    page.wait_for_selector(".connection[data-kind=lost]")


def test_a_stream_is_created_with_the_form(server, visit):
    server.create("first", dim=2)
    page = visit(server.url + "/#new", expected=[REFUSED])
    page.fill("#new-name", "first")
    page.get_by_role("button", name="Create stream").click()
    until(page, "document.querySelector('#new-stream .problem').textContent.includes('already exists')")
    page.fill("#new-name", "second")
    page.fill("#new-timeout", "2 hours?")
    page.get_by_role("button", name="Create stream").click()
    until(page, "document.activeElement.id === 'new-timeout'")  # the problem's pointer names the field
    page.fill("#new-timeout", "2h")
    page.fill("#new-default", "0")
    assert '"reward_timeout":"2h"' in page.inner_text("#create-command code")
    page.keyboard.press("Enter")
    until(page, "location.hash === '#/second'")
    page.wait_for_selector("#start:visible")
    settings = server.info("second")["settings"]
    assert (settings["reward_timeout"], settings["default_reward"], settings["dim"]) == ("2h", 0.0, 2)


def test_pausing_keeps_what_is_shown(server, visit):
    server.create("moving", dim=2)
    server.feed("moving", 10)
    page = visit(server.url + "/#/moving")
    until(page, "document.querySelector('#numbers dd')?.textContent === '10'")
    page.click("#pause")
    until(page, "document.querySelector('#connection').textContent === 'Paused'")
    server.feed("moving", 10)
    server.create("newer", dim=2)
    lists = "performance.getEntriesByType('resource').filter(e => e.name.includes('/v1/streams?')).length"
    count = page.evaluate(lists)
    until(page, f"{lists} > {count}")
    assert figure(page, "Decisions") == "10"
    assert "newer" not in page.inner_text("#streams")
    page.click("#pause")
    until(page, "document.querySelector('#numbers dd').textContent === '20'")
    until(page, "document.querySelector('#streams').textContent.includes('newer')")
    assert connection(page) == "live"


def test_long_lists_are_paged_and_an_unavailable_stream_is_reported(own, visit):
    for name in ("broken", *(f"stream-{i:03}" for i in range(105))):
        own.create(name, dim=1)
    own.stop()
    with sqlite3.connect(own.store) as store:
        store.execute("UPDATE streams SET config = '{}' WHERE name = 'broken'")
    store.close()
    own.start()
    page = visit(own.url + "/")
    until(page, "!document.querySelector('#unavailable').hidden")
    assert page.inner_text("#unavailable").startswith("broken is unavailable: ")
    until(page, "document.querySelectorAll('#streams li').length === 100")
    page.fill("#filter", "stream-104")
    assert page.inner_text("#no-match") == "None of the first 100 matches."
    page.keyboard.press("Enter")  # a name that is not in the list is opened all the same
    until(page, "document.querySelector('#title').textContent === 'stream-104'")
    page.get_by_role("button", name="Show more streams").click()
    until(page, "document.querySelectorAll('#streams li').length === 1")
    page.fill("#filter", "")
    assert page.locator("#streams li").count() == 105
    assert page.locator("#more-streams").is_hidden()


def test_a_token_is_requested_and_kept_in_the_tab(tmp_path, visit):
    own = PageServer(tmp_path)
    full, reading = (
        run_command("token", "add", name, "--store", own.store, *options).stdout.split()[-1]
        for name, options in (("shop", []), ("dashboard", ["--read-only"]))
    )
    own.start()
    try:
        own.request("POST", "/v1/streams", {"name": "guarded", "dim": 2}, token=full)
        page = visit(own.url + "/#/guarded", 360, 740, expected=[REFUSED])
        page.wait_for_selector("#access:visible")
        assert page.inner_text("#access-message") == "This server requires an access token."
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
        page.get_by_role("button", name="Send").click()
        until(page, "/read/.test(document.querySelector('#start-command [role=status]').textContent)")
        assert reading not in page.content() + page.url
        assert page.evaluate("[document.cookie, localStorage.length, sessionStorage.length]") == ["", 0, 1]
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.reload()
        page.wait_for_selector("#stream:visible")
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_selector("#access:visible")
        assert page.evaluate("sessionStorage.length") == 0
    finally:
        own.stop()
