"""Labelled data streams: the vectors are those of declared features, for every source of data."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.refusals import rejects
from windvane import Agent
from windvane.agent import Features
from windvane.environments import LabelledStream, data_files
from windvane.lab.spec.policy_spec import PolicySpec

DATA = Path(__file__).parents[3] / "shared" / "data"
TABLE = {
    "wind": [3.5, 1.0, 2.0, 2.5],
    "sky": ["grey", "blue", "grey", "clear, cold"],
    "height": [7.0, 7.0, 7.0, 7.0],
    "zero": [0, 0, 0, 0],
    "night": [True, False, False, True],
}
LABELS = ["rain", "dry", "dry", "snow"]
CSV = """wind,sky,height,zero,night,weather
3.5,grey,7,0,True,rain
1,blue,7.0,0,False,dry
2.0, grey ,7e0,-0,False,dry

2.5,"clear, cold",7,0,True,snow
"""


def write(folder: Path, text: str, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def contexts(table: dict[str, list]) -> list[dict]:
    rows = zip(*table.values(), strict=True)
    return [
        {name: str(value) if isinstance(value, bool) else value for name, value in zip(table, row, strict=True)}
        for row in rows
    ]


def declare(stream: LabelledStream) -> Features:
    return Features(by_arm=stream.fields, arms=stream.classes)


def assert_same(one: LabelledStream, other: LabelledStream) -> None:
    assert (one.classes, one.fields, one.horizon, one.dim) == (other.classes, other.fields, other.horizon, other.dim)
    for t in range(1, one.horizon + 1):
        for mine, theirs in zip(one.round(t)[1:], other.round(t)[1:], strict=True):
            np.testing.assert_array_equal(mine, theirs)


# --- the vectors ------------------------------------------------------------------------------------------------------


def test_vectors_are_those_of_declared_features() -> None:
    stream = LabelledStream(TABLE, LABELS, lanes=3)
    assert stream.classes == ("dry", "rain", "snow")
    assert stream.fields["wind"] == (1.0, 3.5)
    assert stream.fields["sky"] == ["blue", "clear, cold", "grey"]
    features = declare(stream)
    assert stream.dim == features.dim
    for t, (context, label) in enumerate(zip(contexts(TABLE), LABELS, strict=True), start=1):
        offer = stream.round(t)
        expected = features.vectors(context, stream.classes)
        for lane in range(3):
            np.testing.assert_array_equal(offer.arms[lane], expected)
        np.testing.assert_array_equal(offer.means, [[float(label == name) for name in stream.classes]] * 3)
        np.testing.assert_array_equal(offer.best, np.ones(3))
        assert np.isnan(offer.theta).all()
        assert offer.valid is None


NUMBERS = st.floats(-1e100, 1e100)


@given(st.data())
def test_every_number_is_encoded_as_an_agent_does(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 6))
    fields = st.one_of(st.lists(NUMBERS, min_size=n, max_size=n), st.lists(st.text(max_size=3), min_size=n, max_size=n))
    table = {f"f{i}": data.draw(fields) for i in range(data.draw(st.integers(1, 4)))}
    labels = [i % 2 for i in range(n)]
    stream = LabelledStream(table, labels)
    features = declare(stream)
    for t, row in enumerate(contexts(table), start=1):
        arms = stream.round(t).arms[0]
        np.testing.assert_array_equal(arms, features.vectors(row, stream.classes))
        assert np.linalg.norm(arms, axis=1).max() <= 1.0 + 1e-12


@pytest.mark.parametrize("constant", [0.0, 1.0, -0.1, 3e99, 5e-324, -1e-310])
def test_a_constant_column_is_zero(constant: float) -> None:
    stream = LabelledStream(np.full((2, 1), constant), [0, 1])
    assert (stream.round(1).arms[0, :, [2, 4]] == 0.0).all()
    np.testing.assert_array_equal(declare(stream).vectors({"x1": constant}, stream.classes), stream.round(2).arms[0])


@pytest.mark.parametrize("constant", [6e99, -1e100])
def test_a_constant_column_of_huge_numbers_can_be_declared(constant: float) -> None:
    stream = LabelledStream(np.full((2, 1), constant), [0, 1])
    np.testing.assert_array_equal(declare(stream).vectors({"x1": constant}, stream.classes), stream.round(2).arms[0])


def test_many_rounds_in_any_order() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3000, 3)), rng.integers(0, 4, 3000)
    stream = LabelledStream(x, y)
    features = declare(stream)
    for t in (1, 1024, 1025, 2048, 3000, 7, 2999):
        expected = features.vectors(dict(zip(("x1", "x2", "x3"), x[t - 1].tolist(), strict=True)), stream.classes)
        np.testing.assert_array_equal(stream.round(t).arms[0], expected)
        assert stream.round(t).means[0].argmax() == y[t - 1]
    with rejects("t", value=3001):
        stream.round(3001)


def test_an_agent_with_the_declared_features_learns_the_same() -> None:
    """A policy in the lab and an agent see the same problem and make the same choices."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 2))
    stream = LabelledStream(x, (x[:, 0] > 0).astype(int))
    agent = Agent(features=declare(stream), S=1.0, seed=stream.seed)
    policy = PolicySpec("AdaptiveGLMUCB", settings={"S": 1.0}).build(stream)
    for t in range(1, stream.horizon + 1):
        offer = stream.round(t)
        context = dict(zip(stream.fields, x[t - 1].tolist(), strict=True))
        chosen = int(policy.select(offer.arms)[0])
        decision = agent.decide(stream.classes, context=context)
        assert stream.classes[chosen] == decision.arm
        reward = stream.reward(t, offer.means[:, chosen])
        policy.update(offer.arms[:, chosen], reward)
        agent.reward(decision, float(reward[0]))


