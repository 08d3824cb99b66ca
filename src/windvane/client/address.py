"""Where the service is: its address, the requests to it, and the proxy and the certificates on the way."""

from __future__ import annotations

import ipaddress
import ssl
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import httpcore2

from windvane.errors import ArgumentError

Headers = list[tuple[bytes, bytes]]
PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")


def split_urls(url: str | Iterable[str]) -> list[str]:
    """Return each address once, of one string with commas or of several strings.

    Examples
    --------
    >>> split_urls("http://a:8000, http://b:8000/")
    ['http://a:8000', 'http://b:8000']
    """
    texts = [url] if isinstance(url, str) else url
    return list(dict.fromkeys(part.strip().rstrip("/") for text in texts for part in text.split(",")))


class Request(NamedTuple):
    """What is sent."""

    method: bytes
    target: bytes
    headers: Headers
    body: bytes


class Address:
    """Where the service is, and what all requests to it share.

    Parameters
    ----------
    url, headers
        The address, and the headers of each request.
    timeout, connect_timeout
        Seconds for each step of a request, and for the connection; by default the same.
    uses_proxy
        Whether requests go through the proxy of the environment.
    build_more
        Called for each request: returns more headers of it.

    Raises
    ------
    ValueError
        If ``url`` is not an address of http or https, or has a user, query or fragment.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        timeout: float,
        connect_timeout: float | None = None,
        *,
        uses_proxy: bool = True,
        build_more: Callable[[], Headers] | None = None,
    ) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or set("@?#") & set(url):
            raise ValueError(url)
        if not url.isprintable() or set(" ,") & set(url) or not parts.path.isascii():
            raise ValueError(url)
        self.url, self.timeout, self._uses_proxy = url.rstrip("/"), timeout, uses_proxy
        self._build_more = build_more
        self.connect_timeout = timeout if connect_timeout is None else connect_timeout
        self.scheme, self.host = parts.scheme, parts.hostname.encode("idna").decode()
        usual = {"http": 80, "https": 443}[self.scheme]
        self._given_port, self.port = parts.port, parts.port or usual
        host = f"[{self.host}]" if ":" in self.host else self.host
        shared = {"Host": host if self.port == usual else f"{host}:{self.port}", **headers}
        self._headers = [(name.encode(), value.encode()) for name, value in shared.items()]
        self.prefix = parts.path.rstrip("/")

    def build_request(self, method: str, path: str, body: bytes | None = None, key: str | None = None) -> Request:
        """Return a request; ``key`` is its Idempotency-Key."""
        headers = self._headers.copy()
        if self._build_more is not None:
            headers += self._build_more()
        if key is not None:
            headers.append((b"Idempotency-Key", key.encode()))
        if body is not None:
            headers.append((b"Content-Length", b"%d" % len(body)))
        return Request(method.encode(), f"{self.prefix}{path}".encode(), headers, body or b"")

    def to_httpcore(self, request: Request) -> httpcore2.Request:
        """Return a request as httpcore2 takes it."""
        url = httpcore2.URL(scheme=self.scheme, host=self.host, port=self._given_port, target=request.target)
        timeouts = {**dict.fromkeys(("read", "write", "pool"), self.timeout), "connect": self.connect_timeout}
        return httpcore2.Request(
            request.method, url, headers=request.headers, content=request.body, extensions={"timeout": timeouts}
        )

    def load_certificates(self) -> ssl.SSLContext | None:
        """Return the certificates that are trusted; they are needed for https only, and take 60 ms."""
        return httpcore2.default_ssl_context() if self.scheme == "https" else None

    def find_proxy(self) -> httpcore2.Proxy | None:
        """Return the proxy of the environment; an address of this machine has none."""
        if not self._uses_proxy or self._is_loopback() or urllib.request.proxy_bypass(self.host):
            return None
        proxies = urllib.request.getproxies()
        name = self.scheme if proxies.get(self.scheme) else "all"
        if not (proxy := proxies.get(name)):
            return None
        try:
            return _read_proxy(proxy if "://" in proxy else f"http://{proxy}")
        except (ValueError, TypeError):  # the text of the error may have a part of the password
            expected = "the address of a proxy, such as http://proxy:3128, with special characters percent-encoded"
            raise ArgumentError(f"{name.upper()}_PROXY", None, expected, got="another value") from None

    def _is_loopback(self) -> bool:
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def _read_proxy(url: str) -> httpcore2.Proxy:
    """Return the proxy at an address. Raise ValueError or TypeError if the address is not valid."""
    parts = urllib.parse.urlsplit(url)
    netloc = parts.netloc.rpartition("@")[2]
    where = parts._replace(netloc=netloc).geturl()
    # A password with a slash is parsed as a port and a path.
    if parts.scheme not in PROXY_SCHEMES or not parts.hostname or parts.port == 0 or "@" in where:
        raise ValueError
    user, password = (urllib.parse.unquote(text or "") for text in (parts.username, parts.password))
    return httpcore2.Proxy(where, auth=(user, password) if parts.username else None)
