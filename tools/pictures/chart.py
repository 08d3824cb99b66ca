"""Line charts on a :class:`~pictures.svg.Picture`: axes with few ticks, and names at the ends of the lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pictures.svg import Picture, Point


@dataclass(frozen=True)
class Plot:
    """A rectangle of a picture with its two axes.

    Parameters
    ----------
    picture
        What to draw on.
    at, size
        The upper left corner and the size of the plotted area, without labels.
    x_range, y_range
        The values at the ends of the axes.
    """

    picture: Picture
    at: Point
    size: Point
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    def place(self, x: float, y: float) -> Point:
        """Return where a pair of values is on the picture."""
        across = (x - self.x_range[0]) / (self.x_range[1] - self.x_range[0])
        up = (y - self.y_range[0]) / (self.y_range[1] - self.y_range[0])
        return self.at[0] + across * self.size[0], self.at[1] + (1 - up) * self.size[1]

    def draw_x_axis(self, ticks: Sequence[float], label: str = "", form: str = ",.0f") -> None:
        """Draw the lower axis, and the values of the ticks below it."""
        bottom = self.at[1] + self.size[1]
        self.picture.line([(self.at[0], bottom), (self.at[0] + self.size[0], bottom)], "muted", 1)
        for value in ticks:
            x, _ = self.place(value, self.y_range[0])
            self.picture.line([(x, bottom), (x, bottom + 4)], "muted", 1)
            self.picture.text((x, bottom + 18), format(value, form), "muted", "middle", 13)
        if label:
            self.picture.text((self.at[0] + self.size[0] / 2, bottom + 36), label, "muted", "middle", 13)

    def draw_y_axis(self, ticks: Sequence[float], label: str = "", form: str = "g") -> None:
        """Draw lines across the area at the ticks, their values on the left, and the label above."""
        for value in ticks:
            _, y = self.place(self.x_range[0], value)
            self.picture.line([(self.at[0], y), (self.at[0] + self.size[0], y)], "grid", 1)
            text = format(value, form).replace("-", "−")
            self.picture.text((self.at[0] - 6, y + 4.5), text, "muted", "end", 13)
        if label:
            self.picture.text((self.at[0] - 30, self.at[1] - 10), label, "muted", size=13)

    def shade(self, begin: float, end: float) -> None:
        """Shade the area between two values of x."""
        top, bottom = self.y_range[1], self.y_range[0]
        corners = [(begin, top), (end, top), (end, bottom), (begin, bottom)]
        self.picture.area([self.place(*corner) for corner in corners], "shade", 1)

    def curve(
        self, xs: Sequence[float], ys: Sequence[float], colour: str, width: float = 2, **extra: object
    ) -> None:  # fmt: skip
        """Draw a line through the points."""
        points = [self.place(float(x), float(y)) for x, y in zip(xs, ys, strict=True)]
        self.picture.line(points, colour, width, **extra)

    def band(self, xs: Sequence[float], low: Sequence[float], high: Sequence[float], colour: str) -> None:
        """Fill the area between two lines."""
        there = [self.place(float(x), float(y)) for x, y in zip(xs, high, strict=True)]
        back = [self.place(float(x), float(y)) for x, y in zip(xs, low, strict=True)]
        self.picture.area([*there, *reversed(back)], colour)

    def name_ends(self, names: Sequence[tuple[str, float, str]], gap: float = 17) -> None:
        """Write names right of the area at their values of y, with their colours; names that are close move apart."""
        rows = sorted((self.place(self.x_range[1], y)[1], name, colour) for name, y, colour in names)
        heights = [row[0] for row in rows]
        for _ in range(100):
            for i in range(len(heights) - 1):
                overlap = gap - (heights[i + 1] - heights[i])
                if overlap > 0:
                    heights[i] -= overlap / 2
                    heights[i + 1] += overlap / 2
        for (_, name, colour), height in zip(rows, heights, strict=True):
            self.picture.text((self.at[0] + self.size[0] + 6, height + 4.5), name, colour, size=13)
