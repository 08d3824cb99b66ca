"""The how-to pages of the library: each page's snippets print what it shows, and what its text says is so."""

from __future__ import annotations

import functools
import io
import logging
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import revenue

import windvane
from support.pages import DOCS, LIBRARY_HOWTOS, PageRun, run_page
from support.refusals import refuses


@functools.cache
def run(page: str) -> PageRun:
    return run_page(DOCS / "howto" / f"{page}.md")


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """One page changes their number."""
    threads = windvane.get_threads()
    yield
    windvane.set_threads(threads)


@pytest.mark.parametrize("page", LIBRARY_HOWTOS)
def test_a_page_shows_what_its_snippets_print(page: str) -> None:
    result = run(page)
    assert result.shown, "a how-to has snippets"
    assert result.printed == result.shown


# --- choose-link-and-bounds ------------------------------------------------------------------------------------------


def test_links_have_the_largest_products_that_the_page_lists() -> None:
    found = {name: windvane.get_link(name).largest_product for name in ("logistic", "poisson", "probit")}
    assert {name: round(product, 1) for name, product in found.items()} == {
        "logistic": 29.0, "poisson": 13.8, "probit": 7.4,
    }  # fmt: skip


def test_only_a_bound_that_is_too_small_raises_the_alert() -> None:
    names = run("choose-link-and-bounds").names
    assert "norm_bound_active" in {alert.code for alert in names["small"].alerts}
    assert names["large"].alerts == names["default"].alerts == []


def test_policies_with_a_proof_use_one_as_the_bound_and_the_default_learns_it() -> None:
    declared = {"arms": ["a", "b"]}
    assert windvane.Agent(features=declared, policy="BVD-GLM-UCB", gamma=0.9).settings["S"] == 1.0
    assert windvane.Agent(features=declared).settings["S"] is None


# --- choose-forgetting -----------------------------------------------------------------------------------------------


def test_the_memory_follows_from_the_half_life_and_only_one_rate_is_accepted() -> None:
    declared = {"arms": ["a", "b"]}
    agent = windvane.Agent(features=declared, half_life="2d")
    assert agent.memory == pytest.approx(2 * 86400 / math.log(2), rel=1e-6)
    with refuses("gamma"):
        windvane.Agent(features=declared, half_life="2d", gamma=0.9)


def test_forgetting_pays_after_the_change() -> None:
    names = run("choose-forgetting").names
    sell, declared = names["sell"], names["declared"]
    earned = [
        [sell(windvane.Agent(features=declared, **setting), 3000, seed=seed) for seed in range(3)]
        for setting in ({}, {"gamma": 1.0})
    ]
    assert np.mean(earned[0]) > np.mean(earned[1]) + 0.02


# --- contexts-and-features -------------------------------------------------------------------------------------------


def test_shared_fields_move_all_arms_alike_and_by_arm_fields_do_not() -> None:
    agent = windvane.Agent(features={"shared": {"hour": (0, 24)}, "by_arm": {"age": (18, 99)}, "arms": ["a", "b"]})
    rng = np.random.default_rng(0)
    for _ in range(200):
        context = {"hour": int(rng.integers(25)), "age": int(rng.integers(18, 100))}
        decision = agent.decide(context=context)
        agent.reward(decision, float(rng.random() < (0.6 if decision.arm == "a" else 0.3)))

    def gap(**context: int) -> float:
        shown = agent.predict(context=context)
        odds = [math.log(each.prediction / (1 - each.prediction)) for each in shown.values()]
        return odds[0] - odds[1]

    # The default policy's mean is mu(<x, theta>), so the gap in log-odds is linear in the features.
    assert gap(hour=2, age=40) == pytest.approx(gap(hour=22, age=40), abs=1e-9)
    assert abs(gap(hour=2, age=20) - gap(hour=2, age=90)) > 1e-3


@pytest.mark.parametrize(
    ("context", "pointer"),
    [({"age": 17}, "#/context/age"), ({}, "#/context/age"), ({"age": 20, "agee": 1}, "#/context/agee")],
    ids=["outside", "missing", "extra"],
)
def test_a_wrong_context_is_refused_by_name(context: dict[str, Any], pointer: str) -> None:
    shop = run("contexts-and-features").names["shop"]
    before = shop.to_bytes()
    with pytest.raises(windvane.ArgumentError) as caught:
        shop.decide(context=context)
    assert caught.value.pointer == pointer
    assert shop.to_bytes() == before


def test_declared_features_have_norm_at_most_one() -> None:
    features = run("contexts-and-features").names["features"]
    for hour in (0, 24):
        arms = {"summer": {"discount": 50}, "outlet": {"discount": 0}}
        vectors = features.vectors({"hour": hour, "age": 99, "plan": "pro"}, arms)
        assert (np.linalg.norm(vectors, axis=1) <= 1.0 + 1e-12).all()


