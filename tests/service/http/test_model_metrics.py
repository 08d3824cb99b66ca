"""Calibration, memory and half-life over HTTP: as the log says, the same after a restart, and in the metrics."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.server import Local, run_local
from support.service_pages import DEPLOY
from windvane.agent.info import CODES
from windvane.records import to_plain

RULES = DEPLOY / "windvane.rules.yml"
FEATURES = {"shared": {"hour": {"low": 0, "high": 24}}, "arms": ["red", "blue"]}


def live(service: Local, clock: list[float], rounds: int, seed: int = 0) -> None:
    """Rewards at once, late, in parts, or never."""
    rng, ids = np.random.default_rng(seed), list[str]()
    for _ in range(rounds):
        clock[0] += float(rng.exponential(20.0))
        ids.append(service.decide(body={"context": {"hour": float(rng.integers(24))}})["id"])
        kind, back = rng.integers(4), rng.integers(1, 8)
        if kind < 2:
            service.reward(ids[-back if kind and len(ids) >= back else -1], float(rng.integers(2)))
        elif kind == 2:
            service.add_reward(ids[-1], 0.25)


def outcomes_in(events: list[dict[str, Any]]) -> list[tuple[str, float, float]]:
    """Return arm, prediction and outcome of the settled decisions made after the first outcome of the log.

    Predictions made before it are those of the prior. An early look comes later, as it needs 20 known delays.
    """
    decisions, outcomes = dict[str, dict[str, Any]](), list[tuple[dict[str, Any], float]]()
    untaught: set[str] | None = None  # decisions made before the first outcome
    for event in events:
        if event["kind"] == "decided":
            decisions[event["id"]] = event
            continue
        learned = dict[str, float | None]()
        if event["kind"] == "closed":
            learned = dict(zip(event["decisions"], event["learned"], strict=True))
        elif event.get("settled"):
            learned = {event["decision"]: event["value"]}
        known = {key: r for key, r in learned.items() if r is not None}
        if known and untaught is None:
            untaught = set(decisions)
        outcomes += [(decisions[key], r) for key, r in known.items() if key not in (untaught or ())]
    assert untaught
    return [(decided["arm"], decided["prediction"], r) for decided, r in outcomes]


@pytest.mark.parametrize("settings", [
    {"reward_timeout": "2m", "default_reward": 0.0}, {"reward_timeout": "2m"},
    {"reward_timeout": "2m", "default_reward": 0.0, "learn": "early", "max_pending": 8},
])  # fmt: skip
def test_calibration_is_that_of_the_log(tmp_path: Path, clock: list[float], settings: dict[str, Any]) -> None:
    with run_local(tmp_path / "a.db") as service:
        service.create(features=FEATURES, **settings)
        live(service, clock, 120)
        info = service.info()
        outcomes = outcomes_in(service.events())
        assert len(outcomes) > 40
        assert service.replay() == service.state()
    calibration = info["calibration"]
    arms = {means.pop("arm"): means for means in calibration["by_arm"]}
    groups = {arm: [outcome for outcome in outcomes if outcome[0] == arm] for arm in arms}
    for means, part in [(calibration["overall"], outcomes), *((arms[arm], groups[arm]) for arm in arms)]:
        p, r = np.array([outcome[1:] for outcome in part]).T
        error = math.sqrt(max(((r - p) ** 2).sum(), (p * (1 - p)).sum())) / len(p)
        expected = {"settled": len(p), "mean_prediction": p.mean(), "mean_reward": r.mean(), "standard_error": error}
        assert means == pytest.approx(expected | {"z": (r.mean() - p.mean()) / error}, abs=1e-12)
    assert sum(map(len, groups.values())) == len(outcomes)
    with run_local(tmp_path / "a.db") as service:  # from the snapshot
        assert service.info() == info | {"calibration": service.info()["calibration"]}
        assert service.info()["calibration"]["overall"] == calibration["overall"]


def read_metrics(service: Local) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in service.get("/metrics").text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_metrics_of_models(service: Local, clock: list[float]) -> None:
    service.create(features=FEATURES, half_life=30)
    service.create("vectors", dim=2, policy="OFUL")
    live(service, clock, 60)
    service.reward(service.decide("vectors")["id"], 1.0, "vectors")
    info, numbers = service.info(), read_metrics(service)
    recent, half_life = info["calibration"]["recent"], info["half_life"]
    expected = {
        "mean_prediction": info["calibration"]["overall"]["mean_prediction"],
        "calibration_z": info["calibration"]["overall"]["z"],
        "recent_settled": recent["settled"],
        "recent_mean_prediction": recent["mean_prediction"],
        "recent_mean_reward": recent["mean_reward"],
        "recent_calibration_z": recent["z"],
        "half_life_decisions": half_life["decisions"],
        "half_life_seconds": half_life["seconds"],
        "memory_decisions": info["memory"],
        "projected_ratio": info["projected_share"],
        "recent_projected_ratio": info["recent_projected_share"],
    }
    assert {name: numbers[f'windvane_{name}{{stream="shop"}}'] for name in expected} == expected
    assert half_life["decisions"] == pytest.approx(30.0)
    assert half_life["seconds"] == pytest.approx(30 * 20.0, rel=0.5)
    for means in info["calibration"]["by_arm"]:
        labels = f'{{arm="{means["arm"]}",stream="shop"}}'
        for field in ("settled", "mean_prediction", "mean_reward"):
            assert numbers[f"windvane_arm_{field}{labels}"] == means[field]
    assert not any("windvane_arm_" in name and "vectors" in name for name in numbers)  # ever new arms are possible
    assert numbers['windvane_half_life_seconds{stream="vectors"}'] == math.inf
    assert 'windvane_memory_seconds{stream="shop"}' in numbers


def test_the_rules_about_models_name_metrics_that_exist(service: Local) -> None:
    service.create(features={"arms": ["red", "blue"]})
    for i in range(20):  # until the pace of decisions is known
        service.reward(service.decide(body={})["id"], float(i % 2))
    names = {re.split("[{ ]", name)[0] for name in read_metrics(service)}
    group = RULES.read_text().partition("  - name: windvane-model\n")[2].partition("\n  - name: ")[0]
    used = set(re.findall(r"windvane_\w+", group))
    codes = set(re.findall(r'code!?="(\w+)"', group))
    assert codes <= set(CODES)
    assert {"windvane_alert", "windvane_half_life_decisions", "windvane_recent_calibration_z"} <= used <= names


def test_info_of_a_stream_that_has_done_nothing(service: Local) -> None:
    service.create(dim=2)
    info = service.info()
    nothing = dict.fromkeys(("mean_prediction", "mean_reward", "standard_error", "z")) | {"settled": 0}
    expected = {"overall": nothing, "recent": nothing, "by_arm": [], "others": nothing, "is_off": False}
    assert info["calibration"] == expected == to_plain(service.engine.streams["shop"].core.info().calibration)
    assert (info["half_life"]["seconds"], info["decisions_per_second"]) == (None, None)
    assert read_metrics(service).keys() & {'windvane_recent_mean_reward{stream="shop"}'} == set()
