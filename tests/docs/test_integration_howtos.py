"""The pages about other libraries, followed step by step: what they promise is what comes out."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from support.pages import DOCS, run_snippets

HOWTO = DOCS / "howto"


def test_scikit_learn(tmp_path: Path) -> None:
    page = run_snippets(HOWTO / "scikit-learn.md", tmp_path)
    assert page["forgetful"].coef_[0, 0] < -1 < page["lasting"].coef_[0, 0] < 0.5
    correct = page["correct"]
    assert min(np.mean(correct[:49]), np.mean(correct[60:])) > 0.75 > np.mean(correct[49:54])
    assert page["search"].best_params_ == {"half_life": 50}
    linear = page["linear"]
    assert np.allclose([linear.coef_[1], linear.intercept_], [-3.0, 20.0], atol=0.5)
