"""One option: the properties that the table gives it, and the parser of its text, with messages about bad values."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from spark_producer.errors import ConfigError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_Default = TypeVar("_Default")


class Option(NamedTuple):
    """The properties of one option beside its type and default."""

    doc: str
    low: int | None
    high: int | None
    choices: tuple[str, ...]
    kafka_default: str
    required: bool


def option(
    default: _Default,
    doc: str,
    *,
    low: int | None = None,
    high: int | None = None,
    choices: Iterable[str] = (),
    kafka_default: str = "",
    required: bool = False,
) -> _Default:
    """Return a field of the table with its row; `low` and `high` are inclusive bounds of a number."""
    row = Option(doc, low, high, tuple(choices), kafka_default, required)
    return dataclasses.field(default=default, metadata={"option": row})


def parse_value(name: str, field: dataclasses.Field[object], text: str) -> object:
    """Return the value that `text` stands for; `name` is the option as the user writes it.

    Raises:
        ConfigError: the text has another type, is out of range, or is none of the choices.
    """
    row: Option = field.metadata["option"]
    value = str(text).strip()
    if field.type == "bool":
        if value.lower() not in ("true", "false"):
            raise ConfigError(f"{name} must be true or false, not {value!r}")
        return value.lower() == "true"
    if field.type == "int":
        return _parse_int(name, row, value)
    if row.choices:
        for choice in row.choices:
            if value.lower() == choice.lower():
                return choice
        near = difflib.get_close_matches(value.lower(), [choice.lower() for choice in row.choices], n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{name} must be one of {', '.join(row.choices)}, not {value!r}.{hint} {row.doc}")
    if row.required and not value:
        raise ConfigError(f"{name} is empty")
    return value


def _parse_int(name: str, row: Option, value: str) -> int:
    try:
        if not (value.isascii() and value.removeprefix("-").isdecimal()):
            raise ValueError(value)  # int() accepts 1_000 and other scripts' digits
        number = int(value)
    except ValueError:
        raise ConfigError(f"{name} must be a whole number, not {value!r}") from None
    if (row.low is not None and number < row.low) or (row.high is not None and number > row.high):
        raise ConfigError(f"{name} must lie between {row.low} and {row.high}, not {number}")
    return number
