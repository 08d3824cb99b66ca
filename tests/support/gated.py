"""A policy that waits: what is done while it runs is done in the middle of a run, on a machine of any speed."""

from __future__ import annotations

import os
import time
from pathlib import Path

from windvane import BVDGLMUCB

GATE = "WINDVANE_TEST_GATE"  # names a file; while it does not exist, round 10 does not end


def waiting(gate: Path) -> int:
    """How many processes have come to the gate."""
    return len(list(gate.parent.glob(f"{gate.name}-*")))


class Gated(BVDGLMUCB):
    def select(self, arms, valid=None):
        if self.t == 10 and GATE in os.environ:
            Path(f"{os.environ[GATE]}-{os.getpid()}").touch()
            while not Path(os.environ[GATE]).exists():
                time.sleep(0.01)
        return super().select(arms, valid)
