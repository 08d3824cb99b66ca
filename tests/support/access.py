"""The one place where tests read what is not part of the public contract of a policy or an estimator.

When the library changes how a number is read, this module changes and the tests do not. Functions take a policy or,
where the docstring says so, an estimator; arrays have a leading axis of lanes.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np

from windvane import state
from windvane.estimation import Discount, Estimator, MaximumLikelihoodEstimator, Never, RidgeEstimator, Window
from windvane.kernels import random, threads
from windvane.links import Link
from windvane.policies._skeleton import Skeleton
from windvane.policies.base import FORMAT as FORMAT_VERSION

__all__ = ["FORMAT_VERSION", "Skeleton"]

NUMBERS = ("theta_hat", "theta_tilde", "V", "V_tilde", "b")


# --- numbers of a policy, or of an estimator --------------------------------------------------------------------------

IN_INFO = {"V": "metric", "V_tilde": "squared_metric"}  # what ``policy.info()`` calls them


def read(source: Any, name: str) -> np.ndarray:
    """One of :data:`NUMBERS`, or ``gamma``, by name, as a copy."""
    if isinstance(source, Estimator):
        return np.array(getattr(source, name))
    return getattr(source.info(), IN_INFO.get(name, name))


def has(source: Any, name: str) -> bool:
    return getattr(source.info(), IN_INFO.get(name, name), None) is not None


def theta_hat(source: Any) -> np.ndarray:
    return read(source, "theta_hat")


def theta_tilde(policy: Any) -> np.ndarray:
    """The parameter with which the coming decision would be made."""
    return read(policy, "theta_tilde")


def V(source: Any) -> np.ndarray:
    return read(source, "V")


def V_tilde(source: Any) -> np.ndarray:
    return read(source, "V_tilde")


def b(source: Any) -> np.ndarray:
    return read(source, "b")


# --- diagnostics ------------------------------------------------------------------------------------------------------


def lane_count(policy: Any) -> int:
    return policy.lanes


def diagnostics(policy: Any) -> dict[str, Any]:
    """Everything that ``policy.info()`` says, by name."""
    return policy.info()


def decision(policy: Any) -> dict[str, np.ndarray]:
    """What the policy computed for its last decision, by name; ``scores`` has one entry per arm."""
    return policy.last


def scores(policy: Any) -> np.ndarray:
    """The score of every arm in the last decision, [lanes, K]."""
    return decision(policy)["scores"]


def widths(policy: Any, arms: np.ndarray) -> np.ndarray:
    """||x|| in the metric V^-1 of every arm."""
    return policy._widths(arms)


def bonus_factor(policy: Any) -> float:
    """What multiplies beta ||x|| in the bonus."""
    return policy.factor()


# --- estimators -------------------------------------------------------------------------------------------------------


def make_estimator(
    dim: int, link: str | Link = "logistic", *, gamma: Any = None, window: Any = None, **settings: Any
) -> MaximumLikelihoodEstimator:
    """Build the exact estimator; ``settings`` are S, L, lam, lanes, tolerance."""
    return MaximumLikelihoodEstimator(dim, link, forgetting=make_forgetting(gamma, window), **settings)


def make_ridge(dim: int, *, gamma: Any = None, window: Any = None, **settings: Any) -> RidgeEstimator:
    return RidgeEstimator(dim, forgetting=make_forgetting(gamma, window), **settings)


def make_forgetting(gamma: Any = None, window: Any = None) -> Discount | Window | Never:
    return Window(window) if window is not None else Never() if gamma is None else Discount(gamma)


def estimator(policy: Any) -> Any:
    """The estimator within a policy."""
    return policy.estimator


def save(component: Any) -> state.State:
    """The state of a policy or of an estimator."""
    return state.save(component) if isinstance(component, Estimator) else component.state()


def load(component: state.Stateful, entries: dict[str, Any]) -> None:
    """Check a state of an estimator and put it in place."""
    state.swap(state.check(component, entries))


def moments(source: Any, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """g(theta) and H(theta) over the history of an estimator."""
    return source.moments(theta)


def lane_history(source: Any, lane: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features [n, dim], weights [n] and b of what an estimator remembers of a lane."""
    record, d = source.record[lane], source.dim
    rows = source.history[lane, :, record["start"] : record["end"]]
    return rows[:d].T, rows[d] * record["scale"], source.b[lane]


