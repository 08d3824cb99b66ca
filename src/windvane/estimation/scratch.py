"""Components whose arrays are used by compiled kernels: a lock, and workspaces outside the state."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, ClassVar

from windvane.kernels.custom import LinkKernels, link_kernels
from windvane.links import Link
from windvane.state import Stateful


class KernelState(Stateful):
    """A component with the kernels of its link and a lock. A subclass adds workspaces.

    Kernels release the interpreter lock, so two threads could write to the same arrays.
    """

    link: Link
    scratch: ClassVar[tuple[str, ...]] = ()  # attributes that ``allocate`` sets; copies and pickles leave them out

    def prepare_scratch(self) -> None:
        """Set the attributes that are not part of the state."""
        self.kernels: LinkKernels = link_kernels(self.link.code, self.link)
        self.lock = threading.RLock()
        self.allocate()

    def allocate(self) -> None:
        """Allocate the workspaces of kernels."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("kernels", "lock", *self.scratch)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.prepare_scratch()

    def write_fields(self, values: Mapping[str, Any]) -> None:
        """Use the arrays from ``prepare_fields``."""
        with self.lock:
            super().write_fields(values)
