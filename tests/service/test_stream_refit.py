"""Refits beside a running stream: compared, swapped in as an event, replayed exactly, undone."""

from __future__ import annotations

import json
import threading
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.server import Local, read_pointers, read_problem, run_local
from support.stores import verify
from windvane.agent import AgentCore
from windvane.agent.features import Features
from windvane.agent.refit import LogLearner, renew_settings
from windvane.service import refit as refits
from windvane.service.problems import Problem

SHOP: dict[str, Any] = {"by_arm": {"plan": ["free", "pro"]}, "arms": ["red", "blue"]}
MORE = {**SHOP, "arms": ["red", "blue", "green"]}
PATH = "/v1/streams/shop"


def play(service: Local, rounds: int, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        decision = service.decide(body={"context": {"plan": ["free", "pro"][rng.integers(2)]}})
        if rng.random() < 0.8:
            service.reward(decision["id"], float(rng.random() < {"red": 0.2, "blue": 0.7}.get(decision["arm"], 0.5)))


def pack_core(service: Local) -> bytes:
    return service.engine.streams["shop"].core.pack()()


def create(service: Local, **more: Any) -> None:
    body = {"name": "shop", "features": SHOP, "seed": 1, "epsilon": 0.3, **more}
    assert service.post("/v1/streams", body).status_code == 201


def post(service: Local, path: str, body: Any = None, **more: Any) -> dict[str, Any]:
    answer = service.post(f"{PATH}/{path}", body, **more)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_a_refit_gives_the_model_that_the_library_gives(service: Local) -> None:
    create(service)
    play(service, 40)
    core = service.engine.streams["shop"].core
    learner = LogLearner(AgentCore(**renew_settings(core, {"half_life": 50})), SHOP["arms"])
    log = service.events()
    for row in log:
        learner.learn(row, row["number"])
    dry = post(service, "refit?dry_run=true", {"half_life": 50})
    assert dry["event"] is None
    assert service.info()["settings"]["half_life"] is None
    report = post(service, "refit", {"half_life": 50})
    assert report == {**dry, "event": len(log) + 1}
    assert report["settings"] == {"half_life": 50}
    comparison = report["comparison"]
    assert comparison["decisions"] == 40
    assert comparison["outcomes"] == service.info()["counts"]["settled"]
    assert comparison["value"]["effective_sample_size"] > 5
    assert comparison["old"] != comparison["new"]
    assert pack_core(service) == learner.finish().pack()()
    assert service.info()["settings"]["half_life"] == 50
    event = service.events()[-1]
    assert (event["kind"], event["settings"], event["comparison"]) == ("refitted", {"half_life": 50}, comparison)
    play(service, 10, seed=1)


def test_an_undone_refit_leaves_the_model_that_never_had_it(service: Local) -> None:
    """It is the agent that was given the decisions and rewards of the log, and knows nothing of the refit."""
    create(service, reward_timeout=5, default_reward=0.0)
    core = AgentCore(**service.engine.streams["shop"].core.settings)
    play(service, 20)
    post(service, "refit", {"half_life": 10, "reward_timeout": 2})
    play(service, 20, seed=1)
    post(service, "refit/undo")
    events, is_undone = service.events(), False
    for row in events:
        at = datetime.fromisoformat(row["time"]).timestamp()
        is_undone = is_undone or row["kind"] == "refit_undone"
        if row["kind"] == "decided":
            offer = core.offer(None, row["request"]["context"])
            core.decide(offer, id=row["decision"], now=at, played=row["index"])
        elif row["kind"] in ("rewarded", "late"):  # what was late for the refit is in time for the model before it
            core.reward(row["decision"], row["value"], now=at)
        elif row["kind"] == "closed" and is_undone:  # in the background: those of before were closed by the refit
            core.expire(now=at, most=len(row["decisions"]))
    number, state = service.call(lambda: (service.engine.streams["shop"].number, pack_core(service)))
    if number > len(events):  # more were closed meanwhile
        core.expire(now=at)
    assert state == core.pack()()


def test_refits_are_undone_one_after_the_other(tmp_path: Path) -> None:
    with run_local(tmp_path / "a.db") as service:
        create(service, reward_timeout=5, default_reward=0.0)
        play(service, 20)
        post(service, "refit", {"policy": "BVD-GLM-UCB", "gamma": 0.99})
        assert service.info()["policy"] == "BVD-GLM-UCB"
        info = post(service, "refit/undo")
        assert info["policy"] == "AdaptiveGLMUCB"
        post(service, "refit", {"S": 3.0, "reward_timeout": 50})
        play(service, 15, seed=2)
        post(service, "refit", {"S": 2.0})
        assert service.info()["settings"]["S"] == 2.0
        assert post(service, "refit/undo")["settings"]["S"] == 3.0
        service.configure(epsilon=0.1)
        info = post(service, "refit/undo")
        assert info["settings"]["S"] is None
        assert info["settings"]["epsilon"] == 0.1  # changed after the refit
        assert info["settings"]["reward_timeout"] == 5
        assert info["counts"]["decisions"] == 35
        read_problem(service.post(f"{PATH}/refit/undo"), 409)
        play(service, 5, seed=3)
    assert verify(tmp_path / "a.db").is_sound


def test_a_replay_takes_time_in_proportion_to_refits_that_were_undone(
    service: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each undo replays the log before its refit. If that replayed other undos, each of them would double the time."""
    learned, learn = 0, LogLearner.learn

    def count(learner: LogLearner, row: Any, place: int) -> None:
        nonlocal learned
        learned += 1
        learn(learner, row, place)

    monkeypatch.setattr(LogLearner, "learn", count)
    create(service)
    play(service, 5)
    amounts = []
    for i in range(8):
        post(service, "refit", {"half_life": 10 + i})
        play(service, 1, seed=i)
        if i % 2:  # one within the other
            post(service, "refit", {"S": 2.0})
            service.configure(title=f"{i}", epsilon=0.2 + i / 100)
            post(service, "refit/undo")
        learned = 0
        post(service, "refit/undo")
        amounts.append(learned)
    assert max(amounts) < 100, amounts  # 58 now; without care 2,000
    assert service.info()["settings"]["half_life"] is None
    assert service.info()["settings"]["epsilon"] == 0.27
    learned, state = 0, service.state()
    assert service.replay() == state
    assert learned < 1000


def test_a_refit_that_is_cancelled_ends_its_thread(service: Local) -> None:
    create(service)
    play(service, 5)
    stream, work = service.engine.streams["shop"], refits.Work()
    reader = refits.begin_refit(stream, {"half_life": 10.0})(work)
    work.give_up()
    with pytest.raises(Problem, match="stopping"):
        reader.read(stream.number, work)
    service.engine.is_closing = True  # the server is about to end
    assert read_problem(service.post(f"{PATH}/refit", {"half_life": 10}), 503)["code"] == "unavailable"
    service.engine.is_closing = False
    post(service, "refit", {"half_life": 10})


@pytest.mark.parametrize(
    "settings",
    [{}, {"S": 2.0}, {"policy": "BVD-GLM-UCB", "drift": 1.0, "horizon": 1000}, {"policy": "D-LinUCB", "gamma": 0.9}],
)
def test_a_stream_is_the_same_as_declared_after_its_features_were_changed(
    service: Local, settings: dict[str, Any]
) -> None:
    """What changes with features, such as S, is no setting that anybody gave."""
    wider = {**MORE, "shared": {"hour": [0, 24]}}
    assert service.put(PATH, {"features": SHOP, **settings}).status_code == 201
    service.configure(features=wider)
    answer = service.put(PATH, {"features": wider, **settings})
    assert answer.status_code == 200, answer.text
    assert read_problem(service.put(PATH, {"features": SHOP, **settings}), 409)["code"] == "settings-differ"
    assert read_problem(service.put(PATH, {"features": wider, **settings, "S": 3.0}), 409)["code"] == "settings-differ"


def test_refits_survive_restarts_with_and_without_snapshots(tmp_path: Path) -> None:
    with run_local(tmp_path / "a.db") as service:
        create(service)
        play(service, 30)
        post(service, "refit", {"half_life": 50})
        play(service, 10, seed=1)
        before, number = service.state(), service.engine.streams["shop"].number
        assert service.replay() == before
    with run_local(tmp_path / "a.db") as service:  # from the snapshot of the stop
        assert service.state() == before
        assert service.engine.streams["shop"].number == number
        post(service, "refit/undo")
        play(service, 5, seed=2)
    report = verify(tmp_path / "a.db")
    assert report.is_sound, report


def test_a_refit_may_change_the_features(service: Local) -> None:
    create(service)
    play(service, 30)
    wider = {"by_arm": {"plan": ["free", "pro"], "age": [18, 99]}, "arms": ["blue", "green"]}
    report = post(service, "refit", {"features": wider})
    assert report["comparison"]["decisions"] == 30
    service.decide(body={"context": {"plan": "pro", "age": 30}})
    names = ["1", "blue: 1", "blue: plan = free", "blue: plan = pro", "blue: age"]
    assert list(service.info()["theta"])[:5] == names
    service.configure(features={**wider, "arms": ["blue"]})
    problem = read_problem(service.post(f"{PATH}/refit/undo"), 422)
    assert "features" in problem["detail"]


def test_features_change_by_patch_and_are_replayed(service: Local) -> None:
    create(service)
    play(service, 30)
    context = {"context": {"plan": "pro"}, "arms": ["red", "blue"]}
    before = post(service, "predict", context)["arms"]
    settings = service.configure(features=MORE)["settings"]
    assert settings["features"]["arms"] == MORE["arms"]
    after = post(service, "predict", context)["arms"]
    for old, new in zip(before, after, strict=True):
        assert new["prediction"] == pytest.approx(old["prediction"], rel=1e-9)
        assert new["bonus"] == pytest.approx(old["bonus"], rel=1e-9)
    assert [event["changes"]["features"] for event in service.events() if event["kind"] == "configured"] == [MORE]
    play(service, 10, seed=1)
    large = {"arms": [f"arm{i}" for i in range(600)]}
    assert read_pointers(service.patch(PATH, {"features": large})) == ["#/features"]
    assert read_pointers(service.patch(PATH, {"features": {"arms": "red"}})) == ["#/features/arms"]


def test_features_that_are_far_too_many_are_refused_before_they_are_named(
    service: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small body could declare a hundred million of them, and fill the memory."""
    create(service)
    monkeypatch.setattr(Features, "coordinates", property(lambda _: pytest.fail("they are named")))
    values, arms = [f"v{i}" for i in range(5000)], [f"arm{i}" for i in range(499)]
    for plan in (values, {"values": values}):
        for features in (
            {"by_arm": {"plan": plan}, "arms": arms},
            {"shared": {"plan": plan}},
            {"per_arm": {"p": plan}},
        ):
            for method, path in (("PATCH", PATH), ("POST", f"{PATH}/refit"), ("PUT", "/v1/streams/new")):
                assert read_pointers(service.request(method, path, json={"features": features})) == ["#/features"]
    monkeypatch.undo()


def test_decisions_go_on_while_a_refit_learns(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new model then catches up with them; a second refit must wait, and so must one that was overtaken."""
    create(service)
    play(service, 20)
    entered, released = threading.Event(), threading.Event()
    read = refits.LogReader.read

    def wait(reader: Any, last: int, work: Any) -> Any:
        learner = read(reader, last, work)
        entered.set()
        assert released.wait(30)
        return learner

    monkeypatch.setattr(refits.LogReader, "read", wait)
    answers: list[Any] = []

    def start(settings: dict[str, Any], **headers: str) -> threading.Thread:
        entered.clear()
        released.clear()
        send = partial(service.post, f"{PATH}/refit", settings, headers=headers)
        thread = threading.Thread(target=lambda: answers.append(send()))
        thread.start()
        assert entered.wait(30)
        return thread

    thread = start({"half_life": 40}, **{"Idempotency-Key": "first"})
    play(service, 10, seed=4)
    read_problem(service.post(f"{PATH}/refit", {"S": 2.0}), 409)
    again = service.post(f"{PATH}/refit", {"half_life": 40}, headers={"Idempotency-Key": "first"})
    assert read_problem(again, 503)["code"] == "unavailable"  # a client that got no answer repeats the request
    released.set()
    thread.join()
    assert answers[-1].json()["comparison"]["decisions"] == 30
    assert answers[-1].json()["event"] == len(service.events())
    again = service.post(f"{PATH}/refit", {"half_life": 40}, headers={"Idempotency-Key": "first"})
    assert again.json() == answers[-1].json()
    thread = start({"half_life": 20})
    service.configure(epsilon=0.5)
    released.set()
    thread.join()
    read_problem(answers[-1], 409)
    assert service.info()["settings"]["half_life"] == 40
    thread = start({"half_life": 10})
    service.archive()
    released.set()
    thread.join()
    assert read_problem(answers[-1], 409)["code"] == "archived"
    assert service.events()[-1]["kind"] == "archived"
    assert service.info()["settings"]["half_life"] == 40


def test_keys_and_refusals(service: Local) -> None:
    create(service)
    play(service, 10)
    key = {"headers": {"Idempotency-Key": "once"}}
    first = post(service, "refit", {"S": 2.0}, **key)
    assert post(service, "refit", {"S": 2.0}, **key) == first
    read_problem(service.post(f"{PATH}/refit", {"S": 3.0}, **key), 409)
    undo = {"headers": {"Idempotency-Key": "back"}}
    post(service, "refit/undo", **undo)
    post(service, "refit/undo", **undo)
    kinds = [event["kind"] for event in service.events()]
    assert (kinds.count("refitted"), kinds.count("refit_undone")) == (1, 1)
    number = len(kinds)
    assert read_pointers(service.post(f"{PATH}/refit", {"gamma": 2.0})) == ["#/gamma"]
    assert read_pointers(service.post(f"{PATH}/refit", {"settings": {"colour": 1}})) == ["#/settings/colour"]
    assert read_pointers(service.post(f"{PATH}/refit", {"features": {"arms": "red"}})) == ["#/features/arms"]
    problem = read_problem(service.post(f"{PATH}/refit", {"reward_range": [0.0, 0.5]}), 422)
    assert problem["detail"].startswith("`log[")  # and the number of the event
    assert problem["errors"] == []
    read_problem(service.post(f"{PATH}/refit?dry_run=maybe", {}), 422)
    assert len(service.events()) == number
    service.archive()
    read_problem(service.post(f"{PATH}/refit", {}), 409)
    assert json.loads(service.post(f"{PATH}/predict", {"context": {"plan": "pro"}}).text)["arms"]
