"""Parses the options of a read into checked values.

Values that may be secrets are redacted before any check, so that no local variable of a traceback shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_producer.common.escape import escaping_logger
from spark_producer.config.connection_table import data_source_name
from spark_producer.config.consumer_options import CONSUMER_FIELDS, CONSUMER_NAMES, ConsumerConfig
from spark_producer.config.option_lookup import OptionTables
from spark_producer.config.profiles import profile_for_reads
from spark_producer.config.registry_table import READ_REGISTRY_FIELDS, RegistryOptions
from spark_producer.config.source_options import SOURCE_FIELDS, SourceOptions
from spark_producer.config.source_rules import check_source
from spark_producer.config.unsupported import bare_name, nearest
from spark_producer.config.unsupported_reads import explain_read_option, is_for_writes, unsupported_read

logger = escaping_logger(__name__)

_TABLES = OptionTables(
    (ConsumerConfig, CONSUMER_FIELDS, data_source_name),
    (SourceOptions, SOURCE_FIELDS, str),
    (RegistryOptions, READ_REGISTRY_FIELDS, str),
)
_CONSUMER = OptionTables((ConsumerConfig, CONSUMER_FIELDS, data_source_name))


def parse_source_options(options: Mapping[str, object]) -> tuple[ConsumerConfig, SourceOptions, RegistryOptions]:
    """Parse the options of a read as Spark hands them over (any letter case, text values), and check them.

    `source_rules` has further checks for a batch and for a stream.

    Raises:
        ConfigError: a name is unknown (the message has the nearest known one) or has no place in a read, a value is bad, options
            contradict each other, or no servers or topics are given.
    """
    options = _TABLES.redacted(options)
    _TABLES.refuse_none(options)
    values = _TABLES.values(_TABLES.with_profile(options, _profile), explain_read_option)
    config = ConsumerConfig(**_with_dependent_defaults(values[ConsumerConfig]))
    source, registry = SourceOptions(**values[SourceOptions]), RegistryOptions(**values[RegistryOptions])
    check_source(config, source, registry, {_TABLES.option(name) for name in options})
    return config, source, registry


def consumer_config(options: Mapping[str, object]) -> ConsumerConfig:
    """Return the configuration of a read without Spark, of options named as in Kafka: `{"bootstrap.servers": …}`.

    Raises:
        ConfigError: a name is unknown or not supported, a value is bad, or no servers are given.
    """
    options = _CONSUMER.redacted(_prefixed(options))
    _CONSUMER.refuse_none(options)
    values = _CONSUMER.values(options, _explain_consumer_option)
    return ConsumerConfig(**_with_dependent_defaults(values[ConsumerConfig]))


def redacted_for_reads(options: Mapping[str, object]) -> dict[str, object]:
    """Return options named as in `consumer_config`, with redacted values of secret and unknown names. Never raises."""
    return dict(zip(options, _CONSUMER.redacted(_prefixed(options)).values(), strict=True))


def _explain_consumer_option(raw: str) -> str:
    name = bare_name(raw.lower())
    if reason := unsupported_read(name):
        return f"option {name!r} is not supported: {reason}"
    return nearest(name, name, CONSUMER_NAMES)


def _prefixed(options: Mapping[str, object]) -> dict[str, object]:
    return {data_source_name(name): value for name, value in options.items()}


def _profile(name: str) -> dict[str, str]:
    """Return the options of a profile for reads; a file may have options of writes too, which are left out."""
    found = profile_for_reads(name)
    left_out = [option for option in found if is_for_writes(data_source_name(option).lower())]
    if left_out:
        logger.info("the profile %s has options of writes, which are left out: %s", name, ", ".join(left_out))
    return {option: value for option, value in found.items() if option not in left_out}


def _with_dependent_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Return the given options with defaults that depend on them, so that no default contradicts them."""
    chosen: dict[str, Any] = {field.name: field.default for field in CONSUMER_FIELDS.values()} | given
    follows = {
        "default_api_timeout_ms": max(chosen["default_api_timeout_ms"], chosen["request_timeout_ms"]),
        "fetch_max_bytes": max(chosen["fetch_max_bytes"], chosen["fetch_min_bytes"]),
        "fetch_max_wait_ms": min(chosen["fetch_max_wait_ms"], chosen["request_timeout_ms"] - 1),
    }
    if "reconnect_backoff_ms" in given:
        follows["reconnect_backoff_max_ms"] = given["reconnect_backoff_ms"]
    return follows | given
