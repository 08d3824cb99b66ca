"""The commands ``streams copy`` and ``streams move``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from windvane.cli import InputError
from windvane.cli.console import Answer, ProgressBar, Table, count, remark
from windvane.cli.options import hide_password

if TYPE_CHECKING:
    from windvane.service.copying import CopyResult

_PLACE = "an SQLite file, or postgresql://user@host/database."
Source = Annotated[
    str, typer.Argument(metavar="SRC", help=f"The store to read: {_PLACE}", show_default=False, callback=hide_password)
]
Target = Annotated[
    str,
    typer.Argument(
        metavar="DST",
        help=f"The store to write to, which is created if it does not exist: {_PLACE}",
        show_default=False,
        callback=hide_password,
    ),
]
Names = Annotated[
    list[str] | None, typer.Argument(metavar="NAME", help="The streams; default: all.", show_default=False)
]
Tokens = Annotated[
    bool | None,
    typer.Option(
        "--tokens/--no-tokens",
        help="Whether to copy the access tokens. Default: only if all streams are copied.",
        show_default=False,
    ),
]
FAILURES = ("unsound", "not_copied")  # codes of errors that the input did not cause


def copy(source: Source, target: Target, names: Names = None, tokens: Tokens = None) -> Answer:
    """Copy streams with all of their data to another store, and verify the copies. No server may use either store.

    A copy is identical byte for byte, even from a file to PostgreSQL and back. If the target has another stream with
    its id, the copy gets a new id, and its checksums are computed again. Each stream is copied completely or not at
    all, and appears in the target once it is verified. Existing streams of the target are never replaced. If the
    command is interrupted, repeat it: streams that were already copied are compared instead of copied again. The source
    is not changed, and a role that may only read its tables is enough. A store that would have to be migrated or
    repaired first is refused.

    Examples:
      windvane streams copy windvane.db postgresql://windvane@db.internal/windvane
      windvane streams copy postgresql://windvane@db.internal/windvane homepage.db homepage
    """
    return _run(source, target, names, tokens, move=False)


def move(source: Source, target: Target, names: Names = None, tokens: Tokens = None) -> Answer:
    """Copy streams as "streams copy" does, and remove each from the source once its copy is verified and on disk.

    If the command is interrupted, both stores may have a stream: repeat it to finish. Tokens stay in the source.

    Examples:
      windvane streams move windvane.db postgresql://windvane@db.internal/windvane
      windvane streams move windvane.db archive.db spring-sale
    """
    return _run(source, target, names, tokens, move=True)


def _run(source: str, target: str, names: list[str] | None, tokens: bool | None, *, move: bool) -> Answer:
    from windvane.service.copying import copy_streams
    from windvane.service.store import StoreError

    try:
        with ProgressBar("copying", "events") as bar:
            result = copy_streams(
                source,
                target,
                names or (),
                move=move,
                tokens=tokens,
                progress=lambda step, done, total: bar(done, total, step),
            )
    except StoreError as error:
        raise (error if error.code in FAILURES else InputError(str(error))) from None
    return Answer(result.to_plain(), _describe(result))


def _describe(result: CopyResult) -> list[str | Table]:
    for name in result.other_tokens:
        remark(f"the token {name!r} was not copied: the target has a different token with this name")
    verb = "moved" if result.has_moved else "copied"
    rows = []
    for stream in result.streams:
        done = verb if stream.is_new else "already in the target" + (", removed from the source" * result.has_moved)
        rows.append([stream.stream, done, "kept" if stream.keeps_id else "new", f"{stream.events:,}"])
    tokens = f", {count(len(result.tokens), 'token')}" if result.tokens else ""
    total = f"{count(len(rows), 'stream')}{tokens} from {result.source} to {result.target}, verified"
    return [Table(["stream", "result", "id", "events"], rows, left=3), f"{total}, {result.seconds:.1f} s"]
