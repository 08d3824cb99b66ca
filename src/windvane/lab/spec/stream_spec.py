"""A labelled data stream in an experiment: a file, its column of labels, and the values that policies assume."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from typing import ClassVar

from windvane.arguments import check_choice, check_not_negative, check_positive, check_whole
from windvane.environments import LabelledStream
from windvane.environments.data_files import read_file
from windvane.environments.fields import LATEST
from windvane.environments.labelled_stream import ON_MISSING
from windvane.errors import ArgumentError
from windvane.lab.spec.spec_errors import SpecError, field_errors, not_a_flag, text_line

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class StreamSpec:
    """A labelled data stream in an experiment. Its fields have the same meaning as in :meth:`LabelledStream.read`.

    ``stream`` is the path of a CSV or Parquet file. A relative path starts at the current folder. The first ``horizon``
    rows of the experiment are used. ``sha256`` is the checksum that the file must have; a file with another one is an
    error. A run sets it. The fingerprint of the spec depends on the content of the file, not on its path.
    """

    name: str
    stream: str | PathLike[str]
    label: str | None = None
    missing: str = "refuse"
    S: float = 1.0
    drift: float | None = None
    switches: int = 1
    sha256: str | None = None
    L: ClassVar[float] = LabelledStream.L
    link: ClassVar[str] = "logistic"

    def __post_init__(self) -> None:
        set_ = object.__setattr__  # the dataclass is frozen, and it stores checked values
        with field_errors(known=FIELDS):
            text_line("name", self.name)
            if not isinstance(self.stream, str | PathLike):
                raise ArgumentError("stream", self.stream, "the path of a CSV or Parquet file")
            set_(self, "stream", text_line("stream", fspath(self.stream), most=4096))
            if self.label is not None:
                text_line("label", self.label)
            check_choice("missing", self.missing, ON_MISSING)
            set_(self, "S", check_positive("S", self.S))
            if self.drift is not None:
                set_(self, "drift", check_not_negative("drift", not_a_flag("drift", self.drift)))
            set_(self, "switches", check_whole("switches", self.switches, 0, LATEST))
            if self.sha256 is not None and not (isinstance(self.sha256, str) and _DIGEST.fullmatch(self.sha256)):
                raise ArgumentError("sha256", self.sha256, "64 hexadecimal digits in lower case")

    def build(self, *, horizon: int | None, lanes: int | Sequence[int], seed: int) -> LabelledStream:
        """Build the environment from the first ``horizon`` rows of the file (None: all), for these lanes."""
        with _locate_errors():
            return LabelledStream.read(
                self.stream,
                label=self.label,
                sha256=self.sha256,
                rows=horizon,
                missing=self.missing,
                S=self.S,
                drift=self.drift,
                switches=self.switches,
                lanes=lanes,
                seed=seed,
            )

    def check(self, *, horizon: int, seed: int) -> LabelledStream:
        """Build the environment with one lane, so that errors in the file are reported before a run."""
        return self.build(horizon=horizon, lanes=1, seed=seed)

    def pin(self) -> StreamSpec:
        """Return this spec with the current ``sha256`` of the file, unless the spec already has one."""
        if self.sha256 is not None:
            return self
        with _locate_errors():
            return dataclasses.replace(self, sha256=read_file(self.stream)[1])


FIELDS = tuple(field.name for field in dataclasses.fields(StreamSpec))


@contextmanager
def _locate_errors() -> Iterator[None]:
    """Turn an error about the file or its content into an error of the field ``stream``."""
    try:
        yield
    except ArgumentError as error:
        if error.argument in ("label", "sha256"):
            raise SpecError((error.argument,), error.problem) from error
        problem = error.problem if error.argument == "path" else str(error)
        if error.argument == "rows":
            problem = f"the horizon {error.problem}"
        raise SpecError(("stream",), problem) from error
