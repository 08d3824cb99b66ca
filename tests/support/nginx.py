"""Debian's nginx with a configuration of the documentation, in a temporary folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from support.server import until

MAIN = """
{user}
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    lingering_timeout 1s;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/site.conf;
}}
"""


def find_program(name: str) -> str:
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if path is None and os.environ.get("WINDVANE_REQUIRE_NGINX"):
        pytest.fail(f"{name} is missing, and WINDVANE_REQUIRE_NGINX is set")
    return path or pytest.skip(f"{name} is missing")


def find_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in sockets]


def create_certificate(folder: Path, name: str) -> Path:
    """Create ``key.pem`` and a certificate for a host name and this machine; return the path of the certificate."""
    line = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -keyout key.pem -out cert.pem"
    about = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name},DNS:localhost,IP:127.0.0.1"]
    subprocess.run([find_program("openssl"), *line.split(), *about], cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem"


def write_site(folder: Path, source: Path, replacements: Sequence[tuple[str, str]]) -> None:
    """Write a configuration with other addresses and files; each of the old ones occurs once."""
    text = source.read_text()
    for old, new in replacements:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "site.conf").write_text(text)
    (folder / "nginx.conf").write_text(MAIN.format(folder=folder, user="user root;" if os.geteuid() == 0 else ""))


def locate_site(folder: Path, certificates: Path, https: int, http: int) -> list[tuple[str, str]]:
    """Return the replacements for the ports, the log and the certificate, which every configuration has."""
    return [
        ("listen 80;", f"listen 127.0.0.1:{http};"),
        ("listen 443 ", f"listen 127.0.0.1:{https} "),
        ("/var/log/nginx/windvane.log", f"{folder}/access.log"),
        ("/etc/ssl/certs/windvane.pem", f"{certificates}/cert.pem"),
        ("/etc/ssl/private/windvane.key", f"{certificates}/key.pem"),
    ]


@contextlib.contextmanager
def run_nginx(folder: Path, port: int) -> Iterator[None]:
    """Run nginx with the site in ``folder`` until the end of the block; it accepts connections at ``port``."""
    line = [find_program("nginx"), "-p", str(folder), "-c", f"{folder}/nginx.conf", "-e", f"{folder}/errors"]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        try:
            until(lambda: process.poll() is not None or _answers(port))
            assert process.poll() is None, process.communicate()[1]
            yield
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0
