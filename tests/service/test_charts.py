"""Charts: derived from the log, equal to those of operations, with every outcome in the bucket of its decision."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from support.server import ARMS, Local, run_local, serve, until
from windvane.records import to_plain
from windvane.service import charts as module
from windvane.service import engine
from windvane.service.charts import MAX_ARMS, MAX_COUNTED, READ_AT_ONCE, RECENT, Charts
from windvane.service.store import CLOSED, DECIDED, LATE, REWARD_PART, REWARDED, Event


class Log:
    """Makes events, and the charts of them."""

    def __init__(self) -> None:
        self.charts, self.events = Charts(), list[Event]()

    def add(self, kind: int, decision: str | None = None, **outcome: Any) -> None:
        number = len(self.events) + 1
        event = Event(1, number, float(number), kind, decision, None, json.dumps(outcome).encode())
        self.events.append(event)
        self.charts.add(event)

    def decide(self, *ids: Any, arm: Any = "red", prediction: float = 0.5, projected: bool | None = None) -> None:
        for id_ in map(str, ids):
            self.add(DECIDED, id_, id=id_, time="", arm=arm, prediction=prediction, projected=projected)

    def expire(self, learned: dict[str, float | None], **more: int) -> None:
        self.add(CLOSED, decisions=list(learned), learned=list(learned.values()), **more)

    @property
    def document(self) -> dict[str, Any]:
        return dict(to_plain(self.charts.data))


def read_column(document: dict[str, Any], name: str) -> list[Any]:
    return [bucket[name] for bucket in document["buckets"]]


def test_an_outcome_belongs_to_the_bucket_of_its_decision() -> None:
    log = Log()
    log.decide(*range(25))
    log.add(REWARDED, "3", value=1.0, settled=True)
    log.add(REWARDED, "12", value=0.5, settled=False)  # it is held
    assert read_column(log.document, "settled") == [1, 0, 0]
    log.expire({"1": 0.0, "12": 0.5, "13": None})
    log.add(LATE, "13", value=1.0)
    document = log.document
    assert read_column(document, "decisions") == [10, 10, 5]
    assert read_column(document, "settled") == [2, 1, 0]
    assert read_column(document, "total") == [1.0, 0.5, 0.0]
    assert document["buckets"][0]["arms"]["red"] == {"decisions": 10, "predicted": 5.0, "settled": 2, "realised": 1.0}
    assert document["buckets"][0]["since"] == "1970-01-01T00:00:01.000000Z"
    assert document["buckets"][0]["until"] == "1970-01-01T00:00:10.000000Z"


def test_recent_decisions_and_what_became_of_them() -> None:
    log = Log()
    log.decide(*range(RECENT + 5))
    for id_, value in (("0", 1.0), ("5", 0.25)):
        log.add(REWARDED, id_, value=value, settled=False)
    log.add(REWARD_PART, "6", value=0.25, sum=0.25)
    log.add(REWARD_PART, "6", value=0.25, sum=0.5)
    log.expire({"0": 1.0, "5": 0.25, "7": 0.0, "8": None, "9": None}, dropped=1)
    recent = {row["id"]: (row["status"], row["reward"]) for row in log.document["recent"]}
    assert list(recent) == [str(i) for i in range(5, RECENT + 5)]
    assert [recent[id_] for id_ in "56789"] == [
        ("rewarded", 0.25), ("rewarded", 0.5), ("expired", 0.0), ("expired", None), ("dropped", None)
    ]  # fmt: skip
    assert recent["10"] == ("pending", None)


def test_buckets_double_their_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outcomes that come after a merge still find the bucket of their decision."""
    monkeypatch.setattr(module, "MAX_BUCKETS", 4)
    log = Log()
    for i in range(100):
        log.decide(i, arm="red" if i < 30 else "blue", prediction=1.0, projected=None if i < 40 else i % 2 == 0)
    log.expire({str(i): 1.0 for i in (0, 35, 79, 80, 99)})
    document = log.document
    assert document["width"] == 40
    assert read_column(document, "decisions") == [40, 40, 20]
    assert read_column(document, "settled") == [2, 1, 2]
    assert read_column(document, "projected") == [None, 20, 10]
    assert [bucket["arms"]["blue"]["settled"] for bucket in document["buckets"]] == [1, 1, 2]
    assert document["buckets"][0]["arms"]["red"]["predicted"] == 30.0
    assert document["arms"] == {"red": 30, "blue": 70}


def test_arms_that_are_played_later_are_counted_too() -> None:
    """A catalogue may change for ever: the arms played longest ago are dropped."""
    log = Log()
    for i in range(MAX_COUNTED + 50):
        log.decide(i, arm=f"old {i}")
    log.decide(*range(5000, 5030), arm="new")
    document = log.document
    assert document["arms"]["new"] == 30
    assert len(document["arms"]) == MAX_COUNTED
    assert sum(document["arms"].values()) + document["others"] == MAX_COUNTED + 80
    assert "old 0" not in document["arms"]


