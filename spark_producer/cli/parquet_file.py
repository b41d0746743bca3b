"""Parquet as batches of bounded size, whatever its pages say: a dictionary page has a string once for all rows of a group."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa
from pyarrow import parquet

from spark_producer.cli.decoded_size import MAX_BYTES, MAX_CELLS, MAX_ROW_BYTES, MAX_ROWS
from spark_producer.cli.inflation import check_columns_count, check_unpacked
from spark_producer.cli.parquet_pages import pages_of
from spark_producer.cli.parquet_types import meant_types

INT96_UNIT = "us"
"""What INT96 is read in, as by Spark: nanoseconds of 64 bits end with the year 2262, and Arrow goes on with 1677."""

_MAX_ELEMENTS = 1 << 28
"""The maximum values of a list column in a row group: runs of levels take a few bytes of the file, and each four in memory."""


class OpenParquet(NamedTuple):
    """A file that was opened. `unwritable` says by name why values of a column cannot be written."""

    columns: list[str]
    rows: int
    batches: Iterator[pa.RecordBatch]
    unwritable: Mapping[str, str]


def open_parquet(stack: ExitStack, name: str, content: bytes | None) -> OpenParquet:
    """Open a file, or what came through a pipe.

    Strings that the file keeps in dictionaries stay there, so that a batch takes the memory of it and not of its rows.

    Raises:
        pyarrow.ArrowException: it is not Parquet, or would take too much memory.
    """
    raw: BinaryIO = io.BytesIO(content or b"")
    if content is None:
        raw = stack.enter_context(Path(name).open("rb"))  # noqa: SIM115  the stack closes it
    source = name if content is None else pa.BufferReader(content)
    with parquet.ParquetFile(source) as file:
        metadata, schema = file.metadata, file.schema_arrow
    check_columns_count(metadata.num_columns)
    for group in range(metadata.num_row_groups):
        _check_pages(raw, metadata, group)
    coded = _in_dictionaries(metadata)
    reader = stack.enter_context(
        parquet.ParquetFile(source, read_dictionary=coded, coerce_int96_timestamp_unit=INT96_UNIT)
    )
    meant = meant_types(reader)
    batches = meant.batches(_batches(reader, _rows_at_once(metadata)))
    return OpenParquet(schema.names, metadata.num_rows, batches, meant.unwritable)


def _batches(reader: parquet.ParquetFile, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches of each row group by itself: Arrow cannot join dictionaries of two groups below lists and structs."""
    for group in range(reader.num_row_groups):
        yield from reader.iter_batches(rows, row_groups=[group])


def _check_pages(raw: BinaryIO, metadata: parquet.FileMetaData, group: int) -> None:
    """Check the sizes of the two largest pages of each column: a data page and its dictionary are in memory together.

    Raises:
        pyarrow.ArrowInvalid: they are too large.
    """
    unpacked = packed = 0
    columns = metadata.row_group(group)
    for number in range(columns.num_columns):
        chunk = columns.column(number)
        if metadata.schema.column(number).max_repetition_level and chunk.num_values > _MAX_ELEMENTS:
            raise pa.ArrowInvalid(
                f"column {chunk.path_in_schema!r} of row group {group} has {chunk.num_values:,} list elements, more than "
                f"{_MAX_ELEMENTS:,}: write the file again with smaller row groups"
            )
        largest = sorted(pages_of(raw, chunk))[-2:]
        unpacked += sum(page.unpacked for page in largest)
        packed += sum(page.packed for page in largest)
    check_unpacked(f"row group {group}", unpacked, packed)


def _in_dictionaries(metadata: parquet.FileMetaData) -> list[str]:
    """Return the paths of the string and binary columns that the file keeps in dictionaries."""
    texts = [
        number for number in range(metadata.num_columns) if metadata.schema.column(number).physical_type == "BYTE_ARRAY"
    ]
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    return [
        metadata.schema.column(number).path
        for number in texts
        if any(bool(group.column(number).has_dictionary_page) for group in groups)
    ]


def _rows_at_once(metadata: parquet.FileMetaData) -> int:
    """Return how many rows are read at once, by the size of the row groups and of the columns of a fixed length."""
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    columns = [metadata.schema.column(number) for number in range(metadata.num_columns)]
    fixed = sum(column.length or 0 for column in columns if column.physical_type == "FIXED_LEN_BYTE_ARRAY")
    if fixed > MAX_ROW_BYTES:
        raise pa.ArrowInvalid(f"each of its rows has {fixed:,} bytes, more than {MAX_ROW_BYTES:,}: leave columns out")
    size = max(1, sum(group.total_byte_size for group in groups))
    by_bytes = MAX_BYTES * metadata.num_rows // size
    return max(1, min(MAX_ROWS, by_bytes, MAX_BYTES // max(1, fixed), MAX_CELLS // max(1, len(columns))))
