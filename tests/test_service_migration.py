"""A store that version 0.1 wrote, with streams whose settings mean something else now.

``data/store-0.1.sql`` is a dump of it, ``data/store-0.1.json`` what version 0.1 answered after 20 decisions of each
stream. Then it restarted "fields" from a snapshot, which permuted the features, and decided once more.

All of them have the adaptive policy, which is another one now. Counts and decisions are those that were recorded; the
parameter is that of the new policy, given the arms that were played and the outcomes that were learned.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from serving import Local, local, windvane
from windvane import AdaptiveGLMUCB, Features
from windvane.service.migration import upgrade_stream_config

DATA = Path(__file__).parent / "data"
FACTS = json.loads((DATA / "store-0.1.json").read_text())


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Restore the dump and set the clock to a minute after its last event: "late" waits an hour for rewards."""
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path)
    connection.executescript((DATA / "store-0.1.sql").read_text())
    (last_event,) = connection.execute("SELECT max(time) FROM events").fetchone()
    connection.close()
    ahead = time.time() - (last_event + 60.0)
    actual_time = time.time
    monkeypatch.setattr(time, "time", lambda: actual_time() - ahead)
    return path


def counts(service: Local, name: str) -> dict:
    state = service.get(f"/v1/streams/{name}").json()
    return {key: state[key] for key in ("decisions", "defaulted", "mean_reward")}


def relive(events: list[dict], policy: AdaptiveGLMUCB, vectors: Callable[[dict], dict]) -> AdaptiveGLMUCB:
    """Let a new policy learn what a log says: the arms that were played, rewards on arrival, defaults on expiry."""
    played: dict[str, tuple[np.ndarray, float]] = {}
    for event in events:
        if event["kind"] == "decided":
            arms = vectors(event["request"])
            played[event["decision"]] = np.array([arms[event["arm"]]]), policy.t
            policy.select([list(arms.values())])
        elif event["kind"] in ("rewarded", "expired"):
            value = event["value"] if event["kind"] == "rewarded" else event["missing"]
            for decision in event.get("decisions") or [event["decision"]]:
                x, decided = played[decision]
                policy.update(x, value, round=decided)
    return policy


@pytest.mark.parametrize("name", ["patched", "crowded", "late"])
def test_a_stream_comes_to_what_version_0_1_answered(store: Path, name: str) -> None:
    """ "patched" got its default before its wait; of "crowded", max_pending pushed decisions out, which counted."""
    with local(store) as service:
        state = service.get(f"/v1/streams/{name}").json()
        policy = relive(service.log(name), AdaptiveGLMUCB(2), lambda request: request["arms"])
        assert list(state["theta"]) == list(FACTS[name]["theta"])
        assert list(state["theta"].values()) == pytest.approx(policy.info().theta_hat[0], rel=1e-9, abs=1e-12)
        assert counts(service, name) == {key: FACTS[name][key] for key in ("decisions", "defaulted", "mean_reward")}
        assert (state["learn"], state["config"]["missing"]) == ("on_arrival", 0.0)
        assert state["config"]["wait"] == {"patched": 3, "crowded": 1e12, "late": "1h"}[name]
        service.decide(name, {"arms": {"red": [0.6, 0.1], "blue": [0.2, 0.7]}})


def test_features_are_in_their_declared_order_again(store: Path) -> None:
    """After its restart version 0.1 predicted 0.23 for a phone, of which nine in ten click."""
    with local(store) as service:
        state = service.get("/v1/streams/fields").json()
        assert list(state["theta"]) == list(FACTS["fields"]["theta"])
        names = ["red", "blue"]
        features = Features(by_arm={"device": ["phone", "desk"], "basket": (0, 100)}, arms=names)
        assert features.names == list(state["theta"])

        def encode(request: dict) -> dict:
            return dict(zip(names, features.vectors(request["context"], names), strict=True))

        policy = relive(service.log("fields"), AdaptiveGLMUCB(9), encode)
        assert list(state["theta"].values()) == pytest.approx(policy.info().theta_hat[0], rel=1e-9, abs=1e-12)
        (again,) = [event for event in service.log("fields") if event["number"] == 41]
        assert again["prediction"] < 0.3
        decision = service.decide("fields", {"context": {"device": "phone", "basket": 20}})
        assert decision["prediction"] > 0.4


def test_it_is_said_and_verified(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    with local(store) as service:
        decided = {name: [e["kind"] for e in service.log(name)].count("decided") for name in FACTS}
        events = {name: len(service.log(name)) for name in FACTS}
        service.decide("patched", {"arms": {"red": [0.6, 0.1], "blue": [0.2, 0.7]}})
    for name in FACTS:
        assert f"stream '{name}': has format 1; rebuilding it from its" in caplog.text
    assert store.with_name("old.db.format-1").exists()
    found = windvane("verify", "--store", store, "--json")
    assert found.returncode == 0, found.stdout
    notes = {one["stream"]: one["note"] for one in json.loads(found.stdout)["streams"]}
    for name in FACTS:  # another policy: every prediction or bonus is another one, and what was decided since is sound
        start = f"of the events up to {events[name]}, which an earlier version wrote, {decided[name]} have"
        assert start in notes[name]
    assert json.loads(found.stdout)["sound"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"policy": "D-LinTS", "bonus_scale": 0.5}, {"policy": "D-LinTS", "posterior_scale": 0.5}),
        ({"policy": "D-LinUCB", "bonus_scale": 0.5}, {"policy": "D-LinUCB", "bonus_scale": 0.5}),
        ({"policy": "GLM-UCB", "discount": "general"}, {"policy": "GLM-UCB", "arm_geometry": "general"}),
    ],
)
def test_settings_of_policies_get_their_new_names(old: dict, new: dict) -> None:
    common = {"wait": None, "missing": None}
    upgraded = upgrade_stream_config({"agent": {**common, **old}}, 7)
    assert upgraded["agent"] == {**common, **new, "learn": "on_arrival"}
