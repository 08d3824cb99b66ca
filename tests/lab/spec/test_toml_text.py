"""The line of every field of a TOML text."""

from __future__ import annotations

import tomllib

from hypothesis import given, settings
from hypothesis import strategies as st

from support.spec_objects import (
    BASE,
)
from windvane.lab.spec.toml_text import Lines


class Writer:
    """Writes a tree as TOML in a style drawn at random. Each leaf is a number met once, so that its line is seen."""

    def __init__(self, draw):
        self.draw, self.leaves = draw, 1000

    def choice(self, *styles):
        return self.draw(st.sampled_from(styles))

    def key(self, name):
        return self.choice(name, f'"{name}"', f"'{name}'")

    def leaf(self):
        self.leaves += 1
        return self.choice(f"{self.leaves}", f'"{self.leaves}"', f"'''{self.leaves}'''", f'"""{self.leaves}"#]"""')

    def junk(self):
        return self.choice("", "", "\n", "  # a ] comment, } with = [brackets]\n", "\n# 'quote\n\n")

    def value(self, depth):
        kind = self.choice("leaf", "leaf", "array", "inline") if depth else "leaf"
        names = self.draw(st.lists(st.sampled_from("abcde"), unique=True, max_size=3))
        if kind == "array":
            return (
                "[" + "".join(f"{self.junk()}{self.value(depth - 1)}{self.junk()}," for _ in names) + self.junk() + "]"
            )
        if kind == "inline":
            return "{" + ", ".join(f"{self.key(name)} = {self.value(depth - 1)}" for name in names) + "}"
        return self.leaf()

    def body(self):
        names = self.draw(st.lists(st.sampled_from(["f", "g", "h.i", "h.j", "k . l.m"]), unique=True, max_size=4))
        return "".join(f"{self.junk()}{name} = {self.value(2)}{self.choice('', ' # end')}\n" for name in names)

    def document(self):
        parts = [self.body()]
        for name in self.draw(st.lists(st.sampled_from("stuv"), unique=True, max_size=3)):
            if self.choice(True, False):
                parts.append(f"[{self.key(name)}]\n{self.body()}[{name}.w]\n{self.body()}")
            else:
                for _ in range(self.draw(st.integers(1, 3))):
                    parts.append(f"[[ {self.key(name)} ]]\n{self.body()}[{name}.w.x]\n{self.body()}")
        return "".join(parts)


def leaves_of(value, path=()):
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if parts is None:
        yield path, str(value)[:4]
    else:
        for part, item in parts:
            yield from leaves_of(item, (*path, part))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_value_is_found_on_its_line(data):
    text = Writer(data.draw).document()
    lines = Lines(text)
    for path, number in leaves_of(tomllib.loads(text)):
        assert lines.of(path) == text[: text.index(number)].count("\n") + 1, (path, text)


def test_what_stands_nowhere_has_the_line_of_what_is_around_it():
    lines = Lines(BASE)
    assert lines.of(("nothing",)) == lines.of(()) == 1
    assert lines.of(("environments",)) == lines.of(("environments", 0, "S")) == 6
    assert lines.of(("environments", 1, "L")) == 13
    assert lines.of(("environments", 1, "drift", "phase")) == 16
    assert lines.of(("environments", 0, "drift", "angle")) == 10
    assert lines.of(("environments", 1, "arms", "arms", 1, 0)) == 23
    assert lines.of(("policies", 1, "sweep", "gamma", 9)) == 34
