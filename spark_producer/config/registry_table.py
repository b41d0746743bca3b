"""The options of a Schema Registry, under Confluent's names, and the rules between them and the formats of columns.

Those of a write stay on the driver: tasks get a schema's id and the plan by which columns are encoded, but no secrets. Tasks of a
read get them, since values may have ids that the driver does not know.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import urlsplit

from spark_producer.common.secret import Secret
from spark_producer.config.names import kafka_name
from spark_producer.config.option import option
from spark_producer.config.options import SinkOptions
from spark_producer.errors import ConfigError

_PACKAGE = "io.confluent.kafka.serializers.subject."
ASSOCIATED = "AssociatedNameStrategy"
STRATEGIES = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy", ASSOCIATED)
_STRATEGY_NAMES = (*STRATEGIES, *(_PACKAGE + name for name in STRATEGIES))
FALLBACKS = {
    "TOPIC": "TopicNameStrategy", "RECORD": "RecordNameStrategy", "TOPIC_RECORD": "TopicRecordNameStrategy", "NONE": None,
}  # fmt: skip
"""The strategies for topics without an associated subject."""

_ID_PACKAGE = "io.confluent.kafka.serializers.schema.id."
_SERIALIZERS = ("PrefixSchemaIdSerializer", "HeaderSchemaIdSerializer")
_SERIALIZER_NAMES = (*_SERIALIZERS, *(_ID_PACKAGE + name for name in _SERIALIZERS))
_DESERIALIZERS = ("DualSchemaIdDeserializer", "PrefixSchemaIdDeserializer")
_DESERIALIZER_NAMES = (*_DESERIALIZERS, *(_ID_PACKAGE + name for name in _DESERIALIZERS))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegistryOptions:
    """The options for schemas in a registry. It compares by value; it has no hash, since secrets have none."""

    __hash__ = None  # type: ignore[assignment]

    schema_registry_url: str = option(
        "",
        "The Schema Registry, `http://host:8081`, several with commas. Of a write only the driver connects; tasks of a read ask "
        "for ids that are new.",
    )
    basic_auth_user_info: Secret | None = option(None, "`user:password` for the registry; never shown.")
    bearer_auth_token: Secret | None = option(None, "Token in place of a password; never shown.")
    bearer_auth_logical_cluster: str = option("", "With a token: the registry's cluster in Confluent's cloud.")
    schema_registry_ssl_ca_location: str = option(
        "", "PEM file: the certificates to trust. Reads need it on executors, too."
    )
    schema_registry_ssl_certificate_location: str = option(
        "",
        "PEM file: the client's certificate, perhaps with its key. Reads need it on executors, too.",
    )
    schema_registry_ssl_key_location: str = option(
        "", "PEM file: the key, if separate. Reads need it on executors, too."
    )
    schema_registry_ssl_key_password: Secret | None = option(None, "Password of that key; never shown.")
    auto_register_schemas: bool = option(
        True,
        "The schema is registered if the subject lacks it; with `false`, the default of `use.latest.version`, it must exist.",
    )
    use_latest_version: bool = option(
        False, "Rows are written with the subject's latest schema, which the column must fit."
    )
    json_fail_invalid_schema: bool = option(
        False,
        "JSON Schema: values that are not valid by all rules of their schema are not written, or cannot be decoded "
        "(docs/json_schema.md#validation).",
    )
    normalize_schemas: bool = option(False, "The registry compares schemas in its normal form.")
    value_subject_name_strategy: str = option(
        "TopicNameStrategy",
        "The subject of values: `TopicNameStrategy` (`<topic>-value`), `RecordNameStrategy` (the record's full name), "
        "`TopicRecordNameStrategy` (`<topic>-<name>`), or `AssociatedNameStrategy` (what the registry has for the topic); "
        "Confluent's class names too. Reads take the first and the last one.",
        choices=_STRATEGY_NAMES,
    )
    key_subject_name_strategy: str = option(
        "TopicNameStrategy", "The same for keys, `<topic>-key` by default.", choices=_STRATEGY_NAMES
    )
    subject_name_strategy_fallback_type: str = option(
        "TOPIC",
        "With `AssociatedNameStrategy`, for topics without an associated subject: `TOPIC`, `RECORD`, `TOPIC_RECORD`, or `NONE`, "
        "an error.",
        choices=FALLBACKS,
    )
    subject_name_strategy_kafka_cluster_id: str = option(
        "", "With `AssociatedNameStrategy`: the cluster of the topic; by default topics of all clusters count."
    )
    value_schema_id_serializer: str = option(
        "PrefixSchemaIdSerializer",
        "Where the schema of values is named: before the value, or with `HeaderSchemaIdSerializer` in the header "
        "`__value_schema_id`, by its GUID.",
        choices=_SERIALIZER_NAMES,
    )
    key_schema_id_serializer: str = option("PrefixSchemaIdSerializer", "The same for keys.", choices=_SERIALIZER_NAMES)
    value_schema_id_deserializer: str = option(
        "DualSchemaIdDeserializer",
        "Where reads look for the schema of values: in the header `__value_schema_id`, then before the value; with "
        "`PrefixSchemaIdDeserializer` only there.",
        choices=_DESERIALIZER_NAMES,
    )
    key_schema_id_deserializer: str = option(
        "DualSchemaIdDeserializer", "The same for keys.", choices=_DESERIALIZER_NAMES
    )

    def searches_headers(self, column: str) -> bool:
        """Return whether a read looks for the schemas of the column `value` or `key` in headers."""
        found = self.value_schema_id_deserializer if column == "value" else self.key_schema_id_deserializer
        return found.endswith("DualSchemaIdDeserializer")


_FIELDS = {kafka_name(field.name): field for field in dataclasses.fields(RegistryOptions)}
READ_ONLY_REGISTRY_FIELDS = {name: field for name, field in _FIELDS.items() if name.endswith(".deserializer")}
REGISTRY_FIELDS = {name: field for name, field in _FIELDS.items() if name not in READ_ONLY_REGISTRY_FIELDS}
"""The options of a registry that writes take."""

READ_REGISTRY_FIELDS = {
    name: field
    for name, field in _FIELDS.items()
    if name.startswith(("schema.registry.", "basic.auth.", "bearer.auth.", "json."))
    or ".name.strategy" in name
    or name in READ_ONLY_REGISTRY_FIELDS
}
"""The options of a registry that reads take: those of connections to it, of subjects, of validation, and of where schemas are
named."""

CONNECTION_FIELDS = {
    name: field
    for name, field in READ_REGISTRY_FIELDS.items()
    if name in REGISTRY_FIELDS and ".name.strategy" not in name
}
"""The options of connections to a registry, and of validation."""

FORMAT_NAMES = {"avro": "Avro", "protobuf": "Protobuf", "json-schema": "JSON Schema"}
"""The names of formats in messages."""


class ColumnOptions(NamedTuple):
    """The options of one column, `value` or `key`."""

    name: str
    format: str
    schema_id: int | None
    indexes: str | None
    schema: str | None
    subject: str | None
    strategy: str
    fill: bool = False
    message: str | None = None
    fallback: str = "TOPIC"
    cluster_id: str = ""
    by_header: bool = False
    references: str | None = None

    @property
    def encoded(self) -> bool:
        """Whether the column is encoded by a schema."""
        return self.format != "raw"

    @property
    def needs_registry(self) -> bool:
        """Whether the schema's id must come from the registry."""
        return self.encoded and self.schema_id is None


