"""One option: the properties that the table gives it, and the parser of its text, with messages about bad values."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from spark_producer.common.secret import Secret
from spark_producer.config.references import JAAS, refuse_references
from spark_producer.errors import ConfigError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

FORMATS = ("raw", "avro", "protobuf", "json-schema")
"""The formats of the columns `value` and `key`, of reads and writes."""

_EXAMPLES = {"bytes": "4194304 for 4 MiB", "milliseconds since 1970": "1700000000000"}
"""How a number of each unit is written, for messages."""

_Default = TypeVar("_Default")


class Option(NamedTuple):
    """The properties of one option beside its type and default."""

    doc: str
    low: float | None
    high: float | None
    choices: tuple[str, ...]
    kafka_default: str
    required: bool
    empty: str | None
    """The value of an empty text, if it is not among the choices."""
    aliases: tuple[str, ...]
    """Other names of the same option; those of librdkafka, mostly."""
    unit: str
    """The unit of a number ("bytes"), where users may write it in another way ("4 MiB")."""
    name: str
    """The name of a producer option that Kafka does not have, which has no prefix; empty if the name follows from the field."""
    former_names: tuple[str, ...]
    """Earlier names of the option, which still work and log a warning."""


def option(
    default: _Default,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Iterable[str] = (),
    kafka_default: str = "",
    required: bool = False,
    empty: str | None = None,
    aliases: Iterable[str] = (),
    unit: str = "",
    name: str = "",
    former_names: Iterable[str] = (),
) -> _Default:
    """Return a dataclass field with its row of the table; `low` and `high` are inclusive bounds of a number."""
    row = Option(
        doc, low, high, tuple(choices), kafka_default, required, empty, tuple(aliases), unit, name, tuple(former_names)
    )
    return dataclasses.field(default=default, metadata={"option": row})


def is_secret(field: dataclasses.Field[object]) -> bool:
    """Return whether the values of an option are secrets."""
    return field.type == "Secret | None"


def parse_secret(name: str, secret: Secret) -> Secret | None:
    """Return a secret without the white space around it, as Java's client does; None if nothing is left.

    Raises:
        ConfigError: a reference is a part of it, not the whole. (The grammar of JAAS says where its text may have references.)
    """
    if not name.lower().endswith(JAAS):
        refuse_references(name, secret, secret_option=True)
    trimmed = Secret(secret.reveal().strip())
    return trimmed or None


def parse_value(name: str, field: dataclasses.Field[object], text: str) -> object:
    """Return the value that `text` stands for, for an option that is not secret; `name` is the option as users write it.

    Raises:
        ConfigError: the text has another type, is out of range or not among the choices, or has a reference to a secret.
    """
    row: Option = field.metadata["option"]
    value = str(text).strip()
    refuse_references(name, value)
    if not value and row.empty is not None:
        return row.empty
    if field.type == "bool":
        if value.lower() not in ("true", "false"):
            raise ConfigError(f"{name} must be true or false, not {value!r}")
        return value.lower() == "true"
    if field.type in ("int", "int | None"):
        return _parse_int(name, row, value)
    if field.type == "float":
        return _parse_float(name, row, value)
    if row.choices:
        for choice in row.choices:
            if value.lower() == choice.lower():
                return choice
        by_lower = {choice.lower(): choice for choice in row.choices}
        near = difflib.get_close_matches(value.lower(), by_lower, n=1)
        hint = f" Did you mean {by_lower[near[0]]!r}?" if near else ""
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
        counted = f": it counts {row.unit}, such as {_EXAMPLES[row.unit]}" if row.unit else ""
        raise ConfigError(f"{name} must be a whole number, not {value!r}{counted}") from None
    return _within(name, row, number)


def _parse_float(name: str, row: Option, value: str) -> float:
    try:
        if not value.isascii() or "_" in value:
            raise ValueError(value)
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"{name} must be a number, not {value!r}")
    return _within(name, row, number)


_Number = TypeVar("_Number", int, float)


def _within(name: str, row: Option, number: _Number) -> _Number:
    if (row.low is not None and number < row.low) or (row.high is not None and number > row.high):
        raise ConfigError(f"{name} must lie between {row.low} and {row.high}, not {number}")
    return number
