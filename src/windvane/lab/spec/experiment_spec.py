"""A spec: everything an experiment is, as Python objects or as a TOML file.

    title = "two worlds"
    runs = 50
    horizon = 3000

    [[environments]]
    name = "turning"
    drift = { kind = "rotation" }
    arms = { kind = "ball", count = 10 }

    [[environments]]
    name = "electricity"
    stream = "elec.csv"              # a labelled data stream: the arms are the classes of its column ``label``
    label = "class"

    [[policies]]
    policy = "BVD-GLM-UCB"
    bonus_scale = 0.5                # every key but policy, label and sweep is a setting of the constructor

    [[policies]]
    policy = "D-LinUCB"
    sweep = { gamma = [0.9, 0.99, 0.999] }

``windvane new`` writes a commented one. Every policy runs in every environment, ``runs`` times, and every variant of a
sweep does. A spec is checked when it is made; :meth:`Spec.check` also builds all of it once. Errors name the field and,
for a file, the line: ``spec.toml:12: environments[0].drift.period: must be ..., got -3``.

A spec may name Python objects as "module:name" (a policy's class, a link, the function of a drift). Checking or
running such a spec imports those modules: treat it like a program.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from windvane.arguments import check_whole
from windvane.environments import AnyEnvironment
from windvane.errors import ArgumentError
from windvane.lab.spec import reading, writing
from windvane.lab.spec import toml_text as toml
from windvane.lab.spec.environment_spec import EnvironmentSpec
from windvane.lab.spec.policy_spec import PolicySpec, variant_label
from windvane.lab.spec.spec_errors import SpecError, field_errors, flag, refuse_unknown, text_line, with_hint
from windvane.lab.spec.stream_spec import StreamSpec

__all__ = ["AnyEnvironmentSpec", "EnvironmentSpec", "PolicySpec", "Spec", "SpecError", "StreamSpec"]

AnyEnvironmentSpec = EnvironmentSpec | StreamSpec

MOST_RUNS = 2**32  # lane ids have 32 bits
LONGEST = 2**52  # rounds a policy can count
MOST_CELLS = 10**6
MOST_RECORDED = 1000  # rounds kept of a run, however long it is


@dataclass(frozen=True)
class Spec:
    """An experiment: ``runs`` runs of ``horizon`` rounds of every policy in every environment.

    ``record`` is how many rounds of a run are kept at most, ``lanes_per_cell`` how many lanes a worker takes at once,
    ``diagnostics`` whether the terms of the analysis are recorded.
    """

    environments: Sequence[AnyEnvironmentSpec]
    policies: Sequence[PolicySpec]
    runs: int = 50
    horizon: int = 3000
    seed: int = 0
    title: str = ""
    record: int = MOST_RECORDED
    lanes_per_cell: int = 25
    diagnostics: bool = False
    _origin: tuple[str, toml.Lines] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        set_ = object.__setattr__  # the dataclass is frozen: what is stored is a checked copy
        for name, kinds in (("environments", (EnvironmentSpec, StreamSpec)), ("policies", (PolicySpec,))):
            set_(self, name, _distinct(name, getattr(self, name), kinds))
        with field_errors(known=FIELDS):
            set_(self, "runs", check_whole("runs", self.runs, 1, MOST_RUNS))
            set_(self, "horizon", check_whole("horizon", self.horizon, 1, LONGEST))
            if self.runs * self.horizon > LONGEST:
                most = LONGEST // self.runs
                expected = f"at most {most} for {self.runs} runs: all runs together have at most 2**52 rounds"
                raise ArgumentError("horizon", self.horizon, expected)
            set_(self, "seed", check_whole("seed", self.seed, 0, 2**64 - 1))
            set_(self, "record", check_whole("record", self.record, 1, MOST_RECORDED))
            set_(self, "lanes_per_cell", check_whole("lanes_per_cell", self.lanes_per_cell, 1, MOST_RUNS))
            lanes = [self.runs * math.prod(len(values) for values in p.sweep.values()) for p in self.policies]
            cells = len(self.environments) * sum(-(-n // self.lanes_per_cell) for n in lanes)
            if cells > MOST_CELLS:
                hint = f"that makes {cells} cells; increase `lanes_per_cell`"
                raise ArgumentError("runs", self.runs, f"so few that there are at most {MOST_CELLS} cells", hint=hint)
            text_line("title", self.title, least=0)
            flag("diagnostics", self.diagnostics)
        _check_labels(self.policies)

    @classmethod
    def read(cls, path: str | PathLike[str], *, check: bool = True) -> Spec:
        """The spec in a TOML file, checked as :meth:`check` does unless told not to."""
        spec = cls.parse(toml.read_text(path), str(path))
        if check:
            spec.check()
        return spec

    @classmethod
    def parse(cls, text: str, source: str = "spec") -> Spec:
        """The spec in a TOML text; ``source`` is what errors call it. Nothing is built and no code is imported."""
        document, lines = toml.load(text, source)
        with _lines_named((source, lines)):
            refuse_unknown(document, FIELDS)
            environments = reading.entries(document, "environments", reading.environment)
            policies = reading.entries(document, "policies", reading.policy)
            spec = cls(**{**document, "environments": environments, "policies": policies})
        object.__setattr__(spec, "_origin", (source, lines))
        return spec

    def to_toml(self) -> str:
        """The spec as a TOML text: ``Spec.parse(spec.to_toml()) == spec``.

        Objects of Python that cannot be imported by name are left out, with a comment in their place.
        """
        return writing.document(self)

    def fingerprint(self) -> str:
        """A SHA-256 of everything that decides a result or which cells there are: all of the spec but its title.

        A function is known by the path it makes (up to 1000 rounds of it), a custom link by its means, a class by its
        name: code that changes behind a class's name is not noticed. Equal specs have equal fingerprints.
        """
        with _lines_named(self._origin):
            return writing.fingerprint(self)

    def pin(self) -> Spec:
        """The same experiment, on the files of labelled data streams as they are now: changed ones are errors."""
        with _lines_named(self._origin):
            pinned = []
            for index, environment in enumerate(self.environments):
                with field_errors("environments", index):
                    pinned.append(environment.pin() if isinstance(environment, StreamSpec) else environment)
        return dataclasses.replace(self, environments=pinned)

    def check(self, *, policies: bool = True) -> None:
        """Build every environment with one lane, and every variant of every policy in it: errors come before a run.

        Without ``policies``, only the environments: a policy that cannot be built then fails in its own cells.
        """
        with _lines_named(self._origin):
            built = []
            for index, environment in enumerate(self.environments):
                with field_errors("environments", index):
                    built.append(environment.check(horizon=self.horizon, seed=self.seed))
            for index, policy in enumerate(self.policies if policies else ()):
                for number, world in enumerate(built):
                    with field_errors("policies", index):
                        _check_in(policy, world, f"environments[{number}]")


FIELDS = tuple(field.name for field in dataclasses.fields(Spec) if field.init)


@contextmanager
def _lines_named(origin: tuple[str, toml.Lines] | None) -> Iterator[None]:
    """A :class:`SpecError` raised inside names file and line, if the spec came from a text."""
    try:
        yield
    except SpecError as error:
        if origin is None or error.where:
            raise
        source, lines = origin
        raise SpecError(error.path, error.problem, f"{source}:{lines.of(error.path)}") from error.__cause__


def _check_in(policy: PolicySpec, environment: AnyEnvironment, name: str) -> None:
    """What is wrong with no setting in particular is wrong with what the environment filled in."""
    try:
        policy.check(environment)
    except SpecError as error:
        if error.path:
            raise
        raise SpecError((), f"in {name}: {error.problem}") from error.__cause__


def _distinct(name: str, given: Any, kinds: tuple[type, ...]) -> tuple[Any, ...]:
    """One or more parts of a spec, each with a name of its own."""
    kind = " or ".join(kind.__name__ for kind in kinds)
    if not isinstance(given, Collection) or isinstance(given, str) or len(given) == 0:
        raise SpecError.of((name,), given, f"a list of one or more {kind}")
    first: dict[str, int] = {}
    for index, part in enumerate(given):
        if not isinstance(part, kinds):
            raise SpecError.of((name, index), part, f"of type {kind}")
        earlier = first.setdefault(part.name, index)  # type: ignore[attr-defined]
        if earlier != index:
            problem = f'has the name "{part.name}" of {name}[{earlier}]'  # type: ignore[attr-defined]
            raise SpecError((name, index), with_hint(problem, "give it a label" if name == "policies" else ""))
    return tuple(given)


def _check_labels(policies: Sequence[PolicySpec]) -> None:
    """Refuse two variants with one label: tables, figures and comparisons know an entry by its label."""
    first: dict[str, int] = {}
    for index, policy in enumerate(policies):
        for variant in policy.variants:
            label = variant_label(policy.name, variant)
            if label in first:
                other = "another of its variants" if first[label] == index else f"one of policies[{first[label]}]"
                raise SpecError(("policies", index), f'has a variant with the label "{label}", like {other}')
            first[label] = index
