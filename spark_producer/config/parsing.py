"""The parser that turns the options of users into a checked configuration, with profiles and defaults that follow others.

Values that may be secrets are hidden before anything is checked, so that no local variable of a traceback shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_producer.common.secret import Secret
from spark_producer.config.option import INT32_MAX, is_secret, parse_secret, parse_value
from spark_producer.config.options import (
    ALIASES,
    KAFKA_FIELDS,
    SINK_FIELDS,
    ProducerConfig,
    SinkOptions,
    kafka_name,
    lacks_for_idempotence,
)
from spark_producer.config.profiles import profile
from spark_producer.config.registry_table import REGISTRY_FIELDS, RegistryOptions, check_registry
from spark_producer.config.unsupported import KAFKA_PREFIX, as_written, explain_option, explain_producer_option
from spark_producer.errors import ConfigError

_SPARK_OWN = frozenset({"checkpointlocation", "queryname"})
"""The options that Structured Streaming itself adds to those of a sink."""
_SINK_BY_LOWER = {name.lower(): name for name in SINK_FIELDS}

_NONE = Secret("")
"""Stands for None, which would else be the word "None": as a password, or as `none` to check no names of certificates."""

Given = Mapping[str, str | Secret]
"""Options as they were given; the values of secret ones, and those of unknown names, are hidden."""


def parse_options(options: Mapping[str, object]) -> tuple[ProducerConfig, SinkOptions]:
    """Parse options as Spark hands them over (any letter case, text values), and check them.

    Raises:
        ConfigError: a name is unknown or refused (the message has the nearest known one), a value is bad, options contradict
            each other, or no servers are given.
    """
    options = _hidden(options)  # here too: an error shows the local variables of every frame that it passes
    config, sink, _ = parse_sink_options(options)
    return config, sink


def parse_sink_options(options: Mapping[str, object]) -> tuple[ProducerConfig, SinkOptions, RegistryOptions]:
    """Return the same as `parse_options`, and the options of the Schema Registry, which no task needs.

    Raises:
        ConfigError: as `parse_options`.
    """
    options = _hidden(options)
    config, sink, registry = _parse(options)
    if config.transactional_id:
        raise ConfigError(
            "option 'kafka.transactional.id' is not supported: one id is that of one producer, and a write has one in each "
            "task, which would fence each other off; it is for Producer (docs/transactions.md). For exactly-once writes set "
            "exactlyOnceId"
        )
    return config, sink, registry


def _parse(options: Mapping[str, object]) -> tuple[ProducerConfig, SinkOptions, RegistryOptions]:
    options = _hidden(options)
    for name, value in options.items():
        if value is _NONE:
            raise ConfigError(f"{as_written(name, _SINK_BY_LOWER)} is None: give it a value, or leave it out")
    options = _with_profile(options)
    kafka: dict[str, Any] = {}
    sink: dict[str, Any] = {}
    registry: dict[str, Any] = {}
    given_as: dict[str, str] = {}
    for raw, value in options.items():
        name = raw.lower()
        if name in _SPARK_OWN:
            continue
        kafkas = _kafkas_name(name)
        if kafkas is not None:
            field = KAFKA_FIELDS[kafkas]
            parsed = _parsed(name, field, value)
            if kafka.get(field.name, parsed) != parsed and given_as[kafkas] != name:
                raise ConfigError(f"{given_as[kafkas]} and {name} are two names of one option, with different values")
            kafka[field.name], given_as[kafkas] = parsed, name
        elif name in _SINK_BY_LOWER:
            field = SINK_FIELDS[_SINK_BY_LOWER[name]]
            sink[field.name] = _parsed(_SINK_BY_LOWER[name], field, value)
        elif name in REGISTRY_FIELDS:
            registry[REGISTRY_FIELDS[name].name] = _parsed(name, REGISTRY_FIELDS[name], value)
        else:
            raise ConfigError(explain_option(raw, (*KAFKA_FIELDS, *ALIASES), (*SINK_FIELDS, *REGISTRY_FIELDS)))
    if kafka.get("transactional_id") == "":
        raise ConfigError(
            "kafka.transactional.id is empty: give the transactions of this producer a name, or leave the option out, and it "
            "has none"
        )
    config = ProducerConfig(**_in_step(kafka))
    if kafka.get("enable_idempotence") and (lacking := lacks_for_idempotence(config)):
        raise ConfigError(f"kafka.enable.idempotence=true needs {' and '.join(lacking)}; drop one of them")
    return config, SinkOptions(**sink), _registry(SinkOptions(**sink), registry)


def _registry(sink: SinkOptions, given: dict[str, Any]) -> RegistryOptions:
    if given.get("use_latest_version"):
        if given.get("auto_register_schemas"):
            raise ConfigError(
                "auto.register.schemas=true and use.latest.version=true contradict each other: drop one of them"
            )
        given = given | {"auto_register_schemas": False}
    registry = RegistryOptions(**given)
    check_registry(sink, registry, [kafka_name(name) for name in given])
    return registry


def producer_config(options: Mapping[str, object]) -> ProducerConfig:
    """Return a configuration from Kafka's own names without a prefix, `{"bootstrap.servers": …, "batch.size": 65536}`.

    Raises:
        ConfigError: as `parse_options`.
    """
    options = _prefixed(redacted(options))
    for name in options:
        if name.lower() != "profile" and _kafkas_name(name.lower()) is None:
            raise ConfigError(explain_producer_option(name.removeprefix(KAFKA_PREFIX), (*KAFKA_FIELDS, *ALIASES)))
    return _parse(options)[0]


def redacted(options: Mapping[str, object]) -> dict[str, object]:
    """Return options named as in `producer_config`, with the values of secret and unknown ones hidden. It raises nothing."""
    return dict(zip(options, _hidden(_prefixed(options)).values(), strict=True))


def _prefixed(options: Mapping[str, object]) -> dict[str, object]:
    return {name if name.lower() == "profile" else KAFKA_PREFIX + name: value for name, value in options.items()}


def is_set(options: Mapping[str, object], name: str) -> bool:
    """Whether an option of the producer (`buffer.memory`) is given, by one of its names or by the profile."""
    options = _hidden(options)
    return name in {_kafkas_name(given.lower()) for given in _with_profile(options)}


def _kafkas_name(name: str) -> str | None:
    """Return Kafka's name of an option of the producer, from one in lower case with the prefix; None if there is none such."""
    if not name.startswith(KAFKA_PREFIX):
        return None
    bare = name[len(KAFKA_PREFIX) :]
    bare = ALIASES.get(bare, bare)
    return bare if bare in KAFKA_FIELDS else None


