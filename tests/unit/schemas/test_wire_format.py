from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry._sync.mock_schema_registry_client import MockSchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2

from spark_producer.errors import ConfigError
from spark_producer.schemas.wire_format import framed, parse_indexes, prefix_of, split_frame

CONTEXT = SerializationContext("flights", MessageField.VALUE)


@pytest.mark.covers("COM11")
@pytest.mark.parametrize(
    ("indexes", "message"),
    [
        ("0", descriptor_pb2.FileDescriptorSet(file=[descriptor_pb2.FileDescriptorProto(name="a")])),
        ("[1]", descriptor_pb2.FileDescriptorProto(name="b", dependency=["c"])),
        ("2, 0", descriptor_pb2.DescriptorProto.ExtensionRange(start=1, end=300)),
    ],
    ids=["0", "1", "2,0"],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_deserialiser_reads_framed_protobuf(indexes: str, message: Any) -> None:
    prefix = prefix_of(77, parse_indexes("valueMessageIndexes", indexes))
    (value, none) = framed(pa.array([message.SerializeToString(), None], pa.binary()), prefix).to_pylist()
    read = ProtobufDeserializer(type(message), {"use.deprecated.format": False})
    assert read(value, CONTEXT) == message
    assert none is None
    assert value is not None
    found = split_frame(value)
    assert found is not None
    assert found[0] == 77


@pytest.mark.covers("COM11")
def test_a_deserialiser_reads_framed_json() -> None:
    schema = json.dumps({"title": "Flight", "type": "object", "properties": {"n": {"type": "integer"}}})
    with MockSchemaRegistryClient({"url": "mock://framing"}) as client:
        schema_id = client.register_schema("flights-value", Schema(schema, "JSON"))
        column = pa.array(['{"n": 1}', '{"n": 2}', None]).dictionary_encode()[1:]
        values = framed(column, prefix_of(schema_id)).to_pylist()
        assert JSONDeserializer(schema, schema_registry_client=client)(values[0], CONTEXT) == {"n": 2}
        assert values[1] is None


def test_what_has_no_frame_is_distinguished() -> None:
    assert split_frame(b"") is None
    assert split_frame(b"\x00\x00\x00\x01") is None
    assert split_frame(b"\x01\x00\x00\x00\x01x") is None
    assert split_frame(b"\x00\x00\x00\x01\x00x") == (256, b"x")


@pytest.mark.parametrize("text", ["", "a", "1,", "-1", "1 2", "²", str(2**31)])
def test_indexes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="valueMessageIndexes must be whole numbers"):
        parse_indexes("valueMessageIndexes", text)
