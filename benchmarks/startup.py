"""What a user waits for before the first decision: `python benchmarks/startup.py`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

IMPORT = "import time; t = time.perf_counter(); import windvane; print(time.perf_counter() - t)"
WARM_UP = "import windvane; print(windvane.warm_up())"
NUMPY = "import time; t = time.perf_counter(); import numpy; print(time.perf_counter() - t)"


def run(code: str, cache: str) -> float:
    environment = os.environ | {"WINDVANE_CACHE_DIR": cache, "WINDVANE_QUIET": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def say(what: str, seconds: float, limit: float) -> None:
    print(f"{'ok  ' if seconds <= limit else 'MISS'}  {what:<46} {seconds:>7.3f} s (target {limit:g} s)", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:
        quickest = min(run(IMPORT, cache) for _ in range(5))
        numpy = min(run(NUMPY, cache) for _ in range(5))
        say("import windvane", quickest, 0.3)
        print(f"      import numpy alone: {numpy:.3f} s")
        say("all compilation, empty cache", run(WARM_UP, cache), 20)
        say("the same from the cache", min(run(WARM_UP, cache) for _ in range(5)), 1.5)


if __name__ == "__main__":
    main()
