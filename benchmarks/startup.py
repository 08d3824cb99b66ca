"""Measure what a user waits for before the first decision: ``python benchmarks/startup.py``.

Every measurement is a new process. "Cold" means an empty ``WINDVANE_CACHE_DIR``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

IMPORT = "import time; t = time.perf_counter(); import windvane; print(time.perf_counter() - t)"
NUMPY = "import time; t = time.perf_counter(); import numpy; print(time.perf_counter() - t)"
WARM_UP = "import windvane; windvane.warm_up({policies})"
REPRODUCE = """
from windvane.lab.run.cells import Cell
from windvane.lab.studies.paper import paper_spec
from windvane.lab.run.workers import compile_kernels
spec = paper_spec()
compile_kernels(spec, [Cell(0, policy, 0, 1) for policy in range(len(spec.policies))])
"""
IMPORTS = "import numba, scipy.special, windvane.lab.run.workers"  # what is not compilation
TIMED = """
import time
{imports}
wall, cpu = time.perf_counter(), time.process_time()
{code}
print(time.perf_counter() - wall, time.process_time() - cpu)
"""


def measure(code: str, cache: str) -> list[float]:
    """Run ``code`` in a new process and return the numbers that it prints."""
    environment = os.environ | {"WINDVANE_CACHE_DIR": cache, "WINDVANE_QUIET": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def compile_cold(code: str) -> tuple[float, float]:
    """Return the seconds and the processor seconds that ``code`` takes with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        wall, cpu = measure(TIMED.format(imports=IMPORTS, code=code), cache)
    return wall, cpu


def show(what: str, seconds: float, limit: float, note: str = "") -> None:
    verdict = "ok  " if seconds <= limit else "MISS"
    print(f"{verdict}  {what:<52} {seconds:>7.3f} s (target {limit:g} s){note}", flush=True)


def main() -> None:
    everything = WARM_UP.format(policies="")
    with tempfile.TemporaryDirectory() as cache:
        show("import windvane", min(measure(IMPORT, cache)[0] for _ in range(5)), 0.3)
        print(f"      import numpy alone: {min(measure(NUMPY, cache)[0] for _ in range(5)):.3f} s")
    for what, code, limit in (
        ("cold compilation of what `windvane reproduce` needs", REPRODUCE, 12.0),
        ("cold compilation of everything", everything, 20.0),
    ):
        wall, cpu = compile_cold(code)
        show(what, wall, limit, f"; {cpu:.1f} s of processor time")
    wall, cpu = compile_cold(WARM_UP.format(policies="[windvane.AdaptiveGLMUCB]"))
    print(f"      cold compilation of what a new `windvane serve` needs: {wall:.3f} s; {cpu:.1f} s of processor time")
    with tempfile.TemporaryDirectory() as cache:
        loading = TIMED.format(imports=IMPORTS, code=everything)
        measure(loading, cache)
        show("everything from the cache", min(measure(loading, cache)[0] for _ in range(5)), 1.5)


if __name__ == "__main__":
    main()
