"""`tail --format avro` beside a registry that a test plays."""

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
