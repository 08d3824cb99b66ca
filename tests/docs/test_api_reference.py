"""Every public name is described in the reference, and every name that the reference describes exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import windvane_site

PAGES = Path(__file__).parents[2] / "docs" / "reference" / "api"
DIRECTIVE = re.compile(r"^\.\. (?:auto|py:)(\w+):: (windvane[\w.]*)$", re.M)
PARTS = ["client", "environments", "estimation", "lab", "logs", "policies", "testing", "theory"]


def list_described() -> dict[str, str]:
    """Return the names that the pages describe, with the directive of each."""
    texts = [page.read_text(encoding="utf-8") for page in sorted(PAGES.glob("*.md"))]
    return {name: directive for text in texts for directive, name in DIRECTIVE.findall(text)}


@pytest.mark.parametrize("package", ["windvane", *(f"windvane.{part}" for part in PARTS)])
def test_every_public_name_is_described(package: str) -> None:
    """A name of a part may be described as that of the package, which is how it is imported."""
    described = {id(windvane_site.find_object(name)) for name in list_described()}
    module = importlib.import_module(package)
    missing = [name for name in module.__all__ if id(getattr(module, name)) not in described and name != "__version__"]
    assert not missing


def test_every_described_name_exists() -> None:
    assert [name for name in list_described() if windvane_site.find_object(name) is None] == []


def test_no_name_is_described_twice() -> None:
    """A second description would make links ambiguous."""
    names = [name for page in PAGES.glob("*.md") for _, name in DIRECTIVE.findall(page.read_text(encoding="utf-8"))]
    objects = [windvane_site.find_object(name) for name in names]
    twice = {name for name, found in zip(names, objects, strict=True) if sum(found is other for other in objects) > 1}
    constants = {name for name, directive in list_described().items() if directive in ("data", "attribute")}
    assert twice - constants == set()
