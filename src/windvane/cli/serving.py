"""Commands for the service: serve, token, verify."""

from __future__ import annotations

import logging
import sqlite3
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from windvane.cli import FAILED, WRONG_INPUT
from windvane.cli.configuration import read_config
from windvane.cli.console import InputError, StageBars, output, print_json, remark, table
from windvane.cli.options import AsJson
from windvane.errors import ArgumentError

if TYPE_CHECKING:
    from windvane.service.store import Token
    from windvane.service.verification import StoreReport

StorePath = Annotated[
    Path, typer.Option("--store", envvar="WINDVANE_STORE", help="The store, an SQLite file that holds all data.")
]


Host = Annotated[
    str, typer.Option(envvar="WINDVANE_HOST", help="Address to listen on; one other than loopback needs a token.")
]
Port = Annotated[int, typer.Option(envvar="WINDVANE_PORT", help="Port; 0 chooses a free one.", min=0, max=65535)]
_RATE_HELP = "Requests per second per client; each item of a batch counts (0: no limit)."
Rate = Annotated[float, typer.Option(envvar="WINDVANE_RATE", help=_RATE_HELP, min=0.0)]
_BODY_HELP = "Largest request body, in bytes."
BodyLimit = Annotated[int, typer.Option(envvar="WINDVANE_BODY_LIMIT", help=_BODY_HELP, min=1024, max=1 << 30)]
_DRAIN_HELP = "Seconds after SIGTERM in which requests are still accepted, while /readyz answers 503."
Drain = Annotated[float, typer.Option(envvar="WINDVANE_DRAIN", help=_DRAIN_HELP, min=0.0, max=3600.0)]
LogFormat = Annotated[
    Literal["text", "json"], typer.Option(envvar="WINDVANE_LOG_FORMAT", help="Format of the log on standard error.")
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option(envvar="WINDVANE_LOG_LEVEL", help="Lowest level that is logged."),
]
AccessLog = Annotated[bool, typer.Option("--access-log", envvar="WINDVANE_ACCESS_LOG", help="Log every request.")]
Config = Annotated[
    Path | None,
    typer.Option(envvar="WINDVANE_CONFIG", help="A TOML file with these options.", callback=read_config, is_eager=True),
]


def serve(
    store: StorePath = Path("windvane.db"),
    host: Host = "127.0.0.1",
    port: Port = 8000,
    rate: Rate = 0.0,
    body_limit: BodyLimit = 4 << 20,
    drain: Drain = 0.0,
    log_format: LogFormat = "text",
    log_level: LogLevel = "info",
    access_log: AccessLog = False,
    config: Config = None,  # noqa: ARG001 - its callback takes the other options from it
    as_json: AsJson = False,
) -> None:
    """Run the decision service: HTTP under /v1, a live page at /, API documentation at /docs, all data in one file.

    It prints its address once it listens, and logs "ready" once its streams are recovered and it answers requests.
    Ctrl-C or SIGTERM stops it, with exit code 0, after the requests in progress. The command line takes precedence over
    the environment, and the environment over the file.

    \b
    Examples:
      windvane serve --store windvane.db
      windvane token add shop --store windvane.db
      windvane serve --store windvane.db --host 0.0.0.0
      windvane serve --config service.toml --log-format json
    """
    from windvane.service.logs import configure_logging
    from windvane.service.server import serve as run
    from windvane.service.store import StoreError

    configure_logging(log_format, log_level)

    def started(address: str) -> None:
        if as_json:
            print_json({"address": address, "store": str(store)})
        elif log_format != "json":  # the JSON log has the address
            output().print(f"{address}  (store: {store}; Ctrl-C stops)", markup=False, highlight=False, soft_wrap=True)
        sys.stdout.flush()  # a reader of the pipe may wait for the address

    try:
        run(
            store, host=host, port=port, rate=rate, most_bytes=body_limit, drain=drain, log_requests=access_log,
            started=started,
        )  # fmt: skip
    except (ArgumentError, StoreError) as error:
        if log_format == "json":  # every line must be a JSON object
            logging.getLogger("windvane.service").critical("%s", error)
            raise typer.Exit(WRONG_INPUT) from None
        raise InputError(str(error)) from None


