"""The tutorial of the service, followed as a reader would: curl, then Python, on one stream."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator

import pytest

from support.pages import DOCS, run_page
from support.service_pages import Shell, read_commands
from windvane import Client
from windvane.testing import serve

PAGE = DOCS / "tutorials" / "first-stream.md"
PICTURE = DOCS / "figures" / "first-stream.png"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serve(tmp_path_factory.mktemp("store") / "windvane.db") as client:
        yield client


@pytest.fixture(scope="module")
def answers(client: Client, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the commands of curl print, each on a line."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    blocks = [block for block in read_commands(PAGE) if "curl " in block]
    shell = Shell(tmp_path_factory.mktemp("shell"), client.url.rpartition(":")[2])
    (shell.folder / ".curlrc").write_text('fail\nwrite-out = "\\n"\n')
    return shell.run("".join(blocks)).splitlines()


def test_the_commands_of_curl(answers: list[str]) -> None:
    """They run as pasted, and answer what the page says."""
    documents = [json.loads(line) for line in answers if line.startswith("{")]
    ready, created, decision, explanation, recorded, repeated, stream = documents
    assert (ready["status"], created["settings"]["reward_timeout"]) == ("ready", 100)
    example = re.search(r"^```text\n(\{.*?\})$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert example is not None
    assert json.loads(example[1]).keys() == decision.keys()
    assert decision["arm"] in ("red", "blue")
    assert re.fullmatch(
        r"'\w+' scored 0\.9536: predicted 0\.5, bonus 0\.4536; next was '\w+' with 0\.9536", explanation["text"]
    )
    assert (recorded["status"], repeated["status"]) == ("recorded", "unchanged")
    assert (stream["counts"]["decisions"], stream["counts"]["held"], stream["counts"]["settled"]) == (1, 1, 0)


def test_the_visitors(answers: list[str], client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snippets run in the stream that curl created; it finds the best banner, twice."""
    monkeypatch.setenv("WINDVANE_URL", client.url)
    visits, learned, late, again = run_page(PAGE).printed
    rates = [int(rate) for rate in re.findall(r"the best banner (\d+)% of the time", visits)]
    assert len(rates) == 8
    assert min(rates[2:4]) > 80
    assert rates[4] < rates[3] - 20
    assert rates[7] > 70
    assert "; drift; memory: " in learned
    assert late == "expired\n"
    assert "decisions=2103" in again  # one by curl, 2,000 visitors, one that was too late, 101 to let its timeout pass


def test_the_picture_is_light() -> None:
    assert PICTURE.stat().st_size < 80_000
