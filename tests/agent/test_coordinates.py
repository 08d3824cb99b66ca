"""Other features for a running agent: coordinates keep by their names what was learned about them."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.agents import LIVE, NOON, RESTARTING, refuses, required_settings
from windvane import Agent, Features, Policy
from windvane.policies import POLICIES

SHOP: dict[str, Any] = {
    "shared": {"hour": (0, 24)},
    "by_arm": {"plan": ["free", "pro"]},
    "arms": ["red", "blue", "green"],
}
MORE_FIELDS = {**SHOP, "shared": {"hour": (0, 24), "age": (18, 99), "land": ["de", "fr"]}}
# The prediction of PG-TS is a mean given random numbers, of which there are more with more coordinates.
PREDICTABLE = [name for name in LIVE if name not in (*RESTARTING, "PG-TS")]
ONLINE = ["GLOC", "ECOLogUCB", "ada-OFU-ECOLog", "PG-TS"]
EXACT = [
    "BVD-GLM-UCB",
    "D-LinUCB",
    "SW-LinUCB",
    "SW-GLUCB",
    "OFUL",
    "GLM-UCB",
    "D-LinTS",
    "LinTS",
    "GLM-TS",
    "SC-D-GLUCB",
    "Greedy",
]


def build(policy: str, features: dict[str, Any] = SHOP, rounds: int = 60, **more: Any) -> Agent:
    """An agent that has learned a few rewards. Its norm bound and ridge are so large that nothing is projected."""
    if policy != "AdaptiveGLMUCB":
        more = {"S": 6.0, **({"lam": 100.0} if takes_lam(policy) else {}), **more}
    agent, rng = Agent(features=features, policy=policy, seed=2, **more), np.random.default_rng(4)
    rates = {"red": 0.2, "blue": 0.7, "green": 0.5}
    for i in range(rounds):
        decision = agent.decide(context=draw_context(rng), now=NOON + i, id=f"d{i}")
        if i % 5:
            agent.reward(decision, float(rng.random() < rates[str(decision.arm)]), now=NOON)
    return agent


def takes_lam(policy: str) -> bool:
    return "lam" in inspect.signature(POLICIES[policy]).parameters and policy not in RESTARTING


def draw_context(rng: np.random.Generator) -> dict[str, Any]:
    return {"hour": float(rng.uniform(0, 24)), "plan": ["free", "pro"][rng.integers(2)]}


def predict(agent: Agent, arms: list[str], **fields: Any) -> np.ndarray:
    """Predictions and bonuses for some arms in a few contexts."""
    contexts = [{"hour": hour, "plan": plan, **fields} for hour in (2.0, 21.0) for plan in ("free", "pro")]
    rows = [agent.predict(arms, context=context, now=NOON + 99) for context in contexts]
    return np.array([[[row[arm].prediction, row[arm].bonus] for arm in arms] for row in rows])


def means(agent: Agent, arms: list[str], **fields: Any) -> np.ndarray:
    return predict(agent, arms, **fields)[..., 0]


@pytest.mark.parametrize("policy", PREDICTABLE)
def test_what_is_added_changes_no_prediction(policy: str) -> None:
    """Not the arms that were there, and not the value of a new field; a new arm is predicted by what is shared."""
    agent = build(policy, **required_settings(policy))
    before, theta = means(agent, SHOP["arms"]), dict(zip(agent.feature_names, agent.theta, strict=True))
    agent.add_arm("black")
    np.testing.assert_allclose(means(agent, SHOP["arms"]), before, atol=2e-7)
    for name, value in zip(agent.feature_names, agent.theta, strict=True):
        assert value == pytest.approx(theta.get(name, 0.0), abs=1e-6)
    agent.configure(features={**MORE_FIELDS, "arms": [*SHOP["arms"], "black"]})
    for fields in ({"age": 58.5, "land": "de"}, {"age": 99, "land": "fr"}):
        np.testing.assert_allclose(means(agent, SHOP["arms"], **fields), before, atol=2e-7)
    agent.configure(features=SHOP)  # nothing was learned about what is removed
    np.testing.assert_allclose(means(agent, SHOP["arms"]), before, atol=2e-7)
    agent.reward(agent.decide(context=draw_context(np.random.default_rng(0)), now=NOON + 100), 1.0, now=NOON + 100)


@pytest.mark.parametrize("S", [None, 3.0])
@pytest.mark.parametrize("link", ["logistic", "identity"])
def test_the_adaptive_policy_keeps_beliefs(S: float | None, link: str) -> None:
    """Bonuses too, when an arm or a field is added or removed: removed coordinates are marginalised."""
    agent = Agent(features=MORE_FIELDS, S=S, link=link, seed=1)
    rng = np.random.default_rng(3)
    for i in range(80):
        context = {**draw_context(rng), "age": float(rng.uniform(18, 99)), "land": "de"}
        agent.reward(agent.decide(context=context, now=NOON + i), float(rng.random() < 0.4), now=NOON + i)
    neutral = {"age": 58.5, "land": "de"}
    before, left = predict(agent, SHOP["arms"], **neutral), ["red", "green"]
    agent.remove_arm("blue")
    np.testing.assert_allclose(predict(agent, left, **neutral), before[:, [0, 2]], rtol=1e-9)
    agent.add_arm("blue")
    again = predict(agent, SHOP["arms"], **neutral)
    np.testing.assert_allclose(again[:, [0, 2]], before[:, [0, 2]], rtol=1e-9)
    assert (again[:, 1, 1] > before[:, 1, 1]).all()  # what was known about it is forgotten
    covariance = np.linalg.inv(agent.policy.info().metric[0])
    names, theta, memory = agent.feature_names, agent.theta, agent.policy.info().acting_memory
    fewer = {**MORE_FIELDS, "shared": {"land": ["fr", "de"], "hour": (0, 24)}}  # in another order, without the age
    agent.configure(features=fewer)
    places, scale = [names.index(name) for name in agent.feature_names], (6 / 5) ** 0.5  # of the active fields
    moved = np.linalg.inv(agent.policy.info().metric[0])
    np.testing.assert_allclose(moved, covariance[np.ix_(places, places)] / scale**2, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(agent.theta, theta[places] / scale, rtol=1e-9)
    assert agent.policy.info().acting_memory == memory


def test_large_banks_collect_rows_and_small_ones_do_not() -> None:
    """From 33 coordinates on, changes of a matrix are collected in a buffer: it must be moved as well."""
    many = {"arms": [f"arm{i}" for i in range(40)]}
    agent, rng = Agent(features=many), np.random.default_rng(0)
    for i in range(100):
        agent.reward(agent.decide(now=NOON + i), float(rng.random() < 0.3), now=NOON + i)
    few = [f"arm{i}" for i in range(3)]
    before = agent.predict(few, now=NOON + 200)
    agent.configure(features={"arms": few})
    smaller = agent.predict(few, now=NOON + 200)
    agent.configure(features=many)
    larger = agent.predict(few, now=NOON + 200)
    for arm in few:
        assert smaller[arm].score == pytest.approx(before[arm].score, rel=1e-9)
        assert larger[arm].score == pytest.approx(before[arm].score, rel=1e-9)


# --- a fresh policy that is fed the mapped vectors --------------------------------------------------------------------


def name_coordinates(features: Features, context: dict[str, Any], arm: str) -> dict[str, float]:
    """The coordinates of a vector before they are divided, by name."""
    (row,) = features.vectors(context, [arm]) / features.scale
    return dict(zip(features.names, row.tolist(), strict=True))


declarations = st.fixed_dictionaries(
    {
        "shared": st.sets(st.sampled_from(["hour", "age"])).map(lambda names: dict.fromkeys(sorted(names), (0, 100))),
        "by_arm": st.sampled_from([{}, {"plan": ["free", "pro"]}, {"plan": ["pro", "plus", "free"]}]),
        "arms": st.permutations(["red", "blue", "green"]).flatmap(lambda a: st.integers(1, 3).map(lambda n: a[:n])),
        "intercept": st.booleans(),
    }
)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(EXACT), declarations, declarations, st.integers(0, 2**16))
def test_an_exact_policy_equals_one_that_was_fed_the_mapped_vectors(
    policy: str, old: dict[str, Any], new: dict[str, Any], seed: int
) -> None:
    rng, more = np.random.default_rng(seed), required_settings(policy)
    agent = Agent(features=old, policy=policy, S=4.0, **more)
    before, after = Features(**old), Features(**new)
    rows = []
    for _ in range(25):
        context = {name: float(rng.uniform(0, 100)) for name in old["shared"]}
        context |= {name: values[rng.integers(len(values))] for name, values in old["by_arm"].items()}
        arm, reward = old["arms"][rng.integers(len(old["arms"]))], float(rng.random() < 0.5)
        agent.history([reward], contexts=[context], arms=[arm])
        rows.append((name_coordinates(before, context, arm), reward))
    agent.configure(features=new)
    assert agent.feature_names == after.names
    given = {name: value for name, value in agent.policy.get_params().items() if name != "lanes"}
    fed: Policy = POLICIES[policy](**given)
    for coordinates, reward in rows:
        x, round_ = np.array([coordinates.get(name, 0.0) for name in after.names]) * after.scale, fed.t
        fed.advance(1.0)
        fed.update(x[None], reward, round=round_)
    own, expected = agent.policy.info(), fed.info()
    for name in ("theta_hat", "metric", "squared_metric", "b"):
        np.testing.assert_allclose(getattr(own, name), getattr(expected, name), atol=1e-6, err_msg=name)
    arms = np.eye(after.dim)[None]
    np.testing.assert_allclose(agent.policy.probabilities(arms), fed.probabilities(arms), atol=0.02)


# --- decisions that are open, files, and refusals ---------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["AdaptiveGLMUCB", "BVD-GLM-UCB"])
def test_a_reward_of_a_removed_arm_counts_for_what_is_shared(policy: str) -> None:
    gamma = {} if policy == "AdaptiveGLMUCB" else {"gamma": 0.999}
    agent = build(policy, rounds=1, **gamma)
    (decision,) = agent.pending()
    agent.remove_arm(decision.arm)
    left = [arm for arm in SHOP["arms"] if arm != decision.arm]
    before = means(agent, left)
    assert agent.pending() == [decision]
    assert agent.reward(decision, 1.0, now=NOON) == "recorded"
    assert (means(agent, left) > before).any()
    assert agent.info().counts.settled == 1


@pytest.mark.parametrize(
    "policy", ["AdaptiveGLMUCB", "BVD-GLM-UCB", "OnePassGLM", "RestartUCB", "DetectGLMUCB", *ONLINE]
)
@pytest.mark.parametrize("learn", ["on_arrival", "early"])
def test_an_agent_that_was_changed_is_saved_and_goes_on(policy: str, learn: str) -> None:
    agent = build(policy, **required_settings(policy), reward_timeout=30, default_reward=0.0, learn=learn)
    agent.configure(features=MORE_FIELDS, epsilon=0.1)
    again = Agent.from_bytes(agent.to_bytes())  # which checks the state: it is one that an agent can reach
    assert again.to_bytes() == agent.to_bytes()
    assert again.settings == agent.settings
    for i in range(40):
        context = {**draw_context(np.random.default_rng(i)), "age": 30, "land": "fr"}
        for each in (agent, again):
            each.reward(each.decide(context=context, now=NOON + 100 + i, id=f"e{i}"), float(i % 2), now=NOON + 100 + i)
    assert again.to_bytes() == agent.to_bytes()


@pytest.mark.parametrize("features", [{**SHOP, "arms": ["blue", "red", "green"]}, MORE_FIELDS])
def test_a_copy_that_is_being_written_does_not_change(features: dict[str, Any]) -> None:
    """The bytes of a file are made later, in another thread: the vectors of open decisions must be the old ones."""
    agent = build("AdaptiveGLMUCB")
    assert agent.pending()
    before, finish = agent.to_bytes(), agent.core.pack()
    agent.configure(features=features)
    assert finish() == before


def test_forgetting_stays_as_it_was_tuned() -> None:
    """A discount that theory chose for the dimension does not change with it."""
    for policy, name in (("BVD-GLM-UCB", "gamma"), ("SW-LinUCB", "window"), ("AdaptiveGLMUCB", "gamma")):
        agent = Agent(features=SHOP, policy=policy, horizon=1000, drift=2.0)
        memory = agent.memory
        agent.add_arm("black")
        assert agent.memory == memory
        assert agent.settings["drift"] is None
        assert agent.settings[name] is not None


@pytest.mark.parametrize("policy", RESTARTING)
def test_policies_that_start_again_by_themselves_refuse(policy: str) -> None:
    agent = build(policy, **required_settings(policy))
    error = refuses(agent, "features", lambda: agent.add_arm("black"))
    assert policy in error.expected
    assert "refit" in error.hint


def test_a_coordinate_of_another_kind_is_another_coordinate() -> None:
    agent = Agent(features={"shared": {"plan": ["pro", "free"]}})
    error = refuses(agent, None, lambda: agent.configure(features={"shared": {"plan = pro": (0, 1)}}))
    assert error.path == ("features", "shared", "plan = pro")


def test_what_cannot_be_changed_is_refused_and_changes_nothing() -> None:
    agent = build("AdaptiveGLMUCB")
    wider = {**SHOP, "shared": {"hour": (0, 48)}}
    error = refuses(agent, "features['shared']['hour']", lambda: agent.configure(features=wider))
    assert "refit" in error.hint
    refuses(agent, "features", lambda: agent.configure(features=None))
    refuses(agent, "features", lambda: agent.configure(features={"colour": 1}))
    refuses(agent, "epsilon", lambda: agent.configure(features=MORE_FIELDS, epsilon=2.0))
    refuses(agent, "S", lambda: agent.configure(S=2.0))
    refuses(agent, "name", lambda: agent.remove_arm("pink"))
    refuses(agent, "features['arms']", lambda: agent.add_arm("red"))
    plain = Agent(dim=2)
    refuses(plain, "features", lambda: plain.configure(features=SHOP))
    refuses(plain, "features", lambda: plain.add_arm("red"))
    fitting = Agent(features={"shared": ["basket"]}, scaling="fit")
    refuses(fitting, "features", lambda: fitting.configure(features=SHOP))


class Counting(Policy):
    """A policy whose state does not say how it depends on coordinates."""

    name = "Counting"
    stored = (*Policy.stored, "counts")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.counts = np.zeros(self.dim)

    def select(self, arms: Any, valid: Any = None) -> Any:
        arms, valid = self.check_arms(arms, valid)
        return self.play(arms @ self.counts, valid)

    def learn(self, feedback: Any) -> None:
        self.counts += feedback.x[0]

    def pass_time(self, rounds: float) -> None:
        pass


def test_a_policy_of_ones_own_is_refused_unless_it_says_how() -> None:
    agent = Agent(features=SHOP, policy=Counting)
    assert "Counting" in refuses(agent, "features", lambda: agent.add_arm("black")).expected

    class Mapped(Counting):
        name = "Mapped"

        def map_fields(self, successor: Any, change: Any) -> Any:
            return {**self.read_fields(), "counts": change.move(self.counts, change.scale)}

    agent = Agent(features=SHOP, policy=Mapped)
    agent.reward(agent.decide(["red"], context={"hour": 24, "plan": "free"}), 1.0)
    agent.add_arm("black")
    counts: Any = dict(zip(agent.feature_names, agent.policy.counts, strict=True))  # type: ignore[attr-defined]
    assert counts["red: 1"] == counts["hour"] > counts["black: 1"] == 0.0