# --- late-rewards ----------------------------------------------------------------------------------------------------


def test_a_reward_at_the_timeout_is_in_time_and_a_second_one_is_a_conflict() -> None:
    agent = windvane.Agent(features={"arms": ["a", "b"]}, reward_timeout="1d", default_reward=0.0)
    agent.decide(now=0, id="first")
    assert agent.reward("first", 1.0, now=86400) == "recorded"
    with pytest.raises(windvane.ConflictingRewardError):
        agent.reward("first", 0.0, now=86400)
    with pytest.raises(windvane.UnknownDecisionError):
        agent.reward("second", 0.0, now=86400)


def test_rewards_are_held_until_the_timeout() -> None:
    agent = windvane.Agent(features={"arms": ["a", "b"]}, reward_timeout=2, default_reward=0.0)
    agent.reward(agent.decide(), 1.0)
    assert (agent.info().counts.held, agent.info().counts.settled) == (1, 0)
    for _ in range(3):
        agent.decide()
    agent.expire()
    assert (agent.info().counts.held, agent.info().counts.settled) == (0, 1)


@pytest.mark.parametrize("learn", ["at_timeout", "early"])
def test_nothing_is_learned_on_the_first_day(learn: str) -> None:
    """Also early: 20 rewards of finished decisions must be known first, which here takes most of an hour more."""
    agent = windvane.Agent(features={"arms": ["a", "b"]}, reward_timeout="1d", default_reward=0.0, learn=learn)
    first_look = None
    for minute in range(26 * 60):
        now = 60.0 * minute
        decision = agent.decide(now=now)
        if minute % 2 == 0:
            agent.reward(decision, 1.0, now=now)
        assert (decision.prediction == 0.5) == (minute <= 24 * 60), minute
        if agent.core.early is not None and agent.core.early.model.ages and first_look is None:
            first_look = minute
    if learn == "early":  # every other decision has a reward, and the counts fade a little
        assert first_look is not None
        assert 40 <= first_look - 24 * 60 <= 45
    assert agent.info().mean_reward == pytest.approx(0.5, abs=0.02)


def test_the_oldest_decisions_are_dropped_and_not_learned() -> None:
    agent = windvane.Agent(features={"arms": ["a", "b"]}, max_pending=50)
    for _ in range(150):
        agent.decide()
    assert agent.info().counts.dropped == 100
    assert [alert.code for alert in agent.alerts] == ["decisions_dropped"]


# --- changing-arms ---------------------------------------------------------------------------------------------------


def test_a_new_article_is_predicted_by_its_fields() -> None:
    page, tonight = run("changing-arms").names["page"], run("changing-arms").names["tonight"]
    predicted = page.predict(tonight)
    assert predicted["cup final"].prediction > predicted["opera"].prediction
    assert predicted["cup final"].prediction > predicted["old cup final"].prediction


def test_changed_ranges_and_policies_that_restart_refuse_new_features() -> None:
    declared = {"shared": {"hour": (0, 24)}, "arms": ["a", "b"]}
    with refuses("features"):
        windvane.Agent(features=declared).configure(features={**declared, "shared": {"hour": (0, 12)}})
    bob = windvane.Agent(features=declared, policy="BOB-BVD-GLM-UCB", horizon=1000)
    with refuses("features"):
        bob.add_arm("c")


def test_removing_an_arm_keeps_the_predictions_of_the_others() -> None:
    agent = windvane.Agent(features={"arms": ["a", "b", "c"]})
    rng = np.random.default_rng(0)
    for _ in range(60):
        agent.reward(agent.decide(), float(rng.random() < 0.4))
    before = agent.predict(["a", "b"])
    agent.remove_arm("c")
    after = agent.predict(["a", "b"])
    for arm, each in before.items():
        assert after[arm].prediction == pytest.approx(each.prediction, abs=1e-9)
        assert after[arm].bonus == pytest.approx(each.bonus, abs=1e-9)


# --- revenue-and-counts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("link", "range_"), [("logistic", (0, 2)), ("probit", (0, 2)), ("poisson", (-1, 5))])
def test_ranges_that_a_link_does_not_accept_are_refused(link: str, range_: tuple[float, float]) -> None:
    with refuses("reward_range"):
        windvane.Agent(features={"arms": ["a", "b"]}, link=link, reward_range=range_)


def test_counts_need_not_be_whole() -> None:
    agent = windvane.Agent(features={"arms": ["a", "b"]}, link="poisson", reward_range=(0, 20))
    assert agent.reward(agent.decide(), 2.5) == "recorded"


