"""The cache of compiled kernels: shared by processes, robust to damaged files, cleaned of what is old."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from windvane.kernels import cache as kernel_cache

KERNEL = """
from windvane.kernels.jit import compiled
@compiled
def inner(x):
    return x + 1
@compiled
def outer(x):
    return 2 * inner(x)
"""
REPORT = "import toy; count = lambda kernel: sum(kernel.stats.cache_misses.values())"
CALL = "print(toy.outer(3), count(toy.outer), count(toy.inner))"
LOCK_FAILURES = ["OSError(37, 'No locks available')", "NotImplementedError('flock')", "filelock.Timeout('lock')"]
# A numba event listener that stops inside the first compilation until the other process is about to call the kernel.
SLOW_COMPILATION = """
import pathlib, time
from numba.core import event
class Pause(event.Listener):
    def on_start(self, _event):
        pathlib.Path("first-compiles").touch()
        while not pathlib.Path("second-calls").exists():
            time.sleep(0.01)
        time.sleep(0.5)  # the time to reach the lock; if it is too short, the test passes all the same
    def on_end(self, _event):
        pass
event.register("numba:compile", Pause())
"""
AFTER_THE_FIRST = """
import pathlib, time
while not pathlib.Path("first-compiles").exists():
    time.sleep(0.01)
pathlib.Path("second-calls").touch()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with the module ``toy``; the cache is its subfolder ``cache``."""
    (tmp_path / "toy.py").write_text(KERNEL)
    return tmp_path


def start(folder: Path, *code: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "WINDVANE_CACHE_DIR": str(folder / "cache"), "WINDVANE_QUIET": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(Path(kernel_cache.__file__).parents[2])])
    command, pipe = [sys.executable, "-c", "\n".join(map(textwrap.dedent, code))], subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    """What the process prints on stdout; it must succeed without a word on stderr."""
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, ""), err
    return out


def call(folder: Path, *code: str) -> str:
    return finish(start(folder, *code, REPORT, CALL))


def cache_files(folder: Path, ending: str) -> list[Path]:
    return sorted((folder / "cache").glob(f"kernels-*/**/toy.outer-*.{ending}"))


def test_a_second_process_waits_instead_of_compiling_too_and_a_third_loads(folder: Path) -> None:
    first = start(folder, REPORT, SLOW_COMPILATION, CALL)
    second = start(folder, REPORT, AFTER_THE_FIRST, CALL)
    assert [finish(first), finish(second), call(folder)] == ["8 1 1\n", "8 0 0\n", "8 0 0\n"]


def test_several_processes_on_an_empty_cache_compile_once_in_all(folder: Path) -> None:
    processes = [start(folder, REPORT, CALL) for _ in range(3)]
    printed = [[int(word) for word in finish(process).split()] for process in processes]
    assert [sum(column) for column in zip(*printed, strict=True)] == [24, 1, 1]


def test_a_process_that_dies_while_compiling_holds_nobody_up(folder: Path) -> None:
    die = "import os, signal; Pause.on_start = lambda *_: os.kill(os.getpid(), signal.SIGKILL)"
    dead = start(folder, REPORT, SLOW_COMPILATION, die, CALL)
    dead.communicate(timeout=120)
    assert dead.returncode == -signal.SIGKILL
    assert call(folder) == "8 1 1\n"


def test_threads_of_one_process_compile_once(folder: Path) -> None:
    code = """
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(4) as pool:
        print(*pool.map(toy.outer, range(4)), count(toy.outer), count(toy.inner))
    """
    assert finish(start(folder, REPORT, code)) == "2 4 6 8 1 1\n"


@pytest.mark.parametrize("failure", LOCK_FAILURES)
def test_without_a_lock_every_process_compiles_for_itself(folder: Path, failure: str) -> None:
    code = f"""
    import filelock
    def fail(*_, **__):
        raise {failure}
    filelock.FileLock.acquire = fail
    """
    assert call(folder, code) == "8 1 1\n"
    assert call(folder) == "8 0 0\n"  # what it compiled was stored


def flip_bits(content: bytes) -> bytes:
    """Flip bits in the middle: of the machine code, in a data file."""
    middle = len(content) // 2
    return bytes(byte ^ (0xFF if middle <= i < middle + 20 else 0) for i, byte in enumerate(content))


def rewrite(change: Callable[[bytes], bytes]) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(change(path.read_bytes()))


def make_unreadable(path: Path) -> None:
    """Put a folder in the file's place: reading it fails, for root too."""
    path.unlink()
    (path / "below").mkdir(parents=True)


