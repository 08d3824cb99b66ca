"""The kill drill: callers that do all there is to do until the server is gone, and a ledger of what was answered."""

from __future__ import annotations

import http.client
import json
import random
import threading
from typing import Any

from support.server import Server, until
from windvane.service.streams import Stream

WORKERS = 4
FEATURES = {
    "shared": {"age": {"low": 0, "high": 100}},
    "by_arm": {"device": {"values": ["phone", "desk"]}},
    "arms": ["a", "b", "c"],
}


class Caller:
    """One connection, which ends with the server."""

    def __init__(self, server: Server) -> None:
        self._connection = http.client.HTTPConnection(server.address.removeprefix("http://"), timeout=30)

    def __call__(self, method: str, path: str, body: Any = None, key: str | None = None) -> tuple[int, Any]:
        headers = {"content-type": "application/json"} | ({} if key is None else {"idempotency-key": key})
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())

    def read_events(self, name: str, after: int) -> list[Any]:
        self._connection.request("GET", f"/v1/streams/{name}/events?after={after}")
        return [json.loads(line) for line in self._connection.getresponse().read().splitlines()]

    def close(self) -> None:
        self._connection.close()


class Ledger:
    """What was asked of a stream, and what was answered."""

    def __init__(self, name: str) -> None:
        self.name, self.path = name, f"/v1/streams/{name}"
        self.requests: dict[str, Any] = {}  # by key: the body, or the items of the batch
        self.decisions: dict[str, dict[str, Any]] = {}  # by key: the answer
        self.open: list[str] = []  # decisions without a reward
        self.values: dict[str, float] = {}  # by decision: the reward that was sent
        self.receipts: dict[str, str] = {}  # by decision: "recorded" or "expired"
        self.log: list[dict[str, Any]] = []
        self.shadow: Stream | None = None  # the stream as its events, one after the other, make it

    def draw_body(self, rng: random.Random) -> Any:
        if self.name == "fields":
            return {"context": {"age": rng.randint(0, 100), "device": rng.choice(["phone", "desk"])}}
        return {"arms": {arm: [rng.uniform(-0.7, 0.7), rng.uniform(-0.7, 0.7)] for arm in ("x", "y", "z")}}

    def add_decision(self, key: str, status: int, answer: Any) -> None:
        assert status == 201, (status, answer)
        known = self.decisions.setdefault(key, answer)
        assert known == answer, f"{key}: {known} and then {answer}"

    def add_receipt(self, decision: str, status: int, answer: Any) -> None:
        assert status == 200, (status, answer)
        known = self.receipts.setdefault(decision, "expired" if answer["status"] == "expired" else "recorded")
        assert (known == "expired") == (answer["status"] == "expired"), (known, answer)

    def read_on(self, call: Caller) -> None:
        """Fetch what is new in the log; its numbers have no gap."""
        self.log += call.read_events(self.name, after=len(self.log))
        assert [event["number"] for event in self.log] == list(range(1, len(self.log) + 1))

    def check(self) -> None:
        """Check that all that was acknowledged is in the log, and once."""
        by_key: dict[str, list[dict[str, Any]]] = {}
        by_decision: dict[str, dict[str, list[Any]]] = {}
        for event in self.log:
            if event["key"] is not None:
                by_key.setdefault(event["key"], []).append(event)
            if event["decision"] is not None:
                kinds = by_decision.setdefault(event["decision"], {"decided": [], "rewarded": [], "late": []})
                kinds[event["kind"]].append(event.get("value"))
        assert all(len(events) == 1 for events in by_key.values())
        assert all(len(kind) <= 1 for kinds in by_decision.values() for kind in kinds.values())
        assert all(kinds["decided"] for kinds in by_decision.values())
        for key, answer in self.decisions.items():
            (event,) = by_key[key]
            assert {name: event[name] for name in answer} == answer
        for decision, status in self.receipts.items():
            kinds, value = by_decision[decision], [self.values[decision]]
            assert (kinds["rewarded"], kinds["late"]) == ((value, []) if status == "recorded" else ([], value))


