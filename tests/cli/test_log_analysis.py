"""The commands check, drift and replay, as a person with a log uses them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from support.commands import fails, windvane_command, windvane_process
from support.log_files import ARMS, write_clicks
from support.server import run_command

NO_FLOOR = "no lower bound on the probability of every arm is known; declare one with `floor` (--floor)"
COLUMNS = "--time when --arm banner --reward clicked --propensity p --id id"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    write_clicks(folder / "clicks.csv")
    write_clicks(folder / "still.csv", turns=0.0)
    return folder


def run(line: str, folder: Path, code: int = 0, warning: str = "") -> tuple[dict, str]:
    """Run a command twice, in this process: its JSON, and its text."""
    stderr = f"windvane: warning: {warning}\n" if warning else ""
    texts = []
    with contextlib.chdir(folder):
        for words in (["--json"], []):
            done = run_command(*shlex.split(line), *words)
            assert (done.returncode, done.stderr) == (code, stderr), done
            texts.append(done.stdout)
    return json.loads(texts[0])["result"], texts[1]


def test_check(folder: Path) -> None:
    result, text = run(f"check clicks.csv {COLUMNS}", folder)
    assert text.splitlines()[0] == result["answer"] == "The log is sound: 3,000 rows, no problems found."
    assert {line["verdict"] for line in result["lines"]} == {"ok"}
    assert {arm["arm"] for arm in result["arms"]} == set(ARMS)
    assert text.splitlines()[-1] == "report: clicks-check.html"
    assert (folder / "clicks-check.html").stat().st_size > 1_000_000  # plotly.js is inside


def test_a_log_that_is_not_sound_fails_the_check(folder: Path) -> None:
    lines = (folder / "clicks.csv").read_text().splitlines()
    doubled = [lines[0], *(line for line in lines[1:] for _ in range(2))]
    (folder / "doubled.csv").write_text("\n".join(doubled))
    result, text = run(f"check doubled.csv {COLUMNS}", folder, code=1)
    assert result["verdict"] == "error"
    assert text.startswith("The log is not sound. Is every id unique? 3,000 repeated ids")


def test_drift(folder: Path) -> None:
    document, text = run(f"drift clicks.csv {COLUMNS}", folder)
    result, value = document["diagnosis"], document["value_of_forgetting"]["difference"]
    assert result["verdict"] == "drift"
    assert value["low"] < value["value"] < value["high"]
    assert text.splitlines()[0] == result["answer"]
    assert re.match(r"Drift detected \(valid .*\)\. Best memory: a reward counts half after .* \(.* to .*\)\.", text)
    code, settings = text[text.index("windvane.Agent(") : text.rindex("\nreport:")].split("\n\n", 1)
    assert json.loads(settings) == result["recommendation"]
    assert eval(code.replace("windvane.Agent", "dict")) == result["recommendation"]
    assert max(map(len, code.splitlines())) < 100
    assert "clip" not in settings
    assert result["recommendation"]["epsilon"] == 0.05
    assert not all(point["is_step"] for point in result["change_points"])  # the taste goes round
    assert "Both assume a steady drift" in text
    assert "total drift B_T at this rate" in text


def test_no_drift(folder: Path) -> None:
    document, text = run(f"drift still.csv {COLUMNS}", folder)
    assert document["diagnosis"]["verdict"] == "no drift seen"
    assert text.startswith("No drift seen")


def test_drift_with_detectors(folder: Path) -> None:
    document, text = run(f"drift clicks.csv {COLUMNS} --detector adwin --detector kswin", folder)
    assert [found["detector"] for found in document["detectors"]] == ["adwin", "kswin"]
    table = text[text.index("Detectors of river") :]
    for found in document["detectors"]:
        assert re.search(rf"^{found['detector']} +{len(found['rows'])} +{found['by_chance']} ", table, re.M)
        assert f"{found['detector']}: the " in table  # how to read it
    assert "Detectors of river" in (folder / "clicks-drift.html").read_text()
    assert run(f"drift still.csv {COLUMNS}", folder)[0]["detectors"] == []


def test_drift_is_not_diagnosed_in_rows_that_are_sorted_by_reward(folder: Path) -> None:
    lines = (folder / "clicks.csv").read_text().splitlines()
    rows = sorted((line.split(",") for line in lines[1:]), key=lambda cells: cells[3])
    (folder / "sorted.csv").write_text("\n".join(["arm,reward", *(f"{cells[2]},{cells[3]}" for cells in rows)]))
    document, text = run("drift sorted.csv", folder)
    assert document["diagnosis"]["verdict"] == "cannot be answered"
    first = "Cannot be answered, because the rows are sorted by reward, and such an order says nothing about drift"
    assert text.startswith(first)
    assert document["diagnosis"]["answer"].startswith(first)
    page = re.sub(r"<script.*?</script>", "", (folder / "sorted-drift.html").read_text(), flags=re.S)
    assert page.index(first) < page.index("restore the order of the decisions")


def test_drift_of_an_unsound_log_begins_with_its_errors(folder: Path) -> None:
    lines = (folder / "clicks.csv").read_text().splitlines()
    (folder / "twice.csv").write_text("\n".join([lines[0], *(line for line in lines[1:] for _ in range(2))]))
    with contextlib.chdir(folder):
        line = shlex.split(f"drift twice.csv {COLUMNS}")
        document, text = json.loads(run_command(*line, "--json").stdout), run_command(*line).stdout
    first = "The log is not sound: Is every id unique? 3,000 repeated ids. Drift detected"
    assert text.startswith(first)
    assert document["result"]["diagnosis"]["answer"].startswith(first)
    assert [error["question"] for error in document["check"]["errors"]] == [
        "Is every id unique?",
        "Is every row recorded once?",
    ]
    assert "The log is not sound, so do not trust the values below" in text


def test_an_unknown_detector_is_refused_before_the_log_is_read(folder: Path) -> None:
    fails("drift missing.csv --detector ddm", folder, "`detector`", "adwin, page-hinkley, kswin", "ddm")


def test_replay(folder: Path) -> None:
    line = "--policy AdaptiveGLMUCB --policy 'D-LinUCB(gamma=0.99)' --policy UniformRandom --jobs 1"
    warning = f"thinning will be refused, because {NO_FLOOR}"  # and that is known before the work
    result, text = run(f"replay clicks.csv {COLUMNS} {line}", folder, warning=warning)
    assert text.splitlines()[0] == result["answer"]
    values = {policy["label"]: policy["recommendations"]["value"] for policy in result["policies"]}
    assert list(values) == ["AdaptiveGLMUCB", "D-LinUCB(gamma=0.99)", "UniformRandom"]
    for value in values.values():
        assert value["low"] < value["value"] < value["high"]
        assert value["estimand"]
        assert value["caveat"]
        assert value["effective_sample_size"] >= 100
    assert values["AdaptiveGLMUCB"]["value"] > values["UniformRandom"]["value"]
    assert (
        text.count("when deployed, it learns from those of its own choices, so the deployed value may be lower.") == 1
    )


def test_own_policies_are_evaluated(folder: Path) -> None:
    (folder / "my_policies.py").write_text(
        "from windvane import UniformRandom\n\n\nclass Coin(UniformRandom):\n    name = 'Coin'\n"
    )
    result, _ = run(f"replay clicks.csv {COLUMNS} --policy my_policies:Coin --estimands recommendations", folder)
    assert [policy["label"] for policy in result["policies"]] == ["Coin"]


def test_without_propensities_no_number_has_an_interval(folder: Path) -> None:
    lines = [line.split(",") for line in (folder / "clicks.csv").read_text().splitlines()]
    without = "\n".join(",".join(cell for i, cell in enumerate(line) if i != 4) for line in lines)
    (folder / "without.csv").write_text(without)
    columns = COLUMNS.replace("--propensity p", "")
    warning = "recommendations and thinning will be refused, because the log has no propensities"
    result, text = run(f"replay without.csv {columns} --policy OFUL", folder, warning=warning)
    (policy,) = result["policies"]
    estimates = [policy["recommendations"]["value"], *policy["recommendations"]["variants"].values()]
    assert all(estimate["low"] is None and estimate["high"] is None for estimate in estimates)
    assert policy["recommendations"]["value"]["value"] is None
    assert text.startswith("Cannot be answered, because")


def test_deterministic_logs_are_refused(folder: Path) -> None:
    write_clicks(folder / "greedy.csv", 600, floor=0.0)
    line = f"replay greedy.csv {COLUMNS} --policy OFUL --estimands recommendations,thinning"
    result, text = run(line, folder, warning=f"thinning will be refused, because {NO_FLOOR}")
    first = "The log is not sound: Are propensities recorded? Every propensity is 1: the log is deterministic. "
    assert text.startswith(f"{first}Cannot be answered, because")
    assert result["policies"][0]["recommendations"]["value"]["value"] is None


def test_values_of_a_log_with_wrong_propensities_come_with_a_warning(folder: Path) -> None:
    rows = [f"{i},{'ab'[i % 10 > 2]},{i % 3 % 2},0.5" for i in range(1000)]
    (folder / "wrong.csv").write_text("\n".join(["time,arm,reward,propensity", *rows]))
    line = "replay wrong.csv --policy UniformRandom --estimands recommendations"
    document = json.loads(windvane_command(f"{line} --json", folder).stdout)
    assert document["check"]["verdict"] == "error"
    assert "Are propensities right for each arm?" in document["check"]["answer"]
    text = windvane_command(line, folder).stdout
    first = "The log is not sound: Are propensities right for each arm? Not for b, a. The recommendations of "
    assert text.startswith(first)
    assert document["result"]["answer"].startswith(first)
    assert text.splitlines()[2] == "The log is not sound, so do not trust the values below"
    _, sound = run(f"replay clicks.csv {COLUMNS} --policy UniformRandom --estimands recommendations", folder)
    assert "not sound" not in sound


def test_names_of_arms_do_not_control_the_terminal(folder: Path) -> None:
    rows = [f"{i},\x1b]0;title\x07{i % 10 > 2},{i % 3 % 2},0.5" for i in range(1000)]
    (folder / "escapes.csv").write_text("\n".join(["time,arm,reward,propensity", *rows]))
    text = windvane_command("check escapes.csv", folder, code=1).stdout
    assert "\\x1b]0;title\\x07" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("command", ["check", "drift", "replay --policy OFUL"])
def test_a_report_replaces_neither_the_log_nor_a_folder_nor_a_device(folder: Path, command: str) -> None:
    before = (folder / "clicks.csv").read_bytes()
    (folder / "a_folder").mkdir(exist_ok=True)
    (folder / "a_pipe").unlink(missing_ok=True)
    os.mkfifo(folder / "a_pipe")
    for target in ("clicks.csv", "a_folder", "a_pipe"):
        fails(f"{command} clicks.csv {COLUMNS} --report {target}", folder, "`report`", target)
    assert (folder / "clicks.csv").read_bytes() == before
    assert (folder / "a_pipe").is_fifo()


@pytest.mark.parametrize(
    ("line", "mentions"),
    [
        ("check missing.csv", ["missing.csv"]),
        ("check clicks.csv --arm colour", ["colour"]),
        ("check clicks.csv --format parchment", ["parchment"]),
        ("check empty.csv", ["empty.csv"]),
        (f"replay clicks.csv {COLUMNS} --policy Nonsense", ["Nonsense"]),
        (f"replay clicks.csv {COLUMNS} --policy OFUL --floor 0.1 --share 0.9", ["share"]),
        (f"replay clicks.csv {COLUMNS} --policy OFUL --estimands value", ["estimands"]),
        (f"drift clicks.csv {COLUMNS} --features nonsense", ["nonsense"]),
    ],
)
def test_wrong_input_is_one_line(folder: Path, line: str, mentions: list[str]) -> None:
    (folder / "empty.csv").write_text("")
    fails(line, folder, *mentions)


def test_the_log_of_the_demo_is_analysed_end_to_end(tmp_path: Path) -> None:
    windvane_process("demo --seconds 6 --no-open --export log.ndjson", tmp_path)
    with contextlib.chdir(tmp_path):  # its tests of propensities fail once in a hundred logs
        checked = json.loads(run_command("check", "log.ndjson", "--json").stdout)["result"]
    assert checked["rows"] > 100
    assert not checked["problems"]
    document, _ = run("drift log.ndjson", tmp_path)
    assert document["diagnosis"]["verdict"] in ("drift", "drift likely", "no drift seen", "cannot be answered")
    evaluation, _ = run("replay log.ndjson --policy AdaptiveGLMUCB --policy UniformRandom", tmp_path)
    own = evaluation["policies"][0]["recommendations"]
    if own["value"]["value"] is not None:  # it is the policy that wrote the log, without its exploration
        assert own["weights"]["counting_rows"] > 0.5 * checked["rows"]
    shutil.rmtree(tmp_path, ignore_errors=True)
