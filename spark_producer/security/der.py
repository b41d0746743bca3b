"""A reader of DER (X.690): the elements of a value, one level at a time, without copies."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

INTEGER: Final = 0x02
OCTET_STRING: Final = 0x04
OBJECT_IDENTIFIER: Final = 0x06
SEQUENCE: Final = 0x30
SET: Final = 0x31

_MAX_LENGTH_BYTES = 4
"""The most bytes of a length, which is more than a key store ever takes."""


class Element(NamedTuple):
    """One element: its tag, and what it holds."""

    tag: int
    content: memoryview

    def children(self) -> Iterator[Element]:
        """Read the elements that it holds.

        Raises:
            ValueError: it does not hold whole elements.
        """
        return elements(self.content)

    def child(self, *path: int) -> Element:
        """Return the element at the end of a path of indices.

        Raises:
            ValueError: there is none.
        """
        found = self
        for index in path:
            below = next(islice(found.children(), index, None), None)
            if below is None:
                raise ValueError("an element is missing")
            found = below
        return found


def elements(data: bytes | memoryview) -> Iterator[Element]:
    """Read one element after the other until the end of `data`.

    Raises:
        ValueError: `data` does not hold whole elements with short tags and definite lengths.
    """
    rest = memoryview(data)
    while rest:
        found, rest = _first(rest)
        yield found


def element(data: bytes | memoryview, tag: int) -> Element:
    """Return the one element that `data` is, which must have this tag.

    Raises:
        ValueError: it is another one, or more than one.
    """
    found, rest = _first(memoryview(data))
    if rest or found.tag != tag:
        raise ValueError("it is not the element that was expected")
    return found


def _first(data: memoryview) -> tuple[Element, memoryview]:
    if len(data) < 2 or data[0] & 0x1F == 0x1F:
        raise ValueError("an element has no tag, or a long one")
    size, start = data[1], 2
    if size >= 0x80:
        count = size & 0x7F
        start = 2 + count
        if not 1 <= count <= _MAX_LENGTH_BYTES or len(data) < start:
            raise ValueError("a length is missing, indefinite or too long")
        size = int.from_bytes(data[2:start], "big")
    if len(data) - start < size:
        raise ValueError("an element ends before its length")
    return Element(data[0], data[start : start + size]), data[start + size :]
