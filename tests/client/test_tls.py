"""The client over https: a certificate that is trusted, and one that is not."""

from __future__ import annotations

import shutil
import socket
import ssl
from pathlib import Path

import pytest

from support.certificates import make_certificate
from support.clients import ARMS, Connect, refused
from support.network import ScriptedServer, make_answer

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


class SecureServer(ScriptedServer):
    """A server of one answer over TLS."""

    def __init__(self, certificate: Path, answer: bytes) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        super().__init__(answer)

    def handle(self, connection: socket.socket) -> None:
        with self._context.wrap_socket(connection, server_side=True) as secure:
            super().handle(secure)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls") / "own.pem")


def test_a_certificate_for_another_name(
    tmp_path: Path, connect: Connect, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is trusted, so the error does not advise to trust it."""
    certificate = make_certificate(tmp_path / "other.pem", "DNS:decisions.example.com")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with (
        SecureServer(certificate, make_answer({})) as server,
        connect(server.address.replace("http:", "https:")) as client,
    ):
        error = refused(lambda: client.decide("a", ARMS), None, "untrusted")
    assert "use a name of the certificate" in str(error)
    assert pauses == []


def test_certificates(
    certificate: Path, connect: Connect, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = make_answer({"decision": "d1", "status": "recorded", "value": 1.0})
    with SecureServer(certificate, answer) as server:
        address = server.address.replace("http:", "https:")
        with connect(address) as client:
            error = refused(lambda: client.decide("a", ARMS), None, "untrusted")
            assert (error.is_unsure, pauses, server.requests) == (False, [], [])
            assert "SSL_CERT_FILE" in str(error)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with connect(address) as client:
            assert [client.reward("a", "d1", 1.0) for _ in range(2)] == ["recorded"] * 2
