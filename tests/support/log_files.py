"""Log files of simulated clicks."""

from __future__ import annotations

import csv
from pathlib import Path

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
