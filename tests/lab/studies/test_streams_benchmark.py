"""Labelled data streams in experiments and in the benchmark: the real commands on small files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from support.commands import fails, files, windvane_command, windvane_process
from support.entries import entry
from support.refusals import rejects
from windvane import OFUL
from windvane.cli.app import build_app
from windvane.environments import BallArms, LabelledStream, Rotation
from windvane.lab import (
    EnvironmentSpec,
    LabelledStreamSpec,
    PolicySpec,
    Results,
    Spec,
    SpecError,
    compare_entries,
    simulate,
)
from windvane.lab.figures.projection_figure import projection_figure
from windvane.lab.report.presentation import present, present_streams
from windvane.lab.results.folder import FolderError
from windvane.lab.run.workers import CellError
from windvane.lab.studies import streams_benchmark
from windvane.lab.studies.benchmarks import ranked_entries
from windvane.lab.studies.streams_benchmark import recent_accuracy, run_streams, score_entry, streams_experiments
from windvane.policies.registry import POLICIES, Signature

DATA = Path(__file__).parents[4] / "shared" / "data"


def make_table(rows: int, seed: int) -> str:
    """Return a table of two numbers and a text. The label follows the first number; the rule flips halfway."""
    rng = np.random.default_rng(seed)
    lines = ["a,b,sky,label"]
    for row in range(rows):
        a, b = rng.normal(size=2)
        label = ("yes", "no")[int((a > 0) == (row < rows // 2))]
        lines.append(f"{a:.6f},{b:.6f},{'grey' if b > 0 else 'blue'},{label}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "one.csv").write_text(make_table(120, 1))
    (tmp_path / "two.csv").write_text(make_table(60, 2))
    return tmp_path


# --- experiments ------------------------------------------------------------------------------------------------------


def spec_of(stream: LabelledStreamSpec, *policies: PolicySpec, **sizes: int) -> Spec:
    settings = {"runs": 2, "horizon": 50, **sizes}
    return Spec(environments=[stream], policies=policies or [PolicySpec("OFUL")], **settings)


def test_a_labelled_stream_is_an_environment_of_a_spec(folder: Path) -> None:
    stream = LabelledStreamSpec("one", folder / "one.csv", label="label", missing="drop", S=2.0, drift=1.5, switches=3)
    world = EnvironmentSpec(name="turning", drift=Rotation(), arms=BallArms())
    policies = [PolicySpec(name) for name in ("BVD-GLM-UCB", "Oracle", "UniformRandom")]
    spec = Spec(environments=[stream, world], policies=policies, runs=3, horizon=40, lanes_per_cell=2, diagnostics=True)
    assert Spec.parse(spec.to_toml()) == spec
    results = simulate(spec, folder / "out", jobs=1)
    assert results.complete
    assert results.spec.fingerprint() == spec.fingerprint()
    by_name = {(e.environment, e.label): e for e in results.entries}
    for label in ("BVD-GLM-UCB", "Oracle", "UniformRandom"):
        found = by_name["one", label]
        np.testing.assert_array_equal(found.final, 40 - found.reward)  # the regret is the number of mistakes
        assert np.isnan(found.drift).all()  # there is no theta*, whatever policies are told
    assert (by_name["one", "Oracle"].final == 0).all()
    assert not by_name["one", "BVD-GLM-UCB"].diagnostics
    assert by_name["turning", "BVD-GLM-UCB"].diagnostics
    assert len(compare_entries(results.entries)) == 4
    figure = projection_figure(by_name["one", "BVD-GLM-UCB"].path)
    assert not [mark for panel in figure.panels for mark in panel.marks_with("theta_star")]
    drawn = {path.name for path in present(results)}
    assert {"regret-one.png", "projection-one.png", "report.html"} <= drawn
    text = windvane_command("bound out", folder).stdout
    assert "turning" in text
    assert "one" not in text.split()


def test_policies_are_told_what_the_spec_assumes(folder: Path) -> None:
    world = LabelledStreamSpec("one", folder / "one.csv", S=2.0, drift=1.5, switches=3).build(
        horizon=50, lanes=2, seed=0
    )
    assert (world.horizon, world.S) == (50, 2.0)
    told = PolicySpec("BVD-GLM-UCB").build(world)
    assert (told.S, told.get_params()["drift"].tolist()) == (2.0, [1.5, 1.5])
    assert PolicySpec("SW-GLUCB").build(world).get_params()["switches"].tolist() == [3, 3]
    assert PolicySpec("OFUL", settings={"S": 5.0}).build(world).S == 5.0


class LearnsScale(OFUL):
    """A policy whose S may be None."""

    def __init__(self, dim: int, *, S: float | None = None, lanes: object = 1, seed: int = 0) -> None:
        self.given = S
        super().__init__(dim, S=1.0 if S is None else S, lanes=lanes, seed=seed)


def test_a_policy_whose_scale_may_be_none_is_told_none(folder: Path) -> None:
    assert Signature(LearnsScale).may_be_none("S")
    assert not Signature(OFUL).may_be_none("S")
    world = LabelledStreamSpec("one", folder / "one.csv", S=2.0).build(horizon=50, lanes=1, seed=0)
    assert PolicySpec(LearnsScale).build(world).given is None
    assert PolicySpec(LearnsScale, settings={"S": 3.0}).build(world).given == 3.0
    simulated = EnvironmentSpec(name="turning", drift=Rotation(), arms=BallArms(), S=2.0)
    assert PolicySpec(LearnsScale).build(simulated.build(horizon=9, lanes=1, seed=0)).given == 2.0
    results = simulate(
        spec_of(LabelledStreamSpec("one", folder / "one.csv"), PolicySpec(LearnsScale)), folder / "out", jobs=1
    )
    assert results.complete


def test_the_content_of_the_file_decides_the_fingerprint(folder: Path) -> None:
    spec = spec_of(LabelledStreamSpec("one", folder / "one.csv"))
    fingerprint, content = spec.fingerprint(), (folder / "one.csv").read_bytes()
    (folder / "moved.csv").write_bytes(content)
    digest = spec.pin().environments[0].sha256
    assert spec_of(LabelledStreamSpec("one", folder / "moved.csv", sha256=digest)).fingerprint() == fingerprint
    assert spec_of(LabelledStreamSpec("one", folder / "one.csv", S=2.0)).fingerprint() != fingerprint
    simulate(spec, folder / "out", jobs=1)
    (folder / "one.csv").write_bytes(content.replace(b"grey", b"dark"))
    assert spec.fingerprint() != fingerprint
    with rejects(error=FolderError, code="other_experiment", fields=("environments[0].file",)) as differing:
        simulate(spec, folder / "out", jobs=1)
    assert "one.csv" in differing.value.problem
    pinned = spec_of(LabelledStreamSpec("one", folder / "one.csv", sha256=digest))
    with rejects(error=SpecError, path=("environments", 0, "sha256")) as caught:
        pinned.check()
    assert "the file has changed" in caught.value.problem
    fails("simulate out/spec.toml --out out", folder, "spec.toml", "sha256", "the file has changed")
    (folder / "one.csv").unlink()
    for failing in (spec.check, spec.fingerprint):
        with rejects(error=SpecError, path=("environments", 0, "file")) as caught:
            failing()
        assert "No such file" in caught.value.problem
    results = Results.open(folder / "out")  # results stay readable
    assert results.spec.fingerprint() == fingerprint
    assert {path.name for path in present(results)} >= {"report.html"}


def test_specs_that_cannot_be(folder: Path) -> None:
    path = str(folder / "one.csv")
    for field, value in {
        "name": "", "file": 5, "label": 3, "missing": "keep", "S": 0, "drift": True, "switches": -1, "sha256": "AB",
    }.items():  # fmt: skip
        with rejects(error=SpecError, path=(field,)):
            LabelledStreamSpec(**{"name": "one", "file": path, field: value})
    for wrong, place in (
        (LabelledStreamSpec("one", path, label="nowhere"), "label"),
        (LabelledStreamSpec("one", folder), "file"),
        (LabelledStreamSpec("one", path, label="a"), "file"),  # labels that are no classes
    ):
        with rejects(error=SpecError, path=("environments", 0, place)):
            spec_of(wrong).check()
    with rejects(error=SpecError, path=("environments", 0, "file")) as caught:
        spec_of(LabelledStreamSpec("one", path), horizon=121).check()
    assert "the horizon must be at most 120" in caught.value.problem
    for text, place in {
        "kind = 'labelled-stream'\nfile = 'one.csv'\nlabels = 'a'": "labels",
        "kind = 'labelled-stream'\nfile = 'one.csv'\ndrift = { kind = 'arc' }": "drift",
        "drift = { kind = 'arc' }\nlabel = 'a'": "label",
    }.items():
        with rejects(error=SpecError, path=("environments", 0, place)):
            Spec.parse(f"[[environments]]\nname = 'one'\n{text}\n[[policies]]\npolicy = 'OFUL'\n")
    with rejects(error=SpecError, path=("environments", 0)):
        Spec(environments=[PolicySpec("OFUL")], policies=[PolicySpec("OFUL")])


# --- cells that fail --------------------------------------------------------------------------------------------------


class Fails(OFUL):
    """A policy that fails after some rounds."""

    def update(self, x: object, reward: object, **others: object) -> None:
        if self.t > 5:
            raise RuntimeError("lost the thread")
        super().update(x, reward, **others)


class CannotBeBuilt(OFUL):
    """A policy that rejects its settings."""

    def __post_init__(self) -> None:
        raise ValueError("not here")


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_other_cells_go_on(folder: Path, jobs: int) -> None:
    policies = [PolicySpec(Fails), PolicySpec("OFUL"), PolicySpec(CannotBeBuilt), PolicySpec("UniformRandom")]
    spec, failures = spec_of(LabelledStreamSpec("one", folder / "one.csv"), *policies), []
    results = simulate(spec, folder / "out", jobs=jobs, failures=failures)
    assert not results.complete
    assert [e.label for e in results.entries] == ["OFUL", "UniformRandom"]
    assert {(f.policy, f.environment) for f in failures} == {("Fails", "one"), ("CannotBeBuilt", "one")}
    assert any("RuntimeError: lost the thread" in str(f) for f in failures)
    again: list[CellError] = []
    simulate(spec, folder / "out", jobs=1, failures=again)  # only what failed is tried again
    assert sorted(map(str, again)) == sorted(map(str, failures))
    with rejects(error=SpecError, path=("policies", 2)):  # without a list, errors come before a run
        simulate(spec, folder / "other", jobs=1)


# --- scores -----------------------------------------------------------------------------------------------------------


def test_scores_by_hand() -> None:
    regret = np.array([[1.0, 10.0, 18.0, 19.0], [0.0, 12.0, 20.0, 21.0]])
    made = dataclasses.replace(entry("A", [0.0, 0.0], rounds=np.array([1, 50, 90, 100])), regret=regret)
    score = score_entry(made)
    assert (score.mean_reward, score.mistakes, score.runs) == (pytest.approx(0.8), 20.0, 2)
    assert score.se == pytest.approx(0.01)
    np.testing.assert_allclose(recent_accuracy(made), [0.9, 0.9])  # one mistake in ten rounds
    assert score.last_tenth == pytest.approx(0.9)
    short = dataclasses.replace(entry("A", [1.0], horizon=1, rounds=np.array([1])), regret=np.array([[1.0]]))
    assert recent_accuracy(short).tolist() == [0.0]


def test_only_policies_that_finished_everywhere_are_ranked() -> None:
    entries = [entry("A", [1.0], environment="one"), entry("B", [1.0], environment="one")]
    entries += [entry("B", [2.0], environment="two")]
    assert [e.label for e in ranked_entries(Results(Path(), {}, entries, 3, 4))] == ["B", "B"]


# --- the benchmark ----------------------------------------------------------------------------------------------------


def test_the_benchmark_is_every_policy_that_can_run(folder: Path) -> None:
    one, two = streams_experiments([folder / "one.csv", folder / "two.csv"], rows=40, runs=3, seed=4, S=2.0)
    chosen = [  # the labels may drift, so policies that never forget are left out, but for those of the paper
        name
        for name, cls in POLICIES.items()
        if not (cls.needs_truth or cls.needs_one_hot)
        and (cls.card.forgetting != "none" or name in ("OFUL", "GLM-UCB", "UniformRandom"))
    ]
    assert [policy.name for policy in one.spec.policies] == chosen
    assert (one.spec.horizon, one.spec.runs, one.spec.seed, one.classes, one.dim) == (40, 3, 4, 2, 11)
    assert (one.file.name, two.file.name) == ("one", "two")
    assert one.file.sha256 == LabelledStream.read(folder / "one.csv").sha256
    assert streams_experiments([folder / "two.csv"])[0].spec.horizon == 60
    (folder / "sub").mkdir()
    (folder / "sub/one.csv").write_text(make_table(60, 3))
    names = [e.file.name for e in streams_experiments([folder / "one.csv", folder / "sub/one.csv"])]
    assert names == [str(folder / "one.csv"), str(folder / "sub/one.csv")]
    for wrong in ([], [folder / "one.csv", folder / "sub/../one.csv"]):
        with rejects("files"):
            streams_experiments(wrong)
    for names in (["UniformRandom"], ["Oracle"], ["nobody"], ["OFUL", "Oracle"], ["OFUL", "SW-UCB"]):
        with rejects("policies"):
            streams_experiments([folder / "one.csv"], policies=names)


def test_benchmark_streams(folder: Path) -> None:
    few = "--policies OFUL,Greedy,UniformRandom --runs 3 --seed 2 --jobs 1 --out new/out"
    line = f"benchmark streams one.csv two.csv --label label --S 2 {few}"
    found = windvane_command(line, folder)
    assert found.stderr == ""
    for text in (
        "one: 3 runs of 120 rows, 2 classes, d = 11",
        "last tenth",
        "Leaderboard over 2 labelled data streams",
    ):
        assert text in found.stdout
    out = folder / "new/out"
    names = ("leaderboard", "mean-reward-one", "mean-reward-two")
    assert {"leaderboard.json", "report.html", *(f"figures/{name}.svg" for name in names)} <= files(out)
    assert "Results: one" in (out / "report.html").read_text()
    before = json.loads((out / "leaderboard.json").read_text())
    notes = {path: path.stat().st_mtime_ns for path in out.rglob("cells/*.json")}
    assert len(notes) == 6
    removed = sorted(notes)[0]
    removed.unlink()  # as if the run had been stopped before
    document = json.loads(windvane_command(f"{line} --json", folder).stdout)
    again = {path: path.stat().st_mtime_ns for path in out.rglob("cells/*.json")}
    assert {path for path in notes if again[path] != notes[path]} == {removed}
    assert without_times(document) == without_times(before)
    assert (document["complete"], document["runs"], document["seed"], document["failures"]) == (True, 3, 2, [])
    assert {row["label"]: row["rank"] for row in document["leaderboard"]}["UniformRandom"] is None
    one = document["streams"][0]
    assert (one["stream"], one["file"], one["rows"], one["classes"], one["dim"]) == ("one", "one.csv", 120, 2, 11)
    for row in one["policies"]:
        assert row["mistakes"] == pytest.approx(120 * (1 - row["mean_reward"]))
    greedy = next(row for row in one["policies"] if row["policy"] == "Greedy")
    results = Results.open(out / "one")
    assert results.spec.environments[0].sha256 == one["sha256"]
    assert greedy["mistakes"] == next(e for e in results.entries if e.label == "Greedy").final.mean()
    assert windvane_command("compare new/out/one", folder).stdout
    (folder / "one.csv").write_text(make_table(120, 9))
    fails(line, folder, "new/out/one", "different experiment")
    windvane_command(f"{line} --restart", folder)


def without_times(document: dict) -> dict:
    plain = {name: value for name, value in document.items() if name != "files"}
    return json.loads(
        json.dumps(plain), object_hook=lambda table: {k: v for k, v in table.items() if k != "microseconds"}
    )


def test_benchmark_streams_refuses(folder: Path) -> None:
    fails("benchmark streams none.csv", folder, "file", "none.csv", "No such file")
    fails("benchmark streams one.csv --label nowhere", folder, "label", "a, b, sky, label", "one.csv", "'nowhere'")
    (folder / "bad.csv").write_text("a;b;y\n1;2;0\n3;4;1\n")
    fails("benchmark streams one.csv bad.csv", folder, "file", "bad.csv", "not by semicolons")
    (folder / "bad.csv").write_text("a,y\n1,0\n \n1,2,0\n")
    fails("benchmark streams one.csv bad.csv", folder, "file", "3 cells in line 4 of bad.csv")
    (folder / "bad.csv").unlink()
    fails("benchmark streams one.csv --rows 121", folder, "at most 120", "121")
    fails("benchmark streams one.csv one.csv", folder, "`files`")
    fails("benchmark streams one.csv --policies Oracle", folder, "`policies`", "'Oracle'")
    fails("benchmark streams one.csv --S 0", folder, "--S")
    (folder / "gaps.csv").write_text("a,y\n1,0\n,1\n2,0\n3,1\n")
    fails("benchmark streams gaps.csv", folder, "features['a']", "row 2 of gaps.csv")
    assert files(folder) == {"one.csv", "two.csv", "gaps.csv"}
    few = "--policies OFUL --runs 1 --jobs 1 --cluster local"
    line = f"benchmark streams gaps.csv --drop-missing --rows 3 {few}"
    assert "3 rows" in windvane_process(line, folder).stdout
    assert (folder / "benchmark-streams/report.html").exists()


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make OFUL fail after 70 rounds, which happens on the longer file only."""
    update = OFUL.update

    def fail(self: OFUL, *arguments: object, **others: object) -> None:
        if self.t > 70:
            raise FloatingPointError("overflow")
        update(self, *arguments, **others)

    monkeypatch.setattr(OFUL, "update", fail)