# --- where the data come from -----------------------------------------------------------------------------------------


def test_csv_parquet_frames_and_arrays_are_the_same(tmp_path: Path) -> None:
    path = write(tmp_path, CSV)
    stream = LabelledStream.read(path)
    arrays = LabelledStream(TABLE, LABELS)
    assert_same(stream, arrays)
    frame = pd.DataFrame(TABLE)
    assert_same(LabelledStream(frame, LABELS), arrays)
    assert_same(LabelledStream(frame.astype({"sky": "category"}), pd.Series(LABELS)), arrays)
    whole = frame.assign(weather=LABELS)
    for name, table in {"a.parquet": whole, "b.PQ": whole.astype({"sky": "category", "wind": "float32"})}.items():
        table.to_parquet(tmp_path / name)
        assert_same(LabelledStream.read(tmp_path / name), arrays)
    whole.to_csv(tmp_path / "c.csv", index=False)
    assert_same(LabelledStream.read(tmp_path / "c.csv"), arrays)
    assert stream.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert LabelledStream.read(path, sha256=stream.sha256).source == "data.csv"


def test_the_label_may_be_any_column(tmp_path: Path) -> None:
    path = write(tmp_path, "y,a,b\n1,0.5,x\n0,1.5,y\n1,2.5,x\n")
    stream = LabelledStream.read(path, label="y")
    assert_same(stream, LabelledStream({"a": [0.5, 1.5, 2.5], "b": ["x", "y", "x"]}, [1, 0, 1]))
    assert stream.classes == (0, 1)
    assert LabelledStream.read(path).classes == ("x", "y")
    assert LabelledStream([[1.0], [2.0]], [1.0, 3.0]).classes == (1, 3)
    assert LabelledStream([[1.0], [2.0]], [True, False]).classes == ("False", "True")
    assert LabelledStream([[1.0], [2.0]], np.array([3, "b"], dtype=object).astype(str)).classes == ("3", "b")
    with rejects("label", value="z"):
        LabelledStream.read(path, label="z")


