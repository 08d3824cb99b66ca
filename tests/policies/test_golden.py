"""Every registered policy decides and estimates what it did when its golden trajectory was recorded."""

import numpy as np
import pytest

from support import golden
from windvane import POLICIES

RECORDED = dict(np.load(golden.FILE))


def test_every_policy_is_recorded() -> None:
    assert {key.split("/")[0] for key in RECORDED} == set(POLICIES)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("seed", golden.SEEDS)
def test_trajectory(name: str, seed: int) -> None:
    run = golden.play(name, seed)
    np.testing.assert_array_equal(run["arms"], RECORDED[f"{name}/arms"][seed])
    for key in golden.NUMBERS:
        np.testing.assert_allclose(run[key], RECORDED[f"{name}/{key}"][seed], rtol=1e-9, atol=1e-9, err_msg=key)
