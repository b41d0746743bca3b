"""Files as Arrow batches (Parquet, CSV, JSON lines, Arrow, lines of text), and their rows as the columns of the sink."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, cast

import pyarrow as pa
from pyarrow import ipc

from spark_producer.cli.arrow_messages import CheckedStream, check_file
from spark_producer.cli.cell_parsing import converted, moments, partitions
from spark_producer.cli.csv_reader import BY_NAME, CsvForm, read_cells, refuse_utf16
from spark_producer.cli.decoded_size import MAX_ROWS, bounded
from spark_producer.cli.inflation import check_columns_count
from spark_producer.cli.json_lines import JsonLines
from spark_producer.cli.parquet_file import open_parquet
from spark_producer.cli.row_values import RowValues
from spark_producer.common.escape import for_log
from spark_producer.errors import ConfigError, RecordError, SchemaError
from spark_producer.kernel.arrays import ArrowArray

STDIN = "-"
BYTES = 16 << 20
"""The size in bytes at which a batch of lines ends, however few rows it has."""

MAX_LINE_BYTES = 64 << 20
"""Maximum bytes of a line. A longer one cannot be a record, and would be in memory up to its end."""

UNREADABLE = (OSError, pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError, RecursionError)
"""The exceptions of pyarrow and json for rows beyond Python's types, such as times after the year 9999 or 10,000 nested lists."""

NO_MEMORY = (
    "cannot be read: this machine has too little memory for it. Write it again with smaller rows, batches or row groups"
)
"""The message for a `MemoryError`, Python's or Arrow's."""

SUFFIXES = {
    ".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".arrow": "arrow",
    ".arrows": "arrow", ".feather": "arrow", ".ipc": "arrow", ".txt": "text",
}  # fmt: skip
TABS = ".tsv"
"""The suffix of a CSV with tabs between its cells."""

COMMA = ","
OTHER_DELIMITERS = {";": "';'", "\t": "tab", "|": "'|'"}
"""Other frequent delimiters, and the values of `--delimiter` for them."""

FORMATS = ("parquet", "csv", "json", "arrow", "text")
LINE = "line"
"""The column of the lines of plain text."""

COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
"""The codecs, by suffix in small letters."""


class Source(NamedTuple):
    """An open file: its columns, its number of rows if the file has it, and its batches.

    `lines` is the column with whole lines, which are the values of records; None for other formats. `delimiter` is that of a CSV,
    else None. `json` extracts the fields of JSON lines. `unwritable` has the reasons why columns cannot be written, by name.
    """

    name: str
    columns: Sequence[str]
    rows: int | None
    batches: Iterator[pa.RecordBatch]
    lines: str | None = None
    delimiter: str | None = None
    json: JsonLines | None = None
    unwritable: Mapping[str, str] = {}


class Mapped(NamedTuple):
    """The columns of a file for each part of a record, and whether null fields are written into JSON."""

    key: str | None = None
    value: str = "*"
    headers: Mapping[str, str] = {}
    timestamp: str | None = None
    partition: str | None = None
    keep_nulls: bool = False

    def columns(self) -> list[str]:
        """Return the names of the mapped columns, each once."""
        named = [
            self.key,
            self.timestamp,
            self.partition,
            *self.headers.values(),
            None if self.value == "*" else self.value,
        ]
        return list(dict.fromkeys(column for column in named if column is not None))


def open_file(stack: ExitStack, name: str, kind: str | None, form: CsvForm = BY_NAME) -> Source:
    """Open a file, or stdin for `-`, and check its beginning, so that a wrong file is found before anything is sent.

    `form` is for CSV files.

    Raises:
        ConfigError: the file is missing, has no known format, or does not follow its format.
    """
    kind = kind or kind_of(name)
    try:
        return _csv(stack, name, form) if kind == "csv" else _OPEN[kind](stack, name)
    except MemoryError as error:
        raise ConfigError(f"{name} {NO_MEMORY}") from error
    except UNREADABLE as error:
        if isinstance(error, FileNotFoundError | IsADirectoryError | PermissionError):
            raise ConfigError(f"{name} cannot be read: {error.strerror or error}") from error
        advice = (
            "Set the delimiter with --delimiter, or the format with --format"
            if kind == "csv"
            else "Set the format with --format"
        )
        raise ConfigError(f"{name} cannot be read as {kind}: {for_log(str(error))}. {advice}") from error


