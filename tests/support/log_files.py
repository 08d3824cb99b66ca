"""Log files of simulated clicks."""

from __future__ import annotations

import csv
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

ARMS = ("red", "green", "blue")


def write_clicks(path: Path, rows: int = 3000, *, turns: float = 1.0, seed: int = 0, floor: float = 0.1) -> Path:
    """Write a CSV log of banners. Phones and desktops like different ones, and the taste goes round ``turns`` times."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "when", "banner", "clicked", "p", "device", "age"])
        for i in range(rows):
            device, age = ("phone", "desktop")[rng.integers(2)], int(rng.integers(18, 80))
            phase = 2.0 * np.pi * (turns * i / rows + np.arange(3) / 3.0 + 0.5 * (device == "phone"))
            p = np.full(3, floor)
            p[i // 200 % 3] += 1.0 - 3.0 * floor
            arm = int(rng.choice(3, p=p))
            clicked = rng.random() < 1.0 / (1.0 + np.exp(0.5 - 2.0 * np.cos(phase[arm])))
            writer.writerow([f"d{i}", 1_700_000_000 + 60 * i, ARMS[arm], int(clicked), p[arm], device, age])
    return path


BANNERS = ("summer", "sale", "classic")
BEFORE = {
    "phone": {"summer": 0.06, "sale": 0.02, "classic": 0.04},
    "desktop": {"summer": 0.03, "sale": 0.04, "classic": 0.035},
}
AFTER = {**BEFORE, "phone": {"summer": 0.02, "sale": 0.07, "classic": 0.04}}
CHANGE = 12_000  # the row from which on phones have another taste
BANNER_COLUMNS = "--time timestamp --arm banner --reward click"
ROWS_APART = 90  # seconds: 20,000 rows are 20.8 days, which are not two halves of whole days


def write_banners(path: Path, rows: int = 20_000, *, change: int | None = CHANGE, seed: int = 0) -> Path:
    """Write the log of a newcomer: rare clicks, uniform banners, a mild effect of the hour, and one change of taste.

    From row ``change`` on, phones like "sale" instead of "summer". None: the taste never changes.
    """
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["visit_id", "timestamp", "device", "hour", "banner", "propensity", "click"])
        writer.writerows(draw_banners(rows, change=change, seed=seed))
    return path


def draw_banners(rows: int, *, change: int | None, seed: int) -> list[list[Any]]:
    """Return the rows of :func:`write_banners`."""
    rng, start = np.random.default_rng(seed), datetime(2026, 3, 1, tzinfo=UTC)
    devices, banners, coins = rng.integers(2, size=rows), rng.integers(3, size=rows), rng.random(rows)
    lines = []
    for i in range(rows):
        time = start + timedelta(seconds=ROWS_APART * i)
        device, banner = ("phone", "desktop")[devices[i]], BANNERS[banners[i]]
        rate = (BEFORE if change is None or i < change else AFTER)[device][banner]
        odds = rate / (1.0 - rate) * math.exp(0.25 * math.cos(2.0 * math.pi * (time.hour - 20) / 24.0))
        click = int(coins[i] < odds / (1.0 + odds))
        lines.append([f"v{i:06d}", f"{time:%Y-%m-%dT%H:%M:%SZ}", device, time.hour, banner, 0.333333, click])
    return lines
