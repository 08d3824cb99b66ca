"""What a store of format 1 becomes in the current format.

Format 1 had no checksums, and an event's outcome and request stood in one column. Its snapshots are not taken over:
every stream is rebuilt from its log.
"""

from __future__ import annotations

import json
from typing import Any

from windvane.service.chain import extend_chain, salt_request
from windvane.service.database import STREAM_SPAN

MIGRATED = "migrated"
"""In a stream's configuration: the last event that an earlier version wrote. Up to it, a replay by this version may
give other numbers than were recorded, which `verify` reports as a note, not as a problem."""


SAMPLING = ("D-LinTS", "D-GLM-TS")
"""Policies whose ``posterior_scale`` version 0.1 called ``bonus_scale``."""

NEVER = 1e12
"""Decisions: a wait that does not end, the largest number that a request may hold."""


def upgrade_stream_config(config: dict[str, Any], last: int) -> dict[str, Any]:
    """Return the configuration of a stream of format 1, whose last event is ``last``, in the current format.

    Version 0.1 learned every reward on arrival. The stream goes on so until it is changed (``PATCH`` with
    ``"learn": null``), so that a replay comes to what was recorded.
    """
    agent = {**_rename_settings(config["agent"]), "learn": "on_arrival"}
    return {**config, "agent": upgrade_changes(agent, agent), MIGRATED: last}


def _rename_settings(agent: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of an agent of version 0.1 under the names that they have now."""
    renamed = {"discount": "arm_geometry"}
    if agent.get("policy") in SAMPLING:
        renamed["bonus_scale"] = "posterior_scale"
    return {renamed.get(name, name): value for name, value in agent.items()}


def upgrade_changes(changes: dict[str, Any], current: dict[str, Any]) -> dict[str, Any]:
    """Return settings of format 1 as this version accepts them.

    Version 0.1 accepted a default reward without a ``wait``; it counted for decisions that ``max_pending`` pushed out,
    and once a ``wait`` was set. A wait that never ends keeps that default.
    """
    merged = {**current, **changes}
    has_no_wait = merged["wait"] is None and merged["missing"] is not None
    return {**changes, "wait": NEVER} if has_no_wait else changes


def upgrade_config_text(text: str, last: int) -> str:
    """Apply :func:`upgrade_stream_config` to a stored text. One that is not what is expected stays, and the stream is
    set aside when it is loaded."""
    try:
        return json.dumps(upgrade_stream_config(dict(json.loads(text)), last))
    except Exception:  # a damaged text may be any JSON document, or none; the other streams are upgraded all the same
        return text


def upgrade_event(row: tuple[Any, ...], chain: bytes) -> tuple[Any, ...]:
    """Return a row of the table of events in the current format. ``chain``: the chain value of the event before."""
    rowid, time, kind, decision, key, body = row
    outcome, _, request = body.partition(b"\n")
    salt, digest = salt_request(request) if request else (None, None)
    value = extend_chain(
        chain, rowid // STREAM_SPAN, rowid % STREAM_SPAN, time, kind, decision, key, outcome, digest
    )  # fmt: skip
    return rowid, time, kind, decision, key, outcome, request or None, salt, digest, value
