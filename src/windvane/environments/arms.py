"""Arm laws: which arms are offered each round, with all norms at most L."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from windvane.arguments import Array, Index, Mask, check_between, check_choice, check_whole
from windvane.environments.fields import LATEST, Frame, Record, Vector, check_vectors, record, setting

Offer = tuple[Array, Mask | None]

DRAWN = ("ball", "sphere", "cube", "gaussian", "skewed")
"""The laws of :class:`ArmsDrawnOnce`."""
_MOST_ARMS = 10**5  # per round and lane; more would take seconds to score


class ArmStream(Protocol):
    """An arm law bound to lanes."""

    def at(self, t: int) -> Offer:
        """Return ``arms[lanes, K, dim]`` of round t, and ``valid[lanes, K]`` or None if all arms are on offer."""


class ArmLaw(Record):
    """Base class of arm laws, with a ``count`` of arms.

    A subclass implements ``_bind``. ``orthogonal`` says whether all arms are multiples of axes, in every dimension.
    ``is_fixed`` says whether every round has the same arms in the same order.

    >>> BallArms(count=3).bind(dim=2, L=1.0, lane_ids=4).at(1)[0].shape
    (4, 3, 2)
    """

    orthogonal: ClassVar[bool] = False
    is_fixed: ClassVar[bool] = False
    count: int

    def bind(self, *, dim: int, L: float, lane_ids: int | Sequence[int] | Index, seed: int = 0) -> ArmStream:
        """Return the arms of every round in every lane, of dimension ``dim`` and norm at most ``L``."""
        return self._bind(Frame.check("L", L, dim, lane_ids, seed))

    def _bind(self, frame: Frame) -> ArmStream:
        raise NotImplementedError


@record("")
class _NewArms(ArmLaw):
    """Arms that are drawn again every round."""

    count: int = setting("Number of arms in a round.", check_whole, 1, _MOST_ARMS, default=10)

    def _bind(self, frame: Frame) -> ArmStream:
        from windvane.environments.simulation import NewArms

        return NewArms(frame, self.kind, self.count)


@record("ball")
class BallArms(_NewArms):
    """Arms uniform in the ball of radius L."""


@record("sphere")
class SphereArms(_NewArms):
    """Arms uniform on the sphere of radius L."""


@record("cube")
class CubeArms(_NewArms):
    """Arms uniform in [-L, L]^dim; those longer than L are scaled to norm L."""


@record("orthogonal")
class OrthogonalArms(_NewArms):
    """Arms alpha e_i, i uniform among the axes and alpha uniform in [-L, L]: the paper's Assumption 4."""

    orthogonal: ClassVar[bool] = True


@record("gaussian")
class GaussianArms(_NewArms):
    """Standard normal arms; the set of a round is scaled so that its longest arm has norm L."""


@record("skewed")
class SkewedArms(_NewArms):
    """Arms with standard exponential coordinates; the set of a round is scaled so that its longest arm has norm L."""


class _RepeatedArms(NamedTuple):
    arms: Array  # [lanes, K, dim]

    def at(self, t: int) -> Offer:
        return self.arms.copy(), None


@record("fixed")
class FixedArms(ArmLaw):
    """The same arms every round.

    >>> FixedArms([[1, 0], [0, 1]]).count
    2
    """

    is_fixed: ClassVar[bool] = True
    arms: tuple[Vector, ...] = setting("The arms, [K, dim], with norms at most L.", check_vectors)

    @property
    def count(self) -> int:  # type: ignore[override]
        """The number of arms."""
        return len(self.arms)

    @property
    def orthogonal(self) -> bool:  # type: ignore[override]
        """Whether every arm is a multiple of an axis."""
        return all(sum(value != 0.0 for value in arm) <= 1 for arm in self.arms)

    def _bind(self, frame: Frame) -> ArmStream:
        return _RepeatedArms(np.tile(frame.check_points("arms", self.arms, "L"), (len(frame.lane_ids), 1, 1)))


@record("come-and-go")
class ComeAndGo(ArmLaw):
    """Slots of items drawn from ``law`` that live for ``lifetime`` rounds and may be absent for all of them.

    Slots change at different rounds: each is shifted by a random phase. If no item of a lane is on offer, the one that
    came closest is offered, so that a lane always has an arm. The item of a slot is thus on offer in a share
    presence + (1 - presence)^count / count of the rounds.

    >>> arms, valid = ComeAndGo(count=5, presence=1.0).bind(dim=2, L=1.0, lane_ids=1).at(1)
    >>> bool(valid.all())
    True
    """

    law: str = setting('"ball", "sphere" or "cube".', check_choice, ("ball", "sphere", "cube"), default="ball")
    count: int = setting("Number of slots.", check_whole, 1, _MOST_ARMS, default=10)
    lifetime: int = setting("Number of rounds that an item stays in its slot.", check_whole, 1, LATEST, default=100)
    presence: float = setting("Probability that an item is on offer; drawn once.", check_between, 0, 1, default=0.7)

    def _bind(self, frame: Frame) -> ArmStream:
        from windvane.environments.simulation import PassingArms

        return PassingArms(frame, self.law, self.count, self.lifetime, self.presence)


@record("drawn-once")
class ArmsDrawnOnce(ArmLaw):
    """Arms drawn from ``law`` for each lane, and then the same every round.

    >>> stream = ArmsDrawnOnce("gaussian", count=3).bind(dim=2, L=1.0, lane_ids=4)
    >>> bool((stream.at(1)[0] == stream.at(7)[0]).all())
    True
    """

    is_fixed: ClassVar[bool] = True
    law: str = setting('"ball", "sphere", "cube", "gaussian" or "skewed".', check_choice, DRAWN, default="ball")
    count: int = setting("Number of arms.", check_whole, 1, _MOST_ARMS, default=10)

    def _bind(self, frame: Frame) -> ArmStream:
        from windvane.environments.simulation import NewArms

        return _RepeatedArms(NewArms(frame, self.law, self.count).at(1)[0])


_ALL: tuple[type[ArmLaw], ...] = (*_NewArms.__subclasses__(), FixedArms, ArmsDrawnOnce, ComeAndGo)
ARM_LAWS = {law.kind: law for law in _ALL}
