"""The how-to pages about a service on a file: their commands, run as an administrator would paste them."""

from __future__ import annotations

import re
import shutil
import socket
from pathlib import Path

import pytest

import windvane.testing
from support.pages import DOCS, run_page
from support.server import ARMS
from support.service_pages import DEPLOY, HOWTO, PLACES, Shell, parse_documents, read_commands
from windvane import Client, ClientError

VECTORS = ARMS["arms"]
PAGES = sorted(HOWTO.glob("*.md"))


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return Shell(tmp_path, str(port))


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


# --- files that the pages name ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_of_deploy_exist(page: Path) -> None:
    """Those that commands copy; links are tested for all pages."""
    named = {name for code in read_commands(page) for name in re.findall(r"\bdeploy/([\w@.-]+)", code)}
    assert {name for name in named if not (DEPLOY / name).exists()} == set()


def test_every_file_of_deploy_is_explained() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [
        path.name for path in DEPLOY.iterdir() if path.suffix != ".dockerignore" and f"deploy/{path.name}" not in text
    ] == []


# --- nginx-systemd ----------------------------------------------------------------------------------------------------


@needs("openssl")
def test_the_certificate_to_try_it(shell: Shell) -> None:
    (block,) = (code for code in read_commands(HOWTO / "nginx-systemd.md") if code.startswith("openssl "))
    shell.run(block.replace("/etc/ssl/private/", "").replace("/etc/ssl/certs/", ""))
    assert "BEGIN CERTIFICATE" in (shell.folder / "windvane.pem").read_text()


@pytest.mark.slow
def test_the_commands_for_an_image(shell: Shell) -> None:
    """Without the installation."""
    blocks = read_commands(HOWTO / "nginx-systemd.md", "Compile in advance")
    script = "\n".join(line for line in blocks[1].splitlines() if not line.startswith("pip "))
    assert "2 policies compiled" in shell.run(script)
    assert list((shell.folder / "kernels").rglob("*.nbc"))


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_tokens(shell: Shell) -> None:
    """They work as the page says, while a server runs and without one."""
    add, use, remove = read_commands(HOWTO / "tokens.md")
    printed = shell.run(add)
    full, read_only = re.findall(r"wv_[\w-]+", printed)[:2]
    assert re.findall(r"^ *(shop|dashboard)\b", printed, re.M) == ["dashboard", "shop"]
    with windvane.testing.serve(shell.folder / "windvane.db", token=full) as client:
        client.create("shop", dim=2)
        shell.port = client.url.rpartition(":")[2]
        shell.environment.update(TOKEN=full, WINDVANE_URL=client.url)
        assert shell.run(use).count("shop") == 2
        for token, code, status in (
            (None, "no-token", 401),
            ("x", "wrong-token", 401),
            (read_only, "read-only-token", 403),
        ):
            with Client(client.url, token=token, deadline=0) as other, pytest.raises(ClientError) as error:
                other.archive("shop")
            assert (error.value.code, error.value.status) == (code, status)
    shell.run(remove)
    assert "shop" not in shell.run("windvane token list --store windvane.db")


# --- clients-and-retries ----------------------------------------------------------------------------------------------


