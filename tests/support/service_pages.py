"""The pages about the service: their sections, blocks of commands and tables; and a shell to run the commands in."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.pages import DOCS, ROOT
from support.server import SOURCE

DEPLOY, HOWTO, REFERENCE = ROOT / "deploy", DOCS / "howto", DOCS / "reference"
PLACES = {"/var/lib/windvane": "lib", "/var/backups/windvane": "backups", "/opt/windvane": "opt"}
"""Folders of a machine on which the service is installed, and their names in the folder of a :class:`Shell`."""
INSTALL = r"""
eval "last=\${$#}"
test "$1" != -d || exec mkdir -p "$last"
mkdir -p "$(dirname "$last")"
eval "cp \"\${$(($# - 1))}\" \"$last\""
"""
PROGRAMS = {
    "sudo": 'shift 2\nexec "$@"',  # sudo -u USER
    "systemctl": 'echo "$@" >> "$HOME/systemctl"',
    "install": INSTALL,
}
"""Programs that need root, with scripts that stand in for them."""


def read_section(page: Path, title: str) -> str:
    """Return the text below a heading, up to the next one of its level."""
    text = page.read_text(encoding="utf-8")
    section = re.search(rf"^(#+) {re.escape(title)}$(.*?)(?=^#{{1,2}} |\Z)", text, re.M | re.S)
    assert section is not None, title
    return section[2]


def read_commands(page: Path, title: str | None = None) -> list[str]:
    """Return the blocks of commands of a section, or of the page."""
    text = page.read_text(encoding="utf-8") if title is None else read_section(page, title)
    return re.findall(r"^```console\n(.*?)^```", text, re.M | re.S)


def read_rows(page: Path, header: str) -> list[list[str]]:
    """Return the cells of the tables whose first line begins with ``header``."""
    text = page.read_text(encoding="utf-8")
    tables = re.findall(rf"^{re.escape(header)}.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.M)
    assert tables, header
    lines = [line for table in tables for line in table.splitlines()]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def parse_documents(text: str) -> list[Any]:
    """Return the JSON documents of a text, each on a line or on several."""
    decoder, documents = json.JSONDecoder(), []
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        documents.append(document)
        text = text[end:]
    return documents


def run_bash(script: str, folder: Path, environment: Mapping[str, str], code: int = 0, **identity: Any) -> str:
    """Run commands as one script, which ends at the first error; return what they print."""
    line = ["bash", "-e", "-o", "pipefail", "-c", script]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False, **identity)
    assert done.returncode == code, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


class Shell:
    """Where an administrator pastes blocks of commands: ``folder`` has the folders that the service would have."""

    def __init__(self, folder: Path, port: str = "8000", variables: Mapping[str, str] | None = None) -> None:
        self.folder, self.port = folder, port
        programs = folder / "programs"
        programs.mkdir()
        for name, script in PROGRAMS.items():
            (programs / name).write_text(f"#!/bin/sh\n{script}\n")
            (programs / name).chmod(0o755)
        for name in PLACES.values():
            (folder / name).mkdir()
        (folder / ".curlrc").write_text("fail\n")
        path = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
        self.environment = {
            **os.environ, "PATH": os.pathsep.join(path), "PYTHONPATH": os.pathsep.join(SOURCE), "HOME": str(folder),
            "CURL_HOME": str(folder), "NO_PROXY": "localhost,127.0.0.1", "COLUMNS": "120",
            "WINDVANE_CACHE_DIR": os.environ.get("WINDVANE_CACHE_DIR", str(Path.home() / ".cache" / "windvane")),
            **(variables or {}),
        }  # fmt: skip

    def run(self, script: str, code: int = 0) -> str:
        """Run commands with the folders and the port of this shell; return what they print."""
        for place, name in PLACES.items():
            script = script.replace(place, str(self.folder / name))
        script = re.sub(r"(localhost|127\.0\.0\.1):8000", rf"\1:{self.port}", script)
        return run_bash(script, self.folder, self.environment, code)
