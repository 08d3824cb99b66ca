"""Certificates for servers of tests."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(path: Path, name: str = "IP:127.0.0.1") -> Path:
    """Write a key and a certificate of ``name`` that nobody has signed, in one file, with openssl."""
    line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", path, "-out", path, "-days", "2"]
    more = ["-subj", "/CN=localhost", "-addext", f"subjectAltName={name}"]
    subprocess.run([*line, *more], check=True, capture_output=True)
    return path
