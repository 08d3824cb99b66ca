"""The package as a whole: what importing costs, what it exports, what a clone contains."""

from __future__ import annotations

import re
from pathlib import Path

from support.processes import run_python

ROOT = Path(__file__).parent.parent


def test_import_is_light() -> None:
    """numba and scipy load on first use only; numpy itself waits for the first name that needs it."""
    code = "import sys, windvane, windvane.policies; print(*{m.split('.')[0] for m in sys.modules})"
    heavy = {"numba", "scipy", "numpy", "llvmlite", "matplotlib", "pyarrow", "joblib", "typer", "filelock"}
    assert not heavy & set(run_python("-c", code).stdout.split())


def test_links_and_theory_need_no_numba() -> None:
    modules = "windvane.links, windvane.theory, windvane.environments, windvane.lab.spec.experiment_spec"
    code = f"import sys, {modules}; print('numba' in sys.modules, 'scipy' in sys.modules)"
    assert run_python("-c", code).stdout.split() == ["False", "False"]


def test_compilation_is_announced_once_and_then_cached(tmp_path: Path) -> None:
    """One line on stderr on an empty cache; none when the cache is warm, or when asked to be quiet."""
    code = "from windvane.kernels.drawing import blocks_of; print(blocks_of(4))"
    first, second = (run_python("-c", code, WINDVANE_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert first.stdout == second.stdout == "3\n"
    assert len(first.stderr.splitlines()) == 1
    assert "compiling" in first.stderr
    assert second.stderr == ""
    assert run_python("-c", code, WINDVANE_CACHE_DIR=str(tmp_path / "other"), WINDVANE_QUIET="1").stderr == ""


def test_cache_does_not_touch_the_users_numba_settings(tmp_path: Path) -> None:
    code = (
        "from numba import config; b = config.CACHE_DIR; import windvane.kernels.linalg; print(b == config.CACHE_DIR)"
    )
    assert run_python("-c", code, WINDVANE_CACHE_DIR=str(tmp_path)).stdout == "True\n"


def test_an_unwritable_cache_is_announced_and_nothing_is_cached_elsewhere(tmp_path: Path) -> None:
    """Numba's own fallback is ``__pycache__``, where code that is out of date can survive an upgrade."""
    code = (
        "from windvane.kernels.drawing import blocks_of; print(blocks_of(4));"
        "print(type(blocks_of._cache).__name__, blocks_of.stats.cache_path)"
    )
    (tmp_path / "file").write_text("not a folder")
    not_even_for_root = (folder for folder in (tmp_path / "file" / "below", Path("/proc/x")) if folder.parent.exists())
    for folder in not_even_for_root:
        done = run_python("-c", code, WINDVANE_CACHE_DIR=str(folder))
        assert done.stdout == "3\nNullCache None\n", done.stderr
        (line,) = done.stderr.splitlines()
        for part in (f"{folder}/kernels-", "cannot be written", "not kept", "at every start", "WINDVANE_CACHE_DIR"):
            assert part in line
        assert "cached" not in line


def test_a_policy_decides_and_learns_without_a_cache(tmp_path: Path) -> None:
    code = """
import windvane
policy = windvane.OFUL(2)
choice = policy.select([[[0.5, 0.1], [0.1, 0.5]]])
policy.update([[0.5, 0.1]], 1.0)
print(choice.shape, policy.info().theta_hat[0, 0] > 0)
"""
    (tmp_path / "file").write_text("")
    done = run_python("-c", code, WINDVANE_CACHE_DIR=str(tmp_path / "file" / "x"), WINDVANE_QUIET="1")
    assert (done.stdout, done.stderr) == ("(1,) True\n", "")


def test_lock_file_pins_versions_and_names_no_address() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").split()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[^/:]+", line) for line in lines)
    assert {"numpy", "scipy", "numba", "pytest", "hypothesis"} <= {line.split("==")[0] for line in lines}
