"""Saving and loading an agent: it goes on bit for bit, and no damaged or made-up file is taken for one."""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import threading
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from policy_skeleton import Skeleton

from support.refusals import rejects
from support.worlds import ball
from windvane import POLICIES, Agent, CustomLink, ExpiredDecisionError, Logistic
from windvane.agent import FileError, file

NOON = 1_700_000_000.0
LIVE = {name: cls for name, cls in POLICIES.items() if not cls.needs_truth}
OWN = CustomLink("own", Logistic().mean, Logistic().slope)
MIXED = {"shared": {"age": (0, 100)}, "per_arm": {"price": (0, 10)}, "by_arm": {"plan": ["a", "b"]}, "arms": ["r", 2]}


def built(name: str, **more) -> Agent:
    """By the clock where the policy can forget so; with rewards that never come, random play, and all else there is."""
    taken = inspect.signature(LIVE[name]).parameters
    told: dict = {"horizon": 100} if "horizon" in taken else {}
    if "gamma" in taken or name == "AdaptiveGLMUCB":
        told |= {"half_life": "90s"}
    else:
        told |= {key: 1.0 for key in ("drift", "switches") if key in taken}
    return Agent(**{"dim": 2, "policy": name, "wait": "2m", "missing": 0.25, "randomize": 0.2, "seed": 7} | told | more)


def lived(agents: list[Agent], rounds: range) -> list:
    """The same life for all of them, and what they did in it."""
    told: list = [[] for _ in agents]
    for i in rounds:
        rng = np.random.default_rng([5, i])
        arms = {f"arm {k}": x for k, x in enumerate(ball(rng, (3,), 2))}
        now = NOON + 11.3 * i + rng.random()
        for agent, log in zip(agents, told, strict=True):
            decision = agent.decide(arms, now=now, id=f"d{i}")
            log.append((decision, str(agent.explain(decision))))
            for back in (0, 3):  # some at once, some late, some never
                if i >= back and np.random.default_rng([6, i - back]).integers(3) == (0 if back else 1):
                    log.append(agent.reward(f"d{i - back}", float(i % 2), now=now))
    return told


# --- it goes on ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LIVE)
def test_a_loaded_agent_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    agent = built(name)
    lived([agent], range(50))
    assert agent.waiting > 3
    assert agent.expired > 3
    agent.save(tmp_path / "one.windvane")
    loaded = Agent.load(tmp_path / "one.windvane")
    assert loaded.to_bytes() == agent.to_bytes() == (tmp_path / "one.windvane").read_bytes()
    first, second = lived([agent, loaded], range(50, 100))
    assert first == second
    assert loaded.to_bytes() == agent.to_bytes()
    assert loaded.info() == agent.info()


@pytest.mark.parametrize(
    "given",
    [
        {"dim": 3, "prior": np.array([0.1, -0.2, 0.3]), "prior_weight": 3},
        {"dim": np.int64(2), "gamma": np.float32(0.5), "seed": np.uint8(3), "max_pending": np.int32(9)},
        {"dim": 2, "scaling": ([1.0, 2.0], [0.5, 0.25]), "intercept": True, "clip": True, "L": 2},
        {"dim": 2, "scaling": "fit"},
        {"dim": 2, "memories": (10.0, np.inf)},
        {"dim": 2, "link": Logistic(), "policy": "GLM-UCB", "delta": np.array([0.3])},
        {"dim": 2, "link": "identity", "sigma": 2.0, "missing": -3.0, "wait": 5},
        {"features": MIXED},
        {"features": {"shared": ["z"]}, "scaling": "fit"},
        {"dim": 2, "policy": "SW-LinUCB", "window": 12},
    ],
)
def test_all_that_an_agent_is_told_is_saved(given: dict) -> None:
    agent = Agent(**given)
    loaded = Agent.from_bytes(agent.to_bytes())
    assert loaded.to_bytes() == agent.to_bytes()
    assert loaded.policy.config_hash == agent.policy.config_hash
    for name in ("wait", "missing", "max_pending", "randomize", "by_clock", "reward_range", "feature_names"):
        assert getattr(loaded, name) == getattr(agent, name)
    for name in ("raw_dim", "L", "intercept", "clip", "to_fit", "longest"):
        assert getattr(loaded.scaling, name) == getattr(agent.scaling, name)
    assert loaded.fits_features == agent.fits_features


