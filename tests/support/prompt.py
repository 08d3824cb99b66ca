"""An interactive Python, as a reader has it in a terminal: blocks are pasted into it."""

from __future__ import annotations

import codeop
import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

PATIENCE = 120.0  # seconds for what a block does
WIDTH = 1000  # columns: no line is broken
FAULT = re.compile(r"^(Traceback|[\w.]*(Error|Exception): ?)", re.M)


class Prompt:
    """``python -i`` on a pseudoterminal. :meth:`paste` returns what a block printed, without the prompts."""

    def __init__(self, main: int) -> None:
        self._main, self._pasted = main, 0

    def paste(self, block: str) -> str:
        """Paste a block as a reader does, with a line feed at its end; wait until Python has done all of it."""
        self._pasted += 1
        mark = f"<<{self._pasted}>>"
        # One line at a time: a terminal keeps at most 4096 characters that nobody has read.
        for line in [*block.splitlines(), "", f'print("<" + "<{self._pasted}>>")']:
            self._write(f"{line}\n")
        lines = [re.sub(r"^(>>> |\.\.\. )+", "", line) for line in self._read_until(mark).splitlines()]
        return "\n".join(lines).strip("\n")

    def _write(self, text: str) -> None:
        data = text.encode()
        while data:
            data = data[os.write(self._main, data) :]

    def _read_until(self, mark: str) -> str:
        shown, deadline = "", time.monotonic() + PATIENCE
        while mark not in shown:
            ready, _, _ = select.select([self._main], [], [], max(deadline - time.monotonic(), 0.0))
            assert ready, f"no {mark!r} in {shown!r}"
            shown += os.read(self._main, 65536).decode()
        return shown.replace("\r", "").partition(mark)[0]


@contextlib.contextmanager
def open_prompt(folder: Path, *arguments: str, **environment: str) -> Iterator[Prompt]:
    """Start ``python -i`` with ``arguments`` in ``folder``, in the prompt that all versions of Python have."""
    main, worker = pty.openpty()
    modes = termios.tcgetattr(worker)
    modes[3] &= ~termios.ECHO  # so that what comes back is what Python prints, and readline echoes nothing either
    termios.tcsetattr(worker, termios.TCSANOW, modes)
    fcntl.ioctl(worker, termios.TIOCSWINSZ, struct.pack("4H", 50, WIDTH, 0, 0))
    settings = {**os.environ, "TERM": "dumb", "PYTHON_BASIC_REPL": "1", "PYTHONSTARTUP": "", **environment}
    process = subprocess.Popen(
        [sys.executable, "-i", *arguments], cwd=folder, env=settings, stdin=worker, stdout=worker, stderr=worker,
        start_new_session=True,
    )  # fmt: skip
    os.close(worker)
    try:
        yield Prompt(main)
    finally:
        process.kill()
        process.wait()
        os.close(main)


def find_fault(code: str) -> str | None:
    """Return the line at which the prompt would refuse a pasted block, None if it takes all of it."""
    compiler, pending = codeop.CommandCompiler(), list[str]()
    for line in [*code.splitlines(), ""]:
        pending.append(line)
        try:
            statement = compiler("\n".join(pending))
        except SyntaxError:
            return line
        if statement is not None:
            pending.clear()
    return "\n".join(pending).strip() or None
