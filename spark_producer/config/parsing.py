"""Parses users' options into a checked configuration, with profiles and defaults that depend on other options.

Values that may be secrets are redacted before any check, so that no local variable of a traceback shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field
from typing import Any, NamedTuple

from spark_producer.common.escape import escaping_logger
from spark_producer.common.secret import Secret
from spark_producer.config.option import INT32_MAX, is_secret, parse_secret, parse_value
from spark_producer.config.options import (
    KAFKA_FIELDS,
    PRODUCER_NAMES,
    SINK_FIELDS,
    SINK_NAMES,
    ProducerConfig,
    SinkOptions,
    data_source_name,
    idempotence_blockers,
    kafka_name,
)
from spark_producer.config.profiles import profile
from spark_producer.config.registry_table import REGISTRY_FIELDS, RegistryOptions, check_registry
from spark_producer.config.unsupported import KAFKA_PREFIX, explain_option, explain_producer_option
from spark_producer.errors import ConfigError

logger = escaping_logger(__name__)

_SPARK_OWN = frozenset({"checkpointlocation", "queryname"})
"""The options that Structured Streaming adds to those of a sink."""


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


def _names() -> dict[str, _Name]:
    """Return the names of all options by these names in lower case."""
    found = {}
    tables: tuple[tuple[type, dict[str, Field[Any]], Callable[[str], str]], ...] = (
        (ProducerConfig, KAFKA_FIELDS, data_source_name), (SinkOptions, SINK_FIELDS, str), (RegistryOptions, REGISTRY_FIELDS, str)
    )  # fmt: skip
    for table, fields, written in tables:
        for option, field in fields.items():
            row = field.metadata["option"]
            for name in (option, *row.aliases, *row.former_names):
                found[written(name).lower()] = _Name(written(name), written(option), table, field)
    return found


_NAMES = _names()
_SINK_NAMES = SINK_NAMES | {name: name for name in REGISTRY_FIELDS}

_warned_of: set[str] = set()
"""The former names that this process has warned of."""

_NONE = Secret("")
"""Stands for None, which would otherwise become the text "None": a password, or `none` for no check of host names."""

Given = Mapping[str, str | Secret]
"""Options as given, with redacted values of secret and unknown names."""


def parse_options(options: Mapping[str, object]) -> tuple[ProducerConfig, SinkOptions]:
    """Parse options as Spark hands them over (any letter case, text values), and check them.

    Raises:
        ConfigError: a name is unknown (the message has the nearest known one) or unsupported, a value is bad, options contradict
            each other, or no servers are given.
    """
    options = _redacted(options)  # here too: a traceback shows the local variables of each frame
    config, sink, _ = parse_sink_options(options)
    return config, sink


def parse_sink_options(options: Mapping[str, object]) -> tuple[ProducerConfig, SinkOptions, RegistryOptions]:
    """Return the result of `parse_options`, and the options of the Schema Registry, which tasks do not need.

    Raises:
        ConfigError: as `parse_options`.
    """
    options = _redacted(options)
    config, sink, registry = _parse(options)
    if config.transactional_id:
        raise ConfigError(
            "option 'kafka.transactional.id' is not supported: the producers of a write's tasks would fence each other; it is "
            "for Producer (docs/transactions.md). Set exactlyOnceId for exactly-once writes"
        )
    return config, sink, registry


def _parse(options: Mapping[str, object]) -> tuple[ProducerConfig, SinkOptions, RegistryOptions]:
    options = _redacted(options)
    for name, value in options.items():
        if value is _NONE:
            shown = _NAMES[name.lower()].written if name.lower() in _NAMES else name
            raise ConfigError(f"{shown} is None. Give it a value, or leave it out")
    values = _values(_with_profile(options))
    kafka, sink = values[ProducerConfig], SinkOptions(**values[SinkOptions])
    if kafka.get("transactional_id") == "":
        raise ConfigError(
            "kafka.transactional.id is empty. Give the transactions of this producer a name, or leave the option out"
        )
    config = ProducerConfig(**_with_dependent_defaults(kafka))
    if kafka.get("enable_idempotence") and (blockers := idempotence_blockers(config)):
        raise ConfigError(f"kafka.enable.idempotence=true needs {' and '.join(blockers)}. Drop one of them")
    return config, sink, _registry(sink, values[RegistryOptions])


def _values(options: Given) -> dict[type, dict[str, Any]]:
    """Return the parsed values by field name for each class of options, and log a warning for each former name."""
    values: dict[type, dict[str, Any]] = {ProducerConfig: {}, SinkOptions: {}, RegistryOptions: {}}
    given_as: dict[str, str] = {}
    for raw, value in options.items():
        if raw.lower() in _SPARK_OWN:
            continue
        name = _NAMES.get(raw.lower())
        if name is None:
            raise ConfigError(explain_option(raw, PRODUCER_NAMES, _SINK_NAMES))
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
        if name.lower() != "profile" and name.lower() not in _NAMES:
            raise ConfigError(explain_producer_option(name.removeprefix(KAFKA_PREFIX), PRODUCER_NAMES))
    return _parse(options)[0]


def redacted(options: Mapping[str, object]) -> dict[str, object]:
    """Return options named as in `producer_config`, with redacted values of secret and unknown names. Never raises."""
    return dict(zip(options, _redacted(_prefixed(options)).values(), strict=True))


def _prefixed(options: Mapping[str, object]) -> dict[str, object]:
    return {name if name.lower() == "profile" else data_source_name(name): value for name, value in options.items()}


def is_set(options: Mapping[str, object], name: str) -> bool:
    """Return whether an option of the producer (`buffer.memory`) is given under any of its names, or by the profile."""
    options = _redacted(options)
    return data_source_name(name) in {_option(given) for given in _with_profile(options)}


def _option(name: str) -> str:
    """Return the current name of an option; the name itself in lower case if it is unknown."""
    known = _NAMES.get(name.lower())
    return name.lower() if known is None else known.option


def _redacted(options: Mapping[str, object]) -> dict[str, str | Secret]:
    """Return options with redacted values of secret options and of unknown names, which may be misspelt. Never raises."""
    found: dict[str, str | Secret] = {}
    for raw, value in options.items():
        name = _NAMES.get(raw.lower())
        is_plain = name is not None and not is_secret(name.field)
        text = _NONE if value is None else value if isinstance(value, Secret) else str(value)
        found[raw] = text if is_plain or isinstance(text, Secret) else Secret(text)
    return found


def _parsed(name: str, field: Any, value: str | Secret) -> object:
    if not isinstance(value, Secret):
        return parse_value(name, field, value)
    if is_secret(field):
        return parse_secret(name, value)
    raise ConfigError(f"{name} is not a secret option, but has a Secret as its value. Give a text")


def _with_profile(options: Given) -> Given:
    """Return the given options with those of their profile, if any; given ones override the profile's."""
    by_lower = {name.lower(): name for name in options}
    if "profile" not in by_lower:
        return options
    chosen = options[by_lower["profile"]]
    if isinstance(chosen, Secret):
        raise ConfigError("profile is not a secret option, but has a Secret as its value. Give a text")
    # Names in Kafka's own files have no prefix; names copied from a sink's options have one, and `--command-config` takes both.
    named = {
        data_source_name(name.removeprefix(KAFKA_PREFIX)): value for name, value in profile(chosen.strip()).items()
    }
    given = {_option(name) for name in by_lower}
    kept = {name: value for name, value in named.items() if _option(name) not in given}
    return _redacted(kept) | dict(options)


def _with_dependent_defaults(kafka: dict[str, Any]) -> dict[str, Any]:
    """Return the given options with defaults that depend on them, as in Java's producer, so that no default contradicts them."""
    chosen: dict[str, Any] = {field.name: field.default for field in KAFKA_FIELDS.values()} | kafka
    minimum = min(chosen["linger_ms"] + chosen["request_timeout_ms"], INT32_MAX)
    follows = {"delivery_timeout_ms": max(chosen["delivery_timeout_ms"], minimum)}
    follows["batch_size"] = min(chosen["batch_size"], chosen["buffer_memory"])
    if "reconnect_backoff_ms" in kafka:
        follows["reconnect_backoff_max_ms"] = kafka["reconnect_backoff_ms"]
    return follows | kafka