def test_only_the_first_rows(tmp_path: Path) -> None:
    path = write(tmp_path, CSV)
    first = LabelledStream.read(path, rows=3)
    assert_same(first, LabelledStream(TABLE, LABELS, rows=3))
    assert first.classes == ("dry", "rain")
    assert first.fields["sky"] == ["blue", "grey"]  # of the rows used
    for rows in (5, 0, 2.5):
        with rejects("rows", value=rows):
            LabelledStream.read(path, rows=rows)
        with rejects("rows", value=rows):
            LabelledStream(TABLE, LABELS, rows=rows)


def test_a_column_that_turns_out_to_be_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "CHUNK", 2)
    path = write(tmp_path, "a,b,y\n1,7,0\n2,7,1\n3,,0\nx,7,1\n4,z,0\n")
    stream = LabelledStream.read(path, missing="drop")
    assert_same(stream, LabelledStream({"a": ["1", "2", "x", "4"], "b": ["7", "7", "7", "z"]}, [0, 1, 1, 0]))


# --- missing values and other refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", ["", " ", "NA", "nan", "NaN", "null", "?"])
def test_missing_values_are_refused_by_row_and_column_or_dropped(cell: str, tmp_path: Path) -> None:
    path = write(tmp_path, f"a,b,y\n1,u,0\n2,v,1\n{cell},u,0\n4,{cell},1\n5,v,{cell}\n6,v,1\n")
    with rejects("features['a']", where="row 3 of data.csv"):
        LabelledStream.read(path)
    assert LabelledStream.read(path, rows=2).horizon == 2  # later rows are not used
    dropped = LabelledStream.read(path, missing="drop")
    assert_same(dropped, LabelledStream({"a": [1, 2, 6], "b": ["u", "v", "v"]}, [0, 1, 1]))
    assert_same(LabelledStream.read(path, missing="drop", rows=2), LabelledStream.read(path, rows=2))
    with rejects("rows", value=4):
        LabelledStream.read(path, missing="drop", rows=4)
    with rejects("features['b']", where="row 2"):
        LabelledStream({"b": ["u", None]}, [0, 1])
    with rejects("labels", where="row 2"):
        LabelledStream([[1.0], [2.0], [3.0]], [0, np.nan, 1])


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with rejects("path", hint="No such file or directory"):
        LabelledStream.read(tmp_path / "none.csv")
    with rejects("path", hint="Is a directory"):
        LabelledStream.read(tmp_path)
    for text in ("", "\n\n", "a,a,y\n1,2,0\n", "a,,y\n1,2,0\n", 'a,y\n"1,0\n'):
        with rejects("path"):
            LabelledStream.read(write(tmp_path, text))
    (tmp_path / "latin.csv").write_bytes("a,y\nü,0\n".encode("latin-1"))
    with rejects("path", expected="a CSV file in UTF-8", where=f"line 2 of {tmp_path / 'latin.csv'}"):
        LabelledStream.read(tmp_path / "latin.csv")
    for path in (None, 5, b"data.csv", "a\0b.csv"):
        with rejects("path", value=path):
            LabelledStream.read(path)
    with rejects("path", expected="a Parquet file"):
        LabelledStream.read(write(tmp_path, "a,y\n", "a.parquet"))
    pd.DataFrame({"a": [pd.Timestamp(0)], "y": [1]}).to_parquet(tmp_path / "time.parquet")
    with rejects("columns['a']"):
        LabelledStream.read(tmp_path / "time.parquet")
    with rejects("sha256", value="0" * 64, hint="the file has changed"):
        LabelledStream.read(write(tmp_path, CSV), sha256="0" * 64)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with rejects("path", hint="pip install 'windvane[lab]'"):
        LabelledStream.read(tmp_path / "time.parquet")


