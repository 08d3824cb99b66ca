"""Commands for stores: verify, backup, restore."""

from __future__ import annotations

import contextlib
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windvane.cli import FAILED, InputError
from windvane.cli.console import Answer, ProgressBar, Table, count, warn
from windvane.cli.options import ChosenFile, ChosenStore

if TYPE_CHECKING:
    from windvane.service import store as service_store
    from windvane.service.backups import CopyReport
    from windvane.service.verification import StreamReport


@contextlib.contextmanager
def open_store(where: str, *, create: bool = False, read_only: bool = False) -> Iterator[service_store.Store]:
    """Open a store that a server may be using. Errors of the store, and missing privileges, are errors of the input."""
    from windvane.service.store import DatabaseError, StoreError, is_postgres
    from windvane.service.store import open_store as open_by_address

    is_new = create and not is_postgres(where) and not Path(where).exists()
    try:
        with contextlib.closing(open_by_address(where, shared=True, create=create, read_only=read_only)) as store:
            if is_new:
                warn(f"{store.name}: a new store was created")
            try:
                yield store
            except DatabaseError as error:
                if error.is_refusal:
                    raise StoreError(store.name, "refused", f"cannot be changed ({error})") from None
                raise
    except StoreError as error:
        raise blame_input(error) from None


def blame_input(error: service_store.StoreError) -> InputError:
    """Return the error of a store as one of the input."""
    hint = "; name the store with --store, the variable WINDVANE_STORE, or --config"
    return InputError(f"{error}{hint if error.code == 'no_store' else ''}")


def verify(store: ChosenStore) -> Answer:
    """Check the file, the checksum of every event, and compare every recorded outcome with a replay of the log.

    It changes nothing and can run while a server uses the store. The exit code is 1 if it finds a problem.

    Example:
      windvane verify --store windvane.db
    """
    from windvane.service.store import STORE_ERRORS
    from windvane.service.verification import verify_store

    with open_store(store.place, read_only=True) as opened, ProgressBar("verifying", "events") as bar:
        try:
            report = verify_store(opened, lambda stream, done, total: bar(done, total, f"replaying {stream}"))
        except STORE_ERRORS as error:
            raise InputError(f"{opened.name}: cannot be read ({error})") from None
    rows = [[stream.stream, str(stream.events), _describe_stream(stream)] for stream in report.streams]
    problems = [f"{opened.name}: {problem.text}" for problem in report.problems]
    table = Table(["stream", "events", "verdict"], rows, opened.name, numbers=[1])
    return Answer(report.to_plain(), [*problems, table], 0 if report.is_sound else FAILED)


def _describe_stream(report: StreamReport) -> str:
    problems = [problem.text for problem in report.problems] or ["sound"]
    return "; ".join([*problems, *(f"note: {note.text}" for note in report.notes)])


def backup(
    to: Annotated[Path, typer.Option(help="The file to write. It must not exist.", show_default=False)],
    store: ChosenFile,
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
            _check_exists(_check_file(store.place)),
            to,
            lambda stage, done, total: show(done, total, stage),
            before_rename=_ignore_interrupts,
        )
    return Answer(report.to_plain(), [_describe(report)])


def restore(
    backup: Annotated[Path, typer.Argument(help="A backup of a store.", show_default=False)],
    store: ChosenFile,
    replace: Annotated[
        bool, typer.Option("--replace", help="Move an existing store aside, with all its files.")
    ] = False,
    record_loss: Annotated[
        bool,
        typer.Option(
            "--record-loss", help="After a disaster: make the next start log that events after the backup were lost."
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Restore the backup even if it has problems.")] = False,
) -> Answer:
    """Verify a backup, and install a copy of it as the store. No server may have the store open.

    The backup is not changed. The tokens of the backup become valid again; tokens added after it do not exist. If root
    restores it, the store gets the owner of its folder.

    What was acknowledged after the backup is known if the .mark of the store lies beside the store or the backup.

    Examples:
      windvane restore backup.db --store windvane.db
      windvane restore backup.db --store windvane.db --replace --record-loss
    """
    from windvane.service import backups

    if not backup.exists():
        raise InputError(f"{backup}: the backup does not exist")
    with _copying() as show:
        report = backups.restore(
            backup, _check_file(store.place), replace=replace, record_loss=record_loss, force=force,
            before_rename=_ignore_interrupts, progress=lambda stage, done, total: show(done, total, stage),
        )  # fmt: skip
    lines = [_describe(report), *(f"problem: {problem.text}" for problem in report.verification.list_problems())]
    if report.replaced is not None:
        lines.append(f"the previous store is now {report.replaced}")
    lines += _describe_loss(report, backup, record_loss=record_loss)
    document = {**report.to_plain(), "replaced": report.replaced, "mark": report.mark, "lost": report.lost}
    return Answer(document, lines)


def _describe_loss(report: CopyReport, backup: Path, *, record_loss: bool) -> Iterator[str]:
    """Yield what was lost after a backup, and how it is recorded."""
    from windvane.service.store.sqlite.marks import marks_path

    mark = marks_path(report.path)
    if report.lost is None:
        unknown = f"neither {mark} nor {marks_path(backup)} is of this store: what was lost is not known"
        yield unknown + (", so nothing will be recorded" if record_loss else "")
        return
    if not report.lost and report.mark is not None:
        yield f"no acknowledged event is missing, according to {report.mark}"
    for stream, events in report.lost.items():
        were = "event was" if events == 1 else "events were"
        yield f"stream {stream}: {events:,} {were} acknowledged after the backup, and missing in it"
    if report.lost and record_loss:
        yield "the next start records this in the log"
    elif report.lost:
        old, new, store = (shlex.quote(str(path)) for path in (report.mark, mark, report.path))
        copy = f"cp {old} {new} && chown --reference={store} {new}"
        yield f"this is not recorded in the log; to record it, run this before the next start: {copy}"


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


def _check_exists(path: Path) -> Path:
    from windvane.service.store import StoreError

    if not path.exists():
        raise blame_input(StoreError(path.resolve(), "no_store", "the store does not exist"))
    return path


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
