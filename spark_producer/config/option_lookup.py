"""Looks up given options by any of their names, and parses their values, for the classes of options of writes or of reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field
from typing import Any, NamedTuple

from spark_producer.common.escape import escaping_logger
from spark_producer.common.secret import Secret
from spark_producer.config.connection_table import data_source_name
from spark_producer.config.option import is_secret, parse_secret, parse_value
from spark_producer.config.unsupported import KAFKA_PREFIX
from spark_producer.errors import ConfigError

logger = escaping_logger(__name__)

_NONE = Secret("")
"""Stands for None, which would otherwise become the text "None": a password, or `none` for no check of host names."""

Given = Mapping[str, str | Secret]
"""Options as given, with redacted values of secret and unknown names."""

_warned_of: set[str] = set()
"""The former names that this process has warned of."""


class _Name(NamedTuple):
    """One name of an option of the data source."""

    written: str
    """This name, with its capitals: Spark hands over all names in lower case."""
    option: str
    """The current name of the option."""
    table: type
    """The class that has the option."""
    field: Field[Any]

    @property
    def is_former(self) -> bool:
        """Whether this name was replaced by another one."""
        former: tuple[str, ...] = self.field.metadata["option"].former_names
        return self.written.removeprefix(KAFKA_PREFIX) in former


class OptionTables:
    """The classes of options of reads or of writes: for each, its options by name, and the function that returns their names in
    the data source."""

    def __init__(self, *tables: tuple[type, Mapping[str, Field[Any]], Callable[[str], str]]) -> None:
        self._classes = [table for table, _, _ in tables]
        self.names: dict[str, _Name] = {}
        """The names of all options by these names in lower case."""
        for table, fields, written in tables:
            for option, field in fields.items():
                row = field.metadata["option"]
                for name in (option, *row.aliases, *row.former_names):
                    self.names[written(name).lower()] = _Name(written(name), written(option), table, field)

    def option(self, name: str) -> str:
        """Return the current name of an option; the name itself in lower case if it is unknown."""
        known = self.names.get(name.lower())
        return name.lower() if known is None else known.option

    def redacted(self, options: Mapping[str, object]) -> dict[str, str | Secret]:
        """Return options with redacted values of secret options and of unknown names, which may be misspelt. Never raises."""
        found: dict[str, str | Secret] = {}
        for raw, value in options.items():
            name = self.names.get(raw.lower())
            is_plain = name is not None and not is_secret(name.field)
            text = _NONE if value is None else value if isinstance(value, Secret) else str(value)
            found[raw] = text if is_plain or isinstance(text, Secret) else Secret(text)
        return found

    def refuse_none(self, options: Given) -> None:
        """Refuse values that are None.

        Raises:
            ConfigError: there is one.
        """
        for name, value in options.items():
            if value is _NONE:
                shown = self.names[name.lower()].written if name.lower() in self.names else name
                raise ConfigError(f"{shown} is None. Give it a value, or leave it out")

    def with_profile(self, options: Given, read: Callable[[str], Mapping[str, str]]) -> Given:
        """Return the given options with those of their profile, if any, which `read` returns; given ones override the profile's.

        Raises:
            ConfigError: the profile is a Secret, or there is no such profile.
        """
        by_lower = {name.lower(): name for name in options}
        if "profile" not in by_lower:
            return options
        chosen = options[by_lower["profile"]]
        if isinstance(chosen, Secret):
            raise ConfigError("profile is not a secret option, but has a Secret as its value. Give a text")
        # Names in Kafka's own files have no prefix; names copied from options have one, and `--command-config` takes both.
        named = {
            data_source_name(name.removeprefix(KAFKA_PREFIX)): value for name, value in read(chosen.strip()).items()
        }
        given = {self.option(name) for name in by_lower}
        kept = {name: value for name, value in named.items() if self.option(name) not in given}
        return self.redacted(kept) | dict(options)

    def values(self, options: Given, explain: Callable[[str], str | None]) -> dict[type, dict[str, Any]]:
        """Return the parsed values by field name for each class of options, and log a warning for each former name.

        Raises:
            ConfigError: a value is bad, two names of an option have different values, or a name is unknown: `explain` returns the
                message about it, or None if it is left out.
        """
        values: dict[type, dict[str, Any]] = {table: {} for table in self._classes}
        given_as: dict[str, str] = {}
        for raw, value in options.items():
            name = self.names.get(raw.lower())
            if name is None:
                if (message := explain(raw)) is None:
                    continue
                raise ConfigError(message)
            found, parsed = values[name.table], _parsed(name.written, name.field, value)
            other = given_as.setdefault(name.option, name.written)
            if other != name.written and found[name.field.name] != parsed:
                raise ConfigError(
                    f"{other} and {name.written} are two names of one option, with different values. Give {name.option} alone"
                )
            found[name.field.name] = parsed
            if name.is_former and name.written not in _warned_of:
                _warned_of.add(name.written)
                logger.warning("option %s is now called %s; the former name still works", name.written, name.option)
        return values


def _parsed(name: str, field: Any, value: str | Secret) -> object:
    if not isinstance(value, Secret):
        return parse_value(name, field, value)
    if is_secret(field):
        return parse_secret(name, value)
    raise ConfigError(f"{name} is not a secret option, but has a Secret as its value. Give a text")
