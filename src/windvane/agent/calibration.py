"""Calibration: mean prediction against mean reward, over all settled decisions, over recent ones, and by arm.

Decisions made before anything was learned are left out: their predictions are those of the prior, and with a
``reward_timeout`` of a day, a whole day has no others. The agent sets ``start`` when it first learns an outcome or
history, and adds the outcomes of the decisions from that number on.

Decision i recorded the prediction p_i for the arm that was played; its final outcome is r_i. For n decisions

    standard error = sqrt(max(sum (r_i - p_i)^2, sum v_i)) / n,        z = (mean r - mean p) / standard error

where v_i is the variance that the prediction implies: p_i (1 - p_i), the largest possible one, for rewards in [0, 1];
p_i for other counts; 0 elsewhere. If every p_i is the mean of r_i given the past, z is about standard normal. The
larger of the two sums is used because each fails alone: 1000 decisions without a reward have no empirical variance, and
predictions near 0 imply none.

An agent is *miscalibrated* if, of its last 1000 outcomes, abs(z) is at least 5.5 and the means differ by a tenth of the
larger one. It no longer is once abs(z) is below 3 or the means differ by less than a twentieth. This is checked after
every 100 outcomes, from the 2000th on: the first 1000, in which a policy starts from its prior, do not count.

Not every gap is an error of the model. A policy plays arms that it overrates more often than arms that it underrates.
In static worlds that the model describes, this moves z to about -1 to -2 where rewards are rare, and errors that last
until outcomes are learned make z vary more. The threshold allows for that: tests/agent/test_calibration.py counts false
alarms. Where rewards drift, more over-prediction is expected. Selected outcomes hide errors: without
``default_reward``, both means are over the decisions that got a reward.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any

from windvane.agent.names import check_flag, check_name
from windvane.arguments import check_whole
from windvane.errors import ArgumentError
from windvane.links import Link, Poisson
from windvane.records import ArmCalibration, Calibration, CalibrationMeans, Name

BLOCK, BLOCKS = 100, 10  # recent are the outcomes of the last 10 full blocks of 100, and of the block being filled
START = 1000  # the first outcomes, which raise no alert
MOST_ARMS = 100  # with their own means: the most recently settled
RAISE_Z, RAISE_SHARE = 5.5, 0.1
LOWER_Z, LOWER_SHARE = 3.0, 0.05
MOST = 2**53

Sums = list[float]
"""Of outcomes: how many, and the sums of predictions, rewards, squared errors, and variances that predictions imply."""


class CalibrationMonitor:
    """Compares an agent's predictions with its outcomes; see the module.

    ``fresh`` lists the outcomes since the last full block: arm, prediction, reward. The others are sums: ``total`` over
    all outcomes before, ``blocks`` over each of the last full blocks, ``arms`` by arm, most recently settled last, and
    ``others`` over arms that are no longer listed.
    """

    def __init__(self, link: Link, reward_range: tuple[float, float]) -> None:
        is_share = reward_range[0] >= 0.0 and reward_range[1] <= 1.0
        self._linear = 1.0 if is_share or isinstance(link, Poisson) else 0.0  # v = linear p - square p^2
        self._square = 1.0 if is_share else 0.0
        self.fresh: list[tuple[Name, float, float]] = []
        self.total, self.others = _zeros(), _zeros()
        self.blocks: deque[Sums] = deque(maxlen=BLOCKS)
        self.arms: dict[Name, Sums] = {}
        self.is_off = False
        self.start: int | None = None  # the number of the first decision made after something was learned

    def begin(self, decisions: int) -> None:
        """Record that an outcome or history was learned after so many ``decisions``. Only the first call counts."""
        if self.start is None:
            self.start = decisions

    def covers(self, number: int) -> bool:
        """Return whether the prediction for the decision with this ``number`` rests on anything learned."""
        return self.start is not None and number >= self.start

    def add(self, arm: Name, prediction: float, reward: float) -> None:
        """Add the outcome of a decision for ``arm``. Called for every reward, so sums are updated block by block."""
        self.fresh.append((arm, prediction, reward))
        if len(self.fresh) >= BLOCK:
            self._end_block()

    def _end_block(self) -> None:
        block = self._sum_up(self.arms, self.others)
        self.fresh = []
        self.total = _add((self.total, block))
        self.blocks.append(block)
        if self.total[0] >= START + BLOCKS * BLOCK:
            z, share = _gap(_add(self.blocks))
            least_z, least_share = (LOWER_Z, LOWER_SHARE) if self.is_off else (RAISE_Z, RAISE_SHARE)
            self.is_off = abs(z) >= least_z and share >= least_share

    def _sum_up(self, arms: dict[Name, Sums], others: Sums) -> Sums:
        """Return the sums of the fresh outcomes, and add them to ``arms`` and ``others``."""
        linear, quadratic = self._linear, self._square
        predicted = realised = squares = variances = 0.0
        for arm, prediction, reward in self.fresh:
            error = reward - prediction
            square, variance = error * error, (linear - quadratic * prediction) * prediction
            own = arms.pop(arm, None)
            if own is None:
                own = _zeros()
                if len(arms) >= MOST_ARMS:
                    others[:] = _add((others, arms.pop(next(iter(arms)))))
            arms[arm] = own
            own[0] += 1
            own[1] += prediction
            own[2] += reward
            own[3] += square
            own[4] += variance
            predicted += prediction
            realised += reward
            squares += square
            variances += variance
        return [len(self.fresh), predicted, realised, squares, variances]

    def describe(self) -> Calibration:
        """Return the means. Reading changes nothing."""
        arms, others = {arm: list(sums) for arm, sums in self.arms.items()}, list(self.others)
        block = self._sum_up(arms, others)
        ranked = sorted(arms.items(), key=lambda item: (-item[1][0], str(item[0])))
        return Calibration(
            overall=CalibrationMeans(**_means(_add((self.total, block)))),
            recent=CalibrationMeans(**_means(_add((*self.blocks, block)))),
            by_arm=[ArmCalibration(arm=arm, **_means(sums)) for arm, sums in ranked],
            others=CalibrationMeans(**_means(others)),
            is_off=self.is_off,
        )

    @property
    def recent(self) -> CalibrationMeans:
        return CalibrationMeans(**_means(_add((*self.blocks, self._sum_up({}, _zeros())))))

    # --- saving ----------------------------------------------------------------------------------------------------

    def to_plain(self) -> dict[str, Any]:
        """Return a copy of the state as JSON-compatible data."""
        return {
            "fresh": [list(outcome) for outcome in self.fresh],
            "total": list(self.total),
            "blocks": [list(block) for block in self.blocks],
            "arms": [[arm, *own] for arm, own in self.arms.items()],
            "others": list(self.others),
            "is_off": self.is_off,
            "start": self.start,
        }

    def restore(self, plain: dict[str, Any]) -> None:
        """Take over a state that :meth:`to_plain` returned."""
        self.fresh = [(check_name("calibration", arm), *_check_floats(pair, 2)) for arm, *pair in plain["fresh"]]  # type: ignore[misc]
        self.total, self.others = _check_sums(plain["total"]), _check_sums(plain["others"])
        self.blocks = deque(map(_check_sums, plain["blocks"]), maxlen=BLOCKS)
        self.arms = {check_name("calibration", arm): _check_sums(own) for arm, *own in plain["arms"]}
        self.is_off = check_flag("calibration", plain["is_off"])
        self.start = None if plain["start"] is None else check_whole("calibration", plain["start"], 0, MOST)
        if len(self.fresh) >= BLOCK or not len(self.arms) == len(plain["arms"]) <= MOST_ARMS:
            raise ArgumentError("calibration", None, "outcomes and arms within their bounds", got="others")


def _zeros() -> Sums:
    return [0, 0.0, 0.0, 0.0, 0.0]


def _add(parts: Iterable[Sums]) -> Sums:
    """Return the sums over all parts, added in their order."""
    total = _zeros()
    for part in parts:
        total = [a + b for a, b in zip(total, part, strict=True)]
    return total


def _means(sums: Sums) -> dict[str, Any]:
    """Return the fields of :class:`windvane.records.CalibrationMeans`. What is not a finite number is None."""
    n, predicted, realised, squares, variances = sums
    if not n:
        return {"settled": 0, "mean_prediction": None, "mean_reward": None, "standard_error": None, "z": None}
    means = {"mean_prediction": predicted / n, "mean_reward": realised / n}
    means |= {"standard_error": math.sqrt(max(squares, variances)) / n, "z": _gap(sums)[0]}
    return {"settled": int(n)} | {name: value if math.isfinite(value) else None for name, value in means.items()}


def _gap(sums: Sums) -> tuple[float, float]:
    """Return z, and the gap between the means as a share of the larger one; 0 where there is none."""
    _, predicted, realised, squares, variances = sums
    gap, spread, larger = realised - predicted, math.sqrt(max(squares, variances)), max(abs(predicted), abs(realised))
    return (gap / spread if spread > 0.0 else 0.0), (abs(gap) / larger if larger > 0.0 else 0.0)


def _check_sums(values: Any) -> Sums:
    """Return sums from a file: a count, then numbers."""
    count, *others = values
    return [check_whole("calibration", count, 0, MOST), *_check_floats(others, 4)]


def _check_floats(values: Any, count: int) -> list[float]:
    """Return numbers from a file, which may be infinite where predictions were."""
    if len(values) != count or not all(isinstance(value, float) for value in values):
        raise ArgumentError("calibration", values, f"{count} numbers")
    return list(values)