def test_a_program_decides_and_retries(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snippets assert what the page says of rewards, errors and batches; this looks at what the stream has."""
    with windvane.testing.serve(shell.folder / "windvane.db") as client:
        monkeypatch.setenv("WINDVANE_URL", client.url)
        page = run_page(HOWTO / "clients-and-retries.md")
        counts = client.info("clicks").counts
        explained = client.explain("clicks", page.names["first"])
    assert counts.decisions == 1 + 1 + 3 + 1  # the key "order 4711" makes one decision, and the refused requests none
    assert (counts.rewards, counts.history_rows) == (1 + 3, 3)
    assert explained.arm == page.names["first"].arm
    log = page.printed[-3].splitlines()
    assert [line.split()[0] for line in log] == [str(number) for number in range(3, 3 + len(log))]


# --- change-a-stream --------------------------------------------------------------------------------------------------


@needs("curl")
def test_a_stream_is_changed(shell: Shell) -> None:
    """That of the first tutorial, created by its command."""
    tutorial = read_commands(DOCS / "tutorials" / "first-stream.md")
    (create,) = (block for block in tutorial if "-X PUT" in block and "features" in block)
    with windvane.testing.serve(shell.folder / "windvane.db") as client:
        shell.port = client.url.rpartition(":")[2]
        shell.run(create)
        for _ in range(120):  # the timeout of the first twenty passes
            decision = client.decide("first-stream", context={"device": "phone"})
            client.reward("first-stream", decision, decision.arm == "red")
        asked = "".join(read_commands(HOWTO / "change-a-stream.md"))
        answers = parse_documents(shell.run(asked.replace("curl ", "curl --silent ")))
        info = client.info("first-stream")
        kinds = [event["kind"] for event in client.events("first-stream")]
    changed, ranked, tried, refitted, undone = answers
    assert changed["settings"]["features"]["arms"] == info.settings["features"]["arms"] == ["red", "blue", "green"]
    assert {banner["arm"] for banner in ranked["arms"]} == {"red", "blue", "green"}
    assert (tried["event"], refitted["event"] > 0) == (None, True)
    assert tried["comparison"]["outcomes"] == info.counts.settled > 0
    assert undone["settings"]["half_life"] is None
    changes = [kind for kind in kinds if kind in ("configured", "refitted", "refit_undone")]
    assert changes == ["configured", "refitted", "refit_undone"]


# --- retention --------------------------------------------------------------------------------------------------------


def test_streams_are_managed_by_commands(shell: Shell) -> None:
    (block,) = read_commands(HOWTO / "retention.md", "From the command line")
    offline, online = (
        "".join(line + "\n" for line in block.splitlines() if word in line) for word in ("--store", "--url")
    )
    store = shell.folder / "windvane.db"
    with windvane.testing.serve(store) as client:
        client.create("homepage", dim=2, retention="1d")
        shell.port = client.url.rpartition(":")[2]
        shell.run(online)
        assert client.streams() == []
        client.create("kept", dim=2)
    assert "kept" in shell.run(offline)


# --- backup-restore ---------------------------------------------------------------------------------------------------


def test_a_backup_is_restored(shell: Shell) -> None:
    store = shell.folder / PLACES["/var/lib/windvane"] / "windvane.db"
    (back_up,) = read_commands(HOWTO / "backup-restore.md", "Back up a file")
    with windvane.testing.serve(store) as client:
        client.create("shop", dim=2)
        client.decide("shop", VECTORS)
        shell.run(back_up.replace("--store windvane.db", f"--store {store}"))
        client.decide("shop", VECTORS)
    (shell.folder / "backup.db").rename(shell.folder / "2026-11-17.db")
    (restore,) = read_commands(HOWTO / "backup-restore.md", "Restore a file")
    printed = shell.run(restore)
    assert "1 event" in printed  # is lost
    assert store.with_name("windvane.db.replaced-1").exists()
    assert (shell.folder / "systemctl").read_text().split() == ["stop", "windvane", "start", "windvane"]
    with windvane.testing.serve(store) as client:
        assert client.info("shop").counts.decisions == 1


def test_the_line_for_cron(shell: Shell) -> None:
    text = (HOWTO / "backup-restore.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^17 3 \* \* \* windvane (.*)$", text, re.M)
    with windvane.testing.serve(shell.folder / PLACES["/var/lib/windvane"] / "windvane.db"):
        shell.run(line.replace("/opt/windvane/bin/", "").replace(r"\%", "%"))
    (backup,) = (shell.folder / PLACES["/var/backups/windvane"]).iterdir()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d\.db", backup.name)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc")
def test_files_of_a_deleted_store_are_saved(shell: Shell) -> None:
    folder = shell.folder / PLACES["/var/lib/windvane"]
    rescue, restore = read_commands(HOWTO / "backup-restore.md", "The store was deleted while the service runs")
    service = windvane.testing.Service(folder / "windvane.db")
    try:
        with Client(service.address) as client:
            assert client.ready(wait=60)
            client.create("shop", dim=2)
            client.decide("shop", VECTORS)
        for path in folder.iterdir():
            path.unlink()
        shell.port = service.address.rpartition(":")[2]
        (shell.folder / "programs" / "systemctl").write_text(f"#!/bin/sh\necho {service.pid}\n")
        printed = shell.run(rescue.replace("/root/rescue", str(shell.folder / "rescue")))
    finally:
        service.stop()
    assert re.search(r"shop +1 +sound", printed), printed
    shell.run(restore.replace("/root/rescue", str(shell.folder / "rescue")))
    with windvane.testing.serve(folder / "windvane.db") as client:
        assert client.info("shop").counts.decisions == 1


# --- upgrade ----------------------------------------------------------------------------------------------------------


def test_the_steps_of_an_upgrade(shell: Shell) -> None:
    """In their order: a backup, a copy of the old version, the new one, a restart."""
    store = shell.folder / PLACES["/var/lib/windvane"] / "windvane.db"
    with windvane.testing.serve(store) as client:
        client.create("shop", dim=2)
    pip = shell.folder / PLACES["/opt/windvane"] / "bin" / "pip"
    pip.parent.mkdir()
    pip.write_text('#!/bin/sh\ntest -d "$HOME/opt.old" && echo "$@" > "$HOME/installed"\n')
    pip.chmod(0o755)
    (block,) = read_commands(HOWTO / "upgrade.md", "One service")
    shell.run(block)
    (backup,) = (shell.folder / PLACES["/var/backups/windvane"]).iterdir()
    assert backup.name.startswith("before-")
    assert (shell.folder / "installed").read_text() == "install .[service]\n"
    assert (shell.folder / "systemctl").read_text() == "restart windvane\n"
