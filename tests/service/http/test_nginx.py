"""The service behind Debian's nginx with the configuration of deploy/: what nginx keeps away from it."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from support.nginx import create_certificate, find_ports, find_program, locate_site, run_nginx, write_site
from support.server import ARMS, run_command, run_server, until
from support.service_pages import DEPLOY
from support.wire import AMBIGUOUS, read_statuses, send_bytes

CONFIGURATION = DEPLOY / "nginx.conf"
NAME = "windvane.example.com"


class Site(NamedTuple):
    """A service on the open internet, as its clients see it."""

    https: int
    http: int
    tls: ssl.SSLContext
    secret: str
    log: Path

    def start(self, words: bytes, buffer: int | None = None) -> ssl.SSLSocket:
        """Open a connection and send the beginning of a request."""
        connection = socket.socket()
        if buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connection.settimeout(30)
        connection.connect(("127.0.0.1", self.https))
        secured = self.tls.wrap_socket(connection, server_hostname=NAME)
        secured.sendall(words)
        return secured

    def send(self, *pieces: bytes) -> bytes:
        """Send pieces of a request; return all that comes back until the connection is closed."""
        return send_bytes(self.start(b""), *pieces)

    def client(self) -> httpx2.Client:
        headers = {"host": NAME, "authorization": f"Bearer {self.secret}"}
        return httpx2.Client(
            base_url=f"https://127.0.0.1:{self.https}", headers=headers, verify=self.tls, trust_env=False, timeout=30
        )

    def head(self, line: str, *headers: str) -> bytes:
        """Return the head of a request that may do anything."""
        known = (f"Host: {NAME}", f"Authorization: Bearer {self.secret}", "Content-Type: application/json")
        return "\r\n".join([f"{line} HTTP/1.1", *known, *headers, "", ""]).encode()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The documented configuration; only addresses, files and the length of time limits are replaced."""
    find_program("nginx")
    folder = tmp_path_factory.mktemp("nginx")
    certificate, store = create_certificate(folder, NAME), folder / "a.db"
    secret = run_command("token", "add", "shop", "--store", store).stdout.strip()
    https, http = find_ports(2)
    with run_server(store) as server:
        limits = [
            ("127.0.0.1:8000", server.address.removeprefix("http://")),
            ("client_header_timeout 10s", "client_header_timeout 2s"),
            ("client_body_timeout   10s", "client_body_timeout 2s"),
            ("send_timeout          30s", "send_timeout 1s"),
        ]
        write_site(folder, CONFIGURATION, [*locate_site(folder, folder, https, http), *limits])
        with run_nginx(folder, https):
            site = Site(https, http, ssl.create_default_context(cafile=certificate), secret, folder / "access.log")
            with site.client() as client:
                assert client.post("/v1/streams", json={"name": "shop", "dim": 2}).status_code == 201
            yield site
            with site.client() as client:  # nothing that was tried has archived it, or holds anybody up
                assert client.get("/v1/streams/shop").json()["archived"] is None


def find_line(site: Site, request_id: str) -> str:
    """Return the line in the log of nginx about a request."""
    lines = site.log.read_text().splitlines()
    return next((line for line in lines if line.endswith(f" request_id={request_id}")), "")


def test_a_decision(site: Site) -> None:
    with site.client() as client:
        answer = client.post("/v1/streams/shop/decisions", json=ARMS)
        assert answer.status_code == 201
        assert answer.json()["arm"] in ARMS["arms"]
        assert client.get("/v1/streams", headers={"authorization": ""}).status_code == 401
        assert "strict-transport-security" in answer.headers
        id_ = answer.headers["x-request-id"]
        until(lambda: f'"POST /v1/streams/shop/decisions" 201 {len(answer.content)} ' in find_line(site, id_))
        assert client.get("/v1/streams", headers={"x-request-id": "mine"}).headers["x-request-id"] == "mine"
        until(lambda: find_line(site, "mine"))


def test_plain_http_is_redirected(site: Site) -> None:
    answer = httpx2.get(f"http://127.0.0.1:{site.http}/docs?x=1", headers={"host": NAME}, trust_env=False)
    assert (answer.status_code, answer.headers["location"]) == (301, f"https://{NAME}/docs?x=1")


def test_live_updates_are_not_held_back(site: Site) -> None:
    """The next update arrives while the answer goes on."""
    with site.client() as client, site.client() as other, client.stream("GET", "/v1/streams/shop/live") as answer:
        lines = answer.iter_lines()
        for _ in range(3):
            assert next(line for line in lines if line).startswith("event: ")
            assert next(lines).startswith("data: ")
            assert other.post("/v1/streams/shop/decisions", json=ARMS).status_code == 201