def kind_of(name: str) -> str:
    """Return the format of a file by the suffix of its name.

    Raises:
        ConfigError: the suffix is unknown.
    """
    if name == STDIN:
        return "text"
    kind = SUFFIXES.get(_suffix(name))
    if kind is None:
        if not os.path.lexists(name):
            raise ConfigError(f"{name} cannot be read: {os.strerror(errno.ENOENT)} (files come first, the topic last)")
        if Path(name).is_dir():
            raise ConfigError(f"{name} cannot be read: it is a directory. Name the files in it")
        raise ConfigError(f"the format of {name} is unknown. Give --format {'|'.join(FORMATS)}")
    return kind


def _suffix(name: str) -> str:
    """Return the suffix of a file's format in lower case, without that of its compression; empty if it has none."""
    suffixes = [suffix.lower() for suffix in Path(name).suffixes]
    return next((suffix for suffix in reversed(suffixes) if suffix not in COMPRESSED), "")


def _bytes(stack: ExitStack, name: str) -> pa.NativeFile:
    """Open the file, decompressed according to the suffix of its name."""
    if name == STDIN:
        if sys.stdin is None:
            raise ConfigError("stdin is closed. Give the name of a file, or redirect stdin")
        return pa.PythonFile(cast(io.IOBase, sys.stdin.buffer), mode="r")
    if not Path(name).is_file():  # a pipe, such as `<(zcat …)`, or a device: pyarrow would seek to its end
        return pa.PythonFile(stack.enter_context(Path(name).open("rb")), mode="r")
    codec = COMPRESSED.get(Path(name).suffix.lower())  # pyarrow itself knows suffixes in lower case only
    return stack.enter_context(pa.input_stream(name, compression=cast(Any, codec)))


def _whole(pipe: pa.NativeFile) -> bytes:
    """Return all bytes of a pipe. `read()` without a size would seek to the end, which a pipe does not have."""
    return b"".join(iter(lambda: pipe.read(1 << 20), b""))


def _parquet(stack: ExitStack, name: str) -> Source:
    content = None if Path(name).is_file() else _whole(_bytes(stack, name))
    found = open_parquet(stack, name, content)
    return Source(name, found.columns, found.rows, bounded(found.batches), unwritable=found.unwritable)


def _csv(stack: ExitStack, name: str, form: CsvForm) -> Source:
    if form.delimiter is None and _suffix(name) == TABS:
        form = form._replace(delimiter="\t")
    names, batches = read_cells(_bytes(stack, name), form)
    return Source(name, names, None, bounded(batches), delimiter=form.delimiter or COMMA)


def _arrow(stack: ExitStack, name: str) -> Source:
    """Open an Arrow file or stream. It is read and not mapped: truncating a mapped file would kill the process (SIGBUS)."""
    if Path(name).is_file():
        try:
            file = stack.enter_context(ipc.open_file(stack.enter_context(pa.OSFile(name, mode="r"))))
        except pa.ArrowInvalid:
            pass  # it is a stream
        else:
            check_columns_count(len(file.schema.names))
            with Path(name).open("rb") as raw:
                check_file(raw)
            batches = (file.get_batch(number) for number in range(file.num_record_batches))
            return Source(name, file.schema.names, None, bounded(_validated(batches)))
    stream = pa.PythonFile(cast(io.IOBase, CheckedStream(_bytes(stack, name).read)), mode="r")
    reader = stack.enter_context(ipc.open_stream(stream))
    check_columns_count(len(reader.schema.names))
    return Source(name, reader.schema.names, None, bounded(_validated(iter(reader))))


