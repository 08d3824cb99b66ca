"""The pages about experiments, followed step by step: what they promise is what comes out."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.commands import files, windvane_command, windvane_process
from support.pages import DOCS, read_blocks, read_commands, run_shown, run_snippets
from windvane.environments.arms import ArmLaw
from windvane.environments.drift import Drift
from windvane.environments.rewards import DelayLaw, RewardLaw
from windvane.lab import Results
from windvane.lab.spec.environment_spec import EnvironmentSpec, GymnasiumSpec, LabelledStreamSpec
from windvane.lab.spec.experiment_spec import Spec
from windvane.lab.spec.policy_spec import PolicySpec
from windvane.lab.studies.paper import paper_spec

TUTORIAL, SPEC = DOCS / "tutorials" / "reproduce-the-paper.md", DOCS / "reference" / "spec-file.md"
HOWTO = DOCS / "howto"


# --- the tutorial ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a reader who saved the files of the tutorial; the experiment has fewer runs."""
    folder = tmp_path_factory.mktemp("reader")
    (spec,), (policy,) = read_blocks(TUTORIAL, "toml"), read_blocks(TUTORIAL, "python")
    (folder / "jumps.toml").write_text(spec.replace("runs = 20", "runs = 6"))
    (folder / "my_policies.py").write_text(policy)
    return folder


def test_the_tutorial_reproduces_the_paper(reader: Path) -> None:
    document = json.loads(run_shown(TUTORIAL, "reproduce", reader, "--runs 2 --horizon 60 --jobs 1 --json").stdout)
    assert [row["label"] for row in document["policies"]] == [policy.name for policy in paper_spec().policies]
    assert {Path(name).name for name in document["files"]} >= {"report.html", "regret.svg"}
    found = run_shown(TUTORIAL, "reproduce --arms sphere", reader, "--runs 2 --horizon 30 --jobs 1").stdout
    assert "Arms are uniform on the unit sphere" in found


def test_the_tutorial_changes_the_world_and_adds_a_policy(reader: Path) -> None:
    """Greedy is ahead of the paper's algorithm where arms are new; where they stay the same, it has to explore."""
    for command in read_commands(TUTORIAL)[3:7]:
        run_shown(TUTORIAL, command, reader, "--jobs 1" if command.startswith("simulate") else "")
    assert (reader / "jumps-results" / "report.html").exists()
    (addition,) = (text for text in read_blocks(TUTORIAL, "text") if "my_policies" in text)
    with (reader / "jumps.toml").open("a") as file:
        file.write(f"\n{addition}")
    run_shown(TUTORIAL, "simulate jumps.toml --out with-greedy", reader, "--jobs 1")
    text = run_shown(TUTORIAL, "compare with-greedy --baseline DiscountedGreedy", reader).stdout
    assert re.search(r"^5 % at random .* better$", text, re.M)
    regret = {(e.environment, e.label): e.final.mean() for e in Results.open(reader / "with-greedy").entries}
    new, same = "new arms every round", "always the same arms"
    assert regret[new, "DiscountedGreedy"] < 0.75 * regret[new, "BVD-GLM-UCB"]
    assert regret[same, "DiscountedGreedy"] > 3 * regret[same, "AdaptiveGLMUCB"]
    assert regret[same, "DiscountedGreedy"] > 2 * regret[same, "5 % at random"]
    assert regret[new, "DiscountedGreedy"] < regret[new, "5 % at random"]
    assert regret[new, "DiscountedGreedy"] < 2 * regret[new, "AdaptiveGLMUCB"]


def test_the_table_of_the_tutorial_is_about_its_policies() -> None:
    (table,) = re.findall(r"^\| world .*?\n\n", TUTORIAL.read_text(encoding="utf-8"), re.M | re.S)
    spec = Spec.parse(read_blocks(TUTORIAL, "toml")[0])
    header = [cell.strip() for cell in table.splitlines()[0].split("|")[2:-1]]
    assert header == [*(policy.name for policy in spec.policies), "DiscountedGreedy", "5 % at random"]
    rows = [line.split("|")[1].strip() for line in table.splitlines()[2:] if line]
    assert rows == [environment.name for environment in spec.environments]


