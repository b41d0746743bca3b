"""Parses users' options into a checked configuration, with profiles and defaults that depend on other options.

Values that may be secrets are redacted before any check, so that no local variable of a traceback shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_producer.common.escape import escaping_logger
from spark_producer.config.connection_table import data_source_name
from spark_producer.config.consumer_options import CONSUMER_NAMES
from spark_producer.config.names import kafka_name
from spark_producer.config.option import INT32_MAX
from spark_producer.config.option_lookup import OptionTables
from spark_producer.config.options import (
    KAFKA_FIELDS,
    PRODUCER_NAMES,
    SINK_FIELDS,
    SINK_NAMES,
    ProducerConfig,
    SinkOptions,
    idempotence_blockers,
)
from spark_producer.config.profiles import profile
from spark_producer.config.registry_table import (
    READ_ONLY_REGISTRY_FIELDS,
    REGISTRY_FIELDS,
    RegistryOptions,
    check_registry,
)
from spark_producer.config.unsupported import KAFKA_PREFIX, bare_name, explain_option, explain_producer_option
from spark_producer.errors import ConfigError

logger = escaping_logger(__name__)

_SPARK_OWN = frozenset({"checkpointlocation", "queryname"})
"""The options that Structured Streaming adds to those of a sink."""


_OF_READS = (CONSUMER_NAMES.keys() - PRODUCER_NAMES.keys()) | READ_ONLY_REGISTRY_FIELDS.keys()
"""Kafka's and Confluent's names of the options of reads alone."""
_TABLES = OptionTables(
    (ProducerConfig, KAFKA_FIELDS, data_source_name), (SinkOptions, SINK_FIELDS, str), (RegistryOptions, REGISTRY_FIELDS, str)
)  # fmt: skip
_SINK_NAMES = SINK_NAMES | {name: name for name in REGISTRY_FIELDS}


def parse_options(options: Mapping[str, object]) -> tuple[ProducerConfig, SinkOptions]:
    """Parse options as Spark hands them over (any letter case, text values), and check them.

    Raises:
        ConfigError: a name is unknown (the message has the nearest known one) or unsupported, a value is bad, options contradict
            each other, or no servers are given.
    """
    options = _TABLES.redacted(options)  # here too: a traceback shows the local variables of each frame
    config, sink, _ = parse_sink_options(options)
    return config, sink


def parse_sink_options(options: Mapping[str, object]) -> tuple[ProducerConfig, SinkOptions, RegistryOptions]:
    """Return the result of `parse_options`, and the options of the Schema Registry, which tasks do not need.

    Raises:
        ConfigError: as `parse_options`.
    """
    options = _TABLES.redacted(options)
    config, sink, registry = _parse(options)
    if config.transactional_id:
        raise ConfigError(
            "option 'kafka.transactional.id' is not supported: the producers of a write's tasks would fence each other; it is "
            "for Producer (docs/transactions.md). Set exactlyOnceId for exactly-once writes"
        )
    return config, sink, registry


def _parse(options: Mapping[str, object]) -> tuple[ProducerConfig, SinkOptions, RegistryOptions]:
    options = _TABLES.redacted(options)
    _TABLES.refuse_none(options)
    values = _TABLES.values(_TABLES.with_profile(options, _profile), _explain)
    kafka, sink = values[ProducerConfig], SinkOptions(**values[SinkOptions])
    if kafka.get("transactional_id") == "":
        raise ConfigError(
            "kafka.transactional.id is empty. Give the transactions of this producer a name, or leave the option out"
        )
    config = ProducerConfig(**_with_dependent_defaults(kafka))
    if kafka.get("enable_idempotence") and (blockers := idempotence_blockers(config)):
        raise ConfigError(f"kafka.enable.idempotence=true needs {' and '.join(blockers)}. Drop one of them")
    return config, sink, _registry(sink, values[RegistryOptions])


def _profile(name: str) -> dict[str, str]:
    """Return the options of a profile for writes; a file may have options of reads too, which are left out."""
    found = profile(name)
    left_out = [option for option in found if bare_name(option.lower()) in _OF_READS]
    if left_out:
        logger.info("the profile %s has options of reads, which are left out: %s", name, ", ".join(left_out))
    return {option: value for option, value in found.items() if option not in left_out}


def _explain(raw: str) -> str | None:
    """Return why the sink does not take an option; None if Spark added it, so that it is left out."""
    return None if raw.lower() in _SPARK_OWN else explain_option(raw, PRODUCER_NAMES, _SINK_NAMES)


def _registry(sink: SinkOptions, given: dict[str, Any]) -> RegistryOptions:
    if given.get("use_latest_version"):
        if given.get("auto_register_schemas"):
            raise ConfigError(
                "auto.register.schemas=true contradicts use.latest.version=true, with which nothing is registered. Drop one of "
                "them"
            )
        given = given | {"auto_register_schemas": False}
    registry = RegistryOptions(**given)
    check_registry(sink, registry, [kafka_name(name) for name in given])
    return registry


def producer_config(options: Mapping[str, object]) -> ProducerConfig:
    """Return the configuration of options named as in Kafka, without a prefix: `{"bootstrap.servers": …, "batch.size": 65536}`.

    Raises:
        ConfigError: as `parse_options`.
    """
    options = _prefixed(redacted(options))
    for name in options:
        if name.lower() != "profile" and name.lower() not in _TABLES.names:
            raise ConfigError(explain_producer_option(name.removeprefix(KAFKA_PREFIX), PRODUCER_NAMES))
    return _parse(options)[0]


def redacted(options: Mapping[str, object]) -> dict[str, object]:
    """Return options named as in `producer_config`, with redacted values of secret and unknown names. Never raises."""
    return dict(zip(options, _TABLES.redacted(_prefixed(options)).values(), strict=True))


def _prefixed(options: Mapping[str, object]) -> dict[str, object]:
    return {name if name.lower() == "profile" else data_source_name(name): value for name, value in options.items()}


def is_set(options: Mapping[str, object], name: str) -> bool:
    """Return whether an option of the producer (`buffer.memory`) is given under any of its names, or by the profile."""
    options = _TABLES.redacted(options)
    return data_source_name(name) in {_TABLES.option(given) for given in _TABLES.with_profile(options, _profile)}


def _with_dependent_defaults(kafka: dict[str, Any]) -> dict[str, Any]:
    """Return the given options with defaults that depend on them, as in Java's producer, so that no default contradicts them."""
    chosen: dict[str, Any] = {field.name: field.default for field in KAFKA_FIELDS.values()} | kafka
    minimum = min(chosen["linger_ms"] + chosen["request_timeout_ms"], INT32_MAX)
    follows = {"delivery_timeout_ms": max(chosen["delivery_timeout_ms"], minimum)}
    follows["batch_size"] = min(chosen["batch_size"], chosen["buffer_memory"])
    if "reconnect_backoff_ms" in kafka:
        follows["reconnect_backoff_max_ms"] = kafka["reconnect_backoff_ms"]
    return follows | kafka
