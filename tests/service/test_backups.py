"""Backups: whole and verified or not there at all, also beside a server that writes; and what a restore replaces."""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import closing
from pathlib import Path

import pytest

from support.refusals import rejects
from support.server import Local, run_local
from support.stores import Facts, copy_store, edit, open_beside, query, serve_copy, verify
from windvane.service import backups
from windvane.service.backups import back_up, restore
from windvane.service.store import SqliteStore, StoreError


def names(folder: Path) -> set[str]:
    """Return the files in a folder but for locks, which stay."""
    return {path.name for path in folder.iterdir() if path.suffix != ".lock"}


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another machine."""
    folder = tmp_path / "other"
    folder.mkdir()
    return folder


def test_a_backup_is_restored_elsewhere(copy: Path, facts: Facts, tmp_path: Path, other: Path) -> None:
    """All of it, tokens included, and it goes on; the backup is one file that only its owner can read."""
    target, steps = tmp_path / "backup.db", list[tuple[str, int, int]]()
    report = back_up(copy, target, lambda *step: steps.append(step))
    assert (report.path, report.bytes, report.verification.is_sound) == (target, target.stat().st_size, True)
    assert report.events == sum(map(len, facts.logs.values()))
    assert ({"copying", "replaying shop"} <= {step[0] for step in steps}) & all(0 <= s[1] <= s[2] for s in steps)
    assert target.stat().st_mode & 0o777 == 0o600
    assert {name for name in names(tmp_path) if name.startswith("backup")} == {"backup.db"}
    before = target.read_bytes()
    restored = restore(target, other / "a.db")
    assert (restored.lost, restored.replaced, restored.to_plain()["sound"]) == (None, None, True)
    assert target.read_bytes() == before
    assert names(other) == {"a.db"}
    assert (other / "a.db").stat().st_mode & 0o777 == 0o600
    assert serve_copy(other / "a.db", facts) == (True, set())


def test_a_backup_beside_a_server_that_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the store as it was when the backup began, however much is written meanwhile."""
    monkeypatch.setattr(backups, "PAGES", 1)
    with run_local(tmp_path / "a.db") as service:
        service.create("shop")
        decisions = [service.decide()["id"] for _ in range(50)]
        written: list[int] = []

        def write(stage: str, _done: int, _total: int) -> None:
            if stage == "copying" and len(written) < 20:
                service.reward(decisions[len(written)], 1.0)
                written.append(service.engine.streams["shop"].number)

        report = back_up(tmp_path / "a.db", tmp_path / "backup.db", write)
        assert len(written) > 3  # pages were copied between commits
        assert report.events == 50
        assert len(service.events()) == 50 + len(written)
    with open_beside(tmp_path / "backup.db") as copy:
        assert [event.number for event in copy.read_events(1)] == list(range(1, 51))


