"""Lists of streams that come from several nodes, and streams that are damaged or not loaded yet."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backends import Databases
from support.gates import Gate
from support.server import Local, run_local, until
from support.stores import edit
from windvane.service.cluster import loading
from windvane.service.http.cluster import merge_lists

DAMAGE = "UPDATE events SET outcome = '\\x7b7d' WHERE stream = (SELECT id FROM streams WHERE name = ?)"


def test_the_list_is_the_first_to_load_a_damaged_stream(
    databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is unavailable, with the reason; the others are listed."""
    path = tmp_path / "a.db"
    with run_local(path) as service:
        for name in ("a", "b", "c"):
            service.create(name)
            service.decide(name)
    edit(databases.locate(path), "DELETE FROM snapshots")
    edit(databases.locate(path), DAMAGE, "b")
    gate = Gate(loading.rebuild_stream)
    monkeypatch.setattr(loading, "rebuild_stream", gate)
    service = Local(path)
    try:
        with ThreadPoolExecutor() as pool:
            listing = pool.submit(service.get, "/v1/streams")
            until(lambda: gate.count == 1)
            gate.open()
            answer = listing.result(30)
        assert answer.status_code == 200, answer.text
        assert [stream["name"] for stream in answer.json()["streams"]] == ["a", "c"]
        ((entry),) = answer.json()["unavailable"]
        assert entry["name"] == "b"
        assert "event 1" in entry["reason"]
    finally:
        service.crash()


NAMES = st.text("abc", min_size=1, max_size=3)


@given(st.lists(st.dictionaries(NAMES, st.booleans(), max_size=8), min_size=1, max_size=3), st.integers(1, 4))
def test_pages_of_several_nodes_have_every_stream_once(nodes: list[dict[str, bool]], limit: int) -> None:
    """Some are damaged, which a node notices only while it lists them: its page is then short."""
    served = {name: i for i, names in enumerate(nodes) for name in names}
    listed, unavailable, after = list[str](), set[str](), ""
    while after is not None:
        parts = [
            list_part({name for name in served if served[name] == i}, nodes[i], limit, after) for i in range(len(nodes))
        ]
        page = merge_lists(parts, [], limit)
        assert len(page["streams"]) <= limit
        listed += [stream["name"] for stream in page["streams"]]
        unavailable |= {entry["name"] for entry in page["unavailable"]}
        after = page["next"]
    assert listed == sorted(name for name, i in served.items() if nodes[i][name])
    assert unavailable == {name for name, i in served.items() if not nodes[i][name]}


def list_part(own: set[str], is_sound: dict[str, bool], limit: int, after: str) -> dict[str, Any]:
    """Return the page of a node."""
    names = sorted(name for name in own if name > after)
    return {
        "streams": [{"name": name} for name in names[:limit] if is_sound[name]],
        "unavailable": [{"name": name, "reason": "damaged"} for name in own if not is_sound[name]],
        "next": names[limit - 1] if len(names) > limit else None,
    }
