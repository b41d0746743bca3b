"""Modules that an import loads: Spark starts new Python processes all the time, and each pays before its first row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_producer.broker import LocalBroker
from spark_producer.record import checksum

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 60

HEAVY = {
    "argparse", "asyncio", "crc32c", "email", "http", "importlib.metadata", "multiprocessing", "pandas", "pathlib",
    "pyarrow.compute", "pydoc", "ssl", "unittest", "xml", "zipfile",
}  # fmt: skip
NOT_FOR_WRITERS = {
    "admin.offsets", "broker", "cli", "config.source_parsing", "config.subscription", "consumer", "datasource.read",
    "kernel.avro", "kernel.avro_decode", "kernel.avro_program", "kernel.compiled_avro_decode", "kernel.compiled_decode",
    "kernel.decode", "kernel.decode_messages", "kernel.protobuf_decode", "legacy_formats",
    "record.message_reader", "record.reading",
    "telemetry.otlp", "telemetry.points", "telemetry.reporter", "telemetry.subscription",
    "protocol.messages.configs", "protocol.messages.fetch", "protocol.messages.telemetry",
    "protocol.messages.groups", "protocol.messages.topics",
}  # fmt: skip
ONLY_FOR_TASKS = {
    "producer",
    "accumulator",
    "sender",
    "record.codecs",
    "datasource.write.worker.task",
    "datasource.write.worker.cache",
}
NOT_FOR_READERS = {
    "telemetry.otlp", "telemetry.points", "telemetry.reporter", "telemetry.subscription",
    "accumulator", "broker", "cli", "datasource.write", "exactly_once", "legacy_formats", "partitioner", "producer", "sender",
}  # fmt: skip
ONLY_FOR_READ_TASKS = {"consumer.read_ranges", "datasource.read.worker.read_task", "kernel", "record", "schemas"}
OF_PYSPARK = "pyspark.worker, pyspark.sql.datasource, pyspark.sql.types, numpy, pyarrow"

WRITE = """
from spark_producer.producer import Producer
import pyarrow as pa
def binary(*values):
    offsets = b"".join(sum(map(len, values[:end])).to_bytes(4, "little") for end in range(len(values) + 1))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)
with Producer({"bootstrap.servers": sys.argv[1]}) as producer:
    batch = pa.RecordBatch.from_arrays([binary(b"a", b"bcd"), binary(b"k", b"")], ["value", "key"])
    producer.send_batch(batch, topic="t")
    producer.flush()
"""


def loaded(code: str, *arguments: str, before: str = "sys") -> set[str]:
    """The modules that a new interpreter has after `code` and had not after importing `before`."""
    program = f"import sys\nimport {before}\nknown = set(sys.modules)\n{code}\nimport json\n"
    program += "print(json.dumps(sorted(set(sys.modules) - known)))"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYPRODUCER_KERNEL": "compiled"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def ours(names: set[str]) -> set[str]:
    return {f"spark_producer.{name}" for name in names}


def test_the_modules_that_must_not_be_imported_exist() -> None:
    """A module that has moved would be imported without anybody noticing."""
    for name in NOT_FOR_WRITERS | ONLY_FOR_TASKS | NOT_FOR_READERS | ONLY_FOR_READ_TASKS:
        path = ROOT / "spark_producer" / name.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").is_file() or path.with_suffix(".pyx").is_file(), name


@pytest.mark.parametrize("module", ["spark_producer.producer", "spark_producer.datasource.write.worker.task"])
def test_a_writer_imports_nothing_heavy_and_nothing_that_readers_use(module: str) -> None:
    found = loaded(f"import {module}", before=OF_PYSPARK if "datasource" in module else "sys")
    assert module in found
    assert found & (HEAVY | ours(NOT_FOR_WRITERS)) == set()


def test_planner_and_commit_process_import_no_producer() -> None:
    found = loaded("import spark_producer.datasource.write.planning", before=OF_PYSPARK)
    assert "spark_producer.datasource.write.writers" in found
    assert found & (HEAVY | ours(NOT_FOR_WRITERS | ONLY_FOR_TASKS)) == set()


def test_a_read_imports_nothing_of_writing() -> None:
    found = loaded("import spark_producer.datasource.read.worker.read_task", before=OF_PYSPARK)
    assert found & ours(NOT_FOR_READERS) == set()


@pytest.mark.parametrize("module", ["planning", "driver.batch_plan", "driver.stream_offsets"])
def test_the_driver_of_a_read_imports_neither_writing_nor_what_only_tasks_need(module: str) -> None:
    found = loaded(f"import spark_producer.datasource.read.{module}", before=OF_PYSPARK)
    assert found & ours(NOT_FOR_READERS | ONLY_FOR_READ_TASKS) == set()
    assert found & HEAVY == set()


def test_the_data_source_alone_imports_neither_half() -> None:
    found = loaded("import spark_producer.datasource", before=OF_PYSPARK)
    assert found & ours({"datasource.read", "datasource.write", "admin", "producer", "consumer"}) == set()


def test_the_lookup_of_formats_and_the_commit_need_no_arrow() -> None:
    found = loaded(
        "import pyspark_pyproducer, spark_producer.datasource.write.writers", before="pyspark.sql.datasource"
    )
    assert "spark_producer.datasource.write.writers" in found
    assert found & {"numpy", "pyarrow", "spark_producer.kernel", "spark_producer.partitioner"} == set()


def test_no_schema_is_made_before_its_message_is_used() -> None:
    found = loaded(
        "import spark_producer.datasource.write.worker.task\n"
        "from spark_producer.protocol import PRODUCE\n"
        "from spark_producer.protocol.fields import describe\n"
        "assert describe.cache_info().currsize == 0\n"
        "assert PRODUCE.request is PRODUCE.request\n"
        "assert describe.cache_info().currsize == 3\n"
    )
    assert "spark_producer.protocol.messages.produce" in found
    assert "spark_producer.protocol.messages.fetch" not in found


def test_a_write_of_keys_and_values_loads_nothing_heavy_either() -> None:
    with LocalBroker() as broker:
        assert loaded(WRITE, broker.bootstrap_servers) & HEAVY == set()


def test_every_message_is_there_for_those_who_ask() -> None:
    found = loaded(
        "from spark_producer.protocol import messages\n"
        "assert all(getattr(messages, name).__name__ == name for name in messages.__all__ if not name.isupper())\n"
        "assert 'FetchRequest' in vars(messages), 'found once, and then at hand'\n"
        "assert not hasattr(messages, 'nonsense')\n"
    )
    assert found >= {f"spark_producer.protocol.messages.{name}" for name in ("configs", "fetch", "groups", "topics")}


def test_the_checksum_is_that_of_the_package_however_it_is_loaded() -> None:
    alone, whole = checksum.load(), checksum.load(find=lambda *_: None)
    assert alone is not whole
    assert alone(b"123456789") == whole(b"123456789") == 0xE3069283, "the check value of CRC-32C (RFC 3720)"
    assert alone(b"56789", alone(b"1234")) == alone(b"123456789")
