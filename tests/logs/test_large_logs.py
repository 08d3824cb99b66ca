"""Long logs need little memory. Each is read in a process of its own, whose peak is measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

DECIDED = (
    '{{"number": {n}, "time": "{time}.000000Z", "kind": "decided", "decision": "id{i:09d}", "key": null, '
    '"id": "id{i:09d}", "arm": "{arm}", "index": {index}, "propensity": 0.2, "explored": true, "prediction": 0.5, '
    '"bonus": 0.1, "preferred": "{arm}", "rival": "a1", "rival_score": 0.3, "projected": null, '
    '"request": {{"context": {{"hour": {hour}, "device": "{device}"}}}}}}\n'
    '{{"number": {m}, "time": "{time}.500000Z", "kind": "rewarded", "decision": "id{i:09d}", "key": null, '
    '"value": {reward}.0, "settled": true}}\n'
)
MEASURE = """
import json, resource, sys
import numpy as np
from windvane.logs import read
log = read(sys.argv[1])
rows = rewards = played = 0.0
for batch in log.batches():
    rows += len(batch)
    rewards += float(batch.reward.sum())
    played += int((batch.played == 0).sum())
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
try:  # what the process that started this one had in memory does not count
    lines = open("/proc/self/status").read().splitlines()
    peak = min(peak, *(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")))
except OSError:
    pass
print(json.dumps({"rows": rows, "rewards": rewards, "played": played, "peak": peak, "problems": len(log.problems)}))
"""


def write_events(path: Path, rows: int) -> None:
    with path.open("w") as file:
        for i in range(rows):
            day, second = divmod(i, 86400)
            time = f"2026-01-{day + 1:02d}T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
            file.write(
                DECIDED.format(
                    n=2 * i + 1,
                    m=2 * i + 2,
                    i=i,
                    time=time,
                    arm=f"a{i % 5}",
                    index=i % 5,
                    hour=second // 3600,
                    device="phone" if i % 3 else "desktop",
                    reward=int(i % 4 == 0),
                )
            )


def measure(path: Path) -> dict:
    done = subprocess.run([sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(path: Path, rows: int, most: float) -> None:
    found = measure(path)
    assert found["rows"] == rows
    assert found["rewards"] == (rows + 3) // 4
    assert found["played"] == rows // 5
    assert found["problems"] == 0
    assert found["peak"] < most


def test_a_log_of_40_000_decisions(tmp_path: Path) -> None:
    """The file has 20 MB; Python with its libraries takes about 200 MB."""
    write_events(tmp_path / "log.ndjson", 40_000)
    check(tmp_path / "log.ndjson", 40_000, 400e6)


@pytest.mark.slow
def test_a_log_of_a_million_decisions(tmp_path: Path) -> None:
    write_events(tmp_path / "log.ndjson", 1_000_000)
    check(tmp_path / "log.ndjson", 1_000_000, 1e9)


def test_a_table_of_200_000_decisions(tmp_path: Path) -> None:
    with (tmp_path / "log.csv").open("w") as file:
        file.write("time,arm,reward,propensity,id,x,w\n")
        for i in range(200_000):
            file.write(f"{i},a{i % 5},{int(i % 4 == 0)},0.2,id{i},{i % 7},{'phone' if i % 3 else 'desktop'}\n")
    check(tmp_path / "log.csv", 200_000, 500e6)
