"""Options of formats and of a Schema Registry that contradict each other, or would have no effect."""

from __future__ import annotations

import pytest

from spark_producer.config import parse_sink_options
from spark_producer.config.registry_table import column_options
from spark_producer.errors import ConfigError
from tests.unit.config.options import SERVERS, refused

URL = {"schema.registry.url": "http://registry:8081"}
AVRO = SERVERS | URL | {"valueFormat": "avro"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"valueFormat": "avro"}, "Avro needs a Schema Registry"),
        (
            {"valueFormat": "avro", "valueSchema": "{}"},
            "or, to write without one, the schema and its id: valueSchema and",
        ),
        ({"valueFormat": "protobuf"}, "Protobuf needs a Schema Registry"),
        ({"keyFormat": "protobuf", "keySchemaId": "1"}, "keyFormat=protobuf with keySchemaId needs keySchema"),
        ({"valueMessage": "M"}, "valueMessage is for Protobuf"),
        (AVRO | {"valueMessage": "M"}, "valueMessage is for Protobuf"),
        (URL | {"valueFormat": "protobuf", "valueMessage": "M"}, "valueMessage has no effect"),
        (
            URL | {"keyFormat": "protobuf", "keyMessageIndexes": "0"},
            "keyMessageIndexes is for Protobuf encoded elsewhere",
        ),
        ({"valueFormat": "arvo"}, "Did you mean 'avro'?"),
        (URL, "schema.registry.url has no effect"),
        (URL | {"valueSchemaId": "7"}, "schema.registry.url has no effect"),
        ({"valueSchema": "{}"}, "valueSchema is for Avro"),
        ({"keySubject": "a"}, "keySubject is for Avro"),
        ({"valueMessageIndexes": "0"}, "valueMessageIndexes is for Protobuf"),
        (
            AVRO | {"valueMessageIndexes": "0", "valueSchemaId": "1", "valueSchema": "x"},
            "valueMessageIndexes is for Protobuf",
        ),
        ({"valueFormat": "avro", "valueSchemaId": "1"}, "needs valueSchema, the schema of that id"),
        (
            {"valueFormat": "avro", "valueSchemaId": "1", "valueSchema": "x", "valueSubject": "s"},
            "contradict each other",
        ),
        (
            AVRO | {"use.latest.version": "true", "auto.register.schemas": "true"},
            "auto.register.schemas=true contradicts",
        ),
        (AVRO | {"use.latest.version": "true", "valueSchema": "x"}, "contradict each other"),
        (AVRO | {"basic.auth.user.info": "a:b", "bearer.auth.token": "t"}, "contradict each other"),
        (AVRO | {"schema.registry.url": "registry:8081"}, "must be http://host:port"),
        (AVRO | {"schema.registry.url": "http://a:1,http://b:x"}, "must be http://host:port"),
        (AVRO | {"fillMissingFields": "true"}, "fillMissingFields has no effect"),
        ({"fillMissingFields": "false"}, "fillMissingFields has no effect"),
        (AVRO | {"use.latest.version": "true", "fillMissingFields": "yes"}, "must be one of auto, true, false"),
        (AVRO | {"value.subject.name.strategy": "TopicNamingStrategy"}, "Did you mean 'TopicNameStrategy'?"),
        (AVRO | {"valueSchemaReferences": "[]"}, "valueSchemaReferences is for valueSchema"),
        (
            {"valueFormat": "avro", "valueSchemaId": "1", "valueSchema": "x", "valueSchemaReferences": "[]"},
            "valueSchemaReferences is for valueSchema",
        ),
        (AVRO | {"subject.name.strategy.fallback.type": "NONE"}, "has no effect without AssociatedNameStrategy"),
        (
            AVRO | {"value.schema.id.deserializer": "DualSchemaIdDeserializer"},
            "it is for reads",
        ),
        (AVRO | {"key.schema.id.serializer": "HeaderSchemaIdSerializer"}, "needs the schema's GUID from a registry"),
        (
            AVRO | {"value.schema.id.serializer": "HeaderSchemaIdSerializer", "includeHeaders": "false"},
            "contradicts includeHeaders=false",
        ),
        (AVRO | {"schema.registry.urls": "x"}, "Did you mean 'schema.registry.url'?"),
    ],
    ids=str,
)
def test_contradictions_are_refused(options: dict[str, str], text: str) -> None:
    refused(SERVERS | options, text)


def test_a_password_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(Exception, match=r"Set basic\.auth\.user\.info") as raised:
        parse_sink_options(AVRO | {"schema.registry.url": "http://ann:k4n4rie@registry"})
    assert "k4n4rie" not in str(raised.value)


def test_confluents_names_are_understood() -> None:
    given = AVRO | {
        "value.subject.name.strategy": "io.confluent.kafka.serializers.subject.RecordNameStrategy",
        "basic.auth.user.info": "ann:k4n4rie",
        "use.latest.version": "true",
    }
    _, sink, registry = parse_sink_options(given)
    assert column_options(sink, registry)[0].strategy == "RecordNameStrategy"
    assert not registry.auto_register_schemas
    assert "k4n4rie" not in repr(registry)
    assert "k4n4rie" not in repr(sink)


@pytest.mark.parametrize(
    ("options", "fill"),
    [
        ({}, False),
        ({"valueSchema": "x"}, False),
        ({"valueSchema": "x", "fillMissingFields": "true"}, True),
        ({"use.latest.version": "true"}, True),
        ({"use.latest.version": "true", "fillMissingFields": "AUTO"}, True),
        ({"use.latest.version": "true", "fillMissingFields": "false"}, False),
    ],
    ids=str,
)
def test_missing_fields_are_filled_where_the_schema_is_the_registrys_latest(
    options: dict[str, str], fill: bool
) -> None:
    _, sink, registry = parse_sink_options(AVRO | options)
    assert [wish.fill for wish in column_options(sink, registry)] == [fill, fill]


@pytest.mark.covers("JS3")
def test_validation_is_for_json_schema() -> None:
    address = {"schema.registry.url": "http://h:1", "json.fail.invalid.schema": "true"}
    with pytest.raises(
        ConfigError, match=r"json.fail.invalid.schema has no effect: no column is written as JSON Schema"
    ):
        parse_sink_options(SERVERS | address | {"valueFormat": "avro"})
    parse_sink_options(SERVERS | address | {"valueFormat": "json-schema"})
    alone = {
        "valueFormat": "json-schema",
        "valueSchema": "{}",
        "valueSchemaId": "7",
        "json.fail.invalid.schema": "true",
    }
    _, _, registry = parse_sink_options(SERVERS | alone)
    assert registry.json_fail_invalid_schema
    parse_sink_options(SERVERS | alone | {"fillMissingFields": "true"})
    with pytest.raises(ConfigError, match="JSON Schema needs a Schema Registry"):
        parse_sink_options(SERVERS | {"valueFormat": "json-schema"})
