"""What workers are sent, and what is compared with them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.refusals import rejects
from support.spec_objects import a_spec
from windvane.lab.run import cluster, workers
from windvane.lab.run.cells import list_cells
from windvane.lab.run.play import CellResult
from windvane.lab.run.workers import CellError, Work, compute_cells
from windvane.lab.spec.experiment_spec import PolicySpec, Spec


def work_on(spec: Spec) -> Work:
    return Work(spec, list(enumerate(list_cells(spec))), "", threads=1, raises=True)


def small(policies: int = 2) -> Spec:
    named = [PolicySpec("D-LinUCB", label=f"policy {i}", settings={"gamma": 0.9}) for i in range(policies)]
    return a_spec(policies=named, runs=1, horizon=5)


def test_a_task_does_not_grow_with_the_spec() -> None:
    few, many = (max(len(pickle.dumps(task)) for task in work_on(small(n)).choose_tasks()) for n in (2, 100))
    assert many <= few + 10
    (spec, *_), *_ = work_on(small()).choose_tasks()
    assert spec.policy == small().policies[spec.cell.policy]


def test_versions_are_not_listed_where_nobody_compares_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(workers, "list_versions")
    assert all(isinstance(result, CellResult) for _, _, result in compute_cells(work_on(small()), 1, None))


@pytest.mark.parametrize("changed", [None, "numpy"])
def test_a_cluster_worker_with_other_versions_is_refused(changed: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(function: Callable[..., Any], tasks: list[Any], **_: Any) -> Iterator[Any]:
        for task in tasks:
            finished, versions = function(*task)
            yield finished, versions | ({changed: "0.1"} if changed else {})

    monkeypatch.setattr(cluster, "run_on_cluster", run)
    if changed is None:
        assert len(list(compute_cells(work_on(small()), 1, "local"))) == 2
        return
    with rejects(error=CellError) as caught:
        list(compute_cells(work_on(small()), 1, "local"))
    assert "numpy" in str(caught.value)
