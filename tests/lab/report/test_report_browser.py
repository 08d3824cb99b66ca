"""The report in a real browser: what is drawn, what it does when used, and what it does not do."""

from __future__ import annotations

import dataclasses
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from support import sample_results as samples
from support.page import HOSTILE, PATIENCE, until
from windvane.lab.figures.plotly_renderer import MOST
from windvane.lab.report.report import write_report

CURVES = "document.querySelector('[data-chart=regret-0] .chart')"


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """The pages under test, each written once."""
    folder = tmp_path_factory.mktemp("reports")
    full = samples.four(with_diagnostics=True, runs=20)
    vars(full[3])["told"] = ("drift", "switches")
    hostile = samples.entry(name=HOSTILE, environment=HOSTILE, with_diagnostics=True, runs=5)
    names = {"environment": HOSTILE, "label": HOSTILE, "baseline": HOSTILE}
    differences = [dataclasses.replace(samples.differences(1)[0], **names)]
    several = [*samples.four(runs=3), *samples.four(runs=3, environment="elsewhere", horizon=500)]
    write_report(
        samples.results(full),
        folder / "four.html",
        heading="Four policies",
        notes={"Notes": ["A note on what was assumed."]},
        published=samples.published(),
        turning=(1000.0, 2000.0),
        differences=samples.differences(),
    )
    write_report(
        samples.results([hostile], title=HOSTILE, command=HOSTILE),
        folder / "hostile.html",
        heading=HOSTILE,
        notes={HOSTILE: [HOSTILE]},
        differences=differences,
    )
    write_report(samples.results(samples.many(40, runs=4), finished=5), folder / "many.html", heading="Forty")
    write_report(samples.results(samples.four(runs=1)), folder / "one.html", heading="One run")
    write_report(samples.results([], finished=0), folder / "none.html", heading="Nothing yet")
    write_report(samples.results(several), folder / "several.html", heading="Two", turning=(100.0, 200.0))
    return SimpleNamespace(folder=folder, full=full)


@pytest.fixture
def visit(browser, reports):
    """Opens a page at a width; afterwards nothing may have left it, and nothing may have gone wrong on it."""
    contexts, trouble, requests = [], [], []

    def go(name, width=1280, **settings):
        context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
        context.set_default_timeout(1000 * PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: trouble.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: trouble.append(f"error: {error}"))

        def gate(route):
            if route.request.url.startswith(("file:", "data:", "blob:")):
                route.continue_()
            else:
                requests.append(route.request.url)
                route.abort()

        page.route("**/*", gate)
        page.goto((reports.folder / f"{name}.html").as_uri())
        until(page, "[...document.querySelectorAll('.panel:not([hidden]) .chart')].every(d => d.data)")
        return page

    yield go
    for context in contexts:
        context.close()
    assert trouble == []
    assert requests == []


def traces(page, kind):
    """(entry, trace) of the regret chart's traces of one kind, as plotly holds them."""
    script = f"{CURVES}.data.filter(t => t.meta.kind === '{kind}').map(t => [t.meta.entry, [...t.x], [...t.y]])"
    return page.evaluate(script)


def test_the_curves_are_there_with_the_right_values(visit, reports):
    page = visit("four")
    means = traces(page, "mean")
    assert [entry for entry, _, _ in means] == [0, 1, 2, 3]
    for i, x, y in means:
        entry = reports.full[i]
        assert len(x) <= MOST
        assert (x[0], x[-1]) == (1, entry.horizon)
        assert y[-1] == pytest.approx(entry.final.mean(), rel=1e-5)
        places = np.searchsorted(entry.rounds, x)
        np.testing.assert_allclose(y, entry.regret.mean(axis=0)[places], rtol=1e-5)
    for (i, _, low), (_, _, high) in zip(traces(page, "low"), traces(page, "high"), strict=True):
        mean, sd = reports.full[i].final.mean(), reports.full[i].final.std(ddof=1)
        assert [low[-1], high[-1]] == pytest.approx([mean - sd, mean + sd], rel=1e-4)
    published = samples.published()
    for i, _, y in traces(page, "published"):
        assert y[-1] == pytest.approx(published["rotation", reports.full[i].policy].mean[-1], rel=1e-5)
    assert len(traces(page, "published")) == 4


