"""The command ``streams`` and its sub-commands."""

from __future__ import annotations

from windvane.cli.commands import Group
from windvane.cli.stream_copies import copy, move

HELP = """Copy and move streams.

Examples:
  windvane streams copy windvane.db postgresql://windvane@db.internal/windvane
  windvane streams move windvane.db postgresql://windvane@db.internal/windvane
"""

streams = Group(HELP, {"copy": copy, "move": move})
