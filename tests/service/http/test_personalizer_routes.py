"""The routes of the Personalizer API, as its clients use them."""

from __future__ import annotations

import http.client
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.server import Local, run_command, run_local, run_server
from windvane.client import Client

RANK = "/personalizer/v1.0/rank"
FEATURES = {
    "shared": {"timeOfDay": ["Morning", "Evening", "other"], "user.age": (0, 100)},
    "per_arm": {"type": ["News", "Sports", "Entertainment"], "length": (0, 10)},
}
ACTIONS = [
    {"id": f"{kind}Article", "features": [{"type": kind}, {"length": 3}]} for kind in FEATURES["per_arm"]["type"]
]
REQUEST: dict[str, Any] = {
    "contextFeatures": [{"timeOfDay": "Morning"}, {"user": {"age": 30, "name": "Anna"}}],
    "actions": ACTIONS,
    "excludedActions": ["SportsArticle"],
    "eventId": "75269AD0-BFEE-4598-8196-C57383D38E10",
    "deferActivation": False,
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Local]:
    with run_local(tmp_path / "a.db", personalizer="homepage") as service:
        service.create("homepage", features=FEATURES, epsilon=0.3, reward_timeout="1h")
        yield service


def rank(service: Local, **changes: Any) -> dict[str, Any]:
    answer = service.post(RANK, {**REQUEST, **changes})
    assert answer.status_code == 201, answer.text
    result: dict[str, Any] = answer.json()
    return result


def reward(service: Local, event: str, value: Any) -> httpx2.Response:
    return service.post(f"/personalizer/v1.0/events/{event}/reward", {"value": value})


