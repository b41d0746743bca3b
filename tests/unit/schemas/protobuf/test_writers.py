"""The schemas with which values were written: each is asked for and compiled once, whatever the bytes of values say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_producer.errors import SchemaError
from spark_producer.schemas.protobuf import message_names, viewer
from spark_producer.schemas.protobuf.compiler import ProtobufSchema, compiled, message_of
from spark_producer.schemas.protobuf.message_names import WriterMessages
from spark_producer.schemas.protobuf.viewer import ProtobufViewer
from spark_producer.schemas.references import UnknownSchema
from spark_producer.schemas.registry import SchemaKey
from tests.unit.schemas.protobuf.judging import decode

pytestmark = pytest.mark.covers("RD22")

SCHEMA = 'syntax = "proto3"; message A { int32 n = 1; }'
MANY = [b"\0\0\0\0\x07\x02" + bytes([2 * index]) for index in range(1, 60)]
"""Frames of one schema with many indexes of messages."""


class Writers:
    """Schemas of a registry, and how often each was asked for."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.asked: list[SchemaKey] = []

    def text(self, key: SchemaKey) -> str:
        self.asked.append(key)
        if not self.texts:
            raise UnknownSchema(f"there is no schema {key}")
        return json.dumps({"schema": self.texts[0], "references": {}})


def own() -> Any:
    return message_of(compiled(ProtobufSchema(SCHEMA), "the schema"), None, "the schema")


def messages(writers: Writers) -> WriterMessages:
    return WriterMessages({}, writers)  # type: ignore[arg-type]


def test_a_schema_that_the_registry_lacks_is_asked_for_once_in_a_batch() -> None:
    """Else one id with a thousand indexes would count as a thousand ids."""
    writers = Writers()
    found = decode(own(), list(MANY), writers=messages(writers))
    assert (found.bad, found.first) == (len(MANY), (0, "there is no schema 7"))
    assert writers.asked == [7]


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []

    def refuse(_schema: ProtobufSchema, what: str) -> Any:
        done.append(what)
        raise SchemaError(f"{what} is not a valid Protobuf schema")

    monkeypatch.setattr(message_names, "compiled", refuse)
    monkeypatch.setattr(viewer, "compiled", refuse)
    return done


def test_a_schema_that_is_not_valid_is_compiled_once(compilations: list[str]) -> None:
    """Its compiler is a process of its own, which takes a fifth of a second."""
    message, writers = own(), Writers("nonsense of this test")
    known = messages(writers)
    for _ in range(2):
        found = decode(message, list(MANY), writers=known)
        assert found.first == (0, "schema 7 is not a valid Protobuf schema")
    assert (writers.asked, compilations) == ([7], ["schema 7"])


def test_a_viewer_compiles_a_schema_that_is_not_valid_once(compilations: list[str]) -> None:
    shown = ProtobufViewer(Writers("nonsense").text)
    for _ in range(3):
        assert shown.view(MANY[0]) == b"<schema 7: schema 7 is not a valid Protobuf schema>"
    assert compilations == ["schema 7"]