@pytest.mark.parametrize(("mark", "word"), [(",", ""), (";", "semicolons"), ("\t", "tabs")])
def test_a_table_without_fields_is_refused(mark: str, word: str, tmp_path: Path) -> None:
    names = ["y"] if mark == "," else ["a", "b", "y"]
    path = write(tmp_path, "\n".join(mark.join(row) for row in (names, "120"[: len(names)], "341"[: len(names)])))
    hint = f"columns must be separated by commas, not by {word}" if word else ""
    with rejects("path", got=f"the column {mark.join(names)!r} alone", where=str(path), hint=hint):
        LabelledStream.read(path)
    pd.DataFrame({"y": [0, 1]}).to_parquet(tmp_path / "y.parquet")
    with rejects("path", got="the column 'y' alone"):
        LabelledStream.read(tmp_path / "y.parquet")
    for features in ({}, np.empty((2, 0))):
        with rejects("features", got="none"):
            LabelledStream(features, [0, 1])


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ("007 7 08", ("007", "08", "7")),
        ("1_0 10", ("10", "1_0")),
        ("1.0 1", ("1", "1.0")),
        ("-0 0 +1", ("+1", "-0", "0")),
        ("1e3 1000", ("1000", "1e3")),
        ("10 -3 0", (-3, 0, 10)),
    ],
)
def test_labels_are_whole_numbers_only_if_written_so(labels: str, classes: tuple, tmp_path: Path) -> None:
    rows = "".join(f"{label},{place}\n" for place, label in enumerate(labels.split()))
    stream = LabelledStream.read(write(tmp_path, f"y,a\n{rows},5\n"), label="y", missing="drop")
    assert stream.classes == classes
    for t, label in enumerate(labels.split(), start=1):
        assert str(classes[stream.round(t).means[0].argmax()]) == label


def test_labels_of_a_file_that_are_no_classes(tmp_path: Path) -> None:
    for labels, where in {("0.5", "1"): "data.csv", ("3", "3"): "column 'y' of data.csv"}.items():
        with rejects("labels", where=where):
            LabelledStream.read(write(tmp_path, "a,y\n1,{}\n2,{}\n".format(*labels)))
    with rejects("labels", where="row 1 of data.csv"):
        LabelledStream.read(write(tmp_path, f"a,y\n1,{'9' * 400}\n2,0\n"))


def test_numbers_with_underscores_are_texts(tmp_path: Path) -> None:
    stream = LabelledStream.read(write(tmp_path, "a,y\n10_20,0\n1020,1\n"))
    assert stream.fields == {"a": ["1020", "10_20"]}


def test_a_file_without_a_header_is_refused(tmp_path: Path) -> None:
    for header in ("5.1,-3,0", "1,1", "1e3, 2"):
        path = write(tmp_path, f"{header}\n{header}\n")
        with rejects("path", expected="a CSV file whose first line names the columns", where=str(path)):
            LabelledStream.read(path)
    assert list(LabelledStream.read(write(tmp_path, "2019,2020_,y\n1,2,0\n1,2,1\n")).fields) == ["2019", "2020_"]


