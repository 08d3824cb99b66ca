"""Commands for stores: verify, backup, restore."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windvane.cli import FAILED, InputError
from windvane.cli.console import Answer, ProgressBar, Table, count
from windvane.cli.options import DEFAULT_STORE, Store

if TYPE_CHECKING:
    from windvane.service import store as service_store
    from windvane.service.backups import CopyReport
    from windvane.service.verification import StreamReport


@contextlib.contextmanager
def open_store(where: str, *, create: bool = False, read_only: bool = False) -> Iterator[service_store.Store]:
    """Open a store that a server may be using. Errors of the store, and missing privileges, are errors of the input."""
    from windvane.service.store import DatabaseError, StoreError
    from windvane.service.store import open_store as open_by_address

    try:
        with contextlib.closing(open_by_address(where, shared=True, create=create, read_only=read_only)) as store:
            try:
                yield store
            except DatabaseError as error:
                if error.is_refusal:
                    raise StoreError(store.name, "refused", f"cannot be changed ({error})") from None
                raise
    except StoreError as error:
        raise InputError(str(error)) from None


def verify(store: Store = DEFAULT_STORE) -> Answer:
    """Check the file, the checksum of every event, and compare every recorded outcome with a replay of the log.

    It changes nothing and can run while a server uses the store. The exit code is 1 if it finds a problem.

    Example:
      windvane verify --store windvane.db
    """
    from windvane.service.store import STORE_ERRORS
    from windvane.service.verification import verify_store

    with open_store(store, read_only=True) as opened, ProgressBar("verifying", "events") as bar:
        try:
            report = verify_store(opened, lambda stream, done, total: bar(done, total, f"replaying {stream}"))
        except STORE_ERRORS as error:
            raise InputError(f"{opened.name}: cannot be read ({error})") from None
    rows = [[stream.stream, str(stream.events), _describe_stream(stream)] for stream in report.streams]
    problems = [f"{opened.name}: {problem.text}" for problem in report.problems]
    table = Table(["stream", "events", "verdict"], rows, opened.name)
    return Answer(report.to_plain(), [*problems, table], 0 if report.is_sound else FAILED)


def _describe_stream(report: StreamReport) -> str:
    problems = [problem.text for problem in report.problems] or ["sound"]
    return "; ".join([*problems, *(f"note: {note.text}" for note in report.notes)])


def backup(
    to: Annotated[Path, typer.Option(help="The file to write. It must not exist.", show_default=False)],
    store: Store = DEFAULT_STORE,
) -> Answer:
    """Copy the store to a file, even while a server uses it, and verify the copy.

    The copy is consistent: it holds the streams, events, snapshots and hashes of the tokens as of one commit. The file
    appears only once it is complete, verified and on disk.

    Example:
      windvane backup --store windvane.db --to backup.db
    """
    from windvane.service.backups import back_up

    with _copying() as show:
        report = back_up(
            _check_file(store),
            to,
            lambda stage, done, total: show(done, total, stage),
            before_rename=_ignore_interrupts,
        )
    return Answer(report.to_plain(), [_describe(report)])


def restore(
    backup: Annotated[Path, typer.Argument(help="A backup of a store.", show_default=False)],
    store: Store = DEFAULT_STORE,
    replace: Annotated[
        bool, typer.Option("--replace", help="Move an existing store aside, with all its files.")
    ] = False,
    record_loss: Annotated[
        bool,
        typer.Option("--record-loss", help="Make the next start log that events after the backup were lost."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Restore the backup even if it has problems.")] = False,
) -> Answer:
    """Verify a backup, and install a copy of it as the store. No server may have the store open.

    The backup is not changed. The tokens of the backup become valid again; tokens added after it do not exist.

    Examples:
      windvane restore backup.db --store windvane.db
      windvane restore backup.db --store windvane.db --replace --record-loss
    """
    from windvane.service import backups

    with _copying() as show:
        report = backups.restore(
            backup, _check_file(store), replace=replace, record_loss=record_loss, force=force,
            before_rename=_ignore_interrupts, progress=lambda stage, done, total: show(done, total, stage),
        )  # fmt: skip
    lines = [_describe(report), *(f"problem: {problem.text}" for problem in report.verification.list_problems())]
    if report.replaced is not None:
        lines.append(f"the previous store is now {report.replaced}")
    if report.lost is None:
        unknown = f"{store}.mark is missing or of another store: what was lost after the backup is not known"
        lines.append(unknown + (", so nothing will be recorded" if record_loss else ""))
    what = "the next start records this" if record_loss else "not recorded; see --record-loss"
    for stream, events in (report.lost or {}).items():
        lost = f"{events:,} events were acknowledged after the backup and are not in it"
        lines.append(f"stream {stream}: {lost} ({what})")
    return Answer({**report.to_plain(), "replaced": report.replaced, "lost": report.lost}, lines)


def _check_file(store: str) -> Path:
    """Return the path of a store in a file; a database has tools of its own for backups."""
    from windvane.service.store import StoreError, check_place, is_postgres, name_store

    try:
        check_place(store)
    except StoreError as error:
        raise InputError(str(error)) from None
    if is_postgres(store):
        hint = "back up a database with the tools of PostgreSQL: see docs/howto/backup-restore.md"
        raise InputError(f"{name_store(store)}: --store must be a file; {hint}")
    return Path(store)


@contextlib.contextmanager
def _copying() -> Iterator[ProgressBar]:
    """Show how far a copy is. Errors are errors of the input, unless the copy failed or is not sound."""
    from windvane.service.store import StoreError

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with ProgressBar("copying") as show:
            yield show
    except StoreError as error:
        raise (error if error.code in ("unsound", "not_copied") else InputError(str(error))) from None
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C and SIGTERM until the copy ends: stopped half way, files would be renamed in part."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _describe(report: CopyReport) -> str:
    sizes = f"{report.bytes:,} bytes, {count(len(report.verification.streams), 'stream')}, {report.events:,} events"
    verdict = "sound" if report.verification.is_sound else "with problems"
    return f"{report.path}: {sizes}, {verdict}, {report.seconds:.1f} s"
