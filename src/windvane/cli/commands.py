"""The commands by name: where each is, what it needs, and how it is listed. Importing this imports no command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

EXPERIMENTS = "Experiments"
BENCHMARKS = "Benchmarks and studies"
LIVE = "Live"
LOGS = "Logs"
INSTALLATION = "Installation"

REPEAT = "repeat the command"
CONTINUE = "repeat the command to continue"


class Command(NamedTuple):
    """A command.

    ``target``: module and attribute below ``windvane.cli``, a function or a :class:`Group`.
    ``extra``: the smallest extra with which it works.
    ``after_interrupt``: what Ctrl-C leaves behind, or how to go on.
    """

    target: str
    panel: str
    extra: str
    summary: str
    after_interrupt: str = "nothing was changed"


class Group(NamedTuple):
    """A command that has sub-commands, and its help."""

    help: str
    commands: Mapping[str, Callable[..., Any]]


COMMANDS = {
    "new": Command("specs.new", EXPERIMENTS, "lab", "Write a commented example of an experiment."),
    "spec": Command("specs.spec", EXPERIMENTS, "lab", "Check a spec, or print the schema of specs."),
    "simulate": Command("experiments.simulate", EXPERIMENTS, "lab", "Run an experiment.", CONTINUE),
    "report": Command("analyse.report", EXPERIMENTS, "lab", "Draw the figures and report of an experiment.", REPEAT),
    "compare": Command("analyse.compare", EXPERIMENTS, "lab", "Compare policies by paired differences.", REPEAT),
    "export": Command("analyse.export", EXPERIMENTS, "lab", "Write results as CSV, Parquet, JSON or LaTeX.", REPEAT),
    "tune": Command("studies.tune", EXPERIMENTS, "lab", "Find the best discount and bonus of a policy.", CONTINUE),
    "bound": Command("bounds.bound", EXPERIMENTS, "lab", "Evaluate the regret bounds of the paper's theorems."),
    "reproduce": Command("experiments.reproduce", BENCHMARKS, "lab", "Reproduce the experiment of a paper.", CONTINUE),
    "benchmark": Command(
        "benchmark.benchmark", BENCHMARKS, "lab", "Rank all policies in simulations or on your own data.", CONTINUE
    ),
    "study": Command("studies.study", BENCHMARKS, "lab", "Run a study of several experiments.", CONTINUE),
    "policies": Command("installation.policies", BENCHMARKS, "lab", "List all policies, with measured times."),
    "serve": Command("serving.serve", LIVE, "service", "Run the decision service."),
    "demo": Command(
        "demo.demo", LIVE, "service", "Show the live service with a simulated audience.", "the demo's data was removed"
    ),
    "token": Command("tokens.token", LIVE, "service", "Add, list and remove tokens."),
    "streams": Command("streams.streams", LIVE, "service", "List, change, copy and move streams.", REPEAT),
    "store": Command("store_creation.store", LIVE, "postgres", "Create a store in PostgreSQL."),
    "verify": Command("stores.verify", LIVE, "service", "Check a store against a replay of its log."),
    "backup": Command("stores.backup", LIVE, "service", "Copy a store, even while a server uses it."),
    "restore": Command("stores.restore", LIVE, "service", "Install a backup as the store."),
    "check": Command("log_analysis.check", LOGS, "logs", "Check whether a log is sound.", REPEAT),
    "drift": Command("log_analysis.drift", LOGS, "logs", "Diagnose the drift of a log.", REPEAT),
    "replay": Command("log_analysis.replay", LOGS, "logs", "Estimate what other policies would have earned.", REPEAT),
    "doctor": Command("installation.doctor", INSTALLATION, "cli", "Check this installation, and list its extras."),
    "compile": Command(
        "installation.compile_kernels", INSTALLATION, "cli", "Compile kernels in advance.",
        f"what was compiled is kept; {CONTINUE}",
    ),
}  # fmt: skip
"""The commands in the order of the help."""

HAVE_OUT = {"simulate", "compare", "tune", "reproduce", "benchmark", "study"}
"""The commands whose option ``--out`` names the folder that they write to."""

USE_OWN_CODE = {"spec", "simulate", "tune", "bound", "benchmark", "replay"}
"""The commands that may import a policy or drift of the user's, "module:Class", from the current folder."""
