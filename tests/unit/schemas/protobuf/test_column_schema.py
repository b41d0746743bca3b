"""The choice of a Protobuf schema on the driver. A function of this test plays the registry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_producer.config import RegistryOptions
from spark_producer.config.registry_table import ColumnOptions
from spark_producer.errors import ConfigError, SchemaError
from spark_producer.kernel.protobuf_nodes import ProtobufNode
from spark_producer.schemas.column_format import ColumnFormat
from spark_producer.schemas.protobuf.compiler import message_indexes
from spark_producer.schemas.registry import PROTOBUF, RegisteredSchema
from spark_producer.schemas.schema_lookup import SchemaLookup
from spark_producer.schemas.schema_selection import column_format
from tests.unit.schemas.protobuf.encoding import message

KIND = pa.struct([pa.field("id", pa.int32(), False)])
TEXT = 'syntax = "proto3"; package air; message Gone {} message Flight { int32 id = 1; int32 more = 2; }'


class Asked:
    """A registry that gives the id 9 and one text, and keeps what it was asked."""

    def __init__(self, text: str = TEXT) -> None:
        self.lookups: list[SchemaLookup] = []
        self._text = text

    def __call__(self, lookup: SchemaLookup) -> RegisteredSchema:
        self.lookups.append(lookup)
        return RegisteredSchema(9, json.dumps({"schema": self._text, "references": {}}))


def column(**more: Any) -> ColumnOptions:
    plain = ColumnOptions("value", "protobuf", None, None, None, None, "TopicNameStrategy")
    return plain._replace(**more)


def choose(asked: Asked, wish: ColumnOptions, kind: Any = KIND, *, latest: bool = False) -> ColumnFormat:
    found = column_format(wish, kind, "my-topic", RegistryOptions(use_latest_version=latest), asked)
    assert found is not None
    assert isinstance(found.node, ProtobufNode)
    assert found.name == "Protobuf"
    return found


def test_a_schema_is_made_of_the_column_and_registered_as_protobuf() -> None:
    asked = Asked()
    assert choose(asked, column()).prefix == b"\x00\x00\x00\x00\x09\x00"
    (lookup,) = asked.lookups
    wanted = 'syntax = "proto3";\nmessage my_topic_value {\n  int32 id = 1;\n}\n'
    assert (lookup.subject, lookup.schema, lookup.kind) == ("my-topic-value", wanted, PROTOBUF)


def test_a_file_and_a_message_are_chosen_and_name_the_subject(tmp_path: Path) -> None:
    file = tmp_path / "flight.proto"
    file.write_text(TEXT)
    asked = Asked()
    wish = column(schema=str(file), message="Flight", strategy="RecordNameStrategy", fill=True)
    assert choose(asked, wish).prefix == b"\x00\x00\x00\x00\x09\x02\x02"
    assert (asked.lookups[0].subject, asked.lookups[0].schema) == ("air.Flight", TEXT)


def test_the_latest_version_is_got_from_the_registry() -> None:
    asked = Asked()
    assert choose(asked, column(message="air.Flight", fill=True), latest=True).prefix[5:] == b"\x02\x02"
    assert (asked.lookups[0].schema, asked.lookups[0].kind) == (None, PROTOBUF)


def test_an_id_needs_no_registry() -> None:
    asked = Asked()
    assert (
        choose(asked, column(schema_id=7, schema=TEXT, message="Flight", fill=True)).prefix[:5]
        == b"\x00\x00\x00\x00\x07"
    )
    assert asked.lookups == []


@pytest.mark.parametrize(
    ("wish", "kind", "text"),
    [
        (column(schema=TEXT, message="Flug"), KIND, "valueSchema has no message 'Flug'. It has: air.Gone, air.Flight"),
        (column(schema="message {"), KIND, "valueSchema is not a valid Protobuf schema: line 1"),
        (column(schema=TEXT, message="Flight"), KIND, "field 'value.more' of the message is not in the column"),
        (column(schema=TEXT), KIND, "field 'value.id' is not in the schema"),
        (column(), pa.struct([("d", pa.date32())]), "which Protobuf does not have"),
        (column(), pa.struct([("a_b", pa.int32()), ("aB", pa.int32())]), "field 'value.aB' cannot be beside 'a_b' in Protobuf"),
    ],
)  # fmt: skip
def test_nothing_is_registered_that_the_column_does_not_fit(wish: ColumnOptions, kind: Any, text: str) -> None:
    asked = Asked()
    with pytest.raises(SchemaError) as raised:
        choose(asked, wish, kind)
    assert text in str(raised.value)
    assert asked.lookups == []


def test_a_strategy_by_record_needs_a_given_schema() -> None:
    with pytest.raises(ConfigError, match="Set valueSchema, or valueSubject"):
        choose(Asked(), column(strategy="RecordNameStrategy"))


def test_entries_of_maps_do_not_count_among_the_indexes() -> None:
    text = """syntax = "proto3"; message A {} message B { map<string, int32> m = 1; message C { message D {} } message E {} }"""
    found = {name: message_indexes(message(text, name)) for name in ("A", "B", "B.C", "B.C.D", "B.E")}
    assert found == {"A": (0,), "B": (1,), "B.C": (1, 0), "B.C.D": (1, 0, 0), "B.E": (1, 1)}
