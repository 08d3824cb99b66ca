"""Convert the log of a stream to that of its copy in another store, where its id may be another one."""

from __future__ import annotations

from collections.abc import Iterator

from windvane.service.store import (
    Baseline,
    Event,
    ReadableStore,
    Snapshot,
    StreamRow,
    UnreadableEventError,
    check_event,
)


class LogCopy:
    """Converts the log of the stream ``row`` to that of the stream ``copy``, which may have another id."""

    def __init__(self, source: ReadableStore, row: StreamRow, copy: StreamRow, baseline: Baseline | None) -> None:
        self._source, self._row, self._copy, self._baseline = source, row, copy, baseline
        # If events were removed, the chain continues with a value that cannot, and need not, be computed again.
        self._start = (row.digest, copy.digest)
        if baseline is not None and baseline.removed > 0:
            self._start = (baseline.removed_chain, baseline.removed_chain)
        self._chains: dict[int, bytes] = {}  # by number of an event with a snapshot or baseline: its new value

    def read_events(self, snapshot: Snapshot | None = None) -> Iterator[Event]:
        """Yield the events of the copy. Check the originals first: new checksums would hide their damage."""
        old, new = self._start
        states = [state for state in (snapshot, self._baseline and self._baseline.snapshot) if state is not None]
        numbers = {state.number for state in states}
        self._chains[self._baseline.removed if self._baseline else 0] = new
        for event in self._source.read_events(self._row.id):
            check_event(old, event)
            copy = event if self._copy == self._row else event.copy_to(self._copy.id, new)
            old, new = event.chain, copy.chain
            if event.number in numbers:
                self._chains[event.number] = new
            yield copy

    def convert_states(self, snapshot: Snapshot | None) -> tuple[Snapshot | None, Baseline | None]:
        """Return the snapshot and the baseline of the copy. Its events must have been read before."""
        return None if snapshot is None else self._convert(snapshot), self._convert_baseline()

    def _convert_baseline(self) -> Baseline | None:
        if self._baseline is None:
            return None
        snapshot = self._convert(self._baseline.snapshot)
        chain = self._start[1] if self._baseline.removed_chain == self._start[0] else self._baseline.removed_chain
        return self._baseline._replace(snapshot=snapshot, removed_chain=chain)

    def _convert(self, snapshot: Snapshot) -> Snapshot:
        if snapshot.number not in self._chains:
            raise UnreadableEventError(snapshot.number, "is missing")
        return snapshot._replace(chain=self._chains[snapshot.number])
