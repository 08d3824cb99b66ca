"""Compile, or load from the cache, every kernel now rather than at the first decision."""

from __future__ import annotations

import inspect
import time

import numpy as np


def warm_up() -> float:
    """Run each kernel once on a tiny problem; return the seconds it took.

    Kernels are loaded from the cache folder, or compiled and stored there. If the folder cannot be written, every
    process compiles them again.
    """
    from windvane.policies.registry import POLICIES
    from windvane.projection import p2

    began = time.perf_counter()
    arms = np.full((1, 2, 2), 0.5)
    known = {"horizon": 9, "drift": 1.0, "switches": 1.0, "truth": lambda _t, arms: arms[..., 0]}
    for made in POLICIES.values():
        taken = inspect.signature(made).parameters
        policy = made(dim=2, **{name: value for name, value in known.items() if name in taken})  # type: ignore[call-arg]
        for _ in range(2):
            policy.update(arms[:, policy.select(arms)[0]], 1.0)
        policy.state()
    features, eye = np.ones((4, 2)), np.eye(2)
    p2(features, np.ones(4), 9 * np.ones(2), eye, eye, 0.1, 0.5, 0.1, "logistic")
    return time.perf_counter() - began
