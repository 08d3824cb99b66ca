"""Commands that copy stores: backup, restore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windvane.cli.console import InputError, StageBars, output, print_json
from windvane.cli.options import AsJson
from windvane.cli.serving import StorePath

if TYPE_CHECKING:
    from windvane.service.backups import CopyReport


def backup(
    to: Annotated[Path, typer.Option(help="The file to write. It must not exist.", show_default=False)],
    store: StorePath = Path("windvane.db"),
    as_json: AsJson = False,
) -> None:
    """Copy the store to a file, even while a server uses it, and verify the copy.

    The copy is consistent: it holds the streams, events, snapshots and hashes of the tokens as of one commit. The file
    appears only once it is complete, verified and on disk.

    \b
    Example:
      windvane backup --store windvane.db --to backup.db
    """
    from windvane.service.backups import back_up
    from windvane.service.store import StoreError

    bars = StageBars("done")
    try:
        report = back_up(store, to, bars.show)
    except StoreError as error:
        raise _translate(error) from None
    finally:
        bars.end()
    if as_json:
        print_json(report.to_plain())
    else:
        _say(_describe(report))


def restore(
    backup: Annotated[Path, typer.Argument(help="A backup of a store.", show_default=False)],
    store: StorePath = Path("windvane.db"),
    replace: Annotated[
        bool, typer.Option("--replace", help="Move an existing store aside, with all its files.")
    ] = False,
    record_loss: Annotated[
        bool,
        typer.Option(
            "--record-loss",
            help="Make the next start record in the log that events after the backup were lost.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Restore the backup even if it has problems.")] = False,
    as_json: AsJson = False,
) -> None:
    """Verify a backup, and install a copy of it as the store. No server may have the store open.

    The backup is not changed. The tokens of the backup become valid again; tokens added after it do not exist.

    \b
    Examples:
      windvane restore backup.db --store windvane.db
      windvane restore backup.db --store windvane.db --replace --record-loss
    """
    from windvane.service import backups
    from windvane.service.store import StoreError

    bars = StageBars("done")
    try:
        report = backups.restore(
            backup, store, replace=replace, record_loss=record_loss, force=force, progress=bars.show
        )
    except StoreError as error:
        raise _translate(error) from None
    finally:
        bars.end()
    if as_json:
        aside = None if report.replaced is None else str(report.replaced)
        print_json({**report.to_plain(), "replaced": aside, "lost": report.lost})
        return
    _say(_describe(report))
    for problem in report.verification.list_problems():
        _say(f"problem: {problem.text}")
    if report.replaced is not None:
        _say(f"the previous store is now {report.replaced}")
    if report.lost is None:
        consequence = ", so nothing will be recorded" if record_loss else ""
        _say(f"{store}.mark is missing or of another store: what was lost after the backup is not known{consequence}")
    for stream, events in (report.lost or {}).items():
        what = "the next start records this" if record_loss else "not recorded; see --record-loss"
        _say(f"stream {stream}: {events:,} events were acknowledged after the backup and are not in it ({what})")


def _translate(error: Exception) -> Exception:
    """Return the error of the command: wrong input, unless the copy failed or is not sound."""
    return error if getattr(error, "code", "") in ("unsound", "not_copied") else InputError(str(error))


def _describe(report: CopyReport) -> str:
    streams = len(report.verification.streams)
    counts = f"{report.bytes:,} bytes, {streams:,} stream{'s' * (streams != 1)}, {report.events:,} events"
    verdict = "sound" if report.verification.is_sound else "with problems"
    return f"{report.path}: {counts}, {verdict}, {report.seconds:.1f} s"


def _say(text: str) -> None:
    output().print(text, markup=False, highlight=False, soft_wrap=True)
