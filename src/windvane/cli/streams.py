"""The command ``streams`` and its subcommands: list, configure, compact, archive, unarchive, delete, copy, move."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from windvane.cli import FAILED, InputError
from windvane.cli.commands import Group
from windvane.cli.console import Answer, Table
from windvane.cli.options import ChosenStore, EarlyConfig, EarlyStore
from windvane.cli.stores import blame_input, open_store
from windvane.cli.stream_changes import Changes, change, describe
from windvane.cli.stream_copies import copy, move
from windvane.errors import WindvaneError
from windvane.records import to_plain

if TYPE_CHECKING:
    from windvane import Client
    from windvane.records import StreamInfo
    from windvane.service.engine import Engine
    from windvane.service_records import Compaction

T = TypeVar("T")

WRONG_INPUT_CODES = ("unknown-stream", "no-retention", "archived", "invalid")  # codes of problems caused by the input
TOKEN_HINTS = {
    "no-token": "the service needs a token: set the variable WINDVANE_TOKEN",
    "wrong-token": "the service does not know the token in the variable WINDVANE_TOKEN",
    "read-only-token": "the token in the variable WINDVANE_TOKEN is read-only",
}
LISTED = ("name", "title", "created", "archived", "events", "retention", "removed")
HELP = """List, configure, compact, archive, delete, copy and move streams.

With --url, a running service does the work; the token comes from the variable WINDVANE_TOKEN. Without --url, the
command opens the store itself, and fails if a server has it open. Only "list" also works beside a server. Streams in
a PostgreSQL database are changed with --url, through any node.

Examples:
  windvane streams list --store windvane.db
  windvane streams compact --store windvane.db
  windvane streams delete homepage --url http://127.0.0.1:8000
  windvane streams move windvane.db postgresql://windvane@db.internal/windvane
