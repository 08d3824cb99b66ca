"""The ``windvane`` command: experiments, figures and reports. Needs the extra ``lab``."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Sequence

FAILED, WRONG_INPUT, INTERRUPTED = 1, 2, 130
SERVICE = ("fastapi", "uvicorn", "httptools", "prometheus_client")  # what only the extra ``service`` brings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 wrong usage or input, 130 interrupted.

    An error is one line on stderr; with ``--debug``, which may stand anywhere, its traceback comes too.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    try:
        _prepare()
        import typer

        from windvane.cli.app import app
        from windvane.cli.console import InterruptedRunError

        try:
            outcome = app([word for word in given if word != "--debug"], prog_name="windvane", standalone_mode=False)
            sys.stdout.flush()
        except InterruptedRunError as error:
            return _fail(str(error), INTERRUPTED, "")
        except typer.TyperException as error:
            return _fail(error.format_message(), error.exit_code)
        if outcome == INTERRUPTED:  # Ctrl-C, as typer tells it
            return _fail("interrupted", INTERRUPTED, "")
        return outcome if isinstance(outcome, int) else 0
    except BrokenPipeError:  # whoever reads us has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor may the interpreter's last flush complain
        return 0
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED, "")
    except Exception as error:
        if debug:
            raise
        return _report(error)


def _prepare() -> None:
    """Streams that take any text, SIGTERM as Ctrl-C, and the current folder at the end of the path."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: SIM115  (closed by whoever started us)
        setattr(sys, name, stream)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, _interrupted)  # a scheduler's way of saying Ctrl-C
    with contextlib.suppress(OSError):  # the folder may be gone
        sys.path.append(os.getcwd())  # a policy or a drift of the user's own may live beside the spec that names it


def _report(error: Exception) -> int:
    """One line, and the code: 2 where the input was wrong, else 1."""
    text = str(error) or type(error).__name__
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("windvane"):
        extra = "service" if error.name in SERVICE else "lab"
        return _fail(f"{error.name} is missing; install it with: pip install 'windvane[{extra}]'", FAILED)
    if isinstance(error, ValueError):
        return _fail(text, WRONG_INPUT)
    expected = isinstance(error, OSError | ImportError) or type(error).__module__.startswith("windvane.")
    return _fail(text if expected else f"{type(error).__name__}: {text} (--debug shows where)", FAILED)


def _interrupted(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _fail(message: str, code: int, what: str = "error: ") -> int:
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in " ".join(message.split()))
    print(f"windvane: {what}{line}", file=sys.stderr)
    return code
