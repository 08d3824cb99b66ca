"""The encoding of logs: vectors are those of ``Features.vectors``, and the choice of fields."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windvane.agent.features import Features
from windvane.errors import ArgumentError
from windvane.logs import read
from windvane.logs.row_builder import Row, RowBuilder, RowOffer
from windvane.logs.row_encoder import RowEncoder
from windvane.logs.row_problems import Problems

NUMBERS = st.floats(-1e6, 1e6)
VALUES = ["x", "y", "z"]


@st.composite
def declarations(draw, names: list[str]):
    fields = {}
    for name in draw(st.lists(st.sampled_from(names), unique=True)):
        kind = draw(st.sampled_from(["range", "open", "category"]))
        if kind == "range":
            low = draw(st.floats(-1e3, 1e3))
            fields[name] = {"low": low, "high": low + draw(st.floats(0.5, 1e3))}
        else:
            fields[name] = {} if kind == "open" else {"values": VALUES}
    return fields


def draw_value(draw, declaration):
    if draw(st.integers(0, 9)) == 0:
        return None
    if "values" in declaration:
        return draw(st.sampled_from([*VALUES, "other"]))
    return draw(NUMBERS) if draw(st.booleans()) else float(draw(st.integers(-5, 5)))


@st.composite
def logs(draw):
    shared = draw(declarations(["a", "b", "c"]))
    by_arm = {**draw(declarations(["d", "e"])), **{k: v for k, v in shared.items() if draw(st.booleans())}}
    per_arm = draw(declarations(["p", "q"]))
    has_arms = bool(by_arm) or draw(st.booleans())
    intercept = draw(st.booleans()) or not (shared or per_arm or has_arms)
    features = Features(
        shared=shared, per_arm=per_arm, by_arm=by_arm, arms=["r", "s", "t"] if has_arms else (), intercept=intercept
    )
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        context = {name: draw_value(draw, declared) for name, declared in {**shared, **by_arm}.items()}
        names = draw(st.lists(st.sampled_from(["r", "s", "t"]), min_size=1, unique=True))
        arms = {name: {key: draw_value(draw, declared) for key, declared in per_arm.items()} for name in names}
        rows.append((context, arms, draw(st.sampled_from(names))))
    return features, rows


@given(logs())
def test_vectors_are_those_of_features(case) -> None:
    features, rows = case
    builder = RowBuilder(set(), set(), Problems())
    for place, (context, arms, played) in enumerate(rows):
        offers = [RowOffer(name, fields=own) for name, own in arms.items()]
        builder.append(Row(place + 1, played, 1.0, context=context, offers=offers))
    fixed = [str(name) for name in features.arms] or None
    encoder = RowEncoder(features, fixed, 3, features.dim, has_times=False)
    batch = encoder.encode(builder.take(), 1)
    for i, (context, arms, played) in enumerate(rows):
        expected = features.vectors(context, arms, lenient=True)
        places = [fixed.index(name) for name in arms] if fixed else range(len(arms))
        np.testing.assert_array_equal(batch.arms[i, list(places)], expected)
        assert np.flatnonzero(batch.valid[i]).tolist() == sorted(places)
        assert batch.played[i] == list(places)[list(arms).index(played)]
    np.testing.assert_array_equal(batch.arms[~batch.valid], 0.0)


@given(logs())
def test_rows_can_be_selected_in_any_order(case) -> None:
    features, rows = case
    builder = RowBuilder(set(), set(), Problems())
    for place, (context, arms, played) in enumerate(rows):
        offers = [RowOffer(name, fields=own) for name, own in arms.items()]
        builder.append(Row(place + 1, played, 1.0, context=context, offers=offers))
    raw = builder.take()
    encoder = RowEncoder(features, [str(name) for name in features.arms] or None, 3, features.dim, has_times=False)
    order = np.arange(len(rows))[::-1]
    whole, parts = encoder.encode(raw, 1), encoder.encode(raw.select(order), 1)
    np.testing.assert_array_equal(whole.arms[order], parts.arms)
    np.testing.assert_array_equal(whole.context[order], parts.context)


def write(path: Path, header: str, rows: list[str]) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_by_arm_fields_until_there_is_no_room(tmp_path: Path) -> None:
    rows = [f"{'abc'[i % 3]},{i % 2},{i},{i * 7 % 5},{'xyz'[i % 3 if i else 0]}" for i in range(20)]
    file = write(tmp_path / "log.csv", "arm,reward,u,v,w", rows)
    features = read(file).schema.features
    assert [field.name for field in features.by_arm] == ["u", "v", "w"]
    assert features.dim == 1 + 3 * (1 + 2 + 3)
    assert (features.by_arm[0].low, features.by_arm[0].high) == (0.0, 19.0)
    small = read(file, max_dim=18).schema.features
    assert not small.by_arm
    assert small.names == ["1", "u", "v", "w = x", "w = y", "w = z", "a: 1", "b: 1", "c: 1"]
    log = read(file, max_dim=7)
    assert log.schema.features.names == ["1", "u", "v", "w = x", "a: 1", "b: 1", "c: 1"]
    assert [(out.name, out.values) for out in log.left_out] == [("w", 2)]


def test_categories_with_very_many_values(tmp_path: Path) -> None:
    rows = [f"{'ab'[i % 2]},{i % 2},{'common' if i % 3 else f'rare{i}'},user{i},same" for i in range(90)]
    log = read(write(tmp_path / "log.csv", "arm,reward,w,user,constant", rows))
    assert log.schema.features.by_arm[0].values == ("common",)
    assert {(out.name, out.values) for out in log.left_out} == {("w", 30), ("user", 0), ("constant", 0)}


def test_the_most_frequent_fields_of_arms_come_first(tmp_path: Path) -> None:
    lines = []
    for i in range(12):
        shared = f"shared | s{i % 2} {'rare' if i == 3 else ''}"
        arms = [("0:1:0.5 " if j == i % 2 else "") + f"| f{j} g:{i + j} {'seldom' if i == 5 else ''}" for j in range(2)]
        lines += [shared, *arms, ""]
    file = tmp_path / "log.vw"
    file.write_text("\n".join(lines))
    log = read(file, max_dim=6)
    assert log.schema.names == ("1", "s0", "s1", "f0", "g", "f1")
    assert {out.name for out in log.left_out} == {"rare", "seldom"}
    f0 = log.schema.features.per_arm[0]
    assert (f0.low, f0.high) == (-1.0, 1.0)  # absent is 0, and 0 in the encoding


def test_features_can_be_declared(tmp_path: Path) -> None:
    file = write(tmp_path / "log.csv", "arm,reward,u,w", ["a,1,5,x", "b,0,7,y", "a,1,20,z"])
    features = {"by_arm": {"u": [0, 10]}, "shared": {"w": ["x", "y"]}, "arms": ["a", "b", "c"]}
    log = read(file, features=features)
    assert log.schema.features.dim == 1 + 2 + 3 * 2
    (batch,) = log.batches()
    assert batch.valid.all()
    expected = Features(**features).vectors({"u": 20, "w": "z"}, ["a", "b", "c"], lenient=True)
    np.testing.assert_array_equal(batch.arms[2], expected)
    assert log.schema.context_names == ("w = x", "w = y", "u")
    with pytest.raises(ArgumentError) as caught:
        read(file, features={"by_arm": {"uu": [0, 10]}, "arms": ["a", "b"]})
    assert caught.value.path == ("features", "by_arm", "uu")
    only_a = read(file, features={"arms": ["a", "c"]})
    assert only_a.problems.count("unknown arm") == 1
    open_number = read(file, features={"by_arm": ["u"], "arms": ["a", "b"]})
    (batch,) = open_number.batches()
    norms = np.sqrt((batch.arms**2).sum(axis=2))
    assert norms.max() <= open_number.schema.L < 2 * norms.max()


def test_numbers_and_texts_in_one_field_are_texts(tmp_path: Path) -> None:
    lines = []
    for i, value in enumerate([1, "a", 2.5, True, "1"]):
        event = {"number": i, "time": f"2026-01-01T00:00:0{i}Z", "kind": "decided", "decision": f"d{i}", "arm": "x"}
        reward = {**event, "kind": "rewarded", "value": i % 2, "settled": True}
        event |= {"index": 0, "propensity": None, "request": {"arms": ["x", "y"], "context": {"f": value}}}
        lines += [json.dumps(event), json.dumps(reward)]
    file = tmp_path / "log.ndjson"
    file.write_text("\n".join(lines))
    assert read(file).schema.features.by_arm[0].values == ("1", "2.5", "a")
