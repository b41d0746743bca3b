"""The subjects that a registry associates with topics, and schemas that a write gives with references."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from spark_producer.config import parse_sink_options
from spark_producer.config.registry_table import column_options
from spark_producer.errors import ConfigError, RegistryError
from spark_producer.schemas.column_format import encode_column
from spark_producer.schemas.registry import RegisteredSchema, Registry
from spark_producer.schemas.schema_lookup import SchemaLookup, query_registry
from spark_producer.schemas.schema_selection import column_format
from tests.unit.config.options import SERVERS
from tests.unit.schemas.played_registry import Played

COLUMN: Any = pa.array([{"a": {"n": "x"}}], pa.struct([("a", pa.struct([pa.field("n", pa.string(), nullable=False)]))]))
SCHEMA = '{"type": "record", "name": "air.Flight", "fields": [{"name": "a", "type": "geo.City"}]}'
CITY = '{"type": "record", "name": "City", "namespace": "geo", "fields": [{"name": "n", "type": "string"}]}'
REFERENCES = [{"name": "geo.City", "subject": "cities", "version": 2}]
NOTHING = 404, b'{"error_code": 40401, "message": "not found"}'
ASSOCIATED = {"value.subject.name.strategy": "AssociatedNameStrategy"}
ANY = "/associations/resources/-/t"


@pytest.fixture
def played() -> Iterator[Played]:
    with Played() as server:
        server.answer = NOTHING
        yield server


def written(played: Played, *, topic: str | None = "t", **options: str) -> bytes:
    given = SERVERS | {"valueFormat": "avro", "schema.registry.url": played.url} | options
    _, sink, registry = parse_sink_options(given)

    def find(lookup: SchemaLookup) -> RegisteredSchema:
        made = Registry(registry, lambda _, secret: secret.reveal(), 10.0, lookup.kind)
        with contextlib.closing(made):
            return query_registry(made, lookup)

    form = column_format(column_options(sink, registry)[0], COLUMN.type, topic, registry, find)
    assert form is not None
    column, _ = encode_column(form, COLUMN)
    found: Any = column
    return bytes(found[0].as_py())


def stored(text: str = CITY, **more: object) -> tuple[int, bytes]:
    return 200, json.dumps({"subject": "s", "version": 1, "id": 7, "schema": text} | more).encode()


def associated(*subjects: object) -> tuple[int, bytes]:
    return 200, json.dumps(
        [{"subject": each, "resourceName": "t", "associationType": "value"} for each in subjects]
    ).encode()


def paths(played: Played) -> list[str]:
    return [path.partition("?")[0] for path, _ in played.asked]


def test_the_associated_subject_is_asked_for_with_its_topic_and_column(played: Played) -> None:
    played.answers = {ANY: associated("flights"), "/subjects/flights/versions": stored()}
    assert written(played, **ASSOCIATED)[:5] == b"\x00\x00\x00\x00\x07"
    assert paths(played) == [ANY, "/subjects/flights/versions"]
    assert "resourceType=topic&associationType=value" in played.asked[0][0]
    played.answers["/associations/resources/c%2F1/t"] = associated("others")
    played.answers["/subjects/others/versions/latest"] = stored(SCHEMA.replace('"geo.City"', CITY))
    more = {"use.latest.version": "true", "subject.name.strategy.kafka.cluster.id": "c/1"}
    assert written(played, **ASSOCIATED, **more)[:5] == b"\x00\x00\x00\x00\x07"


@pytest.mark.parametrize(
    ("fallback", "subject"), [("TOPIC", "t-value"), ("RECORD", "air.Flight"), ("TOPIC_RECORD", "t-air.Flight")]
)
@pytest.mark.parametrize("answer", [NOTHING, associated(), (404, b"<html>")])
def test_a_topic_without_association_has_the_subject_of_the_fallback(
    played: Played, fallback: str, subject: str, answer: tuple[int, bytes]
) -> None:
    played.answers = {ANY: answer, f"/subjects/{subject}/versions": stored()}
    schema = SCHEMA.replace('"geo.City"', CITY)
    written(played, valueSchema=schema, **{"subject.name.strategy.fallback.type": fallback}, **ASSOCIATED)
    assert paths(played)[-1] == f"/subjects/{subject}/versions"


def test_wrong_associations_are_named(played: Played) -> None:
    played.answers = {ANY: associated("a", "b")}
    with pytest.raises(
        RegistryError, match=r"associated with topic 't': there are several, a, b\. Leave one, or set valueSubject"
    ):
        written(played, **ASSOCIATED)
    played.answers = {ANY: associated()}
    for fallback in ("NONE", "RECORD"):
        with pytest.raises(
            RegistryError, match=r"there is none\. Associate one, set valueSubject, or let subject\.name"
        ):
            written(played, **ASSOCIATED, **{"subject.name.strategy.fallback.type": fallback})
    for answer in (associated(None), (200, b"3")):
        played.answers = {ANY: answer}
        with pytest.raises(RegistryError, match="sent an invalid response"):
            written(played, **ASSOCIATED)
    played.answers = {ANY: (401, b'{"error_code": 401, "message": "no"}')}
    with pytest.raises(RegistryError, match="refused it with 401"):
        written(played, **ASSOCIATED)
    with pytest.raises(ConfigError, match="AssociatedNameStrategy needs one topic"):
        written(played, topic=None, **ASSOCIATED)
    assert written_to(played) == [], "nothing is registered"


def written_to(played: Played) -> list[str]:
    return [path for path in paths(played) if path.startswith("/subjects")]


@pytest.mark.parametrize("path", ["/subjects/t-value/versions", "/subjects/t-value"])
def test_a_schema_is_registered_with_its_references_and_written_with_their_types(played: Played, path: str) -> None:
    played.answers = {"/subjects/cities/versions/2": stored(), path: stored()}
    options = {"valueSchema": SCHEMA, "valueSchemaReferences": json.dumps(REFERENCES)}
    options |= {} if path.endswith("versions") else {"auto.register.schemas": "false"}
    assert written(played, **options) == b"\x00\x00\x00\x00\x07\x02x"
    sent = json.loads(played.bodies[-1])
    assert (json.loads(sent["schema"]), sent["references"]) == (json.loads(SCHEMA), REFERENCES)
    assert paths(played) == ["/subjects/cities/versions/2", path]


def test_the_latest_schema_may_have_references(played: Played) -> None:
    played.answers = {
        "/subjects/cities/versions/2": stored(), "/subjects/t-value/versions/latest": stored(SCHEMA, references=REFERENCES),
    }  # fmt: skip
    assert written(played, **{"use.latest.version": "true"}) == b"\x00\x00\x00\x00\x07\x02x"


def test_a_given_reference_that_is_missing_is_named(played: Played) -> None:
    options = {"valueSchema": SCHEMA, "valueSchemaReferences": json.dumps(REFERENCES)}
    with pytest.raises(
        RegistryError, match=r"refers to 'geo\.City', version 2 of subject 'cities', which the registry"
    ):
        written(played, **options)
    with pytest.raises(ConfigError, match="valueSchemaReferences must be a JSON list such as"):
        written(played, valueSchema=SCHEMA, valueSchemaReferences="{}")