@pytest.mark.parametrize(
    ("text", "line", "got"),
    [
        ("a,y\n1,0\n1,2,0\n", 3, "3 cells"),
        ('\na,y\n\n"1\n2",0\n \t\n1,2,0\n', 7, "3 cells"),
        ('a,y\n1,0\n"1,0\n2,1\n', 3, "a quote that is not closed"),
        ("a,y\n1,0\n\n" + "x" * 200_000 + ",1\n", 4, None),
        ('a,y\n1,0\n"1,0\n' + "2,1\n" * 50_000, 3, None),
        ('a,y\n1,0\n"1"2,0\n', 3, "a malformed cell (',' expected after '\"')"),
    ],
)
def test_errors_name_the_file_and_the_line(text: str, line: int, got: str | None, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    long = "a cell of more than 131,072 characters or a quote that is not closed"
    with rejects("path", where=f"line {line} of {path}", got=got or long):
        LabelledStream.read(path)


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b,y\n1,2,0\n")
    with rejects("label", expected=f"one of a, b, y, the columns of {path}"):
        LabelledStream.read(path, label="z")
    wide = write(tmp_path, ",".join(f"column{i}" for i in range(500)) + "\n")
    with rejects("label", value="z"):  # the message stays short
        LabelledStream.read(wide, label="z")
    with rejects("features", where="data.csv"):
        LabelledStream.read(write(tmp_path, "a,y\n"))
    late = b"a,y\r\n" + b"1,0\r\n" * 40_000 + b"\xff,1\r\n"
    (tmp_path / "late.csv").write_bytes(late)
    with rejects("path", where=f"line 40002 of {tmp_path / 'late.csv'}", got="the byte ff"):
        LabelledStream.read(tmp_path / "late.csv")


def test_lines_of_blanks_are_skipped(tmp_path: Path) -> None:
    stream = LabelledStream.read(write(tmp_path, "  \na,y\n1,0\n   \n\t\n2,1\n \n"))
    assert_same(stream, LabelledStream({"a": [1, 2]}, [0, 1]))


def test_missing_values_of_pandas() -> None:
    sky = pd.Series(["grey", pd.NA, "blue"], dtype="string")
    for column in (sky, sky.astype(object), pd.Series([1, pd.NA, 3], dtype="Int64"), [True, pd.NA, False]):
        with rejects("features['sky']", where="row 2", got="a missing value"):
            LabelledStream({"sky": column}, [0, 1, 1])
        assert LabelledStream({"sky": column}, [0, 1, 1], missing="drop").horizon == 2
    with rejects("labels", where="row 2"):
        LabelledStream({"a": [1, 2, 3]}, sky)


def test_whole_numbers_that_are_too_large_for_floats() -> None:
    for number in (10**400, -(10**400)):
        with rejects("features['a']", where="row 1"):
            LabelledStream({"a": [number, 1]}, [0, 1])
        with rejects("features['x1']", where="row 2"):
            LabelledStream([[1], [number]], [0, 1])
        with rejects("labels", where="row 1"):
            LabelledStream({"a": [1, 2]}, [number, 1])


def test_read_has_the_settings_of_the_constructor(tmp_path: Path) -> None:
    path = write(tmp_path, CSV)
    stream = LabelledStream.read(path, S=2.0, drift=0.5, switches=3, lanes=[4, 2], seed=7)
    assert (stream.S, stream.variation.tolist(), stream.switches.tolist()) == (2.0, [0.5, 0.5], [3, 3])
    assert (stream.lanes, stream.seed) == (2, 7)
    with pytest.raises(TypeError, match=r"read\(\) got an unexpected keyword argument 'source'"):
        LabelledStream.read(path, source="elsewhere")


def test_data_that_cannot_be_used() -> None:
    x = [[1.0], [2.0]]
    for labels in ([0.5, 1.0], [2.0**53, 0], [1, 1], [[1], [0]], [1, "a"], [1, 0, 1]):
        with rejects("labels"):
            LabelledStream(x, labels)
    with rejects("labels", got="1001", where="column 'label'"):
        LabelledStream(np.zeros((1001, 1)), np.arange(1001))
    for features in (
        [1.0, 2.0],
        [[1.0], [2.0, 3.0]],
        "ab",
        {"a": [1, "b"]},
        {"a": np.ma.masked_array([1, 2])},
        {"": x},
    ):
        with rejects("features"):
            LabelledStream(features, [0, 1])
    for value in (np.inf, -2e100):
        with rejects("features['x1']", value=value, where="row 2"):
            LabelledStream([[1.0], [value]], [0, 1])
    with rejects("features"):
        LabelledStream(np.empty((0, 2)), [])
    with rejects("names"):
        LabelledStream(x, [0, 1], names=["a", "b"])
    with rejects("names"):
        LabelledStream({"a": [1, 2]}, [0, 1], names=["a"])
    for argument, value in {"S": 0, "drift": -1.0, "switches": 1.5, "lanes": 0, "seed": -1, "missing": "keep"}.items():
        with rejects(argument, value=value):
            LabelledStream(x, [0, 1], **{argument: value})


# --- the interface of an environment ----------------------------------------------------------------------------------


def test_what_policies_are_told_is_an_assumption() -> None:
    stream = LabelledStream(TABLE, LABELS, S=3.0, lanes=2)
    assert (stream.S, stream.L, stream.sigma, stream.link.name) == (3.0, 1.0, 0.5, "logistic")
    assert (stream.variation.tolist(), stream.switches.tolist()) == ([6.0, 6.0], [1, 1])
    stream = LabelledStream(TABLE, LABELS, drift=0.5, switches=4)
    assert (stream.variation.tolist(), stream.switches.tolist()) == ([0.5], [4])
    assert not stream.has_theta
    assert "rounds=4" in repr(stream)


def test_rewards_are_whether_the_class_is_right() -> None:
    stream = LabelledStream(TABLE, LABELS, lanes=[5, 2])
    offer = stream.round(4)
    np.testing.assert_array_equal(stream.reward(4, offer.means[[0, 1], [2, 0]]), [1.0, 0.0])
    for t in (4, 4.0, np.float64(4)):  # the clock of a policy is a float
        np.testing.assert_array_equal(stream.means(t, offer.arms[:, ::-1]), offer.means[:, ::-1])
    assert stream.delays(4) is None
    for means in ([0.5, 1.0], [1.0], [np.nan, 0.0]):
        with rejects("means"):
            stream.reward(1, means)
    with rejects("t", value=9):
        stream.reward(9, [0.0, 1.0])
    for t in (0, 5, 0.5, 4.9, np.nan, np.inf, None):
        with rejects("t"):
            stream.means(t, offer.arms)


def test_rounds_do_not_share_what_a_policy_may_change() -> None:
    stream = LabelledStream(TABLE, LABELS, lanes=2)
    first = stream.round(1)
    kept = first.arms.copy()
    first.arms[:] = 9.0
    first.means[:] = 9.0
    stream.round(2)
    np.testing.assert_array_equal(stream.round(1).arms, kept)
    assert stream.round(1).means.max() == 1.0
    with pytest.raises(ValueError, match="read-only"):
        first.theta[:] = 0.0


def test_lanes_see_the_same_rows_and_only_ties_differ() -> None:
    """A policy makes the same choices on many lanes as on each lane alone. Random play differs between lanes."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(40, 2)), rng.integers(0, 3, 40)
    for name in ("AdaptiveGLMUCB", "UniformRandom"):
        together = play(PolicySpec(name), LabelledStream(x, y, lanes=[7, 1, 4]))
        alone = [play(PolicySpec(name), LabelledStream(x, y, lanes=[lane])) for lane in (7, 1, 4)]
        np.testing.assert_array_equal(together, np.concatenate(alone, axis=1))
    assert (together != together[:, :1]).any()


def play(spec: PolicySpec, stream: LabelledStream) -> np.ndarray:
    policy, lanes, choices = spec.build(stream), np.arange(stream.lanes), []
    for t in range(1, stream.horizon + 1):
        offer = stream.round(t)
        choices.append(policy.select(offer.arms, offer.valid))
        policy.update(offer.arms[lanes, choices[-1]], stream.reward(t, offer.means[lanes, choices[-1]]))
    return np.array(choices)


# --- real data --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "rows", "fields"), [("elec.csv", 45_312, 6), ("weather.csv", 18_159, 8)])
def test_real_data(name: str, rows: int, fields: int) -> None:
    if not (DATA / name).exists():
        pytest.skip(f"../shared/data/{name} is not beside the checkout")
    stream = LabelledStream.read(DATA / name)
    assert (stream.horizon, len(stream.fields), stream.classes) == (rows, fields, (0, 1))
    frame = pd.read_csv(DATA / name)
    features = declare(stream)
    for t in (1, 1025, rows):
        context = frame.iloc[t - 1, :-1].to_dict()
        np.testing.assert_array_equal(stream.round(t).arms[0], features.vectors(context, stream.classes))
        assert stream.round(t).means[0, int(frame.iloc[t - 1, -1])] == 1.0
