"""The live table of decisions, and the dialog that explains one."""

from __future__ import annotations

import pytest

from support.page import until

NOT_FOUND = "Failed to load resource: the server responded with a status of 404"
ROWS = "document.querySelectorAll('#decisions tbody tr').length"


def test_recent_decisions_can_be_filtered(server, visit):
    page = visit(server.url + "/#/busy", 1600)
    until(page, f"{ROWS} === 10")
    recent = server.charts("busy")["recent"]
    texts = page.locator("#decisions tbody tr").all_text_contents()
    assert all(row["id"] in text for row, text in zip(recent[::-1], texts, strict=False))
    page.get_by_role("button", name="Show all 50").click()
    assert page.locator("#decisions tbody tr").count() == 50
    page.get_by_role("button", name="Pending", exact=True).click()
    assert page.locator("#decisions tbody tr").count() == 10
    assert all("pending" in text for text in page.locator("#decisions tbody tr").all_text_contents())


@pytest.fixture
def live(server, visit, request):
    """A stream for one test, and its page."""
    name = request.node.name
    server.create(name, dim=2)
    server.feed(name, 20, rewarded=0)
    page = visit(f"{server.url}/#/{name}", 1600, expected=[NOT_FOUND])
    until(page, f"{ROWS} === 10")
    return name, page


def test_a_selection_survives_updates(server, live):
    name, page = live
    row = "document.querySelectorAll('#decisions tbody tr')[2]"
    page.evaluate(f"window.row = {row}; window.cell = row.cells[1].firstChild; getSelection().selectAllChildren(row)")
    text = page.evaluate("String(getSelection()).trim()")
    server.reward(name, page.evaluate("row.dataset.key"), 1.0)
    server.feed(name, 30, rewarded=0, seed=1)  # pushes the row out of the latest ten
    until(page, "document.querySelector('#numbers dd').textContent === '50'")
    page.wait_for_timeout(1500)  # ages are brought up to date every second
    assert page.evaluate("String(getSelection()).trim()") == text
    assert page.evaluate("row.isConnected && row.cells[1].firstChild === cell")
    assert page.evaluate(ROWS) == 11
    page.evaluate("getSelection().removeAllRanges()")
    server.feed(name, 10, rewarded=0, seed=2)
    until(page, f"!row.isConnected && {ROWS} === 10")


def test_rows_that_did_not_change_are_not_touched(server, live):
    name, page = live
    page.evaluate("""() => {
        window.changes = new Set();
        new MutationObserver((records) => records.filter(({ target }) => target.nodeName !== 'TIME')
            .forEach(({ target }) => window.changes.add(target.closest('tr')?.dataset.key ?? target.nodeName))
        ).observe(document.querySelector('#decisions tbody'), { subtree: true, childList: true });
    }""")
    key = page.evaluate("document.querySelectorAll('#decisions tbody tr')[4].dataset.key")
    server.reward(name, key, 1.0)
    until(page, f"document.querySelector('#decisions [data-key=\"{key}\"] .outcome').textContent === '1'")
    assert page.evaluate("[...changes]") == [key]


def test_a_decision_is_explained(server, live):
    name, page = live
    link = page.locator("#decisions tbody tr a").nth(3)
    link.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.locator("dl div").first.wait_for()
    decision = page.evaluate("location.hash.split('/').at(-1)")
    path = f"/v1/streams/{name}/decisions/{decision}"
    assert dialog.locator(".text").inner_text().startswith(server.request("GET", f"{path}/explanation")["text"])
    assert dialog.locator("[data-key=Reward] dd").inner_text() == "pending"
    assert dialog.locator("[data-key=Arm] dd").inner_text() == server.request("GET", path)["decision"]["arm"]
    server.reward(name, decision, 1.0)  # while it is open
    until(page, "document.querySelector('dialog [data-key=Reward] dd').textContent === '1'")
    page.keyboard.press("Escape")
    until(page, f"location.hash === '#/{name}'")
    assert page.evaluate("document.activeElement.hash") == f"#/{name}/{decision}"  # focus returns to the link

    page.goto("about:blank")
    page.goto(f"{server.url}/#/{name}/{decision}")  # the address can be shared
    dialog.locator("dl div").first.wait_for()
    page.get_by_role("button", name="Close").click()
    until(page, f"location.hash === '#/{name}' && !document.querySelector('dialog').open")
    page.goto(f"{server.url}/#/{name}/unknown")
    until(page, "/unknown/.test(document.querySelector('dialog .text').textContent)")
    assert page.locator("dialog dl div").count() == 0


def test_a_late_reward_is_shown_as_late(server, visit):
    server.create("late", dim=2, reward_timeout=5, default_reward=0.0)
    server.feed("late", 20, rewarded=0)
    decision = server.charts("late")["recent"][0]["id"]
    server.reward("late", decision, 1.0)
    page = visit(f"{server.url}/#/late/{decision}")
    until(page, "document.querySelector('dialog [data-key=Reward] dd')")
    assert page.inner_text("dialog [data-key=Reward] dd") == "expired; 1 arrived too late and was not learned"
