"""Every option of every command, through the real command in a process of its own."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest

import windvane
from support.commands import SCRIPT, fails, files, windvane_command
from windvane.environments import BallArms, Rotation, Static
from windvane.lab.results.results import Results
from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec, Spec

SPEC = Spec(
    title="two worlds",
    environments=(
        EnvironmentSpec(name="turning", drift=Rotation(), arms=BallArms(count=4)),
        EnvironmentSpec(name="still", drift=Static(), arms=BallArms(count=4)),
    ),
    policies=(PolicySpec("OFUL"), PolicySpec("BVD-GLM-UCB")),
    runs=4,
    horizon=60,
    lanes_per_cell=3,
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a spec and the results of running it."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "two.toml").write_text(SPEC.to_toml())
    found = windvane_command("simulate two.toml --out results --jobs 1", folder)
    assert found.stderr == ""  # quiet when piped
    assert "turning: 4 runs of 60 rounds" in found.stdout
    assert "BVD-GLM-UCB" in found.stdout
    return folder


# --- the paper -----------------------------------------------------------------------------------------------------


def test_reproduce(tmp_path: Path) -> None:
    line = "reproduce --runs 3 --horizon 90 --arms cube --bonus-scale 0.5 --seed 7 --jobs 2 --out new/folder"
    found = windvane_command(f"{line} --diagnostics", tmp_path)
    assert found.stderr == ""
    for text in ("OFUL", "D-LinUCB", "GLM-UCB", "BVD-GLM-UCB", "B_T = 1.57", "cube [-1, 1]^2", "multiplied by 0.5"):
        assert text in found.stdout
    assert "Theorem 1, general arms" in found.stdout  # the bound beside the regret, with the diagnostics
    assert "Nothing to compare" in found.stdout  # another horizon than the published one
    written = files(tmp_path / "new/folder")
    for name in ("regret", "projection", "diagnostics-bvd-glm-ucb"):
        assert {f"figures/{name}.{kind}" for kind in ("png", "pdf", "svg")} <= written
    assert {"report.html", "spec.toml", "manifest.json"} <= written
    entries = Results.open(tmp_path / "new/folder").entries
    assert [len(entry.final) for entry in entries] == [3] * 6
    assert {"learning", "tracking", "lemma_2_slack"} <= {e.policy: e for e in entries}["BVD-GLM-UCB"].diagnostics.keys()
    # the same again does nothing, says the same, and as JSON
    again = json.loads(windvane_command(f"{line} --diagnostics --json", tmp_path).stdout)
    assert again["bounds"][0]["bounds"]["general"]["total"] > again["bounds"][0]["measured"][3]["mean"]
    assert [row["mean"] for row in again["policies"]] == pytest.approx([e.final.mean() for e in entries])
    # other settings do not mix, unless told to start over; a cluster gives the same
    fails(line.replace("--seed 7", "--seed 8"), tmp_path, "new/folder: ", "--restart")
    restarted = windvane_command(f"{line} --restart --cluster local --json", tmp_path).stdout
    assert [row["mean"] for row in json.loads(restarted)["policies"]] == [row["mean"] for row in again["policies"]]


def test_reproduce_at_the_published_horizon(tmp_path: Path) -> None:
    found = json.loads(windvane_command("reproduce --runs 2 --json", tmp_path).stdout)
    published = {one["policy"]: one for one in found["published"]}
    assert published["BVD-GLM-UCB"]["published"] == pytest.approx([19.87, 43.57, 59.14])
    assert published["OFUL"]["rounds"] == [1000, 2000, 3000]
    assert len(found["readings"]) == 8
    assert (tmp_path / "reproduction-2x3000/report.html").exists()
    rows = {row["policy"]: row for row in found["policies"]}
    assert rows["BVD-GLM-UCB"]["gamma"] == pytest.approx(0.995908, abs=1e-6)
    assert sum(rows["BVD-GLM-UCB"]["stages"]) == pytest.approx(1.0)
    text = windvane_command("reproduce --runs 2", tmp_path).stdout
    assert re.search(r"BVD-GLM-UCB differs: [\d./ ]+ against the published 19.9 / 43.6 / 59.1", text)
    page = (tmp_path / "reproduction-2x3000/report.html").read_text()
    windvane_command("report reproduction-2x3000", tmp_path)  # draws the same again, with the published curves
    assert (tmp_path / "reproduction-2x3000/report.html").read_text() == page
    assert re.search(r"OFUL .* 220\.5\n", text)


def test_reproduce_refuses(tmp_path: Path) -> None:
    fails("reproduce --arms torus", tmp_path, "`arms`", "ball, sphere, cube", "'torus'")
    fails("reproduce --runs 0", tmp_path, "--runs")
    fails("reproduce --horizon two", tmp_path, "--horizon")
    fails(
        "reproduce --bonus-scale nan --runs 1 --horizon 3",
        tmp_path,
        "'--bonus-scale'",
    )
    fails("reproduce --seed -1", tmp_path, "--seed")
    fails("reproduce --runz 3", tmp_path, "--runz")
    assert files(tmp_path) == set()


# --- experiments ---------------------------------------------------------------------------------------------------


def test_simulate(bench: Path, tmp_path: Path) -> None:
    reference = Results.open(bench / "results")
    source = shlex.quote(str(bench / "two.toml"))
    out = json.loads(
        windvane_command(f"simulate {source} --diagnostics --cluster local --jobs 2 --json", tmp_path).stdout
    )
    assert out["folder"] == "two-results"
    found = Results.open(tmp_path / "two-results")
    for one, other in zip(found.entries, reference.entries, strict=True):
        np.testing.assert_array_equal(one.regret, other.regret)
        assert one.diagnostics
        assert not other.diagnostics
    fails(f"simulate {source}", tmp_path, "two-results: ", "--restart")
    windvane_command(f"simulate {source} --restart", tmp_path)
    assert not Results.open(tmp_path / "two-results").entries[0].diagnostics


def test_simulate_refuses(bench: Path, tmp_path: Path) -> None:
    fails("simulate", tmp_path, "'spec'")
    fails("simulate nowhere.toml", tmp_path, "nowhere.toml")
    bad = (bench / "two.toml").read_text().replace("horizon = 60", "horizon = -60")
    (tmp_path / "bad.toml").write_text(bad)
    line = bad.splitlines().index("horizon = -60") + 1
    fails("simulate bad.toml", tmp_path, f"bad.toml:{line}: horizon: ", "-60")
    fails(f"simulate {bench / 'two.toml'} --out bad.toml", tmp_path, "bad.toml: ")
    fails(f"simulate {bench / 'two.toml'} --cluster nonsense", tmp_path, "'nonsense'", code=1)


def test_new_writes_what_simulate_runs(tmp_path: Path) -> None:
    assert "spec.toml written" in windvane_command("new", tmp_path).stdout
    fails("new", tmp_path, "spec.toml: ", "--force")
    (tmp_path / "spec.toml").write_text("")
    windvane_command("new spec.toml --force", tmp_path)
    assert json.loads(windvane_command("new other.toml --json", tmp_path).stdout) == {"file": "other.toml"}
    fails("new nowhere/spec.toml", tmp_path, "nowhere/spec.toml: ", "No such file or directory")
    example = Spec.read(tmp_path / "spec.toml")
    short = re.sub(r"^horizon = \d+", "horizon = 30", (tmp_path / "spec.toml").read_text(), flags=re.MULTILINE)
    (tmp_path / "spec.toml").write_text(re.sub(r"^runs = \d+", "runs = 2", short, flags=re.MULTILINE))
    found = json.loads(windvane_command("simulate spec.toml --json", tmp_path).stdout)
    assert found["complete"]
    assert {row["environment"] for row in found["policies"]} == {world.name for world in example.environments}


def test_report(bench: Path) -> None:
    out = windvane_command("report results", bench).stdout.split()
    assert "results/report.html" in out
    assert {f"results/figures/regret-{w}.{k}" for w in ("turning", "still") for k in ("png", "pdf", "svg")} <= set(out)
    found = json.loads(windvane_command("report results --json", bench).stdout)
    assert found["complete"]
    assert all((bench / name).stat().st_size > 1000 for name in found["files"])
    fails("report nowhere", bench, "nowhere: ")
    fails("report .", bench, ".: ", "manifest.json")


def test_compare(bench: Path) -> None:
    text = windvane_command("compare results", bench).stdout
    assert re.search(r"turning: final regret minus that of OFUL, 95% confidence", text)
    line = "compare results --baseline BVD-GLM-UCB --confidence 0.9 --figure shown --json"
    found = json.loads(windvane_command(line, bench).stdout)
    entries = {(e.environment, e.policy): e for e in Results.open(bench / "results").entries}
    for row in found["differences"]:
        gaps = entries[row["environment"], "OFUL"].final - entries[row["environment"], "BVD-GLM-UCB"].final
        assert row["mean"] == pytest.approx(gaps.mean())
        assert row["low"] < gaps.mean() < row["high"]
    assert {f"shown/differences-{w}.png" for w in ("turning", "still")} <= set(found["files"])
    fails("compare results --baseline UCB1", bench, "`baseline`", "OFUL, BVD-GLM-UCB", "'UCB1'")
    fails("compare results --confidence 1.5", bench, "--confidence")
    fails("compare results results", bench, "`folders`", "results")
    fails("compare", bench, "'folders'")


def test_compare_folders(bench: Path, tmp_path: Path) -> None:
    """The same worlds and seed: runs can be paired across folders."""
    source = (bench / "two.toml").read_text()
    (tmp_path / "linear.toml").write_text(source.replace('"BVD-GLM-UCB"', '"GLM-UCB"'))
    windvane_command("simulate linear.toml --out linear", tmp_path)
    found = json.loads(windvane_command(f"compare {bench / 'results'} linear --json", tmp_path).stdout)
    gaps = {(d["environment"], d["label"]): d["mean"] for d in found["differences"]}
    assert gaps["turning", "linear/OFUL"] == 0.0
    (tmp_path / "other.toml").write_text(source.replace("seed = 0", "seed = 1"))
    windvane_command("simulate other.toml --out other", tmp_path)
    fails(f"compare {bench / 'results'} other", tmp_path, "results", "other", "turning", "seed", "0 and 1")


def test_bound(bench: Path) -> None:
    told = "--horizon 3000 --drift 1.5708 --dim 2"
    text = windvane_command(f"bound {told}", bench).stdout
    assert "Theorem 1, orthogonal arms" in text
    assert "they speak of rates" in text
    line = f"bound {told} --link logistic --S 1 --L 1 --sigma 0.5 --lam 1 --delta 0.05 --gamma 0.99 --json"
    (found,) = json.loads(windvane_command(line, bench).stdout)
    k = windvane.get_link("logistic").constants(1, 1)
    from windvane.theory import Problem, regret_bound

    problem = Problem(horizon=3000, drift=1.5708, dim=2, k_mu=k.k_mu, c_mu=k.c_mu, S=1, L=1, lam=1, sigma=0.5)
    wanted = regret_bound(problem, gamma=0.99, delta=0.05)
    assert found["bounds"]["orthogonal"]["total"] == pytest.approx(wanted.total)
    assert found["bounds"]["trivial"] == 3000
    beside = windvane_command("bound results", bench).stdout
    assert beside.count("measured") == 2
    (first, _) = json.loads(windvane_command("bound results --delta 0.1 --json", bench).stdout)
    assert first["measured"][0]["mean"] == pytest.approx(Results.open(bench / "results").entries[0].final.mean())
    assert first["bounds"]["constants"]["delta"] == 0.1
    fails("bound --horizon 10", bench, "`--drift`")
    fails("bound results --dim 2", bench, "`--dim`", "results")
    fails(f"bound {told} --S -1", bench, "`S`", "-1.0")
    fails(f"bound {told} --link tanh", bench, "link", "'tanh'")


def test_tune(bench: Path, tmp_path: Path) -> None:
    text = windvane_command(
        "tune --gammas 0.9,0.99 --scales 0.5,1 --runs 3 --horizon 40 --seed 2 --jobs 1", tmp_path
    ).stdout
    assert "best: γ = " in text
    found = Results.open(tmp_path / "tune-paper-BVD-GLM-UCB")
    assert [tuple(entry.variant.values()) for entry in found.entries] == [
        (0.9, 0.5),
        (0.9, 1.0),
        (0.99, 0.5),
        (0.99, 1.0),
    ]
    assert (tmp_path / "tune-paper-BVD-GLM-UCB/figures/tuning.png").stat().st_size > 5000
    source = shlex.quote(str(bench / "two.toml"))
    line = f"tune {source} --policy D-LinUCB --environment still --discounts 3 --scales 1 --out tuned --json"
    swept = json.loads(windvane_command(line, tmp_path).stdout)
    assert len(swept["gammas"]) == 3
    assert np.array(swept["mean"]).shape == (3, 1)
    again = json.loads(windvane_command(f"{line} --restart --cluster local", tmp_path).stdout)
    assert again["mean"] == swept["mean"]
    fails(f"tune {source}", tmp_path, "`--environment`", "turning, still")
    fails(f"tune {source} --environment moon", tmp_path, "`--environment`", "turning, still", "'moon'")
    fails("tune --gammas 0.9,x", tmp_path, "`--gammas`", "'0.9,x'")
    fails("tune --gammas 0.9,1.5 --out w", tmp_path, "gamma", "(0, 1]", "1.5")
    fails("tune --policy nobody --out w", tmp_path, "nobody")
    fails("tune --policy GLM-UCB --out w", tmp_path, "gamma")


def test_doctor(tmp_path: Path) -> None:
    text = windvane_command("doctor", tmp_path).stdout
    assert "all is well" in text
    assert f"windvane       {windvane.__version__}" in text
    found = json.loads(windvane_command("doctor --json", tmp_path).stdout)
    assert found["healthy"]
    assert len(found["checks"]) == 5


# --- the frame -----------------------------------------------------------------------------------------------------


def commands() -> dict:
    """The commands by the words that call them."""
    import typer.main

    from windvane.cli.app import build_app

    found = {}
    for name, command in typer.main.get_command(build_app()).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", {"": command})
        found |= {f"{name} {word}".strip(): part for word, part in inner.items()}
    return found


def test_every_command_has_help_with_an_example(tmp_path: Path) -> None:
    top = windvane_command("--help", tmp_path).stdout
    assert "Exit codes: 0 done, 1 failed, 2 wrong usage or input, 130 interrupted" in " ".join(top.split())
    for name in commands():
        assert name in top
        text = windvane_command(f"{name} --help", tmp_path).stdout
        assert re.search(rf"Examples?:(.|\n)*windvane {name}", text), text
        assert "--json" in text


def test_version_and_unknown_commands(tmp_path: Path) -> None:
    assert windvane_command("--version", tmp_path).stdout == f"windvane {windvane.__version__}\n"
    fails("reproduec", tmp_path, "'reproduec'", "reproduce")


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    for line in ("simulate nowhere.toml --debug", "--debug simulate nowhere.toml"):
        found = windvane_command(line, tmp_path, code=1)
        assert "Traceback" in found.stderr
        assert "nowhere.toml" in found.stderr.splitlines()[-1]


def test_a_reader_who_leaves_early_causes_no_noise(bench: Path) -> None:
    line = f"{shlex.quote(str(SCRIPT))} compare results | true"
    found = subprocess.run(["bash", "-c", line], cwd=bench, capture_output=True, text=True, check=False)
    assert found.stderr == ""


def test_a_terminal_sees_a_progress_bar(bench: Path, tmp_path: Path) -> None:
    """stderr is a terminal (a real pseudo-terminal), stdout is not: the bar is on the one, the table on the other."""
    main, worker = pty.openpty()
    line = [SCRIPT, "simulate", bench / "two.toml", "--out", tmp_path / "out", "--jobs", "2"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=worker, env={**os.environ, "TERM": "xterm"})
    os.close(worker)
    seen = b""
    while True:
        try:
            chunk = os.read(main, 65536)
        except OSError:  # the other side is closed
            break
        if not chunk:
            break
        seen += chunk
    out, _ = process.communicate()
    os.close(main)
    assert process.returncode == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode())
    assert re.search(r"960/960\s+rounds", text)
    assert "rounds/s" in text
    assert b"BVD-GLM-UCB" in out


def test_compile_as_json(tmp_path: Path) -> None:
    done = windvane_command("compile UniformRandom --json", tmp_path)
    assert json.loads(done.stdout)["policies"] == ["UniformRandom"]
