"""The file of an agent: it goes on bit for bit, and no damaged or forged file is taken for one."""

from __future__ import annotations

import functools
import hashlib
import inspect
import io
import json
import operator
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from policy_skeleton import Skeleton

from support.agents import LIVE, NOON, refuses, required_settings
from support.processes import run_python
from support.refusals import rejects
from support.worlds import ball
from windvane import Agent, CustomLink, Logistic
from windvane.agent import FileError

OWN = CustomLink("own", Logistic().mean, Logistic().slope)


def build(name: str) -> Agent:
    """By the clock where the policy can forget so; with rewards that never come, random play, and all else there is."""
    settings = required_settings(name)
    if name == "AdaptiveGLMUCB" or "gamma" in inspect.signature(LIVE[name]).parameters:
        settings = {"half_life": "90s", "horizon": settings.get("horizon")}
    return Agent(dim=2, policy=name, reward_timeout="2m", default_reward=0.25, epsilon=0.2, seed=7, **settings)


def live(agent: Agent, rounds: range) -> list:
    """Return what an agent does in a life that depends on ``rounds`` only: rewards at once, late, in parts, or none."""
    log: list = []
    for i in rounds:
        rng = np.random.default_rng([5, i])
        now = NOON + 11.3 * i + rng.random()
        decision = agent.decide({f"arm {k}": x for k, x in enumerate(ball(rng, (3,), 2))}, now=now, id=f"d{i}")
        log += [decision, agent.explain(decision)]
        calls = ((0, agent.reward), (3, agent.reward), (5, agent.add_reward), (12, agent.reward))
        for kind, (back, call) in enumerate(calls):
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


@pytest.mark.parametrize("variable", ["PYTHONHASHSEED=1", "NPY_DISABLE_CPU_FEATURES=X86_V4 AVX512F"])
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


def read_arrays(content: bytes) -> dict:
    """Return the arrays of a file by name; ``document`` as what its JSON says."""
    arrays = dict(np.load(io.BytesIO(content.partition(b"\n")[2])))
    return arrays | {"document": json.loads(arrays["document"].item())}


def sign(body: bytes, version: object = 8) -> bytes:
    return f"windvane agent {version} {hashlib.sha256(body).hexdigest()}\n".encode() + body


def forge(content: bytes, changes: dict, path: str = "", value: object = None, save: Callable = np.savez) -> bytes:
    """Return a file changed by someone who can compute the digest: some arrays, or a value in the document."""
    arrays = {name: value for name, value in (read_arrays(content) | changes).items() if value is not None}
    if path:
        *steps, last = (int(step) if step.isdigit() else step for step in path.split("/"))
        functools.reduce(operator.getitem, steps, arrays["document"])[last] = value
    buffer = io.BytesIO()
    save(buffer, document=np.array(json.dumps(arrays.pop("document")).encode()), **dict(sorted(arrays.items())))
    return sign(buffer.getvalue())


def test_the_format_is_as_documented() -> None:
    """By what the module says, with zipfile, json, hashlib and NumPy only."""
    agent = Agent(dim=2, policy="D-LinUCB", half_life="1h", epsilon=0.5)
    for i, key in enumerate("ab"):
        agent.decide({"red": [0.1, 0.2], "blue": [0.3, 0.1]}, id=key, now=NOON + 10 * i)
    agent.reward("a", 0.5)
    content = agent.to_bytes()
    arrays = read_arrays(content)
    head = arrays["document"]
    assert head["settings"] == agent.settings
    assert head["tally"] | {"decisions": 2, "rewards": 1, "settled": 1, "reward_total": 0.5} == head["tally"]
    assert (head["times"], head["closed"]) == ([NOON, NOON + 10], [["a", 0.5, None, False, False]])
    (pending,), (row,) = agent.pending(), arrays["pending"]
    assert head["names"] == {name: [getattr(pending, name)] for name in ("id", "arm", "preferred", "rival")}
    np.testing.assert_array_equal(row["x"], {"red": [0.1, 0.2], "blue": [0.3, 0.1]}[pending.arm])
    assert [row[name] for name in ("round", "time", "number")] == [1.0 + 10 * 100_000, NOON + 10, 1]
    for name in ("index", "prediction", "bonus", "propensity", "rival_score", "explored"):
        assert row[f"decision.{name}"] == getattr(pending, name)
    assert np.isnan([row[name] for name in ("reward", "delay", "decision.projected")]).all()
    flags = [row[name] for name in ("looks", "credited", "is_learned", "is_miss", "is_partial")]
    assert flags == [0, 0.0, False, True, False]
    b = arrays["policy/estimator.dense"][:, 1]  # the rows of a lane: theta_hat, b, pull, V, V_tilde
    np.testing.assert_array_equal(b, agent.policy.info().b)
    assert forge(content, {}) == content
    infinite = Agent(dim=2, memories=(10.0, np.inf)).to_bytes()
    assert read_arrays(infinite)["document"]["settings"]["memories"] == [10.0, np.inf]


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
    others = Agent(dim=2, policy=Skeleton, gamma=0.9).to_bytes()
    plain = Agent(dim=2).to_bytes()  # what is in the file is not replaced
    for name, own, content in (("link", OWN, agent.to_bytes()), ("policy", Skeleton, others)):
        refuses(agent, name, lambda content=content: Agent.from_bytes(content), value=None)
        assert Agent.from_bytes(content, **{name: own}).to_bytes() == content
        refuses(agent, name, lambda name=name, own=own: Agent.from_bytes(plain, **{name: own}), value=own)
    steeper = CustomLink("own", lambda z: Logistic().mean(2 * z), lambda z: 2 * Logistic().slope(2 * z))
    with rejects(error=FileError, where="content", code="state") as caught:
        Agent.from_bytes(agent.to_bytes(), link=steeper)
    assert caught.value.__cause__.argument == "state['config']"
    with rejects(error=FileError, code="state"):
        Agent.from_bytes(others, policy=LIVE["OFUL"])


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
        assert find_damage(content) == "format"
    (tmp_path / "nothing").write_bytes(b"nothing")
    with rejects(error=FileError, where=str(tmp_path / "nothing"), code="format"):
        Agent.load(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError):
        Agent.load(tmp_path / "nowhere")


