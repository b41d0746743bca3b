"""Parquet as batches of bounded size. A dictionary page has a string once for all rows of a row group."""

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
from spark_producer.cli.parquet_types import logical_types

INT96_UNIT = "us"
"""The unit in which INT96 is read, as by Spark: nanoseconds of 64 bits end in 2262, and Arrow would wrap around to 1677."""

_MAX_ELEMENTS = 1 << 28
"""Maximum values of a list column in a row group: a run of levels takes few bytes of the file, and four in memory for each."""


class OpenParquet(NamedTuple):
    """An open file. `unwritable` has the reasons why columns cannot be written, by name."""

    columns: list[str]
    rows: int
    batches: Iterator[pa.RecordBatch]
    unwritable: Mapping[str, str]


def open_parquet(stack: ExitStack, name: str, content: bytes | None) -> OpenParquet:
    """Open a file, or the `content` of a pipe.

    Dictionary-encoded strings stay encoded, so that a batch takes no memory for repeated ones.

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
    encoded = _dictionary_columns(metadata)
    reader = stack.enter_context(
        parquet.ParquetFile(source, read_dictionary=encoded, coerce_int96_timestamp_unit=INT96_UNIT)
    )
    types = logical_types(reader)
    batches = types.batches(_batches(reader, _rows_at_once(metadata)))
    return OpenParquet(schema.names, metadata.num_rows, batches, types.unwritable)


def _batches(reader: parquet.ParquetFile, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches that do not span row groups: Arrow cannot join dictionaries of two groups below lists and structs."""
    for group in range(reader.num_row_groups):
        yield from reader.iter_batches(rows, row_groups=[group])


def _check_pages(raw: BinaryIO, metadata: parquet.FileMetaData, group: int) -> None:
    """Check the sizes of the two largest pages of each column, because a data page and its dictionary are in memory together.

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
                f"{_MAX_ELEMENTS:,}. Write the file again with smaller row groups"
            )
        largest = sorted(pages_of(raw, chunk))[-2:]
        unpacked += sum(page.unpacked for page in largest)
        packed += sum(page.packed for page in largest)
    check_unpacked(f"row group {group}", unpacked, packed)


def _dictionary_columns(metadata: parquet.FileMetaData) -> list[str]:
    """Return the paths of the dictionary-encoded string and binary columns."""
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
    """Return the number of rows to read at once, from the sizes of the row groups and of columns with a fixed length."""
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    columns = [metadata.schema.column(number) for number in range(metadata.num_columns)]
    fixed = sum(column.length or 0 for column in columns if column.physical_type == "FIXED_LEN_BYTE_ARRAY")
    if fixed > MAX_ROW_BYTES:
        raise pa.ArrowInvalid(f"each of its rows has {fixed:,} bytes, more than {MAX_ROW_BYTES:,}. Leave columns out")
    size = max(1, sum(group.total_byte_size for group in groups))
    by_bytes = MAX_BYTES * metadata.num_rows // size
    return max(1, min(MAX_ROWS, by_bytes, MAX_BYTES // max(1, fixed), MAX_CELLS // max(1, len(columns))))
