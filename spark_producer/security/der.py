"""A DER reader (X.690), which reads the elements of a value one level at a time without copies."""

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
"""Maximum bytes of a length field, more than any key store needs."""


class Element(NamedTuple):
    """One element: its tag and its content."""

    tag: int
    content: memoryview

    def children(self) -> Iterator[Element]:
        """Yield the elements in the content.

        Raises:
            ValueError: the content is not a sequence of whole elements.
        """
        return elements(self.content)

    def child(self, *path: int) -> Element:
        """Return the element at the end of a path of indices.

        Raises:
            ValueError: there is no such element.
        """
        found = self
        for index in path:
            below = next(islice(found.children(), index, None), None)
            if below is None:
                raise ValueError("an element is missing")
            found = below
        return found


def elements(data: bytes | memoryview) -> Iterator[Element]:
    """Yield the elements of `data`.

    Raises:
        ValueError: `data` is not a sequence of whole elements with short tags and definite lengths.
    """
    rest = memoryview(data)
    while rest:
        found, rest = _first(rest)
        yield found


def element(data: bytes | memoryview, tag: int) -> Element:
    """Return the only element of `data`, which must have this tag.

    Raises:
        ValueError: the tag is another one, or there are more elements.
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
