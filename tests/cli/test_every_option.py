"""Every option of every command, in complete command lines that are run for real.

A new option needs a place in a line below. Each line runs in a folder of its own with ``two.toml`` (a spec),
``results`` (its results), ``data.csv`` (a labelled data stream), ``log.csv`` (a log) and ``a.db`` (a store with a
stream). DATABASE stands for the address of an empty database.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
import typer.main

from support.commands import SCRIPT, windvane_command
from support.server import Local, run_command
from windvane.cli.app import build_app

SERVE = (
    "--store a.db --host 127.0.0.1 --port 0 --rate 100 --body-limit 2048 --max-streams 9 --drain 0 --log-format text"
)
LOG = (
    "--format table --features age,device --arms-from arms.csv --max-dim 50 --reward-range 0 1 --floor 0.1"
    " --fixed-logging --time when --arm banner --reward clicked --propensity p --reward-time known --id key --weight w"
)
LINES = [
    "--version",
    "new other.toml --replace --json",
    "spec check two.toml --check-policies --json",
    "spec schema --json",
    "simulate two.toml --diagnostics --check-policies --jobs 1 --out new --restart --json",
    "report results --baseline OFUL --bands se --json",
    "compare results --baseline OFUL --confidence 0.9 --out figures --json",
    "export results runs.csv --table runs --json",
    "tune two.toml --policy D-LinUCB --environment still --gammas 0.9,0.99 --scales 1 --runs 2 --horizon 20 --seed 1"
    " --jobs 1 --out tuned --restart --json",
    "tune --discounts 2 --scales 1 --runs 2 --horizon 20 --cluster local --jobs 1 --out paper-tuned",
    "bound --horizon 100 --drift 1 --dim 2 --link logistic --S 1 --L 1 --sigma 0.5 --lam 1 --delta 0.05 --gamma 0.9"
    " --json",
    "reproduce --arms cube --bonus-scale 0.5 --diagnostics --runs 2 --horizon 30 --seed 7 --jobs 1 --out paper"
    " --restart --json",
    "reproduce --paper zhao2020-gradual --runs 2 --horizon 30 --jobs 1",
    "reproduce --list --json",
    "benchmark drift --quick --tuned --worlds rotation --policies OFUL,D-LinUCB --check-policies --runs 2 --horizon 30"
    " --seed 1 --jobs 1 --out drift --restart --json",
    "benchmark stationary --quick --tuned --worlds clicks --policies OFUL,D-LinUCB --check-policies --runs 2"
    " --horizon 30 --seed 1 --jobs 1 --out stationary --restart --json",
    "benchmark spec two.toml --tuned --policies OFUL,UniformRandom --check-policies --runs 2 --horizon 30 --seed 1"
    " --jobs 1 --out own --restart --json",
    "benchmark streams data.csv --label color --rows 30 --drop-missing --S 2 --policies OFUL,UniformRandom"
    " --check-policies --runs 2 --seed 1 --jobs 1 --out streams --restart --json",
    "study rates --runs 2 --horizon 80 --seed 1 --jobs 1 --out rates --restart --json",
    "policies --json",
    "policies --cite OFUL,AdaptiveGLMUCB --json",
    f"serve {SERVE} --log-level info --access-log --skip-probes --tracing console --personalizer shop"
    " --config service.toml --json",
    "serve --store DATABASE --port 0 --node a --node-url http://127.0.0.1:8000 --json",
    "demo --seconds 1 --port 0 --no-open --json",
    "demo --seconds 1 --no-open --keep --json",
    "demo --seconds 1 --no-open --export demo.ndjson",
    "token add shop --read-only --store a.db --json",
    "token add prometheus --metrics --config store.toml --json",
    "token list --store a.db --json",
    "token list --config store.toml --json",
    "token remove page --store a.db --json",
    "token remove shop-2026 --config store.toml --json",
    "token open --store a.db --json",
    "token open --config store.toml --json",
    "streams list --store a.db --json",
    "streams list --config store.toml --json",
    "streams compact --config store.toml --json",
    "streams configure shop --title Shop --retention 90d --reward-timeout 1h --default-reward 0 --learn at_timeout"
    " --max-pending 100 --epsilon 0 --store a.db --json",
    "streams configure page --features features.json --store a.db --json",
    "streams archive shop --store a.db --json",
    "streams unarchive shop --store a.db --json",
    "streams copy a.db copied.db shop --tokens --json",
    "streams copy a.db DATABASE --no-tokens --json",
    "streams move copied.db moved.db --tokens --json",
    "streams move moved.db DATABASE shop --no-tokens --json",
    "streams delete shop --store a.db --yes --json",
    "store create DATABASE --grant owner --json",
    "verify --store a.db --json",
    "verify --config store.toml --json",
    "backup --store a.db --to b.db --json",
    "backup --config store.toml --to c.db --json",
    "restore backup.db --store a.db --replace --record-loss --force --json",
    "restore backup.db --config store.toml --replace --json",
    f"check log.csv {LOG} --report check.html --json",
    f"drift log.csv {LOG} --alpha 0.1 --detector adwin --seed 1 --report drift.html --json",
    f"replay log.csv {LOG} --policy UniformRandom --policy OFUL --baseline OFUL --epsilon 0.1 --share 0.01 --alpha 0.1"
    " --estimands recommendations,thinning,model --seed 1 --jobs 1 --report replay.html --json",
    "doctor --verbose --json",
    "compile UniformRandom --json",
]
# The examples above start no cluster more than once: it takes seconds. It is the same option everywhere.
ELSEWHERE = {
    *(f"{command} --cluster" for command in ("simulate", "reproduce", "study")),
    *(f"benchmark {command} --cluster" for command in ("drift", "stationary", "spec", "streams")),
    *(f"streams {verb} --url" for verb in ("list", "configure", "compact", "archive", "unarchive", "delete")),
    *(f"streams {verb} --config" for verb in ("configure", "archive", "unarchive", "delete")),  # one group of options
    "streams compact --store",
    "demo --open",  # opens a browser
    "serve --ha",  # needs a standby: in test_serving_standby.py
    *("--debug", "--install-completion", "--show-completion"),  # in test_main.py and test_options.py
}
UNTIL_STOPPED = ("serve", "--keep")  # these run until Ctrl-C
ALONE = ("--version", "serve", "demo", "--cluster")  # these start other processes, or end as only a process can


@pytest.fixture(scope="module")
def folder(bench: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the lines need."""
    folder = tmp_path_factory.mktemp("every-option")
    shutil.copytree(bench, folder, dirs_exist_ok=True)
    generator = np.random.default_rng(0)
    rows = [f"{x:.3f},{'red' if x > 0 else 'blue'}" for x in generator.normal(size=40)]
    (folder / "data.csv").write_text("\n".join(["x,color", ",red", *rows]))
    (folder / "service.toml").write_text("port = 1\n")
    (folder / "features.json").write_text('{"arms": ["red", "blue"]}')
    (folder / "store.toml").write_text('port = 1\nstore = "a.db"\n')
    write_log(folder)
    service = Local(folder / "a.db")
    service.create("shop")
    service.create("page", features={"arms": ["red"]})
    service.decide()
    service.stop()
    run_command("backup", "--store", folder / "a.db", "--to", folder / "backup.db")
    for name in ("page", "shop-2026"):
        run_command("token", "add", name, "--store", folder / "a.db")
    return folder