def test_a_bucket_lists_the_arms_played_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_WIDTH", 30)
    log = Log()
    for i in range(30):
        log.decide(i, arm=str(min(i, 19)))  # arm 19 is played 11 times, the others once
    log.decide("next")
    (bucket, _) = log.document["buckets"]
    assert len(bucket["arms"]) == MAX_ARMS
    assert bucket["arms"]["19"]["decisions"] == 11
    assert sum(arm["decisions"] for arm in bucket["arms"].values()) + bucket["others"] == 30
    log.expire({"18": 1.0, "19": 1.0})  # of an arm that is not listed, and of one that is
    assert log.document["buckets"][0]["total"] == 2.0


def live(service: Local, rounds: Iterable[int]) -> None:
    for i in rounds:
        decision = service.decide()["id"]
        if i % 3 == 0:
            service.reward(decision, 1.0)
        elif i % 3 == 1 and i % 2 and service.info()["learn"] == "at_timeout":
            service.add_reward(decision, 0.5)


def read_charts(service: Local) -> dict[str, Any]:
    answer = service.get("/v1/streams/shop/charts")
    assert answer.status_code == 200
    return dict(answer.json())


def strip(charts: dict[str, Any]) -> dict[str, Any]:
    """Charts without the numbers of the model, which are known only for buckets opened while the server runs."""
    return {**charts, "buckets": [{**bucket, "model": None} for bucket in charts["buckets"]]}


@pytest.mark.parametrize("end", ["crash", "stop"])
@pytest.mark.parametrize("settings", [{"reward_timeout": 4, "default_reward": 0.0}, {"max_pending": 3}])
def test_charts_after_a_restart_are_those_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, settings: dict[str, Any]
) -> None:
    monkeypatch.setattr(module, "MAX_BUCKETS", 4)
    monkeypatch.setattr(engine, "TICK", 0.02)
    service = Local(tmp_path / "a.db")
    service.create(**settings)
    live(service, range(64))  # the last operation is a reward, which closes what has expired
    before = until(lambda: (charts := read_charts(service))["buckets"][-1]["model"] and charts)
    assert before["buckets"][-1]["model"].keys() == {"norm", "memory", "rate"}
    getattr(service, end)()
    monkeypatch.setattr(engine, "TICK", 1e9)  # or the last bucket might get numbers of the model
    with run_local(tmp_path / "a.db") as again:
        assert until(lambda: (charts := read_charts(again))["buckets"] and charts) == strip(before)
    monkeypatch.setattr(engine, "TICK", 0.02)
    with run_local(tmp_path / "a.db") as again:
        live(again, range(64, 91))  # again with a reward at the end
        grown = until(lambda: (charts := read_charts(again))["buckets"][-1]["model"] and charts)
        assert sum(read_column(grown, "decisions")) == 91
        assert sum(read_column(grown, "settled")) == again.info()["counts"]["settled"]


def test_operations_go_on_while_the_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with run_local(tmp_path / "a.db") as service:
        service.create(reward_timeout=4, default_reward=0.0)
        live(service, range(40))
    read, go = Charts.read, threading.Event()
    monkeypatch.setattr(Charts, "read", lambda *arguments: go.wait(30) and read(*arguments))
    with run_local(tmp_path / "a.db") as service:
        live(service, range(40, 60))
        go.set()
        charts = until(lambda: (charts := read_charts(service))["buckets"] and charts)
        assert sum(read_column(charts, "decisions")) == 60
        last = service.decide(body=ARMS)["id"]
        assert read_charts(service)["recent"][-1]["id"] == last


def test_a_log_that_cannot_be_charted_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with run_local(tmp_path / "a.db") as service:
        service.create()
        live(service, range(3))
    monkeypatch.setattr(Charts, "read", lambda *_: 1 / 0)
    with run_local(tmp_path / "a.db") as service:
        live(service, range(3))
        assert read_charts(service)["buckets"] == []


@pytest.mark.sqlite
def test_whoever_follows_a_stream_gets_all_of_its_charts(tmp_path: Path) -> None:
    """Although they are read in parts, and nothing happens meanwhile."""
    server = serve(tmp_path / "a.db")
    try:
        with server.client() as client:
            client.post("/v1/streams", json={"name": "shop", "dim": 2})
            decided = 0
            while decided <= 2 * READ_AT_ONCE:
                client.post("/v1/streams/shop/decisions/batch", json={"decisions": [ARMS] * 1000})
                decided += 1000
            with client.stream("GET", "/v1/streams/shop/live") as live:
                for line in live.iter_lines():
                    assert not line.startswith(":"), "idle, with charts that lack events"
                    if line.startswith("data: "):
                        charts = json.loads(line.removeprefix("data: "))["charts"]
                        if sum(read_column(charts, "decisions")) == decided:
                            break
    finally:
        assert server.stop() == 0
