"""Who may do what: bearer tokens, of which only hashes are stored, and a limit on requests per client."""

from __future__ import annotations

import hashlib
import math
import secrets
import sqlite3
import time
from collections.abc import Callable
from typing import NamedTuple

from windvane.service.errors import ServiceError, unavailable
from windvane.service.store import Store, Token

PREFIX = "wv_"
RELOAD = 1.0  # seconds: how long a new or removed token may take to be known
MOST_CLIENTS = 10_000
MOST_DEBT = 30.0  # seconds that a large batch may make the next request wait


def new_token(store: Store, name: str, *, full: bool) -> str | None:
    """A new token, told this once; None if there is one of this name."""
    secret = PREFIX + secrets.token_urlsafe(32)
    return secret if store.add_token(Token(name, hashed(secret), full, time.time())) else None


def hashed(secret: str) -> str:
    """Tokens are long and random, so a plain hash cannot be turned back."""
    return hashlib.sha256(secret.encode()).hexdigest()


class _Bucket(NamedTuple):
    left: float
    at: float


class Access:
    """Checks requests. Where no token was ever added to the store everything is allowed, which is for loopback only;
    or, if ``closed``, nothing is. Who removes the last token does not open the doors."""

    def __init__(
        self,
        store: Store,
        *,
        rate: float = 0.0,
        closed: bool = False,
        report: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        """``report`` is called with an error of the store that may be a sign of damage."""
        self._store, self._rate, self._closed, self._report = store, rate, closed, report
        self._tokens: dict[str, Token] = {}
        self._guarded = False
        self._read = -RELOAD
        self._buckets: dict[str, _Bucket] = {}

    @property
    def guarded(self) -> bool:
        """Whether a token is needed."""
        return self._closed or self._guarded

    def check(self, authorization: str | None, client: str, *, changes: bool) -> str:
        """Whose request it is: a token's name, or the ``client`` address where none is needed. ``changes``: whether it
        needs a token with full rights. Raises what the client is told."""
        self._reload()
        who = client
        if self.guarded:
            try:
                token = self._known(authorization)
            except ServiceError:
                self._count(f"address {client}")  # guessing has its limit too
                raise
            if changes and not token.full:
                raise ServiceError(403, "read_only", f"token {token.name!r}: may only read")
            who = f"token {token.name}"
        self._count(who)
        return who

    def allows(self, authorization: str | None) -> bool:
        """Whether who was let in to read would still be: tokens come and go."""
        try:
            self._reload()
            if self.guarded:
                self._known(authorization)
        except ServiceError:
            return False
        return True

    def _count(self, who: str) -> None:
        if self._rate > 0.0 and not self._let_in(who):
            wait = math.ceil((1.0 - self._buckets[who].left) / self._rate)
            text = f"more than {self._rate:g} requests a second; try again in {wait} s"
            raise ServiceError(429, "too_many", text, wait=wait)

    def charge(self, who: str, requests: int) -> None:
        """What was let in as one request is worth some more; the next ones wait for it."""
        if self._rate > 0.0 and who in self._buckets:
            left, at = self._buckets[who]
            self._buckets[who] = _Bucket(max(left - requests, -MOST_DEBT * self._rate), at)

    def _known(self, authorization: str | None) -> Token:
        scheme, _, secret = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not secret:
            raise ServiceError(401, "no_token", 'a token is needed: the header "Authorization: Bearer TOKEN"')
        digest = hashed(secret.strip())
        for known, token in self._tokens.items():
            if secrets.compare_digest(known, digest):
                return token
        raise ServiceError(401, "wrong_token", "this token is not known")

    def _reload(self) -> None:
        """Tokens may be added and removed beside the running server."""
        now = time.monotonic()
        if now - self._read >= RELOAD:
            try:
                self._tokens = {token.hash: token for token in self._store.read_tokens()}
                self._guarded = self._store.requires_token
            except sqlite3.Error as error:
                self._report(error)
                raise unavailable(f"the store cannot be read ({error})") from None
            self._read = now

    def _let_in(self, who: str) -> bool:
        """A bucket that fills at the allowed rate and holds two seconds of it."""
        now, most = time.monotonic(), max(2.0 * self._rate, 1.0)
        bucket = self._buckets.get(who, _Bucket(most, now))
        left = min(most, bucket.left + (now - bucket.at) * self._rate)
        self._buckets.pop(who, None)
        if len(self._buckets) >= MOST_CLIENTS:
            self._buckets.pop(next(iter(self._buckets)))  # who has not asked for longest
        self._buckets[who] = _Bucket(left - 1.0 if left >= 1.0 else left, now)
        return left >= 1.0