def test_lines_bands_and_the_drift_are_drawn(visit):
    page = visit("four")
    lines = page.evaluate(
        f"""[...{CURVES}.querySelectorAll('path.js-line')].map(p => {{
            const style = getComputedStyle(p);
            return {{ width: p.getBBox().width, stroke: style.strokeWidth, dash: style.strokeDasharray }};
        }})"""
    )
    drawn = [line for line in lines if line["stroke"] != "0px" and line["width"] > 300]
    assert len(drawn) == 8  # four means, four published
    assert sum(line["dash"] != "none" and line["dash"] != "0px" for line in drawn) == 4
    fills = page.evaluate(f"[...{CURVES}.querySelectorAll('path.js-fill')].filter(p => p.getBBox().height > 5).length")
    assert fills == 4
    shapes = page.evaluate(f"{CURVES}._fullLayout.shapes.map(s => [s.x0, s.x1, s.label.text])")
    assert shapes == [[1000, 2000, "drift period"]]
    assert page.locator("[data-chart=regret-0]").get_by_text("drift period").count() >= 1


def test_hover_tells_policy_round_mean_and_sd(visit, reports):
    page = visit("four")
    page.locator("[data-chart=regret-0] .chart").scroll_into_view_if_needed()
    place = page.evaluate(
        f"""(() => {{
            const trace = {CURVES}.data.findIndex(t => t.meta.kind === 'mean' && t.meta.entry === 0);
            const full = {CURVES}._fullLayout, box = {CURVES}.getBoundingClientRect();
            const k = Math.floor({CURVES}.data[trace].x.length * 0.8);
            const [x, y] = [{CURVES}.data[trace].x[k], {CURVES}.data[trace].y[k]];
            return [box.x + full._size.l + full.xaxis.l2p(x), box.y + full._size.t + full.yaxis.l2p(y), x];
        }})()"""
    )
    label = page.locator("[data-chart=regret-0] g.hovertext")
    for _ in range(50):  # a hand is never quite still: a chart that was just being redrawn gets another chance
        page.mouse.move(place[0] - 3, place[1])
        page.mouse.move(place[0], place[1])
        page.wait_for_timeout(100)
        if label.count():
            break
    said = label.text_content()
    assert "OFUL" in said
    assert f"round {place[2]:,}" in said
    at = int(np.searchsorted(reports.full[0].rounds, place[2]))
    values = reports.full[0].regret[:, at]
    assert f"regret {values.mean():,.1f} ± {values.std(ddof=1):,.1f} sd" in said


def test_buttons_choose_the_axes(visit):
    page = visit("four")
    kinds = f"[{CURVES}._fullLayout.xaxis.type, {CURVES}._fullLayout.yaxis.type]"
    assert page.evaluate(kinds) == ["linear", "linear"]
    page.click("[data-chart=regret-0] [data-axis=yaxis][data-type=log]")
    assert page.evaluate(kinds) == ["linear", "log"]
    lows = [low for _, _, y in traces(page, "low") for low in y]
    assert min(lows) > 0  # a band has a lower edge on a log axis too
    page.focus("[data-chart=regret-0] [data-axis=xaxis][data-type=log]")
    page.keyboard.press("Enter")
    assert page.evaluate(kinds) == ["log", "log"]
    pressed = page.locator("[data-chart=regret-0] [aria-pressed=true]")
    assert pressed.all_text_contents() == ["log", "log"]
    page.click("[data-chart=regret-0] [data-axis=yaxis][data-type=linear]")
    assert page.evaluate(kinds) == ["log", "linear"]


def test_boxes_hide_curves_with_their_bands(visit):
    page = visit("four")
    shown = f"{CURVES}.data.map(t => [t.meta.entry, t.meta.kind, t.visible !== false])"
    page.get_by_label("GLM-UCB", exact=True).uncheck()
    assert {entry for entry, _, visible in page.evaluate(shown) if not visible} == {2}
    page.get_by_label("bands").uncheck()
    state = page.evaluate(shown)
    assert all(visible == (entry != 2 and kind in ("mean", "published")) for entry, kind, visible in state)
    page.get_by_role("button", name="hide all").click()
    assert not any(visible for _, _, visible in page.evaluate(shown))
    page.get_by_role("button", name="show all").click()
    assert {kind for _, kind, visible in page.evaluate(shown) if visible} == {"mean", "published"}


