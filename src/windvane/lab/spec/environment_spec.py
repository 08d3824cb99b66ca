"""The environments of an experiment: simulated ones, labelled data streams and Gymnasium environments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from os import PathLike, fspath
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Tag

from windvane.arguments import check_choice, check_positive
from windvane.environments import AnyEnvironment, FunctionDrift, LabelledStream, LoggedPath
from windvane.environments.data_files import check_sha256, read_file
from windvane.environments.fields import LATEST, check_vectors
from windvane.environments.labelled_stream import ON_MISSING
from windvane.errors import ArgumentError
from windvane.lab.run.build import build_environment
from windvane.lab.spec.field_types import (
    PARTS,
    ArmsPart,
    Checked,
    DelayPart,
    Dim,
    DriftPart,
    Intercept,
    LinkName,
    NotNegative,
    OptionalText,
    Positive,
    RewardsPart,
    Text,
    check_text,
    optional,
    spec_model,
    whole,
)
from windvane.lab.spec.python_objects import find_name
from windvane.lab.spec.spec_errors import SpecError, locate, located, split_argument


def _check_path(name: str, value: Any) -> str:
    if not isinstance(value, str | PathLike):
        raise ArgumentError(name, value, "the path of a CSV or Parquet file")
    return check_text(name, fspath(value), most=4096)


def _check_function(name: str, value: Any) -> Any:
    """Return a function as a spec stores it: by name if it has one. Nothing is imported."""
    if hasattr(value, "__qualname__"):  # a function or class; other callable objects have no name
        return find_name(value) or value
    if not isinstance(value, str) or ":" not in value:
        raise ArgumentError(name, value, 'a function, or "module:name" of one')
    return value


def _check_range(name: str, value: Any) -> tuple[float, ...]:
    numbers = check_vectors(name, value, 1)
    if len(numbers) != 2 or not numbers[0] < numbers[1]:
        raise ArgumentError(name, value, "the smallest and the largest reward")
    return numbers


FilePath = Annotated[str, Checked({"type": "string"}, _check_path)]
FunctionName = Annotated[Callable[..., Any] | str, Checked({"type": "string", "pattern": ".+:.+"}, _check_function)]
RewardRange = Annotated[
    tuple[float, float] | None,
    Checked({"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}, optional(_check_range)),
]
Missing = Annotated[str, Checked({"enum": list(ON_MISSING)}, check_choice, ON_MISSING)]
Digest = Annotated[str | None, Checked({"type": "string", "pattern": "^[0-9a-f]{64}$"}, optional(check_sha256))]


class BuildableSpec:
    """What all environments of a spec have: they can be built, checked and pinned."""

    def build(self, *, horizon: int | None, lanes: int | Sequence[int], seed: int) -> Any:
        """Return the environment for these lanes; for a labelled data stream, the horizon None means all rows."""
        try:
            return build_environment(self, horizon=horizon, lanes=lanes, seed=seed)  # type: ignore[arg-type]
        except Exception as error:  # a function of the user may run in it
            raise self._locate(error) from error

    def check(self, *, horizon: int, seed: int) -> AnyEnvironment:
        """Return the environment with one lane, after following its drift to the end: errors are found here."""
        environment: AnyEnvironment = self.build(horizon=horizon, lanes=1, seed=seed)
        try:
            environment.variation  # noqa: B018
            environment.round(1)
        except Exception as error:
            raise self._locate(error) from error
        return environment

    def pin(self) -> Self:
        """Return this spec with the checksums of its files."""
        return self

    def _locate(self, error: Exception) -> SpecError:
        """Return ``error`` at the field that it names."""
        return locate(error, (), _list_fields(self))


@spec_model("simulated")
class EnvironmentSpec(BuildableSpec):
    """A simulated environment of an experiment.

    Parameters
    ----------
    name
        What results call it.
    drift, arms, rewards, dim, S, L, intercept, delay
        As in :class:`windvane.environments.Environment`. In a file, drifts and laws are tables with a ``kind``.
    link
        A name ("logistic"), a link, or "module:name" of one.

    Notes
    -----
    A link or a drift function given as "module:name" is imported, which runs the code of the module, when the spec is
    checked or the environment is built. An object that can be imported by name is stored by its name.

    Examples
    --------
    >>> from windvane.environments import BallArms, Rotation
    >>> EnvironmentSpec("turning", Rotation(), BallArms(count=5), S=2).S
    2.0
    """

    name: Text
    drift: DriftPart
    arms: ArmsPart
    rewards: RewardsPart = None
    dim: Dim = 2
    link: LinkName = "logistic"
    S: Positive = 1.0
    L: Positive = 1.0
    intercept: Intercept = None
    delay: DelayPart = None
    kind: Literal["simulated"] = "simulated"

    def _locate(self, error: Exception) -> SpecError:
        """Return ``error`` at the field that it names: of a part, if only one part has it, or of the environment."""
        if not isinstance(error, ValueError):
            place = ("drift", "function") if isinstance(self.drift, FunctionDrift) else ()
            return locate(error, place)
        path, _ = split_argument(error.argument) if isinstance(error, ArgumentError) else ((), False)
        homes = [part for part in PARTS if path and path[0] in _list_fields(getattr(self, part))]
        if len(homes) == 1:
            return locate(error, (homes[0],), _list_fields(getattr(self, homes[0])))
        return locate(error, (), () if homes else _list_fields(self))

    def pin(self) -> EnvironmentSpec:
        """Return this spec with the checksum of the file of a logged path, unless it has one."""
        if not isinstance(self.drift, LoggedPath):
            return self
        with located("drift", known=("file",)):
            return dataclasses.replace(self, drift=self.drift.pin())


@spec_model("labelled-stream")
class LabelledStreamSpec(BuildableSpec):
    """A labelled data stream as an environment of an experiment.

    Parameters
    ----------
    name
        What results call it.
    file
        A CSV or Parquet file; a relative path starts at the current folder. The first ``horizon`` rows are used.
    label, missing, S, drift, switches
        As in :meth:`windvane.environments.LabelledStream.read`.
    sha256
        The checksum that the file must have. A run sets it. The fingerprint of the spec depends on the content of the
        file, not on its path.

    Examples
    --------
    >>> LabelledStreamSpec("electricity", "electricity.csv", label="class").missing
    'refuse'
    """

    name: Text
    file: FilePath
    label: OptionalText = None
    missing: Missing = "refuse"
    S: Positive = 1.0
    drift: NotNegative = None
    switches: Annotated[int, whole(0, LATEST)] = 1
    sha256: Digest = None
    kind: Literal["labelled-stream"] = "labelled-stream"
    L: ClassVar[float] = LabelledStream.L
    link: ClassVar[str] = "logistic"

    def pin(self) -> LabelledStreamSpec:
        """Return this spec with the checksum of the file, unless it has one."""
        if self.sha256 is not None:
            return self
        try:
            return dataclasses.replace(self, sha256=read_file(self.file)[1])
        except ArgumentError as error:
            raise self._locate(error) from error

    def _locate(self, error: Exception) -> SpecError:
        """Return an error about the file or its content as an error of the field ``file``."""
        if not isinstance(error, ArgumentError) or error.argument in ("label", "sha256"):
            return super()._locate(error)
        if error.argument == "rows":
            return SpecError(("file",), f"the horizon {error.problem}")
        return SpecError(("file",), error.problem if error.argument == "path" else str(error))


@spec_model("gymnasium")
class GymnasiumSpec(BuildableSpec):
    """A Gymnasium environment as an environment of an experiment.

    Parameters
    ----------
    name
        What results call it.
    make, arms
        Functions as in :class:`windvane.environments.gymnasium.GymnasiumEnvironment`, or "module:name" of them, which
        are imported when the spec is checked or the environment is built.
    link, S, L, sigma, reward_range, drift, switches
        As in :class:`windvane.environments.gymnasium.GymnasiumEnvironment`.

    Examples
    --------
    >>> GymnasiumSpec("shop", "my_module:make_shop", reward_range=(0, 5)).kind
    'gymnasium'
    """

    name: Text
    make: FunctionName
    arms: FunctionName | None = None
    link: LinkName = "logistic"
    S: Positive = 1.0
    L: Positive = 1.0
    sigma: Annotated[float | None, Checked({"type": "number", "exclusiveMinimum": 0}, optional(check_positive))] = None
    reward_range: RewardRange = None
    drift: NotNegative = None
    switches: Annotated[int, whole(0, LATEST)] = 1
    kind: Literal["gymnasium"] = "gymnasium"


def _list_fields(value: Any) -> Collection[str]:
    return [field.name for field in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []


def _read_kind(value: Any) -> Any:
    """Return the kind of an environment, given as a table or an object; a table without one is simulated."""
    kind = value.get("kind", "simulated") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind if isinstance(kind, str | None) else repr(kind)


AnyEnvironmentSpec = EnvironmentSpec | LabelledStreamSpec | GymnasiumSpec
EnvironmentTable = Annotated[
    Annotated[EnvironmentSpec, Tag("simulated")]
    | Annotated[LabelledStreamSpec, Tag("labelled-stream")]
    | Annotated[GymnasiumSpec, Tag("gymnasium")],
    Discriminator(_read_kind),
]