def test_a_file_with_any_byte_changed_is_refused(small: bytes) -> None:
    rng = np.random.default_rng(0)
    for at in range(len(small)):
        changed = bytearray(small)
        changed[at] ^= int(rng.integers(1, 256))
        assert find_damage(bytes(changed)) in ("format", "version", "digest")


def test_zip_bombs_are_refused_unread(small: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = forge(small, {"more": np.zeros(5_000_000)}, save=np.savez_compressed)
    assert len(bomb) < 100_000
    single = forge(small, {}).partition(b"\n")[2]  # many names for one stretch of data
    directory, end = single.index(b"PK\1\2"), single.rindex(b"PK\5\6")
    tail = struct.pack("<4H2LH", 0, 0, 500, 500, 500 * (end - directory), directory, 0)
    stacked = sign(single[:directory] + single[directory:end] * 500 + b"PK\5\6" + tail)
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("was read"))
    assert [find_damage(content) for content in (bomb, stacked)] == ["archive", "archive"]


class Evil:
    def __reduce__(self):
        return (os.system, ("echo pwned",))


def test_no_pickle_is_ever_read(small: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = forge(small, {"policy/t": np.array([Evil()], dtype=object)})
    for module in (pickle, __import__("_pickle")):
        monkeypatch.setattr(module, "loads", lambda *_, **__: pytest.fail("was unpickled"))
        monkeypatch.setattr(module, "load", lambda *_, **__: pytest.fail("was unpickled"))
    assert find_damage(evil) == "archive"


def claim_shape(content: bytes, shape: str) -> bytes:
    """Let the header of the array ``policy/t`` claim another shape, and correct the checksum of the entry."""
    buffer, body = io.BytesIO(), io.BytesIO(content.partition(b"\n")[2])
    with zipfile.ZipFile(body) as archive, zipfile.ZipFile(buffer, "w") as claimed:
        for name in archive.namelist():
            data = archive.read(name)
            if name == "policy/t.npy":
                data = data.replace(b"'shape': (), }".ljust(len(shape) + 14), f"'shape': {shape}, }}".encode())
            claimed.writestr(name, data)
    return sign(buffer.getvalue())


# fmt: off
FORGED_ARRAYS = [
    ("pending", None), ("policy/t", None), ("policy/t", np.array(4.0)), ("policy/more", np.zeros(3)),
    ("policy/t", np.array(1 + 1j)), ("pending", np.zeros((3, 1))),
]
FORGED_ROWS = [
    ("x", np.nan), ("x", 5.0), ("round", 1e6), ("round", -np.inf), ("round", np.nan), ("time", np.inf), ("number", -1),
    ("decision.index", -1), ("decision.prediction", np.nan), ("decision.propensity", 1.5), ("decision.projected", -2.0),
    ("reward", 1e101), ("delay", -1.0), ("looks", 9), ("credited", 2.0),
]
FORGED_VALUES: dict[str, list[Any]] = {  # by the path in the document
    "settings": [None, [], {}], "settings/dim": ["2", 2], "settings/policy": ["nobody", 5],
    "settings/link": [["logistic"]], "settings/more": [1], "settings/lanes": [2], "settings/seed": [1, {"number": "x"}],
    "settings/reward_timeout": [-1], "settings/features": [5, {"shared": ["a"]}],
    "settings/scaling": [{"center": [1.0]}], "feature_names": [["y"]], "columns": [[None], ["b"]],
    "recent": [None, [[1], []]], "tally": [[1, 2]], "tally/decisions": [-1, 1.5, "1"],
    "tally/reward_total": [None, "1", True], "times": [None, [0.0]], "times/1": ["now"], "names": [None, [], {}],
    "names/id": [None, ["d2"]], "names/id/0": [5, "d2", "d1"], "names/arm": [["a"]], "names/arm/0": [None, 1.0, True],
    "names/rival/0": [[]], "names/preferred/0": [{}], "closed": [5, [["d1"]]], "closed/0/0": [[]], "closed/0/1": ["1"],
    "closed/0/2": [True], "closed/0/3": [1], "calibration": [None, {}, []], "calibration/total": [[1, 0.0], [-1] * 5],
    "calibration/fresh": [5, [["a", 0.5]], [["a", 0.5, 1]], [[None, 0.5, 1.0]], [["a", 0.5, 1.0]] * 100],
    "calibration/blocks": [5, [[1]]], "calibration/arms": [[[None, 1, 0.0, 0.0, 0.0, 0.0]], [["a", 1]]],
    "calibration/is_off": [1], "pace": [None, [0.0], [0.0, [[0.5]]]], "pace/0": ["0", None],
}
FORGED_DOCUMENTS = [(path, value) for path, values in FORGED_VALUES.items() for value in values]
# fmt: on


@pytest.mark.parametrize(("name", "array"), FORGED_ARRAYS)
def test_forged_arrays_are_refused(small: bytes, name: str, array: np.ndarray | None) -> None:
    """Not a promise against forgery, but a forged file must not give an agent that breaks later."""
    assert find_damage(forge(small, {name: array})) == "state"


@pytest.mark.parametrize(("name", "value"), FORGED_ROWS)
def test_forged_decisions_are_refused(small: bytes, name: str, value: float) -> None:
    rows = read_arrays(small)["pending"]
    assert find_damage(forge(small, {"pending": rows[:2]})) == "state"
    rows[name] = value
    assert find_damage(forge(small, {"pending": rows})) == "state"


@pytest.mark.parametrize("shape", ["(1000000000000,)", "(-1,)", "('a',)"])
def test_a_header_that_claims_too_much_is_refused(small: bytes, shape: str) -> None:
    assert find_damage(claim_shape(small, shape)) == "archive"


@pytest.mark.parametrize(("path", "value"), FORGED_DOCUMENTS, ids=str)
def test_forged_documents_are_refused(small: bytes, path: str, value: object) -> None:
    assert find_damage(forge(small, {}, path, value)) == "state"


def test_a_file_of_version_7_is_read(small: bytes) -> None:
    """Its calibration has no start: it counts every decision, as that version did."""
    document = read_arrays(small)["document"]
    assert document["calibration"].pop("start") is None
    with_reward = Agent.from_bytes(small)
    with_reward.history([1.0], [[0.5]])
    for content, start in ((small, None), (with_reward.to_bytes(), 0)):
        arrays = read_arrays(content)
        del arrays["document"]["calibration"]["start"]
        buffer = io.BytesIO()
        np.savez(buffer, document=np.array(json.dumps(arrays.pop("document")).encode()), **dict(sorted(arrays.items())))
        assert Agent.from_bytes(sign(buffer.getvalue(), 7)).core.calibration.start == start
        with rejects(error=FileError, code="state"):
            Agent.from_bytes(sign(buffer.getvalue()))


def test_other_versions_archives_and_orders_are_refused(small: bytes) -> None:
    for version in (1, 6, 9, "8.0", "seven"):
        with rejects(error=FileError, code="version") as caught:
            Agent.from_bytes(sign(small.partition(b"\n")[2], version))
        assert f"version {str(version)!r}" in caught.value.problem
    for document in (b"[1]", b"[" * 100_000, b"\xff"):
        np.savez(buffer := io.BytesIO(), document=np.array(document))
        assert find_damage(sign(buffer.getvalue())) == "archive"
    for body in (b"", b"nonsense", b"PK\5\6" + bytes(18)):
        assert find_damage(sign(body)) == "archive"
    ordered = Agent(features={"shared": {"b": (0, 1), "a": (0, 1)}}).to_bytes()
    sorted_fields = {name: {"low": 0.0, "high": 1.0} for name in "ab"}
    with rejects(error=FileError, code="state") as caught:
        Agent.from_bytes(forge(ordered, {}, "settings/features/shared", sorted_fields))
    assert caught.value.__cause__.argument == "feature_names"


@pytest.mark.parametrize(("owner", "name"), [(os, "fsync"), (Path, "replace"), (Agent, "to_bytes")])
def test_a_crash_while_saving_leaves_the_old_file_whole(
    owner: object, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, agent = tmp_path / "agent.windvane", Agent(dim=2)
    agent.save(path)
    before = path.read_bytes()
    agent.decide([[0.1, 0.2]])

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            agent.save(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["agent.windvane"]
    agent.save(str(path))
    assert Agent.load(str(path)).info().counts.decisions == 1