def column(page, number):
    return page.locator("table").first.locator(f"tbody tr > :nth-child({number})").all_text_contents()


def test_tables_sort_by_click_and_by_key(visit, reports):
    page = visit("four")
    order = [entry.label for entry in sorted(reports.full, key=lambda entry: entry.final.mean())]
    assert column(page, 1) != order
    head = page.locator("table").first.get_by_role("columnheader", name="Final regret")
    head.get_by_role("button").click()
    assert column(page, 1) == order
    assert head.get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Enter")
    assert column(page, 1) == order[::-1]
    assert head.get_attribute("aria-sort") == "descending"
    stages = page.locator("table").first.get_by_role("columnheader", name="Projection stages").get_by_role("button")
    for _ in range(2):  # unknown values stay last either way
        stages.click()
        assert set(column(page, 1)[2:]) == {"OFUL", "D-LinUCB"}


def test_the_table_says_what_was_measured(visit, reports):
    page = visit("four")
    assert column(page, 1) == [entry.label for entry in reports.full]
    for text, entry in zip(column(page, 2), reports.full, strict=True):
        mean, error = (float(part.replace(",", "")) for part in text.split(" ± "))
        assert mean == pytest.approx(entry.final.mean(), rel=0.02)
        assert error == pytest.approx(entry.final.std(ddof=1) / np.sqrt(len(entry.lanes)), rel=0.1)
    assert column(page, 5) == ["–", "–", "–", "B_T, changes"]
    assert column(page, 7)[0] == "–"
    assert "stage 2 44.0\N{NO-BREAK SPACE}%" in column(page, 7)[3]
    assert column(page, 8) == ["220.5", "105.4", "138.0", "59.10"]


@pytest.mark.parametrize("name", ["four", "many", "hostile"])
def test_nothing_sticks_out(visit, name):
    page = visit(name, 360)
    rights = "[...document.querySelectorAll('.panel:not([hidden]) .chart')].map(d => d.getBoundingClientRect().right)"
    widths = "[...document.querySelectorAll('.panel:not([hidden]) .chart')].map(d => d._fullLayout.width)"
    for width in (360, 768, 1280, 1600, 360):
        page.set_viewport_size({"width": width, "height": 900})
        until(page, f"{widths}.every(w => w > {0.5 * min(width, 500)} && w <= {width})")  # redrawn to fit
        until(page, f"document.documentElement.scrollWidth <= {width}")  # a chart is redrawn after its place is
        assert max(page.evaluate(rights)) <= width


def rgb(page, script):
    return [int(part) for part in re.findall(r"\d+", page.evaluate(script))[:3]]


def test_dark_mode_and_back(visit):
    page = visit("four", color_scheme="dark")
    ground, ink = "getComputedStyle(document.body).backgroundColor", "getComputedStyle(document.body).color"
    labels = f"getComputedStyle({CURVES}.querySelector('.xtick text')).fill"
    plane = "document.querySelector('[data-chart=projection] .chart')"
    truth = f"{plane}.data.find(t => t.meta.kind === 'theta_star').line.color"
    arrow = f"{plane}._fullLayout.annotations[0].arrowcolor"
    assert max(rgb(page, ground)) < 60
    assert min(rgb(page, ink)) > 180
    assert min(rgb(page, labels)) > 150
    assert page.evaluate(truth) == page.evaluate(arrow) == "#e6e9ee"
    page.emulate_media(color_scheme="light")
    until(page, f"getComputedStyle({CURVES}.querySelector('.xtick text')).fill === 'rgb(29, 33, 39)'")
    assert min(rgb(page, ground)) > 240
    assert page.evaluate(truth) == page.evaluate(arrow) == "#1d2127"


def test_printing_uses_light_colours_and_the_width_of_paper(visit):
    page = visit("four", 1600, color_scheme="dark")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(f"{CURVES}._fullLayout.width") < 700
    assert page.evaluate(f"{CURVES}._fullLayout.font.color") == "#1d2127"
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    until(page, f"{CURVES}._fullLayout.width > 900")
    assert page.evaluate(f"{CURVES}._fullLayout.font.color") == "#e6e9ee"
    assert page.pdf().startswith(b"%PDF")


