"""Every registered policy decides and estimates what it did when its golden trajectory was recorded."""

import numpy as np
import pytest

from support import golden
from windvane import POLICIES
from windvane.kernels.projection import UNRESOLVED

RECORDED = dict(np.load(golden.FILE))
# A projection stops where rounding no longer lets its objective f resolve a step: a predicted decrease below UNRESOLVED
# f, which is quadratic in the step. Its last steps, up to the square root of that, depend on the order of sums.
TOLERANCE = {"theta_hat": 1e-9, "V": 1e-9, "theta_tilde": UNRESOLVED**0.5}


def test_every_policy_is_recorded() -> None:
    assert {key.split("/")[0] for key in RECORDED} == set(POLICIES)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("seed", golden.SEEDS)
def test_trajectory(name: str, seed: int) -> None:
    run = golden.play(name, seed)
    np.testing.assert_array_equal(run["arms"], RECORDED[f"{name}/arms"][seed])
    for key in golden.NUMBERS:
        recorded = RECORDED[f"{name}/{key}"][seed]
        np.testing.assert_allclose(run[key], recorded, rtol=1e-9, atol=TOLERANCE[key], err_msg=key)
