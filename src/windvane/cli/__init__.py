"""The ``windvane`` command. Every command needs an extra: see :mod:`windvane.cli.commands`."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import sys
from collections.abc import Sequence

from windvane.cli.commands import COMMANDS, HAVE_OUT, USE_OWN_CODE
from windvane.errors import WindvaneError

FAILED, WRONG_INPUT, INTERRUPTED = 1, 2, 130
# Top-level modules that windvane imports and that only an extra installs.
EXTRA_MODULES = {
    "anyio", "dask", "distributed", "fastapi", "fastapi_offline", "gymnasium", "h11", "httpcore2", "httptools",
    "jinja2", "joblib", "matplotlib", "opentelemetry", "plotly", "prometheus_client", "psycopg", "pyarrow", "pydantic",
    "pydantic_core", "rich", "river", "setproctitle", "sklearn", "starlette", "tomlkit", "typer", "uvicorn",
}  # fmt: skip
# Modules that an option of a command needs, and the extra that installs them.
OPTIONAL = {"opentelemetry": "opentelemetry", "river": "river"}
_NO_NUMBER = re.compile(r"Input should be a valid (integer|number)\b.*", re.DOTALL)
_ADDRESS = re.compile(r"(postgres[\w+]*:|password=).+", re.IGNORECASE | re.DOTALL)
interrupts: list[int] = []
"""The signals that have interrupted the command; a library may have turned the KeyboardInterrupt into its own error."""


class InterruptedRunError(WindvaneError):
    """The run was interrupted (Ctrl-C); the message says how far it got."""


class InputError(WindvaneError, ValueError):
    """The input of the command is invalid; the message says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 wrong usage or input, 130 interrupted.

    An error is one line on stderr; ``--debug``, at any place, adds its traceback.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = _find_command(words)
    try:
        _prepare(command)
        return _run(words, command)
    except KeyboardInterrupt:
        return _report_interrupt(command)
    except (BrokenPipeError, SystemExit) as error:  # the reader closed the pipe; typer turns it into an exit
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())  # the interpreter's last flush must not fail either
        return 0
    except Exception as error:
        if "--debug" in words:
            raise
        if interrupts:
            return _report_interrupt(command)
        return _report(error, words, command)


def _run(words: Sequence[str], command: str | None) -> int:
    """Import and run one command."""
    import typer

    from windvane.cli.app import build_app

    app = build_app([command] if command else [])
    try:
        outcome = app([word for word in words if word != "--debug"], prog_name="windvane", standalone_mode=False)
        sys.stdout.flush()
    except InterruptedRunError as error:
        return _fail(str(error), INTERRUPTED, "")
    except typer.TyperException as error:
        # Without arguments, the help was printed, and the message is empty.
        message = error.format_message() or f"name a command of `windvane{f' {command}' if command else ''}`"
        for word in words:  # it may be an argument that typer does not expect, and shows
            message = message.replace(word, hide_address(word))
        return _fail(simplify(message), error.exit_code)
    if outcome == INTERRUPTED:  # Ctrl-C, as typer reports it
        return _report_interrupt(command)
    return outcome if isinstance(outcome, int) else 0


def simplify(message: str) -> str:
    """Return what pydantic says about the value of an option in the words of other errors."""
    message = _NO_NUMBER.sub(lambda match: f"must be {'an' if match[1] == 'integer' else 'a'} {match[1]}", message)
    return message.replace("Input should be", "must be").replace("Value error, ", "")


def hide_address(word: str) -> str:
    """Return a word of a command line without the address of a database, which may hold a password.

    Nothing of an address is left: where its password ends is not certain if it is not valid.
    """
    return _ADDRESS.sub(r"\1...", word)


def _prepare(command: str | None) -> None:
    """Set up streams that take any text, SIGTERM as Ctrl-C, and the path for commands that import the user's code."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: SIM115  (closed by the parent process)
        setattr(sys, name, stream)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    interrupts.clear()
    signal.signal(signal.SIGTERM, _interrupt)  # schedulers interrupt with SIGTERM
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    if command in USE_OWN_CODE:
        with contextlib.suppress(OSError):  # the folder may have been removed
            sys.path.append(os.getcwd())


def _find_command(words: Sequence[str]) -> str | None:
    """Return the first word that is no option, of the command line or of the one that a shell wants to complete."""
    if "_WINDVANE_COMPLETE" in os.environ:
        line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")  # bash, or other shells
        words = line.split()[1:]
    return next((word for word in words if not word.startswith("-")), None)


def _report(error: Exception, words: Sequence[str], command: str | None) -> int:
    """Print one line, and return the exit code: 2 where the input was wrong or an extra is missing, else 1."""
    text = str(error) or type(error).__name__
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in EXTRA_MODULES:
        module = (error.name or "").partition(".")[0]
        uses_cluster = any(word.partition("=")[0] == "--cluster" for word in words)
        extra = "cluster" if uses_cluster else COMMANDS[command].extra if command in COMMANDS else "lab"
        extra = OPTIONAL.get(module, extra)
        return _fail(f"{error.name} is missing; install it with: pip install 'windvane[{extra}]'", WRONG_INPUT)
    if getattr(error, "code", None) == "unwritable" and command in HAVE_OUT:  # a FolderError of the lab
        text += "; name another folder with --out"
    if isinstance(error, ValueError):
        return _fail(text, WRONG_INPUT)
    expected = isinstance(error, OSError | ImportError | WindvaneError)
    return _fail(text if expected else f"{type(error).__name__}: {text} (--debug shows where)", FAILED)


def _report_interrupt(command: str | None) -> int:
    after = COMMANDS[command].after_interrupt if command in COMMANDS else "nothing was changed"
    return _fail(f"interrupted; {after}", INTERRUPTED, "")


def _interrupt(number: int, _frame: object) -> None:
    interrupts.append(number)
    raise KeyboardInterrupt


def _fail(message: str, code: int, what: str = "error: ") -> int:
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in " ".join(message.split()))
    print(f"windvane: {what}{line}", file=sys.stderr)
    return code
