"""A cell's result as Parquet tables."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from windvane.lab.run.cells import Cell, list_variants
from windvane.lab.run.play import QUANTITIES, STAGES, CellResult

if TYPE_CHECKING:
    import pyarrow

    from windvane.lab.spec.experiment_spec import Spec
    from windvane.lab.spec.policy_spec import PolicySpec


def encode_parquet(table: pyarrow.Table) -> bytes:
    """Return the content of a Parquet file with this table."""
    import pyarrow.parquet

    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def build_tables(spec: Spec, cell: Cell, result: CellResult) -> dict[str, pyarrow.Table]:
    """Return the result of a cell as tables. The names of environment and policy are in every row."""
    import pyarrow as pa

    policy = spec.policies[cell.policy]
    names = {"environment": spec.environments[cell.environment].name, "policy": policy.name}
    names_swept = dict.fromkeys(name for each in spec.policies for name in each.sweep)

    def table(columns: dict[str, Any]) -> pyarrow.Table:
        same = np.zeros(len(columns["variant"]), dtype=np.int32)
        constant = {
            name: pa.DictionaryArray.from_arrays(pa.array(same), pa.array([value])) for name, value in names.items()
        }
        variant = {"variant": pa.array(columns["variant"])}
        swept = {
            f"sweep_{name}": _build_swept_column(spec, policy, name).take(variant["variant"]) for name in names_swept
        }
        return pa.table({**constant, **variant, **swept, **columns})

    n, R = result.regret.shape
    curves = {
        "variant": np.repeat(result.variants, R),
        "run": np.repeat(result.lanes, R),
        "round": np.tile(result.rounds, n),
        "regret": result.regret.ravel(),
    }
    if spec.diagnostics:  # a column of nulls where there are none, so that the files of all cells have one schema
        nothing = pa.nulls(n * R, pa.float64())
        found = {name: values.ravel() for name, values in result.diagnostics.items()}
        curves |= {name: found.get(name, nothing) for name in QUANTITIES}
    runs = {
        "variant": result.variants,
        "run": result.lanes,
        "final_regret": result.regret[:, -1],
        "total_reward": result.reward,
        "drift": result.drift,
        "switches": result.switches,
        "gamma": result.gamma,
        "outside": result.outside,
        **{f"stage_{i}": result.stages[:, i] for i in range(STAGES)},
    }
    parts = {"curves": table(curves), "runs": table(runs)}
    if result.paths:
        paths = [(variant, path) for variant, path in result.paths.items()]
        parts["paths"] = table(
            {
                "variant": np.repeat([variant for variant, _ in paths], R),
                "round": np.tile(result.rounds, len(paths)),
                **{
                    name: pa.array([row for _, path in paths for row in getattr(path, name).tolist()])
                    for name in ("theta_star", "theta_hat", "theta_tilde")
                },
                "S": np.repeat([path.S for _, path in paths], R),
            }
        )
    return parts


def _build_swept_column(spec: Spec, policy: PolicySpec, name: str) -> pyarrow.Array:
    """Return the value of a swept setting in each variant of a policy; null if the policy does not sweep it.

    The type of the column is the same for all policies, so that the files of all cells have one schema.
    """
    import pyarrow as pa

    swept = [value for each in spec.policies for value in each.sweep.get(name, ())]
    kind = pa.array(swept).type if is_plain(swept) else pa.string()
    values = [point.get(name) for point in list_variants(policy.sweep)]
    return pa.array(values if is_plain(swept) else [v if v is None else json.dumps(v) for v in values], kind)


def is_plain(values: Iterable[Any]) -> bool:
    """Return whether swept values can be a column as they are. Lists and values of different types are JSON."""
    types = {float if type(value) is int else type(value) for value in values}
    return len(types) == 1 and not types & {list, tuple, dict}