"""

Name = Annotated[str, typer.Argument(help="The name of the stream.", show_default=False)]
OptionalName = Annotated[
    str | None, typer.Argument(help="The name of the stream. Default: all with a retention.", show_default=False)
]
_URL_HELP = "Address of a running service that does the work, instead of --store."


def _refuse_both(context: typer.Context, url: str | None) -> str | None:
    """Raise if --url and --store or --config were given: it would be unclear which of the two to change."""
    for other in ("store", "config"):
        source = context.get_parameter_source(other)
        if url is not None and source is not None and source.name == "COMMANDLINE":
            raise InputError(f"--url and --{other} must not be given together: a service has its own store")
    return url


@dataclass(frozen=True)
class Place(ChosenStore):
    """Where the streams are: in a store, or at the address of a service."""

    store: EarlyStore = None
    config: EarlyConfig = None
    url: Annotated[str | None, typer.Option("--url", help=_URL_HELP, show_default=False, callback=_refuse_both)] = None

    def ask(self, call: Callable[[Client], T], work: Callable[[Engine], Awaitable[T]]) -> T:
        """Run ``call`` on a service, or ``work`` on the store, and return the result."""
        from windvane import Client
        from windvane.service.offline import run_offline
        from windvane.service.store import StoreError, is_postgres

        with _translate_errors():
            if self.url is not None:
                with Client(self.url) as client:
                    return call(client)
            store, _ = self.find()
            try:
                return run_offline(store, work)
            except StoreError as error:
                if error.code == "in_use" and not is_postgres(store):
                    raise InputError(f"{error}; or pass the address of the server as --url") from None
                raise blame_input(error) from None


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    """Convert problems caused by the input to :class:`InputError`."""
    from windvane.client import ClientError
    from windvane.service.problems import Problem

    try:
        yield
    except (ClientError, Problem) as error:
        if error.code in WRONG_INPUT_CODES:
            raise InputError(str(error)) from None
        if hint := TOKEN_HINTS.get(error.code):
            raise WindvaneError(hint) from None
        raise


def list_streams(place: Place) -> Answer:
    """List the streams with their state, their retention, and the number of stored and of removed events.

    This works while a server uses the store. A stream that cannot be recovered is listed with the reason. With --json,
    "events" is the number of the last event, which counts removed ones.

    Examples:
      windvane streams list --store windvane.db
      windvane streams list --url http://127.0.0.1:8000 --json
    """
    from windvane import Client

    where = place.url
    if place.url is None:
        where, streams, unavailable = _read_streams(place.find()[0])
    else:
        with _translate_errors(), Client(place.url) as client:
            streams = [{name: getattr(stream, name) for name in LISTED} for stream in client.streams()]
            unavailable = {stream.name: stream.reason for stream in client.unrecovered()}
    rows = []
    for stream in streams:
        removed = 0 if stream["removed"] is None else stream["removed"].number
        state = "in service" if stream["archived"] is None else "archived"
        left = stream["events"] - removed
        rows.append([stream["name"], state, stream["retention"] or "forever", f"{left:,}", f"{removed:,}"])
    rows += [[name, f"not recovered: {reason}", "", "", ""] for name, reason in unavailable.items()]
    columns = ["stream", "state", "retention", "stored", "removed"]
    document = {"streams": to_plain(streams), "unavailable": [{"name": n, "reason": r} for n, r in unavailable.items()]}
    return Answer(document, [Table(columns, rows, f"Streams of {where}", left=3)])


def _read_streams(store: str) -> tuple[str, list[dict[str, Any]], dict[str, str]]:
    """Return the name of a store, its streams, and the reasons why others cannot be recovered."""
    from windvane.service.recovery import rebuild_stream
    from windvane.service.store import STORE_ERRORS
    from windvane.service.stream_state import ReplayError

    streams, unavailable = list[dict[str, Any]](), dict[str, str]()
    with open_store(store, read_only=True) as opened:
        try:
            for row in sorted(opened.read_streams(), key=lambda row: str(row.name)):
                try:
                    with opened.read_transaction():  # a server may add events
                        streams.append(rebuild_stream(row, opened).describe())
                except ReplayError as error:
                    unavailable[str(row.name)] = str(error)
        except STORE_ERRORS as error:
            raise InputError(f"{opened.name}: cannot be read ({error})") from None
    return opened.name, streams, unavailable


def compact(place: Place, name: OptionalName = None) -> Answer:
    """Remove the events of a stream that are older than its retention, or of all streams that have a retention.

    What was learned from the events is kept. A running service removes them automatically, at most an hour after the
    retention has passed; this command removes them now.

    Examples:
      windvane streams compact --store windvane.db
      windvane streams compact homepage --url http://127.0.0.1:8000
    """

    def call(client: Client) -> list[Compaction]:
        names = [stream.name for stream in client.streams() if stream.retention is not None] if name is None else [name]
        return [client.compact(each) for each in names]

    async def work(engine: Engine) -> list[Compaction]:
        streams = [stream for stream in engine.streams.values() if stream.retention is not None]
        streams = streams if name is None else [engine.stream(name)]
        return [await engine.compactions.compact(stream) for stream in streams]

    done = place.ask(call, work)
    rows = [[each.stream, f"{each.removed:,}", f"{each.left:,}"] for each in done]
    return Answer({"compactions": done}, [Table(["stream", "removed", "left"], rows)])


def configure(name: Name, changes: Changes, place: Place) -> Answer:
    """Change settings of a stream while it runs. Those that are not named stay as they are.

    These are the settings that PATCH /v1/streams/NAME can change. Others take a refit, or a new stream.

    Examples:
      windvane streams configure homepage --retention 30d --url http://127.0.0.1:8000
      windvane streams configure homepage --reward-timeout 1h --default-reward 0 --store windvane.db
    """
    wanted = changes.read()
    info = place.ask(lambda client: client.configure(name, **wanted), lambda engine: change(engine, name, wanted))
    settings = describe(info, wanted)
    lines = [[setting, json.dumps(value)] for setting, value in settings.items()]
    return Answer({"name": name, "settings": settings}, [Table(["setting", "value"], lines, f"Stream {name}", left=2)])


def archive(name: Name, place: Place) -> Answer:
    """Archive a stream: it can still be read, but no longer decides or learns.

    Example:
      windvane streams archive homepage --store windvane.db
    """
    return _change(place, name, "archive")


def unarchive(name: Name, place: Place) -> Answer:
    """Let an archived stream decide and learn again. Decisions whose timeouts have passed are closed.

    Example:
      windvane streams unarchive homepage --store windvane.db
    """
    return _change(place, name, "unarchive")


def _change(place: Place, name: str, verb: str) -> Answer:
    from windvane.agent.times import read_clock

    def call(client: Client) -> datetime | None:
        info: StreamInfo = getattr(client, verb)(name)
        return info.archived

    async def work(engine: Engine) -> datetime | None:
        stream = engine.stream(name)
        await engine.operations.carry_out(stream, lambda: getattr(stream, verb)(read_clock()))
        archived: datetime | None = stream.info().archived
        return archived

    archived = to_plain(place.ask(call, work))
    return Answer(
        {"name": name, "archived": archived}, [f"{name}: {f'archived {archived}' if archived else 'in service'}"]
    )


def delete(
    name: Name,
    place: Place,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> Answer:
    """Delete a stream with all of its data: its log, its model and its settings. This cannot be undone.

    The command asks for confirmation, unless --yes is given. Backups still contain the stream.

    Examples:
      windvane streams delete homepage --store windvane.db
      windvane streams delete homepage --url http://127.0.0.1:8000 --yes
    """
    if not yes:
        if not sys.stdin.isatty():
            raise InputError("--yes must be given without a terminal: deleting a stream cannot be undone")
        if not typer.confirm(f"Delete the stream {name!r} with all of its data?", err=True):
            return Answer({"deleted": None}, ["nothing was deleted"], FAILED)
    place.ask(lambda client: client.delete_stream(name), lambda engine: engine.registry.remove(name))
    return Answer({"deleted": name}, [f"{name}: deleted"])


streams = Group(
    HELP,
    {
        "list": list_streams, "configure": configure, "compact": compact, "archive": archive, "unarchive": unarchive,
        "delete": delete, "copy": copy, "move": move,
    },
)  # fmt: skip