def column_options(sink: SinkOptions, registry: RegistryOptions) -> tuple[ColumnOptions, ColumnOptions]:
    """Return the options of the columns `value` and `key`."""
    fill = sink.fill_missing_fields == "true" or (sink.fill_missing_fields == "auto" and registry.use_latest_version)
    value = ColumnOptions(
        "value", sink.value_format, sink.value_schema_id, sink.value_message_indexes, sink.value_schema, sink.value_subject,
        registry.value_subject_name_strategy.rpartition(".")[2], fill, sink.value_message,
        by_header=registry.value_schema_id_serializer.endswith(_SERIALIZERS[1]), references=sink.value_schema_references,
    )  # fmt: skip
    key = ColumnOptions(
        "key", sink.key_format, sink.key_schema_id, sink.key_message_indexes, sink.key_schema, sink.key_subject,
        registry.key_subject_name_strategy.rpartition(".")[2], fill, sink.key_message,
        by_header=registry.key_schema_id_serializer.endswith(_SERIALIZERS[1]), references=sink.key_schema_references,
    )  # fmt: skip
    fallback, cluster = registry.subject_name_strategy_fallback_type, registry.subject_name_strategy_kafka_cluster_id
    return value._replace(fallback=fallback, cluster_id=cluster), key._replace(fallback=fallback, cluster_id=cluster)


