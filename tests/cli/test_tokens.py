"""``windvane token`` through the real command."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import pytest

import windvane
from support.commands import fails, windvane_command, windvane_server
from support.postgres import Cluster
from support.refusals import rejects
from support.server import parse_json, run_command, until
from windvane.service.store import Token, open_store


def is_refused(client: windvane.Client) -> bool:
    """Whether the server wants another token from a client."""
    try:
        client.streams()
    except windvane.ClientError as error:
        return error.status == 401
    return False


def test_token(tmp_path: Path) -> None:
    secret = windvane_command("token add shop --store a.db", tmp_path).stdout.strip()
    page_token = json.loads(windvane_command("token add page --store a.db --read-only --json", tmp_path).stdout)
    assert page_token["name"] == "page"
    fails("token add shop --store a.db", tmp_path, "`name`", "'shop'")
    with windvane_server("serve --store a.db --port 0 --json", tmp_path) as said:
        address = json.loads(said)["address"]
        with windvane.Client(address, secret) as shop, windvane.Client(address, page_token["token"]) as page:
            shop.create("a", dim=2)
            assert [stream.name for stream in page.streams()] == ["a"]
            with rejects(error=windvane.ClientError, status=403, code="read-only-token"):
                page.archive("a")
            windvane_command("token remove shop --store a.db", tmp_path)  # beside the server, which hears of it
            until(lambda: is_refused(shop))
            with rejects(error=windvane.ClientError, status=401, code="wrong-token"):
                shop.streams()
    assert "page   read" in windvane_command("token list --store a.db", tmp_path).stdout
    (left,) = json.loads(windvane_command("token list --store a.db --json", tmp_path).stdout)["tokens"]
    assert (left["name"], left["rights"]) == ("page", "read")
    fails("token remove shop --store a.db", tmp_path, "`name`", "'shop'")
    fails("token remove --store a.db", tmp_path, "'name'")
    fails("token list shop --store a.db", tmp_path, "shop")
    fails("token ad shop --store a.db", tmp_path, "'ad'", "add")
    fails("token list --store b.db", tmp_path, "b.db", "does not exist")
    fails(f"token add {'x' * 201} --store b.db", tmp_path, "`name`", "200")
    assert not (tmp_path / "b.db").exists()


def test_a_store_that_nobody_named_is_not_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the token would go to a new store in the current folder, and the service would not know it."""
    for line in ("token add shop", "token list", "streams list", "streams compact", "verify", "backup --to b.db"):
        fails(line, tmp_path, "windvane.db", "does not exist", "--store", "WINDVANE_STORE", "--config")
    assert not list(tmp_path.iterdir())
    result = windvane_command("token add shop --store named.db", tmp_path)
    assert f"{tmp_path}/named.db: a new store was created" in result.stderr
    assert "created" not in windvane_command("token add page --store named.db", tmp_path).stderr
    (tmp_path / "service.toml").write_text('port = 8000\nstore = "named.db"\n')
    assert "page" in windvane_command("token list --config service.toml", tmp_path).stdout
    monkeypatch.setenv("WINDVANE_CONFIG", "service.toml")
    assert "page" in windvane_command("token list", tmp_path).stdout
    monkeypatch.setenv("WINDVANE_STORE", "other.db")  # which takes precedence over the file
    fails("token list", tmp_path, "other.db", "does not exist")
    assert "created" in windvane_command("token add shop", tmp_path).stderr
    assert "page" not in windvane_command("token list", tmp_path).stdout
    assert "page" in windvane_command("token list --store named.db", tmp_path).stdout
    monkeypatch.delenv("WINDVANE_STORE")
    for text, *mentions in (("store = 1", "service.toml: store", "string"), ("store = ", "is not TOML")):
        (tmp_path / "service.toml").write_text(text)
        fails("token list", tmp_path, *mentions)
    fails("token list --config nowhere.toml", tmp_path, "nowhere.toml: cannot be read")


def test_rights_names_and_times(tmp_path: Path) -> None:
    secret = windvane_command("token add prometheus --metrics --store a.db", tmp_path).stdout.strip()
    (token,) = json.loads(windvane_command("token list --store a.db --json", tmp_path).stdout)["tokens"]
    assert (token["name"], token["rights"]) == ("prometheus", "metrics")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", token["created"])
    assert f"{token['created'][:19]}Z" in windvane_command("token list --store a.db", tmp_path).stdout
    fails("token add both --metrics --read-only --store a.db", tmp_path, "--read-only and --metrics")
    fails("token add 'two words' --store a.db", tmp_path, "`name`", "without spaces")
    with contextlib.closing(open_store(tmp_path / "a.db", shared=True)) as store:  # as an older version allowed
        store.tokens.add(Token("two words", "h", True, 0.0))
    assert "'two words'" in windvane_command("token list --store a.db", tmp_path).stdout
    windvane_command("token remove 'two words' --store a.db", tmp_path)
    with (
        windvane_server("serve --store a.db --port 0 --json", tmp_path) as said,
        windvane.Client(json.loads(said)["address"], secret) as client,
        rejects(error=windvane.ClientError, status=403, code="metrics-token"),
    ):
        client.streams()


def test_a_group_without_a_command(tmp_path: Path) -> None:
    for group in ("token", "streams", "store", "benchmark"):
        result = windvane_command(group, tmp_path, code=2)
        assert result.stderr == f"windvane: error: name a command of `windvane {group}`\n"
        assert f"Usage: windvane {group} " in result.stdout


def test_a_role_that_may_only_read(cluster: Cluster, database: str, database_url: str, tmp_path: Path) -> None:
    """It may list the tokens."""
    windvane_command(f"token add shop --store '{database_url}'", tmp_path)
    with cluster.reader(database) as role:
        own = cluster.url(database, user=role)
        for line in ("token add page", "token remove shop", "token open"):
            fails(
                f"{line} --store '{own}'", tmp_path, "postgresql://reader@/", "cannot be changed", "let the owner run"
            )
        assert "shop" in windvane_command(f"token list --store '{own}'", tmp_path).stdout


def test_the_last_token_and_open(tmp_path: Path) -> None:
    """Removing the last token does not turn authentication off; ``open`` does, and a server hears of both."""
    store = tmp_path / "a.db"
    secret = run_command("token", "add", "shop", "--store", store).stdout.strip()
    with windvane_server("serve --store a.db --port 0 --json", tmp_path) as said:
        address = json.loads(said)["address"]
        with windvane.Client(address) as stranger, windvane.Client(address, secret) as shop:
            assert shop.ready(wait=60)
            assert parse_json(run_command("token", "remove", "shop", "--store", store, "--json").stdout) == {
                "removed": "shop"
            }
            until(lambda: is_refused(shop))
            for client in (shop, stranger):
                with rejects(error=windvane.ClientError, status=401):
                    client.streams()
            assert parse_json(run_command("token", "open", "--store", store, "--json").stdout) == {"open": True}
            until(lambda: not is_refused(stranger))
            assert list(stranger.streams()) == []
    assert parse_json(run_command("token", "list", "--store", store, "--json").stdout) == {"tokens": []}
