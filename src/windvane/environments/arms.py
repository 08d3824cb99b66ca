"""Arm laws: what is offered each round, with all norms at most L. Each is a small frozen record.

============  ==========================================================================================================
kind          arms of a round
============  ==========================================================================================================
ball          uniform in the ball of radius L
sphere        uniform on the sphere of radius L
cube          uniform in [-L, L]^dim, those longer than L pulled back to norm L
orthogonal    alpha e_i, i uniform among the axes, alpha uniform in [-L, L] (the paper's Assumption 4)
gaussian      standard normal, the whole set then scaled so that its longest arm has norm L
skewed        coordinates standard exponential (never negative), the whole set then scaled like a Gaussian one
fixed         always the given ones
come-and-go   slots whose items live ``lifetime`` rounds and are offered with probability ``presence``
============  ==========================================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_choice, check_lanes, check_number, check_positive, check_whole
from windvane.environments._fields import LATEST, Vector, keep, vectors, within

Ids = npt.NDArray[np.int64]
Offer = tuple[Array, npt.NDArray[np.bool_] | None]

_MOST_ARMS = 10**5


class ArmStream:
    """A law bound to lanes: ``at(t)`` gives (arms[lanes, K, dim], valid[lanes, K] or None where all are there)."""

    def at(self, t: int) -> Offer:
        raise NotImplementedError


class ArmLaw:
    """What is offered each round. Subclasses are frozen dataclasses with a ``kind`` and a ``count`` of arms."""

    kind: ClassVar[str]
    orthogonal: ClassVar[bool] = False
    count: int

    def bind(self, *, dim: int, L: float, lane_ids: int | Sequence[int] | Ids, seed: int = 0) -> ArmStream:
        """The arms of every round in every lane."""
        return self._bind(
            check_whole("dim", dim, 1),
            check_positive("L", L),
            check_lanes(lane_ids),  # type: ignore[arg-type]
            check_whole("seed", seed, 0, 2**64 - 1),
        )

    def _bind(self, dim: int, L: float, lane_ids: Ids, seed: int) -> ArmStream:
        raise NotImplementedError


class _Drawn(ArmStream):
    def __init__(self, kind: str, count: int, dim: int, L: float, lane_ids: Ids, seed: int) -> None:
        from windvane.kernels import drawing, random

        if count * drawing.blocks_of(dim) > random.LARGEST_BLOCK:
            raise ValueError(f"count={count} and dim={dim}: too many random numbers a round")
        self._code = getattr(drawing, kind.upper())
        self._L, self._ids, self._seed = L, lane_ids, np.uint64(seed)
        self._shape = (len(lane_ids), count, dim)

    def at(self, t: int) -> Offer:
        from windvane.kernels import drawing

        arms = np.empty(self._shape)
        drawing.draw_arms(self._code, self._L, self._seed, self._ids, check_whole("t", t, 1, LATEST), arms)
        return arms, None


@dataclass(frozen=True)
class _FreshArms(ArmLaw):
    """``count`` arms a round, drawn afresh."""

    count: int = 10

    def __post_init__(self) -> None:
        keep(self, count=check_whole("count", self.count, 1, _MOST_ARMS))

    def _bind(self, dim: int, L: float, lane_ids: Ids, seed: int) -> ArmStream:
        return _Drawn(self.kind, self.count, dim, L, lane_ids, seed)


@dataclass(frozen=True)
class BallArms(_FreshArms):
    """Uniform in the ball of radius L."""

    kind: ClassVar[str] = "ball"


@dataclass(frozen=True)
class SphereArms(_FreshArms):
    """Uniform on the sphere of radius L."""

    kind: ClassVar[str] = "sphere"


@dataclass(frozen=True)
class CubeArms(_FreshArms):
    """Uniform in [-L, L]^dim; arms longer than L are pulled back to norm L."""

    kind: ClassVar[str] = "cube"


@dataclass(frozen=True)
class OrthogonalArms(_FreshArms):
    """alpha e_i with i uniform among the axes and alpha uniform in [-L, L]."""

    kind: ClassVar[str] = "orthogonal"
    orthogonal: ClassVar[bool] = True


@dataclass(frozen=True)
class GaussianArms(_FreshArms):
    """Standard normal; the set of a round is then scaled so that its longest arm has norm L."""

    kind: ClassVar[str] = "gaussian"


@dataclass(frozen=True)
class SkewedArms(_FreshArms):
    """Standard exponential coordinates; the set of a round is then scaled so that its longest arm has norm L."""

    kind: ClassVar[str] = "skewed"


class _Fixed(ArmStream):
    def __init__(self, arms: Array, lanes: int) -> None:
        self._arms, self._lanes = arms, lanes

    def at(self, t: int) -> Offer:
        return np.tile(self._arms, (self._lanes, 1, 1)), None


@dataclass(frozen=True)
class FixedArms(ArmLaw):
    """Always the same arms, [K, dim]."""

    kind: ClassVar[str] = "fixed"
    arms: tuple[Vector, ...]

    def __post_init__(self) -> None:
        keep(self, arms=vectors("arms", self.arms))

    @property
    def count(self) -> int:  # type: ignore[override]
        return len(self.arms)

    def _bind(self, dim: int, L: float, lane_ids: Ids, seed: int) -> ArmStream:
        return _Fixed(within("arms", self.arms, dim, L, "L"), len(lane_ids))


class _Items(_Drawn):
    def __init__(self, law: ComeAndGo, dim: int, L: float, lane_ids: Ids, seed: int) -> None:
        from windvane.kernels import drawing

        super().__init__(law.law, law.count, dim, L, lane_ids, seed)
        self._lifetime, self._presence = law.lifetime, law.presence
        slots = self._shape[:2]
        self._phases, self._held = np.empty(slots, dtype=np.int64), np.zeros(slots, dtype=np.int64)
        self._arms, self._coins = np.empty(self._shape), np.empty(slots)
        drawing.draw_phases(self._seed, lane_ids, law.lifetime, self._phases)

    def at(self, t: int) -> Offer:
        from windvane.kernels import drawing

        t = check_whole("t", t, 1, LATEST)
        valid = np.empty(self._shape[:2], dtype=bool)
        drawing.draw_items(
            self._code,
            self._L,
            self._seed,
            self._ids,
            t,
            self._phases,
            self._lifetime,
            self._presence,
            self._held,
            self._coins,
            self._arms,
            valid,
        )
        return self._arms.copy(), valid


@dataclass(frozen=True)
class ComeAndGo(ArmLaw):
    """``count`` slots. An item stays in its slot for ``lifetime`` rounds, then a new one is drawn from ``law``.

    Slots change at different rounds: each is shifted by a random phase. An item is offered with probability
    ``presence``, drawn once for its whole life; where no item of a lane is, the one that came nearest to it is
    offered, so that there is always one. A slot is thus offered a share presence + (1 - presence)^count / count of
    the time.
    """

    kind: ClassVar[str] = "come-and-go"
    law: str = "ball"
    count: int = 10
    lifetime: int = 100
    presence: float = 0.7

    def __post_init__(self) -> None:
        keep(
            self,
            law=check_choice("law", self.law, (BallArms.kind, SphereArms.kind, CubeArms.kind)),
            count=check_whole("count", self.count, 1, _MOST_ARMS),
            lifetime=check_whole("lifetime", self.lifetime, 1, LATEST),
            presence=check_number("presence", self.presence, "in [0, 1]", lambda v: 0 <= v <= 1),
        )

    def _bind(self, dim: int, L: float, lane_ids: Ids, seed: int) -> ArmStream:
        return _Items(self, dim, L, lane_ids, seed)


ARM_LAWS: dict[str, type[ArmLaw]] = {
    law.kind: law
    for law in (BallArms, SphereArms, CubeArms, OrthogonalArms, GaussianArms, SkewedArms, FixedArms, ComeAndGo)
}
