"""The cache of compiled kernels.

Notes
-----
**Where.** The cache folder is ``kernels-<hash>`` in ``$WINDVANE_CACHE_DIR``, ``$XDG_CACHE_HOME/windvane`` or
``~/.cache/windvane``, the first that is set. The hash covers all kernel sources and the versions of Python, NumPy and
numba: numba's own cache does not notice edits in other files that a function calls. If the folder cannot be
written, nothing is cached.

**Several processes.** A kernel that is not in the cache is compiled under a file lock of its own. A second process
waits for the first one and then loads the result. A process that cannot get the lock, or has waited for
:data:`LOCK_SECONDS`, compiles the kernel itself.

**Damaged and old files.** Every cached kernel has a checksum; a damaged file is removed and compiled again. Each start
renews the modification time of its cache folder and removes sibling folders not used for :data:`UNUSED_DAYS` days.
Processes that run for longer are not affected: their code is in memory.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import pickle
import platform
import re
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import filelock
import llvmlite.binding
import numba
import numpy as np
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature

_config: Any = numba.config

F = TypeVar("F", bound=Callable[..., Any])

LOCK_SECONDS = 300.0  # several times the longest compilation of one kernel on a slow machine
LOCK_POLL_SECONDS = 0.05  # short compared with a compilation, which takes from 0.1 s to 10 s
UNUSED_DAYS = 30.0


def _source_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    versions = (platform.python_version(), np.__version__, numba.__version__, platform.machine())
    digest.update("".join(versions).encode())
    return digest.hexdigest()[:16]


def _default_root() -> Path:
    if configured := os.environ.get("WINDVANE_CACHE_DIR"):
        return Path(configured)
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "windvane"
    try:
        return Path.home() / ".cache" / "windvane"
    except RuntimeError:  # no home folder at all: a container user without a passwd entry
        return Path(__file__).parent / "__pycache__"


def _write_error(folder: Path) -> str | None:
    """Create ``folder``. Return why no file can be written in it, or None if one can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or type(error).__name__


def _announce() -> None:
    """Print one line on stderr if kernels will be compiled."""
    if CACHE_ERROR is not None:
        print(
            f"windvane: compiling kernels, as at every start: {CACHE_DIR} cannot be written ({CACHE_ERROR}), so "
            "compiled code is not kept; set WINDVANE_CACHE_DIR to a writable folder",
            file=sys.stderr,
        )
    elif not any(CACHE_DIR.glob("**/*.nbi")):
        print(f"windvane: compiling kernels for this machine, once (cached in {CACHE_DIR})", file=sys.stderr)


def remove_unused_folders(current: Path, now: float) -> list[Path]:
    """Remove and return the sibling folders of ``current`` not used for :data:`UNUSED_DAYS` days before ``now``."""
    removed = []
    for folder in current.parent.glob("kernels-*"):
        is_cache = re.fullmatch(r"kernels-[0-9a-f]{16}", folder.name) and folder.is_dir() and not folder.is_symlink()
        with contextlib.suppress(OSError):  # another process may be removing it too
            if is_cache and folder != current and folder.stat().st_mtime <= now - UNUSED_DAYS * 86400:
                shutil.rmtree(folder, ignore_errors=True)
                removed.append(folder)
    return removed


def _renew(folder: Path) -> None:
    """Mark ``folder`` as used now."""
    with contextlib.suppress(OSError):  # it belongs to another user, or is gone
        os.utime(folder)


CACHE_DIR = _default_root().absolute() / f"kernels-{_source_hash()}"
CACHE_ERROR = _write_error(CACHE_DIR)  # None if compiled code is cached
if not os.environ.get("WINDVANE_QUIET"):
    _announce()
if CACHE_ERROR is None:
    _renew(CACHE_DIR)
    remove_unused_folders(CACHE_DIR, time.time())


