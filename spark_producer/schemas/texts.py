"""Names, types and paths of schemas and columns for messages, escaped and cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pyarrow as pa

from spark_producer.common.escape import MAX_LENGTH, for_log

MAX_NAMES_SHOWN = 50
"""Maximum names of a list that are formatted; the text of more would be cut."""

_MAX_TYPE_SHOWN = 100
"""Maximum length of an Arrow type's name in characters; a struct's has all of its fields."""


def list_names(names: Iterable[object]) -> str:
    """Return the first names of a list, separated by commas."""
    first = list(itertools.islice(names, MAX_NAMES_SHOWN + 1))
    more = ", …" if len(first) > MAX_NAMES_SHOWN else ""
    return for_log(", ".join(for_log(str(name)) for name in first[:MAX_NAMES_SHOWN]) + more)


def arrow_type_name(kind: pa.DataType) -> str:
    """Return the name of an Arrow type; the null type has Spark's name, void."""
    if pa.types.is_null(kind):
        return "void"
    text = for_log(str(kind))
    return text if len(text) <= _MAX_TYPE_SHOWN else f"{text[:_MAX_TYPE_SHOWN]}…"


def path_below(path: str, name: object) -> str:
    """Return the path of a field below `path`, for messages only."""
    return for_log(f"{path}.{str(name)[: MAX_LENGTH + 1]}")


def is_printable(name: object) -> bool:
    """Return whether a value of a schema is a name that may be shown."""
    return isinstance(name, str) and name.isprintable()
