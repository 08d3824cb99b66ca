"""Every snippet in the README and the docs runs, page by page, as a reader would run it."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
import windvane_site

from support.pages import LIBRARY_HOWTOS, read_blocks, read_commands, run_snippets
from windvane.cli.app import build_app
from windvane.lab.spec.experiment_spec import Spec
from windvane.testing import serve

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TESTED_ELSEWHERE = {
    ROOT / "docs" / "tutorials" / "first-stream.md",
    *(ROOT / "docs" / "howto" / f"{name}.md" for name in LIBRARY_HOWTOS),
    ROOT / "docs" / "howto" / "clients-and-retries.md",
}  # with what their snippets print


@pytest.fixture
def service(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For a page that talks to the service, run one at the default address of the client."""
    if not any("windvane.Client(" in code for code in read_blocks(page, "python")):
        yield
        return
    with serve(tmp_path / "windvane.db") as client:
        monkeypatch.setenv("WINDVANE_URL", client.url)
        yield


@pytest.mark.parametrize("page", [page for page in PAGES if page not in TESTED_ELSEWHERE], ids=lambda page: page.name)
@pytest.mark.usefixtures("service")
def test_python_snippets_run(page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_snippets(page, tmp_path)


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "howto").glob("*.md")), ids=lambda page: page.name)
def test_every_howto_has_a_test(page: Path) -> None:
    """A module of tests/docs names it and follows it."""
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "docs").glob("test_*.py"))
    assert page.name == "index.md" or page.stem in LIBRARY_HOWTOS or re.search(rf'["/]{page.stem}\.md"', tests)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_only_known_kinds_of_snippets(page: Path) -> None:
    """A fence of another kind would not be run."""
    kinds = re.findall(r"^```(\w*)$", page.read_text(encoding="utf-8"), flags=re.M)
    assert set(kinds) <= {"", "python", "console", "text", "toml"}, kinds


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_specs_in_the_docs_are_valid(page: Path) -> None:
    """Every spec on a page can be run."""
    for number, text in enumerate(read_blocks(page, "toml")):
        Spec.parse(text, f"{page.name}, spec {number + 1}").check()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_docs_exist(page: Path) -> None:
    """The commands and options that a page shows are ones that the program has."""
    group = typer.main.get_command(build_app())
    for line in read_commands(page):
        command, words = group, shlex.split(line)
        while hasattr(command, "commands"):  # a group: the next word is the name of one of its commands
            command = command.commands[words.pop(0)]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, line


def test_make_targets_in_snippets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    shown = "".join(code for page in PAGES for code in read_blocks(page, "console"))
    named = set(re.findall(r"^make ([\w-]+)", shown, re.M))
    assert {"demo", "test"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.M), target


@functools.cache
def list_targets(page: Path) -> set[str]:
    """Return what a link can lead to within a page: its headings, with those that are generated, and named places."""
    text = windvane_site.complete_text(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)))
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    headings = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    return headings | set(re.findall(r"^\(([\w-]+)\)=$", text, re.M))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """To a file that exists, and to a heading that it has."""
    for target, _, heading in re.findall(r"\]\((?!http)([^)#]*)(#([^)]+))?\)", page.read_text(encoding="utf-8")):
        leads_to = page.parent / target if target else page
        assert leads_to.exists(), target
        if heading:
            assert heading in list_targets(leads_to.resolve()), heading


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent.parent == ROOT / "docs" and page.name == "index.md"], ids=str
)
def test_an_index_lists_every_page_as_a_link(page: Path) -> None:
    """With its title: a table of contents of the site is no list on GitHub."""
    text = page.read_text(encoding="utf-8")
    named = [name for block in re.findall(r"```{toctree}\n:hidden:\n\n(.*?)```", text, re.S) for name in block.split()]
    pages = {path.stem for path in page.parent.glob("*.md")} | {
        f"{path.parent.name}/index" for path in page.parent.glob("*/index.md")
    }
    assert set(named) == pages - {"index"}
    links = dict(re.findall(r"^- \[(.+?)\]\(([^)]+)\): \w", text, re.M))
    for name in named:
        target = (page.parent / f"{name}.md").resolve()
        copied = re.match(r"<!-- copy: (\S+) -->", target.read_text(encoding="utf-8"))
        target = ROOT / copied[1] if copied else target
        title = target.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        assert (page.parent / links[title]).resolve() == target


def test_links_in_the_docs_have_a_text() -> None:
    """Only the site fills in the title of a page."""
    assert [page.name for page in PAGES if re.search(r"(?<!\!)\[\]\(", page.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.parent.name == "api" and page.name != "index.md"],
    ids=lambda page: page.name,
)
def test_generated_pages_say_on_github_that_the_site_shows_them(page: Path) -> None:
    assert page.read_text(encoding="utf-8").splitlines()[2].startswith('<p class="only-on-github">')


@pytest.mark.parametrize(
    "package", sorted(path.parent.name for path in (ROOT / "src" / "windvane").glob("*/__init__.py"))
)
def test_the_layout_names_every_module(package: str) -> None:
    """And no module that does not exist."""
    text = (ROOT / "docs" / "developing" / "layout.md").read_text(encoding="utf-8")
    layout = text[text.index("```text") : text.index("Imports point one way")]
    part = re.search(rf"^  {package}/.*?(?=^(?:  )?[a-z])", layout, flags=re.M | re.S)
    assert part is not None
    modules = {path.stem for path in (ROOT / "src" / "windvane" / package).rglob("*.py") if path.stem[:2] != "__"}
    assert modules - set(re.findall(r"\w+", part[0])) == set()
    assert set(re.findall(r"(\w+)\.py\b", part[0])) <= modules