@pytest.mark.parametrize("start", ["nothing", "head", "body", "chunk"])
def test_slow_requests_are_cut_off(site: Site, start: str) -> None:
    """And meanwhile others are served."""
    words = {
        "nothing": b"",
        "head": site.head("POST /v1/streams/shop/decisions")[:-2] + b"X-Slow: ",
        "body": site.head("POST /v1/streams/shop/decisions", "Content-Length: 100") + b"{",
        "chunk": site.head("POST /v1/streams/shop/decisions", "Transfer-Encoding: chunked") + b"5\r\n{",
    }
    slow = [site.start(words[start]) for _ in range(30)]
    with site.client() as client:
        assert client.post("/v1/streams/shop/decisions", json=ARMS).status_code == 201
    for connection in slow:
        assert read_statuses(send_bytes(connection)) in ([], [408])


def test_a_head_that_drips_is_cut_off(site: Site) -> None:
    """However often a byte comes: the time limit is for the whole head."""
    with site.start(b"GET /healthz HTTP/1.1\r\nX-Slow: ") as connection, contextlib.suppress(OSError):
        connection.settimeout(0.1)
        for _ in range(300):
            connection.sendall(b"x")
            with contextlib.suppress(TimeoutError):
                assert read_statuses(connection.recv(1000)) in ([], [408])
                break
        else:
            pytest.fail("it was read for 30 seconds")


def test_answers_that_nobody_reads_are_cut_off(site: Site) -> None:
    """nginx takes a large answer from the service, so that nobody is held up, and resets the connection."""
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(site.client())
        rows = {"rewards": [1.0] * 3500, "vectors": [[0.12345678901234567] * 50] * 3500}
        client.post("/v1/streams", json={"name": "large", "dim": 50, "policy": "UniformRandom"}).raise_for_status()
        for _ in range(3):  # 4 MB each: more than the buffers of the sockets hold
            client.post("/v1/streams/large/history", json=rows).raise_for_status()
        poller = select.poll()
        for _ in range(5):
            connection = stack.enter_context(site.start(site.head("GET /v1/streams/large/events"), buffer=4096))
            poller.register(connection, 0)  # errors are reported all the same
        assert client.post("/v1/streams/shop/decisions", json=ARMS).status_code == 201
        until(lambda: len(poller.poll(0)) == 5, 60)


@pytest.mark.parametrize(("headers", "body"), [*AMBIGUOUS, (["Transfer-Encoding:\x0bchunked"], b"0\r\n\r\n")])
def test_smuggled_requests_are_refused(site: Site, headers: list[str], body: bytes) -> None:
    smuggled = site.head("POST /v1/streams/shop/archive", "Content-Length: 0", "Connection: close")
    headers = [header.format(size=len(smuggled)) for header in headers]
    answer = site.send(site.head("POST /v1/streams/shop/decisions", *headers) + body + smuggled)
    assert read_statuses(answer)[0] in (400, 501), answer[:300]
    assert b'"archived":"' not in answer


@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
def test_offers_to_change_the_protocol_are_not_passed_on(site: Site, protocol: str, pieces: int) -> None:
    body = json.dumps(ARMS).encode()
    offer = ("Connection: Upgrade", f"Upgrade: {protocol}", f"Content-Length: {len(body)}")
    last = site.head("GET /healthz", "Connection: close")
    head = site.head("POST /v1/streams/shop/decisions", *offer)
    answer = site.send(head + body + last) if pieces == 1 else site.send(head, body, last)
    assert read_statuses(answer) == [201, 200]


@pytest.mark.parametrize(
    ("line", "headers", "status"),
    [
        ("GET /" + "x" * 200_000, [], 414),
        ("GET /healthz", ["X: " + "y" * 200_000], 400),
        ("GET /healthz", ["X: y"] * 50_000, 400),
        ("POST /v1/streams", [f"Content-Length: {5 << 20}"], 413),
    ],
    ids=["URL", "header", "headers", "body"],
)
def test_oversize_requests_are_refused(site: Site, line: str, headers: list[str], status: int) -> None:
    statuses = read_statuses(site.send(site.head(line, *headers, "Connection: close")))
    assert statuses == [status] or (status != 413 and not statuses)  # none: reset while the client was sending


def test_one_address_has_a_limit(site: Site) -> None:
    """Of requests under way; others wait for a place."""
    with contextlib.ExitStack() as stack:
        statuses = []
        for _ in range(101):
            connection = stack.enter_context(site.start(site.head("GET /v1/streams/shop/live")))
            statuses += read_statuses(connection.recv(65536))
        assert statuses == [200] * 100 + [429]

    def is_served() -> bool:
        with site.client() as client:
            return client.get("/v1/streams/shop").status_code == 200

    until(is_served)
