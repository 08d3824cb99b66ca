"""The checks of ``windvane doctor``: extras from the metadata, the compile cache, the self-test."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from windvane.cli import health

METADATA = """Metadata-Version: 2.4
Name: windvane
Version: 0.1.0
Requires-Dist: numpy>=2.0
Provides-Extra: cli
Requires-Dist: typer>=0.29; extra == 'cli'
Provides-Extra: lab
Requires-Dist: windvane[cli]; extra == 'lab'
Requires-Dist: no-such-package>=1; python_version >= '3' and extra == "lab"
Provides-Extra: dev
Requires-Dist: windvane[lab]; extra == 'dev'
"""


def test_extras_are_read_from_the_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An extra has the packages of the extras that it includes; those for development are left out."""
    folder = tmp_path / "windvane-0.1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(METADATA)
    monkeypatch.syspath_prepend(tmp_path)
    core, cli, lab = health.read_extras()
    assert core == ("", {"numpy": metadata.version("numpy")})
    assert cli == ("cli", {"typer": metadata.version("typer")})
    assert lab.packages == {"no-such-package": None, "typer": metadata.version("typer")}
    assert (lab.missing, lab.command) == (["no-such-package"], "pip install 'windvane[lab]'")
    assert (cli.missing, cli.command) == ([], "")


def test_without_metadata_the_extras_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "metadata", find_nothing)
    assert health.read_extras() == []


CACHES = [
    (None, 3, True, "is written and read"),
    (None, 0, False, "nothing was stored in cache"),
    ("No space", 3, False, "cache cannot be written (No space): every start compiles again; set WINDVANE_CACHE_DIR"),
]


@pytest.mark.parametrize(("write_error", "files", "is_ok", "text"), CACHES)
def test_the_cache_is_checked(write_error: str | None, files: int, is_ok: bool, text: str) -> None:
    check = health.check_cache(Path("cache"), write_error, files)
    assert (check.is_ok, check.detail) == (is_ok, text)


def test_this_installation_is_healthy() -> None:
    reports: list[tuple[int, int]] = []
    report = health.examine(lambda done, total: reports.append((done, total)))
    assert report.is_healthy, report.checks
    assert len(report.checks) == 5
    assert reports[0][0] == 0
    assert reports[-1][0] == reports[-1][1]