def lane_state(source: Any, lane: int = 0) -> dict[str, np.ndarray]:
    """The part of an estimator's state that belongs to a lane, its history cut to length."""
    entries = save(source)
    n = int(entries["count"][lane])
    return {name: array[lane, :, :n] if name == "history" else array[lane] for name, array in entries.items()}


def lane_of_estimator(source: Any, lane: int) -> dict[str, np.ndarray]:
    """The state of an estimator with one lane that knows what ``lane`` of ``source`` does."""
    return {name: array[lane : lane + 1] for name, array in save(source).items()}


def history_size(source: Any) -> int:
    """How many numbers of observations an estimator stores."""
    return save(source)["history"].size


def forget_observations(policy: Any) -> None:
    """Drop the remembered observations and keep V and b, as a policy with an incomplete state would."""
    state = policy.estimator.state()
    policy.estimator.load_state(state | {"counts": np.zeros_like(state["counts"])})


def expected_design(policy: Any) -> np.ndarray:
    """G of AdaptiveGLMUCB for every lane and memory, [lanes * memories, dim, dim]."""
    return policy._spread


def losses_of(policy: Any, x: np.ndarray, reward: np.ndarray) -> np.ndarray:
    """The loss that AdaptiveGLMUCB would charge each memory for an observation, [lanes, memories]."""
    return policy._surprise(x, reward)


def admissible_estimates(policy: Any) -> np.ndarray:
    """theta_hat of every memory of AdaptiveGLMUCB, pulled back to the ball, [lanes, memories, dim]."""
    return policy._pulled_back(policy.estimator.theta_hat).reshape(policy.lanes, -1, policy.dim)


# --- random numbers and kernels ---------------------------------------------------------------------------------------


def master_uniform(seed: int, lane: int, turn: int) -> float:
    """The uniform number with which a master draws in a turn."""
    return random.uniform(np.uint64(seed), lane, turn, random.MASTER)


def master_coin(seed: int, lane: int, decision: int, order: int) -> float:
    """The uniform number that decides whether MASTER starts a copy of an order."""
    return random.uniform_pair(np.uint64(seed), lane, decision, random.MASTER, order)[0]


def sample_pair(seed: int, lane: int, decision: int, block: int) -> tuple[float, float]:
    """Two of the uniform numbers behind the sample of a randomised policy."""
    return random.uniform_pair(np.uint64(seed), lane, decision, random.SAMPLES, block)


def threads_from_environment() -> int:
    """The number of threads that the variable WINDVANE_THREADS asks for, or the number of cores."""
    return threads._threads_from_environment()


# --- masters ----------------------------------------------------------------------------------------------------------


def earned(policy: Any) -> np.ndarray:
    """What each lane of BOB has earned in the open block."""
    return policy.state()["earned"]


def log_weights(policy: Any) -> np.ndarray:
    """The logarithms of EXP3's weights in BOB, [lanes, values of the grid]."""
    return policy.exp3.log_weights


def master_lane(policy: Any, lane: int = 0) -> SimpleNamespace:
    """What MASTER keeps in a lane, as it is now."""
    kept, acting = policy.policies[lane], policy.policies[lane]._acting
    return SimpleNamespace(
        copies=kept._copies,  # the copies of the base policy that are alive, by order
        starts=kept._starts,  # the decision with which the copy of each order began; -1 without one
        sums=kept._sums,  # of w (f - r) and of w, in the open block
        value=kept._log[(kept._decisions - 1) % len(kept._log), 3],  # f of the last decision, in units of the range
        acting_rewards=kept._rewards[min(kept._copies, default=0)],  # sum of w r during the life of the acting copy
        index=getattr(acting, "optimistic", None),  # of the last decision, in the units of rewards
        base_beta=acting.base_beta,
        base_radius=acting.radius()[0],
        rho=kept.rho,
        rho_hat=kept.rho_hat,
    )


# --- environments -----------------------------------------------------------------------------------------------------


def block_length(path: Any) -> int:
    """How many rounds of a path are computed at a time."""
    return path._length
