"""A small writer of SVG files that can be read on light and dark pages.

A picture carries both sets of colours: it follows the colour scheme of the page that embeds it. Coordinates are written
with one decimal, so that a picture is the same file wherever it is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

LIGHT = {
    "ground": "#ffffff", "ink": "#1f2328", "muted": "#59636e", "grid": "#d8dee4", "shade": "#eef1f4",
    "blue": "#0072b2", "orange": "#b34a00", "green": "#00795a", "pink": "#a8477d", "violet": "#8226de",
}  # fmt: skip
DARK = {
    "ground": "#131416", "ink": "#e6e8eb", "muted": "#a3abb4", "grid": "#353a41", "shade": "#22262b",
    "blue": "#56b4e9", "orange": "#ff9a4d", "green": "#2fcf9f", "pink": "#ee94c4", "violet": "#c79bff",
}  # fmt: skip
"""Colours by name. Each has a contrast of at least 4.5 with its ground, except ``grid`` and ``shade``."""
FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif"
SIZE = 14

Point = tuple[float, float]


def number(value: float) -> str:
    """Return a coordinate with one decimal.

    Examples
    --------
    >>> number(3.0), number(-0.01), number(2.25)
    ('3', '0', '2.2')
    """
    text = f"{value:.1f}"
    return "0" if text == "-0.0" else text.removesuffix(".0")


class Picture:
    """An SVG picture of a fixed size, built up element by element.

    Parameters
    ----------
    width, height
        The size in pixels of CSS. A page scales the picture down to its column.
    title, description
        What a screen reader says.
    """

    def __init__(self, width: float, height: float, title: str, description: str) -> None:
        self.width, self.height = width, height
        self.title, self.description = title, description
        self.elements: list[str] = []

    def add(self, tag: str, content: str | None = None, **attributes: object) -> None:
        """Append an element. ``fill`` and ``stroke`` are names of colours or "none"."""
        self.elements.append(render(tag, content, attributes))

    def text(
        self, at: Point, text: str, colour: str = "ink", anchor: str = "start", size: float = SIZE, bold: bool = False
    ) -> None:  # fmt: skip
        """Write a line of text whose baseline is at ``at``; ``anchor`` is start, middle or end."""
        extra: dict[str, object] = {"font_weight": 600} if bold else {}
        if anchor != "start":
            extra["text_anchor"] = anchor
        if size != SIZE:
            extra["font_size"] = number(size)
        self.add("text", escape(text), x=number(at[0]), y=number(at[1]), fill=colour, **extra)

    def lines(self, at: Point, lines: Sequence[str], leading: float = 18, **style: object) -> None:
        """Write several lines of text below each other."""
        for i, line in enumerate(lines):
            self.text((at[0], at[1] + i * leading), line, **style)  # type: ignore[arg-type]

    def line(self, points: Iterable[Point], colour: str = "ink", width: float = 1.5, **extra: object) -> None:
        """Draw a line through the points."""
        path = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)
        self.add("path", d=path, fill="none", stroke=colour, stroke_width=number(width), **extra)

    def area(self, points: Iterable[Point], colour: str, opacity: float = 0.15, **extra: object) -> None:
        """Fill the polygon with these corners."""
        path = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points) + "Z"
        self.add("path", d=path, fill=colour, fill_opacity=opacity, **extra)

    def dot(self, at: Point, colour: str, radius: float = 5, hollow: bool = False) -> None:
        """Draw a point, filled or hollow."""
        fill = "ground" if hollow else colour
        where = {"cx": number(at[0]), "cy": number(at[1]), "r": number(radius)}
        self.add("circle", **where, fill=fill, stroke=colour if hollow else "ground", stroke_width=2 if hollow else 1)

    def box(self, at: Point, size: Point, title: str, lines: Sequence[str] = (), colour: str = "muted") -> None:
        """Draw a box with a title in bold and lines of text below it, centred."""
        (x, y), (width, height) = at, size
        where = {"x": number(x), "y": number(y), "width": number(width), "height": number(height), "rx": 8}
        self.add("rect", **where, fill="shade", stroke=colour, stroke_width=1.5)
        top = y + height / 2 - 9 * len(lines) + 5
        self.text((x + width / 2, top), title, anchor="middle", bold=True)
        for i, line in enumerate(lines):
            self.text((x + width / 2, top + 18 * (i + 1)), line, "muted", "middle", 13)

    def arrow(self, points: Sequence[Point], colour: str = "muted", dashed: bool = False, width: float = 1.5) -> None:
        """Draw a line with a head at its last point."""
        extra: dict[str, object] = {"stroke_dasharray": "5 4"} if dashed else {}
        (x0, y0), (x1, y1) = points[-2], points[-1]
        length = max(((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5, 1e-9)
        ux, uy = (x1 - x0) / length, (y1 - y0) / length
        base = (x1 - 8 * ux, y1 - 8 * uy)
        self.line([*points[:-1], base], colour, width, **extra)
        corners = [(x1, y1), (base[0] - 4 * uy, base[1] + 4 * ux), (base[0] + 4 * uy, base[1] - 4 * ux)]
        self.area(corners, colour, 1)

    def to_svg(self) -> str:
        """Return the file."""
        light = "".join(f".f-{name}{{fill:{value}}}.s-{name}{{stroke:{value}}}" for name, value in LIGHT.items())
        dark = "".join(f".f-{name}{{fill:{value}}}.s-{name}{{stroke:{value}}}" for name, value in DARK.items())
        size = f'width="{number(self.width)}" height="{number(self.height)}"'
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {number(self.width)} {number(self.height)}" '
            f'role="img" aria-labelledby="t d" font-family="{FONT}" font-size="{SIZE}" stroke-linejoin="round">',
            f'<title id="t">{escape(self.title)}</title>', f'<desc id="d">{escape(self.description)}</desc>',
            f"<style>{light}@media(prefers-color-scheme:dark){{{dark}}}</style>",
            '<rect width="100%" height="100%" rx="6" class="f-ground"/>',
            *self.elements, "</svg>", "",
        ])  # fmt: skip


def render(tag: str, content: str | None, attributes: dict[str, object]) -> str:
    """Return an element. Names of colours become classes, and underscores in names dashes."""
    classes = [f"{kind[0]}-{attributes[kind]}" for kind in ("fill", "stroke") if attributes.get(kind) in LIGHT]
    words = [tag]
    for name, value in attributes.items():
        if not (name in ("fill", "stroke") and value in LIGHT):
            words.append(f'{name.replace("_", "-")}="{value}"')
    if classes:
        words.append(f'class="{" ".join(classes)}"')
    return f"<{' '.join(words)}>{content}</{tag}>" if content is not None else f"<{' '.join(words)}/>"
