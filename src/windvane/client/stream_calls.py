"""The calls of the client that are about whole streams."""

from __future__ import annotations

import time
from types import NoneType
from typing import Any

from windvane.arguments import check_not_negative
from windvane.client import messages
from windvane.client.connection import FIRST_PAUSE, Connection, check_answer
from windvane.client.messages import ClientError, build_path, check_key, encode
from windvane.cluster_map import ClusterInfo
from windvane.records import RefitReport, StreamInfo, StreamSummary
from windvane.service_records import Compaction, StreamPage, UnavailableStream


class StreamCalls(Connection):
    """Create, read, change and delete streams."""

    async def ready(self, wait: float = 0.0) -> bool:
        """Return whether the service is ready, at one of its addresses; ask repeatedly for up to ``wait`` seconds."""
        end = time.monotonic() + check_not_negative("wait", wait)
        while True:
            for address in self._router.list_given():
                try:
                    check_answer(await self._exchange(address, "GET", "/readyz"))
                    return True
                except ClientError as error:
                    if not error.is_temporary:
                        raise
            if time.monotonic() >= end:
                return False
            await self._pause(FIRST_PAUSE)

    async def create(self, /, name: str, **settings: Any) -> StreamInfo:
        """Create a stream.

        Parameters
        ----------
        name
            Name of the stream. If it exists, the error has the code ``"stream-exists"``; if an earlier attempt may have
            created the stream, because it got no answer or the service failed during it, ``is_unsure`` is also true.
        **settings
            ``title``, ``retention`` (how long events are kept, such as ``"90d"``; default: forever) and the arguments
            of :class:`windvane.Agent`; the policy's own settings in a dict ``settings``.

        Examples
        --------
        >>> client.create("homepage", dim=2, reward_timeout="1h", default_reward=0.0)              # doctest: +SKIP
        """
        body, stream = encode({"name": name, **settings}), name if messages.is_name(name) else None
        return await self._send(StreamInfo, "POST", messages.STREAMS, body, stream=stream)

    async def ensure(self, /, name: str, **settings: Any) -> StreamInfo:
        """Create a stream unless it exists with the same settings. Call it when a program starts.

        Parameters
        ----------
        name, **settings
            As in :meth:`create`. Settings are compared by meaning, including defaults: ``"1h"`` equals ``"60m"``.
            ``seed``, ``title`` and ``retention`` are compared only if you pass them.

        Raises
        ------
        ClientError
            With the code ``"settings-differ"`` if the settings differ, in which case ``pointers`` names them;
            ``"archived"`` if the stream is archived.

        Examples
        --------
        >>> client.ensure("homepage", dim=2, reward_timeout="1h", default_reward=0.0)              # doctest: +SKIP
        """
        return await self._send(StreamInfo, "PUT", build_path(name), encode(settings), stream=name)

    async def streams(self) -> list[StreamSummary]:
        """Return all streams, including archived ones, except those that the service could not recover."""
        return [stream async for page in self._pages(StreamPage, messages.STREAMS) for stream in page.streams]

    async def cluster(self) -> ClusterInfo:
        """Return the nodes of the cluster and the shards of streams that each owns.

        Returns
        -------
        ClusterInfo
            The map as the node that answers sees it. A service on a file is no cluster: it has no nodes and 0 shards.

        Examples
        --------
        >>> [(node.name, node.url, len(node.shards)) for node in client.cluster().nodes]           # doctest: +SKIP
        [('a', 'http://10.0.0.1:8000', 32), ('b', 'http://10.0.0.2:8000', 32)]
        """
        return await self._send(ClusterInfo, "GET", messages.CLUSTER)

    async def unrecovered(self) -> list[UnavailableStream]:
        """Return the streams that the service could not recover, and why. Calls about them raise ``"unrecovered"``."""
        return (await self._send(StreamPage, "GET", f"{messages.STREAMS}?limit=1")).unavailable

    async def info(self, stream: str) -> StreamInfo:
        """Return a stream's counts, estimate, memory, drift, alerts and settings."""
        return await self._send(StreamInfo, "GET", build_path(stream), stream=stream)

    async def configure(self, /, stream: str, **changes: Any) -> StreamInfo:
        """Change the ``title``, the ``retention``, or what :meth:`windvane.Agent.configure` changes.

        ``features`` is a complete new declaration.
        """
        return await self._send(StreamInfo, "PATCH", build_path(stream), encode(changes, keep_none=True), stream=stream)

    async def refit(
        self, /, stream: str, *, dry_run: bool = False, key: str | None = None, **settings: Any
    ) -> RefitReport:
        """Learn the log of a stream again with new settings, and replace its model.

        Parameters
        ----------
        stream, dry_run, key
            The stream; whether only to compare the models; an idempotency key, as in :meth:`decide`.
        **settings
            The settings to change, as in :meth:`create`.

        Examples
        --------
        >>> client.refit("homepage", half_life="14d", dry_run=True).comparison.new.log_loss        # doctest: +SKIP
        0.61
        """
        path, body = build_path(stream, "refit") + "?dry_run=true" * dry_run, encode(settings, keep_none=True)
        return await self._send(RefitReport, "POST", path, body, check_key(key), stream=stream)

    async def undo_refit(self, stream: str, *, key: str | None = None) -> StreamInfo:
        """Undo the last refit: restore the model from before it, which learns the events since then."""
        return await self._send(
            StreamInfo, "POST", build_path(stream, "refit", "undo"), None, check_key(key), stream=stream
        )

    async def archive(self, stream: str) -> StreamInfo:
        """Archive a stream: it can still be read, but no longer decides or learns."""
        return await self._send(StreamInfo, "POST", build_path(stream, "archive"), stream=stream)

    async def unarchive(self, stream: str) -> StreamInfo:
        """Let an archived stream decide and learn again. Decisions whose timeout has passed meanwhile are closed."""
        return await self._send(StreamInfo, "POST", build_path(stream, "unarchive"), stream=stream)

    async def compact(self, stream: str) -> Compaction:
        """Remove the events that are older than the ``retention`` of a stream; what was learned from them stays.

        The service does this by itself, at the latest an hour after the retention has passed. A large log takes long:
        set the client's ``timeout`` accordingly, or repeat the call, which continues.

        Examples
        --------
        >>> client.compact("homepage").removed                                                     # doctest: +SKIP
        1200
        """
        return await self._send(Compaction, "POST", build_path(stream, "compact"), stream=stream)

    async def delete_stream(self, stream: str) -> None:
        """Delete a stream with all of its data. This cannot be undone.

        If an attempt got no answer, or the service failed during it, and the next one finds no stream with this name,
        the stream counts as deleted.

        Raises
        ------
        ClientError
            With the code ``"unknown-stream"`` if there is no such stream.
        """
        try:
            await self._send(NoneType, "DELETE", build_path(stream), stream=stream)
        except ClientError as error:
            if error.code != "unknown-stream" or not error.is_unsure:
                raise
