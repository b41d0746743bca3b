"""CSV as Arrow batches: its cells as they stand, or with types that are guessed.

Owns: the form of a CSV, its header. Must not know: which columns are wanted, what becomes of them.
"""

from __future__ import annotations

import codecs
import io
import re
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple, cast

import pyarrow as pa
from pyarrow import csv

LONGEST_ROW = 2 << 20
"""A row may have so many bytes, whatever lines its cells have. Arrow reads 32 blocks of that size ahead, and keeps them."""

NO_UTF8 = "it is not UTF-8; write it anew as UTF-8, as iconv -f LATIN1 -t UTF-8 does if it is Latin-1"

_PIECE = 1 << 20
_FIRST_LINE = re.compile(rb"[\r\n]*([^\r\n]+)[\r\n]")


class CsvForm(NamedTuple):
    """How cells lie in the file, and whether their types are guessed from its first 2 MiB. No delimiter: by the file's name."""

    delimiter: str | None = None
    inferred: bool = False


BY_NAME = CsvForm()


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
    parsing = csv.ParseOptions(delimiter=form.delimiter or ",", newlines_in_values=True)
    names = _names(header, parsing)
    begun = begun or file.read(_PIECE)
    if not begun:
        return names, iter(())
    source = _Continued(begun, file)
    stack.callback(source.end)
    with _plain_words():
        reader = csv.open_csv(
            cast(Any, source),
            # Of one thread, which also counts the rows, so that errors name them. Arrow wants a row to lie in two blocks at most.
            read_options=csv.ReadOptions(block_size=LONGEST_ROW, column_names=names, use_threads=False),
            parse_options=parsing,
            convert_options=csv.ConvertOptions(
                column_types=None if form.inferred else dict.fromkeys(names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    stack.callback(_end, reader, source)
    return names, (batch.slice(at, rows) for batch in _blocks(reader) for at in range(0, batch.num_rows, rows))


def _end(reader: csv.CSVStreamingReader, source: _Continued) -> None:
    """End Arrow's thread that reads ahead: one that is still there when Python ends makes the process abort."""
    source.end()
    if not source.may_wait:
        with suppress(pa.ArrowException):
            deque(reader, maxlen=0)
    reader.close()


def _blocks(reader: csv.CSVStreamingReader) -> Iterator[pa.RecordBatch]:
    with _plain_words():
        yield from reader


@contextmanager
def _plain_words() -> Iterator[None]:
    """Say what people can look for where Arrow speaks of its blocks."""
    try:
        yield
    except pa.ArrowInvalid as error:
        if "invalid UTF8 data" in str(error):
            raise pa.ArrowInvalid(f"{error}: {NO_UTF8}") from error
        if "straddl" not in str(error):
            raise
        raise pa.ArrowInvalid(f"a row is longer than {LONGEST_ROW >> 20} MiB, or a quote has no end") from error


def _names(header: bytes, parsing: csv.ParseOptions) -> list[str]:
    reading = csv.ReadOptions(block_size=2 * LONGEST_ROW)
    try:
        return csv.read_csv(io.BytesIO(header + b"\n"), read_options=reading, parse_options=parsing).schema.names
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(f"in its first line: {NO_UTF8}") from error
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(
            f"its first line has the names of the columns, which may hold no line ends: {error}"
        ) from error


def _split(file: pa.NativeFile) -> tuple[bytes, bytes]:
    """Return the first line that is not empty, and what was read behind it."""
    begun = file.read(_PIECE)
    refuse_utf16(begun)
    begun = begun.removeprefix(codecs.BOM_UTF8)
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


def refuse_utf16(begun: bytes) -> None:
    """Refuse a file that begins with the mark of UTF-16.

    Raises:
        pyarrow.ArrowException: it does.
    """
    if begun.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise pa.ArrowInvalid("it is UTF-16; write it anew as UTF-8, as iconv -f UTF-16 -t UTF-8 does")


class _Continued(io.RawIOBase):
    """What was read of a file already, then what is left of it, until the end of the file or of the reading."""

    def __init__(self, begun: bytes, file: pa.NativeFile) -> None:
        super().__init__()
        self.may_wait = isinstance(file, pa.PythonFile)
        """Whether a read may wait for somebody who writes, as in a pipe."""
        self._begun = begun
        self._file = file
        self._is_ended = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        piece, self._begun = self._begun[:size], self._begun[size:]
        if len(piece) < size and not self._is_ended:
            piece += self._file.read(size - len(piece))
        return b"" if self._is_ended else piece

    def end(self) -> None:
        """Let the next read be at the end, so that nothing more is asked of the file."""
        self._is_ended = True