def read_error(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """Return the error of an answer, in the form of that API."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    document = answer.json()
    assert set(document) == {"error"}
    error: dict[str, Any] = document["error"]
    assert error["code"] == code
    assert error["message"]
    return error


# --- rank ------------------------------------------------------------------------------------------------------------


def test_a_ranking_has_the_form_of_the_reference(service: Local) -> None:
    """All actions, the chosen one first; the excluded one in its place, with probability 0."""
    answer = rank(service)
    assert set(answer) == {"ranking", "eventId", "rewardActionId"}
    assert answer["eventId"] == REQUEST["eventId"]
    first, excluded, last = answer["ranking"]
    assert excluded == {"id": "SportsArticle", "probability": 0.0}
    assert answer["rewardActionId"] == first["id"]
    assert {first["id"], last["id"]} == {"NewsArticle", "EntertainmentArticle"}
    assert sorted([first["probability"], last["probability"]]) == pytest.approx([0.15, 0.85])


def test_probabilities_are_those_of_the_choice(service: Local) -> None:
    """Of many choices, each action has its share."""
    service.configure("homepage", epsilon=0.5)
    chosen: list[str] = []
    for _ in range(300):
        answer = rank(service, eventId=None, excludedActions=None)
        chances = {action["id"]: action["probability"] for action in answer["ranking"]}
        assert sum(chances.values()) == pytest.approx(1.0)
        assert sorted(chances.values()) == pytest.approx([1 / 6, 1 / 6, 2 / 3])
        chosen.append(max(chances, key=lambda arm: chances[arm]) == answer["rewardActionId"])
    assert 0.55 < sum(chosen) / 300 < 0.78  # 2/3, at least four standard errors away


def test_without_exploration_the_choice_is_certain(service: Local) -> None:
    service.configure("homepage", epsilon=0.0)
    assert [action["probability"] for action in rank(service)["ranking"]] == [1.0, 0.0, 0.0]


def test_an_event_is_a_decision_with_its_id(service: Local) -> None:
    answer = rank(service)
    record = service.get(f"/v1/streams/homepage/decisions/{REQUEST['eventId']}").json()
    assert record["decision"]["arm"] == answer["rewardActionId"]
    (event,) = service.events("homepage")
    assert event["request"]["context"] == {"timeOfDay": "Morning", "user.age": 30}
    assert event["request"]["arms"] == {
        f"{kind}Article": {"type": kind, "length": 3} for kind in ("News", "Entertainment")
    }


def test_without_an_event_id_the_service_makes_one(service: Local) -> None:
    first, second = (rank(service, eventId=None)["eventId"] for _ in range(2))
    assert first != second
    assert reward(service, first, 1.0).status_code == 204


def test_a_repeated_request_gets_the_same_answer(service: Local) -> None:
    assert rank(service) == rank(service)
    assert service.info("homepage")["counts"]["decisions"] == 1


def test_an_event_id_cannot_be_used_for_another_request(service: Local) -> None:
    rank(service)
    read_error(service.post(RANK, {**REQUEST, "excludedActions": []}), 400, "BadRequest")
    body = {"arms": {"a": {"type": "News", "length": 1}}, "context": {"timeOfDay": "other", "user.age": 3}}
    other = service.decide("homepage", body)
    read_error(service.post(RANK, {**REQUEST, "eventId": other["id"]}), 400, "BadRequest")
    assert service.info("homepage")["counts"]["decisions"] == 2


def test_features_that_are_missing_or_unknown(service: Local) -> None:
    """The middle of the range, and "other"; fields that are not declared, nulls and names with _ are left out."""
    contexts = [{"timeOfDay": "Noon", "weather": {"wind": [1, 2]}, "_id": "anna", "user": {"age": None, "_age": 3}}]
    actions = [
        {"id": "a", "features": [{"type": "News", "grams": [400, 800]}]},
        {"id": "b", "features": ACTIONS[0]["features"]},
    ]
    rank(service, contextFeatures=contexts, actions=actions)
    (event,) = service.events("homepage")
    assert event["request"]["context"] == {"timeOfDay": "other", "user.age": 50.0}
    assert event["request"]["arms"] == {"a": {"type": "News", "length": 5.0}, "b": {"type": "News", "length": 3}}
    error = read_error(service.post(RANK, {**REQUEST, "eventId": None, "actions": [{"id": "a"}]}), 400, "BadRequest")
    assert error["target"] == "#/actions/0/features/type"
    assert "'other'" in error["message"]


def test_numbers_in_arrays_and_flags_are_fields(service: Local) -> None:
    service.create("kitchen", features={"per_arm": {"grams.1": (0, 1000), "drink": (0, 1), "hot": ["true", "false"]}})
    actions = [{"id": "juice", "features": [{"grams": [300, 600], "drink": True, "hot": False}]}]
    answer = service.post(f"/v1/streams/kitchen{RANK}", {"actions": actions})
    assert answer.status_code == 201, answer.text
    (event,) = service.events("kitchen")
    assert event["request"]["arms"] == {"juice": {"grams.1": 600, "drink": 1.0, "hot": "false"}}


def test_declared_arms_need_no_features(service: Local) -> None:
    service.create("menu", features={"arms": ["tea", "juice"], "by_arm": {"hour": (0, 24)}})
    body = {"actions": [{"id": "tea", "features": []}, {"id": "juice"}], "contextFeatures": [{"hour": 8}]}
    assert service.post(f"/v1/streams/menu{RANK}", body).status_code == 201
    read_error(service.post(f"/v1/streams/menu{RANK}", {"actions": [{"id": "beer"}]}), 400, "BadRequest")


@pytest.mark.parametrize(
    ("changes", "target"),
    [
        ({"actions": []}, "#/actions"), ({"actions": None}, "#/actions"),
        ({"actions": [{"features": []}]}, "#/actions/0/id"),
        ({"actions": [{"id": "a"}, {"id": "a"}]}, "#/actions"), ({"eventId": ""}, "#/eventId"),
        ({"eventId": "x" * 201}, "#/eventId"), ({"eventId": 7}, "#/eventId"),
        ({"excludedActions": [action["id"] for action in ACTIONS]}, "#/excludedActions"),
        ({"contextFeatures": "Morning"}, "#/contextFeatures"),
        ({"contextFeatures": [{"user": {"age": "old"}}]}, "#/contextFeatures/user.age"),
    ],
)  # fmt: skip
def test_bad_requests(service: Local, changes: dict[str, Any], target: str) -> None:
    error = read_error(service.post(RANK, {**REQUEST, **changes}), 400, "BadRequest")
    assert error["target"] == target
    assert service.events("homepage") == []


def test_other_errors_have_the_form_of_that_api(service: Local) -> None:
    read_error(
        service.request("POST", RANK, content=b"{", headers={"content-type": "application/json"}), 400, "BadRequest"
    )
    read_error(service.request("POST", RANK, content=b"{}", headers={"content-type": "text/plain"}), 400, "BadRequest")
    read_error(service.get(RANK), 405, "405")
    read_error(service.get("/personalizer/v1.0/configurations/service"), 404, "ResourceNotFound")
    read_error(service.post(f"/v1/streams/nothing{RANK}", REQUEST), 404, "ResourceNotFound")
    service.create("vectors")
    read_error(service.post(f"/v1/streams/vectors{RANK}", REQUEST), 400, "BadRequest")
    deep: Any = 1
    for _ in range(30):
        deep = {"a": deep}
    read_error(service.post(RANK, {**REQUEST, "contextFeatures": [deep]}), 400, "BadRequest")


def test_a_failure_says_nothing_about_the_inside(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(service.engine.operations, "carry_out", fail)
    error = read_error(service.post(RANK, REQUEST), 500, "InternalServerError")
    assert "secret" not in json.dumps(error)


# --- rewards and activation -------------------------------------------------------------------------------------------


def test_the_first_reward_counts(service: Local) -> None:
    event = rank(service)["eventId"]
    for value in (1.0, 1.0, 0.0):
        answer = reward(service, event, value)
        assert (answer.status_code, answer.content) == (204, b"")
    record = service.get(f"/v1/streams/homepage/decisions/{event}").json()
    assert record["reward"] == 1.0
    assert service.info("homepage")["counts"]["rewards"] == 1


def test_a_late_reward_is_accepted_and_not_learned(service: Local) -> None:
    service.configure("homepage", reward_timeout=1)
    event = rank(service)["eventId"]
    for _ in range(3):
        rank(service, eventId=None)
    assert reward(service, event, 1.0).status_code == 204
    counts = service.info("homepage")["counts"]
    assert (counts["rewards"], counts["settled"], counts["expired"] >= 1) == (0, 0, True)


@pytest.mark.parametrize("value", [1.5, -0.1, "1", None, True])
def test_bad_rewards(service: Local, value: Any) -> None:
    event = rank(service)["eventId"]
    read_error(reward(service, event, value), 400, "BadRequest")


def test_unknown_events(service: Local) -> None:
    read_error(reward(service, "nothing", 1.0), 404, "ResourceNotFound")
    read_error(service.post("/personalizer/v1.0/events/nothing/activate"), 404, "ResourceNotFound")


def test_deferred_activation(service: Local) -> None:
    """Without a default reward, an event that nobody saw is never learned."""
    event = rank(service, deferActivation=True)["eventId"]
    answer = service.post(f"/personalizer/v1.0/events/{event}/activate")
    assert (answer.status_code, answer.content) == (204, b"")
    service.configure("homepage", default_reward=0.0)
    error = read_error(service.post(RANK, {**REQUEST, "eventId": "x", "deferActivation": True}), 400, "BadRequest")
    assert error["target"] == "#/deferActivation"


# --- the service around it --------------------------------------------------------------------------------------------


def test_without_the_option_there_are_no_such_routes(tmp_path: Path) -> None:
    with run_local(tmp_path / "a.db") as service:
        service.create("homepage", features=FEATURES)
        for path in (RANK, f"/v1/streams/homepage{RANK}"):
            assert service.post(path, REQUEST).status_code == 404
        assert not any("personalizer" in path for path in service.get("/openapi.json").json()["paths"])


@pytest.mark.sqlite
def test_the_routes_are_documented(service: Local) -> None:
    paths = service.get("/openapi.json").json()["paths"]
    own = {
        path.partition(RANK[:-5])[2]: operations["post"] for path, operations in paths.items() if "personalizer" in path
    }
    assert own.keys() == {"/rank", "/events/{event}/reward", "/events/{event}/activate"}
    assert set(own["/rank"]["responses"]) == {"201", "default"}


@pytest.mark.sqlite
def test_end_to_end_with_plain_http(tmp_path: Path) -> None:
    """A team's client as it was: its key, its JSON, its errors. After a restart, a reward still finds its event."""
    store = tmp_path / "windvane.db"
    token = json.loads(run_command("token", "add", "site", "--store", store, "--json").stdout)["token"]

    def send(address: str, path: str, body: Any, key: str = token) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=30.0)
        headers = {"Ocp-Apim-Subscription-Key": key, "Content-Type": "application/json; charset=utf-8"}
        connection.request("POST", f"/personalizer/v1.0{path}", json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, json.loads(content) if content else None

    events = [str(uuid.uuid4()) for _ in range(20)]
    with run_server(store, "--personalizer", "homepage") as server:
        with Client(server.address, token) as client:
            client.create("homepage", features=FEATURES, epsilon=0.1, reward_timeout="1h", default_reward=0.0)
        for event in events:
            status, answer = send(server.address, "/rank", {**REQUEST, "eventId": event})
            assert (status, answer["eventId"]) == (201, event)
            if answer["rewardActionId"] == "NewsArticle":
                assert send(server.address, f"/events/{event}/reward", {"value": 1}) == (204, None)
        status, answer = send(server.address, "/rank", REQUEST, key="wrong")
        assert (status, answer["error"]["code"]) == (401, "401")
        assert send(server.address, f"/events/{events[0]}/activate", None) == (204, None)
    with run_server(store, "--personalizer", "homepage") as server:
        status, answer = send(server.address, "/rank", {**REQUEST, "eventId": events[0]})
        assert (status, answer["eventId"]) == (201, events[0])
        assert send(server.address, f"/events/{events[0]}/reward", {"value": 1})[0] == 204
        with Client(server.address, token) as client:
            assert client.info("homepage").counts.decisions == len(events)
