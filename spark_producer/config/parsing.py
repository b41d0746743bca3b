"""The parser that turns the options of users into a checked configuration, with profiles and defaults that follow others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_producer.config.profiles import profile
from spark_producer.config.refused import KAFKA_PREFIX, explain_option, explain_producer_option
from spark_producer.config.table import KAFKA_FIELDS, SINK_FIELDS, ProducerConfig, SinkOptions, idempotent
from spark_producer.config.values import INT32_MAX, parse_value
from spark_producer.errors import ConfigError

_SPARK_OWN = frozenset({"checkpointlocation", "queryname"})
"""The options that Structured Streaming itself adds to those of a sink."""


def parse_options(options: Mapping[str, str]) -> tuple[ProducerConfig, SinkOptions]:
    """Parse options as Spark hands them over (any letter case, text values), and check them.

    Raises:
        ConfigError: a name is unknown or refused (the message has the nearest known one), a value is bad, options contradict
            each other, or no servers are given.
    """
    kafka: dict[str, Any] = {}
    sink: dict[str, Any] = {}
    sink_by_lower = {name.lower(): name for name in SINK_FIELDS}
    for raw, text in _with_profile(options).items():
        name = raw.lower()
        if name in _SPARK_OWN:
            continue
        if name.startswith(KAFKA_PREFIX) and name[len(KAFKA_PREFIX) :] in KAFKA_FIELDS:
            field = KAFKA_FIELDS[name[len(KAFKA_PREFIX) :]]
            kafka[field.name] = parse_value(name, field, text)
        elif name in sink_by_lower:
            field = SINK_FIELDS[sink_by_lower[name]]
            sink[field.name] = parse_value(sink_by_lower[name], field, text)
        else:
            raise ConfigError(explain_option(raw, KAFKA_FIELDS, SINK_FIELDS))
    config = ProducerConfig(**_in_step(kafka))
    if kafka.get("enable_idempotence") and not idempotent(config):
        raise ConfigError(
            f"kafka.enable.idempotence=true needs kafka.acks=all (it is {config.acks}) and kafka.retries above 0 (it is "
            f"{config.retries}); drop one of them"
        )
    return config, SinkOptions(**sink)


def producer_config(options: Mapping[str, object]) -> ProducerConfig:
    """Return a configuration from Kafka's own names without a prefix, `{"bootstrap.servers": …, "batch.size": 65536}`.

    Raises:
        ConfigError: as `parse_options`.
    """
    for name in options:
        if name.lower() not in ("profile", *KAFKA_FIELDS):
            raise ConfigError(explain_producer_option(name, KAFKA_FIELDS))
    return parse_options(
        {name if name.lower() == "profile" else KAFKA_PREFIX + name: str(value) for name, value in options.items()}
    )[0]


def _with_profile(options: Mapping[str, str]) -> Mapping[str, str]:
    """Return the given options together with those of the profile, if one is named; given ones override the profile's."""
    given = {name.lower(): name for name in options}
    if "profile" not in given:
        return options
    named = {KAFKA_PREFIX + name: value for name, value in profile(str(options[given["profile"]]).strip()).items()}
    return {name: value for name, value in named.items() if name.lower() not in given} | dict(options)


def is_set(options: Mapping[str, str], name: str) -> bool:
    """Whether an option of the producer (`buffer.memory`) is given, by its name or by the profile."""
    return KAFKA_PREFIX + name in {given.lower() for given in _with_profile(options)}


def _in_step(kafka: dict[str, Any]) -> dict[str, Any]:
    """Adapt defaults to the given options, as Java's producer does, so that no default contradicts an option that is set."""
    chosen: dict[str, Any] = {field.name: field.default for field in KAFKA_FIELDS.values()} | kafka
    least = min(chosen["linger_ms"] + chosen["request_timeout_ms"], INT32_MAX)
    follows = {"delivery_timeout_ms": max(chosen["delivery_timeout_ms"], least)}
    follows["batch_size"] = min(chosen["batch_size"], chosen["buffer_memory"])
    if "reconnect_backoff_ms" in kafka:
        follows["reconnect_backoff_max_ms"] = kafka["reconnect_backoff_ms"]
    return follows | kafka
