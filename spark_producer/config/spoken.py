"""How messages name the options of security, and which of them are set."""

from __future__ import annotations

import dataclasses

from spark_producer.config.option import Option
from spark_producer.config.security_table import SecurityOptions
from spark_producer.config.unsupported import KAFKA_PREFIX


def spoken(field: str) -> str:
    """Return the name of an option with its aliases: `kafka.sasl.mechanism (or kafka.sasl.mechanisms)`."""
    name = KAFKA_PREFIX + field.replace("_", ".")
    option: Option = SecurityOptions.__dataclass_fields__[field].metadata["option"]
    others = " or ".join(KAFKA_PREFIX + alias for alias in option.aliases)
    return f"{name} (or {others})" if others else name


def changed(config: SecurityOptions) -> list[str]:
    """Return the fields that are not at their defaults, in the order of the table."""
    fields = dataclasses.fields(SecurityOptions)
    return [field.name for field in fields if getattr(config, field.name) != field.default]
