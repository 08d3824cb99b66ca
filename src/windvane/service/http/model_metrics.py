"""Metrics of the models of streams: calibration, memory, half-life and projections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric

from windvane.agent import AgentCore
from windvane.agent.memory import half_life_of, memory_of, to_decisions_and_seconds
from windvane.policies.base import Policy
from windvane.records import Calibration, CalibrationMeans

_MEANS: dict[str, tuple[str, Callable[[CalibrationMeans], float | None]]] = {
    "settled": ("Settled decisions", lambda means: means.settled),
    "mean_prediction": ("Mean prediction of settled decisions", lambda means: means.mean_prediction),
    "mean_reward": ("Mean outcome of settled decisions", lambda means: means.mean_reward),
    "calibration_z": ("Mean outcome minus mean prediction, in standard errors", lambda means: means.z),
}
_LENGTHS: dict[str, tuple[str, Callable[[Policy], float]]] = {
    "memory": ("How far back the past counts", memory_of),
    "half_life": ("Until half of the information in a reward is lost", half_life_of),
}


class ModelNumbers(NamedTuple):
    """What is known about the model of a stream. Lengths are in decisions and in seconds."""

    calibration: Calibration
    has_declared_arms: bool
    lengths: dict[str, tuple[float | None, float | None]]
    projected: float
    recently_projected: float


def read_model(core: AgentCore) -> ModelNumbers:
    """Return the numbers of a model as it is now."""
    features = core.encoder.features
    return ModelNumbers(
        calibration=core.calibration.describe(),
        has_declared_arms=features is not None and bool(features.arms),
        lengths={name: to_decisions_and_seconds(core, measure(core.policy)) for name, (_, measure) in _LENGTHS.items()},
        projected=core.projected_share,
        recently_projected=core.recently_projected.share,
    )


def collect_models(models: Mapping[str, ModelNumbers]) -> Iterable[Metric]:
    """Yield the metrics of the models of streams, by name. Unknown values are omitted.

    ``windvane_mean_reward`` is not among them: it is one of the counts of a stream.
    """
    yield from _collect_calibration({name: model.calibration for name, model in models.items()})
    yield from _collect_arms({name: model.calibration for name, model in models.items() if model.has_declared_arms})
    for length, (text, _) in _LENGTHS.items():
        for place, unit in enumerate(("decisions", "seconds")):
            values = {name: model.lengths[length][place] for name, model in models.items()}
            yield _gauge(f"windvane_{length}_{unit}", f"{text}, in {unit}", values)
    text = "decisions whose estimate was outside the ball of radius S"
    shares = {name: model.projected for name, model in models.items()}
    yield _gauge("windvane_projected_ratio", f"Share of all {text}", shares)
    shares = {name: model.recently_projected for name, model in models.items()}
    yield _gauge("windvane_recent_projected_ratio", f"Share of the last 200 {text}", shares)


def _collect_calibration(calibrations: Mapping[str, Calibration]) -> Iterable[Metric]:
    overall = {name: calibration.overall for name, calibration in calibrations.items()}
    recent = {name: calibration.recent for name, calibration in calibrations.items()}
    for prefix, when, means in (("", "all", overall), ("recent_", "the last 1000 to 1099", recent)):
        for field, (text, read) in _MEANS.items():
            if prefix or field not in ("settled", "mean_reward"):  # which are among the counts
                values = {name: read(each) for name, each in means.items()}
                yield _gauge(f"windvane_{prefix}{field}", f"{text}: {when}", values)


def _collect_arms(calibrations: Mapping[str, Calibration]) -> Iterable[Metric]:
    """Yield means by arm, for streams that declare their arms; in others the number of arms is unbounded."""
    for field in ("settled", "mean_prediction", "mean_reward"):
        text, read = _MEANS[field]
        metric = GaugeMetricFamily(f"windvane_arm_{field}", f"{text}: by arm", labels=["stream", "arm"])
        for name, calibration in calibrations.items():
            for means in calibration.by_arm:
                if (value := read(means)) is not None:
                    metric.add_metric([name, str(means.arm)], value)
        yield metric


def _gauge(name: str, text: str, values: Mapping[str, float | None]) -> Metric:
    metric = GaugeMetricFamily(name, text, labels=["stream"])
    for stream, value in values.items():
        if value is not None:
            metric.add_metric([stream], value)
    return metric
