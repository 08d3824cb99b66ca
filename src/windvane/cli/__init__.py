"""The ``windvane`` command: experiments, figures and reports. Needs the extra ``lab``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

FAILED, WRONG_INPUT, INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 wrong usage or input, 130 interrupted.

    An error is one line on stderr; with ``--debug``, which may stand anywhere, its traceback comes too.
    """
    signal.signal(signal.SIGTERM, _interrupted)  # a scheduler's way of saying Ctrl-C
    sys.path.append(os.getcwd())  # a policy or a drift of the user's own may live beside the spec that names it
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    try:
        import typer

        from windvane.cli.app import app
    except ImportError as error:
        if debug:
            raise
        return _fail(f"{error.name} is missing; install it with: pip install 'windvane[lab]'", FAILED)
    try:
        outcome = app([word for word in given if word != "--debug"], prog_name="windvane", standalone_mode=False)
        sys.stdout.flush()
        return outcome if isinstance(outcome, int) else 0
    except BrokenPipeError:  # whoever reads us has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor may the interpreter's last flush complain
        return 0
    except typer.TyperException as error:
        return _fail(error.format_message(), error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except Exception as error:
        if debug:
            raise
        text = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, ValueError):
            return _fail(text, WRONG_INPUT)
        expected = isinstance(error, OSError | ImportError) or type(error).__module__.startswith("windvane.")
        return _fail(text if expected else f"{type(error).__name__}: {text} (--debug shows where)", FAILED)


def _interrupted(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _fail(message: str, code: int) -> int:
    print(f"windvane: error: {' '.join(message.split())}", file=sys.stderr)
    return code
