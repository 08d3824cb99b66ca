"""Commands about logs: check, drift, replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from windvane.cli.console import Answer, Blocks, Note, ProgressBar, Table, warn
from windvane.cli.options import OUTPUT, Baseline, Jobs, Seed, complete_policy, list_chosen, split_names
from windvane.errors import ArgumentError

if TYPE_CHECKING:
    from windvane.logs.drift.detectors import DetectorAlarms
    from windvane.logs.file_log import FileLog
    from windvane.logs.report.pages import LogPage

LOG_PANEL, TABLE_PANEL = "The log", "Columns of a CSV or Parquet table"
File = Annotated[
    Path,
    typer.Argument(help="The log: windvane's event log, CSV or Parquet, Open Bandit, VW dsjson or VW text."),
]
Alpha = Annotated[float, typer.Option(help="1 minus the confidence level.", min=1e-6, max=0.5)]
Detectors = Annotated[
    list[str] | None,
    typer.Option(
        help="Also run this drift detector of river: adwin, page-hinkley or kswin; repeat the option for more.",
        show_default=False,
    ),
]
Report = Annotated[
    Path | None,
    typer.Option(
        help="The HTML report to write (default: LOG-COMMAND.html in the current folder).",
        show_default=False,
        rich_help_panel=OUTPUT,
    ),
]


def _column(what: str) -> Any:
    return typer.Option(help=f"The column with {what}.", show_default=False, rich_help_panel=TABLE_PANEL)


def _about_log(text: str, **more: Any) -> Any:
    return typer.Option(help=text, show_default=False, rich_help_panel=LOG_PANEL, **more)


@dataclass(frozen=True)
class LogSource:
    """Options that say how to read a log: see :func:`windvane.logs.read`."""

    format: Annotated[
        str | None, _about_log("windvane, table, open-bandit, dsjson or vw (default: detected from the content).")
    ] = None
    features: Annotated[str | None, _about_log("Use only these features, separated by commas.")] = None
    arms_from: Annotated[Path | None, _about_log("A table with a row of features for each arm.")] = None
    max_dim: Annotated[
        int | None, _about_log("The largest number of coordinates of a vector (default: 100).", min=1)
    ] = None
    reward_range: Annotated[
        tuple[float, float] | None,
        _about_log("The smallest and the largest possible reward (default: 0 and 1, or those in the log)."),
    ] = None
    floor: Annotated[
        float | None, _about_log("A lower bound on the logging probability of every arm.", min=0.0, max=1.0)
    ] = None
    fixed_logging: Annotated[
        bool,
        typer.Option(
            "--fixed-logging", help="The logging policy did not learn from rewards.", rich_help_panel=LOG_PANEL
        ),
    ] = False
    time: Annotated[str | None, _column("the time of the decision")] = None
    arm: Annotated[str | None, _column("the arm that was played")] = None
    reward: Annotated[str | None, _column("the reward")] = None
    propensity: Annotated[str | None, _column("the propensity, the probability with which the arm was played")] = None
    reward_time: Annotated[str | None, _column("the time at which the reward arrived")] = None
    id: Annotated[str | None, _column("the id of the decision")] = None
    weight: Annotated[str | None, _column("the number of decisions that a row represents")] = None

    def read(self, path: Path) -> FileLog:
        """Read a log, with a progress bar."""
        from windvane.logs import read

        options = {name: value for name, value in vars(self).items() if name not in ("features", "fixed_logging")}
        with ProgressBar("reading the log", "bytes") as progress:
            return read(
                path,
                features=split_names(self.features),
                is_adaptive=not self.fixed_logging,
                progress=progress,
                **list_chosen(**options),
            )


def check(source: LogSource, log: File, report: Report = None) -> Answer:
    """Check whether a log is sound: order, ids, rewards, propensities, exploration.

    The exit code is 1 if there is an error.

    Examples:
      windvane check log.ndjson
      windvane check clicks.csv --time when --arm banner --reward clicked --propensity p
      windvane check open_bandit.csv --arms-from item_context.csv
    """
    from windvane.logs import check as check_log
    from windvane.logs.report.check_page import describe_check

    target = _choose_target(report, log, "check")
    rows = source.read(log)
    result = check_log(rows)
    page = describe_check(result, source=str(log), facts=_list_facts(rows))
    return _publish(page, result, target, int(result.verdict == "error"))


def drift(
    source: LogSource,
    log: File,
    alpha: Alpha = 0.05,
    detector: Detectors = None,
    seed: Seed = 0,
    report: Report = None,
) -> Answer:
    """Diagnose whether the rewards of a log drift, how fast, where, and which settings to use.

    Examples:
      windvane drift log.ndjson
      windvane drift clicks.csv --time when --arm banner --reward clicked --features hour,device
      windvane drift log.ndjson --detector adwin --detector kswin
    """
    from windvane.logs import diagnose_drift, value_forgetting
    from windvane.logs.drift.evidence import UNKNOWN
    from windvane.logs.report.drift_page import describe_drift
    from windvane.logs.report.soundness_section import warn_unsound
    from windvane.logs.soundness.checking import find_row_errors

    run_detectors = _find_detectors(detector) if detector else None
    target = _choose_target(report, log, "drift")
    rows = source.read(log)
    with ProgressBar("checking the log"):
        errors = find_row_errors(rows)
    with ProgressBar("diagnosing drift", "parts") as bar:
        result = diagnose_drift(rows, alpha=alpha, seed=seed, progress=bar)
        bar(1, text="value of forgetting")
        value = value_forgetting(rows, result, alpha=alpha, seed=seed)
        alarms = run_detectors(rows, seed) if run_detectors else ()
    if result.verdict != UNKNOWN:
        result = replace(result, answer=warn_unsound(result.answer, errors))
    facts = _list_facts(rows)
    page = describe_drift(result, schema=rows.schema, facts=facts, value=value, alarms=alarms, errors=errors)
    document = {"diagnosis": result, "value_of_forgetting": value, "detectors": alarms}
    return _publish(page, document, target, check={"errors": errors})


def _find_detectors(names: list[str]) -> Callable[[FileLog, int], tuple[DetectorAlarms, ...]]:
    """Return the function that runs these detectors. A wrong name, or river missing, is reported before any work."""
    from windvane.logs.drift.detectors import check_detectors, run_detectors

    chosen = check_detectors(names)
    return lambda log, seed: run_detectors(log, chosen, seed=seed)


def replay(
    source: LogSource,
    log: File,
    policy: Annotated[
        list[str],
        typer.Option(
            help='A policy to evaluate; repeat the option for more: OFUL, "D-LinUCB(gamma=0.99)", my_module:MyPolicy',
            autocompletion=complete_policy,
        ),
    ],
    baseline: Baseline = None,
    epsilon: Annotated[
        float, typer.Option(help="Probability of a random arm instead of the recommended one.", min=0.0, max=1.0)
    ] = 0.0,
    share: Annotated[
        float | None,
        typer.Option(help="Share of the traffic for on-policy learning (default: the floor).", show_default=False),
    ] = None,
    estimands: Annotated[
        str, typer.Option(help="What to estimate, separated by commas: recommendations, thinning, model.")
    ] = "recommendations,thinning,model",
    alpha: Alpha = 0.05,
    seed: Seed = 0,
    jobs: Jobs = None,
    report: Report = None,
) -> Answer:
    """Estimate what other policies would have earned, from a log with propensities.

    Without --baseline, all pairs of policies are compared. The estimand recommendations is the fast answer; thinning
    and model can take minutes. Greedy and other policies with an exact estimator take longer than AdaptiveGLMUCB. If
    the log is not sound, the answer begins with that, and the exit code stays 0.

    Examples:
      windvane replay log.ndjson --policy AdaptiveGLMUCB --policy OFUL
      windvane replay log.ndjson --policy OFUL --policy "BVD-GLM-UCB(gamma=0.99)" --baseline OFUL
      windvane replay log.ndjson --policy my_module:MyPolicy --estimands recommendations
    """
    from windvane.logs import check as check_log
    from windvane.logs import evaluate
    from windvane.logs.evaluation.contenders import list_contenders
    from windvane.logs.evaluation.request import foresee_refusal
    from windvane.logs.report.replay_page import describe_evaluation
    from windvane.logs.report.soundness_section import warn_unsound

    target = _choose_target(report, log, "replay")
    list_contenders(policy)  # wrong names are reported before any work
    rows, wanted = source.read(log), tuple(split_names(estimands) or ())
    if share is None and (refusal := foresee_refusal(rows.schema, wanted)):
        warn(refusal)
    with ProgressBar("evaluating policies", "steps") as progress:
        result = evaluate(
            rows,
            policy,
            estimands=wanted,
            baseline=baseline,
            epsilon=epsilon,
            share=share,
            alpha=alpha,
            seed=seed,
            jobs=jobs,
            progress=progress,
        )
    with ProgressBar("checking the log"):
        soundness = check_log(rows)
    errors = [line for line in soundness.lines if line.verdict == "error"]
    result = replace(result, answer=warn_unsound(result.answer, errors))
    page = describe_evaluation(result, has_times=rows.schema.has_times, facts=_list_facts(rows), errors=errors)
    return _publish(page, result, target, check={"verdict": soundness.verdict, "answer": soundness.answer})


def _choose_target(report: Path | None, log: Path, command: str) -> Path:
    """Return the path of the page, before any work is done for it; neither the log nor a device is replaced."""
    target = report or Path(f"{log.stem}-{command}.html")
    if target.exists():
        if not target.is_file():
            got = "a folder" if target.is_dir() else "a device or a pipe"
            raise ArgumentError("report", str(target), "the path of a file", got=got, where=str(target))
        if log.exists() and target.samefile(log):
            raise ArgumentError("report", str(target), "another file than the log")
    return target


def _publish(page: LogPage, result: Any, target: Path, code: int = 0, **more: Any) -> Answer:
    """Write the report, and return what to print: the answer, the tables, and the path of the report."""
    from windvane.logs.report.pages import write_page

    with ProgressBar("writing the report"):
        write_page(page, target)
    blocks: list[str | Table | Note] = [page.answer]
    for section in page.sections:
        if section.is_printed:
            blocks += _print_section(section.title, section.table, section.lines, section.code)
    return Answer({"result": result, **more, "report": target}, [*blocks, "", f"report: {target}"], code)


def _print_section(title: str, table: Any, lines: Sequence[str], code: str) -> Blocks:
    blocks: list[str | Table | Note] = ["", Note(title, "bold")]
    if table is not None:
        blocks.append(Table(table.columns, table.rows, left=table.left))
    blocks += [Note(line) for line in lines]
    return [*blocks, code] if code else blocks


def _list_facts(log: FileLog) -> dict[str, str]:
    """Return the facts about a log that every report lists."""
    schema = log.schema
    low, high = schema.reward_range
    floor = "none" if schema.floor is None else f"{schema.floor:.4g}"
    declared = " (declared)" if schema.is_floor_declared else " (the smallest in the log)" if schema.floor else ""
    return {
        "Log": schema.source,
        "Format": schema.format,
        "Rows": f"{schema.rows:,}",
        "Vectors": f"{schema.dim} coordinates: {', '.join(schema.names[:20])}{' ...' if schema.dim > 20 else ''}",
        "Reward range": f"{low:g} to {high:g}",
        "Propensities": schema.propensities,
        "Floor (lower bound on logging probabilities)": floor + declared,
        "Logging policy": "may have learned from rewards" if schema.is_adaptive else "did not learn from rewards",
    }
