"""Writers' schemas in tasks: which ones are asked for, how often, and what a registry that fails means."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from spark_producer.config.registry_parsing import parse_registry_options
from spark_producer.errors import ConfigError, RegistryError
from spark_producer.schemas import writer_schemas
from spark_producer.schemas.column_reader import ColumnReader, subject_schemas
from spark_producer.schemas.reader_types import TypeRules
from spark_producer.schemas.references import UnknownSchema
from spark_producer.schemas.registry import MAX_VERSIONS
from spark_producer.schemas.writer_schemas import RegistryAccess, WriterSchemas
from tests.unit.schemas.played_registry import Played

pytestmark = pytest.mark.covers("RD19")

MISSING = (404, b'{"error_code": 40403, "message": "Schema not found"}')


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    monkeypatch.setattr(writer_schemas, "_asked", {})
    with Played() as server:
        server.answer = MISSING
        yield server


def access(played: Played, **more: Any) -> RegistryAccess:
    options, allowed = parse_registry_options({"schema.registry.url": played.url} | more)
    return RegistryAccess(options, allowed, 5.0)


def answer(**fields: Any) -> tuple[int, bytes]:
    return 200, json.dumps(fields).encode()


def test_an_id_is_asked_for_once_in_a_process(played: Played) -> None:
    played.answers["/schemas/ids/7"] = answer(schema='"int"')
    for _ in range(3):
        assert pickle.loads(pickle.dumps(WriterSchemas({}, access(played)))).text(7) == '"int"'
    assert [path.partition("?")[0] for path, _ in played.asked] == ["/schemas/ids/7"]


def test_known_ids_are_not_asked_for(played: Played) -> None:
    assert WriterSchemas({7: '"int"'}, access(played)).text(7) == '"int"'
    with pytest.raises(UnknownSchema, match="no registry to ask"):
        WriterSchemas({7: '"int"'}, None).text(8)
    assert not played.asked


def test_an_id_that_is_unknown_is_asked_for_again_but_not_without_end(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_schemas, "MAX_UNKNOWN", 2)
    schemas = WriterSchemas({}, access(played))
    for _ in range(2):
        with pytest.raises(UnknownSchema, match="does not have it"):
            schemas.text(7)
    with pytest.raises(RegistryError, match="does not have 2 schema ids") as raised:
        schemas.text(8)
    assert not isinstance(raised.value, UnknownSchema)


@pytest.mark.parametrize(
    "found", [answer(schema='"int"', schemaType="PROTOBUF"), answer(schema='"int"', references=[{"name": "A"}])]
)
def test_a_schema_that_is_not_avro_or_not_whole_is_unknown(played: Played, found: tuple[int, bytes]) -> None:
    played.answers["/schemas/ids/7"] = found
    with pytest.raises(UnknownSchema):
        WriterSchemas({}, access(played)).text(7)


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_registry_that_refuses_is_no_bad_row(played: Played, status: int) -> None:
    played.answer = status, b'{"error_code": 1, "message": "no"}'
    reader = ColumnReader("value", '"int"', TypeRules(), "PERMISSIVE", WriterSchemas({}, access(played)))
    with pytest.raises(RegistryError) as raised:
        reader.decode(reader.decoder(), pa.array([b"\x00\x00\x00\x00\x07\x02"]), str)
    assert not isinstance(raised.value, UnknownSchema)


def test_the_newest_versions_of_a_subject_are_got_with_the_latest(played: Played) -> None:
    played.answers["/subjects/s/versions"] = 200, json.dumps(list(range(1, MAX_VERSIONS + 5))).encode()
    for version in range(1, MAX_VERSIONS + 5):
        kind = "PROTOBUF" if version == 10 else "AVRO"
        found = answer(subject="s", id=100 + version, version=version, schema=f'"v{version}"', schemaType=kind)
        played.answers[f"/subjects/s/versions/{version}"] = found
    latest = answer(subject="s", id=124, version=MAX_VERSIONS + 4, schema='"v24"')
    played.answers["/subjects/s/versions/latest"] = latest
    text, known = subject_schemas(access(played), "s")
    assert text == '"v24"'
    assert sorted(known) == [each for each in range(105, 125) if each != 110]
    with pytest.raises(RegistryError, match="404"):
        subject_schemas(access(played), "other")


def test_a_password_is_sent_by_a_task_and_not_shown(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_LOGIN", "ann:k4n4rie")
    options = {"basic.auth.user.info": "${env:REGISTRY_LOGIN}", "secretsAllow": "env:REGISTRY_*"}
    played.answers["/schemas/ids/7"] = answer(schema='"int"')
    schemas = WriterSchemas({}, access(played, **options))
    assert b"k4n4rie" not in pickle.dumps(schemas)
    assert schemas.text(7) == '"int"'
    assert played.asked[0][1] == "Basic YW5uOms0bjRyaWU="
    assert "k4n4rie" not in repr(access(played, **options))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "Avro needs a Schema Registry"),
        ({"schema.registry.url": "nonsense"}, "must be http://"),
        ({"schema.registry.ur": "http://a"}, "Did you mean 'schema.registry.url'"),
        ({"schema.registry.url": None}, "schema.registry.url is None"),
    ],
)
def test_options_that_are_wrong(options: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_registry_options(options)
    assert reason in str(raised.value)
