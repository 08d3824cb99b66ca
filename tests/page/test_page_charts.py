"""Charts, figures and sentences: what the page shows is what the server says."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from support.page import figure, open_estimate, open_table, plot, until

NO_ICON = "Failed to load resource: the server responded with a status of 404"


def test_charts_show_what_the_server_says(server, visit):
    page = visit(server.url + "/#/busy", height=3000)
    info, charts = server.info("busy"), server.charts("busy")
    buckets, last = charts["buckets"], charts["buckets"][-5:]
    lines = plot(page, "#reward .chart")["lines"]
    assert lines["mean"] == pytest.approx([b["total"] / b["settled"] if b["settled"] else None for b in buckets])
    assert lines["recent"][-1] == pytest.approx(sum(b["total"] for b in last) / sum(b["settled"] for b in last))
    assert lines["all time"][0] == pytest.approx(info["mean_reward"])

    lines = plot(page, "#arms .chart")["lines"]  # each is the sum of an arm and those below it
    assert set(lines) == set(charts["arms"])
    sums = np.array([*lines.values(), [0.0] * (len(buckets) + 1)])
    np.testing.assert_allclose(sums[0], 1.0)
    for name, share in zip(lines, (sums[:-1] - sums[1:])[:, -1], strict=True):
        assert share == pytest.approx(sum(b["arms"].get(name, {"decisions": 0})["decisions"] for b in last) / 50)
    assert page.locator("#arms-legend tbody th").all_text_contents() == list(lines)

    norms = plot(page, "#norm .norm")
    assert norms["lines"]["norm"][:-1] == pytest.approx([b["model"]["norm"] for b in buckets])
    assert norms["lines"]["norm"][-1] == pytest.approx(math.hypot(*info["theta"].values()))
    assert norms["band"] is None  # S is learned, so there is no ball
    assert f"learned scale is S\u00a0=\u00a0{info['S']:g}, which is not a bound" in page.inner_text("#norm .reading")

    memory = plot(page, "#memory .memory")
    assert memory["isLog"]
    known = [(m, b["model"]["memory"]) for m, b in zip(memory["lines"]["memory"], buckets, strict=False)]
    assert all(m == pytest.approx(expected) for m, expected in known if expected is not None)
    rates = plot(page, "#memory .rate")["lines"]["drift rate"]
    assert rates[:-1] == pytest.approx([b["model"]["rate"] for b in buckets])
    assert "Too little data to detect drift" in page.inner_text("#memory .reading")

    assert (figure(page, "Decisions"), figure(page, "Pending")) == ("150", "30")
    reading = page.inner_text("#recent .reading")
    assert reading.startswith("30 decisions are pending, 10 of these 50. The reward timeout")


def test_predicted_and_realised_reward_of_each_arm(server, visit):
    page = visit(server.url + "/#/busy", height=3000)
    plot(page, "#predictions .chart")
    charts = server.charts("busy")
    last, names = charts["buckets"][-5:], page.locator("#predictions h3").all_text_contents()
    assert set(names) == set(charts["arms"])
    for i, name in enumerate(names):
        parts = [b["arms"][name] for b in last if name in b["arms"]]
        sums = {key: sum(part[key] for part in parts) for key in ("decisions", "predicted", "settled", "realised")}
        lines = plot(page, f"#predictions .small-charts > :nth-child({i + 1}) .chart")["lines"]
        if sums["decisions"]:
            assert lines["predicted"][-1] == pytest.approx(sums["predicted"] / sums["decisions"])
        if sums["settled"]:
            assert lines["realised"][-1] == pytest.approx(sums["realised"] / sums["settled"])
    assert open_table(page, "predictions").locator("tbody tr").count() == len(names)


def test_calibration_in_tables_and_words(server, visit):
    page = visit(server.url + "/#/busy", width=390, height=3000)
    page.wait_for_selector("#calibration:visible")
    calibration = server.info("busy")["calibration"]
    recent, (first, *_) = calibration["recent"], calibration["by_arm"]
    rows = [row.split("\t") for row in page.inner_text("#calibration tbody").split("\n")]
    assert [row[:2] for row in rows] == [["Recent", str(recent["settled"])], ["All time", str(recent["settled"])]]
    assert [float(cell) for cell in rows[0][2:4]] == pytest.approx(
        [recent["mean_prediction"], recent["mean_reward"]], rel=5e-3
    )
    gap, error = (float(cell.replace("−", "-")) for cell in rows[0][4].split(" ±\u00a0"))
    assert gap == pytest.approx(recent["mean_reward"] - recent["mean_prediction"], rel=0.05)
    assert error == pytest.approx(recent["standard_error"], rel=0.05)
    assert page.evaluate("document.querySelector('#calibration').scrollWidth <= document.body.clientWidth")
    page.locator("#calibration-arms summary").click()
    assert page.locator("#calibration-arms tbody tr").first.inner_text().startswith(f"{first['arm']}\t")
    assert page.inner_text("#predictions .reading").startswith("Predictions agree with the rewards within noise: ")
    page.goto(server.url + "/#/unrewarded")
    until(page, "document.querySelector('#predictions .reading').textContent === 'No reward has been learned yet.'")
    assert page.locator("#calibration").is_hidden()
    page.goto(server.url + "/#/ball")
    until(page, "document.querySelector('#memory .reading').textContent.includes('Information half-life: ')")
    text = server.info("ball")["half_life"]["text"]
    assert f"Information half-life: {text} (7 decisions); after that time, half" in page.inner_text("#memory .reading")
    assert page.locator("#numbers div[data-key='Memory'] .note").inner_text() == f"half-life {text}"


def test_time_and_decisions_as_axes(server, visit):
    page = visit(server.url + "/#/busy")
    page.wait_for_selector("#stream:visible")
    page.get_by_label("time", exact=True).check()
    drawing = plot(page, "#reward .chart")
    assert drawing["kind"] == "time"
    last = server.charts("busy")["buckets"][-1]["until"]
    assert drawing["x"][-1] == pytest.approx(page.evaluate(f"Date.parse('{last}') / 1000"), rel=0, abs=1e-3)
    page.get_by_label("decisions", exact=True).check()
    drawing = plot(page, "#reward .chart")
    assert (drawing["kind"], drawing["x"]) == ("decisions", list(range(10, 151, 10)))
    page.locator("#reward .u-over").hover()
    assert re.search("average 0[.].*reward|reward.*average 0[.]", page.inner_text("#reward .tooltip"), re.DOTALL)
    is_bursty = "async (buckets) => (await import('/page/series.js')).isBursty(buckets)"
    times = [f"2026-11-16T18:{i:02}:00Z" for i in range(60)]
    steady = [{"since": times[i], "until": times[i + 1]} for i in range(20)]
    assert not page.evaluate(is_bursty, steady)
    assert page.evaluate(is_bursty, [*steady, {"since": times[58], "until": times[59]}])
    assert not page.evaluate(is_bursty, steady[:1])


def test_an_estimate_outside_its_ball_is_projected(server, visit):
    page = visit(server.url + "/#/ball", height=3000)
    info, buckets = server.info("ball"), server.charts("ball")["buckets"]
    assert 0 < info["projected_share"] < 1
    shares = plot(page, "#norm .projected")["lines"]["projected"]
    assert shares[:-1] == pytest.approx([b["projected"] / b["decisions"] for b in buckets])
    assert plot(page, "#norm .norm")["band"]["high"] == 1.0
    assert "its bound S\u00a0=\u00a01" in page.inner_text("#norm .reading")
    assert f"projected in {100 * info['projected_share']:.1f}" in page.inner_text("#norm .reading")
    assert figure(page, "Drift") == "not estimated"
    assert "forgets at a fixed rate" in page.inner_text("#memory .reading")
    assert page.locator("#drift").is_hidden()
    assert page.locator("#memory .rate").is_hidden()


def test_arms_that_are_chosen_now_are_named(server, visit):
    """The eighth arm by its count, and the only one recently; expired decisions have the default reward."""
    page = visit(server.url + "/#/turnover")
    plot(page, "#arms .chart")
    info, charts = server.info("turnover"), server.charts("turnover")
    assert page.inner_text("#arms .reading").startswith("Recently most often h (100\u00a0%)")
    assert "h" in page.locator("#arms-legend tbody th").all_text_contents()
    assert info["counts"]["defaulted"] > 400
    total, settled = (sum(b[key] for b in charts["buckets"]) for key in ("total", "settled"))
    assert settled == info["counts"]["settled"]
    assert info["mean_reward"] == pytest.approx(total / settled)
    assert float(figure(page, "Mean reward")) == pytest.approx(info["mean_reward"], rel=0.05)
    assert "A decision that expires has the default reward 0." in page.inner_text("#reward figcaption")


@pytest.mark.parametrize("width", [360, 1280])
def test_alerts(server, visit, width):
    page = visit(server.url + "/#/pressed", width=width)
    until(page, "!document.querySelector('#alerts').hidden")
    assert page.locator("#alerts li").count() == len(server.info("pressed")["alerts"]) == 1
    assert "S=0.1" in page.inner_text("#alerts")
    assert plot(page, "#norm .norm")["band"]["high"] == 0.1
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.goto(server.url + "/#/busy")
    until(page, "document.querySelector('#title').textContent === 'Home page'")
    assert not page.is_visible("#alerts")


def test_many_coordinates_and_many_arms(server, visit):
    page = visit(server.url + "/#/wide", height=3000)
    open_estimate(page)
    until(page, "document.querySelectorAll('#theta .bars li').length === 12")
    theta = server.info("wide")["theta"]
    largest = sorted(theta, key=lambda name: abs(theta[name]), reverse=True)[:12]
    assert page.locator("#theta .bars li > :first-child").all_text_contents() == largest
    assert "The 12 largest of 100" in page.inner_text("#theta .reading")
    assert open_table(page, "theta").locator("tbody tr").count() == 100
    names = page.locator("#arms-legend tbody th").all_text_contents()
    assert (len(names), names[-1]) == (8, "all others")


def test_streams_without_charts(server, visit):
    page = visit(server.url + "/#/unrewarded", expected=[NO_ICON])
    until(page, "document.querySelector('#start-heading').textContent === 'No reward yet'")
    assert page.inner_text("#reward .blank") == "The chart starts with the first reward."
    assert page.locator("#reward .chart").is_hidden()
    assert "nan" not in page.inner_text("main").lower().split()
    page.goto(server.url + "/#/featured")
    until(page, "document.querySelector('#start-heading').textContent === 'No decision yet'")
    assert "it'\\''s a phone" in page.inner_text("#start-command code")
    page.goto(server.url + "/#/old")
    page.wait_for_selector("#archived:visible")
    assert figure(page, "Memory") == "2.9 days"
    assert page.locator("#streams li").last.inner_text() == "Last summer\narchived"
    page.goto(server.url + "/#/nowhere%22%3Cb%3E")
    page.wait_for_selector("#missing:visible")
    assert 'named “nowhere"<b>”' in page.inner_text("#missing")
    page.goto(server.url + "/#/%zz")
    until(page, "document.querySelector('#missing-message').textContent.includes('“%zz”')")


def test_findings_in_words(server, visit):
    page = visit(server.url + "/healthz", expected=[NO_ICON])  # of this origin: only modules of the page are needed
    call = "async ([module, name, ...values]) => (await import(`/page/${module}.js`))[name](...values)"

    def drift(**changes):
        info = {"drift": {"verdict": "drift", "evidence": 140.0}, "memory": 80.0, "memory_unit": "decisions"}
        info["half_life"] = {"decisions": 50.0, "seconds": None, "text": "50 decisions"}
        counts = {"rewards": 900, "decisions": 1000, "settled": 900, "history_rows": 0}
        return page.evaluate(call, ["findings", "describeDrift", {**info, "counts": counts, **changes}])["sentence"]

    def number(name, *values):
        return [page.evaluate(call, ["format", name, value]) for value in values]

    assert "Rewards are drifting" in drift()
    assert "about the last 80 decisions" in drift()
    assert "decisions use all data so far" in drift(drift={"verdict": "no drift seen"}, memory=None)
    assert "does not forget" in drift(drift=None, memory=None)
    assert "Too little data" in drift(drift={"verdict": "too little data to tell"})
    calm = {"decisions": None, "seconds": None, "text": "none now"}
    both = drift(half_life=calm, memory=None)  # the verdict is about all rewards, the half-life about the latest
    assert both == "Rewards drifted, but the latest ones fit a world without drift; decisions use all data so far."
    few = {"rewards": 3, "decisions": 9, "settled": 19, "history_rows": 0}
    assert drift(counts=few) == "Too few outcomes yet to detect drift."
    assert drift(counts=few | {"settled": 0}) == "Nothing has been learned yet."
    assert "Rewards are drifting" in drift(counts=few | {"settled": 10, "history_rows": 10})
    assert "forgets at a fixed rate" in drift(counts=few, drift=None)
    assert page.evaluate(call, ["findings", "describeEvidence", 140.0]) == "more than a million to 1 for drift"
    assert page.evaluate(call, ["findings", "describeEvidence", -3.0]) == "20 to 1 against drift"

    def calibration(z, is_off):
        recent = {"settled": 1000, "mean_prediction": 0.3, "mean_reward": 0.2, "standard_error": 0.01, "z": z}
        return page.evaluate(call, ["findings", "describeCalibration", {"recent": recent, "is_off": is_off}, 1000])

    def judge(settled, learned):
        recent = {"settled": settled, "mean_prediction": 0.3, "mean_reward": 0.3, "standard_error": 0.1, "z": 0.0}
        recent |= {} if settled else {"mean_prediction": None, "mean_reward": None}
        values = {"recent": recent, "is_off": False}, learned
        return page.evaluate(call, ["findings", "describeCalibration", *values])["sentence"]

    assert judge(0, 0) == "No reward has been learned yet."
    assert judge(0, 19) == "Too few outcomes yet to judge the predictions."
    assert judge(0, 500).startswith("Nothing had been learned when")
    assert judge(19, 19) == "Too few outcomes yet to judge the predictions."
    assert judge(20, 20).startswith("Predictions agree with the rewards within noise")
    assert calibration(-10.0, True)["sentence"].startswith("Predictions are too high: predicted 0.300, realised 0.200")
    assert calibration(-3.0, False)["sentence"].endswith("over the last 1,000 outcomes, 3 standard errors apart.")
    assert [calibration(z, z < -5)["kind"] for z in (-10.0, -3.0, 1.0)] == ["off", "leans", "fits"]
    short = page.evaluate(call, ["findings", "describeHalfLife", {
        "drift": {"verdict": "too little data to tell"}, "half_life": {"decisions": 9.0, "seconds": 3.0, "text": "3 s"},
        "counts": {"settled": 100, "history_rows": 0},
    }])  # fmt: skip
    assert short == {"short": None, "sentence": ""}
    assert number("formatCount", 999, 1234567, 12345678) == ["999", "1,234,567", "12.3M"]
    assert number("formatNumber", 0.5, 1.0, -0.01234, 5.46e-5) == ["0.500", "1", "−0.0123", "5.5e−5"]
    assert number("formatDuration", 59, 90, 86400, 3e5) == ["59 s", "1.5 min", "1 day", "3.5 days"]


def test_coordinates_are_named_for_readers(server, visit):
    page = visit(server.url + "/healthz", expected=[NO_ICON])

    def name(text, **settings):
        call = "async ([name, settings]) => (await import('/page/estimate.js')).nameCoordinate(name, settings)"
        return page.evaluate(call, [text, {"features": None, "intercept": False, **settings}])

    declared = {"features": {"arms": ["red"]}}
    assert [name(text, **declared) for text in ("1", "red: 1", "red: a: 1", "red: age", "11", "x: 11")] == [
        "constant", "red: constant", "red: a: constant", "red: age", "11", "x: 11",
    ]  # fmt: skip
    assert (name("1", intercept=True), name("1")) == ("constant", "1")  # without an intercept, a column of a frame


@pytest.mark.parametrize("width", [390, 820, 1280])
def test_a_stream_with_one_outcome_claims_nothing(own, visit, width):
    """As a reader of the tutorial sees it after the first click, and after twenty."""
    features = {"by_arm": {"device": ["phone", "desktop"]}, "arms": ["red", "blue"]}
    own.create("first", features=features)
    context = {"context": {"device": "phone"}}

    def live(rounds):
        for _ in range(rounds):
            decision = own.request("POST", "/v1/streams/first/decisions", context)
            own.request("PUT", f"/v1/streams/first/decisions/{decision['id']}/reward", {"value": 1})

    live(1)
    page = visit(own.url + "/#/first", width=width)
    until(page, "document.querySelector('#reward .reading').textContent.startsWith('Mean reward 1 of 1 outcome: too')")
    assert figure(page, "Memory") == figure(page, "Drift") == "–"
    assert page.locator("#numbers div[data-key='Memory'] .note").inner_text() == "too few outcomes yet"
    assert page.locator("#numbers div[data-key='Projected']").count() == 0
    assert page.inner_text("#memory .reading") == "Too few outcomes yet to detect drift."
    assert page.inner_text("#memory .blank") == "The chart starts with 20 outcomes."
    assert page.locator("#memory .chart:visible").count() == 0
    assert "within noise" not in page.inner_text("main")
    assert "up to 10 decisions" in page.inner_text("#reward figcaption")
    assert page.locator("#norm").is_hidden()
    page.locator("#estimate > summary").focus()
    page.keyboard.press("Enter")
    names = page.locator("#theta .bars li > :first-child")
    names.first.wait_for()
    texts = names.all_text_contents()
    assert texts[0] == "constant"
    assert {"red: constant", "red: device = phone", "blue: device = desktop"} <= set(texts)
    cut = "nodes => nodes.filter((n) => n.scrollWidth > n.clientWidth || n.scrollHeight > n.clientHeight + 2).length"
    assert names.evaluate_all(cut) == 0  # no name is cut, so no two of them look the same
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    live(20)
    until(page, "!document.querySelector('#memory .chart').hidden")
    assert figure(page, "Memory") != "–"


def test_the_latest_decisions_wait_for_their_rewards(server, visit):
    """All that are shown as recent; older outcomes are known."""
    server.create("waiting", dim=2, reward_timeout=60, default_reward=0.0)
    server.feed("waiting", 120, rewarded=0)
    page = visit(server.url + "/#/waiting")
    until(page, "document.querySelector('#reward .reading').textContent.startsWith('The latest decisions wait')")
    assert page.inner_text("#reward .reading").endswith("all time 0.")
