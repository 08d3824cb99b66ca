"""What every environment has: rounds, outcomes, and the attributes from which policies are built."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, Mask
from windvane.documentation import documented
from windvane.environments.rewards import DelayLaw
from windvane.errors import ArgumentError
from windvane.links import Link


@documented
class Round(NamedTuple):
    """One round of an environment: a policy sees ``arms`` and ``valid``; the other fields are the truth.

    Parameters
    ----------
    t
        The round.
    valid
        Arms that are on offer, [lanes, K]; None if all are.
    theta, means, best
        theta*_t, [lanes, dim]; mu(<x, theta*_t>), [lanes, K], of absent arms too; the largest one on offer, [lanes].
        In a :class:`~windvane.environments.LabelledStream`, theta is NaN and the means are the rewards. In a
        :class:`~windvane.environments.gymnasium.GymnasiumEnvironment`, theta and the means are NaN, and best is the
        largest possible reward.

    >>> from windvane.environments import BallArms, Environment, Static
    >>> offer = Environment(Static(), BallArms(count=3), horizon=5).round(1)
    >>> bool(offer.best[0] == offer.means[0].max())
    True
    """

    t: int
    arms: Array
    valid: Mask | None
    theta: Array
    means: Array
    best: Array

    def check_choice(self, choice: Any, name: str = "choice") -> Index:
        """Return ``choice`` as an array[lanes] of the indices of arms that are on offer.

        Parameters
        ----------
        choice
            The index of the arm that each lane plays.
        name
            The name of the argument in errors.
        """
        lanes, K = self.means.shape
        played = np.asarray(choice)
        if played.shape != (lanes,) or played.dtype.kind not in "iu":
            raise ArgumentError(name, choice, f"{lanes} whole numbers, an arm for each lane")
        is_known = played.min() >= 0 and played.max() < K
        if not is_known or (self.valid is not None and not self.valid[np.arange(lanes), played].all()):
            raise ArgumentError(name, choice, f"arms in 0..{K - 1} that are on offer")
        return played


@documented
class Outcome(NamedTuple):
    """The outcome of the arms that were played in one round.

    Parameters
    ----------
    reward
        The rewards, [lanes].
    mean
        Their means, [lanes], so that ``offer.best - mean`` is the regret. The rewards themselves in an environment that
        does not know the means.

    >>> from windvane.environments import BallArms, Environment, Static
    >>> world = Environment(Static(), BallArms(count=3), horizon=5)
    >>> offer = world.round(1)
    >>> outcome = world.play(offer, [2])
    >>> bool(outcome.mean[0] == offer.means[0, 2])
    True
    """

    reward: Array
    mean: Array


class AnyEnvironment(Protocol):
    """What a run needs of an environment.

    :class:`Environment`, :class:`LabelledStream` and :class:`~windvane.environments.gymnasium.GymnasiumEnvironment`
    satisfy it. Every round, call ``round(t)``, choose arms, and call ``play``. The rounds 1, 2, ..., ``horizon`` can be
    played in any order and again only if the environment says so.

    >>> from windvane.environments import BallArms, Environment, Static
    >>> def play_first_arm(environment: AnyEnvironment) -> float:
    ...     rounds = map(environment.round, range(1, environment.horizon + 1))
    ...     return sum(float(environment.play(offer, [0]).reward[0]) for offer in rounds)
    >>> play_first_arm(Environment(Static(), BallArms(count=3), horizon=5)) <= 5
    True
    """

    @property
    def dim(self) -> int:
        """Number of features of an arm."""

    @property
    def link(self) -> Link:
        """The link of the rewards; an assumption if there is no theta*."""

    @property
    def S(self) -> float:
        """Norm bound of theta*; an assumption if there is none."""

    @property
    def L(self) -> float:
        """Norm bound of the arms."""

    @property
    def sigma(self) -> float:
        """Sub-Gaussian scale of the noise. If the link bounds the rewards, they are in [0, 2 sigma]."""

    @property
    def horizon(self) -> int:
        """Number of rounds T."""

    @property
    def lanes(self) -> int:
        """Number of lanes."""

    @property
    def lane_ids(self) -> Index:
        """The ids of the lanes."""

    @property
    def seed(self) -> int:
        """Seed of all random numbers."""

    @property
    def has_theta(self) -> bool:
        """Whether there is a true parameter."""

    @property
    def orthogonal(self) -> bool:
        """Whether all arms are multiples of axes."""

    @property
    def has_fixed_arms(self) -> bool:
        """Whether every round has the same arms in the same order, so that they can be told apart by their places."""

    @property
    def reward_range(self) -> tuple[float, float]:
        """The smallest and the largest possible reward."""

    @property
    def delay(self) -> DelayLaw | None:
        """How late rewards arrive; None: at once."""

    @property
    def variation(self) -> Array:
        """B_T, [lanes]; an assumption if there is no theta*."""

    @property
    def switches(self) -> Index:
        """The number of changes of theta*, [lanes]; an assumption if there is none."""

    def round(self, t: int) -> Round:
        """Return round ``t``, 1 <= t <= horizon."""

    def play(self, offer: Round, choice: npt.ArrayLike) -> Outcome:
        """Return the outcome of playing the arms ``choice[lanes]`` in the round ``offer``."""

    def means(self, t: float, arms: npt.ArrayLike) -> Array:
        """Return the true means of ``arms[lanes, K, dim]`` at round ``t``, for policies that are told them."""

    def delays(self, t: int) -> Index | None:
        """Return how many rounds late the rewards of round ``t`` arrive, [lanes]; None if they are not delayed."""
