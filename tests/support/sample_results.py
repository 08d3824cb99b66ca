"""Results made up for the tests of figures and reports: the shapes of real ones, without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windvane.lab.figures.over_time_figure import PublishedCurve
from windvane.lab.results.results import Entry, Results
from windvane.lab.results.summary import Difference
from windvane.lab.run.play import ThetaPath

FINALS = {"OFUL": 278.0, "D-LinUCB": 105.0, "GLM-UCB": 156.0, "BVD-GLM-UCB": 89.0}
SPREADS = {"OFUL": 120.0, "D-LinUCB": 25.0, "GLM-UCB": 40.0, "BVD-GLM-UCB": 7.0}
PUBLISHED = {"OFUL": 220.5, "D-LinUCB": 105.4, "GLM-UCB": 138.0, "BVD-GLM-UCB": 59.1}


def recorded(horizon: int, most: int = 1000) -> np.ndarray:
    return np.unique(np.rint(np.linspace(1, horizon, min(horizon, most))).astype(np.int64))


def theta_path(horizon: int = 3000, dim: int = 2, S: float = 1.0, projects: bool = True, seed: int = 1) -> ThetaPath:
    """theta* turns by a right angle in the middle third; theta_hat lags behind, wobbles and leaves the ball."""
    rng = np.random.default_rng(seed)
    rounds = recorded(horizon)
    angle = np.pi / 2 * np.clip(3 * rounds / horizon - 1, 0, 1)
    late = np.pi / 2 * np.clip(3 * rounds / horizon - 1.25, 0, 1)
    star, hat = np.zeros((2, len(rounds), dim))
    wobble = np.zeros((len(rounds), dim))
    for i in range(1, len(rounds)):
        wobble[i] = 0.97 * wobble[i - 1] + 0.06 * rng.standard_normal(dim)
    star[:, 0] = S * np.cos(angle)
    hat[:, 0] = 1.02 * S * np.cos(late)
    if dim > 1:
        star[:, 1] = S * np.sin(angle)
        hat[:, 1] = 1.02 * S * np.sin(late)
    hat = hat * (1 - np.exp(-rounds / (0.01 * horizon)))[:, None] + S * wobble
    norm = np.linalg.norm(hat, axis=1, keepdims=True)
    tilde = np.where(norm > S, hat * S / norm, hat) if projects else np.full_like(hat, np.nan)
    return ThetaPath(rounds, star, hat, tilde, S)


def diagnostics(runs: int, rounds: np.ndarray, seed: int = 3) -> dict[str, np.ndarray]:
    """Terms with the awkward values that real ones have: unknown at first, a bound that is infinite for a while."""
    rng = np.random.default_rng(seed)
    shape = (runs, len(rounds))
    t = rounds / rounds[-1]
    beta = np.broadcast_to(0.2 + 1.6 * np.sqrt(1 - np.exp(-8 * t)), shape).copy()
    learning = beta * (0.35 + 0.1 * rng.standard_normal((runs, 1)) + 0.02 * rng.standard_normal(shape))
    learning[:, 0] = np.nan
    bound = np.broadcast_to(0.05 + 2.0 * np.clip(3 * t - 1, 0, 1), shape).copy()
    bound[:, :3] = np.inf
    tracking = 0.3 * np.where(np.isfinite(bound), bound, 1.0) * rng.uniform(0.6, 1.2, shape)
    slack = {f"lemma_{k}_slack": k * np.exp(-2 * t) * rng.uniform(0.5, 1.5, shape) for k in (2, 3, 4)}
    return {"learning": learning, "beta": beta, "tracking": tracking, "tracking_bound": bound, **slack}


def entry(
    policy: str = "BVD-GLM-UCB",
    *,
    name: str | None = None,
    environment: str = "rotation",
    runs: int = 50,
    horizon: int = 3000,
    final: float | None = None,
    variant: dict[str, float] | None = None,
    with_path: bool = True,
    with_diagnostics: bool = False,
    seed: int = 0,
) -> Entry:
    rng = np.random.default_rng([seed, *policy.encode()])
    rounds = recorded(horizon)
    final = FINALS.get(policy, 100.0) if final is None else final
    t = rounds / horizon
    shape = 0.25 * np.sqrt(t) + 0.75 * t * np.clip(0.3 + t, 0, 1)
    scale = final + SPREADS.get(policy, 15.0) * rng.standard_normal((runs, 1))
    regret = np.maximum.accumulate(np.abs(scale) * shape / shape[-1], axis=1)
    projects = "GLM" in policy
    stages = np.tile([0.55, 0.0, 0.44, 0.01] if policy.startswith("BVD") else [0.6, 0.0, 0.4, 0.0], (runs, 1))
    return Entry(
        environment=environment,
        policy=policy if name is None else name,
        horizon=horizon,
        lanes=np.arange(runs),
        rounds=rounds,
        regret=regret,
        reward=rng.uniform(1000, 2000, runs),
        drift=np.full(runs, np.pi / 2),
        switches=np.full(runs, horizon // 3),
        gamma=np.full(runs, 0.995908),
        outside=rng.uniform(0.3, 0.6, runs),
        stages=stages if projects else np.full((runs, 4), np.nan),
        microseconds=rng.uniform(1, 5),
        path=theta_path(horizon, projects=projects, seed=len(policy)) if with_path else None,
        variant=variant or {},
        diagnostics=diagnostics(runs, rounds) if with_diagnostics else {},
    )


def four(**settings: Any) -> list[Entry]:
    return [entry(policy, **settings) for policy in FINALS]


def many(count: int = 40, **settings: Any) -> list[Entry]:
    """A sweep of two policies over discounts."""
    result = []
    for i in range(count):
        policy = ("BVD-GLM-UCB", "D-LinUCB")[i % 2]
        gamma = 1 - 10 ** (-1 - 3 * i / count)
        result.append(
            entry(
                policy,
                variant={"gamma": gamma},
                final=80 + 6.0 * abs(i - count / 2),
                with_path=i < 2,
                seed=i,
                **settings,
            )
        )
    return result


def published(horizon: int = 3000) -> dict[tuple[str, str], PublishedCurve]:
    rounds = np.arange(1, horizon + 1)
    return {
        ("rotation", name): PublishedCurve(rounds, final * (rounds / horizon) ** 1.2)
        for name, final in PUBLISHED.items()
    }


def differences(count: int = 3, environment: str = "rotation") -> list[Difference]:
    """The first is certainly better, the second certainly worse, the third cannot be told from the baseline."""
    cases = [("BVD-GLM-UCB", -60.0, 5.0), ("OFUL", 120.0, 20.0), ("D-LinUCB gamma=0.99", -3.0, 8.0)][:count]
    verdicts = ["better", "worse", "no significant difference"]
    return [
        Difference(
            environment, label, "GLM-UCB", 50, mean, half / 2, mean - half, mean + half, 0.5, 0.01, 0.02, verdict
        )
        for (label, mean, half), verdict in zip(cases, verdicts, strict=False)
    ]


def results(entries: Sequence[Entry], folder: Path = Path("results"), finished: int = 8, **changes: Any) -> Results:
    manifest = {
        "format": 1,
        "title": "",
        "fingerprint": "ab" * 32,
        "seed": 7,
        "runs": len(entries[0].lanes) if entries else 50,
        "horizon": entries[0].horizon if entries else 3000,
        "environments": ["rotation"],
        "policies": [{"name": "OFUL", "variants": [{}]}],
        "cells": [[0, 0, 0, 25]] * 8,
        "versions": {"windvane": "0.1.0", "python": "3.12.1", "numpy": "2.4.6"},
        "begun": "2026-01-02T03:04:05+00:00",
        "command": "windvane reproduce --runs 50 --out 'a folder'",
        **changes,
    }
    return Results(folder, manifest, list(entries), finished, 8)
