"""Parses the options of a read into checked values.

Values that may be secrets are redacted before any check, so that no local variable of a traceback shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_producer.config.connection_table import data_source_name
from spark_producer.config.consumer_options import CONSUMER_FIELDS, CONSUMER_NAMES, ConsumerConfig
from spark_producer.config.option_tables import OptionTables
from spark_producer.config.profiles import profile
from spark_producer.config.registry_table import REGISTRY_FIELDS, RegistryOptions
from spark_producer.config.source_options import SOURCE_FIELDS, SOURCE_NAMES, SourceOptions
from spark_producer.config.subscription import subscription
from spark_producer.config.unsupported import explain_option

_TABLES = OptionTables(
    (ConsumerConfig, CONSUMER_FIELDS, data_source_name),
    (SourceOptions, SOURCE_FIELDS, str),
    (RegistryOptions, REGISTRY_FIELDS, str),
)


def parse_source_options(options: Mapping[str, object]) -> tuple[ConsumerConfig, SourceOptions, RegistryOptions]:
    """Parse the options of a read as Spark hands them over (any letter case, text values), and check them.

    Raises:
        ConfigError: a name is unknown (the message has the nearest known one) or has no place in a read, a value is bad, options
            contradict each other, or no servers or topics are given.
    """
    options = _TABLES.redacted(options)
    _TABLES.refuse_none(options)
    values = _TABLES.values(_TABLES.with_profile(options, profile), _explain)
    config = ConsumerConfig(**_with_dependent_defaults(values[ConsumerConfig]))
    source = SourceOptions(**values[SourceOptions])
    subscription(source)
    return config, source, RegistryOptions(**values[RegistryOptions])


def _explain(raw: str) -> str:
    return explain_option(raw, CONSUMER_NAMES, SOURCE_NAMES)


def _with_dependent_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Return the given options with defaults that depend on them, so that no default contradicts them."""
    chosen: dict[str, Any] = {field.name: field.default for field in CONSUMER_FIELDS.values()} | given
    follows = {"default_api_timeout_ms": max(chosen["default_api_timeout_ms"], chosen["request_timeout_ms"])}
    if "reconnect_backoff_ms" in given:
        follows["reconnect_backoff_max_ms"] = given["reconnect_backoff_ms"]
    return follows | given
