"""deploy/windvane.service and deploy/windvane@.service: systemd takes them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.service_pages import DEPLOY


def find_systemd_analyze() -> str:
    path = shutil.which("systemd-analyze")
    if path is None:
        pytest.skip("systemd-analyze is not installed")
    return path


@pytest.mark.parametrize(
    ("source", "name"), [("windvane.service",) * 2, ("windvane@.service", "windvane@8000.service")]
)
def test_systemd_takes_the_unit(source: str, name: str, tmp_path: Path) -> None:
    """Only the path of the program is replaced, because it must exist."""
    text = (DEPLOY / source).read_text(encoding="utf-8")
    assert text.count("/opt/windvane/bin/windvane ") == 1
    unit = tmp_path / name
    unit.write_text(text.replace("/opt/windvane/bin/windvane ", f"{Path(sys.executable).with_name('windvane')} "))
    line = [find_systemd_analyze(), "verify", "--man=no", str(unit)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_units_differ_in_what_a_node_needs() -> None:
    """What protects the machine, and when a service is restarted, is the same in both."""
    single, node = (
        set(re.findall(r"^\w+=.*", (DEPLOY / name).read_text(encoding="utf-8"), re.M))
        for name in ("windvane.service", "windvane@.service")
    )
    assert {line.partition("=")[0] for line in single ^ node} == {
        "Description", "ExecStart", "EnvironmentFile", "TimeoutStartSec"
    }  # fmt: skip
