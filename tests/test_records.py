"""Records: their JSON has the names of their fields, RFC 3339 times to the microsecond, and nothing that JSON lacks."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windvane import Agent, records
from windvane.records import (
    Counts,
    Decision,
    DecisionRecord,
    Drift,
    Explanation,
    to_datetime,
    to_json,
    to_plain,
)

AT = datetime(2026, 11, 16, 18, 0, 0, 123_456, tzinfo=UTC)
DECISION: dict[str, Any] = {
    "id": "a", "arm": 5, "index": 0, "time": AT, "propensity": None, "explored": False, "prediction": 0.25,
    "bonus": 0.5, "preferred": 5, "rival": "b", "rival_score": 0.7, "projected": None,
}  # fmt: skip


def test_a_record_in_json() -> None:
    decision = Decision(**DECISION)
    plain = DECISION | {"time": "2026-11-16T18:00:00.123456Z"}
    assert to_plain(decision) == plain
    assert to_json(decision) == json.dumps(plain, separators=(",", ":")).encode()
    whole = DecisionRecord(decision=decision, status="rewarded", reward=1.0, late_reward=None)
    assert to_plain([whole]) == [{"decision": plain, "status": "rewarded", "reward": 1.0, "late_reward": None}]
    assert Decision(**DECISION) == decision
    assert Decision(**to_plain(decision) | {"time": datetime.fromisoformat(plain["time"])}) == decision
    with pytest.raises(AttributeError):
        decision.arm = 6  # type: ignore[misc]


@given(seconds=st.floats(-1e10, 1e10))
def test_times_are_to_the_microsecond(seconds: float) -> None:
    at = to_datetime(seconds)
    assert abs(at - datetime(1970, 1, 1, tzinfo=UTC) - timedelta(seconds=seconds)) < timedelta(microseconds=1)
    text = to_plain(at)
    assert len(text) == len("2026-11-16T18:00:00.123456Z")
    assert datetime.fromisoformat(text) == at == to_datetime(at.timestamp())


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_json_has_no_infinity(number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        to_json(Decision(**DECISION | {"bonus": number}))


def test_a_memory_of_all_data_is_infinite_and_null_in_json() -> None:
    """Of an agent that never forgets, and of one whose memory is finite."""
    for gamma, memory in ((1.0, math.inf), (0.9, 10.0)):
        info = Agent(dim=1, policy="OnePassGLM", gamma=gamma).info()
        assert info.memory == pytest.approx(memory)
        assert f"{info.memory:.0f}" in ("inf", "10")  # no special case is needed to print it
        assert to_plain(info)["memory"] == (None if math.isinf(memory) else info.memory)
    known = {"verdict": "drift", "evidence": 5.0, "scale": 1.0, "variation": 0.0}
    rates = dict.fromkeys(("rate", "rate_low", "rate_high"), 0.0)
    drift = Drift(memory=math.inf, memory_low=320.0, memory_high=math.inf, **known, **rates)  # type: ignore[arg-type]
    assert {name: value for name, value in to_plain(drift).items() if "memory" in name} == {
        "memory": None, "memory_low": 320.0, "memory_high": None,
    }  # fmt: skip


def test_an_explanation_has_the_numbers_of_its_decision() -> None:
    why = Explanation.of(Decision(**DECISION))
    assert {name: value for name, value in to_plain(why).items() if name in DECISION} == {
        name: DECISION[name] for name in DECISION if name not in ("id", "index", "time", "propensity")
    }
    assert why.score == 0.75
    assert str(why) == why.text == "5 scored 0.75: predicted 0.25, bonus 0.5 for uncertainty; next was 'b' with 0.7"
    assert "at random" in Explanation.of(Decision(**DECISION | {"explored": True})).text


def test_a_tie_is_not_explained_as_a_victory() -> None:
    """Also after the rounding of a sum; an arm that loses to another was not drawn."""
    tie = DECISION | {"rival_score": 0.75 + 1e-13}
    text = "5 scored 0.75: predicted 0.25, bonus 0.5 for uncertainty; tied with 'b', drawn at random"
    assert Explanation.of(Decision(**tie)).text == text
    for changes in ({"rival_score": 0.75 - 1e-9}, {"rival_score": 0.75, "preferred": "b"}):
        assert "; next was 'b' with 0.75" in Explanation.of(Decision(**DECISION | changes)).text
    for seed in range(4):  # in an agent that knows nothing, every arm ties
        decision = Agent(features={"arms": ["a", "b", "c"]}, seed=seed).decide()
        assert str(Explanation.of(decision)).endswith("drawn at random")


def test_records_need_all_their_fields() -> None:
    with pytest.raises(TypeError):
        Counts(decisions=1)  # type: ignore[call-arg]
    fields = {name: list(getattr(records, name).__dataclass_fields__) for name in ("AgentInfo", "StreamInfo")}
    assert fields["StreamInfo"][: len(fields["AgentInfo"])] == fields["AgentInfo"]
