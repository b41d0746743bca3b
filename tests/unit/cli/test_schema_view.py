"""`tail --format avro|json-schema|protobuf` beside a registry that a test plays."""

from __future__ import annotations

import http.server
import json
import threading
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
            assert main([*arguments, "--format", "avro", "--command-config", str(config)]) == 1
            assert "could not get schema 8" in capsys.readouterr().err
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
        "<schema 3: schema 3 is AVRO, not JSON Schema>",
        null,
        "plain",
    ]
    assert texts[4] == "<schema 2: schema 2 is PROTOBUF, not JSON Schema>"
    texts = shown["protobuf"]
    assert texts[1] == "<schema 3: schema 3 is AVRO, not Protobuf>"
    assert texts[2:6] == [null, "plain", '{"n": "5", "s": "ä"}', '{"all": [{"n": "7"}]}']
    assert texts[6] == "<schema 2: it has no message with the indexes [3]>"
    assert texts[7].startswith("<schema 2: it is not the message A: ")
    assert "does not have it" in texts[8]