class Load:
    """Callers that do all there is to do until the server is gone."""

    def __init__(self, ledgers: dict[str, Ledger]) -> None:
        self.ledgers, self.errors, self.keys = ledgers, list[str](), 0
        self._guard = threading.Lock()
        self._threads: list[threading.Thread] = []

    def start(self, server: Server, seed: int) -> None:
        self._threads = [
            threading.Thread(target=self._work, args=(Caller(server), random.Random(f"{seed} {worker}")))
            for worker in range(WORKERS)
        ]
        for thread in self._threads:
            thread.start()

    def wait(self, count: int) -> None:
        """Wait until so many more decisions and rewards are acknowledged."""
        goal = self.acknowledged + count
        until(lambda: self.acknowledged >= goal or self.errors, 60.0)

    @property
    def acknowledged(self) -> int:
        return sum(len(ledger.decisions) + len(ledger.receipts) for ledger in self.ledgers.values())

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        assert not self.errors, self.errors[0]

    def _work(self, call: Caller, rng: random.Random) -> None:
        work = (self._decide, self._decide_batch, self._reward, self._reward_batch, self._repeat, self._configure)
        try:
            while True:
                rng.choices(work, (6, 3, 8, 3, 2, 1))[0](call, rng, rng.choice(list(self.ledgers.values())))
        except (OSError, http.client.HTTPException):
            pass  # killed
        except Exception as error:
            self.errors.append(repr(error))
        finally:
            call.close()

    def _draw_key(self, ledger: Ledger, body: Any) -> str:
        with self._guard:
            self.keys += 1
            key = f"k{self.keys}"
        ledger.requests[key] = body
        return key

    def _take_open(self, ledger: Ledger, rng: random.Random, most: int) -> list[str]:
        with self._guard:
            count = min(most, len(ledger.open))
            decisions = [ledger.open.pop(rng.randrange(len(ledger.open))) for _ in range(count)]
        ledger.values |= {decision: float(rng.randint(0, 1)) for decision in decisions}
        return decisions

    def _decide(self, call: Caller, rng: random.Random, ledger: Ledger) -> None:
        key = self._draw_key(ledger, ledger.draw_body(rng))
        self._ask_again(call, ledger, key)
        ledger.open.append(ledger.decisions[key]["id"])

    def _decide_batch(self, call: Caller, rng: random.Random, ledger: Ledger) -> None:
        keys = [self._draw_key(ledger, ledger.draw_body(rng)) for _ in range(rng.randint(1, 20))]
        items = [{**ledger.requests[key], "key": key} for key in keys]
        ledger.requests |= dict.fromkeys(keys, items)  # to be repeated as it was asked
        self._ask_again(call, ledger, keys[0])
        ledger.open += [ledger.decisions[key]["id"] for key in keys]

    def _reward(self, call: Caller, rng: random.Random, ledger: Ledger) -> None:
        for decision in self._take_open(ledger, rng, 1):
            self._send_reward(call, ledger, decision)

    def _send_reward(self, call: Caller, ledger: Ledger, decision: str) -> None:
        path = f"{ledger.path}/decisions/{decision}/reward"
        ledger.add_receipt(decision, *call("PUT", path, {"value": ledger.values[decision]}))

    def _reward_batch(self, call: Caller, rng: random.Random, ledger: Ledger) -> None:
        if decisions := self._take_open(ledger, rng, 10):
            self._send_rewards(call, ledger, decisions)

    def _send_rewards(self, call: Caller, ledger: Ledger, decisions: list[str]) -> None:
        rewards = [{"decision": decision, "value": ledger.values[decision]} for decision in decisions]
        status, answer = call("POST", f"{ledger.path}/rewards/batch", {"rewards": rewards})
        assert status == 200, (status, answer)
        for decision, result in zip(decisions, answer["results"], strict=True):
            ledger.add_receipt(decision, result["status"], result.get("receipt"))

    def _repeat(self, call: Caller, rng: random.Random, ledger: Ledger) -> None:
        """Ask again for a decision that was acknowledged, and send a reward again."""
        if keys := list(ledger.decisions):
            self._ask_again(call, ledger, rng.choice(keys))
        if decisions := list(ledger.receipts):
            self._send_reward(call, ledger, rng.choice(decisions))

    def _ask_again(self, call: Caller, ledger: Ledger, key: str) -> None:
        """Send the whole request that had this key."""
        body = ledger.requests[key]
        if isinstance(body, list):
            status, answer = call("POST", f"{ledger.path}/decisions/batch", {"decisions": body})
            assert status == 200, (status, answer)
            for item, result in zip(body, answer["results"], strict=True):
                ledger.add_decision(item["key"], result["status"], result.get("decision"))
        else:
            ledger.add_decision(key, *call("POST", f"{ledger.path}/decisions", body, key))

    def _configure(self, call: Caller, rng: random.Random, ledger: Ledger) -> None:
        timeout: Any = rng.choice(["200ms", "400ms"]) if ledger.name == "vectors" else rng.randint(15, 40)
        changes = {"reward_timeout": timeout, "epsilon": rng.choice([0.0, 0.2]), "title": f"v{rng.random()}"}
        assert call("PATCH", ledger.path, changes)[0] == 200

    def retry(self, call: Caller, ledger: Ledger) -> tuple[int, int]:
        """Ask again what was not answered; return how much that was, and how much of it was in the log."""
        logged = {event["key"]: event["decision"] for event in ledger.log if event["key"] is not None}
        rewarded = {event["decision"] for event in ledger.log if event["kind"] in ("rewarded", "late")}
        doubtful = [key for key in ledger.requests if key not in ledger.decisions]
        for key in doubtful:
            if key not in ledger.decisions:
                self._ask_again(call, ledger, key)
            ledger.open.append(ledger.decisions[key]["id"])
            assert logged.get(key) in (None, ledger.decisions[key]["id"])
        unsure = [decision for decision in ledger.values if decision not in ledger.receipts]
        if unsure:
            self._send_rewards(call, ledger, unsure)
        known = sum(key in logged for key in doubtful) + sum(decision in rewarded for decision in unsure)
        return len(doubtful) + len(unsure), known
