"""The command ``serve``: the decision service, with options from the command line, the environment or a file."""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from windvane.cli import WRONG_INPUT, InputError, simplify
from windvane.cli.console import Answer
from windvane.cli.options import DEFAULT_STORE, PORT_HELP, AsJson, Store
from windvane.errors import ArgumentError

PREFIX = "WINDVANE_"
VARIABLES = {"STORE", "CACHE_DIR", "QUIET", "THREADS", "URL", "TOKEN"}
"""Known variables, without the prefix: of the library and the client; every option of the service adds its own."""
OF_TESTS = ("REQUIRE_", "TEST_")  # beginnings
ADDRESS, CLUSTER, LOGGING = "Address and limits", "Several nodes (PostgreSQL only)", "Logging and traces"


def _option(name: str, help: str, panel: str | None = None, **more: Any) -> Any:
    """Build an option that can also be set by a variable: ``--log-level`` by ``WINDVANE_LOG_LEVEL``."""
    variable = name.upper().replace("-", "_")
    VARIABLES.add(variable)
    return typer.Option(f"--{name}", envvar=PREFIX + variable, help=help, rich_help_panel=panel, **more)


def warn_of_variables(environment: Mapping[str, str]) -> None:
    """Log the variables that look like settings and are none: a misspelt one would have no effect."""
    names = sorted(name.removeprefix(PREFIX) for name in environment if name.startswith(PREFIX))
    for name in names:
        if name not in VARIABLES and not name.startswith(OF_TESTS):
            similar = difflib.get_close_matches(name, VARIABLES, 1)
            hint = f"; did you mean {PREFIX}{similar[0]}?" if similar else ""
            logging.getLogger("windvane.service").warning("the variable %s is unknown%s", PREFIX + name, hint)


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Read the options that are set neither on the command line nor in the environment from the file at ``path``."""
    if path is None:
        return None
    parameters = {option.removeprefix("--"): p for p in context.command.params for option in p.opts}
    allowed = sorted(parameters.keys() - {"config", "help", "json"})
    try:
        settings: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:  # TOML and UTF-8
        raise InputError(f"{path}: is not TOML ({error})") from None
    context.default_map = {}
    for key, value in settings.items():
        if key not in allowed:
            raise InputError(f"{path}: {key}: unknown; allowed are {', '.join(allowed)}")
        parameter = parameters[key]
        is_flag = getattr(parameter, "is_flag", False)
        if not isinstance(value, str | int | float) or isinstance(value, bool) != is_flag:
            raise InputError(f"{path}: {key}: must be {'true or false' if is_flag else 'a string or a number'}")
        try:
            parameter.process_value(context, value)
        except typer.BadParameter as error:
            raise InputError(f"{path}: {key}: {simplify(error.message)}") from None
        context.default_map[parameter.name] = value
    return path


Host = Annotated[str, _option("host", "Address to listen on. Any other than loopback requires a token.", ADDRESS)]
Port = Annotated[int, _option("port", PORT_HELP, ADDRESS, min=0, max=65535)]
_RATE_HELP = "Requests per second per client; each item of a batch counts (0: no limit)."
Rate = Annotated[float, _option("rate", _RATE_HELP, ADDRESS, min=0.0)]
BodyLimit = Annotated[int, _option("body-limit", "Largest request body, in bytes.", ADDRESS, min=1024, max=1 << 30)]
_MAX_STREAMS_HELP = "Largest number of streams, including archived ones."
MaxStreams = Annotated[int, _option("max-streams", _MAX_STREAMS_HELP, ADDRESS, min=1)]
_DRAIN_HELP = "Seconds after SIGTERM during which requests are still accepted, while /readyz answers 503."
Drain = Annotated[float, _option("drain", _DRAIN_HELP, ADDRESS, min=0.0, max=3600.0)]
_NODE_HELP = "Name of this node, unique in the cluster. Default: the name of the machine and the port."
NodeName = Annotated[str | None, _option("node", _NODE_HELP, CLUSTER, show_default=False)]
_URL_HELP = "Address at which other nodes and clients reach this node. Default: the address it listens on."
NodeUrl = Annotated[str | None, _option("node-url", _URL_HELP, CLUSTER, show_default=False)]
_HA_HELP = "Refuse to start unless PostgreSQL also commits to a standby (synchronous_standby_names)."
HighAvailability = Annotated[bool, _option("ha", _HA_HELP, CLUSTER)]
LogFormat = Annotated[Literal["text", "json"], _option("log-format", "Format of the log on standard error.", LOGGING)]
Level = Literal["debug", "info", "warning", "error"]
LogLevel = Annotated[Level, _option("log-level", "Lowest level that is logged.", LOGGING)]
AccessLog = Annotated[bool, _option("access-log", "Log every request.", LOGGING)]
_PROBES_HELP = "Leave successful requests for /healthz, /readyz and /metrics out of the access log."
SkipProbes = Annotated[bool, _option("skip-probes", _PROBES_HELP, LOGGING)]
_PERSONALIZER_HELP = "Answer the Personalizer API v1.0 too, at /personalizer/v1.0, by this stream."
Personalizer = Annotated[str | None, _option("personalizer", _PERSONALIZER_HELP, ADDRESS, show_default=False)]
_TRACING_HELP = "Send OpenTelemetry spans to a collector (otlp), or print them on standard error (console)."
Tracing = Annotated[Literal["otlp", "console"] | None, _option("tracing", _TRACING_HELP, LOGGING, show_default=False)]
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
    max_streams: MaxStreams = 10_000,
    drain: Drain = 0.0,
    personalizer: Personalizer = None,
    log_format: LogFormat = "text",
    log_level: LogLevel = "info",
    access_log: AccessLog = False,
    skip_probes: SkipProbes = False,
    tracing: Tracing = None,
    node: NodeName = None,
    node_url: NodeUrl = None,
    ha: HighAvailability = False,
    as_json: AsJson = False,
) -> None:
    """Run the decision service: HTTP under /v1, a live page at /, API documentation at /docs, all data in one store.

    If the store is a PostgreSQL database, any number of servers can share it. Each of them serves a part of the
    streams, and if it fails, the others take these streams over.

    It prints its address once it listens, and "ready" once its streams are recovered and it answers requests; the
    first start on a machine compiles for about ten seconds. Ctrl-C or SIGTERM stops it, with exit code 0, after the
    requests in progress. The command line takes precedence over the environment, and the environment over the file.

    Examples:
      windvane serve --store windvane.db
      windvane token add shop --store windvane.db
      windvane serve --store windvane.db --host 0.0.0.0
      windvane serve --config service.toml --log-format json
      windvane serve --store postgresql://windvane@db.internal/windvane --host 10.0.0.5 --node a
    """
    from windvane.service.logs import configure_logging
    from windvane.service.server import serve as run
    from windvane.service.store import StoreError, name_store

    configure_logging(log_format, log_level)
    warn_of_variables(os.environ)
    place = name_store(store)

    is_plain = log_format == "text" and not as_json  # otherwise every line is a JSON object; the log has "ready"

    def announce_start(address: str) -> None:
        lines = [f"starting at {address}  (store: {place}; the first start compiles for about ten seconds)"]
        Answer({"address": address, "store": place}, lines if is_plain else []).print(as_json)
        sys.stdout.flush()  # a reader of the pipe may wait for the address

    def announce_ready(address: str) -> None:
        with contextlib.suppress(OSError):  # a reader that has gone must not stop the service
            if is_plain:
                print(f"ready: {address}/  (Ctrl-C stops)", flush=True)

    try:
        run(
            store, host=host, port=port, rate=rate, most_bytes=body_limit, most_streams=max_streams, drain=drain,
            log_requests=access_log, skip_probes=skip_probes, node=node, node_url=node_url, ha=ha, tracing=tracing,
            personalizer=personalizer, started=announce_start, ready=announce_ready,
        )  # fmt: skip
    except (ArgumentError, StoreError) as error:
        if log_format == "json":  # every line must be a JSON object
            logging.getLogger("windvane.service").critical("%s", error)
            raise typer.Exit(WRONG_INPUT) from None
        raise InputError(str(error)) from None