def _validated(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches after checking that offsets lie within their buffers and strings are UTF-8: Arrow does not check it."""
    for batch in batches:
        batch.validate(full=True)
        yield batch


def _text(stack: ExitStack, name: str) -> Source:
    lines = _lines(name, _bytes(stack, name))
    first = next(lines, None) if Path(name).is_file() else None  # the first line of a pipe may come late
    return Source(name, [LINE], None, (pa.record_batch({LINE: part}) for part in _pieces(lines, first)), lines=LINE)


def _json(stack: ExitStack, name: str) -> Source:
    """Open JSON lines, whose lines are the values. The columns are the fields of the first line; `look_for` adds others."""
    lines = _filled_lines(stack, name)
    first = next(lines, None)
    again = (lambda: _filled_lines(stack, name)) if Path(name).is_file() else None
    found = JsonLines(name, _pieces(lines, first), again)
    if first is not None:
        found.look_at_first(first)
    return Source(name, found.columns, None, found.batches(LINE), lines=LINE, json=found)


def _filled_lines(stack: ExitStack, name: str) -> Iterator[bytes]:
    return (line for line in _without_mark(_lines(name, _bytes(stack, name))) if line.strip())


def _without_mark(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield lines without a byte order mark, which some editors write and JSON does not allow (RFC 8259, 8.1)."""
    yield next(lines, b"").removeprefix(codecs.BOM_UTF8)
    yield from lines


def _lines(name: str, file: pa.NativeFile) -> Iterator[bytes]:
    """Yield lines without their ends.

    Raises:
        RecordError: one is longer than `MAX_LINE_BYTES`. pyarrow.ArrowException: they are UTF-16.
    """
    begun: list[bytes] = []
    length, is_first = 0, True
    while piece := file.read(1 << 20):
        if is_first:
            refuse_utf16(piece)
            is_first = False
        first, *more = piece.split(b"\n")
        begun.append(first)
        length += len(first)
        if length > MAX_LINE_BYTES:
            raise RecordError(
                f"{name}: a line is longer than {MAX_LINE_BYTES >> 20} MiB. If it is no file of lines, set --format"
            )
        if more:
            yield b"".join(begun).removesuffix(b"\r")
            yield from (line.removesuffix(b"\r") for line in more[:-1])
            begun, length = more[-1:], len(more[-1])
    if rest := b"".join(begun):
        yield rest.removesuffix(b"\r")


def _pieces(lines: Iterator[bytes], first: bytes | None = None) -> Iterator[list[bytes]]:
    piece = [] if first is None else [first]
    size = len(first or b"")
    for line in lines:
        piece.append(line)
        size += len(line)
        if len(piece) >= MAX_ROWS or size >= BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


_OPEN = {"parquet": _parquet, "json": _json, "arrow": _arrow, "text": _text}


def check_columns(source: Source, mapped: Mapped) -> None:
    """Check that the mapped columns exist, are unique, and can be written.

    Raises:
        SchemaError: a column does not (the message lists the existing ones), or several have one name.
    """
    if len(set(source.columns)) != len(source.columns):
        several = next(name for name in source.columns if source.columns.count(name) > 1)
        raise SchemaError(f"{source.name} has several columns {several!r}. Give each column a different name")
    wanted = mapped.columns()
    if source.json is not None:
        source.json.look_for(wanted)
    for column in wanted:
        if column not in source.columns:
            existing = ", ".join(source.columns) or "none"
            raise SchemaError(f"{source.name} has no column {column!r}. It has {existing}{_other_delimiter(source)}")
    for column in source.columns if mapped.value == "*" else wanted:
        if column in source.unwritable:
            raise SchemaError(f"{source.name}, column {column!r} cannot be written: {source.unwritable[column]}")


def _other_delimiter(source: Source) -> str:
    """Return advice for a CSV that was read as one column and probably has another delimiter."""
    found = [
        mark for mark in OTHER_DELIMITERS if source.delimiter and len(source.columns) == 1 and mark in source.columns[0]
    ]
    return f". If these are several columns, give --delimiter {OTHER_DELIMITERS[found[0]]}" if found else ""


def as_sink_columns(source: Source, mapped: Mapped) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file as batches of the sink's columns. The value `*` is a JSON object of all columns.

    Raises:
        SchemaError, RecordError, pyarrow.ArrowException: a row cannot be read or converted.
    """
    rows = 0
    for batch in source.batches:
        cells = batch
        if source.json is not None:
            cells = source.json.fields(batch.column(0), mapped.columns(), rows)
        whole = mapped.value == "*"
        values = RowValues(cells, rows, mapped.keep_nulls)
        if whole:
            value = values.objects() if source.lines is None else batch.column(source.lines)
        else:
            value = values.text(mapped.value)
        arrays: dict[str, ArrowArray] = {"value": value}
        if mapped.key is not None:
            arrays["key"] = values.text(mapped.key)
        if mapped.headers:
            arrays["headers"] = values.headers(mapped.headers)
        if mapped.timestamp is not None:
            arrays["timestamp"] = converted(cells, mapped.timestamp, moments, rows)
        if mapped.partition is not None:
            arrays["partition"] = converted(cells, mapped.partition, partitions, rows)
        yield pa.record_batch(arrays)
        rows += batch.num_rows
