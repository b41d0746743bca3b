"""Finds the fields of a JSON object as bytes of the document, in lines of any size.

Python's parser is quick, but keeps no positions, and its objects for a line of arrays take twenty times the size of the line.
So long lines are checked by regular expressions, which make no objects.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from json.decoder import JSONDecoder, scanstring  # type: ignore[attr-defined]
from typing import Any

MAX_PARSED = 1 << 20
"""The maximum bytes of a line for Python's parser."""

MAX_DEPTH = 900
"""The maximum depth of nested arrays and objects in long lines; in others Python's parser has its own bound."""


class Number(str):
    """A number as its characters in the document: 1.10 stays 1.10, and 12345678901234567.891 keeps its digits."""

    __slots__ = ()


DECODER = JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=Number)

_SPACE = rb"[ \t\r\n]*+"
_STRING = rb'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"'
_NUMBER = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_SCALAR = rb"(?:%b|%b|true|false|null|NaN|-?Infinity|\[%b\]|\{%b\})" % (_STRING, _NUMBER, _SPACE, _SPACE)
_NAME = re.compile(_SPACE + rb"(" + _STRING + rb")" + _SPACE + rb":")
_SPACES = re.compile(_SPACE)
_PLAIN = re.compile(_SCALAR)
_ELEMENTS = re.compile(rb"(?:%b%b%b,)*+%b" % (_SPACE, _SCALAR, _SPACE, _SPACE))
_MEMBERS = re.compile(rb"(?:%b%b%b:%b%b%b,)*+%b" % (_SPACE, _STRING, _SPACE, _SPACE, _SCALAR, _SPACE, _SPACE))
_LIST, _OBJECT = b"["[0], b"{"[0]


def members(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield name, start and end of each value of a valid object."""
    at = _space(text, _space(text, 0) + 1)
    while text[at] != "}":
        name, at = scanstring(text, at + 1, True)
        start = _space(text, _space(text, at) + 1)
        _, at = DECODER.raw_decode(text, start)
        yield name, start, at
        at = _space(text, at)
        if text[at] == ",":
            at = _space(text, at + 1)


def _space(text: str, at: int) -> int:
    found = _TEXT_SPACES.match(text, at)
    return found.end() if found else at


_TEXT_SPACES = re.compile(r"[ \t\r\n]*")


def parsed(text: str) -> Any:
    """Parse a document, with its numbers as `Number`.

    Raises:
        ValueError: it is not JSON. RecursionError: it is nested too deeply.
    """
    return DECODER.decode(text)


def long_members(line: bytes) -> Iterator[tuple[str, int, int]]:
    """Check an object of any length, and yield name, start and end of each value.

    Raises:
        ValueError: it is not a JSON object in UTF-8. RecursionError: it is nested too deeply.
    """
    _check_utf8(line)
    at = _spaces(line, 0)
    if line[at : at + 1] != b"{":
        raise ValueError("not a JSON object")
    at = _spaces(line, at + 1)
    if line[at : at + 1] == b"}":
        _check_end(line, at + 1)
        return
    while True:
        name = _NAME.match(line, at)
        if name is None:
            raise ValueError(f"a name and a colon are expected at byte {at}")
        start = _spaces(line, name.end())
        end = _end_of_value(line, start)
        yield DECODER.decode(name[1].decode()), start, end
        at = _spaces(line, end)
        if line[at : at + 1] == b"}":
            _check_end(line, at + 1)
            return
        if line[at : at + 1] != b",":
            raise ValueError(f"a comma or the end of the object is expected at byte {at}")
        at += 1


def _end_of_value(line: bytes, at: int) -> int:
    """Return the position after the value that begins at `at`. One expression takes a run of plain values."""
    stack = bytearray()
    while True:
        at, opened = _enter(line, at)
        if opened:
            stack.append(opened)
            if len(stack) > MAX_DEPTH:
                raise RecursionError
            at = _after_run(line, at, opened)
            continue
        while stack:  # a value has ended
            at = _spaces(line, at)
            code = line[at : at + 1]
            if code == b",":
                at = _after_run(line, at + 1, stack[-1])
                break
            if code != (b"]" if stack[-1] == _LIST else b"}"):
                raise ValueError(f"a comma or an end is expected at byte {at}")
            stack.pop()
            at += 1
        else:
            return at


def _enter(line: bytes, at: int) -> tuple[int, int]:
    """Return the position after a plain value and 0, or after the bracket of an array or object and that bracket."""
    plain = _PLAIN.match(line, at)
    if plain is not None:
        return plain.end(), 0
    code = line[at] if at < len(line) else 0
    if code in (_LIST, _OBJECT):
        return at + 1, code
    raise ValueError(f"a value is expected at byte {at}")


def _after_run(line: bytes, at: int, inside: int) -> int:
    """Return the start of the first value that is not plain, or is the last of its array or object."""
    if inside == _LIST:
        found = _ELEMENTS.match(line, at)
        return found.end() if found else at
    found = _MEMBERS.match(line, at)
    name = _NAME.match(line, found.end() if found else at)
    if name is None:
        raise ValueError(f"a name and a colon are expected at byte {at}")
    return _spaces(line, name.end())


def _spaces(line: bytes, at: int) -> int:
    found = _SPACES.match(line, at)
    return found.end() if found else at


def _check_end(line: bytes, at: int) -> None:
    if _spaces(line, at) != len(line):
        raise ValueError(f"more follows the object, at byte {at}")


def _check_utf8(line: bytes) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    for at in range(0, len(line), MAX_PARSED):
        decoder.decode(line[at : at + MAX_PARSED])
    decoder.decode(b"", final=True)
