"""The pages about logs, followed step by step: what they promise is what comes out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.pages import DOCS, read_commands, run_shown, run_snippets
from windvane.logs.evaluation.request import ESTIMANDS

DRIFT, CHECK = DOCS / "tutorials" / "does-my-log-drift.md", DOCS / "howto" / "check-a-log.md"
EVALUATE, FORMATS = DOCS / "howto" / "evaluate-offline.md", DOCS / "reference" / "log-formats.md"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a reader who has run the scripts of the tutorial."""
    folder = tmp_path_factory.mktemp("shop")
    run_snippets(DRIFT, folder)
    return folder


def test_the_log_of_the_tutorial_is_sound(shop: Path) -> None:
    found = run_shown(DRIFT, "check shop.csv", shop).stdout
    assert found.startswith("The log is sound: 4,000 rows, no problems found.")
    assert (shop / "shop-check.html").exists()


def test_the_tutorial_finds_the_change_of_taste(shop: Path) -> None:
    document = json.loads(run_shown(DRIFT, "drift shop.csv", shop, "--json").stdout)
    diagnosis, text = document["result"]["diagnosis"], run_shown(DRIFT, "drift shop.csv", shop).stdout
    assert diagnosis["verdict"] == "drift"
    (change,) = diagnosis["change_points"]
    assert change["decision_low"] <= 2000 <= change["decision_high"]
    assert change["is_step"]
    assert "or gradually" not in text.splitlines()[0]
    assert "B_T" not in text  # a rate is that of a steady drift
    assert "a rate of drift would be misleading" in text


def test_the_tutorial_evaluates_policies(shop: Path) -> None:
    (command,) = (line for line in read_commands(DRIFT) if line.startswith("replay shop.csv"))
    result = json.loads(run_shown(DRIFT, command, shop, "--json --jobs 1").stdout)["result"]
    values = {policy["label"]: policy["recommendations"]["value"] for policy in result["policies"]}
    assert values["UniformRandom"]["high"] < values["AdaptiveGLMUCB"]["low"]
    assert values["Greedy(gamma=1)"]["value"] < values["Greedy(gamma=0.99)"]["value"]
    assert values["AdaptiveGLMUCB"]["low"] > result["log"]["value"]["value"]
    sizes = [values[name]["effective_sample_size"] for name in ("Greedy(gamma=1)", "Greedy(gamma=0.99)")]
    assert sizes[0] < sizes[1]


def test_the_tutorial_shows_a_refusal(shop: Path) -> None:
    (command,) = (line for line in read_commands(DRIFT) if line.startswith("replay greedy.csv"))
    found = run_shown(DRIFT, command, shop).stdout
    assert found.startswith("Cannot be answered, because the log has no propensities.")
    assert run_shown(DRIFT, "drift greedy.csv", shop).stdout.startswith("Drift likely (fixed-sample test: p = 0.028;")


def test_a_table_with_columns_of_other_names_is_checked(tmp_path: Path) -> None:
    result = run_snippets(CHECK, tmp_path)["result"]
    assert {line.verdict for line in result.lines} == {"ok"}
    (command,) = (line for line in read_commands(CHECK) if "clicks.csv" in line)
    assert run_shown(CHECK, command, tmp_path).stdout.startswith("The log is sound: 2,000 rows")
    broken = (tmp_path / "clicks.csv").read_text().replace("red,0.75", "red,0.5")
    (tmp_path / "clicks.csv").write_text(broken)
    assert "propensities" in run_shown(CHECK, command, tmp_path, code=1).stdout.splitlines()[0]


def test_policies_are_evaluated_in_python(tmp_path: Path) -> None:
    evaluation = run_snippets(EVALUATE, tmp_path)["evaluation"]
    best, random = (policy.recommendations.value for policy in evaluation.policies)
    assert random.high < best.low


def test_the_estimands_of_the_page_are_those_of_the_command() -> None:
    text = EVALUATE.read_text(encoding="utf-8")
    table = text[text.index("| `--estimands` |") :].partition("\n\n")[0]
    assert [line.split("|")[1].strip(" `") for line in table.splitlines()[2:]] == list(ESTIMANDS)


def test_the_reference_names_every_column_option(shop: Path) -> None:
    """Each option of the table names its column, and a column of the default name is found without it."""
    text = FORMATS.read_text(encoding="utf-8")
    table = text[text.index("## Columns of a table") : text.index("## Size and order")]
    rows = [[cell.strip(" `") for cell in line.split("|")[1:3]] for line in table.splitlines() if "`--" in line]
    assert [default for _, default in rows] == [option[2:].replace("-", "_") for option, _ in rows]
    given = " ".join(f"{option} {default}" for option, default in rows if default in ("arm", "reward", "time"))
    found = run_shown(DRIFT, "check shop.csv", shop, given)
    assert found.stdout.startswith("The log is sound: 4,000 rows")


def test_drift_is_diagnosed_in_python(tmp_path: Path) -> None:
    diagnosis = run_snippets(DOCS / "explanation" / "log-analysis.md", tmp_path)["diagnosis"]
    assert diagnosis.verdict == "drift"
    (change,) = diagnosis.change_points
    assert change.decision == pytest.approx(1000, abs=50)