# --- how-tos ---------------------------------------------------------------------------------------------------------


def test_policies_are_compared_in_worlds_of_ones_own(tmp_path: Path) -> None:
    page = HOWTO / "compare-policies.md"
    (tmp_path / "spec.toml").write_text(read_blocks(page, "toml")[0])
    ranking, compare, report, *_ = read_commands(page)
    found = run_shown(page, ranking, tmp_path, "--jobs 1 --horizon 200").stdout
    assert "Leaderboard over 2 environments" in found
    assert run_shown(page, compare, tmp_path).stdout.count("mine ") == 2
    run_shown(page, report, tmp_path)
    assert "report.html" in files(tmp_path / "benchmark-spec")


def test_policies_are_compared_in_python(tmp_path: Path) -> None:
    namespace = run_snippets(HOWTO / "compare-policies.md", tmp_path)
    assert {entry.label for entry in namespace["results"].entries} == {"mine", "OFUL"}
    gap = namespace["gap"]
    assert (gap.label, gap.baseline) == ("mine", "OFUL")
    assert gap.low < gap.mean < gap.high


def test_a_labelled_data_stream_is_played(tmp_path: Path) -> None:
    page = HOWTO / "labelled-streams.md"
    namespace = run_snippets(page, tmp_path)
    assert namespace["stream"].classes == ("no", "yes")
    assert namespace["right"] / namespace["stream"].horizon > 0.8
    line = read_commands(page)[0].replace("electricity.csv", "wind.csv").replace("2000", "300")
    few = "--policies AdaptiveGLMUCB,UniformRandom --runs 2 --jobs 1"
    document = json.loads(windvane_command(f"{line} {few} --json", tmp_path).stdout)
    assert document["complete"]
    (block,) = (text for text in read_blocks(page, "text") if "labelled-stream" in text)
    text = block.replace("electricity.csv", "wind.csv").replace('"class"', '"sail"')
    spec = Spec.parse(f'horizon = 200\n{text}\n[[policies]]\npolicy = "OFUL"\n')
    assert isinstance(spec.environments[0], LabelledStreamSpec)


def test_environments_are_written(tmp_path: Path) -> None:
    namespace = run_snippets(HOWTO / "write-an-environment.md", tmp_path)
    last = namespace["sea"].round(300).theta[0]
    assert last == pytest.approx([np.cos(6.0), 0.5 * np.sin(6.0)], abs=1e-12)
    estimates = namespace["estimates"]
    assert namespace["replayed"].round(2000).theta[0] == pytest.approx(estimates[-1])
    assert len(namespace["drift"].sha256) == 64
    holidays, sea = namespace["holidays"], namespace["sea"]
    played = [(holidays.play(holidays.round(t), [0]), sea.play(sea.round(t), [0])) for t in range(1, 29)]
    for t, (outcome, usual) in enumerate(played, start=1):
        assert outcome.reward[0] == (0.0 if t % 7 == 0 else usual.reward[0])
    assert sum(usual.reward[0] for _, usual in played[6::7]) > 0  # there was something to lose


def test_gymnasium_both_ways(tmp_path: Path) -> None:
    page = HOWTO / "gymnasium.md"
    namespace = run_snippets(page, tmp_path)
    assert namespace["info"]["round"] == 3
    assert (namespace["bought"] / namespace["game"].horizon > 0.65).all()  # half without learning, 0.8 at best
    (block,) = (text for text in read_blocks(page, "text") if "gymnasium" in text)
    spec = Spec.parse(f'{block}\n[[policies]]\npolicy = "OFUL"\n')
    assert isinstance(spec.environments[0], GymnasiumSpec)