def test_without_a_range_untried_arms_look_as_if_euros_were_shares() -> None:
    bonuses = []
    for range_ in ((0.0, 300.0), None):
        agent = windvane.Agent(features={"arms": ["a", "b"]}, link="identity", reward_range=range_)
        agent.reward(agent.decide(["a"]), 0.0)
        bonuses.append(agent.predict()["b"].bonus)
    assert bonuses[0] > 100 * bonuses[1]


RULE = {"counts?": "poisson", "amounts?": "divide|logistic", "gains? (and|or) (a )?loss(es)?": "identity"}
"""What is recommended for a kind of reward, as regular expressions: in the tables of two pages, and in errors."""


@pytest.mark.parametrize("page", ["choose-link-and-bounds", "revenue-and-counts"])
def test_one_rule_for_the_link_on_all_pages(page: str) -> None:
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", (DOCS / "howto" / f"{page}.md").read_text(encoding="utf-8"), re.M)
    for kind, setting in RULE.items():
        (advice,) = (advice for reward, advice in rows if re.match(rf"(an? )?{kind}(?![,\w])", reward))
        assert re.search(setting, advice), (kind, advice)
        assert not any(re.search(other, advice) for other in {*RULE.values()} - {setting})


def test_errors_about_larger_rewards_follow_the_rule() -> None:
    agent = windvane.Agent(features={"arms": ["a", "b"]})
    with refuses("value") as by_reward:
        agent.reward(agent.decide(), 35.0)
    with refuses("reward_range") as by_range:
        windvane.Agent(features={"arms": ["a", "b"]}, reward_range=(0, 200))
    for caught in (by_reward, by_range):
        amounts, counts, gains = re.split("; |, ", caught.value.hint)
        assert "divide amounts" in amounts
        assert ("poisson" in counts, "counts" in counts) == (True, True)
        assert ("identity" in gains, "gains and losses" in gains) == (True, True)


def test_the_identity_link_accepts_every_number_only_without_a_range() -> None:
    features = {"arms": ["a", "b"]}
    free = windvane.Agent(features=features, link="identity")
    assert free.reward(free.decide(), 250.0) == "recorded"
    bounded = windvane.Agent(features=features, link="identity", reward_range=(0, 200))
    with refuses("value"):
        bounded.reward(bounded.decide(), 250.0)


def test_the_figures_of_the_page_are_those_of_its_benchmark() -> None:
    """Its worlds, its caps, and the mean of a capped amount, by simulation."""
    for means, cap in ((np.array([20.0, 110.0]), 200.0), (np.array([6.0, 20.0]), 60.0)):
        amounts = np.minimum(np.random.default_rng(0).gamma(2.0, means / 2.0, (200_000, 2)), cap)
        error = amounts.std(axis=0) / math.sqrt(len(amounts))
        assert (abs(revenue.expect_capped(means, cap) - amounts.mean(axis=0)) < 5.0 * error).all()
    for way in revenue.WAYS:
        played, chance, best, _ = revenue.play("few buy", way, 30, seed=0)
        assert 0.0 < played <= best
        assert chance < best


# --- priors-from-history ---------------------------------------------------------------------------------------------


def test_a_history_is_learned_whole_or_not_at_all() -> None:
    names = run("priors-from-history").names
    by_clock, now = names["by_clock"], names["now"]
    before = by_clock.to_bytes()
    rows = {"contexts": [{"topic": "login"}] * 2, "arms": ["generalists"] * 2, "now": now + 100}
    with refuses("rewards"):
        by_clock.history([1.0, 7.0], times=[now + 70, now + 80], **rows)
    with refuses("times"):
        by_clock.history([1.0, 0.0], times=[now + 70, now + 900], **rows)
    with refuses("times"):
        by_clock.history([1.0, 0.0], **rows)
    assert by_clock.to_bytes() == before


def test_a_weight_counts_as_that_many_rewards() -> None:
    counted, repeated = (windvane.Agent(dim=2, policy="OFUL") for _ in range(2))
    counted.history([0.5], [[0.6, 0.1]], weights=[2.0])
    repeated.history([0.5] * 2, [[0.6, 0.1]] * 2)
    np.testing.assert_allclose(counted.theta, repeated.theta, atol=1e-12)


def test_a_prior_is_the_initial_estimate_and_restarting_policies_refuse_it() -> None:
    names = run("priors-from-history").names
    np.testing.assert_allclose(names["new"].theta, names["agent"].theta, atol=1e-9)
    with refuses("prior"):
        windvane.Agent(dim=2, policy="BOB-BVD-GLM-UCB", horizon=100, prior=[0.1, 0.2])


# --- explain-and-watch -----------------------------------------------------------------------------------------------