def token(
    action: Annotated[str, typer.Argument(help="add, list, remove or open.")],
    name: Annotated[str | None, typer.Argument(help="Name of the token.")] = None,
    store: StorePath = Path("windvane.db"),
    read_only: Annotated[bool, typer.Option("--read-only", help="The token may only read.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add, list or remove access tokens, even while a server runs.

    On loopback, authentication is off until the first token is added. Removing the last token does not turn it off
    again; "open" removes all tokens and turns it off.

    \b
    Examples:
      windvane token add shop
      windvane token add dashboard --read-only
      windvane token remove shop
    """
    from windvane.arguments import check_choice
    from windvane.service.http.access import create_token
    from windvane.service.store import Store, StoreError

    check_choice("action", action, ("add", "list", "remove", "open"))
    if (name is None) != (action in ("list", "open")):
        raise ArgumentError("name", name, f"{'omitted' if name else 'given'} to {action}")
    try:
        opened = Store(store, shared=True, create=action == "add")
    except StoreError as error:
        raise InputError(str(error)) from None
    try:
        if action == "list":
            _list(opened.read_tokens(), store, as_json)
            return
        if action == "open":
            opened.remove_all_tokens()
            if as_json:
                print_json({"open": True})
            return
        assert name is not None  # checked above
        if not name.isprintable() or not name.strip() or len(name) > 200:
            raise ArgumentError("name", name, "a string of 1 to 200 printable characters")
        if action == "add":
            secret = create_token(opened, name, full=not read_only)
            if secret is None:
                hint = "remove that token first, or use another name"
                raise ArgumentError("name", name, "a name that no token has", hint=hint)
            if as_json:
                print_json({"name": name, "token": secret})
            else:
                output().print(secret, markup=False, highlight=False, soft_wrap=True)
                remark("save the token now: only its hash is stored")
        elif not opened.remove_token(name):
            raise ArgumentError("name", name, "the name of a token")
        else:
            if not opened.read_tokens():
                remark("no token is left: all requests are rejected until you add one or run `windvane token open`")
            if as_json:
                print_json({"removed": name})
    except StoreError as error:
        raise InputError(str(error)) from None
    finally:
        opened.close()


def _list(tokens: list[Token], store: Path, as_json: bool) -> None:
    rights = ["full" if token.full else "read" for token in tokens]
    if as_json:
        rows = [{"name": t.name, "rights": r, "created": t.created} for t, r in zip(tokens, rights, strict=True)]
        print_json({"tokens": rows})
        return
    created = [time.strftime("%Y-%m-%d %H:%M", time.localtime(token.created)) for token in tokens]
    lines = [[token.name, right, at] for token, right, at in zip(tokens, rights, created, strict=True)]
    output().print(table(["token", "rights", "created"], lines, f"Tokens of {store}", left=3))


def verify(
    store: StorePath = Path("windvane.db"),
    as_json: AsJson = False,
) -> None:
    """Check the file, the checksum of every event, and compare every recorded outcome with a replay of the log.

    It changes nothing and can run while a server uses the store. The exit code is 1 if it finds a problem.

    \b
    Example:
      windvane verify --store windvane.db
    """
    from windvane.service.store import Store, StoreError
    from windvane.service.verification import verify_store

    try:
        opened = Store(store, shared=True, create=False, read_only=True)
    except StoreError as error:
        raise InputError(str(error)) from None
    bars = StageBars("events")
    try:
        report = verify_store(opened, lambda stream, done, total: bars.show(f"replaying {stream}", done, total))
    except sqlite3.Error as error:
        raise InputError(f"{store}: cannot be read ({error})") from None
    finally:
        bars.end()
        opened.close()
    if as_json:
        print_json(report.to_plain())
    else:
        _print_report(report, store)
    if not report.is_sound:
        raise typer.Exit(FAILED)


def _print_report(report: StoreReport, store: Path) -> None:
    for problem in report.problems:
        output().print(f"{store}: {problem.text}", markup=False, highlight=False, soft_wrap=True)
    lines = []
    for stream in report.streams:
        problems = [problem.text for problem in stream.problems] or ["sound"]
        notes = [f"note: {note.text}" for note in stream.notes]
        lines.append([stream.stream, str(stream.events), "; ".join([*problems, *notes])])
    output().print(table(["stream", "events", "verdict"], lines, str(store), left=1))
