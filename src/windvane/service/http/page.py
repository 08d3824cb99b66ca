"""The live page and the interactive documentation: files of installed packages, nothing from elsewhere."""

from __future__ import annotations

from importlib import resources

from fastapi import FastAPI, Response
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles

STATIC = resources.files("windvane.service") / "static"


def add_files(app: FastAPI) -> None:
    """Serve the page at ``/`` and the documentation at ``/docs``, with their files below ``/page`` and ``/docs``."""

    @app.get("/", include_in_schema=False)
    async def get_page() -> Response:
        return FileResponse(str(STATIC / "index.html"))

    @app.get("/docs", include_in_schema=False)
    async def get_docs() -> Response:
        return FileResponse(str(STATIC / "docs.html"))

    app.mount("/page", StaticFiles(directory=str(STATIC)))
    app.mount("/docs", StaticFiles(directory=str(STATIC), packages=[("fastapi_offline", "static")]))
