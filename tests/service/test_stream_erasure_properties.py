"""Whatever is done with a stream, in any order: it equals a replay of its log, it verifies, and what is erased is gone.

A model of the service in a few lines says what must be left.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.erased_shop import DAY, SHOP, erase, has_mark, offer_vectors
from support.server import Local
from support.stores import verify
from windvane.service import stream_erasure

RETENTION_DAYS = 4
STEPS = st.one_of(
    st.tuples(st.just("decide"), st.integers(0, 3)),
    st.tuples(st.just("reward"), st.integers(0, 30)),
    st.tuples(st.just("erase"), st.integers(0, 30)),
    st.tuples(st.just("wait"), st.integers(1, 40)),
    st.tuples(st.sampled_from(["compact", "archive", "unarchive", "refit", "undo", "configure"]), st.integers(0, 3)),
    st.tuples(st.just("restart"), st.integers(0, 1)),
)
PLANS = st.tuples(
    st.sampled_from(["1d", None, 6]),  # reward_timeout
    st.sampled_from([3, 1000]),  # events in a slice
    st.lists(STEPS, min_size=10, max_size=30),
)


@dataclass
class World:
    """A service with a shop, and what is known about its decisions."""

    path: Path
    clock: list[float]
    service: Local
    is_archived: bool = False
    ids: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    erased: set[int] = field(default_factory=set)
    removed_before: float = 0.0

    def is_removed(self, i: int) -> bool:
        return self.times[i] < self.removed_before

    def choose(self, number: int) -> int | None:
        return number % len(self.ids) if self.ids else None

    # --- steps ---

    def decide(self, count: int) -> None:
        for _ in range(count + 1):
            answer = self.service.post(f"{SHOP}/decisions", offer_vectors(len(self.ids)))
            assert answer.status_code == (409 if self.is_archived else 201), answer.text
            if not self.is_archived:
                self.ids.append(answer.json()["id"])
                self.times.append(self.clock[0])
            self.clock[0] += 60.0

    def reward(self, number: int) -> None:
        if (i := self.choose(number)) is not None:
            status = self.service.reward(self.ids[i], 0.5).status_code
            if self.is_archived:
                assert status in (200, 409)
            else:
                assert status == (404 if self.is_removed(i) else 200)

    def erase(self, number: int) -> None:
        if (i := self.choose(number)) is not None:
            answer = erase(self.service, self.ids[i])
            assert answer.status_code == (404 if self.is_removed(i) else 200), answer.text
            self.erased |= set() if self.is_removed(i) else {i}

    def wait(self, hours: int) -> None:
        self.clock[0] += hours * 3600.0

    def compact(self, _: int) -> None:
        assert self.service.post(f"{SHOP}/compact").status_code == 200
        self.removed_before = max(self.removed_before, self.clock[0] - RETENTION_DAYS * DAY)

    def archive(self, _: int) -> None:
        self.service.archive()
        self.is_archived = True

    def unarchive(self, _: int) -> None:
        assert self.service.post(f"{SHOP}/unarchive").status_code == 200
        self.is_archived = False

    def refit(self, number: int) -> None:
        answer = self.service.post(f"{SHOP}/refit", {"gamma": 0.9 + 0.02 * number})
        assert answer.status_code == (409 if self.is_archived else 200), answer.text

    def undo(self, _: int) -> None:
        assert self.service.post(f"{SHOP}/refit/undo").status_code in (200, 409)

    def configure(self, number: int) -> None:
        answer = self.service.patch(SHOP, {"title": f"title {number}", "epsilon": number / 10})
        assert answer.status_code == (409 if self.is_archived else 200)

    def restart(self, is_killed: int) -> None:
        before = self.read_state()
        if is_killed:
            self.service.crash()
        else:
            self.service.stop()
        self.check_store()
        self.service = Local(self.path)
        assert self.service.state() == before

    # --- what must hold ---

    def read_state(self) -> bytes:
        """Return the state once all timeouts that have passed are closed: a start would close them."""
        self.service.run(self.service.engine.timeouts.close_due(self.service.load()))
        return self.service.state()

    def check(self) -> None:
        assert self.read_state() == self.service.replay()
        for i, decision in enumerate(self.ids):
            answer = self.service.get(f"{SHOP}/decisions/{decision}")
            assert answer.status_code == (404 if self.is_removed(i) else 200), answer.text
        rows = {row["decision"]: row for row in self.service.events() if row["kind"] == "decided"}
        kept = [id_ for i, id_ in enumerate(self.ids) if not self.is_removed(i)]
        assert list(rows) == kept
        assert {id_ for id_, row in rows.items() if "request" not in row} == {self.ids[i] for i in self.erased} & {
            *kept
        }

    def check_store(self) -> None:
        report = verify(self.path)
        assert report.is_sound, report
        for i in range(len(self.ids)):
            is_gone = i in self.erased or self.is_removed(i)
            assert not (is_gone and has_mark(self.path, i)), f"the mark of decision {i} is still there"
            assert is_gone or has_mark(self.path, i)


EXAMPLES = {"sqlite": 25, "postgres": 5}  # one takes 0.3 s, and on PostgreSQL 2 s


@pytest.mark.usefixtures("tmp_path")  # shows that the test has a store, so that it runs on both kinds
def test_any_order_of_steps(backend: str) -> None:
    settings(max_examples=EXAMPLES[backend], database=None)(given(plan=PLANS)(run_plan))()


def run_plan(plan: tuple[Any, int, list[tuple[str, int]]]) -> None:
    timeout, slice_events, steps = plan
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        clock = [1_700_000_000.0]
        patch.setattr("windvane.service.engine.TICK", 1e9)
        patch.setattr("time.time_ns", lambda: round(clock[0] * 1e6) * 1000)
        patch.setattr(stream_erasure, "SLICE_EVENTS", slice_events)
        path = Path(folder) / "a.db"
        world = World(path, clock, Local(path))
        default = {} if timeout is None else {"default_reward": 0.0}
        world.service.create(
            retention=f"{RETENTION_DAYS}d",
            reward_timeout=timeout,
            policy="D-LinUCB",
            gamma=0.9,
            link="identity",
            **default,
        )
        try:
            for name, number in steps:
                getattr(world, name)(number)
            world.check()
        finally:
            world.service.crash()
        world.check_store()
