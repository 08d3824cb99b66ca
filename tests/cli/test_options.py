"""Shell completion, by the protocol that bash and zsh speak, and values of options."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import SCRIPT
from windvane.cli.commands import COMMANDS
from windvane.cli.options import split_names

LISTING = """
import os, sys
import windvane.cli
try:
    windvane.cli.main([])
finally:
    imported = {name.split(".")[0] for name in sys.modules} | {name for name in sys.modules if "windvane.lab" in name}
    print(*imported & {"numba", "numpy", "rich", "windvane.lab"}, file=sys.stderr)
"""


def complete(line: str, folder: Path) -> list[str]:
    """Return what bash offers at the end of ``line``."""
    words = line.split(" ")
    settings = {"_WINDVANE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run([SCRIPT], cwd=folder, env=os.environ | settings, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("windvane ", list(COMMANDS)),
        ("windvane re", ["report", "reproduce", "restore", "replay"]),
        ("windvane token ", ["add", "list", "remove", "open"]),
        ("windvane benchmark dr", ["drift"]),
        ("windvane verify --s", ["--store"]),
        ("windvane study no", ["no-tuning"]),
        ("windvane tune --policy BV", ["BVD-GLM-UCB"]),
        ("windvane benchmark drift --policies OFUL,Adap", ["OFUL,AdaptiveGLMUCB"]),
        ("windvane compile OFUL OneP", ["OnePassGLM"]),
        ("windvane reproduce --paper wang", ["wang2023-lb", "wang2023-glb"]),
        ("windvane policies --cite OFUL,Adap", ["OFUL,AdaptiveGLMUCB"]),
    ],
)
def test_bash_completes(tmp_path: Path, line: str, expected: list[str]) -> None:
    assert complete(line, tmp_path) == expected


def test_zsh_completes(tmp_path: Path) -> None:
    settings = {"_WINDVANE_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "windvane token re"}
    done = subprocess.run([SCRIPT], cwd=tmp_path, env=os.environ | settings, capture_output=True, text=True, check=True)
    assert '"remove":"Remove a token."' in done.stdout


def test_listing_the_commands_imports_none_of_them(tmp_path: Path) -> None:
    settings = {"_WINDVANE_COMPLETE": "complete_bash", "COMP_WORDS": "windvane ", "COMP_CWORD": "1"}
    line = [sys.executable, "-c", LISTING]
    done = subprocess.run(line, cwd=tmp_path, env=os.environ | settings, capture_output=True, text=True, check=True)
    assert done.stdout.split() == list(COMMANDS)
    assert done.stderr.split() == []


def test_the_script_for_a_shell(tmp_path: Path) -> None:
    settings = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    line = [SCRIPT, "--show-completion", "bash"]
    done = subprocess.run(line, cwd=tmp_path, env=settings, capture_output=True, text=True, check=True)
    assert "complete -o default -F _windvane_completion windvane" in done.stdout


def test_names_are_split_at_commas() -> None:
    assert split_names("OFUL, BVD-GLM-UCB") == ["OFUL", "BVD-GLM-UCB"]
    assert split_names(None) is None
