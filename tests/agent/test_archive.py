"""The file of an agent: it goes on bit for bit, and no damaged or forged file is taken for one."""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from policy_skeleton import Skeleton

from support.agents import LIVE, NOON, refuses
from support.processes import run_python
from support.refusals import rejects
from support.worlds import ball
from windvane import Agent, CustomLink, Logistic
from windvane.agent import FileError

OWN = CustomLink("own", Logistic().mean, Logistic().slope)


def build(name: str) -> Agent:
    """By the clock where the policy can forget so; with rewards that never come, random play, and all else there is."""
    accepted = inspect.signature(LIVE[name]).parameters
    settings: dict = {"horizon": 100} if "horizon" in accepted else {}
    if "gamma" in accepted or name == "AdaptiveGLMUCB":
        settings["half_life"] = "90s"
    else:
        settings |= {key: 1.0 for key in ("drift", "switches") if key in accepted}
    return Agent(dim=2, policy=name, reward_timeout="2m", default_reward=0.25, epsilon=0.2, seed=7, **settings)


def live(agent: Agent, rounds: range) -> list:
    """Return what an agent does in a life that depends on ``rounds`` only: rewards at once, late, in parts, or none."""
    log: list = []
    for i in rounds:
        rng = np.random.default_rng([5, i])
        now = NOON + 11.3 * i + rng.random()
        decision = agent.decide({f"arm {k}": x for k, x in enumerate(ball(rng, (3,), 2))}, now=now, id=f"d{i}")
        log += [decision, agent.explain(decision)]
        for kind, (back, call) in enumerate(
            ((0, agent.reward), (3, agent.reward), (5, agent.add_reward), (12, agent.reward))
        ):
            if i >= back and np.random.default_rng([6, i - back]).integers(4) == kind:
                log.append(call(f"d{i - back}", float(i % 2), now=now))
    return log


@pytest.mark.parametrize("name", LIVE)
def test_a_loaded_agent_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    agent, path = build(name), tmp_path / "a.windvane"
    statuses = live(agent, range(50))
    assert {"recorded", "expired"} <= {each for each in statuses if isinstance(each, str)}
    assert min(agent.info().counts.pending, agent.info().counts.expired, agent.info().counts.held) > 2
    agent.save(path)
    loaded = Agent.load(path)
    assert loaded.to_bytes() == agent.to_bytes() == path.read_bytes()
    assert live(agent, range(50, 100)) == live(loaded, range(50, 100))
    assert loaded.to_bytes() == agent.to_bytes()
    assert loaded.info() == agent.info()


def test_a_packed_core_is_that_of_the_moment_whatever_comes_later() -> None:
    agent = build("D-LinUCB")
    live(agent, range(20))
    finish, content = agent.core.pack(), agent.to_bytes()
    live(agent, range(20, 40))
    agent.configure(epsilon=0.0)
    assert finish() == content


@pytest.mark.parametrize(
    "variable", ["PYTHONHASHSEED=1", "PYTHONHASHSEED=2", "NPY_DISABLE_CPU_FEATURES=X86_V4 AVX512F"]
)
def test_equal_agents_give_equal_bytes_in_every_process(variable: str, tmp_path: Path) -> None:
    """And are read on every processor: exp differs in its last digit without AVX-512, and so does c_mu."""
    code = (
        "import sys; from windvane import Agent; a = Agent(dim=2, half_life='1h');"
        "[a.decide({'r': [0.1, 0.2], 'b': [0.3, 0.1]}, id=str(i), now=i) for i in range(5)]; a.reward('2', 1.0);"
        "a.save(sys.argv[1] + '/saved'); links = ('poisson', 'logistic', 'probit');"
        "[Agent.load(f'{sys.argv[1]}/{link}').decide([[0.1, 0.2]]) for link in links]"
    )
    for link in ("poisson", "logistic", "probit"):
        Agent(dim=2, link=link, S=1.3, half_life=50).save(tmp_path / link)
    name, _, value = variable.partition("=")
    run_python("-W", "ignore", "-c", code, str(tmp_path), **{name: value})
    agent = Agent(dim=2, half_life="1h")
    for i in range(5):
        agent.decide({"r": [0.1, 0.2], "b": [0.3, 0.1]}, id=str(i), now=i)
    agent.reward("2", 1.0)
    assert (tmp_path / "saved").read_bytes() == agent.to_bytes() or name != "PYTHONHASHSEED"