def test_hostile_labels_are_text(visit, reports):
    page = visit("hostile")
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.locator("a[href^='http']").count() == 0
    assert page.locator("h1").text_content() == HOSTILE
    assert page.locator("tbody th").first.text_content() == HOSTILE
    assert HOSTILE in page.locator("div.legend").text_content()
    box = page.locator("[data-chart=regret-0] .chart").bounding_box()
    for share in (0.3, 0.5, 0.7):  # labels that appear on hover are text too
        for height in np.linspace(0.1, 0.9, 17):
            page.mouse.move(box["x"] + share * box["width"], box["y"] + height * box["height"])
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() + page.locator("svg a").count() == 0
    text = (reports.folder / "hostile.html").read_text(encoding="utf-8")
    data = re.search(r'id="charts">(.*?)</script>', text, re.DOTALL)[1]
    assert "<" not in data
    assert json.loads(data)["regret-0"]["legend"][0]["label"] == HOSTILE


def test_hover_shows_hostile_labels_letter_by_letter(visit):
    page = visit("hostile")
    mean = page.evaluate(f"{CURVES}.data.findIndex(t => t.meta.kind === 'mean')")
    page.evaluate(f"Plotly.Fx.hover({CURVES}, [{{curveNumber: {mean}, pointNumber: 200}}])")
    page.wait_for_selector("g.hovertext")
    assert HOSTILE[:60] in page.locator("g.hovertext").text_content()


def test_inline_handlers_cannot_run_even_if_they_got_in(visit, browser, reports):
    """The content security policy is a second lock: a page with a handler smuggled in still does not run it."""
    text = (reports.folder / "one.html").read_text(encoding="utf-8")
    (reports.folder / "smuggled.html").write_text(
        text.replace("<main>", "<main><img src=x onerror='window.hacked=1'><script>window.hacked=2</script>"),
        encoding="utf-8",
    )
    page = browser.new_page()
    page.goto((reports.folder / "smuggled.html").as_uri())
    until(page, "document.querySelector('.chart').data")
    assert page.evaluate("window.hacked") is None
    page.close()


def test_forty_entries_stay_usable(visit):
    page = visit("many", 768)
    assert len(traces(page, "mean")) == 40
    assert page.locator("[data-chart=regret-0] .legend input").count() == 40
    legend = page.locator("[data-chart=regret-0] .legend")
    assert legend.bounding_box()["height"] < 200  # scrolls
    assert not page.get_by_label("bands").is_checked()
    assert page.locator("tbody tr").count() == 40
    assert "Incomplete: 5 of 8" in page.locator("header").text_content()


def test_one_run_has_no_band_and_no_error(visit):
    page = visit("one")
    assert traces(page, "low") == []
    assert not any("±" in text for text in column(page, 2))
    assert column(page, 3) == ["–"] * 4
    assert "nan" not in page.locator("main").text_content().lower()
    assert "Incomplete" not in page.locator("main").text_content()


def test_nothing_finished_is_said(visit):
    page = visit("none")
    assert "Nothing is finished yet" in page.locator("main").text_content()
    assert "Incomplete: 0 of 8" in page.locator("header").text_content()


def test_each_environment_has_its_chart_and_table(visit):
    page = visit("several")
    assert page.locator("h3").all_text_contents() == ["rotation", "elsewhere"]
    assert page.locator("table").count() == 2
    figures = "[...document.querySelectorAll('[data-chart^=regret] .chart')]"
    assert page.evaluate(f"{figures}.map(d => d._fullLayout.shapes.length)") == [1, 1]
    options = page.locator("[data-chart=projection] option").all_text_contents()
    assert "GLM-UCB (elsewhere)" in options