def test_an_agent_with_features_is_saved_between_history_and_rewards() -> None:
    agent = Agent(features={"shared": ["z"], "arms": ["a", "b"]}, scaling="fit", policy="OFUL")
    agent.update_many(contexts=[{"z": 1.0}, {"z": 3.0}], arms=["a", "b"], rewards=[1.0, 0.0], times=[NOON, NOON + 1])
    agent.decide(context={"z": 2.0}, id="one", now=NOON + 2)
    loaded = Agent.from_bytes(agent.to_bytes())
    for one in (agent, loaded):
        one.reward("one", 1.0)
        one.decide(context={"z": 2.5}, id="two", now=NOON + 3)
    assert loaded.pending == agent.pending
    assert loaded.to_bytes() == agent.to_bytes()


def test_closed_decisions_are_remembered_across_files() -> None:
    agent = Agent(dim=2, wait=1)
    for i in range(4):
        agent.decide([[0.1, 0.2]], id=f"d{i}")
    agent.reward("d3", 1.0)
    loaded = Agent.from_bytes(agent.to_bytes())
    assert loaded.reward("d3", 1.0) is False
    with rejects(error=ExpiredDecisionError, decision="d0"):
        loaded.reward("d0", 1.0)


def test_equal_agents_give_equal_bytes_in_every_process() -> None:
    code = (
        "import hashlib; from windvane import Agent; a = Agent(dim=2, half_life='1h');"
        "[a.decide({'r': [0.1, 0.2], 'b': [0.3, 0.1]}, id=str(i), now=i) for i in range(5)]; a.reward('2', 1.0);"
        "print(hashlib.sha256(a.to_bytes()).hexdigest())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_a_file_moves_between_processors(tmp_path: Path) -> None:
    """exp differs in its last digit with and without AVX-512, and so does c_mu; the file must not mind."""
    for link in ("poisson", "logistic", "probit"):
        Agent(dim=2, link=link, S=1.3, half_life=50).save(tmp_path / link)
    code = (
        "import sys; from windvane import Agent;"
        "[Agent.load(f'{sys.argv[1]}/{link}').decide([[0.1, 0.2]]) for link in ('poisson', 'logistic', 'probit')]"
    )
    plain = {"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR AVX512F AVX512CD AVX512_SKX"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)],
        env=os.environ | plain,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# --- the format, read without windvane -----------------------------------------------------------------------------