def test_a_cluster_gives_the_same_bytes(tmp_path: Path) -> None:
    page = HOWTO / "run-on-a-cluster.md"
    (tmp_path / "spec.toml").write_text(read_blocks(page, "toml")[0])
    (local,) = (line for line in read_commands(page) if "--cluster local" in line)
    windvane_process(f"{local} --jobs 1", tmp_path)  # one worker starts sooner than two
    windvane_command("simulate spec.toml --jobs 1 --out alone", tmp_path)
    for table in ("runs", "curves", "paths"):
        stored = sorted((tmp_path / "alone" / table).iterdir())
        assert len(stored) == (2 if table == "paths" else 4)
        for path in stored:
            assert (tmp_path / "spec-results" / table / path.name).read_bytes() == path.read_bytes()


# --- reference -------------------------------------------------------------------------------------------------------


def test_the_results_folder_is_loaded_and_exported(tmp_path: Path) -> None:
    page = DOCS / "reference" / "results-folder.md"
    namespace = run_snippets(page, tmp_path)
    assert len(namespace["runs"]) == 9  # two variants and OFUL, three runs each
    assert set(namespace["results"].summary()["label"]) == {"D-LinUCB γ=0.9", "D-LinUCB γ=0.99", "OFUL"}
    assert (tmp_path / "runs.csv").read_text().count("\n") == 10
    for command in read_commands(page)[:3]:
        run_shown(page, command, tmp_path)
    assert (tmp_path / "curves.csv").exists()
    assert r"\pm" in (tmp_path / "table.tex").read_text()
    listed = re.findall(r"^DIR/(\S+)", "".join(read_blocks(page, "text")), re.M)
    found = {re.sub(r"[^/]+\.(parquet|json)$", r"*.\1", name) for name in files(tmp_path / "spec-results")}
    assert found == {*listed, "*.json", ".lock"} - {"manifest.json"}


def read_table(section: str, level: str = "##") -> dict[str, list[str]]:
    """Return the cells of the first table of a section of the reference, by the first cell."""
    text = SPEC.read_text(encoding="utf-8").split(f"\n{level} {section}\n")[1]
    lines = text[text.index("\n|") + 1 :].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].strip("`"): row[1:] for row in cells}


def list_fields(cls: Any) -> dict[str, Any]:
    return {field.name: field for field in dataclasses.fields(cls)}


@pytest.mark.parametrize(
    ("section", "cls"),
    [
        ("The experiment", Spec),
        ("Policies", PolicySpec),
        ("Simulated environments", EnvironmentSpec),
        ("Labelled data streams", LabelledStreamSpec),
        ("Gymnasium environments", GymnasiumSpec),
    ],
)
def test_the_reference_lists_every_key_of_a_spec(section: str, cls: type) -> None:
    """With the default, where it is a number, and "required" where there is none."""
    table = read_table(section)
    assert table.keys() == list_fields(cls).keys()
    for field in dataclasses.fields(cls):
        default = table[field.name][0].strip('`"')
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            assert float(default) == field.default, field.name
        has_none = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        assert (default == "required") == (has_none or (field.name == "kind" and cls is not EnvironmentSpec)), (
            field.name
        )


@pytest.mark.parametrize(
    ("section", "base"), [("Drifts", Drift), ("Arms", ArmLaw), ("Rewards", RewardLaw), ("Delays", DelayLaw)]
)
def test_the_reference_lists_every_kind_with_its_keys(section: str, base: type) -> None:
    table = read_table(section, "###")
    kinds = {cls.kind: cls for cls in list_subclasses(base) if getattr(cls, "kind", "")}
    assert table.keys() == kinds.keys()
    for kind, cls in kinds.items():
        assert re.findall(r"`(\w+)`", table[kind][0]) == list(list_fields(cls)), kind
        for name, default in re.findall(r"`(\w+)` = ([\d.]+)(?=,|$)", table[kind][0]):
            assert float(default) == (list_fields(cls)[name].default or 0.0), (kind, name)  # None: a vector of zeros


def list_subclasses(cls: type) -> list[type]:
    """Return the subclasses of the package, those of tests and readers apart."""
    direct = [sub for sub in cls.__subclasses__() if sub.__module__.startswith("windvane.")]
    return [*direct, *(sub for base in direct for sub in list_subclasses(base))]
