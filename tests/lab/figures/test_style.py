"""Looks are fixed by name, stay apart for every sight, and text from outside fits a figure."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from support import sample_results as samples
from windvane.lab.figures import style


def test_looks_are_fixed_by_name_and_distinct():
    entries = [
        *samples.four(),
        *(samples.entry(name) for name in ("policy 0", "policy 1", "AdaptiveGLMUCB", "BOB-BVD-GLM-UCB")),
    ]
    found = style.looks(entries)
    assert len({look.colour for look in found}) == 8
    assert len({look.marker for look in found}) == 8
    assert style.looks(entries[::-1])[-4:] == found[:4][::-1]
    assert style.looks([entries[5]]) == style.looks([entries[0], entries[5]])[1:]
    many = style.looks([samples.entry(f"policy {i}") for i in range(60)])
    assert len({look.colour for look in many[:8]}) == 8
    assert len(set(many[:8])) + len(set(many[8:])) == 60
    assert {look.dash for look in many[:8]} == {"solid"}
    for first in range(0, 32, 8):  # colours come again when all are used, with the next dash
        assert len({look.colour for look in many[first : first + 8]}) == 8
    assert len({(look.colour, look.dash) for look in many[:32]}) == 32


def test_variants_share_a_hue_and_differ_in_shade():
    found = style.looks([e for e in samples.many(12) if e.policy == "D-LinUCB"])
    assert len({look.colour for look in found}) == 6
    assert len({look.marker for look in found}) == 1


TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
SIGHT = {  # Machado, Oliveira and Fernandes (2009), full severity
    "normal": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritan": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
PALETTE = [look.colour for look in style.PALETTE]


def linear(colour):
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(light):
    ratio = TO_XYZ @ np.clip(light, 0, 1) / [0.9505, 1.0, 1.089]
    x, y, z = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_stay_apart_for_every_sight(sight):
    seen = [lab(SIGHT[sight] @ linear(colour)) for colour in PALETTE]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 15  # about 2 can just be seen


@pytest.mark.parametrize("colour", PALETTE)
@pytest.mark.parametrize("ground", ["#ffffff", "#15191f"])
def test_colours_stand_out_on_white_and_on_the_dark_page(colour, ground):
    low, high = sorted(TO_XYZ[1] @ linear(each) for each in (colour, ground))
    assert (high + 0.05) / (low + 0.05) >= 3  # what WCAG asks of graphics


def test_text_is_one_line_that_fits():
    assert style.tidy("two\nlines\x00 of\ttext") == "two lines of text"
    assert style.tidy("x" * 300, 10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.001, "0.001"), (-0.5, "−0.5"), (2000.0, "2,000"), (1e6, "10⁶"), (-1e-5, "−10⁻⁵"), (6e-6, "6·10⁻⁶")],
)
def test_numbers_of_ticks(value, text):
    assert style.number_text(value) == text


def test_environments_are_named_where_there_are_several():
    entries = [samples.entry(environment="one"), samples.entry("OFUL", environment="two")]
    assert style.entry_names(entries) == ["BVD-GLM-UCB (one)", "OFUL (two)"]
    assert style.entry_names(entries[:1]) == ["BVD-GLM-UCB"]
