"""Arm laws: which arms are offered each round, with all norms at most L."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_choice, check_lanes, check_positive, check_whole
from windvane.environments.fields import LATEST, Record, Vector, check_norms, check_vectors, number, whole

Ids = npt.NDArray[np.int64]
Offer = tuple[Array, npt.NDArray[np.bool_] | None]

_MOST_ARMS = 10**5  # of one round and lane; more would take seconds to score


class ArmStream(Protocol):
    """An arm law bound to lanes."""

    def at(self, t: int) -> Offer:
        """Return ``arms[lanes, K, dim]`` of round t, and ``valid[lanes, K]`` or None if all arms are on offer."""


class ArmLaw(Record):
    """Base class of arm laws: frozen dataclasses with a ``kind`` and a ``count`` of arms.

    A subclass implements ``_bind``. ``orthogonal`` says whether all arms are multiples of axes.

    Examples
    --------
    >>> BallArms(count=3).bind(dim=2, L=1.0, lane_ids=4).at(1)[0].shape
    (4, 3, 2)
    """

    orthogonal: ClassVar[bool] = False
    count: int

    def bind(self, *, dim: int, L: float, lane_ids: int | Sequence[int] | Ids, seed: int = 0) -> ArmStream:
        """Return the arms of every round in every lane, of dimension ``dim`` and norm at most ``L``."""
        dim, L, ids = check_whole("dim", dim, 1), check_positive("L", L), check_lanes(lane_ids)  # type: ignore[arg-type]
        return self._bind(dim, L, ids, check_whole("seed", seed, 0, 2**64 - 1))

    def _bind(self, dim: int, L: float, lane_ids: Ids, seed: int) -> ArmStream:
        raise NotImplementedError


@dataclass(frozen=True)
class _NewArms(ArmLaw):
    """``count`` arms that are drawn again every round."""

    checks: ClassVar = {"count": whole(1, _MOST_ARMS)}
    count: int = 10

    def _bind(self, dim: int, L: float, lane_ids: Ids, seed: int) -> ArmStream:
        from windvane.environments.simulation import NewArms

        return NewArms(self.kind, self.count, dim, L, lane_ids, seed)


@dataclass(frozen=True)
class BallArms(_NewArms):
    """Arms uniform in the ball of radius L.

    Parameters
    ----------
    count : number of arms in a round

    Examples
    --------
    >>> BallArms(count=5)
    BallArms(count=5)
    """

    kind: ClassVar[str] = "ball"


@dataclass(frozen=True)
class SphereArms(_NewArms):
    """Arms uniform on the sphere of radius L.

    Parameters
    ----------
    count : number of arms in a round

    Examples
    --------
    >>> arms, _ = SphereArms(count=1).bind(dim=3, L=2.0, lane_ids=1).at(1)
    >>> float(np.linalg.norm(arms).round(12))
    2.0
    """

    kind: ClassVar[str] = "sphere"


@dataclass(frozen=True)
class CubeArms(_NewArms):
    """Arms uniform in [-L, L]^dim; those longer than L are scaled to norm L.

    Parameters
    ----------
    count : number of arms in a round

    Examples
    --------
    >>> CubeArms().count
    10
    """

    kind: ClassVar[str] = "cube"


@dataclass(frozen=True)
class OrthogonalArms(_NewArms):
    """Arms alpha e_i, i uniform among the axes and alpha uniform in [-L, L]: the paper's Assumption 4.

    Parameters
    ----------
    count : number of arms in a round

    Examples
    --------
    >>> arms, _ = OrthogonalArms(count=4).bind(dim=3, L=1.0, lane_ids=1).at(1)
    >>> (arms != 0).sum(axis=-1).tolist()
    [[1, 1, 1, 1]]
    """

    kind: ClassVar[str] = "orthogonal"
    orthogonal: ClassVar[bool] = True


@dataclass(frozen=True)
class GaussianArms(_NewArms):
    """Standard normal arms; the set of a round is scaled so that its longest arm has norm L.

    Parameters
    ----------
    count : number of arms in a round

    Examples
    --------
    >>> arms, _ = GaussianArms(count=4).bind(dim=3, L=2.0, lane_ids=1).at(1)
    >>> float(np.linalg.norm(arms, axis=-1).max().round(12))
    2.0
    """

    kind: ClassVar[str] = "gaussian"


@dataclass(frozen=True)
class SkewedArms(_NewArms):
    """Arms with standard exponential coordinates; the set of a round is scaled so that its longest arm has norm L.

    Parameters
    ----------
    count : number of arms in a round

    Examples
    --------
    >>> arms, _ = SkewedArms(count=4).bind(dim=3, L=2.0, lane_ids=1).at(1)
    >>> bool((arms > 0).all())
    True
    """

    kind: ClassVar[str] = "skewed"


class _RepeatedArms(NamedTuple):
    arms: Array
    lanes: int

    def at(self, t: int) -> Offer:
        return np.tile(self.arms, (self.lanes, 1, 1)), None


@dataclass(frozen=True)
class FixedArms(ArmLaw):
    """The same arms every round.

    Parameters
    ----------
    arms : the arms, [K, dim], with norms at most L

    Examples
    --------
    >>> FixedArms([[1, 0], [0, 1]]).count
    2
    """

    kind: ClassVar[str] = "fixed"
    checks: ClassVar = {"arms": check_vectors}
    arms: tuple[Vector, ...]

    @property
    def count(self) -> int:  # type: ignore[override]
        """The number of arms."""
        return len(self.arms)

    def _bind(self, dim: int, L: float, lane_ids: Ids, seed: int) -> ArmStream:
        return _RepeatedArms(check_norms("arms", self.arms, dim, L, "L"), len(lane_ids))


@dataclass(frozen=True)
class ComeAndGo(ArmLaw):
    """Slots whose items live for a number of rounds, and may be absent all their life.

    Slots change at different rounds: each is shifted by a random phase. If no item of a lane is on offer, the one that
    came nearest to it is, so that there is always one. A slot is thus on offer a share
    presence + (1 - presence)^count / count of the time.

    Parameters
    ----------
    law : kind of the law from which items are drawn: "ball", "sphere" or "cube"
    count : number of slots
    lifetime : rounds that an item stays in its slot; then a new one is drawn
    presence : probability that an item is on offer, drawn once for its whole life

    Examples
    --------
    >>> arms, valid = ComeAndGo(count=5, presence=1.0).bind(dim=2, L=1.0, lane_ids=1).at(1)
    >>> bool(valid.all())
    True
    """

    kind: ClassVar[str] = "come-and-go"
    checks: ClassVar = {
        "law": lambda name, law: check_choice(name, law, (BallArms.kind, SphereArms.kind, CubeArms.kind)),
        "count": whole(1, _MOST_ARMS),
        "lifetime": whole(1, LATEST),
        "presence": number("in [0, 1]", lambda v: 0 <= v <= 1),
    }
    law: str = "ball"
    count: int = 10
    lifetime: int = 100
    presence: float = 0.7

    def _bind(self, dim: int, L: float, lane_ids: Ids, seed: int) -> ArmStream:
        from windvane.environments.simulation import PassingArms

        return PassingArms(self.law, self.count, self.lifetime, self.presence, dim, L, lane_ids, seed)


_ALL = (BallArms, SphereArms, CubeArms, OrthogonalArms, GaussianArms, SkewedArms, FixedArms, ComeAndGo)
ARM_LAWS: dict[str, type[ArmLaw]] = {law.kind: law for law in _ALL}
