"""The page of several nodes: who is there, what each owns, who is missing, and streams of any node from any node."""

from __future__ import annotations

import pytest

from support.nodes import NodeForks, ServiceCluster
from support.page import CONTRAST, PATIENCE, connection, figure, until
from support.postgres import Cluster

REFUSED = "Failed to load resource: "
ROWS = "[...document.querySelectorAll('#nodes tbody tr')].map((row) => [...row.cells].map((c) => c.innerText.trim()))"
# In how many lines the address of the first node is written.
ADDRESS_LINES = """(() => {
  const range = document.createRange();
  range.selectNodeContents(document.querySelector("#nodes tbody .note"));
  return new Set([...range.getClientRects()].map((box) => box.top)).size;
})()"""


@pytest.fixture
def nodes(cluster: Cluster, node_forks: NodeForks, database: str):
    running = ServiceCluster(node_forks, cluster, database)
    try:
        running.start("a", "b", "c")
        yield running
    finally:
        running.close()


def is_served(shards: int) -> str:
    """Return an expression that is true if the nodes that are there own as many shards."""
    cells = "[...document.querySelectorAll('#nodes tr:not([data-kind=missing]) td.shards')]"
    return f"{cells}.reduce((sum, cell) => sum + Number(cell.textContent), 0) === {shards}"


def test_the_nodes_are_shown_and_one_is_missed(nodes, visit):
    names = nodes.create_streams([f"s{i}" for i in range(6)])
    page = visit(f"http://{nodes.nodes['b'].address}/#cluster", expected=[REFUSED])
    page.wait_for_selector("#cluster:visible")
    until(page, is_served(64))
    assert page.title() == "Nodes · windvane"
    assert page.inner_text("#cluster .reading") == "3 nodes serve 64 shards of streams. Node b answers this page."
    rows = page.evaluate(ROWS)
    assert [row[0].split()[0] for row in rows] == ["a", "b", "c"]
    assert [row[0].endswith("answers this page") for row in rows] == [False, True, False]
    assert sum(int(row[3]) for row in rows) == len(names)
    assert page.inner_text("#cluster-summary") == "3 nodes"
    assert page.locator("#unowned").is_hidden()
    for width in (360, 390, 820, 1280):
        page.set_viewport_size({"width": width, "height": 760})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert width < 390 or page.evaluate(ADDRESS_LINES) == 1
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(CONTRAST) == []

    nodes.nodes["c"].kill()
    page.wait_for_selector("#nodes tr[data-kind=missing]")
    assert page.inner_text("#cluster-summary") == "2 nodes, 1 missing"
    assert page.locator("#nodes tr[data-kind=missing]").inner_text().startswith("c\nmissing, last seen ")
    until(page, is_served(64))
    page.wait_for_selector("#unowned", state="hidden")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(CONTRAST) == []
    nodes.restart("c")
    page.wait_for_selector("#nodes tr[data-kind=missing]", state="detached")
    assert page.inner_text("#cluster-summary") == "3 nodes"


def test_streams_of_other_nodes_are_followed_through_a_failover(nodes, visit):
    stream = nodes.create_owned("b", "followed")
    page = visit(f"http://{nodes.nodes['a'].address}/#/{stream}", expected=[REFUSED])
    until(page, f"document.querySelector('#title').textContent === '{stream}'")
    page.get_by_role("button", name="Send").click()
    until(page, "document.querySelector('#numbers dd')?.textContent === '1'")
    nodes.nodes["b"].kill()
    nodes.decide(stream, seconds=PATIENCE)
    until(page, "document.querySelector('#numbers dd').textContent === '2'")
    page.wait_for_selector(".connection[data-kind=live]")
    assert (figure(page, "Decisions"), connection(page)) == ("2", "live")


def test_shards_without_an_owner_are_reported(nodes, visit):
    """Also while a stream is shown, which another shard has."""
    page = visit(f"http://{nodes.nodes['a'].address}/#cluster", expected=[REFUSED])
    page.wait_for_selector("#cluster:visible")
    page.route("**/v1/cluster*", lambda route: _answer(route, unowned=[3, 7]))
    until(page, "document.querySelector('#unowned').textContent.startsWith('2 shards (3, 7) have no owner: ')")
    assert page.locator("#unowned").is_visible()
    page.route("**/v1/cluster*", lambda route: _answer(route, unowned=list(range(20))))
    until(page, "document.querySelector('#unowned').textContent.startsWith('20 shards have no owner: ')")
    page.unroute_all()
    page.wait_for_selector("#unowned", state="hidden")


def _answer(route, **changes) -> None:
    response = route.fetch()
    route.fulfill(response=response, json={**response.json(), **changes})


def test_a_service_on_a_file_shows_no_nodes(own, visit):
    own.create("alone", dim=2)
    page = visit(own.url + "/#cluster", expected=[REFUSED])
    until(page, "document.querySelector('#title').textContent === 'alone'")
    assert page.locator("#cluster-summary").is_hidden()
    assert page.locator("#cluster").is_hidden()
