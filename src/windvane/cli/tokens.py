"""The command ``token`` and its sub-commands: add, list, remove, open."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from windvane.cli.commands import Group
from windvane.cli.console import Answer, Table, remark
from windvane.cli.options import DEFAULT_STORE, Store
from windvane.cli.stores import open_store
from windvane.errors import ArgumentError

LONGEST_NAME = 200  # characters
HELP = """Add, list and remove the tokens with which clients authenticate.

A running server notices changes within a second. On loopback, authentication is off until the first token is added.
Removing the last token does not turn it off again; "windvane token open" does.

Examples:
  windvane token add shop
  windvane token list
  windvane token remove shop
"""


Name = Annotated[str, typer.Argument(help="The name of the token: who uses it.", show_default=False)]


def add(
    name: Name,
    read_only: Annotated[bool, typer.Option("--read-only", help="Make a token that can only read.")] = False,
    store: Store = DEFAULT_STORE,
) -> Answer:
    """Add a token, and print its secret.

    The store holds only a hash of the secret, so it cannot be printed again.

    Examples:
      windvane token add shop
      windvane token add dashboard --read-only --store windvane.db
    """
    from windvane.service.http.access import create_token

    _check_name(name)
    with open_store(store, create=True) as opened:
        secret = create_token(opened.tokens, name, full=not read_only)
    if secret is None:
        hint = "remove that token first, or use another name"
        raise ArgumentError("name", name, "a name that no token has", hint=hint)
    remark("save the token now: only its hash is stored")
    return Answer({"name": name, "token": secret}, [secret])


def list_tokens(store: Store = DEFAULT_STORE) -> Answer:
    """List the names and rights of the tokens.

    Example:
      windvane token list --store windvane.db
    """
    with open_store(store) as opened:
        tokens = opened.tokens.read()
    rows = [(token.name, "full" if token.full else "read", token.created) for token in tokens]
    lines = [[name, rights, time.strftime("%Y-%m-%d %H:%M", time.localtime(at))] for name, rights, at in rows]
    document = {"tokens": [{"name": name, "rights": rights, "created": at} for name, rights, at in rows]}
    return Answer(document, [Table(["token", "rights", "created"], lines, f"Tokens of {opened.name}", left=3)])


def remove(name: Name, store: Store = DEFAULT_STORE) -> Answer:
    """Remove a token.

    It cannot be brought back. A running server rejects it within a second.

    Example:
      windvane token remove shop --store windvane.db
    """
    _check_name(name)
    with open_store(store) as opened:
        if not opened.tokens.remove(name):
            raise ArgumentError("name", name, "the name of a token")
        is_last = not opened.tokens.read()
    if is_last:
        remark("no token is left: all requests are rejected until you add one or run `windvane token open`")
    return Answer({"removed": name})


def turn_off_authentication(store: Store = DEFAULT_STORE) -> Answer:
    """Remove all tokens, and turn authentication off.

    Then a server on loopback accepts every request, and one on another address does not start.

    Example:
      windvane token open --store windvane.db
    """
    with open_store(store) as opened:
        opened.tokens.remove_all()
    return Answer({"open": True})


def _check_name(name: str) -> None:
    if not name.isprintable() or not name.strip() or len(name) > LONGEST_NAME:
        raise ArgumentError("name", name, f"a string of 1 to {LONGEST_NAME} printable characters")


token = Group(HELP, {"add": add, "list": list_tokens, "remove": remove, "open": turn_off_authentication})