def read_entries(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def write_entries(entries: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in sorted(entries.items()):
            info = zipfile.ZipInfo(name)
            info.create_system, info.compress_type = 3, method
            archive.writestr(info, data)
    return buffer.getvalue()


def forge(content: bytes, changes: dict[str, bytes | None], edit: Callable[[dict], object] = dict) -> bytes:
    """Return a file changed by someone who can compute the digest."""
    entries = {name: data for name, data in {**read_entries(content), **changes}.items() if data is not None}
    head = json.loads(entries["agent.json"])
    edit(head)
    head["digest"] = ""
    entries["agent.json"] = json.dumps(head, separators=(",", ":")).encode()
    digest = hashlib.sha256()
    for name in sorted(entries):
        digest.update(name.encode() + b"\0" + struct.pack("<Q", len(entries[name])) + entries[name])
    head["digest"] = digest.hexdigest()
    entries["agent.json"] = json.dumps(head, separators=(",", ":")).encode()
    return write_entries(entries)


def write_array(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=array.dtype == object)
    return buffer.getvalue()


def test_the_format_is_as_documented() -> None:
    """By what the module says, with zipfile, json, hashlib and NumPy only."""
    agent = Agent(dim=2, policy="D-LinUCB", half_life="1h", epsilon=0.5)
    for i, key in enumerate("ab"):
        agent.decide({"red": [0.1, 0.2], "blue": [0.3, 0.1]}, id=key, now=NOON + 10 * i)
    agent.reward("a", 0.5)
    content = agent.to_bytes()
    entries = read_entries(content)
    head = json.loads(entries["agent.json"])
    assert (head["format"], head["version"]) == ("windvane agent", 5)
    assert head["settings"] == agent.settings
    assert head["tally"] | {"decisions": 2, "rewards": 1, "settled": 1, "reward_total": 0.5} == head["tally"]
    assert (head["times"], head["closed"]) == ([NOON, NOON + 10], [["a", 0.5, None, False, False]])
    (pending,) = agent.pending()
    assert head["pending"] == {name: [getattr(pending, name)] for name in ("id", "arm", "preferred", "rival")}
    arrays = {
        name: np.load(io.BytesIO(data), allow_pickle=False) for name, data in entries.items() if name != "agent.json"
    }
    columns = {name.split("/")[1][:-4]: array[0] for name, array in arrays.items() if name.startswith("pending/")}
    np.testing.assert_array_equal(columns.pop("x"), {"red": [0.1, 0.2], "blue": [0.3, 0.1]}[pending.arm])
    assert (columns["round"], columns["time"], columns["number"]) == (1.0 + 10 * 100_000, NOON + 10, 1)
    for name in ("index", "prediction", "bonus", "propensity", "rival_score", "explored"):
        assert columns[name] == getattr(pending, name)
    assert np.isnan([columns["reward"], columns["delay"]]).all()
    assert [columns[name] for name in ("projected", "looks", "credited", "is_learned", "is_miss", "is_partial")] == [
        -1,
        0,
        0,
        0,
        1,
        0,
    ]
    b = arrays["policy/estimator.dense.npy"][:, 1]  # the rows of a lane: theta_hat, b, pull, V, V_tilde
    np.testing.assert_array_equal(b, agent.policy.info().b)
    assert forge(content, {}) == content  # the digest, and the archive
    infinite = read_entries(Agent(dim=2, memories=(10.0, np.inf)).to_bytes())["agent.json"]  # JSON has no Infinity
    assert json.loads(infinite, parse_constant=pytest.fail)["settings"]["memories"] == [10.0, {"number": "inf"}]
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.namelist() == sorted(entries)
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_what_cannot_be_saved_says_so() -> None:
    class Odd(Skeleton):
        name = "odd"

        def __init__(self, dim: int, *, helper: object = None, **settings) -> None:
            super().__init__(dim, gamma=0.9, **settings)

    with rejects("helper"):
        Agent(dim=2, policy=Odd, helper=object()).to_bytes()


def test_a_link_and_a_policy_of_ones_own_are_given_again() -> None:
    agent = Agent(dim=2, link=OWN, policy="GLM-UCB")
    agent.reward(agent.decide([[0.1, 0.2]]), 1.0)
    for name, own, content in (
        ("link", OWN, agent.to_bytes()), ("policy", Skeleton, Agent(dim=2, policy=Skeleton, gamma=0.9).to_bytes()),
    ):  # fmt: skip
        refuses(agent, name, lambda content=content: Agent.from_bytes(content), value=None)
        assert Agent.from_bytes(content, **{name: own}).to_bytes() == content
        plain = Agent(dim=2).to_bytes()  # what is in the file is not replaced
        refuses(agent, name, lambda name=name, own=own: Agent.from_bytes(plain, **{name: own}), value=own)
    steeper = CustomLink("own", lambda z: Logistic().mean(2 * z), lambda z: 2 * Logistic().slope(2 * z))
    with rejects(error=FileError, where="content", code="state") as caught:
        Agent.from_bytes(agent.to_bytes(), link=steeper)
    assert caught.value.__cause__.argument == "state['config']"
    with rejects(error=FileError, code="state"):
        Agent.from_bytes(content, policy=LIVE["OFUL"])


@pytest.fixture(scope="module")
def small() -> bytes:
    agent = Agent(dim=1, policy="UniformRandom", reward_timeout=5, learn="at_timeout")
    for i in range(4):
        agent.decide({"a": [0.5], "b": [-0.5]}, id=f"d{i}", now=NOON + i)
    agent.reward("d3", 1.0)
    agent.core.decisions.closed["d1"] = agent.core.decisions.outcome_of("d3")
    del agent.core.decisions.open["d1"]
    return agent.to_bytes()


def find_damage(content: bytes) -> str:
    """Expect a :class:`FileError`; return the part that is wrong."""
    with rejects(error=FileError, where="content") as caught:
        Agent.from_bytes(content)
    return caught.value.code


def test_a_file_that_is_cut_short_or_no_file_of_an_agent_is_refused(small: bytes, tmp_path: Path) -> None:
    for length in range(len(small)):
        find_damage(small[:length])
    for content in (b"PK", b"hello", bytes(1000), b"\x93NUMPY", b"{}", pickle.dumps({"a": 1})):
        assert find_damage(content) == "archive"
    (tmp_path / "nothing").write_bytes(b"nothing")
    with rejects(error=FileError, where=str(tmp_path / "nothing"), code="archive"):
        Agent.load(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError):
        Agent.load(tmp_path / "nowhere")


def test_a_file_with_any_byte_changed_is_refused_or_is_the_same_agent(small: bytes) -> None:
    """A date in the archive, for example, means nothing."""
    larger = Agent(dim=3, policy="GLM-UCB")
    larger.history(np.ones(40), np.full((40, 3), 0.2))
    rng, refused = np.random.default_rng(0), 0
    for content, step in ((small, 1), (larger.to_bytes(), 101)):
        for at in range(0, len(content), step):
            changed = bytearray(content)
            changed[at] ^= int(rng.integers(1, 256))
            try:
                assert Agent.from_bytes(bytes(changed)).to_bytes() == content
            except FileError:
                refused += 1
    assert refused > 0.8 * len(small)


def test_zip_bombs_are_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = write_entries({"agent.json": b" " * 50_000_000}, zipfile.ZIP_DEFLATED)
    assert len(bomb) < 100_000
    single = write_entries({"agent.json": b" " * 5000})  # many names for one stretch of data
    directory, end = single.rindex(b"PK\1\2"), single.rindex(b"PK\5\6")
    tail = struct.pack("<4H2LH", 0, 0, 500, 500, 500 * (end - directory), directory, 0)
    stacked = single[:directory] + single[directory:end] * 500 + b"PK\5\6" + tail
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("was read"))
    assert [find_damage(content) for content in (bomb, stacked)] == ["archive", "archive"]


class Evil:
    def __reduce__(self):
        return (os.system, ("echo pwned",))


def test_no_pickle_is_ever_read(small: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = forge(small, {"center.npy": write_array(np.array([Evil()], dtype=object))})
    for module in (pickle, __import__("_pickle")):
        monkeypatch.setattr(module, "loads", lambda *_, **__: pytest.fail("was unpickled"))
        monkeypatch.setattr(module, "load", lambda *_, **__: pytest.fail("was unpickled"))
    assert find_damage(evil) == "array"


def claim_shape(shape: str) -> bytes:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header.encode() + bytes(8)


# fmt: off
ONE = write_array(np.array([1.0]))
CHANGED = [  # entries, without a new digest
    ("digest", "center.npy", ONE), ("digest", "more.npy", ONE), ("header", "agent.json", b"[]"),
    ("header", "agent.json", b"nonsense"), ("header", "agent.json", b"[" * 100_000),
    ("header", "agent.json", b'{"format": NaN}'),
    ("header", "agent.json", b'{"format": 1e999, "version": 1, "digest": ""}'),
    ("version", "agent.json", b'{"format": "other", "version": 1, "digest": ""}'),
    ("digest", "agent.json", b'{"format": "windvane agent", "version": 5, "digest": ""}'),
]
FORGED_ARRAYS = [
    ("state", "center", None), ("state", "pending/x", None), ("state", "policy/t", None), ("array", "policy/t", b""),
    ("state", "policy/t", np.array(4.0)), ("state", "policy/more", np.zeros(3)), ("state", "center", np.zeros(3)),
    ("state", "center", np.array([np.nan])), ("state", "spread", np.array([0.0])),
    *(("state", "pending/x", np.array([[x], [0.1], [0.1]])) for x in (np.nan, 5.0)),
    ("state", "pending/x", np.zeros((4, 1))), ("array", "pending/x", np.asfortranarray(np.zeros((3, 2)))),
    *(("array", "center", claim_shape(shape)) for shape in ("(1000000000000,)", "(-1,)", "('a',)")),
    ("array", "center", claim_shape("(1,)") + b"more"), ("array", "center", np.array([1 + 1j])),
    *(("state", f"pending/{name}", np.full(3, value, dtype)) for name, value, dtype in (
        ("round", 1e6, "f8"), ("round", -np.inf, "f8"), ("round", np.nan, "f8"), ("time", np.inf, "f8"),
        ("number", -1, "i8"), ("number", 1.0, "f8"), ("index", -1, "i8"), ("prediction", np.nan, "f8"),
        ("propensity", 1.5, "f8"), ("explored", 2, "i1"), ("projected", -2, "i1"), ("reward", 1e101, "f8"),
        ("delay", -1.0, "f8"), ("looks", 9, "i1"), ("credited", 2.0, "f8"), ("is_partial", 2, "i1"),
        ("is_learned", 1, "i8"), ("bonus", "x", "U1"),
    )),
    ("state", "pending/round", np.zeros(2)), ("state", "pending/reward", None),
    ("state", "recent/dropped", np.full(3, 2, "i1")), ("state", "recent/projected", np.zeros(201, "i1")),
]
FORGED_DOCUMENTS = [
    (["settings"], None), (["settings"], []), (["settings"], {}), (["settings", "dim"], "2"), (["settings", "dim"], 2),
    (["settings", "policy"], "nobody"), (["settings", "policy"], 5), (["settings", "link"], ["logistic"]),
    (["settings", "more"], 1), (["settings", "seed"], 1), (["settings", "reward_timeout"], -1),
    (["settings", "lanes"], 2), (["settings", "features"], 5), (["settings", "features"], {"shared": ["a"]}),
    (["settings", "seed"], {"number": "x"}), (["feature_names"], ["y"]), (["columns"], [None]), (["columns"], ["b"]),
    (["to_fit"], None), (["to_fit"], [True]), (["tally"], [1, 2]), (["tally", "decisions"], -1),
    (["tally", "decisions"], 1.5), (["tally", "decisions"], "1"), (["tally", "reward_total"], None),
    (["tally", "reward_total"], "1"), (["tally", "reward_total"], True),
    (["times"], None), (["times"], [0.0]), (["times", 1], "now"), (["pending"], None), (["pending"], []),
    (["pending"], {}), (["pending", "id"], None), (["pending", "id"], ["d2"]), (["pending", "id", 0], 5),
    (["pending", "id", 0], "d2"), (["pending", "id", 0], "d1"), (["pending", "arm", 0], None),
    (["pending", "arm", 0], 1.0), (["pending", "arm", 0], True), (["pending", "rival", 0], []),
    (["pending", "preferred", 0], {}), (["pending", "arm"], ["a"]), (["closed"], 5), (["closed"], [["d1"]]),
    (["closed", 0, 1], "1"), (["closed", 0, 0], []), (["closed", 0, 2], True), (["closed", 0, 3], 1),
]
# fmt: on


@pytest.mark.parametrize(("code", "name", "data"), CHANGED)
def test_changed_entries_are_refused(small: bytes, code: str, name: str, data: bytes) -> None:
    assert find_damage(write_entries(read_entries(small) | {name: data})) == code


@pytest.mark.parametrize(("code", "name", "data"), FORGED_ARRAYS)
def test_forged_arrays_are_refused(small: bytes, code: str, name: str, data: bytes | np.ndarray | None) -> None:
    """Not a promise against forgery, but a forged file must not give an agent that breaks later."""
    data = write_array(data) if isinstance(data, np.ndarray) else data
    assert find_damage(forge(small, {f"{name}.npy": data})) == code


@pytest.mark.parametrize(("path", "value"), FORGED_DOCUMENTS, ids=str)
def test_forged_documents_are_refused(small: bytes, path: list, value: object) -> None:
    def edit(head: dict) -> None:
        for step in path[:-1]:
            head = head[step]
        head[path[-1]] = value

    assert find_damage(forge(small, {}, edit)) == "state"


def test_other_versions_spellings_and_orders_are_refused(small: bytes) -> None:
    for version in (1, 2, 3, 4, 6, 5.0, True, "5", None):
        assert find_damage(forge(small, {}, lambda head, version=version: head.update(version=version))) == "version"
    entries = read_entries(small)
    spaced = entries["agent.json"].replace(b'"version":5', b'"version": 5')  # there is one document for every content
    assert find_damage(write_entries(entries | {"agent.json": spaced})) == "digest"
    assert find_damage(write_entries(entries, zipfile.ZIP_DEFLATED)) == "archive"
    ordered = Agent(features={"shared": {"b": (0, 1), "a": (0, 1)}}).to_bytes()

    def reorder(head: dict) -> None:
        features = head["settings"]["features"]
        features["shared"] = dict(sorted(features["shared"].items()))

    with rejects(error=FileError, code="state") as caught:
        Agent.from_bytes(forge(ordered, {}, reorder))
    assert caught.value.__cause__.argument == "feature_names"


@pytest.mark.parametrize(("owner", "name"), [(os, "fsync"), (Path, "replace"), (Agent, "to_bytes")])
def test_a_crash_while_saving_leaves_the_old_file_whole(
    owner: object, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, agent = tmp_path / "agent.windvane", Agent(dim=2)
    agent.save(path)
    before = path.read_bytes()
    agent.decide([[0.1, 0.2]])

    def fail(*_: object, **__: object) -> None:
        raise OSError("no power")

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        with pytest.raises(OSError, match="no power"):
            agent.save(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["agent.windvane"]
    agent.save(str(path))
    assert Agent.load(str(path)).info().counts.decisions == 1
