"""The life of a shop: five banners, a month of history, a banner more and one less, other features, a restart, an
upgrade, a refit, and a backup that is restored. Every prediction before and after each step is accounted for."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.server import Local, run_local
from support.stores import verify
from windvane import Agent
from windvane.service.backups import back_up, restore
from windvane.service.store import SqliteStore

RATES = {"spring": 0.1, "summer": 0.2, "autumn": 0.3, "winter": 0.4, "sale": 0.6, "outlet": 0.8}
BANNERS = ["spring", "summer", "autumn", "winter", "sale"]
FEATURES: dict[str, Any] = {"shared": {"hour": [0, 24]}, "by_arm": {"device": ["phone", "desktop"]}, "arms": BANNERS}
CONTEXTS = [{"hour": hour, "device": device} for hour in (1.0, 13.0, 22.5) for device in ("phone", "desktop")]
Predictions = dict[tuple[int, str], tuple[float, float]]
EXACTLY, UP_TO_ROUNDING = 0.0, 1e-9


class Shop:
    """The shop's side of the service: it keeps what was predicted for every decision right before it."""

    def __init__(self) -> None:
        self.rng, self.more = np.random.default_rng(11), dict[str, Any]()  # fields that contexts have got since
        self.predicted: dict[str, float] = {}
        self.pending: dict[str, dict[str, Any]] = {}

    def predict(self, service: Local, arms: list[str], **more: Any) -> Predictions:
        """What the service thinks of some banners in all contexts: predictions and bonuses."""
        found: Predictions = {}
        for i, context in enumerate(CONTEXTS):
            body = {"arms": arms, "context": {**context, **self.more, **more}}
            for each in service.post("/v1/streams/shop/predict", body).json()["arms"]:
                found[i, each["arm"]] = each["prediction"], each["bonus"]
        assert len(found) == len(CONTEXTS) * len(arms)
        return found

    def trade(self, service: Local, visitors: int) -> None:
        """Let visitors come; most that click do so before the next comes, some do later, and some never."""
        for _ in range(visitors):
            body = {"context": {**CONTEXTS[self.rng.integers(len(CONTEXTS))], **self.more}}
            ranked = service.post("/v1/streams/shop/rank", body).json()["arms"]
            decision = service.decide(body=body)
            assert ranked[0]["arm"] == decision["preferred"]
            (own,) = [each for each in ranked if each["arm"] == decision["arm"]]
            assert (own["prediction"], own["bonus"]) == (decision["prediction"], decision["bonus"])
            self.predicted[decision["id"]] = own["prediction"]
            self.pending[decision["id"]] = decision
            if self.rng.random() < 0.9:
                self.click(service, decision)

    def click(self, service: Local, decision: dict[str, Any]) -> None:
        del self.pending[decision["id"]]
        value = float(self.rng.random() < RATES[decision["arm"]])
        assert service.reward(decision["id"], value).json()["status"] == "recorded"


def teach_a_month(service: Local, rng: np.random.Generator) -> Predictions:
    """Send a month of history, and return what an agent predicts that was taught the same."""
    n, start = 800, datetime.now(UTC) - timedelta(days=30)
    arms = [BANNERS[i] for i in rng.integers(len(BANNERS), size=n)]
    contexts = [CONTEXTS[i] for i in rng.integers(len(CONTEXTS), size=n)]
    rewards = [float(rng.random() < RATES[arm]) for arm in arms]
    times = [(start + i * timedelta(minutes=50)).isoformat() for i in range(n)]
    body = {"rewards": rewards, "contexts": contexts, "arms": arms, "times": times}
    assert service.post("/v1/streams/shop/history", body).json() == {"rows": n}
    agent = Agent(features=FEATURES, seed=4)
    agent.history(rewards, contexts=contexts, arms=arms, times=times)
    rows = [agent.predict(BANNERS, context=context) for context in CONTEXTS]
    return {(i, arm): (row[arm].prediction, row[arm].bonus) for i, row in enumerate(rows) for arm in BANNERS}


def assert_same(one: Predictions, other: Predictions, tolerance: float) -> None:
    """Expect the same predictions and bonuses for the banners that both have."""
    both = one.keys() & other.keys()
    assert both
    for place in both:
        assert one[place] == pytest.approx(other[place], rel=tolerance, abs=0.0), place


def age_snapshot(path: Path) -> None:
    """Let the snapshot be one that a release with another format of agents has written."""
    with closing(SqliteStore(path)) as store:
        snapshot = store.read_snapshot(1)
        assert snapshot is not None
        line, _, rest = snapshot.agent.partition(b"\n")
        kind, _, digest = line.rsplit(b" ", 2)
        store.append([], [(1, snapshot._replace(agent=b" ".join([kind, b"1", digest]) + b"\n" + rest))])


