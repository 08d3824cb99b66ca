"""Stores that erase, against a plain model of what is in them: whatever is done in whichever order."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import given, settings

from support.erasing import make_baseline, make_events, read_bytes
from windvane.service.store import Baseline, Erasure, Event, Snapshot, StreamRow, open_store

NAMES = ("a", "b", "c")


@dataclass
class Model:
    """What a stream has: all events that it ever had, and what of them was erased."""

    row: StreamRow
    events: list[Event] = field(default_factory=list)
    erased: set[int] = field(default_factory=set)
    baseline: Baseline | None = None
    snapshot: Snapshot | None = None

    @property
    def removed(self) -> int:
        return 0 if self.baseline is None else self.baseline.removed

    def list_events(self) -> list[Event]:
        """Return the events as they are read."""
        left = self.events[self.removed :]
        return [event._replace(request=None, salt=None) if event.number in self.erased else event for event in left]


class Machine:
    """A store and the models of its streams; every step changes both."""

    def __init__(self, place: str | Path) -> None:
        self.place, self.store = place, open_store(place)
        self.models: dict[str, Model] = {}
        self.gone: list[Model] = []

    def find(self, name: str) -> Model:
        if name not in self.models:
            row = self.store.add_stream(name, 1.0, "{}")
            assert row is not None
            assert row.id > max((model.row.id for model in [*self.models.values(), *self.gone]), default=0)
            self.models[name] = Model(row)
        return self.models[name]

    def append(self, name: str, count: int, size: int) -> None:
        model = self.find(name)
        new = make_events(model.row, count, size, model.events[-1] if model.events else None)
        model.events += new
        self.store.append(new)

    def save(self, name: str) -> None:
        model = self.find(name)
        if model.events:
            last = model.events[-1]
            model.snapshot = Snapshot(last.number, last.chain, f"agent {last.number}".encode() * 50, b"{}")
            self.store.append([], [(model.row.id, model.snapshot)])

    def erase(self, name: str, share: float, requests: list[float]) -> None:
        """Remove a share of the log, and erase the requests at these shares of it, with new events in one call."""
        model = self.find(name)
        if not model.events:
            return
        last = len(model.events)
        model.baseline = make_baseline(model.events, last, max(round(share * last), model.removed))
        numbers = tuple({1 + round(place * (last - 1)) for place in requests})
        model.erased |= set(numbers)
        if model.snapshot is not None and model.snapshot.number < last:
            model.snapshot = None
        new = make_events(model.row, 1, after=model.events[-1])
        model.events += new
        self.store.append(new, erasures=[Erasure(model.row.id, model.baseline, numbers)])

    def remove(self, name: str) -> None:
        if name in self.models:
            self.gone.append(self.models.pop(name))
            self.store.remove_stream(self.gone[-1].row)

    def reopen(self) -> None:
        self.store.close()
        self.store = open_store(self.place)

    def check(self) -> None:
        """Compare everything that is read with the models, and search the store for what must be gone."""
        store, content = self.store, read_bytes(self.place)
        assert {row.name: row.id for row in store.read_streams()} == {n: m.row.id for n, m in self.models.items()}
        for model in self.models.values():
            id_, left = model.row.id, model.list_events()
            assert list(store.read_events(id_)) == left
            assert store.last_number(id_) == len(model.events)
            assert (store.read_baseline(id_), store.read_snapshot(id_)) == (model.baseline, model.snapshot)
            assert store.read_chain(id_, 0) == model.row.digest
            for number in range(max(model.removed, 1), len(model.events) + 1):
                assert store.read_chain(id_, number) == model.events[number - 1].chain
            for event in model.events:
                kept = [each for each in left if each.number == event.number]
                assert store.find_events(decisions=[(id_, event.decision or "")]) == kept
                assert store.find_events([(id_, event.key or "")]) == kept[:1]
                is_there = bool(kept) and kept[0].request is not None
                assert (self.name_request(event) in content) == is_there
        for model in self.gone:
            assert list(store.read_events(model.row.id)) == []
            assert not any(self.name_request(event) in content for event in model.events)

    def name_request(self, event: Event) -> bytes:
        """Return the part of a request that names it."""
        request = event.request or b""
        return request[: request.rindex(b"-") + 1][-(len(request) // request.count(b"request")) :]


name = st.sampled_from(NAMES)
shares = st.floats(0.0, 1.0)
steps = st.one_of(
    st.tuples(st.just("append"), name, st.integers(1, 40), st.sampled_from([0, 30, 900, 6000])),
    st.tuples(st.just("erase"), name, shares, st.lists(shares, max_size=4)),
    st.tuples(st.just("save"), name),
    st.tuples(st.just("remove"), name),
    st.tuples(st.just("reopen")),
)


EXAMPLES = {"sqlite": 60, "postgres": 20}


def test_a_store_has_what_was_not_erased_and_nothing_else(place: str | Path) -> None:
    @settings(max_examples=EXAMPLES["sqlite" if isinstance(place, Path) else "postgres"])
    @given(st.lists(steps, min_size=3, max_size=14))
    def check_sequence(sequence: list[tuple[str, ...]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            check_steps(place if isinstance(place, str) else Path(folder) / "a.db", sequence)

    check_sequence()


def check_steps(place: str | Path, sequence: list[tuple[str, ...]]) -> None:
    machine = Machine(place)
    try:
        for step, *arguments in sequence:
            getattr(machine, step)(*arguments)
        machine.check()
        machine.reopen()
        machine.check()
        assert machine.store.find_damage() == []
    finally:
        for name in list(machine.models):  # the next example uses the same database
            machine.remove(name)
        machine.store.close()
