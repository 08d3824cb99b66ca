"""The command ``store`` and its sub-command: create."""

from __future__ import annotations

from typing import Annotated

import typer

from windvane.cli import InputError
from windvane.cli.commands import Group
from windvane.cli.console import Answer
from windvane.cli.options import hide_password

HELP = """Create a store in a PostgreSQL database, as the owner of its tables.

A file needs no such step: the server creates it. Neither does a database whose role may create tables.

Example:
  windvane store create postgresql://owner@db.internal/windvane --grant windvane
"""


def create(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="The database: postgresql://owner@host/database.",
            show_default=False,
            callback=hide_password,
        ),
    ],
    grant: Annotated[
        str | None, typer.Option(metavar="ROLE", help="An existing role under which servers run.", show_default=False)
    ] = None,
) -> Answer:
    """Create the tables of a store, and let another role use them.

    The role of the address becomes the owner of the tables. Servers then run under the role of --grant, which may read
    and write rows, but not change, empty or drop a table. The schema is the first of the search_path that exists.

    If the store exists, its content stays. After an upgrade to a version with another format, stop all servers and run
    the command again: it migrates the tables, which servers under such a role cannot do.

    Examples:
      windvane store create postgresql://owner@db.internal/windvane --grant windvane
      windvane serve --store postgresql://windvane@db.internal/windvane
    """
    from windvane.service.store import StoreError, create_database_store, is_postgres

    if not is_postgres(url):
        raise InputError("URL must be the address of a database, postgresql://owner@host/database")
    try:
        name = create_database_store(url, grant)
    except StoreError as error:
        raise InputError(str(error)) from None
    granted = f"; the role {grant} may use it" if grant else ""
    return Answer({"store": name, "granted": grant}, [f"{name}: has the tables of a store{granted}"])


store = Group(HELP, {"create": create})
