"""Parquet as batches that are bounded, whatever its pages say: a dictionary page has a text once for all rows of a group."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
from pyarrow import parquet

from spark_producer.cli.decoded_size import MAX_BYTES, MAX_ROW_BYTES, MAX_ROWS
from spark_producer.cli.inflation import check_columns_count, check_unpacked
from spark_producer.cli.parquet_pages import pages_of

_MAX_CELLS = 1 << 19
_MAX_ELEMENTS = 1 << 28
"""The most values of a column of lists in a row group: runs of levels take a few bytes of the file, and four each in memory."""


def open_parquet(stack: ExitStack, name: str, content: bytes | None) -> tuple[list[str], int, Iterator[pa.RecordBatch]]:
    """Return the names of the columns, the number of rows, and the batches of a file, or of what came through a pipe.

    Texts that the file has in dictionaries stay in them, so that a batch takes as much memory as they do, and not as its rows.

    Raises:
        pyarrow.ArrowException: it is no Parquet, or would take too much memory.
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
    reader = stack.enter_context(parquet.ParquetFile(source, read_dictionary=coded))
    return schema.names, metadata.num_rows, reader.iter_batches(_rows_at_once(metadata))


def _check_pages(raw: BinaryIO, metadata: parquet.FileMetaData, group: int) -> None:
    """Look whether one page of each column, and its dictionary, which are in memory together, are not too large.

    Raises:
        pyarrow.ArrowInvalid: they are.
    """
    unpacked = packed = 0
    columns = metadata.row_group(group)
    for number in range(columns.num_columns):
        chunk = columns.column(number)
        if metadata.schema.column(number).max_repetition_level and chunk.num_values > _MAX_ELEMENTS:
            raise pa.ArrowInvalid(
                f"column {chunk.path_in_schema!r} of row group {group} has {chunk.num_values:,} elements of lists, and at most "
                f"{_MAX_ELEMENTS:,} are read: write the file again with smaller row groups"
            )
        largest = sorted(pages_of(raw, chunk))[-2:]
        unpacked += sum(page.unpacked for page in largest)
        packed += sum(page.packed for page in largest)
    check_unpacked(f"row group {group}", unpacked, packed)


def _in_dictionaries(metadata: parquet.FileMetaData) -> list[str]:
    """Return the paths of the texts that the file has in dictionaries."""
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
    """Return how many rows are read at once: by the bytes of their groups, and by the lengths that columns have in each row."""
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    columns = [metadata.schema.column(number) for number in range(metadata.num_columns)]
    fixed = sum(column.length or 0 for column in columns if column.physical_type == "FIXED_LEN_BYTE_ARRAY")
    if fixed > MAX_ROW_BYTES:
        raise pa.ArrowInvalid(f"its rows have {fixed:,} bytes, and at most {MAX_ROW_BYTES:,} are read")
    size = max(1, sum(group.total_byte_size for group in groups))
    by_bytes = MAX_BYTES * metadata.num_rows // size
    return max(1, min(MAX_ROWS, by_bytes, MAX_BYTES // max(1, fixed), _MAX_CELLS // max(1, len(columns))))
