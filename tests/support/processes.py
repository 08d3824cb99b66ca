"""Python in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path


def run_python(*arguments: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with more variables in its environment; it must not fail."""
    line = [sys.executable, *arguments]
    done = subprocess.run(line, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done