def test_the_projection_can_be_chosen(visit, reports):
    page = visit("four")
    figure = page.locator("[data-chart=projection]")
    assert figure.locator("option:checked").text_content() == "BVD-GLM-UCB"
    plane = "document.querySelectorAll('[data-chart=projection] .chart')[0]"
    script = f"Object.fromEntries({plane}.data.map(t => [t.meta.kind, [t.name, [...t.x], [...t.y]]]))"
    shown = page.evaluate(script)
    hat, tilde, star = (shown[role] for role in ("theta_hat", "theta_tilde", "theta_star"))
    path = reports.full[3].path
    assert [hat[0], tilde[0], star[0]] == ["θ̂ (estimate)", "θ̃ (projected)", "θ* (truth)"]
    np.testing.assert_allclose([star[1][-1], star[2][-1]], path.theta_star[-1], atol=1e-6)
    np.testing.assert_allclose([hat[1][-1], hat[2][-1]], path.theta_hat[-1], rtol=1e-5)
    assert len(hat[1]) <= MOST
    assert (np.hypot(hat[1], hat[2]) > path.S).sum() == len(tilde[1]) > 0
    figure.locator("select").select_option(label="OFUL")
    assert "theta_tilde" not in page.evaluate(script)  # no projection there
    assert page.locator("[data-chart=projection] path.point").count() > 100


def test_diagnostics_are_shown_where_there_are_any(visit, reports):
    page = visit("four")
    panels = "[...document.querySelectorAll('[data-chart=diagnostics] .chart')]"
    learning, tracking, slack = page.evaluate(f"{panels}.map(d => d.data.map(t => [t.name, [...t.y], t.customdata]))")
    d = reports.full[3].diagnostics
    assert learning[-1][0] == "its radius β"
    assert learning[-1][1][-1] == pytest.approx(np.median(d["beta"][:, -1]), rel=1e-5)
    assert tracking[-1][1][0] is None  # infinite: a gap
    least = [d[f"lemma_{k}_slack"].min() for k in (2, 3, 4)]
    assert [name for name, _, _ in slack] == [
        f"Lemma {k} (least {v:.2g})" for k, v in zip((2, 3, 4), least, strict=True)
    ]
    assert slack[0][2][-1] == pytest.approx(d["lemma_2_slack"][:, -1].min(), rel=1e-5)
    title = page.locator("[data-chart=diagnostics] .title").first.text_content()
    assert title == "Learning term: above its radius β in 0 % of recorded rounds"
    assert visit("one").locator("[data-chart=diagnostics]").count() == 0


def test_texts_facts_and_headings(visit):
    page = visit("four")
    heads = page.locator("h2").all_text_contents()
    assert heads == [
        "Regret over time", "Results", "Notes", "Paired differences", "Estimate and projection", "Diagnostics",
        "How to read this", "How it was run",
    ]  # fmt: skip
    said = page.locator("main").text_content()
    for text in (
        "A note on what was assumed.",
        "numpy 2.4.6",
        "2026-01-02",
        "windvane reproduce --runs 50",
        "BVD-GLM-UCB (B_T, changes)",
        "What the lab told a policy",
        "Least regret",
    ):
        assert text in said
    assert page.locator("h1").count() == 1


def test_what_a_screen_reader_needs(visit):
    page = visit("four")
    assert page.evaluate(
        "[...document.querySelectorAll('.chart')].every(d => d.getAttribute('aria-label').length > 10)"
    )
    assert "BVD-GLM-UCB ends at" in page.locator("[data-chart=regret-0] .chart").get_attribute("aria-label")
    assert page.evaluate("[...document.querySelectorAll('table')].every(t => t.caption.textContent)")
    assert page.evaluate("[...document.querySelectorAll('thead th')].every(t => t.scope === 'col')")
    assert page.evaluate("document.documentElement.lang") == "en"
    unnamed = "[...document.querySelectorAll('main input, main select')].filter(e => !e.labels.length).length"
    assert page.evaluate(unnamed) == 0


def test_the_page_is_one_file_written_whole(reports):
    names = sorted(path.name for path in reports.folder.iterdir() if path.name != "smuggled.html")
    assert names == ["four.html", "hostile.html", "many.html", "none.html", "one.html", "several.html"]
    text = (reports.folder / "four.html").read_text(encoding="utf-8")
    assert text.count("<script") - text.count('"<script') >= 3
    assert not re.search(r"<(link|script|img|iframe)[^>]+(src|href)=[\"']?(http|//)", text)