@contextlib.contextmanager
def _hold_lock(lock: filelock.BaseFileLock) -> Iterator[None]:
    """Hold the lock of a kernel, if it can be acquired. Re-entrant within a thread."""
    with contextlib.suppress(OSError, RuntimeError), warnings.catch_warnings():  # timeout, no folder, or no file locks
        warnings.simplefilter("ignore")  # about a file system without locks
        lock.acquire()
    _renew(CACHE_DIR)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            lock.release()


class _ChecksummedCode(CompileResultCacheImpl):
    """Compiled code as it is stored: a checksum and a pickle.

    Without the checksum, damaged machine code could crash the process.
    """

    def reduce(self, cres: Any) -> tuple[bytes, bytes]:
        payload: bytes = dumps(super().reduce(cres))
        return hashlib.sha256(payload).digest(), payload

    def rebuild(self, target_context: Any, stored: tuple[bytes, bytes]) -> Any:
        digest, payload = stored
        if hashlib.sha256(payload).digest() != digest:
            raise ValueError("the checksum does not match")
        return super().rebuild(target_context, pickle.loads(payload))


class KernelCache(FunctionCache):
    """Numba's file cache of one kernel, in which damaged files count as missing."""

    _impl_class = _ChecksummedCode

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._preloaded: dict[Any, Any] = {}

    @property
    def name(self) -> str:
        """The name of the kernel's files, without their endings."""
        return str(self._impl.filename_base)

    def preload(self, signature: Any, target_context: Any) -> bool:
        """Load the code for ``signature`` for the next :meth:`load_overload`. Return whether it exists."""
        code = self._read(signature, target_context)
        if code is not None:
            self._preloaded[signature] = code
        return code is not None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code for ``sig``, or None."""
        code = self._preloaded.pop(sig, None)
        return self._read(sig, target_context) if code is None else code

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store the code for ``sig`` if possible."""
        try:
            super().save_overload(sig, data)
        except Exception:  # a damaged index can raise anything, as when reading
            self._discard()
            with contextlib.suppress(Exception):  # for example a full disk; the code in memory is still usable
                super().save_overload(sig, data)

    def _read(self, signature: Any, target_context: Any) -> Any:
        try:
            code = super().load_overload(signature, target_context)
            if code is None or tuple(code.signature.args) == tuple(normalize_signature(signature)[0]):
                return code
        except Exception:  # unpickling a damaged file can raise anything
            pass
        self._discard()
        return None

    def _discard(self) -> None:
        """Remove the files of this kernel."""
        for path in Path(self.cache_path).glob(f"{glob.escape(self.name)}.*"):
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _compile_once(dispatcher: Any, cache: KernelCache) -> None:
    """Make ``dispatcher`` compile, under the lock, only what is neither in memory nor in ``cache``."""
    load_or_compile, path = dispatcher.compile, CACHE_DIR / f"{cache.name}.lock"
    lock = filelock.FileLock(path, timeout=LOCK_SECONDS, poll_interval=LOCK_POLL_SECONDS)

    def load_or_compile_locked(signature: Any) -> Any:
        # Numba's lock is always acquired first. Otherwise two threads could deadlock.
        with global_compiler_lock:
            is_known = tuple(normalize_signature(signature)[0]) in dispatcher.overloads
            if is_known or cache.preload(signature, dispatcher.targetctx):
                return load_or_compile(signature)
            with _hold_lock(lock):  # another process may have stored the code in the meantime; numba checks again
                return load_or_compile(signature)

    dispatcher.compile = load_or_compile_locked
    dispatcher._cache = cache  # numba has no public way to set it


def cached(dispatcher: F, function: Callable[..., Any]) -> F:
    """Make a kernel load its code from the cache folder, and store it there."""
    if CACHE_ERROR is None:
        previous = _config.CACHE_DIR
        _config.CACHE_DIR = str(CACHE_DIR)  # read once, while the cache is created
        try:
            cache = KernelCache(function)
        finally:
            _config.CACHE_DIR = previous
        _compile_once(dispatcher, cache)
    return dispatcher


def host_processor() -> str:
    """Return the processor that code is compiled for. On another processor the last bit of a result can differ."""
    return f"{platform.machine()} {llvmlite.binding.get_host_cpu_name()}"
