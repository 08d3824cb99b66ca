"""How kernels are compiled and where the compiled code is kept.

Numba's own file cache notices an edit of the file a function lives in, but not of the files it calls into, so a stale
binary can survive an edit. Here the cache folder is named by a hash over *all* kernel sources and the versions of
Python, NumPy and numba: any change starts an empty folder.

The folder is ``$WINDVANE_CACHE_DIR``, or ``$XDG_CACHE_HOME/windvane``, or ``~/.cache/windvane``. If it cannot be
written, nothing is cached: numba would fall back to ``__pycache__``, which has the stale binaries described above, or
refuse to compile at all.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding
import numba
import numpy as np

_njit: Any = numba.njit  # its type stubs do not know every option
_config: Any = numba.config

F = TypeVar("F", bound=Callable[..., Any])

# Sums may be re-ordered so that they vectorise; NaN and infinity keep their meaning (inputs are validated in Python,
# but a diverging line search must still see its infinities).
REORDER_SUMS = {"reassoc", "contract", "nsz"}
FUSE_ONLY = {"contract"}


def _source_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    for version in (platform.python_version(), np.__version__, numba.__version__, platform.machine()):
        digest.update(version.encode())
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
    """Return why no file can be written in ``folder``, which is created, or None if one can."""
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
            f"windvane: compiling its kernels, as at every start: {CACHE_DIR} cannot be written ({CACHE_ERROR}), so "
            "compiled code is not kept; set WINDVANE_CACHE_DIR to a writable folder",
            file=sys.stderr,
        )
    elif not any(CACHE_DIR.glob("**/*.nbi")):
        print(f"windvane: compiling its kernels for this machine, once (cached in {CACHE_DIR})", file=sys.stderr)


CACHE_DIR = _default_root() / f"kernels-{_source_hash()}"
CACHE_ERROR = _write_error(CACHE_DIR)  # None if compiled code is kept
if not os.environ.get("WINDVANE_QUIET"):
    _announce()


def host_processor() -> str:
    """The processor that code is compiled for: on another kind, the last bit of a result may differ."""
    return f"{platform.machine()} {llvmlite.binding.get_host_cpu_name()}"


def _decorate(function: F, fastmath: set[str], *, inline: str = "never") -> F:
    previous = _config.CACHE_DIR
    _config.CACHE_DIR = str(CACHE_DIR)  # read once, while the function is decorated
    try:
        decorated: F = _njit(
            cache=CACHE_ERROR is None,
            nogil=True,
            fastmath=fastmath,
            error_model="numpy",  # a division by zero gives inf, and does not keep loops from vectorising
            no_cfunc_wrapper=True,
            inline=inline,
        )(function)
    finally:
        _config.CACHE_DIR = previous
    return decorated


def compiled(function: F) -> F:
    """Compile with IEEE ordering (fused multiply-add allowed): for anything with bit tricks or comparisons."""
    return _decorate(function, FUSE_ONLY)


def compiled_inner(function: F) -> F:
    """:func:`compiled`, pasted into its one caller: compiling it by itself as well would double the wait."""
    return _decorate(function, FUSE_ONLY, inline="always")


def compiled_sums(function: F) -> F:
    """Compile with re-ordered sums: for the plain reductions over the history."""
    return _decorate(function, REORDER_SUMS)
