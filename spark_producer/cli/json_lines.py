"""JSON lines: the lines are the values as they stand, and fields are taken out of them with the bytes of the document.

Owns: what a line may be, the search for fields. Must not know: files, and what fields become.
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
"""The most names of fields that are kept for messages."""

_OVER_LINES = (
    "it begins a JSON document that goes over several lines (pretty-printed, or cut off), and JSON lines have one object on each "
    "line, as jq -c . makes them"
)
_ARRAY = "it begins a JSON array, and JSON lines have one object on each line, as jq -c '.[]' makes them"
_DEEP = "lists and objects lie too deep in each other"


class JsonLines:
    """The lines of a file that are not empty, and its fields. A line `null` is a record without a value and without fields.

    Args:
        name: the file's, for messages.
        pieces: its lines, in lists that are bounded.
        again: returns all lines from the first on, once more; None where that cannot be, as in a pipe.
    """

    def __init__(
        self, name: str, pieces: Iterator[list[bytes]], again: Callable[[], Iterator[bytes]] | None = None
    ) -> None:
        self._name = name
        self._pieces = pieces
        self._again = again
        self.columns: list[str] = []
        """The names of fields that are known. Others may come, which `look_for` finds."""

    def look_at_first(self, first: bytes) -> None:
        """Look whether the first line can be one.

        Raises:
            pyarrow.ArrowInvalid: it is none. RecordError: it is too deep.
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
            raise pa.ArrowInvalid(f"line 1: {_OVER_LINES if begin.startswith(b'{') and is_open else error}") from error

    def look_for(self, names: Sequence[str]) -> None:
        """Look for fields in the lines of the file, or in the first 20,000 of a pipe. What is found is one of `columns` then."""
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
        """Yield the lines as batches of one column of bytes, where tombstones are null."""
        for piece in self._pieces:
            values = [None if len(line) < MAX_PARSED and line.strip() == NULL else line for line in piece]
            yield pa.record_batch({column: pa.array(values, pa.binary())})

    def fields(self, lines: ArrowArray, names: Sequence[str], rows: int) -> pa.RecordBatch:
        """Return fields of lines as texts; null where a line does not have one. `rows` are the lines before these.

        A text is without its quotes and escapes, as keys are; numbers, lists and objects are the bytes of the document.

        Raises:
            RecordError: a line is no JSON object, has one of the fields several times, or has a text that UTF-8 cannot hold.
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
            raise RecordError(f"{self._name}, line {number}: no JSON object ({error})") from error

    def _column(self, name: str, values: list[str | None], rows: int) -> ArrowArray:
        try:
            found: ArrowArray = pa.array(values, pa.string())
            return found
        except UnicodeEncodeError:
            number = next(at for at, value in enumerate(values) if value and not _is_unicode(value)) + rows + 1
            raise RecordError(
                f"{self._name}, line {number}: field {name!r} has half of a surrogate pair (\\ud800 to \\udfff), which UTF-8 has "
                "no bytes for (surrogates not allowed): write both halves, or the character"
            ) from None


class _DuplicateError(ValueError):
    """A line has a field several times that a record has once."""


def _quick(line: bytes, names: Sequence[str], tokens: Sequence[bytes]) -> list[str | None]:
    """Return fields of a line. Only where a plain parse does not know the bytes of a value are its places looked for.

    Raises:
        ValueError, RecursionError: it is no JSON object.
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
        raise ValueError("it is a list or a single value")
    return found


def _are_single(line: bytes, tokens: Sequence[bytes]) -> bool:
    """Return whether no name can stand in a line twice. One that has escapes, or needs them, may be written in several ways."""
    return b"\\u" not in line and all(
        b"\\" not in token and b"/" not in token and line.count(token) < 2 for token in tokens
    )


def _spans(found: Iterator[tuple[str, int, int]], names: Sequence[str]) -> list[tuple[int, int] | None]:
    """Return where the values of fields begin and end; None for those that are not there."""
    spans: dict[str, tuple[int, int]] = {}
    for name, start, end in found:
        if name in names:
            if name in spans:
                raise _DuplicateError(
                    f"the object has the field {name!r} twice, and a record takes one: leave one of them out"
                )
            spans[name] = (start, end)
    return [spans.get(name) for name in names]


def _text(document: str) -> str | None:
    """Return a value as a record has it: a text without quotes and escapes, null as none, and all others as they stand."""
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
    """Return the names of a line's fields; none, if it is no object, which is told when it is read."""
    try:
        return list(dict.fromkeys(name for name, _, _ in _members(line)))
    except (ValueError, RecursionError):
        return []


def _token(name: str) -> bytes:
    """Return a name as it stands in a document that has no needless escapes."""
    return json.dumps(name, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