def parts(content: bytes) -> tuple[dict, dict[str, np.ndarray]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        arrays = {
            name: np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
            for name in archive.namelist()
            if name.endswith(".npy")
        }
        return json.loads(archive.read("agent.json")), arrays


def test_the_format_is_as_documented() -> None:
    """By what docs/agent.md says, with zipfile, json, hashlib and NumPy only."""
    agent = Agent(dim=2, policy="D-LinUCB", half_life="1h", randomize=0.5)
    agent.decide({"red": [0.1, 0.2], "blue": [0.3, 0.1]}, id="a", now=NOON)
    agent.decide({"red": [0.1, 0.2], "blue": [0.3, 0.1]}, id="b", now=NOON + 10)
    agent.reward("a", 0.5)
    content = agent.to_bytes()
    head, arrays = parts(content)
    assert (head["format"], head["version"]) == ("windvane agent", 4)
    assert head["config"]["half_life"] == "1h"
    assert head["counts"] == [2, 1, 0, 0, 0, 0, 1, 0]
    assert head["times"] == [NOON, NOON + 10]
    assert head["closed"] == [["a", 0.5]]
    (waiting,) = agent.pending
    assert head["pending"] == {
        "id": ["b"],
        "arm": [waiting.arm],
        "preferred": [waiting.preferred],
        "rival": [waiting.rival],
    }
    ((round_, time, prediction, bonus, propensity, rival_score, reward, delay, credited),) = arrays["pending/reals.npy"]
    assert (round_, time) == (1.0 + 10 * 100_000, NOON + 10)
    assert (prediction, bonus) == (waiting.prediction, waiting.bonus)
    assert (propensity, rival_score) == (waiting.propensity, waiting.rival_score)
    assert np.isnan([reward, delay]).all()
    assert credited == 0.0
    assert arrays["pending/wholes.npy"].tolist() == [[1, waiting.index, waiting.explored, -1, 0, 0, 1]]
    b = arrays["policy/estimator.dense.npy"][:, 1]  # the rows of a lane: theta_hat, b, pull, V, V_tilde
    np.testing.assert_array_equal(b, agent.policy.info().b)
    assert arrays["pending/x.npy"].shape == (1, 2)
    digest = hashlib.sha256()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.namelist() == sorted(archive.namelist())
        for name in archive.namelist():
            data = archive.read(name)
            if name == "agent.json":
                data = json.dumps(head | {"digest": ""}, separators=(",", ":")).encode()
            digest.update(name.encode() + b"\0" + struct.pack("<Q", len(data)) + data)
    assert digest.hexdigest() == head["digest"]


def test_another_spelling_of_the_same_document_is_refused() -> None:
    """There is one file for every content."""
    content = Agent(dim=2).to_bytes()
    entries = entries_of(content)
    spaced = entries["agent.json"].replace(b'"version":4', b'"version": 4')
    with rejects(error=FileError, where="content", code="digest"):
        Agent.from_bytes(file._archive(entries | {"agent.json": spaced}))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_files_of_earlier_versions_are_refused(version: int) -> None:
    """Versions 1 and 2 may have coefficients of the wrong features; version 3 has other policy state."""
    old = resealed(Agent(dim=2).to_bytes(), {}, lambda head: head.update(version=version))
    with rejects(error=FileError, where="content", code="version"):
        Agent.from_bytes(old)


def test_numbers_that_are_not_finite_are_no_bare_words() -> None:
    """JSON has neither Infinity nor NaN."""
    content = Agent(dim=2, memories=(10.0, np.inf)).to_bytes()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        text = archive.read("agent.json").decode()
    assert json.loads(text, parse_constant=pytest.fail)["config"]["memories"] == [
        10.0,
        {"number": "inf"},
    ]
    assert Agent.from_bytes(content).policy.memories == [10.0, np.inf]


def test_what_cannot_be_saved_says_so() -> None:
    class Odd(Skeleton):
        name = "odd"

        def __init__(self, dim: int, *, helper: object = None, **settings) -> None:
            super().__init__(dim, gamma=0.9, **settings)

    agent = Agent(dim=2, policy=Odd, helper=object())
    with rejects("helper"):
        agent.to_bytes()


# --- what is one's own must be given again -------------------------------------------------------------------------


def test_a_link_of_ones_own_is_given_again() -> None:
    agent = Agent(dim=2, link=OWN, policy="GLM-UCB")
    agent.reward(agent.decide([[0.1, 0.2]]), 1.0)
    content = agent.to_bytes()
    with rejects("link", value=None):
        Agent.from_bytes(content)
    assert Agent.from_bytes(content, link=OWN).to_bytes() == content
    steeper = CustomLink("own", lambda z: Logistic().mean(2 * z), lambda z: 2 * Logistic().slope(2 * z))
    with rejects(error=FileError, where="content", code="state") as caught:
        Agent.from_bytes(content, link=steeper)
    assert caught.value.__cause__.argument == "state['config']"


def test_a_policy_of_ones_own_is_given_again() -> None:
    content = Agent(dim=2, policy=Skeleton, gamma=0.9).to_bytes()
    with rejects("policy", value=None):
        Agent.from_bytes(content)
    assert Agent.from_bytes(content, policy=Skeleton).to_bytes() == content
    with rejects(error=FileError, code="state"):
        Agent.from_bytes(content, policy=LIVE["OFUL"])


def test_what_is_in_the_file_is_not_replaced() -> None:
    content = Agent(dim=2).to_bytes()
    with rejects("link", value=OWN):
        Agent.from_bytes(content, link=OWN)
    with rejects("policy", value=Skeleton):
        Agent.from_bytes(content, policy=Skeleton)


# --- damaged files -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> bytes:
    agent = Agent(dim=1, policy="UniformRandom", wait=5)
    for i in range(3):
        agent.decide({"a": [0.5], "b": [-0.5]}, id=f"d{i}", now=NOON + i)
    agent.reward("d1", 1.0)
    return agent.to_bytes()


def damaged(content: bytes) -> str:
    """Only :class:`FileError` is raised; return the part that is wrong."""
    with rejects(error=FileError, where="content") as caught:
        Agent.from_bytes(content)
    return caught.value.code


def test_a_file_cut_short_is_refused(small: bytes) -> None:
    for length in range(len(small)):
        damaged(small[:length])


def test_a_file_with_any_byte_changed_is_refused(small: bytes) -> None:
    rng = np.random.default_rng(0)
    for at in range(len(small)):
        changed = bytearray(small)
        changed[at] ^= int(rng.integers(1, 256))
        damaged(bytes(changed))


def test_a_file_with_something_added_is_refused(small: bytes) -> None:
    for changed in (small + b"\0", b"\0" + small, small + small, small[:200] + b"x" + small[200:]):
        damaged(changed)


def test_what_is_no_file_of_an_agent_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"PK", b"hello", bytes(1000), b"\x93NUMPY", b"{}", pickle.dumps({"a": 1})):
        damaged(content)
    (tmp_path / "nothing").write_bytes(b"nothing")
    with rejects(error=FileError, where=str(tmp_path / "nothing"), code="archive"):
        Agent.load(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError):
        Agent.load(tmp_path / "nowhere")


