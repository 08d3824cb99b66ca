"""Look at pages of the built site in Chromium: accessibility by axe-core, and nothing wider than the screen.

``make docs-look`` runs it, in light and dark and at three widths. Every complaint is a line; it fails if there is one.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent
SITE = HERE.parents[1] / "build" / "docs"
AXE = HERE / "node_modules" / "axe-core" / "axe.min.js"
PAGES = [
    "index", "tutorials/first-stream", "howto/late-rewards", "reference/api/agent", "explanation/algorithm",
]  # fmt: skip
WIDTHS = [390, 820, 1280]
SCHEMES = ["light", "dark"]
EXCESS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


def find_violations(page: Page) -> Iterator[str]:
    """Yield what axe-core says about a page: the rule, what it demands, and the first places that break it."""
    page.add_script_tag(path=AXE)
    for violation in page.evaluate("axe.run()")["violations"]:
        places = "; ".join(node["html"][:120] for node in violation["nodes"][:3])
        yield f"{violation['id']}: {violation['help']} ({len(violation['nodes'])} places: {places})"


def main(names: list[str]) -> int:
    """Look at the pages with these names, such as "howto/tokens", and print the complaints."""
    complaints = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        for scheme in SCHEMES:
            for width in WIDTHS:
                window = {"width": width, "height": 900}
                page = browser.new_page(viewport=window, color_scheme=scheme, reduced_motion="reduce")
                for name in names:
                    page.goto((SITE / f"{name}.html").as_uri())
                    found = [*find_violations(page)]
                    if (excess := page.evaluate(EXCESS)) > 0:
                        found.append(f"{excess} pixels wider than the window")
                    complaints += [f"{name}, {scheme}, {width}: {complaint}" for complaint in found]
                page.close()
        browser.close()
    print("\n".join(complaints) or f"no complaint: {len(names)} pages, {len(SCHEMES)} schemes, {len(WIDTHS)} widths")
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or PAGES))
