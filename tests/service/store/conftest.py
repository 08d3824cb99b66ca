"""A store that is open, and one with everything in it, to be copied and damaged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from support.stores import Facts, build
from windvane.service.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path / "a.db")) as opened:
        yield opened


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Facts]:
    path = tmp_path_factory.mktemp("store") / "a.db"
    return path, build(path)
