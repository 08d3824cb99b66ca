"""The command ``token`` and its sub-commands: add, list, remove, open."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from windvane.cli import InputError
from windvane.cli.commands import Group
from windvane.cli.console import Answer, Table, remark
from windvane.cli.options import ChosenStore
from windvane.cli.stores import open_store
from windvane.errors import ArgumentError
from windvane.records import to_datetime, to_plain

LONGEST_NAME = 200  # characters
HELP = """Add, list and remove the tokens with which clients authenticate.

A running server notices changes within a second. On loopback, authentication is off until the first token is added.
Removing the last token does not turn it off again; "windvane token open" does.

The store is that of --store, of the variable WINDVANE_STORE, or of the file of --config; else windvane.db in the
current folder, if it exists.

Examples:
  windvane token add shop --store windvane.db
  windvane token list --config /etc/windvane/service.toml
  windvane token remove shop --store windvane.db
"""


Name = Annotated[str, typer.Argument(help="The name of the token: who uses it.", show_default=False)]


def add(
    name: Name,
    store: ChosenStore,
    read_only: Annotated[bool, typer.Option("--read-only", help="Make a token that can only read.")] = False,
    metrics: Annotated[bool, typer.Option("--metrics", help="Make a token that can only read /metrics.")] = False,
) -> Answer:
    """Add a token, and print its secret.

    The store holds only a hash of the secret, so it cannot be printed again. A store that is named is created if it
    does not exist.

    Examples:
      windvane token add shop --store windvane.db
      windvane token add dashboard --read-only --store windvane.db
      windvane token add prometheus --metrics --store windvane.db
    """
    from windvane.service.http.access import create_token

    _check_name(name)
    if any(character.isspace() for character in name):
        raise ArgumentError("name", name, "a name without spaces")
    if read_only and metrics:
        raise InputError("--read-only and --metrics must not be given together: --metrics is the smaller right")
    place, is_named = store.find()
    with open_store(place, create=is_named) as opened:
        secret = create_token(opened.tokens, name, full=not read_only, metrics_only=metrics)
    if secret is None:
        hint = "remove that token first, or use another name"
        raise ArgumentError("name", name, "a name that no token has", hint=hint)
    remark("save the token now: only its hash is stored")
    return Answer({"name": name, "token": secret}, [secret])


def list_tokens(store: ChosenStore) -> Answer:
    """List the names and rights of the tokens, and when they were added (UTC).

    Example:
      windvane token list --store windvane.db
    """
    with open_store(store.place) as opened:
        tokens = opened.tokens.read()
    rows = [(token.name, token.rights, to_plain(to_datetime(token.created))) for token in tokens]
    lines = [[shlex.quote(name), rights, f"{at[:19]}Z"] for name, rights, at in rows]
    document = {"tokens": [{"name": name, "rights": rights, "created": at} for name, rights, at in rows]}
    return Answer(document, [Table(["token", "rights", "created"], lines, f"Tokens of {opened.name}", left=3)])


def remove(name: Name, store: ChosenStore) -> Answer:
    """Remove a token.

    It cannot be brought back. A running server rejects it within a second.

    Example:
      windvane token remove shop --store windvane.db
    """
    _check_name(name)
    with open_store(store.place) as opened:
        if not opened.tokens.remove(name):
            raise ArgumentError("name", name, "the name of a token")
        is_last = not opened.tokens.read()
    if is_last:
        remark("no token is left: all requests are rejected until you add one or run `windvane token open`")
    return Answer({"removed": name})


def turn_off_authentication(store: ChosenStore) -> Answer:
    """Remove all tokens, and turn authentication off.

    Then a server on loopback accepts every request, and one on another address does not start.

    Example:
      windvane token open --store windvane.db
    """
    with open_store(store.place) as opened:
        opened.tokens.remove_all()
    return Answer({"open": True})


def _check_name(name: str) -> None:
    if not name.isprintable() or not name.strip() or len(name) > LONGEST_NAME:
        raise ArgumentError("name", name, f"a string of 1 to {LONGEST_NAME} printable characters")


token = Group(HELP, {"add": add, "list": list_tokens, "remove": remove, "open": turn_off_authentication})
