"""The Open Bandit Dataset, in a small file of the same form."""

from __future__ import annotations

from pathlib import Path

import pytest

from windvane.logs import read

HEADER = ",timestamp,item_id,position,click,{},user_feature_0,user-item_affinity_0,user-item_affinity_1"
ROWS = [
    "0,2019-11-24 00:00:00.5+00:00,0,1,1,0.5,u,0.0,1.0",
    "1,2019-11-24 00:00:01.5+00:00,1,3,0,0.5,v,2.0,0.0",
    "2,2019-11-24 00:00:01.5+00:00,0,2,0,0.5,u,0.0,0.0",
]


@pytest.mark.parametrize("probability", ["propensity_score", "action_prob"])
def test_the_names_of_columns_are_known(tmp_path: Path, probability: str) -> None:
    file = tmp_path / "men.csv"
    file.write_text("\n".join([HEADER.format(probability), *ROWS]))
    items = tmp_path / "item_context.csv"
    items.write_text(",item_id,item_feature_0,item_feature_1\n0,0,-0.5,x\n1,1,0.5,y\n")
    log = read(file)
    assert (log.schema.format, log.schema.arms, log.schema.floor) == ("open-bandit", ("0", "1"), 0.5)
    assert log.schema.context_names == (
        "position", "user_feature_0 = u", "user_feature_0 = v", "user-item_affinity_0", "user-item_affinity_1",
    )  # fmt: skip
    (batch,) = log.batches()
    assert batch.reward.tolist() == [1.0, 0.0, 0.0]
    assert (batch.time - batch.time[0]).tolist() == [0.0, 1.0, 1.0]
    with_items = read(file, arms_from=items)
    assert with_items.schema.names[-3:] == ("item_feature_0", "item_feature_1 = x", "item_feature_1 = y")
    assert [field.name for field in with_items.schema.features.per_arm] == ["item_feature_0", "item_feature_1"]


def test_a_mapping_by_the_caller_comes_first(tmp_path: Path) -> None:
    file = tmp_path / "men.csv"
    file.write_text("\n".join([HEADER.format("propensity_score"), *ROWS]))
    log = read(file, arm="position", features=["user_feature_0"])
    assert log.schema.arms == ("1", "2", "3")
    table = read(file, format="table", arm="item_id", reward="click")
    assert (table.schema.format, table.schema.has_times) == ("table", False)