def read_column(name: str, registry: RegistryOptions) -> ColumnOptions:
    """Return the options of subjects of a column, `value` or `key`, that is read."""
    strategies = {"value": registry.value_subject_name_strategy, "key": registry.key_subject_name_strategy}
    return ColumnOptions(
        name, "avro", None, None, None, None, strategies[name].rpartition(".")[2],
        fallback=registry.subject_name_strategy_fallback_type,
        cluster_id=registry.subject_name_strategy_kafka_cluster_id,
    )  # fmt: skip


def check_registry(sink: SinkOptions, registry: RegistryOptions, given: Collection[str]) -> None:
    """Check the rules between these options; `given` has the names of the registry's options that are set.

    Raises:
        ConfigError: two options contradict each other, or one would have no effect.
    """
    both = column_options(sink, registry)
    for column in both:
        _check_column(column, registry)
        _check_references(column)
        _check_header(column, sink)
    check_association(given, [column.strategy for column in both])
    is_json = any(column.format == "json-schema" for column in both)
    if registry.json_fail_invalid_schema and not is_json:
        raise ConfigError(
            "json.fail.invalid.schema has no effect: no column is written as JSON Schema. Set valueFormat or keyFormat to "
            "json-schema, or leave it out"
        )
    given = set(given) - ({"json.fail.invalid.schema"} if is_json else set())
    if given and not any(column.needs_registry for column in both):
        raise ConfigError(
            f"{min(given)} has no effect: no column needs a Schema Registry. Set valueFormat or keyFormat, or leave the "
            "option out"
        )
    latest = registry.use_latest_version
    if sink.fill_missing_fields != "auto" and not any(column.encoded and (column.schema or latest) for column in both):
        raise ConfigError(
            "fillMissingFields has no effect: no column has a schema that could have further fields. Set valueSchema or "
            "keySchema, or use.latest.version=true, or leave the option out"
        )
    needing = [column.format for column in both if column.needs_registry]
    if needing:
        check_connection(
            registry,
            ", or, to write without one, the schema and its id: valueSchema and valueSchemaId, or keySchema and keySchemaId",
            FORMAT_NAMES[needing[0]],
        )


def _check_column(column: ColumnOptions, registry: RegistryOptions) -> None:
    name = column.name
    if not column.encoded:
        for option_name, value in ((f"{name}Schema", column.schema), (f"{name}Subject", column.subject)):
            if value is not None:
                raise ConfigError(
                    f"{option_name} is for Avro, Protobuf and JSON Schema. Set {name}Format, or leave it out"
                )
    if column.message is not None:
        _check_message(column, registry)
    if column.indexes is not None and (column.encoded or column.schema_id is None):
        raise ConfigError(
            f"{name}MessageIndexes is for Protobuf encoded elsewhere. Set {name}SchemaId, and leave {name}Format out"
        )
    if column.encoded and column.schema_id is not None:
        if column.schema is None:
            raise ConfigError(
                f"{name}Format={column.format} with {name}SchemaId needs {name}Schema, the schema of that id. If the column "
                f"holds bytes that are encoded already, leave {name}Format out"
            )
        if column.subject is not None:
            raise ConfigError(f"{name}SchemaId and {name}Subject contradict each other. Drop one of them")
    if column.needs_registry and registry.use_latest_version and column.schema is not None:
        raise ConfigError(
            f"{name}Schema and use.latest.version=true contradict each other: both give the schema. Drop one of them"
        )


