"""Join the stored tables of cells, whose columns may differ, and turn them into data frames."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from windvane.arguments import check_choice
from windvane.errors import WindvaneError

if TYPE_CHECKING:
    import pyarrow

_PROMOTE = {"promote_options": "permissive"}
FRAME_LIBRARIES = ("pandas", "polars")  # in order of preference


class MissingLibraryError(WindvaneError, ImportError):
    """None of the ``libraries`` that could make a data frame is installed."""

    def __init__(self, libraries: Sequence[str]) -> None:
        self.libraries = tuple(libraries)
        super().__init__(f"a data frame needs {' or '.join(libraries)}; install it with: pip install {libraries[0]}")


def parse_table(content: bytes) -> pyarrow.Table:
    """Return the table in the bytes of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)  # tables of a cell are small


def unify_schemas(schemas: Iterable[pyarrow.Schema]) -> pyarrow.Schema:
    """Return the schema with all columns of ``schemas``, in the order of their first occurrence.

    Cells differ in their swept values and diagnostics. A column with numbers in one cell and texts in another becomes
    a column of texts.
    """
    import pyarrow as pa

    fields: dict[str, pyarrow.Field] = {}
    for field in (field for schema in schemas for field in schema):
        known = fields.setdefault(field.name, field)
        if field.type != known.type:
            try:
                fields[field.name] = pa.unify_schemas([pa.schema([known]), pa.schema([field])], **_PROMOTE).field(0)
            except pa.ArrowException:
                fields[field.name] = known.with_type(pa.string())
    return pa.schema(fields.values())


def fit_schema(table: pyarrow.Table, schema: pyarrow.Schema) -> pyarrow.Table:
    """Return ``table`` with the columns of ``schema``; a column that it lacks is null."""
    import pyarrow as pa

    if table.schema.equals(schema):
        return table
    columns = [
        _cast(table[field.name], field.type) if field.name in table.column_names else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _cast(column: pyarrow.ChunkedArray, kind: pyarrow.DataType) -> pyarrow.ChunkedArray:
    """Return ``column`` with the type ``kind``; lists become texts as JSON."""
    import pyarrow as pa

    if pa.types.is_string(kind) and not pa.types.is_primitive(column.type) and not pa.types.is_string(column.type):
        return pa.chunked_array([pa.array([json.dumps(value) for value in column.to_pylist()])])
    return column.cast(kind)


def concat_tables(tables: Iterable[pyarrow.Table]) -> pyarrow.Table:
    """Return one table with the rows of all ``tables`` and the columns of any."""
    import pyarrow as pa

    parts = list(tables)
    schema = unify_schemas(part.schema for part in parts)
    fitted = [fit_schema(part, schema) for part in parts]
    return pa.concat_tables([schema.empty_table(), *fitted]).unify_dictionaries()


def to_frame(table: pyarrow.Table, library: str | None = None) -> Any:
    """Return ``table`` as a data frame of ``library`` (default: pandas if it is installed, else polars)."""
    if library is not None:
        check_choice("library", library, FRAME_LIBRARIES)
    wanted = FRAME_LIBRARIES if library is None else (library,)
    installed = next((name for name in wanted if importlib.util.find_spec(name)), None)
    if installed is None:
        raise MissingLibraryError(wanted)
    return table.to_pandas() if installed == "pandas" else importlib.import_module(installed).from_arrow(table)
