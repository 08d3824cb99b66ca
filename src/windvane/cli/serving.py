"""The command ``serve``: the decision service."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from windvane.cli import WRONG_INPUT, InputError
from windvane.cli.configuration import read_config
from windvane.cli.console import print_json, say
from windvane.cli.options import DEFAULT_STORE, PORT_HELP, AsJson, Store
from windvane.errors import ArgumentError

ADDRESS, LOGGING = "Address and limits", "Logging"


def _option(name: str, help: str, panel: str | None = None, **more: Any) -> Any:
    """Return an option that can also be set by a variable: ``--log-level`` by ``WINDVANE_LOG_LEVEL``."""
    variable = f"WINDVANE_{name.upper().replace('-', '_')}"
    return typer.Option(f"--{name}", envvar=variable, help=help, rich_help_panel=panel, **more)


Host = Annotated[str, _option("host", "Address to listen on; one other than loopback needs a token.", ADDRESS)]
Port = Annotated[int, _option("port", PORT_HELP, ADDRESS, min=0, max=65535)]
_RATE_HELP = "Requests per second per client; each item of a batch counts (0: no limit)."
Rate = Annotated[float, _option("rate", _RATE_HELP, ADDRESS, min=0.0)]
BodyLimit = Annotated[int, _option("body-limit", "Largest request body, in bytes.", ADDRESS, min=1024, max=1 << 30)]
_DRAIN_HELP = "Seconds after SIGTERM in which requests are still accepted, while /readyz answers 503."
Drain = Annotated[float, _option("drain", _DRAIN_HELP, ADDRESS, min=0.0, max=3600.0)]
LogFormat = Annotated[Literal["text", "json"], _option("log-format", "Format of the log on standard error.", LOGGING)]
Level = Literal["debug", "info", "warning", "error"]
LogLevel = Annotated[Level, _option("log-level", "Lowest level that is logged.", LOGGING)]
AccessLog = Annotated[bool, _option("access-log", "Log every request.", LOGGING)]
Config = Annotated[
    Path | None, _option("config", "A TOML file with these options.", callback=read_config, is_eager=True)
]


def serve(
    store: Store = DEFAULT_STORE,
    config: Config = None,  # noqa: ARG001 - its callback takes the other options from it
    host: Host = "127.0.0.1",
    port: Port = 8000,
    rate: Rate = 0.0,
    body_limit: BodyLimit = 4 << 20,
    drain: Drain = 0.0,
    log_format: LogFormat = "text",
    log_level: LogLevel = "info",
    access_log: AccessLog = False,
    as_json: AsJson = False,
) -> None:
    """Run the decision service: HTTP under /v1, a live page at /, API documentation at /docs, all data in one file.

    It prints its address once it listens, and logs "ready" once its streams are recovered and it answers requests.
    Ctrl-C or SIGTERM stops it, with exit code 0, after the requests in progress. The command line takes precedence over
    the environment, and the environment over the file.

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

    def announce(address: str) -> None:
        if as_json:
            print_json({"address": address, "store": str(store)})
        elif log_format != "json":  # the JSON log has the address
            say(f"{address}  (store: {store}; Ctrl-C stops)")
        sys.stdout.flush()  # a reader of the pipe may wait for the address

    try:
        run(
            store, host=host, port=port, rate=rate, most_bytes=body_limit, drain=drain, log_requests=access_log,
            started=announce,
        )  # fmt: skip
    except (ArgumentError, StoreError) as error:
        if log_format == "json":  # every line must be a JSON object
            logging.getLogger("windvane.service").critical("%s", error)
            raise typer.Exit(WRONG_INPUT) from None
        raise InputError(str(error)) from None