@pytest.mark.usefixtures("failing")
def test_a_policy_that_fails_does_not_lose_the_others(folder: Path) -> None:
    words = [
        str(folder / "one.csv"),
        str(folder / "two.csv"),
        "--runs",
        "2",
        "--jobs",
        "1",
        "--out",
        str(folder / "out"),
    ]
    line = ["benchmark", "streams", *words, "--policies", "OFUL,Greedy,UniformRandom"]
    found = CliRunner().invoke(build_app(), line)
    assert found.exit_code == 1
    assert "failed: OFUL in 'one' failed: FloatingPointError: overflow" in found.stdout
    document = json.loads((folder / "out/leaderboard.json").read_text())
    assert {row["label"] for row in document["leaderboard"]} == {"Greedy", "UniformRandom"}
    assert not document["complete"]
    assert [(f["policy"], f["environment"]) for f in document["failures"]] == [("OFUL", "one")]
    assert {row["policy"] for row in document["streams"][1]["policies"]} == {"OFUL", "Greedy", "UniformRandom"}
    page = (folder / "out/report.html").read_text()
    assert "Policies that failed" in page
    assert "Incomplete" in page
    lonely = ["benchmark", "streams", str(folder / "one.csv"), "--policies", "OFUL", "--jobs", "1"]
    found = CliRunner().invoke(build_app(), [*lonely, "--out", str(folder / "alone")])
    assert isinstance(found.exception, CellError)


@pytest.mark.parametrize("name", ["elec.csv", "weather.csv"])
def test_real_data(name: str, tmp_path: Path) -> None:
    if not (DATA / name).exists():
        pytest.skip(f"../shared/data/{name} is not beside the checkout")
    chosen = ["OFUL", "AdaptiveGLMUCB", "UniformRandom"]
    experiments = streams_experiments([DATA / name], rows=1500, runs=2, policies=chosen)
    results = run_streams(
        experiments, tmp_path, lambda spec, folder, _text, recipe: simulate(spec, folder, jobs=1, recipe=recipe)
    )
    standings, written = present_streams(results)
    assert {path.name for path in written} >= {"report.html", "leaderboard.png", f"mean-reward-{name[:-4]}.png"}
    scores = {score.label: score.mean_reward for score in map(score_entry, results.entries)}
    assert abs(scores["UniformRandom"] - 0.5) < 0.05  # five standard deviations of 3000 fair coins
    assert min(scores["OFUL"], scores["AdaptiveGLMUCB"]) > 0.6
    assert [s.rank for s in standings] == [1, 2, None]
    assert streams_benchmark.RUNS > 1
