"""What is said about a folder that holds another experiment."""

from __future__ import annotations

import tomllib

import pytest

from support.spec_objects import a_spec, with_environment, with_policy
from windvane.environments import DRIFTS
from windvane.lab.spec.experiment_spec import PolicySpec, Spec
from windvane.lab.spec.spec_differences import list_differences


def compare(stored: Spec, current: Spec) -> dict[str, str]:
    return list_differences(*(tomllib.loads(spec.to_toml()) for spec in (stored, current)))


@pytest.mark.parametrize(
    ("stored", "current", "expected"),
    [
        (a_spec(), a_spec(title="other"), {}),
        (a_spec(), a_spec(horizon=400, runs=7), {"runs": "runs 50 (now 7)", "horizon": "horizon 300 (now 400)"}),
        (
            with_policy(settings={"gamma": 0.9}),
            with_policy(settings={"gamma": 0.95, "delta": 0.1}),
            {
                "policies[0].settings.gamma": "policies[0].settings.gamma 0.9 (now 0.95)",
                "policies[0].settings.delta": "policies[0].settings.delta not set (now 0.1)",
            },
        ),
        (
            with_environment(drift=DRIFTS["rotation"]()),
            with_environment(drift=DRIFTS["static"](), S=2.0),
            {
                "environments[0].S": "environments[0].S 1.0 (now 2.0)",
                "environments[0].drift.kind": "environments[0].drift.kind 'rotation' (now 'static')",
            },
        ),
        (
            a_spec(),
            a_spec(policies=[PolicySpec("D-LinUCB"), PolicySpec("OFUL", label="new")]),
            {"policies": "policies ['D-LinUCB'] (now ['D-LinUCB', 'new'])"},
        ),
    ],
)
def test_differences_are_named_by_field(stored: Spec, current: Spec, expected: dict[str, str]) -> None:
    assert compare(stored, current) == expected


def test_a_file_counts_by_its_content() -> None:
    def document(**fields: str) -> dict:
        return {"environments": [{"name": "one", **fields}]}

    here = document(file="a.csv", sha256="01")
    assert list_differences(here, document(file="moved/a.csv", sha256="01")) == {}
    changed = list_differences(here, document(file="a.csv", sha256="02"))
    assert list(changed) == ["environments[0].file"]
    assert "'a.csv'" in changed["environments[0].file"]
