"""JSON lines: each line is the value of a record, and fields are extracted from it with the bytes of the document.

Owns: the rules for a line, the search for fields. Must not know: files, and the use of fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from json import JSONDecodeError
from typing import Any, cast

import pyarrow as pa

from spark_producer.cli.json_scan import MAX_PARSED, Number, long_members, members, parsed
from spark_producer.errors import RecordError
from spark_producer.kernel.arrays import ArrowArray

NULL = b"null"
"""A line that is a tombstone: a record without a value."""

MAX_NAMES = 100
"""The maximum number of field names that are kept for messages."""

_OVER_LINES = (
    "a JSON object does not end on its line (the file is pretty-printed, or cut off), and JSON lines have one object per line, "
    "as jq -c . makes them"
)
_ARRAY = "it is a JSON array, and JSON lines have one object per line, as jq -c '.[]' makes them"
_DEEP = "arrays and objects are nested too deeply"


class JsonLines:
    """The non-empty lines of a file, and their fields. A line `null` is a tombstone without fields.

    Args:
        name: the name of the file, for messages.
        pieces: the lines, in lists of bounded size.
        again: returns all lines from the first on; None where they cannot be read twice, as in a pipe.
    """

    def __init__(
        self, name: str, pieces: Iterator[list[bytes]], again: Callable[[], Iterator[bytes]] | None = None
    ) -> None:
        self._name = name
        self._pieces = pieces
        self._again = again
        self.columns: list[str] = []
        """The names of the known fields. `look_for` finds others."""

    def look_at_first(self, first: bytes) -> None:
        """Check the first line, and add its fields to `columns`.

        Raises:
            pyarrow.ArrowInvalid: it is not JSON lines. RecordError: it is nested too deeply.
        """
        begin = first.strip()
        if begin == NULL:
            return
        try:
            self.columns = list(dict.fromkeys(name for name, _, _ in _members(first)))
        except RecursionError as error:
            raise RecordError(f"{self._name}, line 1: {_DEEP}") from error
        except ValueError as error:
            if begin.startswith(b"["):
                raise pa.ArrowInvalid(f"line 1: {_ARRAY}") from error
            is_open = isinstance(error, JSONDecodeError) and error.pos >= len(error.doc.rstrip())
            reason = _OVER_LINES if begin.startswith(b"{") and is_open else _reason(error)
            raise pa.ArrowInvalid(f"line 1: {reason}") from error

    def look_for(self, names: Sequence[str]) -> None:
        """Search the lines of the file, or the first 20,000 of a pipe, for fields, and add those found to `columns`."""
        missing = [name for name in names if name not in self.columns]
        if not missing:
            return
        if self._again is not None:
            lines: Iterator[bytes] = self._again()
        else:
            piece = next(self._pieces, [])
            self._pieces = chain([piece], self._pieces)
            lines = iter(piece)
        tokens = [_token(name) for name in missing]
        for line in lines:
            if b"\\" in line or any(token in line for token in tokens) or len(self.columns) < MAX_NAMES:
                found = _names(line)
                self.columns += [name for name in found if name not in self.columns][:MAX_NAMES]
                self.columns += [name for name in missing if name in found and name not in self.columns]
                missing = [name for name in missing if name not in found]
            if not missing:
                return

    def batches(self, column: str) -> Iterator[pa.RecordBatch]:
        """Yield the lines as batches with one binary column, in which tombstones are null."""
        for piece in self._pieces:
            values = [None if len(line) < MAX_PARSED and line.strip() == NULL else line for line in piece]
            yield pa.record_batch({column: pa.array(values, pa.binary())})

    def fields(self, lines: ArrowArray, names: Sequence[str], rows: int) -> pa.RecordBatch:
        """Return fields of lines as strings; null where a line lacks one. `rows` is the number of lines before these.

        Strings are without quotes and escapes; numbers, arrays and objects are the bytes of the document.

        Raises:
            RecordError: a line is not a JSON object, has one of the fields twice, or has a lone surrogate in one.
        """
        found: list[list[str | None]] = [[] for _ in names]
        tokens = [_token(name) for name in names]
        values: list[str | None]
        for at, line in enumerate(cast(Any, lines).to_pylist()):
            values = [None] * len(names) if line is None else self._line(line, names, tokens, rows + at + 1)
            for column, value in zip(found, values, strict=True):
                column.append(value)
        return pa.RecordBatch.from_arrays(
            [self._column(name, values, rows) for name, values in zip(names, found, strict=True)], names=list(names)
        )

    def _line(self, line: bytes, names: Sequence[str], tokens: Sequence[bytes], number: int) -> list[str | None]:
        try:
            return _quick(line, names, tokens)
        except RecursionError as error:
            raise RecordError(f"{self._name}, line {number}: {_DEEP}") from error
        except _DuplicateError as error:
            raise RecordError(f"{self._name}, line {number}: {error}") from error
        except ValueError as error:
            raise RecordError(f"{self._name}, line {number}: not a JSON object ({_reason(error)})") from error

    def _column(self, name: str, values: list[str | None], rows: int) -> ArrowArray:
        try:
            found: ArrowArray = pa.array(values, pa.string())
            return found
        except UnicodeEncodeError:
            number = next(at for at, value in enumerate(values) if value and not _is_unicode(value)) + rows + 1
            raise RecordError(
                f"{self._name}, line {number}: field {name!r} has half of a surrogate pair (\\ud800 to \\udfff), which UTF-8 "
                "cannot encode (surrogates not allowed). Write both halves, or the character"
            ) from None


class _DuplicateError(ValueError):
    """A line has a mapped field twice."""


def _quick(line: bytes, names: Sequence[str], tokens: Sequence[bytes]) -> list[str | None]:
    """Return fields of a line. Positions are found only where plain parsing loses the bytes of a value.

    Raises:
        ValueError, RecursionError: it is not a JSON object.
    """
    if len(line) > MAX_PARSED:
        spans = _spans(long_members(line), names)
        return [None if span is None else _text(line[span[0] : span[1]].decode()) for span in spans]
    text = line.decode()
    found = _object(text)
    values = [found.get(name) for name in names]
    if all(type(value) not in (dict, list) for value in values) and _are_single(line, tokens):
        return [_plain(value) for value in values]
    spans = _spans(members(text), names)
    return [None if span is None else _text(text[span[0] : span[1]]) for span in spans]


def _object(text: str) -> dict[str, Any]:
    found = parsed(text)
    if not isinstance(found, dict):
        raise ValueError("it is an array or a single value")
    return found


def _are_single(line: bytes, tokens: Sequence[bytes]) -> bool:
    """Return whether no name can occur in a line twice. A name with escapes can be written in several ways."""
    return b"\\u" not in line and all(
        b"\\" not in token and b"/" not in token and line.count(token) < 2 for token in tokens
    )


def _spans(found: Iterator[tuple[str, int, int]], names: Sequence[str]) -> list[tuple[int, int] | None]:
    """Return the start and end of each field's value; None for missing fields."""
    spans: dict[str, tuple[int, int]] = {}
    for name, start, end in found:
        if name in names:
            if name in spans:
                raise _DuplicateError(
                    f"the object has the field {name!r} twice, and readers differ in which one counts. Leave one out"
                )
            spans[name] = (start, end)
    return [spans.get(name) for name in names]


def _text(document: str) -> str | None:
    """Return a value for a record: a string without quotes and escapes, None for null, any other unchanged."""
    return _plain(parsed(document)) if document[0] in '"n' else document


def _plain(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return str(value) if isinstance(value, Number) else value
    return "true" if value is True else "false"


def _members(line: bytes) -> list[tuple[str, int, int]]:
    if len(line) > MAX_PARSED:
        return list(long_members(line))
    text = line.decode()
    _object(text)
    return list(members(text))


def _names(line: bytes) -> list[str]:
    """Return the names of a line's fields; none if it is not an object, which is an error when it is read."""
    try:
        return list(dict.fromkeys(name for name, _, _ in _members(line)))
    except (ValueError, RecursionError):
        return []


def _reason(error: ValueError) -> str:
    """Return the message of a JSON parser, without `line 1`: Python's parser gets one line at a time."""
    return f"{error.msg}: column {error.colno}" if isinstance(error, JSONDecodeError) else str(error)


def _token(name: str) -> bytes:
    """Return a name as JSON without needless escapes."""
    return json.dumps(name, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
