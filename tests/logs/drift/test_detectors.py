"""Detectors of river on logs: what they read, what they find, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from river import drift

from support.drifting_logs import simulate
from support.refusals import rejects
from windvane.environments import Static, Switches
from windvane.logs import from_arrays
from windvane.logs.drift.detectors import DETECTORS, measure_errors, run_detectors
from windvane.logs.drift.replay import replay_log
from windvane.logs.drift.rows import read_rows

ROUNDS = 3000


def make_errors(log: object) -> np.ndarray:
    return measure_errors(read_rows(log))  # type: ignore[arg-type]


def test_the_errors_are_those_of_the_replay() -> None:
    """Their log losses add up to those of the experts of the diagnosis that never forget."""
    log = simulate(Static(), rounds=700, lanes=1).log(0)
    rows = read_rows(log)
    replay = replay_log(rows, 0.05)
    never = replay.mix(np.flatnonzero(np.isinf(replay.memories)))
    losses = -np.log1p(-measure_errors(rows))
    np.testing.assert_allclose(np.add.reduceat(losses, [0, *replay.ends[:-1]]), never, rtol=1e-9, atol=1e-12)


def test_errors_are_probabilities_of_the_other_outcome() -> None:
    """Before anything is known, one half; later what a model predicts that has seen rewards of 1 only."""
    errors = make_errors(from_arrays([[[1.0]]] * 200, [0] * 200, [1.0] * 199 + [0.0]))
    assert errors[0] == pytest.approx(0.5)
    assert (np.diff(errors[:199]) < 0).all()
    assert errors[199] == pytest.approx(1 - errors[198], abs=0.001)


def test_late_rewards_are_not_known_before_they_arrive() -> None:
    n = 100
    decided = np.arange(1.0, n + 1.0)
    arrays = [[[1.0]]] * n, [0] * n, [1.0] * n
    late = make_errors(from_arrays(*arrays, time=decided, reward_time=decided + 1000.0))
    np.testing.assert_allclose(late, 0.5)


@pytest.mark.parametrize("name", DETECTORS)
def test_a_detector_raises_the_alarms_of_river(name: str) -> None:
    """After a change, and at the rows where the detector of river raises them when it reads the errors."""
    log = simulate(Switches([ROUNDS // 2], [[3.0, 0.0], [-3.0, 0.0]]), rounds=ROUNDS, lanes=1, S=3.0).log(0)
    (found,) = run_detectors(log, [name], seed=3)
    detector = {"adwin": drift.ADWIN(), "page-hinkley": drift.PageHinkley(), "kswin": drift.KSWIN(seed=3)}[name]
    alarms = []
    for row, error in enumerate(make_errors(log)):
        detector.update(error)
        if detector.drift_detected:
            alarms.append(row + 1)
    assert found.detector == name
    assert list(found.rows) == list(found.decisions) == alarms
    assert any(ROUNDS // 2 < row < ROUNDS // 2 + 300 for row in alarms)


def test_without_drift_adwin_is_silent() -> None:
    past = simulate(Static(), rounds=ROUNDS, lanes=5, S=3.0)
    alarms = [run_detectors(past.log(lane), ["adwin"])[0].rows for lane in range(5)]
    assert sum(map(bool, alarms)) <= 1


def test_detectors_run_once_each_and_in_the_order_of_the_names() -> None:
    log = simulate(Static(), rounds=300, lanes=1).log(0)
    found = run_detectors(log, ["kswin", "adwin", "kswin"])
    assert [each.detector for each in found] == ["kswin", "adwin"]


def test_other_names_are_refused() -> None:
    log = simulate(Static(), rounds=300, lanes=1).log(0)
    with rejects("detector", value="ddm"):
        run_detectors(log, ["adwin", "ddm"])
