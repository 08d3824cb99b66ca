"""The pictures of the documentation: drawn anew they are the same, they fit, and they can be read on light and dark."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from draw_docs import DOCS, PICTURES, main
from pictures import electricity, regret
from pictures.svg import DARK, LIGHT
from PIL import Image

FIGURES = {name: DOCS / place for name, (_, place) in PICTURES.items() if place.endswith(".svg")}
README = DOCS.parent / "README.md"
FAINT = {"ground", "grid", "shade"}
ROOM = 4  # the box of a line of text has some pixels above and below its letters


def test_all_pictures_are_what_the_command_draws() -> None:
    assert main(["--check"]) == 0


def test_an_old_picture_is_found_and_drawn_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("draw_docs.DOCS", tmp_path)
    (tmp_path / "figures").mkdir()
    assert main(["architecture", "--check"]) == 1
    assert not any((tmp_path / "figures").iterdir())
    assert main(["architecture"]) == 0
    assert main(["architecture", "--check"]) == 0
    assert "architecture.svg written" in capsys.readouterr().out


def test_every_picture_is_shown_with_its_command() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in [README, *DOCS.rglob("*.md")])
    for name, path in FIGURES.items():
        assert f"figures/{path.name})" in pages, name
        assert f"`python tools/draw_docs.py {name}`" in pages, name


def test_kept_regret_is_that_of_the_policies() -> None:
    kept = json.loads(regret.KEPT.read_text(encoding="utf-8"))
    drift, _ = regret.WORLDS["one turn"]
    curve = regret.measure_regret(regret.make_policy(200), drift)
    np.testing.assert_allclose(kept["one turn"]["200"], curve, atol=1e-3)
    assert kept.keys() == regret.WORLDS.keys()
    for curves in kept.values():
        assert curves.keys() == {*map(str, regret.MEMORIES), regret.DEFAULT}


def test_rates_of_a_labelled_stream(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    speeds = rng.uniform(0, 12, 3 * electricity.WINDOW // 2)
    rows = [f"{speed:.2f},{int(speed > 6)}" for speed in speeds]
    (tmp_path / "wind.csv").write_text("\n".join(["speed,sail", *rows]))
    result = electricity.simulate_policies(tmp_path / "wind.csv")
    rates = result["rates"]
    assert isinstance(rates, dict)
    assert result["rows"] == len(speeds)
    assert rates.keys() == electricity.COLOURS.keys()
    (default,), (repeats,) = rates[electricity.DEFAULT], rates[electricity.REPEAT]
    assert default > 0.9
    labels = (speeds > 6)[: electricity.WINDOW]
    assert repeats == pytest.approx((0.5 + (labels[1:] == labels[:-1]).sum()) / electricity.WINDOW)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_stand_out_from_their_ground(colours: dict[str, str]) -> None:
    """By the contrast of WCAG, on the ground and in boxes."""
    for name in colours.keys() - FAINT:
        for ground in ("ground", "shade"):
            light, dark = sorted((luminance(colours[name]), luminance(colours[ground])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (name, ground)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("name", FIGURES)
def test_pictures_say_what_they_show_and_load_nothing(name: str) -> None:
    text = FIGURES[name].read_text(encoding="utf-8")
    root = ET.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    assert root.findtext(f"{space}title")
    assert len(root.findtext(f"{space}desc") or "") > 40
    assert re.findall(r"https?:[^\"]*", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"<(script|image|use|foreignObject)\b|@import", text)
    assert "prefers-color-scheme:dark" in text


@pytest.fixture(scope="module")
def page(browser) -> Iterator:
    opened = browser.new_page(viewport={"width": 1000, "height": 800})
    yield opened
    opened.close()


@pytest.mark.parametrize("name", FIGURES)
def test_texts_are_inside_and_apart(page, name: str) -> None:
    page.goto(FIGURES[name].as_uri())
    boxes = page.evaluate(
        """() => [...document.querySelectorAll("text")].map((node) => {
            const {x, y, width, height} = node.getBBox();
            return [node.textContent, x, y, x + width, y + height];
        })"""
    )
    width, height = page.evaluate(
        "() => ['width', 'height'].map((name) => document.documentElement[name].baseVal.value)"
    )
    for i, (text, left, top, right, bottom) in enumerate(boxes):
        assert min(left, top, width - right, height - bottom) >= 0, text
        for other, x, y, x_end, y_end in boxes[:i]:
            across, down = min(right, x_end) - max(left, x), min(bottom, y_end) - max(top, y)
            assert not (across > 1 and down > ROOM), (text, other)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_embedded_picture_follows_the_colours_of_its_page(page, scheme: str) -> None:
    """Also of a page whose colours a reader has switched, as its style sheet sets ``color-scheme``."""
    page.emulate_media(color_scheme="light" if scheme == "dark" else "dark")
    style = (DOCS / "_static" / "windvane.css").as_uri()
    page.goto(style)  # a page of the same origin
    source = FIGURES["architecture"].as_uri()
    ground = page.evaluate(
        """async ([style, source, scheme]) => {
            document.body.dataset.theme = scheme;
            const link = document.createElement("link");
            const image = document.createElement("img");
            const loaded = (node) => new Promise((resolve) => node.addEventListener("load", resolve));
            const both = [loaded(link), loaded(image)];
            Object.assign(link, { rel: "stylesheet", href: style });
            document.head.append(link);
            image.src = source;
            document.body.replaceChildren(image);
            await Promise.all(both);
            return getComputedStyle(document.body).colorScheme;
        }""",
        [style, source, scheme],
    )
    assert ground == scheme
    shot = Image.open(io.BytesIO(page.locator("img").screenshot()))
    red, green, blue = shot.convert("RGB").getpixel((20, 4))
    assert f"#{red:02x}{green:02x}{blue:02x}" == {"light": LIGHT, "dark": DARK}[scheme]["ground"]
