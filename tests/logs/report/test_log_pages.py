"""The pages about logs: in a real browser, at several widths, light and dark, and with hostile names."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from support.log_files import write_clicks
from support.page import HOSTILE, PATIENCE, until
from windvane.lab.figures.description import Axis, Figure, Panel, Series
from windvane.logs import check, diagnose_drift, evaluate, read
from windvane.logs.report.check_page import describe_check
from windvane.logs.report.drift_page import describe_drift, format_memory
from windvane.logs.report.pages import DataTable, LogPage, Picture, Section, write_page
from windvane.logs.report.replay_page import describe_evaluation
from windvane.logs.report.time_axis import TimeAxis


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The three pages about one log, and one with hostile texts."""
    folder = tmp_path_factory.mktemp("pages")
    path = write_clicks(folder / "clicks.csv", 1500)
    log = read(path, time="when", arm="banner", reward="clicked", propensity="p", id="id")
    checked, diagnosis = check(log), diagnose_drift(log)
    evaluation = evaluate(log, ["AdaptiveGLMUCB", "UniformRandom"], jobs=1)
    facts = {"Log": HOSTILE}
    write_page(describe_check(checked, source=HOSTILE, facts=facts), folder / "check.html")
    write_page(describe_drift(diagnosis, schema=log.schema, facts=facts), folder / "drift.html")
    write_page(describe_evaluation(evaluation, has_times=True, facts=facts), folder / "replay.html")
    curve = Series(np.arange(3.0), np.arange(3.0), "#0072b2", HOSTILE, "curve")
    picture = Picture(Figure([Panel(Axis(HOSTILE), Axis(HOSTILE), [curve], HOSTILE)]), HOSTILE, HOSTILE)
    table = DataTable([HOSTILE, "b"], [[HOSTILE, HOSTILE]], HOSTILE)
    section = Section(HOSTILE, [HOSTILE], table, [picture], code=HOSTILE)
    write_page(LogPage(HOSTILE, HOSTILE, "error", [section], facts), folder / "hostile.html")
    return SimpleNamespace(folder=folder, checked=checked, diagnosis=diagnosis, evaluation=evaluation)


@pytest.mark.parametrize("name", ["check", "drift", "replay", "hostile"])
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (820, "dark"), (1280, "light")])
def test_a_page_draws_all_its_charts_and_fits_its_window(browser, pages, name: str, width: int, scheme: str) -> None:
    trouble: list[str] = []
    requests: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(1000 * PATIENCE)
    page = context.new_page()
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto((pages.folder / f"{name}.html").as_uri())
    until(page, "[...document.querySelectorAll('.panel:not([hidden]) .chart')].every(d => d.data)")
    drawn = page.evaluate("[...document.querySelectorAll('.chart')].map(d => d.querySelectorAll('path').length)")
    assert len(drawn) >= 1
    assert all(drawn)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    headings = page.evaluate("[...document.querySelectorAll('h2')].map(h => h.textContent)")
    assert len(headings) == len(set(headings))
    context.close()
    assert trouble == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []


def read_tables(path: Path) -> str:
    return re.sub(r"<script.*?</script>", "", path.read_text(encoding="utf-8"), flags=re.S)


def test_the_pages_say_what_the_results_say(pages) -> None:
    assert pages.checked.answer in read_tables(pages.folder / "check.html")
    assert pages.diagnosis.answer in read_tables(pages.folder / "drift.html")
    text = read_tables(pages.folder / "replay.html")
    for policy in pages.evaluation.policies:
        value = policy.recommendations.value
        assert f"{value.value:.4g} ({value.low:.4g} to {value.high:.4g})" in text
        assert f"{value.effective_sample_size:,.0f}" in text
        assert value.caveat[1:] in text.replace("&#39;", "'")


def test_the_time_axis_has_a_unit_that_suits_the_span() -> None:
    spans = {90.0: "Seconds", 3600.0: "Minutes", 86_400.0: "Hours", 10 * 86_400.0: "Days"}
    for span, unit in spans.items():
        axis = TimeAxis(100.0, 100.0 + span, has_times=True)
        assert axis.label.startswith(unit)
        assert axis.place([100.0])[0] == 0.0
    assert TimeAxis(1.0, 50.0, has_times=False).place([7.0])[0] == 7.0


def test_a_memory_without_end_is_never() -> None:
    assert format_memory(float("inf"), None) == "never"
    assert format_memory(120.0, 7200.0) == "120 decisions (2 hours)"
