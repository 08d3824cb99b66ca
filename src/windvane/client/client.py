"""AsyncClient: a Python client of the decision service, with retries that never count anything twice.

Every method is written once, as a coroutine, here or in ``stream_calls.py``. ``blocking.py`` runs the same coroutines
for blocking code.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from windvane.arguments import check_whole
from windvane.client import messages
from windvane.client.history import locate_error, read_columns, split_history
from windvane.client.messages import ClientError, build_path, check_key, check_value, encode, encode_offer
from windvane.client.stream_calls import StreamCalls
from windvane.client.transport import AsyncNetwork
from windvane.records import (
    Decision,
    DecisionRecord,
    Explanation,
    Name,
    Prediction,
    Predictions,
    RewardReceipt,
    RewardStatus,
)
from windvane.service_records import ErasedContext, LearnedRows, PendingPage


class AsyncClient(StreamCalls):
    """A client of the decision service for asynchronous code.

    Parameters and methods are those of :class:`windvane.Client`: write ``await``, ``async with`` and ``async for``.
    Each event loop has its own connections, so a client can be used in several loops, one after another or in threads.
    Close it in each of them.

    Examples
    --------
    >>> async def choose():                                                                        # doctest: +SKIP
    ...     async with AsyncClient() as client:
    ...         decision = await client.decide("homepage", {"red": [0.6, 0.1], "blue": [0.2, 0.7]})
    ...         await client.reward("homepage", decision, 1.0)
    """

    _network_class = AsyncNetwork

    def _get_runtime(self) -> tuple[int, asyncio.AbstractEventLoop]:
        return os.getpid(), asyncio.get_running_loop()

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections of the running event loop. A later call opens one again."""
        await self._close()

    # --- decisions and rewards ---

    async def decide(
        self, stream: str, arms: Any = None, *, context: Mapping[str, Any] | None = None, key: str | None = None
    ) -> Decision:
        """Choose one of ``arms``.

        Parameters
        ----------
        stream, arms, context
            As in :meth:`windvane.Agent.decide`: vectors by name, a list or an array of vectors; with declared features
            the names of arms or their fields by name, and the ``context``.
        key
            Your own idempotency key, to repeat the call after a crash: 1 to 200 printable ASCII characters, without
            a space at either end. Default: a random one for each call.

        Examples
        --------
        >>> client.decide("homepage", {"red": [0.6, 0.1], "blue": [0.2, 0.7]}).arm                 # doctest: +SKIP
        'blue'
        """
        body = encode_offer(arms, context)
        return await self._send(Decision, "POST", build_path(stream, "decisions"), body, check_key(key), stream=stream)

    async def predict(
        self, stream: str, arms: Any = None, *, context: Mapping[str, Any] | None = None
    ) -> dict[Name, Prediction]:
        """Return the prediction and bonus of each arm by name, without deciding. Arguments are those of :meth:`decide`.

        Examples
        --------
        >>> client.predict("homepage", {"red": [0.6, 0.1], "blue": [0.2, 0.7]})["red"].prediction  # doctest: +SKIP
        0.5
        """
        body = encode_offer(arms, context)
        answer = await self._send(Predictions, "POST", build_path(stream, "predict"), body, stream=stream)
        return {each.arm: each for each in answer.arms}

    async def rank(
        self, stream: str, arms: Any = None, *, context: Mapping[str, Any] | None = None
    ) -> list[Prediction]:
        """Return the result of :meth:`predict` as a list, most preferred arm first, as in :meth:`windvane.Agent.rank`.

        Examples
        --------
        >>> [each.arm for each in client.rank("homepage", {"red": [0.6, 0.1], "blue": [0.2, 0.7]})]  # doctest: +SKIP
        ['blue', 'red']
        """
        body = encode_offer(arms, context)
        return (await self._send(Predictions, "POST", build_path(stream, "rank"), body, stream=stream)).arms

    async def reward(self, stream: str, decision: Decision | str, value: float) -> RewardStatus:
        """Send the reward of a decision. Repeating it changes nothing; another value is rejected (``"conflict"``).

        Returns
        -------
        str
            As :meth:`windvane.Agent.reward`: "recorded" if it is new; "unchanged" if the same reward was recorded
            before; "expired" if it arrived after the timeout and is not learned.

        Examples
        --------
        >>> client.reward("homepage", decision, 1.0)                                               # doctest: +SKIP
        'recorded'
        """
        path = build_path(stream, "decisions", decision, "reward")
        return (
            await self._send(RewardReceipt, "PUT", path, encode({"value": check_value(value)}), stream=stream)
        ).status

    async def add_reward(
        self, stream: str, decision: Decision | str, value: float, *, key: str | None = None
    ) -> RewardStatus:
        """Add a part to the reward of a decision; returns a status as :meth:`reward`. ``key`` as in :meth:`decide`.

        :meth:`decision` returns the sum so far.
        """
        path, body = build_path(stream, "decisions", decision, "rewards"), encode({"value": check_value(value)})
        return (await self._send(RewardReceipt, "POST", path, body, check_key(key), stream=stream)).status

    async def decide_many(
        self, stream: str, arms: Iterable[Any], *, contexts: Iterable[Mapping[str, Any] | None] | None = None
    ) -> list[Decision]:
        """Decide once for each of ``arms``, in order, in as many requests as necessary.

        Raises
        ------
        BatchError
            If an item failed. Its ``results`` hold the decisions and the errors, in order. If a later request fails as
            a whole, its error stands for each of its items.
        ClientError
            If the first request failed as a whole.
        """
        return await self._send_batch(stream, "decisions", messages.encode_offers(arms, contexts), Decision)

    async def reward_many(self, stream: str, rewards: Iterable[tuple[Decision | str, float]]) -> list[RewardStatus]:
        """Send rewards, as pairs of decision and value, in order; return their statuses as :meth:`reward`.

        Errors are those of :meth:`decide_many`.
        """
        return await self._send_batch(stream, "rewards", messages.encode_rewards(rewards), str)

    async def history(
        self,
        stream: str,
        rewards: Any,
        vectors: Any = None,
        *,
        contexts: Any = None,
        arms: Any = None,
        times: Any = None,
        weights: Any = None,
        key: str | None = None,
    ) -> int:
        """Learn past decisions, oldest first. Returns the number of rows.

        Arguments are those of :meth:`windvane.Agent.history`, including pandas and polars frames, ``key`` that of
        :meth:`decide`. ``times`` are datetimes, RFC 3339 strings or seconds since 1970.

        Notes
        -----
        More than 20,000 rows, or 3 MiB, are sent as several requests, in the order of ``times``, each with its own key.
        All rows of a request are learned, or none: an error says how many rows were learned before it.
        ``scaling="fit"`` uses only the rows of the first request.

        Column names are not sent. The first frame of ``vectors`` that this client sends to a stream sets the order of
        the coordinates; later frames are reordered to match.
        """
        path, first = build_path(stream, "history"), self._columns.get(stream)
        columns, order = read_columns(rewards, vectors, contexts, arms, times, weights, first)
        parts, own_key, learned = split_history(columns), check_key(key), 0
        keys = [own_key, *(check_key(f"{own_key}-{number}") for number in range(1, len(parts)))]  # before any is sent
        for part, part_key in zip(parts, keys, strict=True):
            try:
                learned += (await self._send(LearnedRows, "POST", path, part.body, part_key, stream=stream)).rows
            except ClientError as error:
                raise locate_error(error, part, learned) from None
        if order is not None:
            self._columns[stream] = order
        return learned

    # --- what was decided ---

    async def decision(self, stream: str, decision: Decision | str) -> DecisionRecord:
        """Return a decision with its status and reward."""
        return await self._send(DecisionRecord, "GET", build_path(stream, "decisions", decision), stream=stream)

    async def explain(self, stream: str, decision: Decision | str) -> Explanation:
        """Return the numbers behind a decision, and a sentence."""
        return await self._send(
            Explanation, "GET", build_path(stream, "decisions", decision, "explanation"), stream=stream
        )

    async def erase_context(self, stream: str, decision: Decision | str) -> ErasedContext:
        """Erase the context and the vectors of a decision; what was learned from it stays.

        A pending decision is dropped: its reward is not learned.

        Examples
        --------
        >>> client.erase_context("homepage", decision).status                                      # doctest: +SKIP
        'rewarded'
        """
        return await self._send(
            ErasedContext, "DELETE", build_path(stream, "decisions", decision, "context"), stream=stream
        )

    async def pending(self, stream: str) -> list[Decision]:
        """Return the decisions whose rewards have not arrived."""
        return [
            decision
            async for page in self._pages(PendingPage, build_path(stream, "pending"), stream)
            for decision in page.decisions
        ]

    def events(self, stream: str, after: int = 0, limit: int | None = None) -> AsyncIterator[dict[str, Any]]:
        """Iterate over the log of a stream, from the event after number ``after``; at most ``limit`` events.

        A transfer that breaks off is resumed after the last event that arrived. Events that were removed because of the
        stream's ``retention`` are left out.

        Examples
        --------
        >>> [event["kind"] for event in client.events("homepage", limit=2)]                        # doctest: +SKIP
        ['decided', 'rewarded']
        """
        most = None if limit is None else check_whole("limit", limit, 1)
        return self._read_events(stream, build_path(stream, "events"), check_whole("after", after, 0), most)
