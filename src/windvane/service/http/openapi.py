"""The OpenAPI document: what FastAPI derives from the routes, and the problems that each may answer with."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from windvane.service.http.personalizer_routes import is_personalizer
from windvane.service.problems import KINDS, MEDIA_TYPE, TYPE_PREFIX

LOCATION = {"Location": {"description": "Path of what was created.", "schema": {"type": "string"}}}


def build_openapi(app: FastAPI) -> dict[str, Any]:
    """Return the document; it is built once."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schemas = document["components"]["schemas"]
        schemas["ProblemDetails"]["properties"]["type"]["enum"] = [TYPE_PREFIX + code for code in KINDS]
        for setting in schemas["StreamChanges"]["properties"].values():
            setting.pop("default", None)  # omitted settings keep their values
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if is_personalizer(path):  # its errors are those of that API
                    operation["responses"].pop("422", None)
                    operation["responses"]["default"] = {"description": "An error: see the Personalizer API."}
                    continue
                _complete(operation["responses"], _list_statuses(method, path, operation))
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}, {}]  # on loopback, authentication is off until the first token is added
        app.openapi_schema = document
    return app.openapi_schema


def _complete(responses: dict[str, Any], statuses: set[int]) -> None:
    """Add the problems, and what FastAPI leaves out of successes."""
    responses.pop("422", None)
    for status, response in responses.items():
        for content in response.get("content", {}).values():
            if content.pop("itemSchema", None) or not content.get("schema"):  # OpenAPI 3.1 has no schema of events
                content["schema"] = {"type": "string"}
        if status == "201":
            response["headers"] = LOCATION
    for number in sorted(statuses):
        titles = [f"{kind.title} (`{code}`)." for code, kind in KINDS.items() if kind.status == number]
        content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}
        responses[str(number)] = {"description": " ".join(titles), "content": content}


def _list_statuses(method: str, path: str, operation: dict[str, Any]) -> set[int]:
    if path == "/healthz":
        return set()
    statuses = {401, 403, 429, 500, 503}
    if method != "get":
        statuses |= {408, 409, 413, 415, 422}
    if "parameters" in operation:
        statuses.add(422)
    if "{stream}" in path and (method, path) != ("put", "/v1/streams/{stream}"):
        statuses.add(404)
    if path.endswith("/events"):
        statuses.add(501)
    return statuses
