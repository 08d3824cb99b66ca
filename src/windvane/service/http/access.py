"""Access control: bearer tokens, of which only hashes are stored, and a rate limit per client."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import logging
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

from fastapi.security.utils import get_authorization_scheme_param

from windvane.service.problems import Problem
from windvane.service.readiness import refuse_read
from windvane.service.store import METRICS_ONLY, STORE_ERRORS, Token, TokenStore

PREFIX = "wv_"
RELOAD = 1.0  # seconds until a running server notices an added or removed token
READ_SECONDS = 3.0  # that reading the tokens may take; a disk that answers takes 0.1 ms
BURST = 2.0  # seconds' worth of requests that may arrive at once
MAX_DEBT = 30.0  # seconds that a large batch may delay the next request
MAX_CLIENTS = 10_000
RIGHTS = {"full": ("full",), "read": ("full", "read"), "metrics": ("full", "read", "metrics")}
"""The rights of tokens that suffice, by those that a request needs."""

log = logging.getLogger("windvane.service")


def create_token(tokens: TokenStore, name: str, *, full: bool, metrics_only: bool = False) -> str | None:
    """Add a token and return it; only its hash is stored. None: the name is in use."""
    secret = PREFIX + secrets.token_urlsafe(32)
    stored = METRICS_ONLY + hash_token(secret) if metrics_only else hash_token(secret)
    return secret if tokens.add(Token(name, stored, full and not metrics_only, time.time())) else None


def hash_token(secret: str) -> str:
    """Return the SHA-256 of a token, which is long and random and needs no salt."""
    return hashlib.sha256(secret.encode()).hexdigest()


def name_client(token: Token | None, address: str) -> str:
    """Return the client whose requests are counted together: those with a token, or from an address."""
    return f"address {address}" if token is None else f"token {token.name}"


class RateLimiter:
    """A token bucket for each of the last :data:`MAX_CLIENTS` clients.

    The package ``limits`` was tried: it never admits a batch that is larger than the limit, does not bound the number
    of clients in memory, and takes 2.4 to 5.6 µs of processor time a request against 0.5 µs.
    """

    def __init__(self, rate: float) -> None:
        self._rate, self._most = rate, max(BURST * rate, 1.0)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests left, and as of when

    def admit(self, client: str) -> None:
        """Count a request; raise if there were too many."""
        if self._rate <= 0.0:
            return
        now = time.monotonic()
        left, since = self._buckets.pop(client, (self._most, now))
        left = min(self._most, left + (now - since) * self._rate)
        if len(self._buckets) >= MAX_CLIENTS:
            self._buckets.popitem(last=False)
        self._buckets[client] = left - (left >= 1.0), now
        if left < 1.0:
            wait = math.ceil((1.0 - left) / self._rate)
            detail = f"more than {self._rate:g} requests a second; try again in {wait} s"
            raise Problem("rate-limited", detail, retry_after=wait)

    def charge(self, client: str, requests: int) -> None:
        """Count a request that was admitted as ``requests`` more; the next ones wait for it."""
        if client in self._buckets:
            left, since = self._buckets[client]
            self._buckets[client] = max(left - requests, -MAX_DEBT * self._rate), since


class Access:
    """Authenticate requests.

    Without a token in the store, everyone is admitted, which is for loopback only; with ``closed``, nobody is, except
    through another node, which has admitted the request. Removing the last token does not turn authentication off.
    ``report`` gets errors of the store that may be a sign of damage.
    """

    def __init__(self, store: TokenStore, *, rate: float, closed: bool, report: Callable[[Exception], None]) -> None:
        self._store, self.is_closed, self._report = store, closed, report
        self._limiter = RateLimiter(rate)
        self.charge = self._limiter.charge
        self._tokens: dict[str, Token] = {}
        self._has_tokens = True  # until they are read, nobody is admitted
        self._read = -math.inf
        self._reading: asyncio.Task[None] | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether :meth:`refresh` has nothing to do."""
        return time.monotonic() - self._read < RELOAD

    async def refresh(self, *, may_fail: bool = False) -> None:
        """Read the tokens, unless that was done less than :data:`RELOAD` seconds ago: in a thread, once for all
        requests that come meanwhile.

        ``may_fail``: if the store cannot be read, the tokens that were read last count.
        """
        try:
            await self._refresh()
        except Problem:
            if not may_fail or self._read == -math.inf:
                raise

    async def _refresh(self) -> None:
        if self.is_fresh:
            return
        reading = self.begin_reading()
        done, _ = await asyncio.wait({reading}, timeout=READ_SECONDS)
        if not done:
            raise refuse_read(TimeoutError())
        try:
            reading.result()
        except STORE_ERRORS as error:
            self._report(error)
            raise refuse_read(error) from None

    def begin_reading(self) -> asyncio.Task[None]:
        """Read the tokens in a thread, or return the task that does so already.

        A server begins with it, so that what changes later is logged.
        """
        if self._reading is None or self._reading.done():
            # It is logged which tokens have changed: that has nothing to do with the request that reads them.
            self._reading = asyncio.create_task(self._reload(), context=contextvars.Context())
            self._reading.add_done_callback(lambda done: done.cancelled() or done.exception())  # if nobody waits for it
        return self._reading

    async def _reload(self) -> None:
        now = time.monotonic()
        stored, has_tokens = await asyncio.to_thread(self._read_store)
        tokens = {token.hash: token for token in stored}
        if self._read > -math.inf:
            self._log_changes(tokens, has_tokens)
        self._tokens, self._has_tokens, self._read = tokens, has_tokens, now

    def _read_store(self) -> tuple[list[Token], bool]:
        return self._store.read(), self._store.are_required

    def needs_token(self, *, is_forwarded: bool = False) -> bool:
        """Return whether a token is needed, as of the last :meth:`refresh`."""
        return self._has_tokens or (self.is_closed and not is_forwarded)

    @property
    def is_locked(self) -> bool:
        """Whether nobody is admitted, because other machines can reach this one and there is no token."""
        return self.is_closed and not self._has_tokens

    def _log_changes(self, tokens: dict[str, Token], has_tokens: bool) -> None:
        """Log which tokens came and went since they were read last, and whether requests need one now."""
        for change, one, other in (("added", tokens, self._tokens), ("removed", self._tokens, tokens)):
            if names := [one[key].name for key in one if key not in other]:
                log.info("tokens were %s", change, extra={"fields": {"tokens": sorted(names)}})
        if has_tokens != self._has_tokens:
            log.info("authentication was turned %s", "on" if has_tokens else "off")

    def authenticate(self, authorization: str | None, address: str, *, is_forwarded: bool = False) -> Token | None:
        """Return the token of a request, None if it needs none, or raise."""
        if not self.needs_token(is_forwarded=is_forwarded):
            return None
        try:
            return self._find_token(authorization)
        except Problem:
            self._limiter.admit(name_client(None, address))  # guessing tokens is limited too
            raise

    def admit(self, token: Token | None, address: str, *, needs: str, is_forwarded: bool = False) -> str:
        """Return the client, for :attr:`charge`, or raise if it may not make the request now.

        ``needs``: the rights that the request needs: "full", "read" or "metrics". ``is_forwarded``: whether another
        node sends it, which has counted it for the rate limit.
        """
        client = name_client(token, address)
        if not is_forwarded:
            self._limiter.admit(client)
        if token is not None and token.rights not in RIGHTS[needs]:
            if token.rights == "metrics":
                raise Problem("metrics-token", f"token {token.name!r} may only read /metrics")
            raise Problem("read-only-token", f"token {token.name!r} is read-only")
        return client

    async def is_valid(self, authorization: str | None, *, is_forwarded: bool = False) -> bool:
        """Return whether a request that was admitted to read would still be admitted."""
        try:
            await self.refresh()
            return not self.needs_token(is_forwarded=is_forwarded) or bool(self._find_token(authorization))
        except Problem:
            return False

    def _find_token(self, authorization: str | None) -> Token:
        scheme, secret = get_authorization_scheme_param(authorization)
        if scheme.lower() != "bearer" or not secret.strip():
            raise Problem("no-token", 'send the header "Authorization: Bearer TOKEN"')
        hashed = hash_token(secret.strip())
        token = self._tokens.get(hashed) or self._tokens.get(METRICS_ONLY + hashed)
        if token is None:
            raise Problem("wrong-token", "this token is unknown")
        return token
