"""Draw the live page as a small PNG: ``python tools/page_screenshot.py URL FILE`` (needs playwright and chromium)."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

COLORS = 128  # a page has few; more make the file larger
WIDTH, HEIGHT = 1000, 800  # pixels
DRAWN_AFTER = 4000  # milliseconds: the charts are read in parts, one a second


def draw(url: str) -> Image.Image:
    """Return the page at ``url`` as a reader with a light screen sees it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(url)
        page.wait_for_timeout(DRAWN_AFTER)
        picture = page.screenshot()
        browser.close()
    return Image.open(io.BytesIO(picture)).convert("RGB")


def main(url: str, file: str) -> None:
    """Write the picture."""
    draw(url).quantize(COLORS).save(Path(file), optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
