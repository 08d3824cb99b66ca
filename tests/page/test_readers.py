"""Readers: with a keyboard, a screen reader, a phone, in the dark; and names that are made to harm."""

from __future__ import annotations

import re

import httpx2
import pytest

from support.page import CONTRAST, HOSTILE, open_table, plot, until

CHARTS = ["#reward .chart", "#arms .chart", "#predictions .chart", "#memory .memory", "#norm .norm"]


def test_hostile_names_are_text(server, visit):
    page = visit(server.url + "/#/hostile", height=3000)
    plot(page, "#arms .chart")
    title = HOSTILE + "x" * (200 - len(HOSTILE))
    assert page.locator("h1:visible").text_content() == title
    assert title in page.locator("#streams").text_content()
    legend = page.locator("#arms-legend tbody th").all_text_contents()
    arms = server.charts("hostile")["arms"]
    assert sorted(legend) == sorted(arms)
    assert HOSTILE in legend
    assert page.locator("#decisions td.arm").first.get_attribute("title") in arms
    for details in page.locator("details.data:visible").all():
        details.locator("summary").click()
    page.locator("#arms .u-over").hover()
    assert any(name[:25] in page.inner_text("#arms .tooltip") for name in legend)
    page.locator("#decisions tbody tr a").first.click()
    page.locator("dialog dl div").first.wait_for()
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    links = "[...document.querySelectorAll('main a, dialog a')]"
    assert page.evaluate(f"{links}.every(a => a.hash.startsWith('#/hostile/'))")


def test_the_policy_forbids_scripts_from_elsewhere(server):
    for path in ("/", "/page/app.js", "/page/vendor/uPlot.iife.min.js"):
        answer = httpx2.get(server.url + path)
        policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["connect-src"] == "'self'"
    text = httpx2.get(server.url + "/").text
    assert not re.search(r"(src|href)=[\"']?(https?:|//)", text)
    assert httpx2.get(server.url + "/page/..%2fengine.py").status_code == 404


def test_everything_is_loaded_in_less_than_250_kilobytes(server):
    text = httpx2.get(server.url + "/").text
    paths = re.findall(r"(?:src|href)=\"(page/[^\"]+)\"", text)
    modules = {path for path in paths if path.endswith(".js") and "vendor" not in path}
    answers = {path: httpx2.get(f"{server.url}/{path}") for path in paths}
    assert all(answer.status_code == 200 for answer in answers.values())
    sources = "\n".join(answers[path].text for path in modules)
    imports = set(re.findall(r"^(?:import|}).* from \"\./([^\"]+)\"", sources, re.M))
    assert {f"page/{name}" for name in imports} <= modules  # each module is preloaded
    assert sum(len(answer.content) for answer in answers.values()) + len(text) < 250_000


def test_readers_who_do_not_see_the_charts(server, visit):
    page = visit(server.url + "/#/busy", height=3000)
    until(page, "document.querySelector('#numbers dd')?.textContent === '150'")
    charts = "[...document.querySelectorAll('.chart:not([hidden])')].map(d => [d.role, d.getAttribute('aria-label')])"
    assert all(role == "img" and label for role, label in page.evaluate(charts))
    buckets = server.charts("busy")["buckets"]
    rows = open_table(page, "reward").locator("tbody tr")
    assert rows.count() == len(buckets)
    latest = rows.first.locator("td").all_text_contents()
    assert latest[1:3] == ["10", str(buckets[-1]["settled"])]
    assert float(latest[3]) == pytest.approx(buckets[-1]["total"] / buckets[-1]["settled"], abs=1e-3)
    assert open_table(page, "memory").locator("tbody tr").count() == len(buckets)
    assert open_table(page, "theta").locator("tbody tr").count() == 2
    assert page.evaluate("[...document.querySelectorAll('table')].every(t => t.caption.textContent)")
    assert page.evaluate("[...document.querySelectorAll('thead th')].every(t => t.scope === 'col')")
    assert page.locator("h1:visible").count() == 1
    assert page.get_by_role("navigation", name="Streams").count() == 1
    assert page.locator("#connection[role=status]").text_content() == "Live"
    assert page.evaluate("[...document.querySelectorAll('input')].every(e => e.labels.length)")
    label = "document.getElementById(s.getAttribute('aria-labelledby'))"
    assert page.evaluate(f"[...document.querySelectorAll('section, dialog')].every(s => {label})")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(CONTRAST) == []


FOCUS = """(() => {
    const node = document.activeElement, style = getComputedStyle(node);
    const hasRing = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
    const text = node.id || node.textContent.trim().slice(0, 40) || node.name;
    return [text, hasRing, node.getBoundingClientRect().width > 0, node === document.body];
})()"""


def test_everything_works_without_a_mouse(server, visit):
    page = visit(server.url + "/#/busy")
    until(page, "document.querySelectorAll('#decisions tbody tr').length === 10")
    page.locator("#streams a").first.wait_for()
    stops = []
    for _ in range(80):
        page.keyboard.press("Tab")
        name, has_ring, is_visible, is_end = page.evaluate(FOCUS)
        if is_end:
            break
        assert has_ring, name
        assert is_visible, name
        stops.append(name)
    assert stops[0] == "skip"
    expected = ["pause", "Reward rate as a table", "Shares as a table", "Memory as a table", "All", "more", "Settings"]
    assert [name for name in stops if name in expected] == expected
    assert stops.count("Why?") == 10
    streams = [name for name in stops if name.startswith(("Home page150 decisions", "ball40", "Last summerarchived"))]
    assert [name[:4] for name in streams] == ["ball", "Home", "Last"]  # archived streams come last

    page.reload()
    until(page, "document.querySelectorAll('#decisions tbody tr').length === 10")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.keyboard.press("Tab")
    before = plot(page, "#reward .chart")["kind"]
    page.keyboard.press("ArrowRight")
    assert plot(page, "#reward .chart")["kind"] != before
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


def test_nothing_overflows(server, visit):
    page = visit(server.url + "/", 360, 5000)
    page.wait_for_selector("#stream:visible")
    for details in page.locator("details:visible").all():
        details.locator("> summary").click()
    for name in ("busy", "hostile", "wide"):
        page.goto(f"{server.url}/#/{name}")
        until(page, f"document.querySelector('#about code').textContent === '{name}'")
        for width in (360, 768, 1280, 1600):
            page.set_viewport_size({"width": width, "height": 5000})
            for selector in CHARTS:
                room = f"document.querySelector('{selector}').clientWidth"
                until(page, f"document.querySelector('{selector} .uplot')?.clientWidth === {room}")  # redrawn to fit
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            inside = "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, .unseen, pre, .uplot'))"
            assert max(page.evaluate(f"{inside}.map(e => e.getBoundingClientRect().right)")) <= width


def test_dark_mode_and_back(server, visit):
    page = visit(server.url + "/#/busy", color_scheme="dark")
    assert plot(page, "#reward .chart")["colors"][2] == "#4aa8e0"
    ground = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    assert max(page.evaluate(ground)) < 60
    page.emulate_media(color_scheme="light")
    until(page, f"Math.min(...{ground}) > 230")
    assert plot(page, "#reward .chart")["colors"][2] == "#0072b2"


def test_the_list_on_a_phone(server, visit):
    page = visit(server.url + "/#/busy", 360, 740, has_touch=True)
    until(page, "document.querySelector('#title').textContent === 'Home page'")
    assert page.locator("#streams").is_hidden()
    page.tap("#nav summary")
    page.tap("#streams a[href='#/old']")
    until(page, "document.querySelector('#title').textContent === 'Last summer'")
    assert page.locator("#streams").is_hidden()
