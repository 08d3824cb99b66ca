"""How kernels are compiled and where the compiled code is kept.

Numba's own file cache notices an edit of the file a function lives in, but not of the files it calls into, so a stale
binary can survive an edit. Here the cache folder is named by a hash over *all* kernel sources and the versions of
Python, NumPy and numba: any change starts an empty folder.

The folder is ``$WINDVANE_CACHE_DIR``, or ``$XDG_CACHE_HOME/windvane``, or ``~/.cache/windvane``.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
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


def _prepare_cache() -> tuple[Path, bool]:
    """The cache folder of this exact source, and whether compiled code is already in it."""
    folder = _default_root() / f"kernels-{_source_hash()}"
    return folder, any(folder.glob("**/*.nbi"))


CACHE_DIR, _WARM = _prepare_cache()
if not _WARM and not os.environ.get("WINDVANE_QUIET"):
    print(f"windvane: compiling its kernels for this machine, once (cached in {CACHE_DIR})", file=sys.stderr)


def host_processor() -> str:
    """The processor that code is compiled for: on another kind, the last bit of a result may differ."""
    return f"{platform.machine()} {llvmlite.binding.get_host_cpu_name()}"


def _decorate(function: F, fastmath: set[str], *, inline: str = "never") -> F:
    previous = _config.CACHE_DIR
    _config.CACHE_DIR = str(CACHE_DIR)  # read once, while the function is decorated
    try:
        decorated: F = _njit(
            cache=True,
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
