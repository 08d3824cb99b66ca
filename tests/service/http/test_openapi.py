"""The OpenAPI document: complete, valid, and kept: every answer is one that it describes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    negative_data_rejection,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from support.server import ARMS, Server, parse_json, run_command, serve
from windvane.records import KEY, STREAM_NAME

STREAM = "/v1/streams/{stream}"
DECISION = f"{STREAM}/decisions/{{decision}}"
OPERATIONS = {
    ("GET", "/healthz"): "getHealth",
    ("GET", "/readyz"): "getReadiness",
    ("GET", "/metrics"): "getMetrics",
    ("GET", "/v1/cluster"): "getCluster",
    ("GET", "/v1/streams"): "listStreams",
    ("POST", "/v1/streams"): "createStream",
    ("GET", STREAM): "getStream",
    ("PUT", STREAM): "ensureStream",
    ("PATCH", STREAM): "updateStream",
    ("DELETE", STREAM): "deleteStream",
    ("POST", f"{STREAM}/archive"): "archiveStream",
    ("POST", f"{STREAM}/unarchive"): "unarchiveStream",
    ("POST", f"{STREAM}/compact"): "compactStream",
    ("DELETE", f"{STREAM}/decisions/{{decision}}/context"): "deleteContext",
    ("GET", f"{STREAM}/charts"): "getCharts",
    ("GET", f"{STREAM}/events"): "exportEvents",
    ("GET", f"{STREAM}/live"): "followStream",
    ("POST", f"{STREAM}/history"): "learnHistory",
    ("GET", f"{STREAM}/pending"): "listPending",
    ("POST", f"{STREAM}/decisions"): "decide",
    ("POST", f"{STREAM}/refit"): "refitStream",
    ("POST", f"{STREAM}/refit/undo"): "undoRefit",
    ("POST", f"{STREAM}/predict"): "predict",
    ("POST", f"{STREAM}/rank"): "rank",
    ("POST", f"{STREAM}/decisions/batch"): "decideBatch",
    ("POST", f"{STREAM}/rewards/batch"): "setRewards",
    ("GET", DECISION): "getDecision",
    ("GET", f"{DECISION}/explanation"): "explainDecision",
    ("PUT", f"{DECISION}/reward"): "setReward",
    ("POST", f"{DECISION}/rewards"): "addReward",
}
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
    response_headers_conformance,
]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server; in the end it must still answer, and its store must be sound."""
    path = tmp_path_factory.mktemp("openapi") / "a.db"
    server = serve(path)
    yield server
    with server.client() as client:
        assert client.get("/readyz").status_code == 200
    server.stop()
    assert json.loads(run_command("verify", "--json", "--store", path).stdout)["sound"]


@pytest.fixture(scope="module")
def document(server: Server) -> Any:
    document = schemathesis.openapi.from_url(f"{server.address}/openapi.json")
    document.validate()
    return document