def test_a_server_is_not_held_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are answered while a backup waits in the middle of its copy."""
    monkeypatch.setattr(backups, "PAGES", 1)
    waiting, go = threading.Event(), threading.Event()

    def wait(*_: object) -> None:
        waiting.set()
        assert go.wait(30)

    with run_local(tmp_path / "a.db") as service:
        service.create("shop")
        thread = threading.Thread(target=back_up, args=(tmp_path / "a.db", tmp_path / "backup.db", wait))
        thread.start()
        assert waiting.wait(30)
        service.reward(service.decide()["id"], 1.0)
        assert not (tmp_path / "backup.db").exists()
        go.set()
        thread.join()
    assert verify(tmp_path / "backup.db").is_sound


def test_two_backups_to_one_target(copy: Path, tmp_path: Path) -> None:
    """The first that is complete is kept as it is; the other is refused and leaves nothing."""
    target, kept = tmp_path / "backup.db", list[bytes]()

    def overtake(*_: object) -> None:
        if not kept:
            kept.append(b"")
            back_up(copy, target)
            kept.append(target.read_bytes())

    with rejects(error=StoreError, code="exists"):
        back_up(copy, target, overtake)
    assert target.read_bytes() == kept[-1]
    assert {name for name in names(tmp_path) if name.startswith("backup")} == {"backup.db"}


# --- refusals and failures -----------------------------------------------------------------------------------------


def test_nothing_is_overwritten(copy: Path, tmp_path: Path, other: Path) -> None:
    (tmp_path / "old.db").write_text("precious")
    (tmp_path / "link.db").symlink_to("nowhere.db")
    for name in ("old.db", "link.db"):
        with rejects(error=StoreError, code="exists"):
            back_up(copy, tmp_path / name)
    with rejects(error=StoreError, code="no_folder"):
        back_up(copy, tmp_path / "nowhere" / "b.db")
    with rejects(error=StoreError, code="no_store"):
        back_up(tmp_path / "nothing.db", tmp_path / "new.db")
    back_up(copy, tmp_path / "backup.db")
    (other / "a.db").write_text("precious")
    with rejects(error=StoreError, code="exists"):
        restore(tmp_path / "backup.db", other / "a.db")
    with rejects(error=StoreError, code="unreadable"):
        restore(tmp_path / "old.db", other / "b.db")
    with rejects(error=StoreError, code="no_folder"):
        restore(tmp_path / "backup.db", tmp_path / "nowhere" / "b.db")
    assert ((tmp_path / "old.db").read_text(), (other / "a.db").read_text()) == ("precious", "precious")
    assert names(other) == {"a.db"}
    assert "new.db" not in names(tmp_path)


def test_a_server_has_the_store(copy: Path, tmp_path: Path) -> None:
    back_up(copy, tmp_path / "backup.db")
    with closing(SqliteStore(copy)), rejects(error=StoreError, code="in_use"):
        restore(tmp_path / "backup.db", copy, replace=True)
    os.link(copy, tmp_path / "same.db")  # no lock file stands beside this name
    with rejects(error=StoreError, code="hard_links"):
        restore(tmp_path / "backup.db", tmp_path / "same.db", replace=True)


def test_a_store_that_is_not_sound(copy: Path, tmp_path: Path, other: Path) -> None:
    """Its backup is not kept; one that was damaged later is restored only if that is asked for."""
    sound = tmp_path / "backup.db"
    back_up(copy, sound)
    for path in (copy, sound):
        edit(path, "UPDATE events SET time = time + 1 WHERE id % 7 = 3")
    with rejects(error=StoreError, code="unsound"):
        back_up(copy, tmp_path / "second.db")
    with rejects(error=StoreError, code="unsound"):
        restore(sound, other / "a.db")
    assert not names(other)
    assert not [name for name in names(tmp_path) if name.startswith("second")]
    report = restore(sound, other / "a.db", force=True)
    assert "replay" in {problem.code for problem in report.verification.list_problems()}
    assert names(other) == {"a.db"}


def test_a_disk_that_is_full(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite reports it, or the flush; nothing is left, and the store that was to be replaced is still there."""
    back_up(copy, tmp_path / "backup.db")
    before, files = copy.read_bytes(), names(tmp_path)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with rejects(error=StoreError, code="not_copied"):
        back_up(copy, tmp_path / "second.db")
    with rejects(error=StoreError, code="not_copied"):
        restore(tmp_path / "backup.db", copy, replace=True)
    assert (copy.read_bytes(), names(tmp_path)) == (before, files)


# --- what a restore replaces -----------------------------------------------------------------------------------------


def decide(path: Path, count: int) -> None:
    service = Local(path)
    if "shop" not in service.engine.streams:
        service.create("shop")
    for _ in range(count):
        service.decide()
    service.stop()


def test_the_old_store_is_moved_aside_whole(tmp_path: Path) -> None:
    """With its log and its marks: it can be put back. The new one knows nothing of events after the backup."""
    path = tmp_path / "a.db"
    decide(path, 2)
    back_up(path, tmp_path / "backup.db")
    crashed = Local(path)
    for _ in range(3):
        crashed.decide()
    kept = {suffix: Path(f"{path}{suffix}").read_bytes() for suffix in ("", "-wal", ".mark")}
    crashed.crash()
    for suffix, content in kept.items():  # as if the process had been killed
        Path(f"{path}{suffix}").write_bytes(content)
    Path(f"{path}.repaired").write_bytes(b"of a repair that was interrupted: the next start would put it in place")
    report = restore(tmp_path / "backup.db", path, replace=True)
    aside = Path(f"{path}.replaced-1")
    assert (report.replaced, report.lost) == (aside, {"shop": 3})
    assert {suffix: Path(f"{aside}{suffix}").read_bytes() for suffix in kept} == kept
    assert names(tmp_path) == {"a.db", "backup.db", *(f"a.db.replaced-1{s}" for s in (*kept, ".repaired"))}
    with run_local(path) as service:
        assert [event["kind"] for event in service.events()] == ["decided", "decided"]
        assert service.decide()["arm"]
    second = restore(tmp_path / "backup.db", path, replace=True)
    assert (second.replaced, second.lost) == (Path(f"{path}.replaced-2"), {"shop": 1})
    Path(f"{aside}.repaired").unlink()
    with run_local(aside) as service:
        assert len(service.events()) == 5


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_loss_is_recorded_if_that_is_asked_for(tmp_path: Path, is_whole: bool) -> None:
    """By the next start, also if nothing but the marks is left of the store."""
    path = tmp_path / "a.db"
    decide(path, 2)
    back_up(path, tmp_path / "backup.db")
    decide(path, 3)
    if not is_whole:
        path.unlink()
    report = restore(tmp_path / "backup.db", path, replace=is_whole, record_loss=True)
    assert report.lost == {"shop": 3}
    with run_local(path) as service:
        last = service.events()[-1]
        assert (last["number"], last["kind"], last["acknowledged"]) == (3, "lost", 5)
    assert verify(path).is_sound


