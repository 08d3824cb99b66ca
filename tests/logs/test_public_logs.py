"""The public logs in ../shared/data, with totals computed without windvane."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from windvane.errors import ArgumentError
from windvane.logs import read

DATA = Path(__file__).parents[3] / "shared" / "data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data is not there")


def totals(log) -> dict:
    """What is compared: rows, mean reward in the unit of the log, mean probability, arms."""
    batches = list(log.batches())
    reward = np.concatenate([batch.reward for batch in batches])
    for batch in batches:
        assert np.isfinite(batch.arms).all()
        assert np.sqrt((batch.arms**2).sum(axis=2)).max() <= log.schema.L * (1 + 1e-9)
        if batch.probabilities is not None:
            own = batch.probabilities[np.arange(len(batch)), batch.played]
            np.testing.assert_allclose(own, batch.propensity, atol=1e-6)
    return {
        "rows": len(reward),
        "reward": log.schema.to_reward(float(reward.mean())),
        "propensity": float(np.concatenate([batch.propensity for batch in batches]).mean()),
    }


@pytest.mark.parametrize("name", ["random", "bts"])
@pytest.mark.parametrize("has_items", [False, True])
def test_open_bandit(name: str, has_items: bool) -> None:
    path = DATA / f"obd_{name}_men.csv"
    log = read(path, arms_from=DATA / "obd_item_context_men.csv" if has_items else None)
    table = pd.read_csv(path, index_col=0)
    assert log.schema.format == "open-bandit"
    assert totals(log) == pytest.approx(
        {"rows": len(table), "reward": table.click.mean(), "propensity": table.propensity_score.mean()}
    )
    assert log.arm_counts == Counter(table.item_id.astype(str))
    assert log.schema.arms == tuple(str(i) for i in range(34))
    assert log.schema.floor == (pytest.approx(1 / 34) if name == "random" else None)
    assert not len(log.problems)
    times = np.concatenate([batch.time for batch in log.batches()])
    np.testing.assert_allclose(times, [t.timestamp() for t in pd.to_datetime(table.timestamp)], atol=1e-6, rtol=0)
    assert "position" in log.schema.context_names
    batch = next(log.batches(5))
    if has_items:
        items = pd.read_csv(DATA / "obd_item_context_men.csv", index_col=0).set_index("item_id")
        own = {str(i): row.to_dict() for i, row in items.iterrows()}
    else:
        own = list(log.schema.arms)
    fields = [field.name for field in log.schema.features.shared]
    for i in range(5):
        context = {k: v.item() if hasattr(v, "item") else v for k, v in table.iloc[i][fields].items()}
        np.testing.assert_array_equal(batch.arms[i], log.schema.features.vectors(context, own))
    assert log.schema.dim <= 100


@pytest.mark.parametrize("name", ["decisionservice.json", "dsjson_cb.json", "igl.dsjson"])
def test_dsjson(name: str) -> None:
    path = DATA / "vw" / name
    records = [json.loads(line) for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    log = read(path)
    assert (log.schema.format, log.schema.propensities) == ("dsjson", "all arms")
    assert totals(log) == pytest.approx(
        {
            "rows": len(records),
            "reward": -np.mean([record["_label_cost"] for record in records]),
            "propensity": np.mean([record["_label_probability"] for record in records]),
        }
    )
    assert not len(log.problems)
    assert log.schema.has_times == ("Timestamp" in records[0])
    played = np.concatenate([batch.played for batch in log.batches()])
    assert played.tolist() == [record["_labelIndex"] for record in records]
    for batch in log.batches():
        for i, place in enumerate(batch.place.tolist()):
            record = records[place - 1]
            first = 0 if 0 in record["a"] else 1
            expected = dict(zip([arm - first for arm in record["a"]], record["p"], strict=True))
            assert batch.probabilities[i].tolist() == [expected[arm] for arm in range(len(expected))]
    assert log.schema.floor == min(min(record["p"]) for record in records)


def test_names_of_arms_in_dsjson() -> None:
    assert read(DATA / "vw" / "dsjson_cb.json").schema.arms == ("Cappucino", "Cold brew", "Iced mocha", "Latte")
    # The tags of the other two are missing, or the same for two arms: arms are numbered.
    assert read(DATA / "vw" / "igl.dsjson").schema.arms == ("1", "2", "3", "4")
    log = read(DATA / "vw" / "decisionservice.json")
    assert log.schema.arms == tuple(str(i) for i in range(1, 13))
    assert log.schema.dim == 100
    assert any(out.reason == "it does not fit into max_dim" for out in log.left_out)


def test_vw_text() -> None:
    path = DATA / "vw" / "rcv1_raw_cb_small.vw"
    labels = [line.split("|")[0].strip().split(":") for line in path.read_text().splitlines()]
    log = read(path)
    assert (log.schema.format, log.schema.reward_range, log.schema.is_range_declared) == ("vw", (-1.0, 0.0), False)
    assert totals(log) == pytest.approx(
        {"rows": 1000, "reward": -np.mean([float(c) for _, c, _ in labels]), "propensity": 0.5}
    )
    assert log.arm_counts == Counter(action for action, _, _ in labels)
    words = Counter(word for line in path.read_text().splitlines() for word in set(line.split("|")[1].split()))
    used = {field.name for field in log.schema.features.shared}
    rarest = min(words[word] for word in used)
    assert all(count <= rarest for word, count in words.items() if word not in used)
    assert log.schema.dim == 100
    assert len(used) == 97


def read_blocks(path: Path) -> list[tuple[int, int, float, float]]:
    """The number of arms, the chosen one, the cost and the probability of each block."""
    blocks = []
    for text in path.read_text().strip("\n").split("\n\n"):
        arms = [line.strip() for line in text.splitlines() if not line.startswith("shared")]
        chosen = [(i, line) for i, line in enumerate(arms) if not line.startswith("|")]
        if chosen:
            _, cost, chance = chosen[0][1].split("|")[0].split(":")
            blocks.append((len(arms), chosen[0][0], float(cost), float(chance)))
    return blocks


@pytest.mark.parametrize(("name", "unlabelled"), [("cb_adf_sm.data", 0), ("cb_load.dat", 0), ("cb_test.ldf", 1)])
def test_vw_blocks(name: str, unlabelled: int) -> None:
    path = DATA / "vw" / name
    blocks = read_blocks(path)
    log = read(path)
    assert totals(log) == pytest.approx(
        {
            "rows": len(blocks),
            "reward": -np.mean([cost for _, _, cost, _ in blocks]),
            "propensity": np.mean([chance for *_, chance in blocks]),
        }
    )
    batches = list(log.batches())
    assert [int(k) for batch in batches for k in batch.valid.sum(axis=1)] == [arms for arms, *_ in blocks]
    assert [int(i) for batch in batches for i in batch.played] == [chosen for _, chosen, *_ in blocks]
    assert log.problems.count("no label") == unlabelled


def test_labelled_streams_are_no_logs_without_a_mapping() -> None:
    for name in ("elec.csv", "weather.csv"):
        with pytest.raises(ArgumentError) as caught:
            read(DATA / name)
        assert caught.value.argument == "arm"


def test_labelled_streams_as_tables() -> None:
    """The label as an arm and a field as a reward make no sensible log, but a large table with known totals."""
    table = pd.read_csv(DATA / "elec.csv")
    log = read(DATA / "elec.csv", arm="class", reward="nswprice", features=["period", "nswdemand", "vicprice"])
    assert totals(log)["rows"] == len(table)
    assert totals(log)["reward"] == pytest.approx(table.nswprice.mean())
    assert log.arm_counts == Counter(table["class"].astype(str))
    assert (log.schema.propensities, log.schema.has_times, log.schema.dim) == ("none", False, 1 + 2 * 4)
    weather = pd.read_csv(DATA / "weather.csv")
    log = read(DATA / "weather.csv", arm="target", reward="feat_1")
    assert log.schema.reward_range == (weather.feat_1.min(), weather.feat_1.max())
    assert totals(log)["reward"] == pytest.approx(weather.feat_1.mean())
