"""The tutorial of the service, followed as a reader would: curl, then Python at the prompt, on one stream."""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import windvane
from support.pages import DOCS, ROOT, read_blocks
from support.prompt import FAULT, find_fault, open_prompt
from support.service_pages import Shell, parse_documents, read_commands
from windvane import Client
from windvane.testing import serve

PAGE = DOCS / "tutorials" / "first-stream.md"
PICTURE = DOCS / "figures" / "first-stream.png"
SEED = 0  # of the stream and of the visitors: without one, a run in fifty would fail by chance
RUNS = 500
TOLERANCE = 5.0  # percentage points: quantiles of RUNS other runs differ by less, with a standard error of 2 at most


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serve(tmp_path_factory.mktemp("store") / "tutorial.db") as client:
        yield client


@pytest.fixture(scope="module")
def answers(client: Client, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The documents that the commands of curl print, in their order, pasted one block after the other."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    commands = "".join(block for block in read_commands(PAGE) if "curl " in block)
    assert commands.count('"default_reward": 0\n') == 1
    commands = commands.replace('"default_reward": 0\n', f'"default_reward": 0,\n  "seed": {SEED}\n')
    shell = Shell(tmp_path_factory.mktemp("shell"), client.url.rpartition(":")[2])
    (shell.folder / ".curlrc").write_text("fail\nsilent\n")  # in a terminal, curl shows no progress
    return parse_documents(shell.run(commands))


def read_snippets() -> list[tuple[str, str]]:
    """Return the snippets of Python, each with what the page says that it prints."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", text, flags=re.M | re.S)
    return [(code, shown.strip("\n")) for code, shown in found]


def make_pattern(shown: str) -> str:
    """Return a regular expression for what a snippet prints: numbers and arms depend on chance."""
    pattern = re.sub(r"inf|[-\d.]+\d|\d", "<number>", shown)
    pattern = re.sub(r"\b(red|blue)\b", "<arm>", pattern)
    return re.escape(pattern).replace("<number>", r"(?:inf|-?[\d.e-]+)").replace("<arm>", "(?:red|blue)")


def test_the_commands_of_curl(answers: list[Any]) -> None:
    """They run as pasted, and answer what the page says."""
    ready, created, decision, explanation, recorded, repeated, stream = answers
    assert (ready["status"], created["settings"]["reward_timeout"]) == ("ready", 100)
    example = re.search(r"^```text\n(\{.*?\n\})$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert example is not None
    assert json.loads(example[1]).keys() == decision.keys()
    assert decision["arm"] in ("red", "blue")
    sentence = re.search(r"^`('blue' scored .*)`\.$", PAGE.read_text(encoding="utf-8"), re.M)
    assert sentence is not None
    assert re.fullmatch(make_pattern(sentence[1]), explanation["text"]), explanation["text"]
    assert (recorded["status"], repeated["status"]) == ("recorded", "unchanged")
    assert (stream["counts"]["decisions"], stream["counts"]["held"], stream["counts"]["settled"]) == (1, 1, 0)


def test_the_snippets_at_the_prompt(answers: list[Any], client: Client, tmp_path: Any) -> None:
    """``visitors.py`` is a file, everything else is pasted; each block prints what the page shows, but for numbers."""
    (visitors, _), *blocks = read_snippets()
    (visits,) = re.findall(r"^```text\n(visits 0 to .*?)\n```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (tmp_path / "visitors.py").write_text(f"import random\n\nrandom.seed({SEED})\n{visitors}", encoding="utf-8")
    with open_prompt(tmp_path, "visitors.py", WINDVANE_URL=client.url) as prompt:
        for code, expected in [("", visits), *blocks]:
            printed = prompt.paste(code)
            assert not FAULT.search(printed), printed
            assert re.fullmatch(make_pattern(expected), printed), (expected, printed)
            if code == "":
                check_rates([int(rate) for rate in re.findall(r"(\d+)% of the time", printed)])


def check_rates(rates: list[int]) -> None:
    """The stream finds the best banner, loses it, and finds the other. In RUNS runs, 1 in 50 is slower than this."""
    before, change, after = np.mean(rates[1:4]), rates[4], np.mean(rates[6:8])
    assert before > 80
    assert change < before - 15
    assert after > 65


def test_a_loop_that_is_followed_by_a_statement_cannot_be_pasted(tmp_path: Any) -> None:
    """What the page had: the prompt refuses it, so that the test above means something."""
    code = "for i in range(2):\n    print('number', i)\nprint('after')\n"
    assert find_fault(code) == "print('after')"
    assert find_fault(code.replace("\nprint", "\n\nprint")) is None
    with open_prompt(tmp_path) as prompt:
        assert "SyntaxError: invalid syntax" in prompt.paste(code)
        assert prompt.paste(code.replace("\nprint", "\n\nprint")) == "number 0\nnumber 1\nafter"


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((DOCS / "tutorials").glob("*.md"))], ids=lambda p: p.name)
def test_blocks_of_tutorials_can_be_pasted(page: Any) -> None:
    """Except for those that the reader is told to save."""
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(r"^```python\n(.*?)^```", text, flags=re.M | re.S):
        before = text[: match.start()].rstrip().rpartition("\n\n")[2]
        if not re.search(r"Save\s+(this|it)\s+as", before):
            assert find_fault(match[1]) is None, match[1]


def test_the_store_of_a_reader_is_not_part_of_the_clone() -> None:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is no clone")
    files = ("a.db", "a.db.lock", "a.db.mark", "a.db-wal")
    names = [f"{folder}{name}" for folder in ("", "tutorial/") for name in files]
    done = subprocess.run(
        ["git", "check-ignore", *names, "tutorial/visitors.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [*names, "tutorial/visitors.py"]


def test_the_readme_and_the_tutorial_do_not_share_a_stream() -> None:
    """Whoever follows both meets no stream of the other, and no store."""
    used = []
    for page in (PAGE, ROOT / "README.md"):
        code = "".join(read_blocks(page, "console") + read_blocks(page, "python"))
        streams = re.findall(r'streams/([\w-]+)|client\.\w+\(\s*(?:#[^\n]*\n\s*)?"([\w-]+)"', code)
        used.append({*map("".join, streams), *re.findall(r"--store (\S+)", code)})
    assert used[0] & used[1] == set()
    assert {"first-stream", "tutorial.db"} <= used[0]
    assert {"banners", "windvane.db"} <= used[1]


class LocalClient:
    """What ``visitors.py`` needs of a client, with agents in this process: the service has the same, behind HTTP."""

    seed = 0

    def ensure(self, name: str, **settings: Any) -> None:
        self.agent = windvane.Agent(seed=self.seed, **settings)

    def decide(self, name: str, **offer: Any) -> Any:
        return self.agent.decide(**offer)

    def reward(self, name: str, decision: Any, value: float) -> None:
        self.agent.reward(decision, value)


@pytest.mark.slow
def test_the_ranges_that_the_page_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of medians and of 5 and 95 % quantiles, with the seeds 0, 1, 2, ...; prints one for the page."""
    monkeypatch.setattr(windvane, "Client", LocalClient)
    rates, verdicts = [], set()
    for seed in range(RUNS):
        monkeypatch.setattr(LocalClient, "seed", seed)
        random.seed(seed)
        names: dict[str, Any] = {}
        with contextlib.redirect_stdout(io.StringIO()):
            exec(read_snippets()[0][0], names)
        rates.append(np.reshape(names["best"], (8, 250)).mean(axis=1) * 100.0)
        verdicts.add(names["client"].agent.drift_estimate().verdict)
    found = np.quantile(rates, (0.5, 0.05, 0.95), axis=0).T
    for line, (median, low, high) in enumerate(found.tolist()):
        print(f"| {250 * line} to {250 * line + 249} | {median:.0f}% | {low:.0f}% to {high:.0f}% |")
    slow = np.mean([np.mean(row[6:8]) < 50.0 for row in rates])
    print(f"{slow:.1%} of the runs had not found the new banners")
    rows = re.findall(r"^\| \d+ to \d+ \| (\d+)% \| (\d+)% to (\d+)% \|$", PAGE.read_text(encoding="utf-8"), re.M)
    assert np.abs(np.array(rows, float) - found).max() <= TOLERANCE
    assert verdicts == {"drift"}
    assert slow < 0.04


def test_the_picture_is_light() -> None:
    assert PICTURE.stat().st_size < 80_000
