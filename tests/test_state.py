"""The one mechanism of state: declare, save, check, swap, nest; all or nothing; each refusal by the entry's path."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from support.refusals import refuses
from support.worlds import same_state
from windvane.state import State, Stateful, check, digest, refuse, save, swap


class Clock(Stateful):
    """Numbers, one of them whole, and an array."""

    stored: ClassVar[tuple[str, ...]] = ("now", "ticks", "marks")

    def __init__(self) -> None:
        self.now, self.ticks, self.marks = 0.0, 0, np.zeros(3)

    def check_fields(self, fields: State, path: str) -> None:
        if fields["ticks"] < 0:
            raise refuse(path, "ticks", fields["ticks"].item(), "at least 0")


class Diary(Stateful):
    """Fields of any length, and infinite ones; two clocks."""

    stored: ClassVar[tuple[str, ...]] = ("notes", "limit")
    flexible: ClassVar[tuple[str, ...]] = ("notes",)
    unbounded: ClassVar[tuple[str, ...]] = ("limit",)

    def __init__(self) -> None:
        self.notes, self.limit = np.zeros((2, 0)), np.inf
        self.clocks = {"first": Clock(), "second": Clock()}

    def parts(self) -> Mapping[str, Stateful]:
        return self.clocks


class Shelf(Stateful):
    """As many diaries as a field says: loading builds new ones and takes them over last."""

    stored: ClassVar[tuple[str, ...]] = ("count",)

    def __init__(self, count: int = 0) -> None:
        self.diaries = [Diary() for _ in range(count)]
        self.adopted = 0

    @property
    def count(self) -> int:
        return len(self.diaries)

    def parts(self) -> Mapping[str, Stateful]:
        return {f"diary{i}": diary for i, diary in enumerate(self.diaries)}

    def build_parts(self, fields: State) -> Mapping[str, Stateful]:
        return {f"diary{i}": Diary() for i in range(int(fields["count"]))}

    def write_fields(self, fields: State) -> None:
        pass

    def adopt_parts(self, parts: Mapping[str, Any]) -> None:
        self.diaries, self.adopted = list(parts.values()), self.adopted + 1


def write_diary() -> Diary:
    diary = Diary()
    diary.notes, diary.limit = np.arange(6.0).reshape(2, 3), 4.0
    for number, clock in enumerate(diary.clocks.values()):
        clock.now, clock.ticks, clock.marks = 0.5 + number, 7 + number, np.array([1.0, 2.0, number])
    return diary


def test_a_state_is_flat_and_has_the_names_of_parts_before_their_entries() -> None:
    names = [f"{part}.{name}" for part in ("first", "second") for name in ("now", "ticks", "marks")]
    assert list(save(write_diary())) == ["notes", "limit", *names]
    assert all(isinstance(value, np.ndarray) for value in save(write_diary()).values())


def test_a_state_is_a_copy_and_loading_copies_too() -> None:
    diary, fresh = write_diary(), Diary()
    state = save(diary)
    swap(check(fresh, state))
    for array in state.values():
        array[...] = 0
    assert same_state(save(diary), save(write_diary()))
    assert same_state(save(fresh), save(write_diary()))
    first = fresh.clocks["first"]  # numbers stay numbers, and lengths may change
    assert (type(first.now), type(first.ticks), first.ticks) == (float, int, 7)
    assert fresh.notes.shape == (2, 3)
    assert save(Diary())["limit"] == np.inf
    swap(check(fresh, save(Diary())))
    assert fresh.notes.shape == (2, 0)


def test_parts_that_a_state_calls_for_are_built_and_adopted_last() -> None:
    shelf, other = Shelf(3), Shelf(1)
    shelf.diaries[2] = write_diary()
    before, loaded = other.diaries, check(other, save(shelf))
    assert (other.diaries is before, other.adopted) == (True, 0)
    swap(loaded)
    assert (other.count, other.adopted) == (3, 1)
    assert same_state(save(other), save(shelf))
    assert "diary2.first.ticks" in save(other)


def test_a_state_for_which_there_is_no_memory_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """All memory is allocated before the first attribute changes."""
    diary = Diary()

    def fail(_: State) -> dict[str, Any]:
        raise MemoryError

    monkeypatch.setattr(diary.clocks["second"], "prepare_fields", fail)
    with pytest.raises(MemoryError):
        swap(check(diary, save(write_diary())))
    assert same_state(save(diary), save(Diary()))


MISSING = object()
REFUSALS: dict[str, tuple[str, Any]] = {
    "missing": ("limit", MISSING),
    "missing in a part": ("second.now", MISSING),
    "unknown": ("extra", np.zeros(1)),
    "unknown in a part": ("first.extra", np.zeros(1)),
    "of an unknown part": ("third.now", np.zeros(1)),
    "another shape": ("first.marks", np.zeros(4)),
    "flexible in its last axis only": ("notes", np.zeros((3, 3))),
    "flexible with another number of axes": ("notes", np.zeros(3)),
    "another type": ("first.ticks", np.array(7.0)),
    "less precision": ("first.now", np.array(0.5, dtype=np.float32)),
    "text": ("second.now", "noon"),
    "infinite": ("first.now", np.array(np.inf)),
    "not a number": ("first.marks", np.array([0.0, np.nan, 0.0])),
    "not a number where infinity is allowed": ("limit", np.array(np.nan)),
    "senseless": ("second.ticks", np.array(-1)),
}


@pytest.mark.parametrize(("name", "value"), REFUSALS.values(), ids=REFUSALS)
def test_a_refused_state_is_named_by_its_path_and_changes_nothing(name: str, value: Any) -> None:
    """Also where only the last part is wrong: everything is checked before anything is written."""
    diary, state = Diary(), save(write_diary()) | {name: value}
    with refuses(f"state['{name}']"):
        check(diary, {name: array for name, array in state.items() if array is not MISSING})
    assert same_state(save(diary), save(Diary()))


def test_a_path_leads_to_the_part_of_a_part() -> None:
    shelf = Shelf(2)
    with refuses("state['diary1.second.ticks']", value=-3):
        check(shelf, save(shelf) | {"diary1.second.ticks": np.array(-3)})
    with refuses("state['policy.diary1.second.now']"):
        check(shelf, save(shelf) | {"diary1.second.now": np.array(np.nan)}, "policy.")


def test_a_digest_tells_names_types_shapes_and_bytes_apart() -> None:
    state = {"a": np.arange(4), "b": np.zeros(2)}
    others = [{"a": np.arange(4), "c": np.zeros(2)}, {"a": np.arange(4)}, state | {"b": np.array([0.0, -0.0])}]
    others += [state | {"a": np.arange(4.0)}, state | {"a": np.arange(4).reshape(2, 2)}]
    assert len({digest(each) for each in (state, *others)}) == 6
    assert digest(dict(reversed(state.items()))) == digest(state)
    assert digest(state | {"a": np.arange(8)[::2] // 2}) == digest(state)
