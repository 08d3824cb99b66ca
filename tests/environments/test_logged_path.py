"""Logged paths of theta*: the rows of the log, resampled or not, and files that are refused with their place."""

from __future__ import annotations

import copy
import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from support.laws import path_of
from support.refusals import rejects
from windvane import BVDGLMUCB
from windvane.environments import BallArms, Environment, LoggedPath, RandomWalk, data_files, logged_path

LOG = np.array([[0.6, 0.8], [0.6, 0.8], [0.0, -0.5], [1.0, 0.0]])
ROUNDED = {"rtol": 1e-12, "atol": 1e-14}


def write(folder: Path, text: str | bytes, name: str = "log.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def points_of(drift: LoggedPath, T: int, dim: int = 2, S: float = 1.0) -> np.ndarray:
    path = path_of(drift, T, dim, S, lanes=1)
    return np.array([path.at(t)[0] for t in range(1, T + 1)])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    np.savetxt(tmp_path / "log.csv", LOG, delimiter=",", header="first,second", comments="")
    return tmp_path / "log.csv"


# --- the path ---------------------------------------------------------------------------------------------------------

logs = arrays.arrays(
    float, st.tuples(st.integers(1, 9), st.integers(1, 4)), elements=st.sampled_from([-0.5, 0.0, 0.25, 0.5])
)


@given(logs, st.data())
def test_without_stretch_the_rows_are_the_rounds(thetas: np.ndarray, data: st.DataObject) -> None:
    n, dim = thetas.shape
    T = data.draw(st.integers(1, n))
    drift = LoggedPath(thetas=thetas)
    np.testing.assert_array_equal(points_of(drift, T, dim), thetas[:T])
    path, moves = path_of(drift, T, dim), np.diff(thetas[:T], axis=0)
    np.testing.assert_allclose(path.variation, np.linalg.norm(moves, axis=1).sum(), **ROUNDED)
    assert path.switches.tolist() == [(moves != 0).any(axis=1).sum()] * 3


@given(logs, st.integers(1, 40))
def test_with_stretch_rows_are_resampled_linearly(thetas: np.ndarray, T: int) -> None:
    n, dim = thetas.shape
    drift = LoggedPath(thetas=thetas, stretch=True)
    t = np.arange(1, T + 1)
    places = np.linspace(0, n - 1, T) if T > 1 else np.zeros(1)
    expected = np.stack([np.interp(places, np.arange(n), column) for column in thetas.T], axis=1)
    points, path = points_of(drift, T, dim), path_of(drift, T, dim)
    np.testing.assert_allclose(points, expected, **ROUNDED)
    np.testing.assert_allclose(path.variation, np.linalg.norm(np.diff(points, axis=0), axis=1).sum(), **ROUNDED)
    length = np.linalg.norm(np.diff(thetas, axis=0), axis=1).sum()
    assert path.variation.max() <= length + 1e-12
    if (T - 1) % max(n - 1, 1) == 0 and T > 1:  # every row is a round: exact rows, and exact rests between equal ones
        np.testing.assert_array_equal(points[:: (T - 1) // max(n - 1, 1)][:n], thetas)
        np.testing.assert_allclose(path.variation, length, **ROUNDED)
        moves = (np.diff(thetas, axis=0) != 0).any(axis=1).sum()
        assert path.switches.tolist() == [moves * (T - 1) // max(n - 1, 1)] * 3
    assert (points[0] == thetas[0]).all()
    assert T == 1 or (points[-1] == thetas[-1]).all()
    assert t[-1] == path.horizon


def test_a_file_and_an_array_give_the_same_path(log: Path, tmp_path: Path) -> None:
    frame = pd.DataFrame(LOG, columns=["first", "second"])
    frame.to_parquet(tmp_path / "log.parquet")
    frame.assign(time=pd.Timestamp(0), note="ü")[["time", "second", "note", "first"]].to_parquet(tmp_path / "more.pq")
    frame.assign(note="x")[["note", "second", "first"]].to_csv(tmp_path / "more.csv", index=False)
    columns = ["first", "second"]
    for drift in (
        LoggedPath(log), LoggedPath(str(log)), LoggedPath(tmp_path / "log.parquet"), LoggedPath(thetas=LOG),
        LoggedPath(tmp_path / "more.pq", columns), LoggedPath(tmp_path / "more.csv", columns=columns),
    ):  # fmt: skip
        np.testing.assert_array_equal(points_of(drift, 4), LOG)
        np.testing.assert_array_equal(points_of(drift, 3), LOG[:3])
    np.testing.assert_array_equal(points_of(LoggedPath(log, ["second", "first"]), 4), LOG[:, ::-1])
    np.testing.assert_array_equal(points_of(LoggedPath(log, ["second"]), 4, dim=1), LOG[:, 1:])


def test_a_walk_that_was_logged_is_walked_again(tmp_path: Path) -> None:
    """Every number survives the file."""
    path = path_of(RandomWalk(0.05), 500, 3, lanes=1)
    walk = np.array([path.at(t)[0] for t in range(1, 501)])
    np.savetxt(tmp_path / "walk.csv", walk, delimiter=",", header="a,b,c", comments="")
    replayed = path_of(LoggedPath(tmp_path / "walk.csv"), 500, 3, lanes=[5])
    np.testing.assert_array_equal([replayed.at(t)[0] for t in range(1, 501)], walk)
    np.testing.assert_array_equal(replayed.variation, path.variation)


def test_a_policy_plays_in_a_logged_world(log: Path) -> None:
    world = Environment(LoggedPath(log, stretch=True), BallArms(), intercept=0.2, horizon=40, lanes=2)
    policy = BVDGLMUCB(world.dim, S=world.S, L=world.L, gamma=0.9, lanes=2)
    for t in range(1, 41):
        offer = world.round(t)
        choice = policy.select(offer.arms)
        policy.update(offer.arms[[0, 1], choice], world.play(offer, choice).reward)
    np.testing.assert_array_equal(world.round(40).theta, [[1.0, 0.0, 0.2]] * 2)


# --- a record ---------------------------------------------------------------------------------------------------------


def test_a_record_like_the_others(log: Path) -> None:
    drift = LoggedPath(log, columns=["first", "second"], stretch=np.True_)
    path_of(drift)
    assert drift == LoggedPath(str(log), ("first", "second"), None, True)
    assert hash(drift) == hash(LoggedPath(log, ["first", "second"], stretch=True))
    assert drift != LoggedPath(log, stretch=True)
    assert LoggedPath(thetas=LOG) == LoggedPath(thetas=LOG.tolist())
    assert repr(LoggedPath(thetas=[[1]])) == (
        "LoggedPath(file=None, columns=None, sha256=None, stretch=False, thetas=((1.0,),))"
    )
    for again in (pickle.loads(pickle.dumps(drift)), copy.deepcopy(drift)):
        assert again == drift
        np.testing.assert_array_equal(points_of(again, 7), points_of(drift, 7))


def test_a_drift_reads_its_file_once_and_travels_without_its_content(log: Path, monkeypatch: Any) -> None:
    drift = LoggedPath(log)
    path = path_of(drift, 4)
    log.unlink()
    np.testing.assert_array_equal(points_of(drift, 4), LOG)
    travelled = pickle.loads(pickle.dumps(path))  # a path has its points
    np.testing.assert_array_equal(travelled.at(3), path.at(3))
    np.testing.assert_array_equal(travelled.variation, path.variation)
    with rejects("file"):
        path_of(pickle.loads(pickle.dumps(drift)), 4)
    with rejects("file"):
        path_of(LoggedPath(log), 4)
    assert LoggedPath(log).file == str(log)  # results can be read without the file


def test_pin(log: Path) -> None:
    digest = hashlib.sha256(log.read_bytes()).hexdigest()
    pinned = LoggedPath(log, stretch=True).pin()
    assert pinned == LoggedPath(log, sha256=digest, stretch=True)
    assert pinned.pin() is pinned
    np.testing.assert_array_equal(points_of(pinned, 4), LOG)
    arrays_ = LoggedPath(thetas=LOG)
    assert arrays_.pin() is arrays_
    write(log.parent, "a,b\n0,0\n")
    with rejects("sha256", value=digest, hint="the file has changed"):
        path_of(LoggedPath(log, sha256=digest))
    assert LoggedPath(log).pin().sha256 != digest
    with rejects("file", hint="No such file or directory"):
        LoggedPath(log.parent / "none.csv").pin()


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "fields"),
    [
        ("file", {}), ("file", {"file": "a.csv", "thetas": LOG}), ("file", {"file": 3}), ("file", {"file": ""}),
        ("file", {"file": b"a.csv"}), ("file", {"file": "a\0b.csv"}), ("file", {"file": "a\nb.csv"}),
        ("columns", {"thetas": LOG, "columns": ["a"]}), ("sha256", {"thetas": LOG, "sha256": "0" * 64}),
        ("columns", {"file": "a.csv", "columns": []}), ("columns", {"file": "a.csv", "columns": "ab"}),
        ("columns", {"file": "a.csv", "columns": ["a", "a"]}), ("columns", {"file": "a.csv", "columns": [1, 2]}),
        ("sha256", {"file": "a.csv", "sha256": "A" * 64}), ("sha256", {"file": "a.csv", "sha256": "0" * 63}),
        ("sha256", {"file": "a.csv", "sha256": 5}), ("stretch", {"thetas": LOG, "stretch": 1}),
        ("stretch", {"thetas": LOG, "stretch": None}), ("thetas", {"thetas": []}), ("thetas", {"thetas": [1.0, 0.0]}),
        ("thetas", {"thetas": [[1.0], [1.0, 2.0]]}), ("thetas", {"thetas": [[np.nan]]}),
        ("thetas", {"thetas": [["a"]]}),
    ],
)  # fmt: skip
def test_refused_fields_are_named(argument: str, fields: dict[str, Any]) -> None:
    with rejects(argument):
        LoggedPath(**fields)


@pytest.mark.parametrize(
    ("text", "argument", "place"),
    [
        ("", "file", "{}"), ("\n \n", "file", "{}"), ("1,0\n0,1\n", "file", "{}"), ("a,a\n1,0\n", "file", "{}"),
        ("a,\n1,0\n", "file", "{}"), ("a,b\n1,0\n0\n", "file", "line 3 of {}"), ('a,b\n"1,0\n', "file", "line 2 of {}"),
        (b"a,b\n1,0\n\xfc,0\n", "file", "line 3 of {}"), ("a,b\n", "file", "{}"), ("a,b\n0,0\n", "file", "{}"),
        ("a,b\n0,0\n0,\n", "file", "row 2 of column 'b' of {}"),
        ("a,b\n0,0\n0,nan\n", "file", "row 2 of column 'b' of {}"),
        ("a,b\n0,0\n0,inf\n", "file", "row 2 of column 'b' of {}"),
        ("a,b\n0,0\n0,1e101\n", "file", "row 2 of column 'b' of {}"),
        ("a,b\n0,0\nup,0\n", "columns", "row 2 of column 'a' of {}"),
        ("a,b\n0,0\n0,1_0\n", "columns", "row 2 of column 'b' of {}"),
        ("a,b,c\n0,0,0\n0,0,0\n", "file", "{}"), ("a;b\n0;0\n0;0\n", "file", "{}"),
        ("a,b\n0.6,0.8\n\n0.8,0.61\n", "file", "row 2 of {}"), ("a,b\n1e99,0\n1,0\n", "file", "row 1 of {}"),
    ],
)  # fmt: skip
def test_hostile_files_are_refused_with_the_place(text: str | bytes, argument: str, place: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with rejects(argument, where=place.format(path)):
        path_of(LoggedPath(path), 2)


def test_other_refusals_name_the_field(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with rejects("file", got="norm 1.5", where=f"row 2 of {tmp_path / 'a.csv'}"):
        path_of(LoggedPath(write(tmp_path, "a,b\n0,0\n0.9,1.2\n0,0\n", "a.csv"), stretch=True))
    with rejects("file", got="4", where=str(log), hint="the horizon is 5; use stretch=true for a shorter log"):
        path_of(LoggedPath(log), 5)
    with rejects("thetas", got="4"):
        path_of(LoggedPath(thetas=LOG), 5)
    with rejects("thetas", got="2"):
        path_of(LoggedPath(thetas=LOG), 4, dim=3)
    with rejects("thetas", got="norm inf", where="row 1"):
        path_of(LoggedPath(thetas=[[1e300, 0]]), 1)
    with rejects("thetas", got="norm 1", where="row 1"):
        path_of(LoggedPath(thetas=LOG), 4, S=0.9)
    monkeypatch.setattr(logged_path, "LARGEST_PRODUCT", 3 * 2**40)
    with rejects("thetas", expected=f"a log with at most 3 rows for a horizon of {2**40}", got="4"):
        path_of(LoggedPath(thetas=LOG, stretch=True), 2**40)
    with rejects("columns", value="third", expected=f"one of first, second, the columns of {log}"):
        path_of(LoggedPath(log, ["first", "third"]))
    with rejects("file", hint="Is a directory"):
        path_of(LoggedPath(tmp_path))
    pd.DataFrame({"a": [pd.Timestamp(0)]}).to_parquet(tmp_path / "time.parquet")
    with rejects("columns", got="timestamp[ns]"):
        path_of(LoggedPath(tmp_path / "time.parquet"), 1)
    with rejects("file", expected="a Parquet file"):
        path_of(LoggedPath(write(tmp_path, "a\n1\n", "no.parquet")), 1)


def test_other_separators_are_named(tmp_path: Path) -> None:
    for mark, word in ((";", "semicolons"), ("\t", "tabs")):
        path = write(tmp_path, f"a{mark}b\n0{mark}0\n")
        for columns in (None, ["a", "b"]):
            with rejects(hint=f"columns must be separated by commas, not by {word}"):
                path_of(LoggedPath(path, columns), 1)


def test_rows_beyond_the_horizon_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "CHUNK", 2)
    path = write(tmp_path, "a,b\n1,0\n0,1\n0.5,0\n7,0\nnone,\n")
    np.testing.assert_array_equal(points_of(LoggedPath(path), 3), [[1, 0], [0, 1], [0.5, 0]])
    drift = LoggedPath(path)
    np.testing.assert_array_equal(points_of(drift, 2), [[1, 0], [0, 1]])
    with rejects("file", where=f"row 4 of {path}"):
        path_of(drift, 4)
    with rejects("columns", where=f"row 5 of column 'a' of {path}", got="the text 'none'"):
        path_of(drift, 5)
