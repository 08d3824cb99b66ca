"""What a reader can do with a whole stream: archive it, bring it back, delete it; and see how long events are kept."""

from __future__ import annotations

import pytest

from support.page import until
from support.server import run_command

REFUSED = ("Failed to load resource",)


def test_archive_and_bring_back(own, visit):
    own.create("shop", dim=2, retention="90d")
    own.feed("shop", 20)
    page = visit(own.url + "/#/shop")
    page.locator("#archive").click()
    until(page, "document.querySelector('#archive').textContent === 'Unarchive'")
    assert own.info("shop")["archived"] is not None
    assert page.locator("#archived").is_visible()
    assert page.locator("#kept").text_content() == "Events are kept for 90d."
    assert page.locator("#removed").is_hidden()
    page.locator("#archive").click()
    until(page, "document.querySelector('#archive').textContent === 'Archive'")
    assert own.info("shop")["archived"] is None
    assert page.locator("#archived").is_hidden()


def test_what_was_removed(own, visit):
    own.create("shop", dim=2, retention="1ms")
    own.feed("shop", 20)
    own.request("POST", "/v1/streams/shop/compact")
    number = own.info("shop")["removed"]["number"]
    page = visit(own.url + "/#/shop")
    until(page, f"document.querySelector('#removed').textContent.startsWith('{number} events removed, the last of ')")
    own.request("PATCH", "/v1/streams/shop", {"retention": None})
    until(page, "document.querySelector('#kept').textContent === 'Events are kept forever.'")


@pytest.mark.parametrize("width", [390, 1280])
def test_a_stream_is_deleted_after_its_name_was_typed(own, visit, width):
    for name in ("a", "shop"):
        own.create(name, dim=2)
    page = visit(own.url + "/#/shop", width=width, expected=REFUSED)
    page.locator("#delete").click()
    button = page.locator("#deletion button.danger")
    assert page.locator("#deletion code").text_content() == "shop"
    assert page.evaluate("document.activeElement.id") == "deletion-name"
    for text in ("", "sho", "shop "):
        page.locator("#deletion-name").fill(text)
        page.keyboard.press("Enter")
        assert button.is_disabled()
    page.keyboard.press("Escape")
    assert page.locator("#deletion").is_hidden()
    page.locator("#delete").click()
    assert page.locator("#deletion-name").input_value() == ""
    page.locator("#deletion-name").fill("shop")
    button.click()
    until(page, "location.hash === '#/a'")
    assert [stream["name"] for stream in own.request("GET", "/v1/streams")["streams"]] == ["a"]
    until(page, "document.querySelectorAll('#streams li').length === 1")
    page.locator("#delete").click()
    page.locator("#deletion-name").fill("a")
    page.keyboard.press("Enter")
    until(page, "!document.querySelector('#new-stream').hidden")
    assert page.locator("#new-heading").text_content() == "No stream yet"


def test_a_stream_that_somebody_else_deletes(own, visit):
    own.create("shop", dim=2)
    page = visit(own.url + "/#/shop", expected=REFUSED)
    page.locator("#delete").click()
    own.request("DELETE", "/v1/streams/shop")
    until(page, "!document.querySelector('#missing').hidden")
    assert page.locator("#deletion").is_hidden()
    own.create("shop", dim=2)
    until(page, "document.querySelector('#missing').hidden && !document.querySelector('#stream').hidden")


def test_a_token_that_may_only_read(own, visit):
    own.create("shop", dim=2)
    secret = run_command("token", "add", "page", "--read-only", "--store", own.store).stdout.strip()
    page = visit(own.url + "/#/shop", expected=REFUSED)
    until(page, "!document.querySelector('#access').hidden")
    page.locator("#token").fill(secret)
    page.keyboard.press("Enter")
    page.locator("#archive").click()
    until(page, "document.querySelector('#manage .problem').textContent.includes('read-only')")
    page.locator("#delete").click()
    page.locator("#deletion-name").fill("shop")
    page.keyboard.press("Enter")
    until(page, "!document.querySelector('#deletion').open")
    assert "read-only" in page.locator("#manage .problem").text_content()
    assert page.locator("#archive").text_content() == "Archive"


def test_a_stream_is_created_with_a_retention(own, visit):
    page = visit(own.url + "/", expected=REFUSED)
    page.locator("#new-name").fill("shop")
    page.locator("#new-timeout").fill("2h")
    page.locator("#new-retention").fill("1h")
    page.locator("#new-stream button[type=submit]").click()
    until(page, "document.querySelector('#new-retention').getAttribute('aria-invalid') === 'true'")
    page.locator("#new-retention").fill("90d")
    assert '"retention":"90d"' in page.locator("#create-command code").text_content()
    page.locator("#new-stream button[type=submit]").click()
    until(page, "location.hash === '#/shop'")
    assert own.info("shop")["retention"] == "90d"