def write_log(folder: Path) -> None:
    """Write a log, log.csv, with every column that a table can have, and the features of its arms, arms.csv."""
    generator = np.random.default_rng(0)
    lines = ["when,banner,clicked,p,known,key,w,age,device"]
    for i in range(400):
        arm, clicked = ("red", "blue")[generator.integers(2)], int(generator.random() < 0.4)
        lines.append(f"{1e9 + i},{arm},{clicked},0.5,{1e9 + i + 3},d{i},1,{20 + i % 50},{'phone' if i % 3 else 'desk'}")
    (folder / "log.csv").write_text("\n".join(lines))
    (folder / "arms.csv").write_text("banner,size,colour\nred,1.0,warm\nblue,2.0,cold\n")


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.partition(" -")[0])
def test_the_line_runs(folder: Path, line: str, request: pytest.FixtureRequest) -> None:
    if "DATABASE" in line:
        line = line.replace("DATABASE", f"'{request.getfixturevalue('database_url')}'")
    if any(word in line for word in ALONE):
        out = run_alone(line, folder)
    else:
        out = windvane_command(line, folder).stdout
    assert (json.loads(out) is not None) if "--json" in line else out


def run_alone(line: str, folder: Path) -> str:
    """Return what a line prints in a process of its own."""
    process = subprocess.Popen(
        [SCRIPT, *shlex.split(line)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    if any(word in line for word in UNTIL_STOPPED):
        process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return first + rest


def list_declared_options() -> set[str]:
    """Return every option that the program declares, after the words that call its command."""

    def list_options(command: object, words: str) -> set[str]:
        if hasattr(command, "commands"):
            parts = (list_options(part, f"{words} {name}".strip()) for name, part in command.commands.items())
            inner: set[str] = set().union(*parts)
        else:
            inner = set()
        options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}  # type: ignore[attr-defined]
        return inner | {f"{words} {option}".strip() for option in options if option.startswith("--")}

    return list_options(typer.main.get_command(build_app()), "")


def test_the_lines_use_every_option() -> None:
    used = set(ELSEWHERE)
    for line in LINES:
        command = re.match(r"(?:benchmark |spec |store |streams |token )?[a-z]*", line)
        assert command is not None
        used |= {f"{command[0]} {option}".strip() for option in re.findall(r"--[\w-]+", line)}
    declared = list_declared_options()
    assert declared - used == set(), "add these options to a line above"
    assert used - declared == set(), "no command has these options"