def _hidden(options: Mapping[str, object]) -> dict[str, str | Secret]:
    """Hide the values of secret options, and of names that are not known: a name may be misspelt. It raises nothing."""
    found: dict[str, str | Secret] = {}
    for raw, value in options.items():
        name = raw.lower()
        kafkas = _kafkas_name(name)
        field = REGISTRY_FIELDS.get(name) if kafkas is None else KAFKA_FIELDS[kafkas]
        known = name in _SINK_BY_LOWER if field is None else not is_secret(field)
        text = _NONE if value is None else value if isinstance(value, Secret) else str(value)
        found[raw] = text if known or isinstance(text, Secret) else Secret(text)
    return found


def _parsed(name: str, field: Any, value: str | Secret) -> object:
    if not isinstance(value, Secret):
        return parse_value(name, field, value)
    if is_secret(field):
        return parse_secret(name, value)
    raise ConfigError(f"{name} is no secret option: give its text, and no Secret")


def _with_profile(options: Given) -> Given:
    """Return the given options together with those of the profile, if one is named; given ones override the profile's."""
    by_lower = {name.lower(): name for name in options}
    if "profile" not in by_lower:
        return options
    chosen = options[by_lower["profile"]]
    if isinstance(chosen, Secret):
        raise ConfigError("profile is no secret option: give its text, and no Secret")
    # Kafka's own files have no prefix; those that were copied from a sink's options have it, and `--config` takes both.
    named = {KAFKA_PREFIX + name.removeprefix(KAFKA_PREFIX): value for name, value in profile(chosen.strip()).items()}
    given = {_kafkas_name(name) or name for name in by_lower}
    kept = {name: value for name, value in named.items() if (_kafkas_name(name.lower()) or name.lower()) not in given}
    return _hidden(kept) | dict(options)


def _in_step(kafka: dict[str, Any]) -> dict[str, Any]:
    """Adapt defaults to the given options, as Java's producer does, so that no default contradicts an option that is set."""
    chosen: dict[str, Any] = {field.name: field.default for field in KAFKA_FIELDS.values()} | kafka
    least = min(chosen["linger_ms"] + chosen["request_timeout_ms"], INT32_MAX)
    follows = {"delivery_timeout_ms": max(chosen["delivery_timeout_ms"], least)}
    follows["batch_size"] = min(chosen["batch_size"], chosen["buffer_memory"])
    if "reconnect_backoff_ms" in kafka:
        follows["reconnect_backoff_max_ms"] = kafka["reconnect_backoff_ms"]
    return follows | kafka
