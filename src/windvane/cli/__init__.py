"""The ``windvane`` command. Every command needs an extra: see :func:`_needed_extra`."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Sequence

from windvane.errors import WindvaneError

FAILED, WRONG_INPUT, INTERRUPTED = 1, 2, 130
SERVICE_COMMANDS = ("serve", "token", "verify", "backup", "restore", "demo", "compile")  # these need ``service``
# Top-level modules that windvane imports and that only an extra installs.
EXTRA_MODULES = {
    "anyio", "dask", "distributed", "fastapi", "fastapi_offline", "h11", "httpcore2", "httptools", "jinja2", "joblib",
    "matplotlib", "plotly", "prometheus_client", "pyarrow", "pydantic", "pydantic_core", "rich", "starlette", "typer",
    "uvicorn",
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 wrong usage or input, 130 interrupted.

    An error is one line on stderr; ``--debug``, at any place, adds its traceback.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    try:
        _prepare()
        import typer

        from windvane.cli.app import build_app
        from windvane.cli.console import InterruptedRunError

        try:
            app = build_app(_find_command(words))
            outcome = app([word for word in words if word != "--debug"], prog_name="windvane", standalone_mode=False)
            sys.stdout.flush()
        except InterruptedRunError as error:
            return _fail(str(error), INTERRUPTED, "")
        except typer.TyperException as error:
            return _fail(error.format_message(), error.exit_code)
        if outcome == INTERRUPTED:  # Ctrl-C, as typer reports it
            return _fail("interrupted", INTERRUPTED, "")
        return outcome if isinstance(outcome, int) else 0
    except (BrokenPipeError, SystemExit) as error:  # the reader closed the pipe; typer turns it into an exit
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # the interpreter's last flush must not fail either
        return 0
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED, "")
    except Exception as error:
        if debug:
            raise
        if _interrupts:  # a library turned the interrupt into an error of its own, as pydantic does
            return _fail("interrupted", INTERRUPTED, "")
        return _report(error, words)


_interrupts: list[int] = []  # the signals that interrupted the command


def _prepare() -> None:
    """Streams that take any text, SIGTERM as Ctrl-C, and the current folder at the end of the path."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: SIM115  (closed by the parent process)
        setattr(sys, name, stream)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    _interrupts.clear()
    signal.signal(signal.SIGTERM, _interrupt)  # schedulers interrupt with SIGTERM
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    with contextlib.suppress(OSError):  # the folder may have been removed
        sys.path.append(os.getcwd())  # a custom policy or drift may be in a module beside its spec


def _report(error: Exception, arguments: Sequence[str]) -> int:
    """Print one line, and return the exit code: 2 where the input was wrong or an extra is missing, else 1."""
    text = str(error) or type(error).__name__
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in EXTRA_MODULES:
        extra = _needed_extra(arguments)
        return _fail(f"{error.name} is missing; install it with: pip install 'windvane[{extra}]'", WRONG_INPUT)
    if isinstance(error, ValueError):
        return _fail(text, WRONG_INPUT)
    expected = isinstance(error, OSError | ImportError | WindvaneError)
    return _fail(text if expected else f"{type(error).__name__}: {text} (--debug shows where)", FAILED)


def _needed_extra(arguments: Sequence[str]) -> str:
    """Return the extra that the command in ``arguments`` needs; ``cluster`` includes ``lab``."""
    if _find_command(arguments) in SERVICE_COMMANDS:
        return "service"
    return "cluster" if any(word.partition("=")[0] == "--cluster" for word in arguments) else "lab"


def _find_command(arguments: Sequence[str]) -> str | None:
    return next((word for word in arguments if not word.startswith("-")), None)


def _interrupt(number: int, _frame: object) -> None:
    _interrupts.append(number)
    raise KeyboardInterrupt


def _fail(message: str, code: int, what: str = "error: ") -> int:
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in " ".join(message.split()))
    print(f"windvane: {what}{line}", file=sys.stderr)
    return code
