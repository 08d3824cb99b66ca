"""The core of an agent as threads share it: behind a lock, and saved as a file."""

from __future__ import annotations

import copy
import threading
from pathlib import Path
from typing import Any, Self

from windvane._files import write_atomically
from windvane.agent.core import AgentCore
from windvane.agent.info import AlertLog
from windvane.links import Link
from windvane.policies.base import Policy


class SharedCore:
    """A core, its lock, and the log of its alerts."""

    def _start(self, core: AgentCore, alert_log: AlertLog) -> None:
        self._core, self._alert_log = core, alert_log
        self._lock, self._saving = threading.RLock(), threading.Lock()

    @classmethod
    def _of(cls, core: AgentCore) -> Self:
        agent = cls.__new__(cls)
        agent._start(core, AlertLog())
        return agent

    @property
    def core(self) -> AgentCore:
        """The state of the agent. It is not safe to use while other threads use the agent."""
        return self._core

    def to_bytes(self) -> bytes:
        """Return the whole agent. Equal agents give equal bytes. :mod:`windvane.agent.archive` describes the format."""
        with self._lock:
            finish = self._core.pack()
        return finish()

    def save(self, path: str | Path) -> None:
        """Write the agent to a file: whole or not at all, and on disk when this returns."""
        with self._saving:  # of two savers at once, the one that comes last has the later state
            write_atomically(Path(path), self.to_bytes())

    @classmethod
    def from_bytes(cls, content: bytes, *, link: Link | None = None, policy: type[Policy] | None = None) -> Self:
        """Return the agent again. A link or a policy class of your own is not in the bytes: pass it again."""
        return cls._of(AgentCore.from_bytes(content, link=link, policy=policy))

    @classmethod
    def load(cls, path: str | Path, *, link: Link | None = None, policy: type[Policy] | None = None) -> Self:
        """Return an agent from a file that :meth:`save` wrote; it goes on bit for bit as the saved one would have."""
        return cls._of(AgentCore.from_bytes(Path(path).read_bytes(), link=link, policy=policy, where=str(path)))

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {"core": copy.deepcopy(self._core), "alert_log": copy.deepcopy(self._alert_log)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._start(**state)