def zipped(entries: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def entries_of(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_zip_bombs_are_refused_unread(small: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = zipped({"agent.json": b" " * 50_000_000}, zipfile.ZIP_DEFLATED)
    assert len(bomb) < 100_000
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("was read"))
    assert damaged(bomb) == "archive"
    monkeypatch.undo()
    stacked = bytearray(file._archive({"agent.json": b" " * 5000}))  # many names for one stretch of data
    record = bytes(stacked[stacked.rindex(b"PK\1\2") : stacked.rindex(b"PK\5\6")])
    body = bytes(stacked[: stacked.rindex(b"PK\1\2")])
    end = struct.pack("<4H2LH", 0, 0, 500, 500, 500 * len(record), len(body), 0)
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("was read"))
    assert damaged(body + record * 500 + b"PK\5\6" + end) == "archive"


def test_an_entry_that_was_changed_with_its_checksum_is_refused(small: bytes) -> None:
    """CRC and layout fit; the digest does not."""
    entries = entries_of(small)
    edited = entries["agent.json"].replace(b"d1", b"d9")
    for name, data in (
        ("center.npy", npy(np.array([1.0]))),
        ("more.npy", npy(np.array([1.0]))),
        ("agent.json", edited),
    ):
        assert damaged(file._archive(entries | {name: data})) == "digest"


def test_another_archive_of_the_same_entries_is_refused(small: bytes) -> None:
    assert damaged(zipped(entries_of(small))) == "layout"
    assert damaged(zipped(entries_of(small), zipfile.ZIP_DEFLATED)) == "archive"


class Evil:
    def __reduce__(self):
        return (os.system, ("echo pwned",))


def test_no_pickle_is_ever_read(small: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.array([Evil()], dtype=object), allow_pickle=True)
    for module in (pickle, __import__("_pickle")):
        monkeypatch.setattr(module, "loads", lambda *_, **__: pytest.fail("was unpickled"))
        monkeypatch.setattr(module, "load", lambda *_, **__: pytest.fail("was unpickled"))
    assert damaged(resealed(small, {"center.npy": buffer.getvalue()})) == "array"


def resealed(content: bytes, changes: dict[str, bytes | None], edit=None) -> bytes:
    """A file changed by someone who can compute the digest."""
    entries = {name: data for name, data in {**entries_of(content), **changes}.items() if data is not None}
    head = json.loads(entries["agent.json"])
    if edit is not None:
        edit(head)
    head["digest"] = ""
    entries["agent.json"] = json.dumps(head, separators=(",", ":")).encode()
    digest = hashlib.sha256()
    for name in sorted(entries):
        digest.update(name.encode() + b"\0" + struct.pack("<Q", len(entries[name])) + entries[name])
    head["digest"] = digest.hexdigest()
    entries["agent.json"] = json.dumps(head, separators=(",", ":")).encode()
    return file._archive(entries)


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def claiming(shape: str) -> bytes:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header.encode() + bytes(8)


@pytest.mark.parametrize(
    "changes",
    [
        {"center.npy": None},
        {"pending/x.npy": None},
        {"policy/t.npy": None},
        {"policy/t.npy": b""},
        {"policy/t.npy": npy(np.array(5.0))},
        {"policy/more.npy": npy(np.zeros(3))},
        {"center.npy": npy(np.zeros(3))},
        {"center.npy": npy(np.array([np.nan]))},
        {"spread.npy": npy(np.array([0.0]))},
        {"pending/x.npy": npy(np.array([[np.nan], [0.1]]))},
        {"pending/x.npy": npy(np.array([[5.0], [0.1]]))},
        {"pending/x.npy": npy(np.zeros((3, 1)))},
        {"pending/reals.npy": npy(np.full((2, 6), np.nan))},
        {"pending/reals.npy": npy(np.full((2, 6), 1e6))},
        {"pending/reals.npy": npy(np.zeros((2, 5)))},
        {"pending/wholes.npy": npy(np.zeros((2, 4)))},
        {"pending/wholes.npy": npy(np.full((2, 4), -1))},
        {"pending/wholes.npy": npy(np.full((2, 4), 2))},
        {"pending/wholes.npy": npy(np.zeros((3, 4), dtype=int))},
        {"center.npy": claiming("(1000000000000,)")},
        {"center.npy": claiming("(-1,)")},
        {"center.npy": claiming("('a',)")},
        {"center.npy": claiming("(1,)") + b"more"},
        {"center.npy": npy(np.array([1 + 1j]))},
        {"pending/x.npy": npy(np.asfortranarray(np.zeros((2, 2))))},
        {"agent.json": b"[]"},
        {"agent.json": b"nonsense"},
        {"agent.json": b"[" * 100_000},
        {"agent.json": b'{"format": NaN}'},
        {"agent.json": b'{"format": 1e999, "version": 1, "digest": ""}'},
        {"agent.json": b'{"format": "windvane agent", "version": 4, "digest": ""}'},
        {"agent.json": b'{"format": "other", "version": 1, "digest": ""}'},
    ],
    ids=str,
)  # fmt: skip
def test_arrays_and_documents_that_do_not_fit_are_refused(small: bytes, changes: dict) -> None:
    if "agent.json" in changes:
        damaged(file._archive(entries_of(small) | changes))
    else:
        damaged(resealed(small, changes))


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (["config"], None), (["config"], []), (["config"], {}), (["config", "dim"], "2"), (["config", "dim"], 2),
        (["config", "policy"], "nobody"), (["config", "policy"], 5), (["config", "link"], ["logistic"]),
        (["config", "more"], 1), (["config", "seed"], 1), (["config", "wait"], -1), (["config", "lanes"], 2),
        (["features"], 5), (["features"], {"shared": ["a"]}), (["to_fit"], None), (["to_fit"], [True]),
        (["counts"], [1, 2]), (["counts", 0], -1), (["counts", 0], 1.5), (["counts", 0], "1"),
        (["reward_total"], None), (["reward_total"], "1"), (["reward_total"], True),
        (["times"], None), (["times"], [0.0]), (["times", 1], "now"),
        (["pending"], None), (["pending"], []), (["pending"], {}), (["pending", "id"], None),
        (["pending", "id"], ["d2"]),
        (["pending", "id", 0], 5), (["pending", "id", 0], "d2"), (["pending", "id", 0], "d1"),
        (["pending", "arm", 0], None), (["pending", "arm", 0], 1.0), (["pending", "arm", 0], True),
        (["pending", "rival", 0], []), (["pending", "preferred", 0], {}), (["pending", "arm"], ["a"]),
        (["closed"], 5), (["closed"], [["d1"]]), (["closed", 0, 1], "1"), (["closed", 0, 0], []),
    ],
    ids=str,
)  # fmt: skip
def test_made_up_documents_are_refused(small: bytes, where: list, value: object) -> None:
    """Not a promise against forgery, but a forged file must not give an agent that breaks later."""

    def edit(head: dict) -> None:
        for step in where[:-1]:
            head = head[step]
        head[where[-1]] = value

    damaged(resealed(small, {}, edit))


