"""What makes a page self-contained: its scripts, plotly.js among them, its style, and its content security policy."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from importlib import resources

import jinja2


def read_asset(name: str) -> str:
    """Return a file of the folder ``page``."""
    return resources.files("windvane.lab.report").joinpath("page", name).read_text(encoding="utf-8")


def page_scripts() -> list[str]:
    """Return the scripts of a page with charts: plotly.js, and what draws the charts in the element ``charts``."""
    return [_read_plotly(), read_asset("report.js")]


def _read_plotly() -> str:
    """plotly.js, so that no part of it ends the script element, and as a browser's parser would leave it."""
    from plotly.offline import get_plotlyjs

    code: str = get_plotlyjs()
    return code.replace("\r\n", "\n").replace("\r", "\n").replace("</script", r"<\/script")


def security_policy(scripts: Sequence[str]) -> str:
    """Return a policy that allows these scripts, by their hashes, and nothing from outside."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"


def load_templates(*packages: str) -> jinja2.Environment:
    """Return the templates in the folders ``page`` of packages; the first one that has a template provides it."""
    templates = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package, "page") for package in packages]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.tests["finite"] = math.isfinite
    templates.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return templates
