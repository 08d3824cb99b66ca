"""Run commands as users do.

``windvane_command`` runs a line in this process, which has imported everything: a new process would take seconds of
processor time to do so. ``windvane_process`` runs the installed command in a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from support.server import CommandResult, run_command

SCRIPT = Path(sys.executable).with_name("windvane")


def windvane_command(line: str, folder: Path, code: int = 0, **environment: str) -> CommandResult:
    """Run ``windvane LINE`` in ``folder``, in this process; stdout and stderr are no terminals."""
    settings = {"COLUMNS": "100", **environment}
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        done = run_command(*shlex.split(line))
    assert done.returncode == code, f"{line}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def windvane_process(line: str, folder: Path, code: int = 0, **environment: str) -> CommandResult:
    """Run ``windvane LINE`` in ``folder``, in a process of its own; stdout and stderr are pipes, as in a script."""
    words = shlex.split(line)
    settings = {**os.environ, "COLUMNS": "100", **environment}
    done = subprocess.run([SCRIPT, *words], cwd=folder, capture_output=True, text=True, env=settings, check=False)
    assert done.returncode == code, f"{line}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return CommandResult(done.returncode, done.stdout, done.stderr)


def fails(line: str, folder: Path, *mentions: str, code: int = 2) -> None:
    """The command, run in this process, fails with one line on stderr that mentions these in this order."""
    with contextlib.chdir(folder):
        done = run_command(*shlex.split(line))
    assert (done.returncode, done.stdout) == (code, ""), done
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("windvane: error: ")
    assert re.search(".*".join(map(re.escape, mentions)), done.stderr), done.stderr


def run_on_terminal(line: Sequence[str], **environment: str) -> tuple[str, str]:
    """Run a program whose stderr is a terminal, and stdout a pipe; return stdout, and what the terminal showed."""
    main, worker = pty.openpty()
    settings = {**os.environ, "TERM": "xterm", "COLUMNS": "100", **environment}
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=worker, env=settings, text=True)
    os.close(worker)
    shown = b""
    with contextlib.suppress(OSError):  # the other side is closed
        while chunk := os.read(main, 65536):  # what is written to a terminal must be read, or the writer waits
            shown += chunk
    out, _ = process.communicate()
    os.close(main)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    assert process.returncode == 0, text
    return out, text


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@contextlib.contextmanager
def windvane_server(
    line: str, folder: Path, stop: signal.Signals = signal.SIGTERM, log: list[str] | None = None
) -> Iterator[str]:
    """Run ``windvane LINE``; the first line it prints. It is told to stop at the end, and that is not a failure. Its
    log, which has no warnings, is appended to ``log``."""
    command = [SCRIPT, *shlex.split(line)]
    with tempfile.TemporaryFile("w+") as errors:  # a pipe that nobody reads would hold it up
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            assert process.stdout is not None  # a pipe, as asked for
            first = process.stdout.readline()
            try:
                yield first
                process.send_signal(stop)
                process.communicate(timeout=60)
            except BaseException:  # the test has failed, and must not wait until the server has drained
                process.kill()
                raise
        errors.seek(0)
        lines = errors.read().splitlines()
    assert process.returncode == 0, lines
    assert [line for line in lines if " INFO " not in line and '"level": "info"' not in line] == []
    assert first
    if log is not None:
        log += lines
