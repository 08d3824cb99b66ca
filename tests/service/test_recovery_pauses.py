"""A store that can be read but not written to is tried again at growing intervals."""

from __future__ import annotations

import sqlite3
from unittest.mock import Mock

import pytest

from support.server import ARMS, Local, until
from windvane.service import recovery_pauses

DECISIONS = "/v1/streams/shop/decisions"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery_pauses, "SHORTEST_SECONDS", 0.01)
    monkeypatch.setattr(recovery_pauses, "LONGEST_SECONDS", 0.03)


def test_pauses_grow_until_events_are_stored(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    service.create()
    pauses, seconds = service.engine.recovery_pauses, []
    with monkeypatch.context() as patch:
        patch.setattr(service.store, "append", Mock(side_effect=sqlite3.OperationalError("refused")))
        for recoveries in range(2, 6):
            assert service.post(DECISIONS, ARMS).status_code == 503
            until(lambda count=recoveries: service.engine.recoveries == count)  # type: ignore[misc]
            seconds.append(pauses.seconds)
    assert seconds == [0.02, 0.03, 0.03, 0.03]
    assert service.post(DECISIONS, ARMS).status_code == 201
    service.call(lambda: service.engine.fail(sqlite3.OperationalError("refused")))
    until(lambda: service.engine.recoveries == 6)
    assert pauses.seconds == 0.01
