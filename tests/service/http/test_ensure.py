"""PUT of a stream: created, there already, or there with other settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.server import Local, read_problem, run_local

SHOP = "/v1/streams/shop"
SETTINGS = {"dim": 2, "reward_timeout": "1h", "default_reward": 0, "policy": "OnePassGLM", "half_life": "2d"}


def test_created_and_found_again(service: Local) -> None:
    first = service.put(SHOP, SETTINGS)
    assert (first.status_code, first.headers["location"]) == (201, SHOP)
    again = service.put(SHOP, SETTINGS)
    assert (again.status_code, "location" in again.headers) == (200, False)
    assert again.json() == first.json()
    assert service.events() == []
    assert read_problem(service.put("/v1/streams/a%20b", SETTINGS), 422)["errors"][0]["pointer"] == "#/name"
    wrong = read_problem(service.put("/v1/streams/new", {"dim": 2, "settings": {"lam": -1.0}, "policy": "OFUL"}), 422)
    assert wrong["errors"][0]["pointer"] == "#/settings/lam"
    assert read_problem(service.put("/v1/streams/new", {"name": "new", "dim": 2}), 422)["code"] == "invalid"


SAME: list[dict[str, Any]] = [
    {"reward_timeout": "60m"},
    {"reward_timeout": "3600s", "half_life": "48h"},
    {"default_reward": 0.0, "learn": "at_timeout", "epsilon": 0},  # what is not given has its default
    {"policy": "OnePassGLM", "settings": {"delta": 0.05}},
    {"link": "logistic", "max_pending": 100_000, "S": None, "seed": None},
]
OTHER: list[tuple[dict[str, Any], list[str]]] = [
    ({"dim": 3}, ["#/dim"]),
    ({"reward_timeout": "61m"}, ["#/reward_timeout"]),
    ({"reward_timeout": 3600}, ["#/reward_timeout"]),  # decisions
    ({"half_life": "1d", "epsilon": 0.1}, ["#/half_life", "#/epsilon"]),
    ({"learn": "on_arrival"}, ["#/learn"]),
    ({"settings": {"delta": 0.5}}, ["#/settings/delta"]),
    ({"seed": 1}, ["#/seed"]),
    ({"title": "Shop"}, ["#/title"]),
    ({"default_reward": None}, ["#/default_reward"]),  # and not `learn`, whose default depends on it
    ({"policy": "adaptive"}, ["#/policy"]),  # and not its S or its other settings
    ({"policy": "adaptive", "S": 2.0}, ["#/policy", "#/S"]),
]


@pytest.fixture
def shop(service: Local) -> Local:
    assert service.put(SHOP, SETTINGS).status_code == 201
    return service


def test_settings_that_mean_the_same(shop: Local) -> None:
    for change in SAME:
        assert shop.put(SHOP, SETTINGS | change).status_code == 200, change


def test_other_settings_are_named(shop: Local) -> None:
    for change, pointers in OTHER:
        problem = read_problem(shop.put(SHOP, SETTINGS | change), 409)
        assert problem["code"] == "settings-differ"
        assert sorted(error["pointer"] for error in problem["errors"]) == sorted(pointers)
    assert shop.info()["settings"]["dim"] == 2


def test_both_values_and_the_remedy_are_named(shop: Local) -> None:
    """Also if there are more differences than a detail has room for."""

    def describe(**change: Any) -> str:
        return str(read_problem(shop.put(SHOP, SETTINGS | change), 409)["detail"])

    assert describe(reward_timeout=100, default_reward=None) == (
        "the stream 'shop' exists with other settings: `reward_timeout` is \"1h\", not 100 and `default_reward` is "
        "0.0, not null; change them by PATCH (`configure`), or use another name"
    )
    assert describe(dim=3, epsilon=0.5).endswith("; PATCH cannot change `dim`: use another name")
    title = "x" * 100
    long = describe(title=title, epsilon=0.5, max_pending=9, reward_timeout=7, retention="90d", seed=4)
    assert len(long) <= 300
    assert long.endswith("...; PATCH cannot change `seed`: use another name")
    assert title not in long
    errors = read_problem(shop.put(SHOP, SETTINGS | {"reward_timeout": 100}), 409)["errors"]
    assert errors == [{"pointer": "#/reward_timeout", "detail": 'the stream has "1h", not 100'}]


def test_settings_that_were_changed_or_fitted_since(tmp_path: Path) -> None:
    fitted = {"dim": 2, "scaling": "fit", "seed": 7}
    with run_local(tmp_path / "w.db") as service:
        assert service.put(SHOP, fitted).status_code == 201
        history = {"rewards": [1.0, 0.0, 1.0], "vectors": [[3.0, 4.0], [1.0, 0.0], [2.0, 2.0]]}
        assert service.post(f"{SHOP}/history", history).status_code == 200
        assert service.put(SHOP, fitted).status_code == 200
        service.configure(epsilon=0.25)
        assert read_problem(service.put(SHOP, fitted), 409)["code"] == "settings-differ"
        assert service.put(SHOP, fitted | {"epsilon": 0.25}).status_code == 200
    with run_local(tmp_path / "w.db") as service:
        assert service.put(SHOP, fitted | {"epsilon": 0.25}).status_code == 200


def test_an_archived_stream(shop: Local) -> None:
    shop.archive()
    assert read_problem(shop.put(SHOP, SETTINGS), 409)["code"] == "archived"


def test_many_at_once_create_one(service: Local) -> None:
    answers = service.request_together(*[("PUT", SHOP, SETTINGS)] * 8)
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    assert len({answer.json()["created"] for answer in answers}) == 1


def test_a_difference_deep_in_a_setting_is_shown(service: Local) -> None:
    """Not what is the same, which would fill the message."""
    fields = {"device": ["phone", "desktop"], "country": ["a long name of a country", "another one", "a third"]}
    features = {"by_arm": fields, "arms": ["red", "blue"]}
    assert service.put(SHOP, {"features": features}).status_code == 201
    problem = read_problem(service.put(SHOP, {"features": {**features, "arms": ["red", "blue", "green"]}}), 409)
    assert '{"arms": ["red", "blue"]}, not {"arms": ["red", "blue", "green"]}' in problem["detail"]