@pytest.mark.sqlite
def test_the_life_of_a_shop(tmp_path: Path) -> None:
    store, backup, shop = tmp_path / "shop.db", tmp_path / "backup.db", Shop()

    with run_local(store) as service:
        # Five banners. Nothing is known: every prediction is one half, and a half-life is not given.
        service.create(features=FEATURES, seed=4, epsilon=0.1, reward_timeout=60, default_reward=0.0)
        assert {prediction for prediction, _ in shop.predict(service, BANNERS).values()} == {0.5}

        # A month of history: the service has become what the library becomes.
        taught = teach_a_month(service, shop.rng)
        known = shop.predict(service, BANNERS)
        assert_same(known, taught, EXACTLY)
        for (_, arm), (prediction, _) in known.items():
            assert abs(prediction - RATES[arm]) < 0.2
        shop.trade(service, 40)

        # A banner more: nothing changes for the others; of the new one only what is shared is known.
        before = shop.predict(service, BANNERS)
        six = {**FEATURES, "arms": [*BANNERS, "outlet"]}
        service.configure(features=six)
        after = shop.predict(service, six["arms"])
        assert_same(after, before, UP_TO_ROUNDING)
        for i in range(len(CONTEXTS)):
            assert after[i, "outlet"][1] > max(after[i, arm][1] for arm in BANNERS)  # it is the least known
        shop.trade(service, 40)
        assert service.info()["counts"]["decisions"] == 80

        # A banner less: nothing changes for those that are left. A visitor who saw it may still click.
        late = service.decide(body={"arms": ["spring"], "context": CONTEXTS[0]})
        before = shop.predict(service, six["arms"])
        five = {**FEATURES, "arms": [arm for arm in six["arms"] if arm != "spring"]}
        service.configure(features=five)
        assert_same(shop.predict(service, five["arms"]), before, UP_TO_ROUNDING)
        shop.predicted[late["id"]], shop.pending[late["id"]] = late["prediction"], late
        shop.click(service, late)

        # Other features: what a new field means is not known yet. No prediction changes, and all are less certain.
        before = shop.predict(service, five["arms"])
        fields = {**five, "shared": {**FEATURES["shared"], "weather": ["sun", "rain"], "basket": [0, 500]}}
        service.configure(features=fields)
        for more in ({"weather": "sun", "basket": 0}, {"weather": "rain", "basket": 499.5}):
            after = shop.predict(service, five["arms"], **more)
            for place, (prediction, bonus) in after.items():
                assert prediction == pytest.approx(before[place][0], rel=UP_TO_ROUNDING)
                assert bonus > before[place][1]
        shop.more = {"weather": "sun", "basket": 20}
        shop.trade(service, 40)
        before, open_decisions = shop.predict(service, five["arms"]), service.info()["counts"]["pending"]

    with run_local(store) as service:  # a restart: nothing changes at all
        assert_same(shop.predict(service, five["arms"]), before, EXACTLY)
        assert service.info()["counts"]["pending"] == open_decisions
        shop.trade(service, 20)
        before = shop.predict(service, five["arms"])

    age_snapshot(store)
    assert [note.code for note in verify(store).streams[0].notes] == ["other_version"]
    with run_local(store) as service:  # an upgrade: the log is replayed
        assert_same(shop.predict(service, five["arms"]), before, EXACTLY)

        # A refit under a shorter memory, compared and undone.
        report = service.post("/v1/streams/shop/refit", {"half_life": 200}).json()
        assert report["comparison"]["decisions"] == len(shop.predicted)
        refitted = shop.predict(service, five["arms"])
        assert refitted != before
        assert service.post("/v1/streams/shop/refit/undo").status_code == 200
        assert_same(shop.predict(service, five["arms"]), before, EXACTLY)

        # A backup, and what happens after it.
        back_up(store, backup)
        before, safe = shop.predict(service, five["arms"]), set(shop.predicted)
        shop.trade(service, 20)
        assert shop.predict(service, five["arms"]) != before

    restore(backup, store, replace=True, record_loss=True)
    with run_local(store) as service:  # the backup: as it was then, and the log says how much is missing
        assert_same(shop.predict(service, five["arms"]), before, EXACTLY)
        log = service.events()
        assert log[-1]["kind"] == "lost"
        decided = {row["decision"]: row["prediction"] for row in log if row["kind"] == "decided"}
        assert decided == {id_: shop.predicted[id_] for id_ in safe}
        shop.trade(service, 10)
    report_ = verify(store)
    assert report_.is_sound, report_
