"""How messages show what schemas and columns bring with them: names, types and paths, escaped and cut, by one function."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pyarrow as pa

from spark_producer.escape import MAX_LENGTH, for_log

MAX_NAMES_SHOWN = 50
"""The most names of a list that are looked at: more of them would be cut anyhow."""

_MAX_TYPE_SHOWN = 100
"""The most characters of an Arrow type: a struct's has all of its fields."""


def shown_names(names: Iterable[object]) -> str:
    """Return names with commas between them."""
    first = list(itertools.islice(names, MAX_NAMES_SHOWN + 1))
    more = ", …" if len(first) > MAX_NAMES_SHOWN else ""
    return for_log(", ".join(for_log(str(name)) for name in first[:MAX_NAMES_SHOWN]) + more)


def shown_type(kind: pa.DataType) -> str:
    """Return an Arrow type by the name that it has in Arrow, and that of nulls as Spark has it."""
    if pa.types.is_null(kind):
        return "void"
    text = for_log(str(kind))
    return text if len(text) <= _MAX_TYPE_SHOWN else f"{text[:_MAX_TYPE_SHOWN]}…"


def path_below(path: str, name: object) -> str:
    """Return the path of a field of `path`, for messages alone."""
    return for_log(f"{path}.{str(name)[: MAX_LENGTH + 1]}")


def is_printable(name: object) -> bool:
    """Whether something of a schema is a name that may be shown."""
    return isinstance(name, str) and name.isprintable()