def test_a_propensity_is_the_share_of_random_play_plus_the_rest_for_the_preferred_arm() -> None:
    agent = windvane.Agent(features={"arms": ["a", "b", "c", "d"]}, epsilon=0.2)
    for _ in range(50):
        decision = agent.decide()
        preferred = decision.arm == decision.preferred
        assert decision.propensity == pytest.approx(0.2 / 4 + 0.8 * preferred)


def test_a_closed_decision_is_explained_by_its_object_only() -> None:
    agent = windvane.Agent(features={"arms": ["a", "b"]})
    decision = agent.decide()
    assert agent.explain(decision.id) == agent.explain(decision)
    agent.reward(decision, 1.0)
    with pytest.raises(windvane.UnknownDecisionError):
        agent.explain(decision.id)
    assert agent.explain(decision).arm == decision.arm


def test_predicting_and_ranking_change_nothing() -> None:
    agent = run("explain-and-watch").names["agent"]
    before = agent.to_bytes()
    agent.predict(now=1_770_000_000), agent.rank(now=1_770_000_000)
    assert agent.to_bytes() == before


def test_alerts_are_logged() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger("windvane.agent").addHandler(handler)
    try:
        agent = windvane.Agent(features={"arms": ["a", "b"]}, reward_timeout=1000, default_reward=0.0, half_life=100)
        for _ in range(100):
            agent.decide()
    finally:
        logging.getLogger("windvane.agent").removeHandler(handler)
    assert "timeout_exceeds_memory" in stream.getvalue()


def test_the_page_lists_all_codes_of_alerts() -> None:
    from windvane.agent.info import CODES

    text = (DOCS / "howto" / "explain-and-watch.md").read_text(encoding="utf-8")
    table = text[text.index("| code |") : text.index("`decide` also writes")]
    assert [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")] == list(CODES)


# --- save-load-upgrade -----------------------------------------------------------------------------------------------


def test_only_some_settings_of_a_running_agent_change() -> None:
    agent = windvane.Agent(features={"arms": ["a", "b"]})
    for name, value in {"S": 2.0, "half_life": 100, "policy": "OFUL", "link": "poisson"}.items():
        with refuses(name):
            agent.configure(**{name: value})


def test_a_damaged_file_is_refused() -> None:
    content = bytearray(run("save-load-upgrade").names["again"].to_bytes())
    content[-10] ^= 1
    with pytest.raises(windvane.agent.FileError) as caught:
        windvane.Agent.from_bytes(bytes(content))
    assert caught.value.code == "digest"


def test_a_refit_of_an_empty_agent_on_the_log_knows_what_the_log_knows() -> None:
    names = run("save-load-upgrade").names
    fresh = windvane.Agent(features={"arms": list(names["rates"])}, epsilon=0.2, seed=3)
    again, comparison = fresh.refit(names["log"])
    assert again.info().counts == names["agent"].info().counts
    np.testing.assert_allclose(again.theta, names["agent"].theta, atol=1e-9)
    assert comparison.old.log_loss == pytest.approx(comparison.new.log_loss, abs=1e-9)


# --- arrays-and-lanes ------------------------------------------------------------------------------------------------


def test_lanes_together_decide_as_policies_alone() -> None:
    rng = np.random.default_rng(0)
    together = windvane.BVDGLMUCB(dim=2, gamma=[0.9, 0.99], lanes=[7, 8])
    alone = [windvane.BVDGLMUCB(dim=2, gamma=gamma, lanes=[lane]) for gamma, lane in ((0.9, 7), (0.99, 8))]
    for _ in range(20):
        arms, rewards = rng.uniform(-0.7, 0.7, (2, 6, 2)), (rng.random(2) < 0.5).astype(float)
        chosen = together.select(arms)
        assert chosen.tolist() == [int(each.select(arms[i, None])[0]) for i, each in enumerate(alone)]
        together.update(arms[[0, 1], chosen], rewards)
        for i, each in enumerate(alone):
            each.update(arms[i, chosen[i]][None], rewards[i])


# --- custom-links, write-a-policy ------------------------------------------------------------------------------------


def test_a_saved_agent_needs_its_custom_link_or_policy_again() -> None:
    link, policy = run("custom-links").names["loglog"], run("write-a-policy").names["FixedBonus"]
    for name, code, settings in (("link", link, {}), ("policy", policy, {"gamma": 0.9})):
        agent = windvane.Agent(features={"arms": ["a", "b"]}, **{name: code}, **settings)
        agent.reward(agent.decide(), 1.0)
        with refuses(name):
            windvane.Agent.from_bytes(agent.to_bytes())
        assert windvane.Agent.from_bytes(agent.to_bytes(), **{name: code}).to_bytes() == agent.to_bytes()