def test_marks_beside_a_backup_tell_what_is_lost(tmp_path: Path) -> None:
    """As when a deleted store is rescued: its files are saved together."""
    path, rescue = tmp_path / "a.db", tmp_path / "rescue"
    rescue.mkdir()
    decide(path, 2)
    back_up(path, rescue / "a.db")
    decide(path, 3)
    path.unlink()
    Path(f"{path}.mark").rename(rescue / "a.db.mark")
    report = restore(rescue / "a.db", path)
    assert (report.lost, report.mark) == ({"shop": 3}, rescue / "a.db.mark")
    assert not Path(f"{path}.mark").exists()
    restore(rescue / "a.db", path, replace=True, record_loss=True)
    assert Path(f"{path}.mark").read_bytes() == (rescue / "a.db.mark").read_bytes()
    with run_local(path) as service:
        assert service.events()[-1]["kind"] == "lost"
    assert verify(path).is_sound


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_store_that_root_restores_belongs_to_the_owner_of_its_folder(tmp_path: Path, other: Path) -> None:
    """Else the service could not open it."""
    decide(tmp_path / "a.db", 2)
    back_up(tmp_path / "a.db", tmp_path / "backup.db")
    shutil.copy(tmp_path / "a.db.mark", tmp_path / "backup.db.mark")
    os.chown(other, 65534, 65534)
    restore(tmp_path / "backup.db", other / "a.db", record_loss=True)
    owners = {file.name: (file.stat().st_uid, file.stat().st_gid) for file in other.iterdir()}
    assert owners == dict.fromkeys(("a.db", "a.db.lock", "a.db.mark"), (65534, 65534))
    back_up(tmp_path / "a.db", other / "backup.db")
    assert (other / "backup.db").stat().st_uid == 0  # a backup holds personal data: it stays with who made it


def test_without_marks_a_loss_is_not_known(tmp_path: Path) -> None:
    """The disk is gone, or there is another store at this place: that is said, instead of "no loss"."""
    path = tmp_path / "a.db"
    decide(path, 2)
    back_up(path, tmp_path / "backup.db")
    assert restore(tmp_path / "backup.db", path, replace=True).lost == {}
    decide(path, 3)
    path.unlink()
    Path(f"{path}.mark").unlink()
    assert restore(tmp_path / "backup.db", path, record_loss=True).lost is None
    decide(tmp_path / "other.db", 1)
    assert restore(tmp_path / "backup.db", tmp_path / "other.db", replace=True).lost is None
    with run_local(path) as service:
        assert [event["kind"] for event in service.events()] == ["decided", "decided"]


def test_a_store_that_is_gone_is_not_begun_anew(tmp_path: Path) -> None:
    """A service that is restarted after its file was deleted would be ready, without streams and without tokens."""
    path = tmp_path / "a.db"
    decide(path, 2)
    back_up(path, tmp_path / "backup.db")
    path.unlink()
    for shared in (False, True):
        with rejects(error=StoreError, where=path, code="gone"):
            SqliteStore(path, shared=shared)
    assert not path.exists()
    restore(tmp_path / "backup.db", path)
    decide(path, 1)
    path.unlink()
    Path(f"{path}.mark").unlink()
    decide(path, 1)


def test_marks_without_a_store_pretend_no_loss(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    decide(path, 2)
    back_up(path, tmp_path / "backup.db")
    decide(path, 3)
    path.unlink()
    assert restore(tmp_path / "backup.db", path).lost == {"shop": 3}  # it is said, and not recorded
    with run_local(path) as service:
        assert len(service.events()) == 2


def test_any_store_can_be_restored(copy: Path, facts: Facts, other: Path) -> None:
    """Also a copy of the files of a store that was not stopped."""
    copied = copy_store(copy, other / "copied.db")
    assert query(copied, "PRAGMA journal_mode") == [("wal",)]
    restore(copied, other / "a.db")
    assert serve_copy(other / "a.db", facts) == (True, set())
