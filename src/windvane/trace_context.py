"""The trace context of OpenTelemetry as headers of HTTP requests, so that a trace goes on in the service that is asked.

This module needs the package opentelemetry-api, which the extra ``opentelemetry`` installs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

try:
    from opentelemetry import propagate
except ModuleNotFoundError as error:
    hint = f"{error.name} is missing; install it with: pip install 'windvane[opentelemetry]'"
    raise ModuleNotFoundError(hint, name=error.name) from None

Headers = list[tuple[bytes, bytes]]


def build_trace_headers() -> Headers:
    """Return the headers of the current trace context, such as ``traceparent``; none outside a trace.

    OpenTelemetry's global propagator writes them: by default that of W3C, or those that ``OTEL_PROPAGATORS`` names.

    Examples
    --------
    >>> build_trace_headers()
    []
    """
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]


def list_trace_headers() -> frozenset[bytes]:
    """Return the names of all headers that a trace context can have, in lower case.

    Examples
    --------
    >>> b"traceparent" in list_trace_headers()
    True
    """
    return frozenset(name.lower().encode() for name in propagate.get_global_textmap().fields)


def read_trace_headers(headers: Mapping[bytes, bytes]) -> Any:
    """Return the trace context in the headers of a request, by names in lower case."""
    known = list_trace_headers()
    return propagate.extract({name.decode(): headers[name].decode("latin-1") for name in known & headers.keys()})
