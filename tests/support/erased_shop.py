"""A shop whose contexts hold numbers that can be found again, in any file: what is erased must not be."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import httpx2

from support.backends import locate
from support.erasing import read_bytes
from support.server import Local

FEATURES = {
    "shared": {"hour": [0, 24], "basket": None},
    "by_arm": {"device": ["phone", "desktop"]},
    "arms": ["spring", "summer", "none"],
}
SHOP = "/v1/streams/shop"
DAY = 86400.0


def mark(number: int) -> float:
    """Return a value that occurs nowhere else, in decimal or in binary notation."""
    return 0.2913847561 + number / 1e4


def has_mark(path: Path, number: int) -> bool:
    """Return whether a file or a table of the store has the value, as in a request or as in a vector."""
    value = mark(number)
    needles = repr(value).encode(), struct.pack("<d", value), struct.pack(">d", value)
    content = read_bytes(locate(path))
    assert content
    return any(needle in content for needle in needles)


def offer(number: int) -> dict[str, Any]:
    """Return a request to decide among fields, which has the mark ``number``."""
    return {"context": {"hour": number % 24, "basket": mark(number), "device": ("phone", "desktop")[number % 2]}}


def offer_vectors(number: int) -> dict[str, Any]:
    """The same for a stream of two dimensions: every arm has the mark, so that the one played has it."""
    return {"arms": {"red": [mark(number), 0.3], "blue": [mark(number), -0.2]}}


def erase(service: Local, decision: str) -> httpx2.Response:
    return service.request("DELETE", f"{SHOP}/decisions/{decision}/context")


def compact(service: Local) -> int:
    """Compact the shop; return how many events were removed."""
    answer = service.post(f"{SHOP}/compact")
    assert answer.status_code == 200, answer.text
    assert answer.json()["left"] == service.load().number - (service.info()["removed"] or {"number": 0})["number"]
    return int(answer.json()["removed"])


def list_kinds(service: Local) -> list[str]:
    return [event["kind"] for event in service.events()]