def test_the_resealing_of_these_tests_is_right(small: bytes) -> None:
    assert resealed(small, {}) == small


def test_a_larger_file_damaged_anywhere_is_refused() -> None:
    """A policy with a history, at every hundredth byte."""
    agent = Agent(dim=3, policy="GLM-UCB")
    agent.update_many(np.full((40, 3), 0.2), np.ones(40))
    content = agent.to_bytes()
    for at in range(0, len(content), 101):
        changed = bytearray(content)
        changed[at] ^= 1
        damaged(bytes(changed))


# --- on disk -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", ["fsync", "replace", "write"])
def test_a_crash_while_saving_leaves_the_old_file_whole(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "agent.windvane"
    agent = Agent(dim=2)
    agent.save(path)
    before = path.read_bytes()
    agent.decide([[0.1, 0.2]])

    def fail(*_: object, **__: object) -> None:
        raise OSError("no power")

    if broken == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    elif broken == "replace":
        monkeypatch.setattr(Path, "replace", fail)
    else:
        monkeypatch.setattr(Agent, "to_bytes", fail)
    with pytest.raises(OSError, match="no power"):
        agent.save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["agent.windvane"]
    agent.save(str(path))
    assert Agent.load(str(path)).decisions == 1


def test_several_threads_may_save_to_one_file(tmp_path: Path) -> None:
    path, agent, failures = tmp_path / "agent.windvane", Agent(dim=2), []

    def work() -> None:
        try:
            for _ in range(10):
                agent.decide([[0.1, 0.2]])
                agent.save(path)
                Agent.load(path)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert Agent.load(path).decisions == 40  # whoever saved last saved the last state


def test_the_checksums_of_the_archive_are_those_of_zip(small: bytes) -> None:
    """Other tools check them."""
    with zipfile.ZipFile(io.BytesIO(small)) as archive:
        for info in archive.infolist():
            assert zlib.crc32(archive.read(info)) == info.CRC
            assert info.date_time == (1980, 1, 1, 0, 0, 0)
            assert info.compress_type == zipfile.ZIP_STORED
