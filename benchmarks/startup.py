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
EVERYTHING = "import windvane; print(windvane.warm_up())"
REPRODUCE = """
import time
from windvane.lab.cells import Cell
from windvane.lab.paper import paper_spec
from windvane.lab.runner import compile_kernels
spec = paper_spec()
t = time.perf_counter()
compile_kernels(spec, [Cell(0, policy, 0, 1) for policy in range(len(spec.policies))])
print(time.perf_counter() - t)
"""
SERVE = "import windvane; print(windvane.warm_up([windvane.AdaptiveGLMUCB]))"


def measure(code: str, cache: str) -> float:
    environment = os.environ | {"WINDVANE_CACHE_DIR": cache, "WINDVANE_QUIET": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def measure_cold(code: str) -> float:
    with tempfile.TemporaryDirectory() as cache:
        return measure(code, cache)


def show(what: str, seconds: float, limit: float) -> None:
    print(f"{'ok  ' if seconds <= limit else 'MISS'}  {what:<52} {seconds:>7.3f} s (target {limit:g} s)", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:
        show("import windvane", min(measure(IMPORT, cache) for _ in range(5)), 0.3)
        print(f"      import numpy alone: {min(measure(NUMPY, cache) for _ in range(5)):.3f} s")
        show("cold compilation of everything", measure(EVERYTHING, cache), 20)
        show("the same from the cache", min(measure(EVERYTHING, cache) for _ in range(5)), 1.5)
    show("cold compilation of what `windvane reproduce` needs", measure_cold(REPRODUCE), 12)
    print(f"      cold compilation of what `windvane serve` needs: {measure_cold(SERVE):.3f} s")


if __name__ == "__main__":
    main()
