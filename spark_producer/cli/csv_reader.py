"""CSV as Arrow batches: its cells as text, or with inferred types.

Owns: the form of a CSV, its header, the numbers of its rows. Must not know: which columns are wanted, and for what.
"""

from __future__ import annotations

import codecs
import csv as python_csv
import io
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import csv

from spark_producer.cli.csv_dialect import BadQuoteError, Block, Dialect
from spark_producer.cli.inflation import check_columns_count

MAX_ROW_BYTES = 2 << 20
"""Maximum bytes of a row, including the line ends in its cells."""

NOT_UTF8 = "it is not UTF-8; convert it to UTF-8, as iconv -f LATIN1 -t UTF-8 does if it is Latin-1"

UTF16 = "it is UTF-16; convert it to UTF-8, as iconv -f UTF-16 -t UTF-8 does"

_PIECE = 1 << 20
_BLOCK = 2 << 20
"""The bytes that are read at a time. The first block is checked before anything is sent."""

_FIRST_LINE = re.compile(rb"[\r\n]*([^\r\n]+)[\r\n]")
_ROW = re.compile(r"Row #(\d+)")


class CsvForm(NamedTuple):
    """The format of a CSV file: delimiter, quoting, type inference. The default delimiter depends on the file's name.

    `quote` and `escape` are as in `Dialect`.
    """

    delimiter: str | None = None
    inferred: bool = False
    quote: str = '"'
    escape: str = ""

    def dialect(self) -> Dialect:
        """Return the dialect, with a comma as the default delimiter."""
        return Dialect(self.delimiter or ",", self.quote, self.escape)


BY_NAME = CsvForm()


def read_cells(file: pa.NativeFile, form: CsvForm) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """Return the names in the first line, and batches of the rows. The first batch is read at once, to find errors early.

    Cells are strings, so that nothing is lost: 007 stays 007. An empty cell is null, and `""` an empty string, as Spark writes
    them. With inferred types a column has the type of its first rows.

    Raises:
        pyarrow.ArrowException: there is no first line, or the first rows do not fit it.
    """
    header, begun = _split(file)
    names = _names(header, form)
    check_columns_count(len(names))
    batches = _Rows(names, form).batches(_pieces(begun, file))
    first = next(batches, None)
    return names, iter(()) if first is None else _with_first(first, batches)


def _with_first(first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    del first  # it would be held until the file ends
    yield from batches


def _pieces(begun: bytes, file: pa.NativeFile) -> Iterator[tuple[bytes, bool]]:
    """Yield the file in blocks, each with whether it is the last. `begun` are the bytes that were read already."""
    is_last = False
    while not is_last:
        while len(begun) < _BLOCK and (more := file.read(_BLOCK - len(begun))):
            begun += more
        is_last = len(begun) < _BLOCK
        yield begun, is_last
        begun = b""


class _Rows:
    """Yields the rows of a file, and counts them from 1 on, so that errors name the row."""

    def __init__(self, names: list[str], form: CsvForm) -> None:
        self._names = names
        self._form = form
        self._dialect = form.dialect()
        self._types: dict[str, pa.DataType] | None = None if form.inferred else dict.fromkeys(names, pa.string())
        self._rows = 0

    def batches(self, pieces: Iterator[tuple[bytes, bool]]) -> Iterator[pa.RecordBatch]:
        """Yield batches of whole rows. `pieces` are (bytes of the file, whether they are the last).

        Raises:
            pyarrow.ArrowInvalid: a row does not follow the dialect, or has more or fewer cells than there are names.
        """
        rest = b""
        for piece, is_last in pieces:
            data = rest + piece
            block = Block(data, self._dialect)
            self._check(block, data, is_last)
            end = len(data) if is_last else block.end_of_rows()
            rest = data[end:]
            yield from self._parsed(block.plain(end))
            if len(rest) > MAX_ROW_BYTES:
                raise pa.ArrowInvalid(
                    f"row {self._rows + 1}: a row is longer than {MAX_ROW_BYTES >> 20} MiB, or a quote is never closed"
                )

    def _check(self, block: Block, data: bytes, is_last: bool) -> None:
        try:
            block.check(is_last)
        except BadQuoteError as error:
            before = Block(data[: error.row_start], self._dialect)
            for batch in self._parsed(before.plain(error.row_start)):  # an error in an earlier row comes first
                del batch
            raise pa.ArrowInvalid(f"row {self._rows + 1}: {error}{_advice(self._form)}") from error

    def _parsed(self, data: bytes) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block whose escapes were replaced."""
        if not data or (data[0] in b"\r\n" and not data.strip(b"\r\n")):
            return
        try:
            table = csv.read_csv(
                io.BytesIO(data),
                # Only with one thread do Arrow's errors name the row.
                read_options=csv.ReadOptions(block_size=len(data) + 1, column_names=self._names, use_threads=False),
                parse_options=_parsing(self._dialect),
                convert_options=csv.ConvertOptions(
                    column_types=self._types,
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            text = _ROW.sub(lambda found: f"Row #{self._rows + int(found[1])}", str(error), count=1)
            raise pa.ArrowInvalid(f"{text}: {NOT_UTF8}" if "invalid UTF8 data" in text else text) from error
        if self._types is None:
            self._types = dict(zip(self._names, table.schema.types, strict=True))
        self._rows += table.num_rows
        yield from table.to_batches()


def _parsing(dialect: Dialect) -> csv.ParseOptions:
    return csv.ParseOptions(
        delimiter=dialect.delimiter, quote_char=dialect.quote or False, newlines_in_values=bool(dialect.quote)
    )


def _advice(form: CsvForm) -> str:
    """Return the options that may read a file whose quotes are not those of the dialect."""
    spark = "" if form.escape else "--dialect spark reads quotes that are escaped by backslashes, "
    return f" ({spark}--quote none reads quotes as text)"


def _names(header: bytes, form: CsvForm) -> list[str]:
    """Return the names in the first line. Python's parser reads it: Arrow's would take megabytes for 1,000 columns."""
    dialect = form.dialect()
    quoting: Any = {"quotechar": dialect.quote} if dialect.quote else {"quoting": python_csv.QUOTE_NONE}
    try:
        block = Block(header, dialect)
        block.check(is_last=True)
        text = block.plain(len(header)).decode()
        return next(python_csv.reader([text], delimiter=dialect.delimiter, strict=True, **quoting))
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(f"in its first line: {NOT_UTF8}") from error
    except (BadQuoteError, python_csv.Error) as error:
        advice = _advice(form) if isinstance(error, BadQuoteError) else ""
        raise pa.ArrowInvalid(
            f"the column names in its first line, none of which may contain a line end, cannot be read: {error}{advice}"
        ) from error


def _split(file: pa.NativeFile) -> tuple[bytes, bytes]:
    """Return the first line that is not empty, and the bytes after it that were read too."""
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
        if len(begun) > MAX_ROW_BYTES:
            raise pa.ArrowInvalid(f"its first line is longer than {MAX_ROW_BYTES >> 20} MiB")
    if b"\0" in found[1]:
        raise pa.ArrowInvalid(f"its first line contains NUL bytes, so {UTF16}")
    return found[1], begun[found.end() :]


def refuse_utf16(begun: bytes) -> None:
    """Refuse UTF-16.

    Raises:
        pyarrow.ArrowException: the file begins with the byte order mark of UTF-16.
    """
    if begun.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise pa.ArrowInvalid(UTF16)
