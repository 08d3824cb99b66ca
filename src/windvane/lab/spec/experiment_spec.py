"""A spec describes an experiment, as Python objects or as a TOML file.

    title = "two worlds"
    runs = 50
    horizon = 3000

    [[environments]]
    name = "turning"
    drift = { kind = "rotation" }
    arms = { kind = "ball", count = 10 }

    [[environments]]
    name = "electricity"
    kind = "labelled-stream"         # the arms are the classes of the column ``label``
    file = "elec.csv"
    label = "class"

    [[policies]]
    policy = "BVD-GLM-UCB"
    settings = { bonus_scale = 0.5 } # arguments of the constructor

    [[policies]]
    policy = "D-LinUCB"
    sweep = { gamma = [0.9, 0.99, 0.999] }

``windvane new`` writes a commented one. Every policy and every variant of a sweep runs in every environment, ``runs``
times. A spec is checked when it is created; :meth:`Spec.check` also builds all of it once. Errors name the field and,
for a file, the line: ``spec.toml:12: environments[0].drift.period: must be ..., got -3``.

A spec can name Python objects as "module:name" (the class of a policy, a link, the function of a drift). Checking or
running such a spec imports those modules and so runs their code.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from os import PathLike
from typing import Annotated, Any, ClassVar

from pydantic import GetPydanticSchema, TypeAdapter

from windvane.environments import AnyEnvironment
from windvane.environments.fields import LATEST
from windvane.errors import ArgumentError
from windvane.lab.run.build import close_environment
from windvane.lab.run.cells import count_cells
from windvane.lab.spec import fingerprint, toml_text, toml_writer
from windvane.lab.spec.environment_spec import (
    AnyEnvironmentSpec,
    EnvironmentSpec,
    EnvironmentTable,
    GymnasiumSpec,
    LabelledStreamSpec,
)
from windvane.lab.spec.field_types import MODELS, Flag, Title, spec_model, translated, whole
from windvane.lab.spec.policy_spec import PolicySpec, label_variant
from windvane.lab.spec.spec_errors import SpecError, add_hint, located

__all__ = [
    "AnyEnvironmentSpec",
    "EnvironmentSpec",
    "GymnasiumSpec",
    "LabelledStreamSpec",
    "PolicySpec",
    "Spec",
    "SpecError",
]

MOST_RUNS = 2**32  # lane ids have 32 bits
LONGEST = 2**52  # rounds a policy can count
MOST_CELLS = 10**6
MOST_VARIANTS = 10**4  # of a sweep: each is built once in every environment when a spec is checked
MOST_RECORDED = 1000  # rounds recorded of a run, however long it is


def _list_of(model: Any) -> GetPydanticSchema:
    """Return the annotation of a list, which is stored as a tuple."""
    return GetPydanticSchema(lambda _, handler: handler(tuple[model, ...]))


Environments = Annotated[Sequence[AnyEnvironmentSpec], _list_of(EnvironmentTable)]
Policies = Annotated[Sequence[PolicySpec], _list_of(PolicySpec)]
Runs = Annotated[int, whole(1, MOST_RUNS)]


@spec_model("spec")
class Spec:
    """An experiment: ``runs`` runs of ``horizon`` rounds of every policy in every environment.

    Parameters
    ----------
    environments, policies
        What is run: every policy in every environment.
    runs, horizon, seed
        Runs of each policy, rounds of each run, and the seed of all random numbers.
    title
        What figures and reports call the experiment.
    record
        How many rounds of a run are recorded at most.
    lanes_per_cell
        How many lanes a worker computes at once.
    diagnostics
        Whether the terms of the analysis are recorded.

    Examples
    --------
    >>> from windvane.environments import BallArms, Rotation
    >>> Spec([EnvironmentSpec("turning", Rotation(), BallArms())], [PolicySpec("OFUL")], runs=5).horizon
    3000
    """

    environments: Environments
    policies: Policies
    runs: Runs = 50
    horizon: Annotated[int, whole(1, LATEST)] = 3000
    seed: Annotated[int, whole(0, 2**64 - 1)] = 0
    title: Title = ""
    record: Annotated[int, whole(1, MOST_RECORDED)] = MOST_RECORDED
    lanes_per_cell: Runs = 25
    diagnostics: Flag = False
    origin: ClassVar[tuple[str, toml_text.Lines] | None] = None  # the file that an instance was read from

    def __post_init__(self) -> None:
        for name in ("environments", "policies"):
            _check_names(name, getattr(self, name))
        if self.runs * self.horizon > LONGEST:
            expected = f"at most {LONGEST // self.runs} for {self.runs} runs: together they have at most 2**52 rounds"
            raise ArgumentError("horizon", self.horizon, expected)
        counts = [count_cells(policy.sweep, self.runs, self.lanes_per_cell) for policy in self.policies]
        cells = len(self.environments) * sum(counts)
        variants = [math.prod(len(values) for values in policy.sweep.values()) for policy in self.policies]
        if max(variants) > MOST_VARIANTS:
            path = ("policies", variants.index(max(variants)), "sweep")
            raise SpecError(path, f"must have at most {MOST_VARIANTS:,} combinations of values, got {max(variants):,}")
        if cells > MOST_CELLS:
            hint = f"that makes {cells} cells; increase `lanes_per_cell`"
            raise ArgumentError("runs", self.runs, f"small enough for at most {MOST_CELLS} cells", hint=hint)
        _check_labels(self.policies)

    @classmethod
    def read(cls, path: str | PathLike[str], *, check: bool = True) -> Spec:
        """Return the spec in a TOML file, after :meth:`check` unless ``check`` is false."""
        spec = cls.parse(toml_text.read_text(path), str(path))
        if check:
            spec.check()
        return spec

    @classmethod
    def parse(cls, text: str, source: str = "spec") -> Spec:
        """Return the spec in a TOML text, which errors call ``source``. Nothing is built or imported."""
        document, lines = toml_text.load(text, source)
        if (missing := document.get(toml_writer.INCOMPLETE)) is not None:
            path = (toml_writer.INCOMPLETE,)
            where = f"{source}:{lines.of(path)}"
            raise SpecError(path, f"Python objects that a file cannot hold are missing here: {missing}", where)
        with _lines_named((source, lines)), translated(MODELS["spec"]):
            spec: Spec = ADAPTER.validate_python(document)
        object.__setattr__(spec, "origin", (source, lines))  # although the dataclass is frozen
        return spec

    def replace(self, **changes: Any) -> Spec:
        """Return this spec with some fields changed. Errors still name file and line, unless the parts change."""
        spec = dataclasses.replace(self, **changes)
        if not {"environments", "policies"} & changes.keys():
            object.__setattr__(spec, "origin", self.origin)  # although the dataclass is frozen
        return spec

    def to_toml(self) -> str:
        """Return the spec as TOML: ``Spec.parse(spec.to_toml()) == spec``.

        Python objects that cannot be imported by name are left out, with a comment in their place. The key
        ``incomplete`` lists them, and :meth:`parse` refuses such a text.
        """
        return toml_writer.write(self)

    def fingerprint(self) -> str:
        """Return a SHA-256 of all that decides results and cells: everything but the title.

        Equal specs have equal fingerprints. A drift function counts by the path that it returns, a link by its means, a
        data file by its content, parts of environments of your own by 1,000 sampled rounds, and other code of yours by
        its source files, those of base classes and of modules in the same folder included; others are not covered.
        """
        with _lines_named(self.origin):
            return fingerprint.compute(self)

    def pin(self) -> Spec:
        """Return the same experiment with everything explicit: checksums of files, and what policies are told."""
        pinned: dict[str, list[Any]] = {"environments": [], "policies": []}
        with _lines_named(self.origin):
            for index, environment in enumerate(self.environments):
                with located("environments", index):
                    pinned["environments"].append(environment.pin())
            for index, policy in enumerate(self.policies):
                with located("policies", index):
                    pinned["policies"].append(policy.resolve())
        return dataclasses.replace(self, **pinned)  # type: ignore[arg-type]

    def check(self, *, policies: bool = True) -> None:
        """Build every environment with one lane and every variant of every policy in it, to find errors before a run.

        Without ``policies``, build the environments only: a policy that cannot be built then fails in its own cells.
        """
        with _lines_named(self.origin), ExitStack() as stack:
            worlds = []
            for index, environment in enumerate(self.environments):
                with located("environments", index):
                    worlds.append(environment.check(horizon=self.horizon, seed=self.seed))
                    stack.callback(close_environment, worlds[-1])
            for index, policy in enumerate(self.policies if policies else ()):
                for number, world in enumerate(worlds):
                    with located("policies", index):
                        _check_in(policy, world, f"environments[{number}]")


ADAPTER = TypeAdapter(Spec)


@contextmanager
def _lines_named(origin: tuple[str, toml_text.Lines] | None) -> Iterator[None]:
    """Add file and line to a :class:`SpecError` raised inside, if the spec comes from a text."""
    try:
        yield
    except SpecError as error:
        if origin is None or error.where:
            raise
        source, lines = origin
        raise SpecError(error.path, error.problem, f"{source}:{lines.of(error.path)}") from error.__cause__


def _check_in(policy: PolicySpec, environment: AnyEnvironment, name: str) -> None:
    """Check a policy in an environment; an error of no setting in particular comes from what was filled in."""
    try:
        policy.check(environment)
    except SpecError as error:
        if error.path:
            raise
        raise SpecError((), f"in {name}: {error.problem}") from error.__cause__


def _check_names(field: str, parts: Any) -> None:
    """Refuse an empty list, and two parts of one name."""
    if not parts:
        raise SpecError.of((field,), [], f"a list of one or more {field}")
    first: dict[str, int] = {}
    for index, part in enumerate(parts):
        earlier = first.setdefault(part.name, index)
        if earlier != index:
            problem = f'has the same name as {field}[{earlier}], "{part.name}"'
            raise SpecError((field, index), add_hint(problem, "give it a label" if field == "policies" else ""))


def _check_labels(policies: Sequence[PolicySpec]) -> None:
    """Refuse two variants with one label: tables, figures and comparisons identify an entry by its label."""
    first: dict[str, int] = {}
    for index, policy in enumerate(policies):
        for variant in policy.variants:
            label = label_variant(policy.name, variant)
            if label in first:
                other = "another of its variants" if first[label] == index else f"one of policies[{first[label]}]"
                raise SpecError(("policies", index), f'has a variant with the same label as {other}: "{label}"')
            first[label] = index
