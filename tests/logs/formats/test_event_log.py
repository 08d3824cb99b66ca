"""windvane's own event log: exported by a real service, as NDJSON and as Parquet, equal to what was done."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from support.server import until
from windvane.logs import FileLog, read
from windvane.testing import serve

FIELDS = {"device": ["phone", "desktop"], "age": [0, 100]}
ARMS = {"x": {"price": 1, "kind": "a"}, "y": {"price": 2, "kind": "b"}, "z": {"price": 4, "kind": "a"}}


def play_shop(client, done: list[dict], rounds: range, names: list) -> None:
    """Decide with all declared arms; rewards at once, never, or too late for the timeout of 3 decisions."""
    for i in rounds:
        context = {"device": "phone" if i % 4 else "desktop", "age": i}
        some = ["red", "blue"] if i % 5 == 4 else None
        decision = client.decide("shop", some, context=context)
        done.append({"decision": decision, "context": context, "arms": some or names, "reward": 0.0})
        if i % 3 == 0:
            client.reward("shop", decision, 1.0)
            done[-1]["reward"] = 1.0
        if len(done) > 6 and (len(done) - 6) % 3 == 2:
            client.reward("shop", done[-6]["decision"], 1.0)  # late: 0 has been learned


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports")
    done: dict[str, list[dict]] = {name: [] for name in ("shop", "parts", "offers", "vectors", "dropped")}
    names = ["red", "blue", 3]
    store = folder / "windvane.db"
    with serve(store) as client:
        client.create(
            "shop", features={"by_arm": FIELDS, "arms": names}, epsilon=0.3, reward_timeout=3, default_reward=0.0
        )
        play_shop(client, done["shop"], range(15), names)
        client.configure("shop", features={"by_arm": FIELDS, "arms": [*names, "green"]})
        play_shop(client, done["shop"], range(15, 22), [*names, "green"])
        client.configure("shop", epsilon=0.5)
    with serve(store) as client:  # a restart
        play_shop(client, done["shop"], range(22, 30), [*names, "green"])
        features = {"shared": {"hour": [0, 24]}, "per_arm": {"price": [0, 10], "kind": ["a", "b"]}}
        client.create("parts", features=features, reward_timeout=2, learn="at_timeout", default_reward=0.0)
        for i in range(9):
            decision = client.decide("parts", ARMS, context={"hour": i})
            for _ in range(i % 3):
                client.add_reward("parts", decision, 0.25)
            done["parts"].append({"decision": decision, "context": {"hour": i}, "arms": ARMS, "reward": 0.25 * (i % 3)})
        client.create("offers", features=features)
        for i in range(8):
            offer = {name: ARMS[name] for name in ("xyz" if i % 2 else "zx")}
            decision = client.decide("offers", offer, context={"hour": i})
            if i % 4 != 3:
                client.reward("offers", decision, i % 2)
            done["offers"].append({"decision": decision, "context": {"hour": i}, "arms": offer,
                                   "reward": i % 2 if i % 4 != 3 else np.nan})  # fmt: skip
        client.create("vectors", dim=2)
        for i in range(6):
            decision = client.decide("vectors", [[0.6, 0.8], [0.0, i / 10], [1.0, 0.0]])
            client.reward("vectors", decision, i % 2)
            done["vectors"].append({"decision": decision, "reward": i % 2})
        client.create("dropped", dim=2, reward_timeout=2)
        for _ in range(8):
            decision = client.decide("dropped", {"u": [1.0, 0.0], "v": [0.0, 1.0]})
            done["dropped"].append({"decision": decision, "reward": np.nan})
        client.reward("dropped", done["dropped"][1]["decision"], 1.0)  # late, and nothing has been learned
        done["dropped"][1]["reward"] = 1.0
        for name in done:
            until(lambda name=name: export(client.url, name, folder))
    return folder, done


def export(url: str, name: str, folder: Path) -> bool:
    """Write both exports; return whether they are of the same log, to which no timeout was added meanwhile."""
    contents = []
    for kind in ("ndjson", "parquet", "ndjson"):
        with urllib.request.urlopen(f"{url}/v1/streams/{name}/events?format={kind}") as answer:
            contents.append(answer.read())
        (folder / f"{name}.{kind}").write_bytes(contents[-1])
    return contents[0] == contents[2]


def join(log: FileLog) -> dict[str, np.ndarray]:
    batches = list(log.batches(7))
    names = [name for name, value in vars(batches[0]).items() if value is not None]
    return {name: np.concatenate([getattr(batch, name) for batch in batches]) for name in names}


@pytest.mark.parametrize("name", ["shop", "parts", "offers", "vectors", "dropped"])
def test_both_exports_hold_what_was_done(exports, name: str) -> None:
    folder, done = exports
    logs = [read(folder / f"{name}.{kind}") for kind in ("ndjson", "parquet")]
    rows, others = (join(log) for log in logs)
    for key, value in rows.items():
        np.testing.assert_array_equal(value, others[key], err_msg=key)
    assert logs[0].schema.features is None or (
        logs[0].schema.features.declaration() == logs[1].schema.features.declaration()
    )
    assert len(rows["time"]) == len(done[name])
    ids = np.concatenate([raw.id for raw in logs[0].raw_batches()])
    assert ids.tolist() == [entry["decision"].id for entry in done[name]]
    for i, entry in enumerate(done[name]):
        decision = entry["decision"]
        assert rows["time"][i] == decision.time.timestamp()
        expected = np.nan if decision.propensity is None else decision.propensity
        np.testing.assert_equal(rows["propensity"][i], expected)
        is_open = name in ("shop", "parts") and i >= len(done[name]) - 5  # its timeout has not passed
        if not np.isnan(entry["reward"]) and not is_open:
            np.testing.assert_equal(rows["reward"][i], entry["reward"])
        if not np.isnan(rows["reward"][i]):
            np.testing.assert_equal(rows["reward"][i], entry["reward"])
            assert rows["reward_time"][i] > rows["time"][i]
        else:
            assert rows["reward_time"][i] == np.inf


def test_a_worker_process_joins_the_same_rewards(exports) -> None:
    log = read(exports[0] / "shop.ndjson")
    script = "import pickle, sys; log = pickle.load(sys.stdin.buffer)\nfor b in log.batches(): print(*b.reward)"
    for seed in ("1", "2"):  # two processes, in which the built-in hash of a text differs
        worker = subprocess.run(
            [sys.executable, "-c", script], input=pickle.dumps(log), capture_output=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        np.testing.assert_array_equal(np.array(worker.stdout.split(), dtype=float), join(log)["reward"])


def test_an_id_that_is_no_text_is_located(tmp_path: Path) -> None:
    event = {"number": 1, "time": "2026-01-01T00:00:00Z", "kind": "decided", "decision": "d", "arm": "a", "index": 0,
             "propensity": 0.5, "preferred": "a", "request": {"arms": ["a", "b"], "context": None}}  # fmt: skip
    reward = {"number": 2, "time": "2026-01-01T00:00:01Z", "kind": "rewarded", "decision": "d", "value": 1.0}
    lines = [event, reward, {**event, "decision": ["d"]}, {**event, "decision": {}}, event, event]
    file = tmp_path / "log.ndjson"
    file.write_text("\n".join(map(json.dumps, lines)))
    log = read(file)
    assert log.problems.count("missing id") == 2
    assert join(log)["reward"].tolist() == [1.0] * 3


def test_offers_and_probabilities_of_declared_arms(exports) -> None:
    folder, done = exports
    log = read(folder / "shop.ndjson")
    rows = join(log)
    *first, last = log.schema.arms
    assert (sorted(first), last) == (["3", "blue", "red"], "green")  # in the order in which decisions name them first
    assert (log.schema.propensities, log.schema.floor) == ("all arms", pytest.approx(0.3 / 4))
    for i, entry in enumerate(done["shop"]):
        offered = {log.schema.arms[place] for place in np.flatnonzero(rows["valid"][i])}
        assert offered == {str(name) for name in entry["arms"]}
        decision, epsilon = entry["decision"], 0.3 if i < 22 else 0.5
        assert log.schema.arms[rows["played"][i]] == str(decision.arm)
        for place, name in enumerate(log.schema.arms):
            p = epsilon / len(offered) + (1 - epsilon) * (name == str(decision.preferred))
            assert rows["probabilities"][i, place] == pytest.approx(p if name in offered else 0.0)
        expected = log.schema.features.vectors(entry["context"], [name for name in log.schema.arms if name in offered])
        np.testing.assert_array_equal(rows["arms"][i][rows["valid"][i]], expected)


def join_by_hand(path: Path) -> tuple[list[float], int]:
    """The outcomes of all decisions, joined as docs/reference/event-log.md does, and the number of late rewards."""
    events = [json.loads(line) for line in path.read_text().splitlines()]
    outcomes = {event["decision"]: event["value"] for event in events
                if event["kind"] == "rewarded" and event["settled"]}  # fmt: skip
    for event in events:
        if event["kind"] == "closed":
            outcomes |= {id_: y for id_, y in zip(event["decisions"], event["learned"], strict=True) if y is not None}
    late = [event for event in events if event["kind"] == "late"]
    for event in late:
        outcomes.setdefault(event["decision"], event["value"])
    decided = [event["decision"] for event in events if event["kind"] == "decided"]
    return [outcomes.get(id_, np.nan) for id_ in decided], len(late)


@pytest.mark.parametrize("name", ["shop", "parts", "dropped"])
def test_outcomes_of_timeouts(exports, name: str) -> None:
    folder, _ = exports
    log = read(folder / f"{name}.ndjson")
    expected, late = join_by_hand(folder / f"{name}.ndjson")
    np.testing.assert_array_equal(join(log)["reward"], expected)
    assert log.problems.count("late reward") == (late if name == "shop" else 0)
    if name == "shop":
        assert late > 0
        assert 0.0 in expected[:15]  # learned at the timeout
    if name == "parts":
        assert np.isnan(expected[-1])  # its parts may not be all
    if name == "dropped":
        assert np.flatnonzero(~np.isnan(expected)).tolist() == [1]


def test_features_of_arms_and_vectors(exports) -> None:
    folder, done = exports
    log = read(folder / "offers.ndjson")
    rows = join(log)
    assert log.schema.names == ("1", "hour", "price", "kind = a", "kind = b")
    for i, entry in enumerate(done["offers"]):
        places = [log.schema.arms.index(name) for name in entry["arms"]]
        expected = log.schema.features.vectors(entry["context"], entry["arms"])
        np.testing.assert_array_equal(rows["arms"][i][places], expected)
        assert sorted(places) == np.flatnonzero(rows["valid"][i]).tolist()
        assert log.schema.arms[rows["played"][i]] == entry["decision"].arm
    vectors = read(folder / "vectors.ndjson")
    rows = join(vectors)
    assert (vectors.schema.features, vectors.schema.dim, vectors.schema.L) == (None, 3, pytest.approx(2**0.5))
    assert vectors.schema.names == ("x1", "x2", "1")  # as an agent with `intercept` has them
    assert rows["arms"][3].tolist() == [[0.6, 0.8, 1.0], [0.0, 0.3, 1.0], [1.0, 0.0, 1.0]]


def test_vectors_with_a_constant_get_no_intercept(tmp_path) -> None:
    arms = {"a": [1.0, 0.2], "b": [1.0, -0.4]}
    lines = []
    for i in range(4):
        event = {"time": f"2026-01-01T00:00:0{i}Z", "decision": f"d{i}"}
        lines.append({**event, "number": 2 * i + 1, "kind": "decided", "arm": "a", "request": {"arms": arms}})
        lines.append({**event, "number": 2 * i + 2, "kind": "rewarded", "value": i % 2, "settled": True})
    path = tmp_path / "log.ndjson"
    path.write_text("\n".join(map(json.dumps, lines)))
    schema = read(path).schema
    assert (schema.dim, schema.names, schema.has_intercept) == (2, ("x1", "x2"), False)


def test_declared_features_replace_the_encoding(exports) -> None:
    folder, _ = exports
    features = {"by_arm": {"age": [0, 50]}, "arms": ["red", "blue", 3, "green"]}
    log = read(folder / "shop.ndjson", features=features)
    assert log.schema.arms == ("red", "blue", "3", "green")
    assert log.schema.dim == 1 + 4 * 2
    assert join(log)["valid"][0].tolist() == [True, True, True, False]


def event(number: int, kind: str, **fields) -> str:
    return json.dumps(
        {"number": number, "time": f"2026-01-01T00:00:{number:02d}Z", "kind": kind, "key": None, **fields}
    )


def decided(number: int, arm: str, index: int, chance: float | None = None, preferred: str = "a", **request) -> str:
    return event(number, "decided", decision=f"d{number}", arm=arm, index=index, propensity=chance, preferred=preferred,
                 request={"context": {"x": number}, **request})  # fmt: skip


def test_arms_that_were_never_seen_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "log.ndjson"
    lines = [decided(1, "a", 0, 0.8), decided(2, "b", 1, 0.05), decided(3, "a", 0, 0.8),
             event(4, "rewarded", decision="d1", value=1.0, settled=True)]  # fmt: skip
    file.write_text("\n".join(lines))
    log = read(file)  # 1 - 4 * 0.05 = 0.8: there are five arms
    assert log.problems.count("arms never seen") == 1
    assert log.schema.propensities == "played arm"
    known = read(file, features={"arms": ["a", "b", "c", "d", "e"]})
    assert known.schema.propensities == "all arms"
    assert next(known.batches()).probabilities[0].tolist() == pytest.approx([0.8, 0.05, 0.05, 0.05, 0.05])


def test_refits_history_and_damage_are_followed(tmp_path: Path) -> None:
    file = tmp_path / "log.ndjson"
    other = {"features": {"arms": ["a", "c"]}}
    lines = [
        decided(1, "a", 0), decided(2, "b", 1),
        event(3, "refitted", settings=other, comparison={}), decided(4, "c", 1),
        event(5, "refit_undone", refit=3), decided(6, "b", 1),
        event(7, "configured", changes=other), decided(8, "c", 1),
        event(9, "history", rows=5, request={}), event(10, "lost", acknowledged=11), event(11, "archived"),
        event(12, "rewarded", decision="d1", value=1.0, settled=True),
        event(13, "rewarded", decision="other", value=1.0, settled=True),
        event(14, "closed", decisions=["d2", "d4"], learned=[0.0, None]),
        event(15, "late", decision="d4", value=0.25, sum=0.5), event(16, "late", decision="d2", value=1.0),
        event(17, "closed", decisions=["d6"], learned=[]), event(18, "rewarded", decision="d6", value="x"),
        json.dumps({"number": 19, "kind": "unreadable", "error": "is missing"}),
    ]  # fmt: skip
    file.write_text("\n".join(lines))
    log = read(file)
    (batch,) = log.batches()
    offers = [{log.schema.arms[place] for place in np.flatnonzero(row)} for row in batch.valid]
    assert offers == [{"a", "b"}, {"a", "b"}, {"a", "c"}, {"a", "b"}, {"a", "c"}]
    np.testing.assert_array_equal(batch.reward, [1.0, 0.0, 0.5, np.nan, np.nan])
    assert {problem.kind: problem.count for problem in log.problems} == {
        "history": 5, "lost events": 1, "reward without decision": 1, "late reward": 1, "malformed reward": 2,
        "unreadable event": 1,
    }  # fmt: skip
    assert not any(problem.is_dropped for problem in log.problems)


def test_held_rewards_count_when_their_decision_is_closed(tmp_path: Path) -> None:
    """Clicks that count at once, and misses that count at the timeout, would make all recent rewards clicks."""
    lines = []
    for i in range(4):
        event = {"number": 2 * i + 1, "time": i, "kind": "decided", "decision": f"d{i}", "arm": "ab"[i % 2],
                 "propensity": 0.5, "preferred": "a", "request": {"arms": ["a", "b"], "context": None}}  # fmt: skip
        lines += [event, {**event, "time": i + 0.5, "kind": "rewarded", "value": 1.0, "settled": False}]
    lines[3] = {"number": 20, "time": 10, "kind": "closed", "decisions": ["d0", "d1"], "learned": [1.0, 0.0]}
    lines[5] |= {"settled": True}
    (tmp_path / "log.ndjson").write_text("\n".join(map(json.dumps, lines)))
    rows = join(read(tmp_path / "log.ndjson"))
    np.testing.assert_array_equal(rows["reward"], [1.0, 0.0, 1.0, np.nan])
    np.testing.assert_array_equal(rows["reward_time"], [10.0, 10.0, 2.5, np.inf])
