"""Run a temporary decision service in a test suite: see :func:`serve`. Needs ``pip install windvane[service]``."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from windvane.client import Client, ClientError
from windvane.errors import WindvaneError

__all__ = ["Service", "ServiceError", "serve"]

START_SECONDS = 120.0  # the first start on a machine compiles kernels
STOP_SECONDS = 30.0


class ServiceError(WindvaneError):
    """The service did not start."""


class Service:
    """``windvane serve`` in a separate process, on a free port of this machine.

    It is a process rather than a thread so that it has its own event loop, signals and environment, and can be killed.

    Parameters
    ----------
    store
        The file that holds all data. It is created if it does not exist.
    *options
        More options of ``windvane serve``, such as ``"--rate", "100"``.
    seconds
        How long to wait for the first line of output.

    Attributes
    ----------
    address : str
        Such as ``"http://127.0.0.1:40123"``. The service listens there, but may still be recovering.
    pid : int
        Id of the process.

    Raises
    ------
    ServiceError
        If the process ended, or printed nothing in time; the message contains its standard error.

    Examples
    --------
    >>> service = Service("windvane.db")                                                           # doctest: +SKIP
    >>> with Client(service.address) as client:                                                    # doctest: +SKIP
    ...     client.ready(wait=30)
    True
    >>> service.stop()                                                                             # doctest: +SKIP
    0
    """

    def __init__(self, store: str | os.PathLike[str], *options: str, seconds: float = START_SECONDS) -> None:
        command = [sys.executable, "-m", "windvane.cli", "serve", "--store", os.fspath(store), "--port", "0", "--json"]
        command += ["--log-level", "warning"]
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by _wait
        self._process = subprocess.Popen(
            [*command, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        watchdog = threading.Timer(seconds, self._process.kill)  # ends the read below on every platform
        watchdog.start()
        try:
            self.address: str = json.loads(self._process.stdout.readline())["address"]
        except BaseException as error:
            self._process.kill()
            self._wait()
            if not isinstance(error, ValueError | KeyError | TypeError):
                raise
            raise ServiceError(f"the service did not start: {self.errors or 'no address was printed'}") from None
        finally:
            watchdog.cancel()

    def kill(self) -> None:
        """Kill the process (SIGKILL), and wait until it has ended."""
        self._process.kill()
        self._wait()

    def stop(self) -> int:
        """Ask the process to end (SIGTERM), and return its exit code, which is 0 after a clean stop."""
        self._process.terminate()
        return self._wait()

    def _wait(self) -> int:
        if not self._stderr.closed:
            try:
                self._process.communicate(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.communicate()
            self._stderr.seek(0)
            self.errors = self._stderr.read().decode(errors="replace").strip()
            self._stderr.close()
        return self._process.returncode

    errors: str = ""
    """What the process wrote to standard error; known once it has ended."""


@contextlib.contextmanager
def serve(store: str | os.PathLike[str] | None = None, *options: str, **client: Any) -> Iterator[Client]:
    """Start a service, yield a client of it, and stop it.

    Parameters
    ----------
    store
        File of the store. Default: a file in a temporary folder, removed at the end.
    *options
        More options of ``windvane serve``.
    **client
        Arguments of :class:`windvane.Client`, such as ``timeout``.

    Yields
    ------
    Client
        A client of a service that is ready. Its ``url`` is the address for other clients.

    Examples
    --------
    >>> import windvane.testing
    >>> with windvane.testing.serve() as client:                                                   # doctest: +SKIP
    ...     client.create("homepage", dim=2).counts.decisions
    0

    As a pytest fixture, with one service for all tests:

    >>> import pytest
    >>> @pytest.fixture(scope="session")
    ... def windvane_client():
    ...     with windvane.testing.serve() as client:
    ...         yield client
    """
    with tempfile.TemporaryDirectory(prefix="windvane-") as folder:
        service = Service(Path(folder, "windvane.db") if store is None else store, *options)
        try:
            with Client(service.address, **client) as ready:
                if not ready.ready(wait=START_SECONDS):
                    raise ClientError(None, "unreachable", "the service started but did not become ready")
                yield ready
        finally:
            service.stop()