Import = Callable[[], ModuleType]


@pytest.fixture
def imported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Import:
    """Import ``toy`` anew, as a new process does; the cache is that of :func:`start`."""
    monkeypatch.setattr(kernel_cache, "CACHE_DIR", folder / "cache" / "kernels-0123456789abcdef")

    def load() -> ModuleType:
        spec = importlib.util.spec_from_file_location("toy", folder / "toy.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def misses(kernel: Any) -> int:
    return sum(kernel.stats.cache_misses.values())


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "truncated": rewrite(lambda content: content[: len(content) // 2]),
    "empty": rewrite(lambda _: b""),
    "bits flipped": rewrite(flip_bits),
    "noise": rewrite(lambda content: bytes((37 * i + 11) % 256 for i in range(len(content)))),
    "a pickle of something else": rewrite(lambda _: b"\x80\x04K\x01."),
    "unreadable": make_unreadable,
    "gone": Path.unlink,
}


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_replaced(folder: Path, imported: Import, damage: Callable[[Path], Any], ending: str) -> None:
    assert imported().outer(3) == 8
    (file,) = cache_files(folder, ending)
    damage(file)
    for compilations in (1, 0):
        toy = imported()
        assert (toy.outer(3), misses(toy.outer), file.is_file()) == (8, compilations, True)


def test_an_index_that_names_the_wrong_code_is_noticed(folder: Path, imported: Import) -> None:
    toy = imported()
    assert (toy.outer(3), toy.outer(1.5)) == (8, 5.0)
    files = cache_files(folder, "nbc")
    first, second = (file.read_bytes() for file in files)
    for file, content in zip(files, (second, first), strict=True):
        file.write_bytes(content)
    toy = imported()
    assert (toy.outer(3), misses(toy.outer)) == (8, 1)


def test_a_cache_that_cannot_be_mended_is_not_used(folder: Path, imported: Import, monkeypatch) -> None:
    assert imported().outer(3) == 8
    (file,) = cache_files(folder, "nbi")
    make_unreadable(file)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    for _ in range(2):
        toy = imported()
        assert (toy.outer(3), misses(toy.outer)) == (8, 1)


def test_a_cache_folder_that_is_removed_meanwhile_does_no_harm(folder: Path) -> None:
    code = f"""
    import shutil
    print(toy.outer(3))
    shutil.rmtree({str(folder / "cache")!r})
    print(toy.outer(1.5))
    """
    assert finish(start(folder, REPORT, code)) == "8\n5.0\n"


NOW, DAY = 2_000_000_000.0, 86400


def make_cache(root: Path, name: str, days_ago: float) -> Path:
    """A cache folder that was last used ``days_ago``."""
    file = root / name / "sub" / "kernel.nbc"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"code")
    os.utime(root / name, (NOW - DAY * days_ago, NOW - DAY * days_ago))
    return root / name


def test_folders_that_were_not_used_for_long_are_removed(tmp_path: Path) -> None:
    old = make_cache(tmp_path, "kernels-" + "0" * 16, 31)
    kept = [
        make_cache(tmp_path, "kernels-" + "1" * 16, 29),
        make_cache(tmp_path, "kernels-" + "3" * 16, 400),  # the current one
        make_cache(tmp_path, "kernels-of-mine", 400),
        make_cache(tmp_path, "something-else", 400),
    ]
    (tmp_path / ("kernels-" + "4" * 16)).symlink_to(kept[-1])
    assert kernel_cache.remove_unused_folders(kept[1], NOW) == [old]
    assert not old.exists()
    assert all((folder / "sub" / "kernel.nbc").exists() for folder in kept)


def test_a_start_renews_its_own_folder_and_removes_old_ones(folder: Path) -> None:
    call(folder)
    (current,) = (folder / "cache").glob("kernels-*")
    os.utime(current, (0, 0))
    old = shutil.copytree(current, current.with_name("kernels-" + "0" * 16))
    for path in (*old.rglob("*"), old):
        os.utime(path, (0, 0))
    assert call(folder) == "8 0 0\n"
    assert not old.exists()
    assert current.stat().st_mtime > 0
