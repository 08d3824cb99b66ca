"""Client: the decision service as Python objects, with retries that cannot count anything twice."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

from windvane.arguments import check_not_negative, check_number, check_whole
from windvane.client.connection import EXAMPLE, FIRST_PAUSE, Connection, FaultError
from windvane.client.messages import (
    BatchError,
    ClientError,
    Decided,
    Request,
    checked_key,
    decided,
    decision_id,
    encoded,
    entries,
    entry,
    learnt,
    one_reward,
    one_round,
    parts_of,
    path,
    refusal,
    text,
)
from windvane.errors import ArgumentError

_T = TypeVar("_T", bound=Decided | bool)


class Client:
    """The service at ``url``. Safe to use from several threads, and after a fork.

    ``url``: by default $WINDVANE_URL, else http://127.0.0.1:8000; ``token``: by default $WINDVANE_TOKEN, else none.
    ``timeout``: seconds to wait for the server at each step. ``retries``: how often a call is repeated when no answer
    came, or the answer was 429, 502, 503 or 504; after growing pauses, or as long as the server asks for. Decisions,
    rewards and history carry a key, by which the service knows them again: what is repeated counts once.

    >>> client = Client()                                                                          # doctest: +SKIP
    >>> decision = client.decide("homepage", {"red": [0.6, 0.1], "blue": [0.2, 0.7]})              # doctest: +SKIP
    >>> client.reward("homepage", decision, 1.0)                                                   # doctest: +SKIP
    True
    """

    def __init__(
        self, url: str | None = None, token: str | None = None, *, timeout: float = 10.0, retries: int = 5
    ) -> None:
        url = os.environ.get("WINDVANE_URL") or EXAMPLE if url is None else url
        if not isinstance(url, str):
            raise ArgumentError("url", url, f"an address such as {EXAMPLE}")
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "windvane"}
        token = os.environ.get("WINDVANE_TOKEN") if token is None else token
        if token is not None:
            if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token.strip():
                expected = "a text as `windvane token add` prints it"
                raise ArgumentError("token", None, expected, got="another value")  # which may be secret
            headers["Authorization"] = f"Bearer {token.strip()}"
        self.url = url.rstrip("/")
        self._service = Connection(
            self.url,
            headers,
            timeout=check_number("timeout", timeout, "of seconds above 0, at most 1e6", lambda s: 0 < s <= 1e6),
            retries=check_whole("retries", retries, 0, 100),
        )

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections of all threads; a later call opens one again."""
        self._service.close()

    # --- streams ---------------------------------------------------------------------------------------------------

    def ready(self, wait: float = 0.0) -> bool:
        """Whether the service answers; asked again for ``wait`` seconds."""
        until = time.monotonic() + check_not_negative("wait", wait)
        while True:
            try:
                self._service.ask(Request("GET", "/readyz"))
                return True
            except FaultError:
                if time.monotonic() >= until:
                    return False
            time.sleep(FIRST_PAUSE)

    def streams(self) -> list[dict[str, Any]]:
        """All streams, archived ones too."""
        return entries(self._service.call(Request("GET", "/v1/streams")), "streams")

    def create(self, name: str, **settings: Any) -> dict[str, Any]:
        """A new stream; ``settings`` are those of the library's Agent, the policy's own in a dict ``settings``.

        There is one stream of a name: where an answer was lost, the one that is there may be the one asked for.
        """
        body = encoded("settings", {"name": text("name", name), **settings})
        return dict(self._service.call(Request("POST", "/v1/streams", body), creates=name))

    def configure(self, name: str, **changes: Any) -> dict[str, Any]:
        """Change title, wait, missing, max_pending or randomize of a running stream."""
        return dict(self._service.call(Request("PATCH", path(name), encoded("changes", changes))))

    def archive(self, name: str) -> dict[str, Any]:
        """End a stream: it can be read for ever, and decides and learns no more."""
        return dict(self._service.call(Request("POST", path(name, "archive"), b"")))

    def state(self, name: str) -> dict[str, Any]:
        """A stream in full: counts, estimate, memory, drift."""
        return dict(self._service.call(Request("GET", path(name))))

    # --- decisions -------------------------------------------------------------------------------------------------

    def decide(
        self, stream: str, arms: Any = None, context: Mapping[str, Any] | None = None, *, key: str | None = None
    ) -> Decided:
        """Choose one of ``arms``: vectors by name, a list or an array of vectors; with declared features their names,
        or their fields by name, and the ``context``. ``key``: one of your own, to repeat the call after a crash."""
        body = encoded("arms", one_round(arms, context))
        return decided(self._service.call(Request("POST", path(stream, "decide"), body, checked_key(key))))

    def reward(self, stream: str, decision: Decided | str, value: float, *, key: str | None = None) -> bool:
        """The reward of a decision: True if it was learnt now, False if it was known already."""
        body = encoded("value", one_reward(decision, value))
        return learnt(self._service.call(Request("POST", path(stream, "reward"), body, checked_key(key))))

    def decide_many(
        self, stream: str, arms: Iterable[Any], contexts: Iterable[Mapping[str, Any] | None] | None = None
    ) -> list[Decided]:
        """Decide one round for each of ``arms``, in order.

        Raises
        ------
        BatchError
            If an item failed. Its ``results`` hold the decisions that were made and the errors, in order. Many rounds
            go out in several requests; if a later request fails as a whole, its error stands for each of its items.
        ClientError
            If the first request failed as a whole.
        """
        offers = list(arms)
        known = [None] * len(offers) if contexts is None else list(contexts)
        if len(known) != len(offers):
            expected = f"{len(offers)} contexts, one for each of `arms`"
            raise ArgumentError("contexts", contexts, expected, got=str(len(known)))
        items = [one_round(offer, context) for offer, context in zip(offers, known, strict=True)]
        return self._send_batch(path(stream, "decide", "batch"), "arms", items, decided)

    def reward_many(self, stream: str, rewards: Iterable[tuple[Decided | str, float]]) -> list[bool]:
        """Send rewards, pairs of decision and value, in order. For each, what :meth:`reward` returns.

        Raises
        ------
        BatchError
            If an item failed, as for :meth:`decide_many`.
        ClientError
            If the first request failed as a whole.
        """
        items = [one_reward(decision, value) for decision, value in rewards]
        return self._send_batch(path(stream, "reward", "batch"), "rewards", items, learnt)

    def history(
        self,
        stream: str,
        rewards: Any,
        vectors: Any = None,
        *,
        contexts: Sequence[Mapping[str, Any]] | None = None,
        arms: Sequence[Any] | None = None,
        times: Any = None,
        weights: Any = None,
        key: str | None = None,
    ) -> int:
        """Learn decisions of the past, oldest first, all rows or none; returns how many. At most 20,000 a call."""
        rows = {"rewards": rewards, "vectors": vectors, "contexts": contexts, "arms": arms}
        rows |= {"times": times, "weights": weights}
        body = encoded("history", {name: value for name, value in rows.items() if value is not None})
        answer = self._service.call(Request("POST", path(stream, "history"), body, checked_key(key)))
        return int(entry(answer, "learnt", int))

    def _send_batch(
        self, where: str, name: str, items: list[dict[str, Any]], read_answer: Callable[[Any], _T]
    ) -> list[_T]:
        """Send ``items`` in as many requests as it takes; return their answers, or raise what failed."""
        results: list[_T | ClientError] = []
        for part in parts_of([encoded(name, {**item, "key": checked_key(None)}) for item in items]):
            body = b'{"items":[' + b",".join(part) + b"]}"
            try:
                answers = entries(self._service.call(Request("POST", where, body)), "results", len(part))
            except ClientError as error:
                if not results:
                    raise
                results += [error] * len(part)
                continue
            results += [_read_item(answer, read_answer) for answer in answers]
        succeeded = [result for result in results if not isinstance(result, ClientError)]
        if len(succeeded) < len(results):
            raise BatchError(results)
        return succeeded

    # --- what was ----------------------------------------------------------------------------------------------------

    def past(self, stream: str, decision: Decided | str) -> dict[str, Any]:
        """A decision, why it was made, and what became of it."""
        return dict(self._service.call(Request("GET", path(stream, "decisions", decision_id(decision)))))

    def events(self, stream: str, after: int = 0, limit: int | None = None) -> Iterator[dict[str, Any]]:
        """The log of a stream, event by event, from the one after number ``after``; at most ``limit`` of them."""
        first, where = check_whole("after", after, 0), path(stream, "events")
        most = None if limit is None else check_whole("limit", limit, 1)

        def following(last: dict[str, Any] | None) -> str | None:
            seen = first if last is None else int(entry(last, "number", int))
            if most is None:
                return f"{where}?{urlencode({'after': seen})}"
            left = most - (seen - first)  # events are numbered without gaps
            return f"{where}?{urlencode({'after': seen, 'limit': left})}" if left > 0 else None

        return self._service.lines(following)


def _read_item(item: dict[str, Any], read_answer: Callable[[Any], _T]) -> _T | ClientError:
    """Read one entry of a batch's answer; an error is returned, so that the other entries are read as well."""
    try:
        status, answer = entry(item, "status", int), entry(item, "answer")
        return read_answer(answer) if status < 300 else refusal(status, answer)
    except ClientError as error:
        return error