def test_the_document_is_complete(server: Server) -> None:
    with server.client() as client:
        text = client.get("/openapi.json").text
    document = parse_json(text)
    assert document["openapi"].startswith("3.1")
    assert document["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
    assert document["security"] == [{"token": []}, {}]
    operations = {(m.upper(), path): op for path, ops in document["paths"].items() for m, op in ops.items()}
    assert {place: operation["operationId"] for place, operation in operations.items()} == OPERATIONS
    # A new pattern needs words for those who break it: see windvane.service.problems.
    assert set(re.findall(r'"pattern":("(?:[^"\\]|\\.)*")', text)) == {json.dumps(STREAM_NAME), json.dumps(KEY)}
    for reference in {part.split('"')[0] for part in text.split('"$ref":"')[1:]}:
        place: Any = document
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
    for (method, path), operation in operations.items():
        assert operation["description"]
        assert operation["tags"]
        statuses = set(operation["responses"])
        successes = statuses & {"200", "201", "204"}
        assert len(successes) == (2 if operation["operationId"] == "ensureStream" else 1)
        for success in successes:
            assert ("content" in operation["responses"][success]) == (success != "204")
            for content in operation["responses"][success].get("content", {}).values():
                assert content["schema"]  # every answer is typed
        if path != "/healthz":
            assert {"401", "403", "429", "500", "503"} <= statuses
        assert "404" in statuses or "{stream}" not in path or operation["operationId"] == "ensureStream"
        if method != "GET":
            assert {"408", "413", "415", "422"} <= statuses
        if "201" in successes:
            assert "Location" in operation["responses"]["201"]["headers"]
        if path.endswith(("decisions", "rewards", "history")):
            assert "idempotency-key" in {parameter["name"] for parameter in operation["parameters"]}
    schemas = document["components"]["schemas"]
    assert schemas["NewStream"]["properties"]["policy"]["default"] == "adaptive"
    assert all(schemas[name]["additionalProperties"] is False for name in ("NewStream", "DecisionRequest", "History"))
    assert not {name for name in schemas if "Validation" in name}


@pytest.mark.parametrize(("verb", "path"), OPERATIONS, ids=str)
def test_every_answer_is_one_that_the_document_describes(server: Server, document: Any, verb: str, path: str) -> None:
    """Requests that fit the document, and requests that do not."""
    name = f"fuzz-{OPERATIONS[verb, path]}"
    with server.client() as client:  # vectors of one number, whatever it is: many of those generated fit
        assert client.post("/v1/streams", json={"name": name, "dim": 1, "clip": True}).status_code == 201
    operation, has_body = (
        document[path][verb],
        verb in ("POST", "PUT", "PATCH") and not path.endswith(("archive", "compact")),
    )
    places = {"stream": "none" if path.endswith("live") else name, "decision": "x"}
    known = {"path_parameters": {key: value for key, value in places.items() if key in path}} if "{" in path else {}
    for mode in GenerationMode:
        if mode is GenerationMode.NEGATIVE and not has_body:
            continue
        is_refused = mode is GenerationMode.NEGATIVE and not path.endswith("batch")  # whose items are, one by one
        checks = [*CHECKS, negative_data_rejection] if is_refused else CHECKS

        @given(case=operation.as_strategy(mode, **known))
        @settings(max_examples=15, suppress_health_check=list(HealthCheck), database=None, deadline=None)
        def ask(case: Any) -> None:
            case.call_and_validate(base_url=server.address, checks=checks, timeout=30)

        ask()


def test_the_answers_of_a_streams_life_fit_the_document(server: Server, document: Any) -> None:
    """Every success, and every refusal that depends on what happened before."""
    decision = "x"

    def ask(verb: str, path: str, status: int, body: Any = None, **more: Any) -> Any:
        places = {key: value for key, value in {"stream": "life", "decision": decision}.items() if key in path}
        sent = {} if body is None else {"body": body, "media_type": "application/json"}
        case = document[path][verb].Case(path_parameters=places if "{" in path else {}, **sent, **more)
        answer = case.call_and_validate(base_url=server.address, checks=CHECKS, timeout=30)
        assert answer.status_code == status, answer.text
        return answer.json() if verb != "GET" else None

    parts = {"reward_timeout": 2, "link": "identity", "learn": "at_timeout"}
    settings = {"name": "life", "dim": 2, "epsilon": 0.5, **parts}
    ask("POST", "/v1/streams", 201, settings)
    ask("POST", "/v1/streams", 409, settings)
    same = {name: value for name, value in settings.items() if name != "name"}
    ask("PUT", STREAM, 200, same)
    ask("PUT", STREAM, 409, {**same, "dim": 3})
    key = {"headers": {"Idempotency-Key": "k"}}
    decision = ask("POST", f"{STREAM}/decisions", 201, ARMS, **key)["id"]
    ask("POST", f"{STREAM}/decisions", 409, {"arms": [[0.1, 0.1]]}, **key)
    for status, value in ((200, 1.0), (200, 1.0), (409, 0.0)):
        ask("PUT", f"{DECISION}/reward", status, {"value": value})
    decision = ask("POST", f"{STREAM}/decisions", 201, {"arms": [[0.1, 0.1]]})["id"]
    ask("POST", f"{DECISION}/rewards", 200, {"value": 0.5})
    wrong = {"arms": {"x": [9, 9]}}
    results = ask("POST", f"{STREAM}/decisions/batch", 200, {"decisions": [*[ARMS] * 4, wrong]})["results"]
    assert [result["status"] for result in results] == [201] * 4 + [422]
    late = {"rewards": [{"decision": results[0]["decision"]["id"], "value": 1.0}]}
    assert ask("POST", f"{STREAM}/rewards/batch", 200, late)["results"][0]["receipt"]["status"] == "expired"
    ask("POST", f"{STREAM}/history", 200, {"rewards": [1.0], "vectors": [[0.1, 0.2]]})
    ask("PATCH", STREAM, 200, {"title": "x"})
    reads = (STREAM, DECISION, f"{DECISION}/explanation", f"{STREAM}/events", f"{STREAM}/charts", f"{STREAM}/pending")
    for path in (*reads, "/v1/streams", "/metrics", "/readyz"):
        ask("GET", path, 200)
    ask("GET", f"{STREAM}/events", 200, query={"format": "parquet"})
    ask("POST", f"{STREAM}/archive", 200)
    ask("POST", f"{STREAM}/decisions", 409, ARMS)
    decision = "nobody"
    ask("PUT", f"{DECISION}/reward", 409, {"value": 1.0})
    ask("GET", DECISION, 404)
