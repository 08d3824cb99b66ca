"""A bank of filters for a moving parameter. Its experts differ in how far and how fast they expect it to move.

Expert g believes that theta* follows a stationary Ornstein-Uhlenbeck process with memory m_g and prior N(0, phi q_g I).
Here phi is the dispersion of the rewards, and phi q_g = S_g^2 / d at the first value of phi. The expert tracks theta*
with an extended Kalman filter whose steps are implicit. Its belief is N(theta, phi P). With a = 1 - 1/m,

    predict   z = <x, theta>,  v = x' P x                                     before the reward r is seen
    score     loss <- 0.998 loss - log p(r | z, v)
    learn     alpha = r - mu(z + v alpha);  s = mu'(z + v alpha)              alpha is the root of a monotone function
              theta <- theta + P x alpha;  P <- P - s / (1 + s v) P x x' P
    age       theta <- a theta;  P <- a^2 P + (1 - a^2) q I

An infinite memory means that theta* does not move. The predictive density p is the logistic or probit likelihood at the
moderated prediction, z / sqrt(1 + pi v / 8) or z / sqrt(1 + v). For the identity link it is Student's density with 5
degrees of freedom, centre z and squared scale phi (1 + v); for counts a negative binomial one with mean mu(z) and
variance phi mu(z) + phi v mu(z)^2. For these links each expert learns its own phi, the mean squared error of its
predictions relative to 1 + v, or to mu (1 + v mu) for counts, where it is at least 1. The prior grows and shrinks with
phi. For the identity link the first 17 predictions are not scored, because phi is not known yet. An unbounded reward
more than ten standard deviations from its prediction counts as that far away, so that an outlier does little harm.

A reward of weight w is learned in one step with w times the information. Its loss counts w times, and it fades earlier
losses by 0.998^w, so that a reward that is learned in parts counts as much as a whole one. A reward that is k rounds
old is an observation of theta* at its round. Given the current theta*, that earlier theta* has the distribution
N(a^k theta*, phi (1 - a^(2k)) q I), so z, P x and v are replaced by a^k z, a^k P x and a^(2k) v + (1 - a^(2k)) q
||x||^2. Rewards are not stored, and the cost of a round depends on neither t nor the memories.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from windvane.arguments import Array, Index, Mask
from windvane.estimation.base import check_finite
from windvane.estimation.scratch import KernelState
from windvane.kernels import filters
from windvane.kernels.elementary import POISSON
from windvane.kernels.filters import (
    BELIEF,
    LANE,
    LONGEST_RECORD,
    MATRIX,
    ROWS,
    SETTLED,
    SMALLEST_SCALE,
    THETA,
    UNBOUNDED,
)  # fmt: skip
from windvane.linalg import is_symmetric
from windvane.links import Link
from windvane.state import CoordinateChange, State, refuse

LARGEST_PRIOR = 1e6  # variance of <x, theta*>, relative to the dispersion: x' P x is accurate to 1e-16 times this
LARGE = 33  # from this dimension on, rank-one changes are collected before they are added to a matrix
COLLECTED = 16
FIRST_SURPRISES = 3.0  # observations that sigma^2, the first value of the dispersion, is worth
DEFINITENESS = 1e-9  # how far rounding can push the eigenvalues of P / q out of [0, 1]

_LANE_FIELDS = ("information", "rounds", "waited", "variation")
_BELIEF_FIELDS = ("scale", "least", "loss", "run_loss", "dispersion", "surprises", "fill")


class Assessment(NamedTuple):
    """The assessment of the arms by the acting expert of each lane. Arrays have one row per lane."""

    acting: Index
    theta: Array
    upper: Array  # <x, theta> + factor sqrt(phi x' P x)
    means: Array  # mu(<x, theta>)
    scores: Array  # mu(upper)


class FilterBank(KernelState):
    """A bank with one expert for each pair of a memory and a scale, on ``lanes`` independent lanes.

    Experts are ordered by memory, then by scale. ``order`` lists them from the fastest to the slowest parameter.

    Parameters
    ----------
    memories, scales
        The memories m_g, numbers of rounds above 1, and the scales S_g. Both are increasing.
    dispersion
        The first value of phi. If rewards are unbounded (identity link and counts), phi is then learned.
    prior_dim
        The prior variance of a coordinate is S_g^2 / prior_dim. Default: ``dim``.
    L
        Bound on the norm of vectors, which limits the prior variance to what double precision can tell from 1.

    >>> import windvane
    >>> memories, scales = np.array([50.0]), np.array([1.0])
    >>> bank = FilterBank(2, windvane.Logistic(), memories=memories, scales=scales, dispersion=1.0, lanes=1)
    >>> bank.covariance(np.array([0]))
    array([[[0.5, 0. ],
            [0. , 0.5]]])
    """

    scratch: ClassVar[tuple[str, ...]] = ("work", "indices")
    stored: ClassVar[tuple[str, ...]] = (*_LANE_FIELDS, *_BELIEF_FIELDS, "theta", "N", "buffer")

    def __init__(
        self, dim: int, link: Link, *, memories: Array, scales: Array, dispersion: float, lanes: int,
        prior_dim: float | None = None, L: float = 1.0,
    ) -> None:  # fmt: skip
        self.link, self.memories, self.scales = link, memories, scales
        count, collected = len(self.memories) * len(self.scales), COLLECTED if dim >= LARGE else 1
        self.beliefs = np.zeros((lanes, count), BELIEF)
        self.beliefs["a"] = np.repeat(1.0 - 1.0 / self.memories, len(self.scales))
        variances = np.minimum(self.scales**2 / ((prior_dim or dim) * dispersion), LARGEST_PRIOR / L**2)
        self.beliefs["q"] = np.tile(variances, len(self.memories))
        self.order = np.argsort(-self.speeds(), kind="stable")  # from fast to slow
        self.lanes = np.zeros(lanes, LANE)
        self.lanes["link"] = UNBOUNDED if link.code < 0 and link.any_reward else link.code
        self.beliefs["first_dispersion"] = dispersion
        self.learns_dispersion = link.any_reward or link.code == POISSON
        self.dense = np.zeros((lanes, count, MATRIX + dim + collected, dim))
        self.prepare_scratch()
        self.reset(np.ones(lanes, dtype=bool))

    def allocate(self) -> None:
        """Allocate the workspaces of kernels."""
        count, dim = self.dense.shape[1], self.dense.shape[3]
        self.work, self.indices = np.zeros((ROWS, count)), np.zeros((2, max(count, dim)), dtype=np.int64)
        self.indices[0, :count] = self.order

    def speeds(self) -> Array:
        """Return the variance, relative to phi, that each expert expects a coordinate of theta* to gain per round."""
        return np.asarray((1.0 - self.beliefs["a"][0] ** 2) * self.beliefs["q"][0])

    # --- filtering -------------------------------------------------------------------------------------------------

    def reset(self, mask: Mask) -> None:
        """Return to the prior in the lanes of ``mask``."""
        with self.lock:
            for name in _LANE_FIELDS:
                self.lanes[name][mask] = 0.0
            self.dense[mask] = 0.0
            beliefs = self.beliefs[mask]
            beliefs["loss"] = beliefs["run_loss"] = 0.0
            beliefs["scale"], beliefs["least"] = 1.0, beliefs["q"]
            beliefs["dispersion"] = beliefs["first_dispersion"]
            beliefs["surprises"] = FIRST_SURPRISES if self.link.any_reward else SETTLED
            # Buffers start partly filled, with rows of zeros, so that they do not all become full in the same round.
            count, collected = self.buffer.shape[1:3]
            beliefs["fill"] = np.arange(count) * collected // count
            self.beliefs[mask] = beliefs

    def start_at(self, theta: Array, weight: float, L: float) -> None:
        """Start from a belief around ``theta``, with the information of ``weight`` rewards at L e_i for each axis i."""
        self.reset(np.ones(len(self.lanes), dtype=bool))
        information = weight * self.link.slope(L * theta) * L**2
        q = self.beliefs["q"][:, :, None]
        self.theta[:] = theta
        for i, remaining in enumerate(np.moveaxis(q / (1.0 + q * information), 2, 0)):
            self.N[:, :, i, i] = q[:, :, 0] - remaining
            self.beliefs["least"] = np.minimum(self.beliefs["least"], remaining)

    def age(self, rounds: float) -> None:
        """Age all beliefs by ``rounds``, a number of at least 0 that need not be whole."""
        with self.lock:
            filters.age_lanes(rounds, self.indices, self.lanes, self.beliefs, self.dense, self.work)

    def assess(self, arms: Array, factors: Array) -> Assessment:
        """Let the acting expert of each lane, at a quantile of the weights from fast to slow, assess its arms."""
        n, K, d = arms.shape
        theta, out = np.empty((n, d)), np.empty((3, n, K))
        with self.lock:
            self.kernels.assess_lanes(
                arms, factors, self.indices, self.lanes, self.beliefs, self.dense, self.work, theta, out
            )
            return Assessment(self.lanes["acting"].copy(), theta, out[0], out[1], out[2])

    def absorb(self, x: Array, reward: Array, age: Array, weight: Array, mask: Mask) -> None:
        """Learn one observation per lane. If a custom link raises or returns a non-finite value, nothing changes."""
        with self.lock:
            before: dict[str, Any] = {}
            if self.link.code < 0:
                before = {name: getattr(self, name).copy() for name in ("lanes", "beliefs", "dense")}
            try:
                self.kernels.learn_lanes(
                    x, reward, age, weight, mask, self.indices, self.lanes, self.beliefs, self.dense, self.work
                )
                if before:
                    check_finite(self.link, self.dense, self.beliefs["loss"])
            except BaseException:
                vars(self).update(before)
                raise

    # --- reading ---------------------------------------------------------------------------------------------------

    @property
    def theta(self) -> Array:
        """The estimates, [lanes, experts, dim], as a view."""
        return self.dense[:, :, THETA]

    @property
    def N(self) -> Array:
        """The matrices N, [lanes, experts, dim, dim], as a view."""
        return self.dense[:, :, MATRIX : MATRIX + self.dense.shape[3]]

    @property
    def buffer(self) -> Array:
        """The buffers, [lanes, experts, rows, dim], as a view."""
        return self.dense[:, :, MATRIX + self.dense.shape[3] :]

    def weigh(self) -> Array:
        """Return the weights of the experts, proportional to exp(-loss), [lanes, experts]."""
        losses = self.beliefs["loss"]
        odds = np.exp(losses.min(axis=1, keepdims=True) - losses)
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    def find_quantile(self, share: float) -> Index:
        """Return the first expert of each lane, from fast to slow, at which the weights add up to ``share``."""
        experts = np.empty(len(self.lanes), dtype=np.int64)
        with self.lock:
            filters.find_lanes(share, self.indices, self.lanes, self.beliefs, self.work, experts)
        return experts

    def covariance(self, experts: Index) -> Array:
        """Return P of one expert per lane, [lanes, dim, dim]."""
        lanes = np.arange(len(experts))
        beliefs, reduction = self.beliefs[lanes, experts], self._reduction(experts)
        q, scale = beliefs["q"][:, None, None], beliefs["scale"][:, None, None]
        return np.asarray(q * np.eye(reduction.shape[2]) - scale * reduction)

    def _reduction(self, experts: Index) -> Array:
        """Return N with the rows of the buffer added to it, of one expert per lane, [lanes, dim, dim]."""
        lanes = np.arange(len(experts))
        rows, fill = self.buffer[lanes, experts], self.beliefs["fill"][lanes, experts]
        filled = np.where(np.arange(rows.shape[1]) < fill[:, None], 1.0, 0.0)
        return np.asarray(self.N[lanes, experts] + np.einsum("lb,lbi,lbj->lij", filled, rows, rows))

    def dispersion(self, experts: Index) -> Array:
        """Return phi of one expert per lane, [lanes]."""
        return np.array(self.beliefs["dispersion"][np.arange(len(experts)), experts])

    def scale(self, experts: Index) -> Array:
        """Return the root mean square of ||theta*|| under the prior of one expert per lane, [lanes]."""
        q = self.beliefs["q"][np.arange(len(experts)), experts]
        return np.asarray(np.sqrt(self.dispersion(experts) * q * self.dense.shape[3]))

    def information(self) -> Array:
        """Return the recent information per round and coordinate, mu' ||x||^2 / d, [lanes]; 0 if nothing was seen."""
        total, rounds = self.lanes["information"], self.lanes["rounds"]
        return np.asarray(np.divide(total, rounds * self.dense.shape[3], out=np.zeros(len(total)), where=total > 0.0))

    def effective_memory(self, experts: Index) -> Array:
        """Return the number of rounds over which one expert per lane averages; its memory before the first reward."""
        beliefs = self.beliefs[np.arange(len(experts)), experts]
        memories = np.empty(len(experts))
        filters.memory_lanes(beliefs["a"].copy(), beliefs["q"].copy(), self.information(), memories)
        return memories

    def effective_memories(self) -> Array:
        """Return the number of rounds over which each expert averages, [lanes, experts]."""
        memories, (a, q) = np.empty(self.beliefs.size), (self.beliefs[name].ravel() for name in ("a", "q"))
        filters.memory_lanes(a, q, self.information().repeat(self.beliefs.shape[1]), memories)
        return memories.reshape(self.beliefs.shape)

    def drift_rate(self, experts: Index) -> Array:
        """Return the speed of theta* for which the effective memory of one expert per lane would be best, [lanes]."""
        rates = np.empty(len(experts))
        memories, dim = self.effective_memory(experts), self.theta.shape[2]
        filters.rate_lanes(self.dispersion(experts), self.information(), memories, dim, rates)
        return rates

    # --- state -----------------------------------------------------------------------------------------------------

    def read_fields(self) -> State:
        """Return copies of the arrays of the state."""
        with self.lock:
            fields = {name: self.lanes[name].copy() for name in _LANE_FIELDS}
            fields |= {name: self.beliefs[name].copy() for name in _BELIEF_FIELDS}
            return fields | {name: getattr(self, name).copy() for name in ("theta", "N", "buffer")}

    def map_fields(self, successor: FilterBank, change: CoordinateChange) -> State:
        """Return the beliefs in other coordinates: removed ones are marginalised, new ones have their prior.

        ``growth`` is that of the prior variance, 1 / scale^2 unless it is at its largest value.
        """
        with self.lock:
            fields, experts = self.read_fields(), range(self.beliefs.shape[1])
            every = [self._reduction(np.full(len(self.lanes), expert)) for expert in experts]
        growth = successor.beliefs["q"] / self.beliefs["q"]
        fields["theta"] = change.move(fields["theta"], 1.0 / change.scale)
        fields["N"] = change.move_matrix(np.stack(every, axis=1), 1.0) * growth[:, :, None, None]
        fields["buffer"], fields["fill"] = np.zeros_like(successor.buffer), successor.beliefs["fill"].copy()
        fields["least"] = np.minimum(fields["least"] * growth, successor.beliefs["q"])
        fields["information"] *= change.scale**2
        fields["variation"] /= change.scale
        return fields

    def check_fields(self, fields: State, path: str) -> None:
        """Raise ``ArgumentError`` for a state that a bank with these settings cannot reach."""
        q, first, count = self.beliefs["q"], self.beliefs["first_dispersion"], self.buffer.shape[2]
        phi = fields["dispersion"]
        has_seen = (fields["rounds"] > 0.0) | (fields["information"] == 0.0)
        for name, is_possible, expected in (
            (
                "dispersion",
                (phi > 0.0) if self.learns_dispersion else (phi == first),
                "the first one, or positive if it is learned",
            ),
            ("surprises", (fields["surprises"] > 0.0) & (fields["surprises"] <= LONGEST_RECORD), "in (0, 500]"),
            ("scale", (fields["scale"] >= SMALLEST_SCALE) & (fields["scale"] <= 1.0), "in [1e-100, 1]"),
            ("least", (fields["least"] > 0.0) & (fields["least"] <= q), "positive and at most the prior variance"),
            ("fill", (fields["fill"] >= 0) & (fields["fill"] < count), f"in [0, {count - 1}]"),
            ("rounds", has_seen, "positive if anything was learned"),
            *((name, fields[name] >= 0.0, "at least 0") for name in _LANE_FIELDS),
        ):
            if not np.all(is_possible):
                raise refuse(path, name, fields[name], expected)
        twin = object.__new__(type(self))
        vars(twin).update(vars(self) | self.prepare_fields(fields))
        for g in range(q.shape[1]):
            with np.errstate(over="ignore", invalid="ignore"):
                P = twin.covariance(np.full(len(self.lanes), g)) / q[0, g]
            is_covariance = bool(np.isfinite(P).all()) and is_symmetric(P)
            values = np.linalg.eigvalsh(P) if is_covariance else np.array([np.nan])
            if not ((values >= -DEFINITENESS) & (values <= 1.0 + DEFINITENESS)).all():
                raise refuse(path, "N", fields["N"][:, g], "that of a covariance matrix between 0 and the prior")

    def prepare_fields(self, fields: State) -> dict[str, Any]:
        """Return the attributes that hold ``fields``, which have been checked."""
        lanes, beliefs = self.lanes.copy(), self.beliefs.copy()
        for name in _LANE_FIELDS:
            lanes[name] = fields[name]
        for name in _BELIEF_FIELDS:
            beliefs[name] = fields[name]
        dense = np.zeros_like(self.dense)
        dense[:, :, THETA] = fields["theta"]
        dense[:, :, MATRIX:] = np.concatenate([fields["N"], fields["buffer"]], axis=2)
        return {"lanes": lanes, "beliefs": beliefs, "dense": dense}
