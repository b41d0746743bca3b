"""The program that runs the wheel's kernel with every Python: the results of the portable one, and how long each loop takes.

    python tests/platforms/kernel_program.py [ROUNDS]

It needs this package alone, and prints one line of JSON for each loop. It is a file of its own, since it runs in environments
without the other tests.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from spark_producer.kernel import BinaryColumn, Limits, RecordColumns, V2Batch, header_block
from spark_producer.kernel.arrays import from_numbers
from spark_producer.kernel.avro_columns import avro_column
from spark_producer.kernel.avro_nodes import ArrowLayout, AvroNode
from spark_producer.kernel.avro_program import Storage
from spark_producer.kernel.decoded_v2 import COLUMNS
from spark_producer.kernel.dispatch import ON_DEMAND, load
from spark_producer.kernel.protobuf_columns import protobuf_column
from spark_producer.kernel.protobuf_nodes import ProtobufNode, Source, Wrapping
from spark_producer.kernel.protobuf_program import Field, Form, Message, ProtobufColumn, ProtobufProgram
from spark_producer.schemas.plan import plan_of
from spark_producer.schemas.types import avro_schema

ROWS, SLOTS, BASE = 10_000, 4, 1_700_000_000_000
ROUNDS = 60

MESSAGE = ProtobufNode(
    Source.STRUCT,
    "value",
    names=("id", "text", "slots"),
    children=(
        ProtobufNode(Source.SCALAR, "value.id", 1 << 3, scalar=AvroNode(ArrowLayout.LONG, "value.id"), implicit=True),
        ProtobufNode(Source.SCALAR, "value.text", 2 << 3 | 2, scalar=AvroNode(ArrowLayout.TEXT, "value.text")),
        ProtobufNode(
            Source.LIST,
            "value.slots",
            3 << 3 | 2,
            Wrapping.LENGTH,
            children=(
                ProtobufNode(Source.SCALAR, "value.slots[]", scalar=AvroNode(ArrowLayout.LONG, "value.slots[]")),
            ),
        ),
    ),
)
"""`message M { int64 id = 1; optional string text = 2; repeated int64 slots = 3; }`, as its plan and its program."""
PROGRAM = ProtobufProgram(
    (
        Message(
            (Field(1, Form.INT64, 1), Field(2, Form.BYTES, 2), Field(3, Form.INT64, 3, repeated=True)),
            0,
        ),
    ),
    (
        ProtobufColumn(Storage.RECORD, pa.struct([]), "value", children=(1, 2, 3)),
        ProtobufColumn(Storage.LONG, pa.int64(), "value.id"),
        ProtobufColumn(Storage.BYTES, pa.string(), "value.text", nullable=True),
        ProtobufColumn(Storage.ARRAY, pa.list_(pa.int64()), "value.slots", children=(4,)),
        ProtobufColumn(Storage.LONG, pa.int64(), "value.slots[]"),
    ),
)

Twin = Mapping[str, Any]
Loop = Callable[[Twin], list[bytes]]


class Rows:
    """Rows of keys, values, headers and a struct, the same at every run."""

    def __init__(self) -> None:
        random = np.random.default_rng(7)
        keys = [None if number % 11 == 0 else b"%d" % number for number in random.integers(0, 10**9, ROWS)]
        self.keys = BinaryColumn(pa.array(keys, pa.binary()))
        lengths = random.integers(50, 150, ROWS)
        self.values = BinaryColumn(pa.array([random.bytes(length) for length in lengths], pa.binary()))
        self.slots = random.integers(0, SLOTS, ROWS).astype(np.int32)
        self.counts = random.integers(0, 3, ROWS)
        entries = [b"header-%d" % number for number in range(int(self.counts.sum()))]
        self.entries = BinaryColumn(pa.array(entries, pa.binary()))
        texts = pa.array([None if key is None else key.decode() for key in keys], pa.string())
        structs: Any = pa.StructArray.from_arrays([pa.array(range(ROWS)), texts], names=["id", "text"])
        self.avro = avro_column(plan_of(avro_schema(structs.type, "value"), structs.type, "value"), structs)

        ends = np.concatenate(([0], np.cumsum(self.counts))).astype(np.int32)
        offsets: Any = pa.array(ends)
        slots = pa.ListArray.from_arrays(offsets, from_numbers(random.integers(-5, 10**6, int(ends[-1]))))
        messages: Any = pa.StructArray.from_arrays([pa.array(range(ROWS)), texts, slots], names=list(MESSAGE.names))
        self.protobuf = protobuf_column(MESSAGE, messages)
        self.frames = load("portable", ON_DEMAND).functions["encode_protobuf"](MESSAGE, self.protobuf, b"")

        sizes = np.bincount(self.slots, minlength=SLOTS).tolist()
        encoded = self.records(load("portable").functions)[:SLOTS]
        self.batches = [
            V2Batch(memoryview(records), size, base_offset=0, last_offset_delta=size - 1, base_timestamp=BASE)
            for records, size in zip(encoded, sizes, strict=True)
        ]

    def headers(self, twin: Twin) -> list[bytes]:
        """Header blocks."""
        found = twin["encode_headers"](self.counts, self.entries, self.entries)
        return [bytes(found.data), bytes(found.offsets)]

    def records(self, twin: Twin) -> list[bytes]:
        """Grouped and encoded records."""
        headers = twin["encode_headers"](self.counts, self.entries, self.entries)
        columns = RecordColumns(self.values, self.keys, headers, BASE)
        rows, bounds = twin["group_rows"](self.slots, SLOTS)
        space = memoryview(bytearray(4 << 20))
        arranged, done = twin["ArrangedRows"](columns, rows), []
        for first, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            row, end, _ = twin["encode_v2"](arranged, first, stop, 0, BASE, space, 0, len(space))
            assert row == stop
            done.append(bytes(space[:end]))
        return [*done, bytes(twin["record_sizes"](columns)), repr(twin["largest_record"](columns)).encode()]

    def fields(self, twin: Twin) -> list[bytes]:
        """The records, decoded into columns."""
        found = twin["decode_v2"](self.batches, COLUMNS, Limits(bytes=64 << 20))
        assert found.rows == ROWS
        columns = [*found[6:10], *found.headers[1:]]
        whole = pa.RecordBatch.from_arrays(columns[:4], ["offset", "timestamp", "key", "value"])
        entries = pa.RecordBatch.from_arrays(columns[4:], ["key", "value"])
        return [bytes(whole.serialize()), bytes(entries.serialize()), bytes(found.headers.ends)]

    def hashes(self, twin: Twin) -> list[bytes]:
        """Hashes of keys."""
        return [bytes(twin["murmur2"](self.keys))]

    def structs(self, twin: Twin) -> list[bytes]:
        """Avro."""
        offsets, data = twin["encode_avro"](self.avro, b"\x00\x00\x00\x00\x07")
        return [bytes(offsets), bytes(data)]

    def messages(self, twin: Twin) -> list[bytes]:
        """Protobuf, encoded."""
        offsets, data = twin["encode_protobuf"](MESSAGE, self.protobuf, b"\x00\x00\x00\x00\x07\x00")
        return [bytes(offsets), bytes(data)]

    def columns(self, twin: Twin) -> list[bytes]:
        """Protobuf, decoded."""
        offsets, data = self.frames
        found, failures = twin["decode_protobuf"](PROGRAM, data, offsets[:-1], offsets[1:])
        assert not failures
        parts = (part for each in found for part in (each.valid, each.values, each.data))
        return [b"" if part is None else part.tobytes() for part in parts]

    def singles(self, twin: Twin) -> list[bytes]:
        """Records one by one."""
        space, done = memoryview(bytearray(1 << 20)), []
        for number in range(ROWS):
            record = twin["SingleRecord"](b"%d" % number, b"value", header_block([(b"h", None)]), BASE)
            end = record.encode(space, 0, len(space), number, BASE)
            done.append(bytes(space[:end]))
        return [b"".join(done)]


def loops(rows: Rows) -> dict[str, Loop]:
    """Every loop by its name."""
    return {
        "headers": rows.headers, "records": rows.records, "fields": rows.fields, "hashes": rows.hashes, "avro": rows.structs,
        "protobuf": rows.messages, "decoded protobuf": rows.columns, "single records": rows.singles,
    }  # fmt: skip


def fastest(call: Callable[[], object], rounds: int) -> float:
    """The least CPU nanoseconds a row of this thread: what else the machine does only adds to them."""
    taken = []
    for _ in range(rounds):
        began = time.thread_time_ns()
        call()
        taken.append(time.thread_time_ns() - began)
    return min(taken) / ROWS


def main(rounds: int = ROUNDS) -> int:
    """Compare and time every loop; how many differ."""
    portable, compiled = (load(name).functions | load(name, ON_DEMAND).functions for name in ("portable", "compiled"))
    different = 0
    for name, loop in loops(Rows()).items():
        equal = loop(compiled) == loop(portable)
        different += not equal
        nanoseconds = fastest(lambda loop=loop: loop(compiled), rounds)  # type: ignore[misc]  # mypy infers no default of a lambda
        reported = {"loop": name, "equal": equal, "ns": round(nanoseconds, 2), "python": sys.version.split()[0]}
        print(json.dumps(reported), flush=True)
    return different


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
