"""CSV as Arrow batches: its cells as they stand, or with types that are guessed.

Owns: the form of a CSV, its header. Must not know: which columns are wanted, what becomes of them.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, cast

import pyarrow as pa
from pyarrow import csv

LONGEST_ROW = 16 << 20
"""A row may have so many bytes, whatever lines its cells have."""

_PIECE = 1 << 20
_FIRST_LINE = re.compile(rb"[\r\n]*([^\r\n]+)[\r\n]")


class CsvForm(NamedTuple):
    """How cells lie in the file, and whether their types are guessed from its first 16 MiB."""

    delimiter: str = ","
    inferred: bool = False


COMMAS = CsvForm()


def read_cells(
    stack: ExitStack, file: pa.NativeFile, rows: int, form: CsvForm
) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """Return the names in the first line, and batches of at most so many rows. The reader ends with the stack.

    Cells are texts, so that nothing of them is lost: 007 stays 007. An empty one is null, and `""` an empty text, as Spark reads
    them. With guessed types a column is what its first rows are.

    Raises:
        pyarrow.ArrowException: there is no first line, or the first rows are not what it says.
    """
    header, begun = _split(file)
    parsing = csv.ParseOptions(delimiter=form.delimiter, newlines_in_values=True)
    try:
        names = csv.read_csv(io.BytesIO(header + b"\n"), parse_options=parsing).schema.names
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(
            f"the names in its first line cannot be read, which have no line ends: {error}"
        ) from error
    begun = begun or file.read(_PIECE)
    if not begun:
        return names, iter(())
    with _plain_words():
        reader = csv.open_csv(
            cast(Any, io.BufferedReader(_Continued(begun, file))),
            # Of one thread, which also counts the rows, so that errors name them. Arrow wants a row to lie in two blocks at most.
            read_options=csv.ReadOptions(block_size=LONGEST_ROW, column_names=names, use_threads=False),
            parse_options=parsing,
            convert_options=csv.ConvertOptions() if form.inferred else _as_texts(names),
        )
    stack.callback(reader.close)
    return names, (batch.slice(at, rows) for batch in _blocks(reader) for at in range(0, batch.num_rows, rows))


def _blocks(reader: csv.CSVStreamingReader) -> Iterator[pa.RecordBatch]:
    with _plain_words():
        yield from reader


@contextmanager
def _plain_words() -> Iterator[None]:
    """Say what people can look for where Arrow speaks of its blocks."""
    try:
        yield
    except pa.ArrowInvalid as error:
        if "straddl" not in str(error):
            raise
        raise pa.ArrowInvalid(f"a row is longer than {LONGEST_ROW >> 20} MiB, or a quote has no end") from error


def _as_texts(names: list[str]) -> csv.ConvertOptions:
    return csv.ConvertOptions(
        column_types={name: pa.string() for name in names},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def _split(file: pa.NativeFile) -> tuple[bytes, bytes]:
    """Return the first line that is not empty, and what was read behind it."""
    begun = b""
    while (found := _FIRST_LINE.match(begun)) is None:
        piece = file.read(_PIECE)
        begun += piece
        if not piece:
            if not begun.strip(b"\r\n"):
                raise pa.ArrowInvalid("it is empty")
            return begun.strip(b"\r\n"), b""
        if len(begun) > LONGEST_ROW:
            raise pa.ArrowInvalid(f"its first line is longer than {LONGEST_ROW >> 20} MiB")
    return found[1], begun[found.end() :]


class _Continued(io.RawIOBase):
    """What was read of a file already, then what is left of it."""

    def __init__(self, begun: bytes, file: pa.NativeFile) -> None:
        super().__init__()
        self._begun = memoryview(begun)
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        size = len(into)
        piece = self._begun[:size] or self._file.read(size)
        self._begun = self._begun[size:]
        into[: len(piece)] = piece
        return len(piece)