def _check_message(column: ColumnOptions, registry: RegistryOptions) -> None:
    name = column.name
    if column.format != "protobuf":
        raise ConfigError(f"{name}Message is for Protobuf. Set {name}Format to protobuf, or leave it out")
    if column.schema is None and not registry.use_latest_version:
        raise ConfigError(
            f"{name}Message has no effect: the schema follows from the column, and has one message. Set {name}Schema or "
            "use.latest.version=true, or leave it out"
        )


def _check_references(column: ColumnOptions) -> None:
    if column.references is not None and (column.schema is None or not column.needs_registry):
        raise ConfigError(
            f"{column.name}SchemaReferences is for {column.name}Schema, without {column.name}SchemaId: the registry has the "
            "schemas that it refers to. Leave it out, or set the schema"
        )


def _check_header(column: ColumnOptions, sink: SinkOptions) -> None:
    if not column.by_header:
        return
    option_name = f"{column.name}.schema.id.serializer={_SERIALIZERS[1]}"
    if not column.needs_registry:
        raise ConfigError(
            f"{option_name} needs the schema's GUID from a registry. Set {column.name}Format, and leave {column.name}SchemaId "
            "out, or leave the option out"
        )
    if not sink.include_headers:
        raise ConfigError(f"{option_name} contradicts includeHeaders=false: the GUID is a header. Drop one of them")


def check_connection(registry: RegistryOptions, without: str = "", form: str = "Avro") -> None:
    """Check the options of connections to the registry; `without` says what to do without one and `form` which format
    needs it, for the message.

    Raises:
        ConfigError: there is no address or a bad one, or two options contradict each other.
    """
    if not registry.schema_registry_url:
        raise ConfigError(
            f'{form} needs a Schema Registry. Set .option("schema.registry.url", "http://host:8081"){without}'
        )
    for url in registry.schema_registry_url.split(","):
        parts = _split(url.strip())
        if parts is None or parts[0] not in ("http", "https") or not parts[1]:
            raise ConfigError("schema.registry.url must be http://host:port or https://host:port, several with commas")
        if "@" in parts[1]:
            raise ConfigError(
                "schema.registry.url must not contain a password, since messages show addresses. Set basic.auth.user.info"
            )
    tls = {field.name: getattr(registry, field.name) for field in dataclasses.fields(registry) if "_ssl_" in field.name}
    given = [kafka_name(name) for name, value in tls.items() if value]
    if given and "https://" not in registry.schema_registry_url:
        raise ConfigError(
            f"{given[0]} has no effect without an address that begins with https://. Leave it out, or use https"
        )
    if not registry.schema_registry_ssl_certificate_location:
        alone = [name for name in given if "ssl.key" in name]
        if alone:
            raise ConfigError(
                f"{alone[0]} needs schema.registry.ssl.certificate.location, which is not set. Set both, or neither"
            )
    if registry.basic_auth_user_info is not None and registry.bearer_auth_token is not None:
        raise ConfigError("basic.auth.user.info and bearer.auth.token contradict each other. Drop one of them")


def check_strategies(registry: RegistryOptions, given: Collection[str]) -> None:
    """Check the options of subjects of a read; `given` has the names of the options that are set.

    Raises:
        ConfigError: a strategy needs the name of a record, which a read does not know, or an option would have no effect.
    """
    strategies = {"value": registry.value_subject_name_strategy, "key": registry.key_subject_name_strategy}
    for column, name in strategies.items():
        if "Record" in name:
            raise ConfigError(
                f"{column}.subject.name.strategy={name} needs the name of a record, which a read does not know. Leave it "
                f"out, and set {column}ReaderSchema"
            )
    check_association(given, strategies.values())


def check_association(given: Collection[str], strategies: Collection[str]) -> None:
    """Check that the options of `AssociatedNameStrategy` are for one of the strategies.

    Raises:
        ConfigError: they have no effect.
    """
    own = [name for name in given if name.startswith("subject.name.strategy.")]
    if own and not any(name.endswith(ASSOCIATED) for name in strategies):
        raise ConfigError(
            f"{min(own)} has no effect without {ASSOCIATED}. Set value.subject.name.strategy={ASSOCIATED}, or leave it out"
        )


def _split(url: str) -> tuple[str, str] | None:
    try:
        found = urlsplit(url)
        _ = found.port
    except ValueError:
        return None
    return found.scheme, found.netloc
