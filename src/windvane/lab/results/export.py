"""Write a table of results as CSV, Parquet, NDJSON or JSON, one cell in memory at a time, or the summary as LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from windvane._files import open_atomically
from windvane.arguments import check_choice
from windvane.errors import ArgumentError
from windvane.lab.results.folder import FolderError
from windvane.lab.results.latex import write_latex
from windvane.lab.results.results import SUMMARY
from windvane.lab.results.stored_tables import fit_schema, unify_schemas

if TYPE_CHECKING:
    import pyarrow

    from windvane.lab.results.results import Results

LATEX = ".tex"
FORMATS = (".csv", ".parquet", ".ndjson", ".jsonl", ".json", LATEX)


def export(results: Results, path: str | PathLike[str], table: str = "runs") -> Path:
    """Write a table of ``results`` to a file whose ending says the format.

    Parameters
    ----------
    results
        What :func:`windvane.lab.open` returns.
    path
        A file that ends in .csv, .parquet, .ndjson (or .jsonl), .json or .tex. It is replaced atomically if it exists.
    table
        "runs", "curves", "paths" or "summary", as in :meth:`Results.table`. LaTeX is for the summary: a row per policy
        and a column per environment, with mean regret and standard error.

    Returns
    -------
    Path
        The file.

    Notes
    -----
    Values that are NaN in Parquet are empty in CSV and null in JSON; infinite values are ``inf`` in CSV and null in
    JSON. CSV has a column per coordinate of a vector: ``theta_star_1``, ``theta_star_2``, ...

    Examples
    --------
    >>> import windvane.lab
    >>> export(windvane.lab.open("results"), "runs.csv")                         # doctest: +SKIP
    """
    path = Path(path)
    ending = check_choice("path", path.suffix.lower(), FORMATS)
    if path.resolve().is_relative_to(results.folder.resolve()):
        raise ArgumentError("path", str(path), f"outside of {results.folder}, which holds the results themselves")
    if ending == LATEX:
        check_choice("table", table, (SUMMARY,))
    # Cells can differ in their columns, so all of them are read once for the schema before anything is written.
    widths = _measure_lists(results.iterate_tables(table)) if ending == ".csv" else {}
    schema = unify_schemas(_flatten(part, widths).schema for part in results.iterate_tables(table))
    parts = (fit_schema(_flatten(part, widths), schema) for part in results.iterate_tables(table))
    try:
        with open_atomically(path) as file:
            if ending == LATEX:
                file.write(write_latex(results).encode())
            elif ending == ".csv":
                _write_csv(file, parts, schema)
            elif ending == ".parquet":
                _write_parquet(file, parts, schema)
            elif ending == ".json":
                _write_rows(file, parts, begin=b"[\n", between=b",\n", end=b"\n]\n")
            else:
                _write_rows(file, parts, begin=b"", between=b"\n", end=b"\n")
    except OSError as error:
        raise FolderError(path, "unwritable", f"cannot be written to ({error.strerror})") from None
    return path


def _measure_lists(parts: Iterable[pyarrow.Table]) -> dict[str, int]:
    """Return the length of the longest list in each column of lists."""
    import pyarrow as pa
    import pyarrow.compute as pc

    widths: dict[str, int] = {}
    for part in parts:
        for name in part.column_names:
            if pa.types.is_list(part[name].type):
                longest = pc.max(pc.list_value_length(part[name])).as_py() or 0
                widths[name] = max(widths.get(name, 0), longest)
    return widths


def _flatten(table: pyarrow.Table, widths: Mapping[str, int]) -> pyarrow.Table:
    """Replace each column of lists in ``widths`` by that many columns of numbers."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for name in table.column_names:
        if name in widths:
            padded = [[*(row or ()), *[None] * widths[name]] for row in table[name].to_pylist()]
            kind = table[name].type.value_type
            columns |= {f"{name}_{i + 1}": pa.array([row[i] for row in padded], kind) for i in range(widths[name])}
        else:
            columns[name] = table[name]
    return pa.table(columns)


def _write_csv(file: BinaryIO, parts: Iterable[pyarrow.Table], schema: pyarrow.Schema) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow.csv import CSVWriter

    plain = pa.schema([(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in schema])
    with CSVWriter(file, plain) as writer:
        for part in parts:
            columns = [column.cast(kind.type) for column, kind in zip(part.columns, plain, strict=True)]
            empty = [pc.if_else(pc.is_nan(c), None, c) if pa.types.is_floating(c.type) else c for c in columns]
            writer.write_table(pa.table(empty, schema=plain))


def _write_parquet(file: BinaryIO, parts: Iterable[pyarrow.Table], schema: pyarrow.Schema) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for part in parts:
            writer.write_table(part)


def _write_rows(file: BinaryIO, parts: Iterable[pyarrow.Table], *, begin: bytes, between: bytes, end: bytes) -> None:
    """Write each row as a JSON object, with null in place of NaN and infinities, which JSON does not have."""
    from pydantic_core import to_json

    for number, row in enumerate(row for part in parts for row in part.to_pylist()):
        file.write((between if number else begin) + to_json(row, inf_nan_mode="null"))
    file.write(end)
