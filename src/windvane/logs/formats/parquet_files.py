"""Read the columns of a Parquet file in chunks. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windvane.arguments import Index
from windvane.errors import ArgumentError
from windvane.logs.formats.reader import CHUNK, Report, open_file
from windvane.logs.raw import FieldColumn, to_texts

MAGIC = b"PAR1"  # the first and last bytes of a Parquet file


def open_parquet(path: Path, argument: str = "path") -> Any:
    """Return a ``pyarrow.parquet.ParquetFile``, or raise ``ArgumentError`` with the reason."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        expected = "a CSV or NDJSON file, because pyarrow, which reads Parquet files, is not installed"
        raise ArgumentError(argument, str(path), expected, hint="pip install 'windvane[parquet]'") from None
    open_file(path, argument).close()
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        hint = " ".join(str(error).split())
        raise ArgumentError(argument, str(path), "a Parquet file", got="a different format", hint=hint) from None


def read_batches(path: Path, wanted: Sequence[str], report: Report, size: int = CHUNK) -> Iterator[Any]:
    """Yield record batches with the columns ``wanted``. Damaged pages raise ``ArgumentError``."""
    import pyarrow as pa

    total = max(path.stat().st_size, 1)
    with open_parquet(path) as file:
        rows, done = max(file.metadata.num_rows, 1), 0
        try:
            for batch in file.iter_batches(batch_size=size, columns=list(wanted)):
                yield batch
                done += batch.num_rows
                report(total * done // rows)
        except (pa.ArrowException, OSError) as error:
            hint = " ".join(str(error).split())
            where = f"{path} after row {done}"
            raise ArgumentError(
                "path", str(path), "a Parquet file", got="damaged data", where=where, hint=hint
            ) from None


def read_columns(
    path: Path, wanted: Sequence[str], texts: set[str], report: Report
) -> Iterator[tuple[Index, dict[str, FieldColumn]]]:
    """Yield the row numbers, from 1, and the columns ``wanted`` of each chunk; those in ``texts`` as strings."""
    done = 0
    for batch in read_batches(path, wanted, report, 8 * CHUNK):
        arrays = zip(batch.schema.names, batch.columns, strict=True)
        columns = {name: to_column(path, name, array, name in texts) for name, array in arrays}
        yield np.arange(done + 1, done + batch.num_rows + 1), columns
        done += batch.num_rows


def to_column(path: Path, name: str, array: Any, is_text: bool = False) -> FieldColumn:
    """Return an Arrow array as a column. A timestamp becomes seconds since 1970, True becomes 1."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        micros = pc.cast(pc.cast(array, pa.timestamp("us"), safe=False), pa.int64())
        return FieldColumn(pc.cast(micros, pa.float64(), safe=False).to_numpy(zero_copy_only=False) / 1e6)
    if is_text and pa.types.is_integer(kind):  # a float would round large integers
        array, kind = pc.cast(array, pa.string()), pa.string()
    if pa.types.is_boolean(kind):
        array, kind = pc.cast(array, pa.int8()), pa.int8()
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind):
        numbers = pc.cast(array, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        column = FieldColumn(np.array(numbers, dtype=float))
        return to_texts(column) if is_text else column
    if pa.types.is_decimal(kind):
        return FieldColumn(np.array(pc.cast(array, pa.float64()).to_numpy(zero_copy_only=False), dtype=float))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        coded = array.dictionary_encode()
        codes = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        return FieldColumn(codes, tuple(coded.dictionary.to_pylist()))
    expected = "a column of numbers, strings or times"
    raise ArgumentError(("columns", name), str(path), expected, got=f"the type {kind}", where=str(path))
