"""The hierarchy of exceptions, and the one place that asserts how their messages read."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from pathlib import Path

import pytest

import windvane
from windvane.agent import ConflictingRewardError, FileError, UnknownDecisionError
from windvane.client.messages import BatchError, ClientError
from windvane.errors import LONGEST_VALUE, ArgumentError, WindvaneError, format_value
from windvane.lab.results.folder import FolderError
from windvane.lab.results.summary import PairingError
from windvane.lab.run.cluster import ClusterError
from windvane.lab.run.workers import CellError
from windvane.lab.spec.spec_errors import SpecError, located, split_argument, suggest
from windvane.service.problems import Problem
from windvane.service.store import StoreError, UnreadableEventError
from windvane.service.stream_state import ReplayError
from windvane.testing import ServiceError

MESSAGES = [
    (ArgumentError("gamma", 1.2, "in (0, 1]"), "`gamma` must be in (0, 1], got 1.2"),
    (ArgumentError("x", [], "a list", got="none", where="lane 3"), "`x` must be a list, got none in lane 3"),
    (ArgumentError("S", 9, "at most 5", hint="give a smaller L"), "`S` must be at most 5, got 9; give a smaller L"),
    (UnknownDecisionError("d1", "is not known"), "decision 'd1' is not known"),
    (FileError("a.zip", "digest", "was changed"), "a.zip: was changed"),
    (SpecError((), "no such file", "s.toml"), "s.toml: no such file"),
    (SpecError(("runs",), "missing"), "runs: missing"),
    (
        SpecError(("environments", 1, "drift", "period"), "must be above 0, got -3", "s.toml:18"),
        "s.toml:18: environments[1].drift.period: must be above 0, got -3",
    ),
    (FolderError(Path("out"), "locked", "another run is writing here"), "out: another run is writing here"),
    (PairingError("A", "B", "arc", "seed", "the seeds differ"), "A and B cannot be paired in arc: the seeds differ"),
    (CellError("A in 'arc' failed: ValueError: x", "A", "arc"), "A in 'arc' failed: ValueError: x"),
    (ClusterError("tcp://a:1", "no scheduler answers"), "cluster 'tcp://a:1': no scheduler answers"),
    (StoreError(Path("a.db"), "no_store", "the store does not exist"), "a.db: the store does not exist"),
    (ReplayError("shop", 7, "cannot be read"), "stream 'shop', event 7: cannot be read"),
    (ReplayError("shop", None, "cannot be created again"), "stream 'shop': cannot be created again"),
    (UnreadableEventError(7, "is missing"), "event 7: is missing"),
    (ClientError(404, "unknown-stream", "there is no stream 'a'"), "there is no stream 'a'"),
    (
        BatchError([True, ClientError(409, "conflict", "another reward is known")]),
        "1 of 2 items failed; results[1]: another reward is known",
    ),
    (Problem("unavailable", "not ready", cause="starting"), "not ready"),
    (ServiceError("the service did not start"), "the service did not start"),
]


@pytest.mark.parametrize(("error", "message"), MESSAGES, ids=lambda case: getattr(type(case), "__name__", ""))
def test_messages_survive_a_pickle(error: WindvaneError, message: str) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error) == message
    for name, value in vars(error).items():
        if name not in ("results", "errors"):  # of ClientErrors, which are compared by identity
            assert getattr(again, name) == value


def test_every_exception_of_the_package_is_a_windvane_error() -> None:
    names = [module.name for module in pkgutil.walk_packages(windvane.__path__, "windvane.")]
    modules = [importlib.import_module(name) for name in names if not name.endswith("__main__")]
    values = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    defined = {cls for cls in values if issubclass(cls, Exception) and cls.__module__.startswith("windvane")}
    assert {ArgumentError, SpecError, Problem, ClientError} <= defined
    assert [cls.__name__ for cls in defined if not issubclass(cls, WindvaneError)] == []


def test_errors_keep_the_type_of_the_standard_library() -> None:
    values = [ArgumentError, SpecError, FolderError, FileError, PairingError]
    values += [UnknownDecisionError, ConflictingRewardError]
    assert [cls for cls in values if not issubclass(cls, ValueError)] == []
    assert [cls for cls in (CellError, ClusterError) if not issubclass(cls, RuntimeError)] == []


def test_a_long_value_is_shortened_and_an_argument_can_be_renamed() -> None:
    assert len(format_value("x" * 1000)) == LONGEST_VALUE
    assert "\n" not in format_value("a\nb")
    assert format_value(10**5000) == "<int>"  # more digits than Python prints
    error = ArgumentError("X[3]", 5, "finite", where="row 3", hint="drop it").rename("vectors[3]")
    assert (error.argument, error.value, error.where, error.hint) == ("vectors[3]", 5, "row 3", "drop it")


def test_the_path_of_an_argument() -> None:
    assert split_argument("gamma") == (("gamma",), True)
    assert split_argument("memories[2]") == (("memories", 2), True)
    assert split_argument("arms['red']['price']") == (("arms", "red", "price"), True)
    assert split_argument("function(200)") == (("function",), False)
    assert split_argument("--gammas") == ((), False)


@pytest.mark.parametrize(
    ("error", "path", "problem"),
    [
        (ArgumentError("gamma", 2, "in (0, 1]"), ("policies", 0, "gamma"), "must be in (0, 1], got 2"),
        (ArgumentError("other", 2, "in (0, 1]"), ("policies", 0), "`other` must be in (0, 1], got 2"),
        (ArgumentError("gamma(7)", 2, "finite"), ("policies", 0, "gamma"), "`gamma(7)` must be finite, got 2"),
        (ValueError("gamma=2: too large"), ("policies", 0), "gamma=2: too large"),
        (SpecError(("sweep", 1), "is wrong"), ("policies", 0, "sweep", 1), "is wrong"),
    ],
    ids=repr,
)
def test_errors_are_located_by_their_attributes(error: ValueError, path: tuple, problem: str) -> None:
    with pytest.raises(SpecError) as caught, located("policies", 0, known=("gamma",)):
        raise error
    assert (caught.value.path, caught.value.problem) == (path, problem)


def test_suggestions() -> None:
    assert suggest("runz", ["seed", "runs"]) == 'did you mean "runs"?'
    assert suggest("x", ["seed", "runs"]) == "allowed: seed, runs"
    assert suggest("x", []) == ""
