"""What all commands share: version, errors, tracebacks, pipes, interrupts."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

import windvane
from support.commands import SCRIPT, fails, windvane_process
from support.server import run_local, until
from windvane import __main__


def test_version_and_unknown_commands(tmp_path: Path) -> None:
    assert windvane_process("--version", tmp_path).stdout == f"windvane {windvane.__version__}\n"
    fails("reproduec", tmp_path, "'reproduec'", "reproduce")


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    for line in ("simulate nowhere.toml --debug", "--debug simulate nowhere.toml"):
        found = windvane_process(line, tmp_path, code=1)
        assert "Traceback" in found.stderr
        assert "nowhere.toml" in found.stderr.splitlines()[-1]


def test_a_reader_who_leaves_early_causes_no_noise(bench: Path) -> None:
    line = f"{shlex.quote(str(SCRIPT))} compare results | true"
    found = subprocess.run(["bash", "-c", line], cwd=bench, capture_output=True, text=True, check=False)
    assert found.stderr == ""


def test_an_interrupt_that_a_library_wraps_is_still_an_interrupt(tmp_path: Path) -> None:
    """As pydantic does, if it is interrupted while it builds a model."""
    code = """
import signal, sys, windvane.cli, windvane.cli.app
def wrap(*_, **__):
    try:
        signal.raise_signal(signal.SIGTERM)
    except KeyboardInterrupt:
        raise RuntimeError("wrapped") from None
windvane.cli.app.build_app = lambda _: wrap
sys.exit(windvane.cli.main(["policies"]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "windvane: interrupted; nothing was changed\n")


def test_an_interrupt_while_python_imports_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt_import(name: str, *_: object) -> None:
        if name == "windvane.cli":
            raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "windvane.cli")
    monkeypatch.setattr(sys, "meta_path", [Mock(find_spec=interrupt_import), *sys.meta_path])
    assert __main__.main() == 130


def interrupt(line: str, folder: Path, is_busy: Callable[[], bool], **settings: str) -> str:
    """Send SIGINT once to a command that is busy; it must end with exit code 130 and one line on stderr: return it."""
    words = [SCRIPT, *shlex.split(line)]
    process = subprocess.Popen(
        words, cwd=folder, env=os.environ | settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until(is_busy, 60.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, ""), err
    return err


def test_ctrl_c_stops_a_run_that_can_be_continued(tmp_path: Path) -> None:
    err = interrupt("reproduce --runs 200 --out out --jobs 2", tmp_path, (tmp_path / "out" / ".progress").exists)
    pattern = r"windvane: interrupted; \d+ of \d+ cells are finished and usable; repeat the command to continue\n"
    assert re.fullmatch(pattern, err), err


def test_ctrl_c_stops_compiling(tmp_path: Path) -> None:
    settings = {"WINDVANE_CACHE_DIR": str(tmp_path), "WINDVANE_QUIET": "1"}
    err = interrupt("compile BVD-GLM-UCB", tmp_path, lambda: any(tmp_path.rglob("*.nbi")), **settings)
    assert err == "windvane: interrupted; what was compiled is kept; repeat the command to continue\n"


def test_ctrl_c_stops_a_backup_that_leaves_no_file(tmp_path: Path) -> None:
    store, target = tmp_path / "a.db", tmp_path / "b.db"
    with run_local(store) as service:
        service.create("shop")
        for _ in range(50):
            service.reward(service.decide()["id"], 1.0)
    err = interrupt("backup --store a.db --to b.db", tmp_path, lambda: any(tmp_path.glob("b.db.*")))
    assert err == "windvane: interrupted; nothing was changed\n"
    assert not list(tmp_path.glob("b.db*"))
    assert not target.exists()
