"""The live page: files of this package, and plotly's bundle from the package of that name; nothing from elsewhere."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from functools import lru_cache
from importlib import resources

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

router = APIRouter(include_in_schema=False)

_TYPES = {"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@router.get("/")
async def index(request: Request) -> Response:
    return await _file(request, "index.html")


@router.get("/page/{name}")
async def file(request: Request, name: str) -> Response:
    return await _file(request, name)


async def _file(request: Request, name: str) -> Response:
    packed = "gzip" in request.headers.get("accept-encoding", "")
    found = await asyncio.to_thread(_content, name, packed)  # plotly's bundle takes a while, the first time
    if found is None:
        raise HTTPException(404, "Not Found")
    content, tag = found
    headers = {
        "etag": tag,
        "cache-control": "no-cache",
        "vary": "accept-encoding",
        "content-security-policy": _POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
    }
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    if packed:
        headers["content-encoding"] = "gzip"
    return Response(content, media_type=_TYPES[name.rpartition(".")[2]], headers=headers)


@lru_cache(maxsize=32)
def _content(name: str, packed: bool) -> tuple[bytes, str] | None:
    """A file, compressed if ``packed``, and its tag; None if the page has no such file."""
    if name == "plotly.js":
        path = resources.files("plotly") / "package_data" / "plotly.min.js"
    elif name.rpartition(".")[2] in _TYPES and "/" not in name and "\\" not in name and not name.startswith("."):
        path = resources.files("windvane.service") / "static" / name
    else:
        return None
    try:
        content = path.read_bytes()
    except (OSError, ValueError):  # not there, or a name that no file can have
        return None
    if packed:
        content = gzip.compress(content, compresslevel=6, mtime=0)
    return content, f'"{hashlib.sha256(content).hexdigest()[:32]}"'
