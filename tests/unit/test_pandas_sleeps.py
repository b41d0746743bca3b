"""pyarrow's conversions import pandas wherever it is installed: neither importing the package nor a write may wake it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_producer.broker import LocalBroker

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60
ROWS = 300

WRITE = """
import sys
import pyarrow as pa
from spark_producer import MockProducer, Producer
import spark_producer.datasource
from spark_producer.producer import parts_of
assert "pandas" not in sys.modules, "the import"
servers, codec, *files = sys.argv[1:]
with Producer({"bootstrap.servers": servers, "compression.type": codec}) as producer:
    for file in files:
        with pa.OSFile(file) as source:
            for batch in pa.ipc.open_stream(source):
                producer.send_batch(batch, topic="t")
                producer.flush()
        assert "pandas" not in sys.modules, file
    for made in (producer, MockProducer()):
        made.send("t", "v", key=b"k", headers=[("a", b"1"), ("b", None)], timestamp_ms=5)
        made.send("t", None, partition=0).result(20)
        assert "pandas" not in sys.modules, "a single record"
    print(sum(span.records for span in parts_of(producer).take_report().ranges.values()))
"""

VALUES = pa.array([b"x" * (number % 50) for number in range(ROWS)], pa.binary())
TEXTS = pa.array([f"t{number % 3}" for number in range(ROWS)])
ENTRIES = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
COLUMNS: Mapping[str, Mapping[str, pa.Array[Any]]] = {
    "values": {"value": VALUES},
    "everything": {
        "value": VALUES,
        "key": pa.array([b"%d" % number if number % 3 else None for number in range(ROWS)], pa.binary()),
        "headers": pa.array([[{"key": "a", "value": b"1"}]] * ROWS, ENTRIES),
        "timestamp": pa.array(range(ROWS), pa.timestamp("us", "UTC")),
        "topic": TEXTS,
        "partition": pa.array([0, None, 0] * (ROWS // 3), pa.int32()),
    },
    "large values, maps": {
        "value": VALUES.cast(pa.large_binary()),
        "headers": pa.array([[("k", b"v")], None, []] * (ROWS // 3), pa.map_(pa.string(), pa.binary())),
        "timestamp": pa.array(range(ROWS), pa.int64()),
    },
    "dictionaries": {"value": TEXTS.dictionary_encode(), "key": pa.array(["a", None, "b"] * 100).dictionary_encode()},
}


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("kernel", ["compiled", "portable"])
def test_neither_the_import_nor_a_write_loads_pandas(tmp_path: Path, kernel: str, codec: str) -> None:
    assert importlib.util.find_spec("pandas"), "else there is nothing to see"
    files = []
    for name, columns in COLUMNS.items():
        batch = pa.record_batch(dict(columns))
        files.append(str(tmp_path / name))
        with pa.OSFile(files[-1], "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
    with LocalBroker() as broker:
        done = subprocess.run(
            [sys.executable, "-c", WRITE, broker.bootstrap_servers, codec, *files],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYPRODUCER_KERNEL": kernel},
            check=False,
        )
    assert (done.stderr, done.stdout) == ("", f"{ROWS * len(COLUMNS) + 2}\n")
