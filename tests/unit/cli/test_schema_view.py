"""`tail --format avro|json-schema|protobuf` beside a registry that a test plays."""

from __future__ import annotations

import http.server
import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from spark_producer import Producer
from spark_producer.broker import LocalBroker
from spark_producer.cli.entry import main
from spark_producer.schemas.wire_format import prefix_of
from tests.unit.schemas.played_registry import Played

SCHEMA = {"type": "record", "name": "A", "fields": [{"name": "n", "type": "long"}]}


@pytest.fixture
def registry() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path.startswith("/schemas/ids/7") and self.headers.get("Authorization") == "Basic YW5uOnM="
            body = json.dumps(
                {"schema": json.dumps(SCHEMA)} if known else {"error_code": 40403, "message": "no"}
            ).encode()
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_tail_shows_avro_as_json(registry: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "client.properties"
    config.write_text(f"schema.registry.url={registry}\nbasic.auth.user.info=ann:s\n")
    with LocalBroker() as broker:
        rows = [prefix_of(7) + b"\x10", None, b"plain"]
        with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            producer.send_batch(pa.RecordBatch.from_pydict({"value": pa.array(rows, pa.binary())}), topic="t")
            producer.flush()
            arguments = ["tail", "t", "--bootstrap-servers", broker.bootstrap_servers, "--from-beginning"]
            assert main([*arguments, "--format", "avro", "--command-config", str(config), "--max-records", "3"]) == 0
            shown = sorted(line.partition("value=")[2] for line in capsys.readouterr().out.splitlines())
            assert shown == ["null", "plain", '{"n": 8}']
            producer.send_batch(pa.RecordBatch.from_pydict({"value": [prefix_of(8) + b"\x10"]}), topic="t")
            producer.flush()
            producer.send_batch(pa.RecordBatch.from_pydict({"value": [prefix_of(7) + b"\x12"]}), topic="t")
            producer.flush()
            arguments += ["--until-end", "--command-config", str(config)]
            assert main([*arguments, "--format", "avro"]) == 0
            shown = [line.partition("value=")[2] for line in capsys.readouterr().out.splitlines()]
            assert shown[4] == '{"n": 9}', "it goes on after a record whose schema the registry does not have"
            assert shown[3].startswith("<schema 8: could not get schema 8: the Schema Registry at ")
        arguments = arguments[:5]
        assert main([*arguments, "--format", "avro"]) == 1
        assert "--format avro needs --schema-registry-url, or schema.registry.url in" in capsys.readouterr().err


PROTO = 'syntax = "proto3"; message A { message B { int64 n = 1; string s = 2; } repeated B all = 1; }'


@pytest.mark.covers("JS4")
@pytest.mark.parametrize("as_json", [False, True])
def test_tail_shows_json_and_protobuf(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """The frames are taken off, numbers keep their digits, and what cannot be read says why, with the format of its schema."""
    with Played() as registry, LocalBroker() as broker:
        registry.answer = (404, b'{"error_code": 40403, "message": "no"}')
        for number, kind, text in ((1, "JSON", "{}"), (2, "PROTOBUF", PROTO), (3, "AVRO", '"int"')):
            registry.answers[f"/schemas/ids/{number}"] = (
                200,
                json.dumps({"schemaType": kind, "schema": text}).encode(),
            )
        rows = [
            prefix_of(1) + b'{"a": 12345678901234567890.10,\n "b": "\xc3\xa4"}', prefix_of(3, (0,)) + b"\x02", None, b"plain",
            prefix_of(2, (0, 0)) + b"\x08\x05\x12\x02\xc3\xa4", prefix_of(2, (0,)) + b"\x0a\x02\x08\x07",
            prefix_of(2, (3,)) + b"\x08\x05",
            prefix_of(2, (0,)) + b"\x0a\x7f", prefix_of(9, (0,)) + b"\xff",
        ]  # fmt: skip
        with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            for row in rows:
                producer.send("t", row)
            producer.flush()
        arguments = ["tail", "t", "--bootstrap-servers", broker.bootstrap_servers, "--from-beginning", "--until-end"]
        arguments += ["--schema-registry-url", registry.url] + ["--json"] * as_json
        shown = {}
        for form in ("json-schema", "protobuf"):
            assert main([*arguments, "--format", form]) == 0
            lines = capsys.readouterr().out.splitlines()
            shown[form] = [json.loads(line).get("value") if as_json else line.partition("value=")[2] for line in lines]
    null = None if as_json else "null"
    texts = shown["json-schema"]
    assert texts[:4] == [
        '{"a":12345678901234567890.10,"b":"ä"}',
        "<schema 3: schema 3 is Avro, not JSON Schema>",
        null,
        "plain",
    ]
    assert texts[4] == "<schema 2: schema 2 is Protobuf, not JSON Schema>"
    texts = shown["protobuf"]
    assert texts[1] == "<schema 3: schema 3 is Avro, not Protobuf>"
    assert texts[2:6] == [null, "plain", '{"n": "5", "s": "ä"}', '{"all": [{"n": "7"}]}']
    assert texts[6] == "<schema 2: it has no message with the indexes [3]>"
    assert texts[7].startswith("<schema 2: it is not the message A: ")
    assert "does not have it" in texts[8]


GUID = "89791762-2336-4186-9674-299b90a802e2"


@pytest.mark.parametrize(
    ("form", "kind", "text", "content", "path", "shown"),
    [
        ("avro", "AVRO", json.dumps(SCHEMA), b"\x10", b"", '{"n": 8}'),
        ("json-schema", "JSON", "{}", b'{ "n": 8}', b"", '{"n":8}'),
        ("protobuf", "PROTOBUF", PROTO, b"\x08\x05", b"\x04\x00\x00", '{"n": "5"}'),
    ],
)
def test_tail_finds_schemas_in_headers(
    form: str, kind: str, text: str, content: bytes, path: bytes, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Played() as registry, LocalBroker() as broker:
        registry.answer = (404, b'{"error_code": 40403, "message": "no"}')
        body = json.dumps({"schemaType": kind, "schema": text, "guid": GUID}).encode()
        registry.answers = {f"/schemas/guids/{GUID}": (200, body), "/schemas/ids/7": (200, body)}
        by_guid, other = b"\x01" + uuid.UUID(GUID).bytes + path, b"\x01" + bytes(16) + path
        with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            for header in (by_guid, other, b"\x00\x00\x00\x00\x07" + path, b"wrong", None):
                producer.send("t", content, headers=[("__value_schema_id", header)])
            producer.send("t", None, key=content, headers=[("__key_schema_id", b"old"), ("__key_schema_id", by_guid)])
            producer.flush()
        arguments = ["tail", "t", "--bootstrap-servers", broker.bootstrap_servers, "--from-beginning", "--until-end"]
        assert main([*arguments, "--schema-registry-url", registry.url, "--json", "--format", form]) == 0
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    values = [each["value"] for each in found]
    assert (values[0], values[2], found[5]["key"]) == (shown, shown, shown)
    if form == "json-schema":  # what is JSON needs no schema
        assert values[1] == shown
    else:
        assert values[1].startswith(f"<schema {uuid.UUID(int=0)}: could not get schema {uuid.UUID(int=0)}: ")
    assert values[3].startswith("<its header __value_schema_id is not the GUID of a schema, a one and 16 bytes")
    assert (values[4], values[5]) == (content.decode(), None)
