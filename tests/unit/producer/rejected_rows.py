"""Tables with rows that cannot be written, and a model of one row at a time: which rows these are, why, and which goes first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from spark_producer.record.rejected import Rejected, RowErrorKind

FIRST, NOW = 70, 1_700_000_000_000
LIMIT = 2048
COUNTS = {b"a": 3, b"b": 1}
NO_TEXT = b"\xff"
HEADERS = 2
"""Maximum number of headers of a record here."""
LAST_SECOND = (2**63 - 1) // 1000
ADVICE = (
    "kafka.max.request.size (2048) or kafka.buffer.memory (33554432). Raise it, and the topic's max.message.bytes, or make "
    "the row smaller"
)


NO_NAME = "'' is not a topic name: a name has 1 to 249 letters, digits, '.', '_' and '-'"


class Row(NamedTuple):
    """A row of a table; `time` in seconds."""

    value: int = 1
    key: bytes | None = b"k"
    topic: bytes | None = b"a"
    headers: tuple[bytes | None, ...] = (b"h",)
    time: int | None = 5
    partition: int | None = None


good_rows = st.builds(
    Row,
    value=st.integers(0, 300),
    key=st.sampled_from([None, b"", b"key"]),
    topic=st.sampled_from(sorted(COUNTS)),
    headers=st.lists(st.sampled_from([b"h", "ü".encode()]), max_size=HEADERS).map(tuple),
    time=st.integers(0, 3),
    partition=st.sampled_from([None, 0]),
)
FLAWS: list[dict[str, Any]] = [
    {"topic": None},
    {"topic": NO_TEXT},
    {"headers": (b"h",) * 3},
    {"headers": (b"h",) * 4},
    {"headers": (b"h", None)},
    {"headers": (b"\xfe",)},
    {"time": None},
    {"time": LAST_SECOND + 1},
    {"time": -LAST_SECOND - 2},
    {"time": -1},
    {"partition": -7},
    {"value": 2500},
    {"value": 3000},
    {"value": LIMIT - 30},
    {"topic": b""},
    {"partition": 1, "topic": b"b"},
    {"partition": 3, "topic": b"a"},
]


def flawed(row: Row, found: Sequence[dict[str, Any]]) -> Row:
    for flaw in found:
        row = row._replace(**flaw)
    return row


def rows_with(some: list[dict[str, Any]]) -> st.SearchStrategy[list[Row]]:
    """Rows of which some have these flaws: the fewer kinds there are, the more rows have the same one."""
    bad = st.builds(flawed, good_rows, st.lists(st.sampled_from(some), min_size=1, max_size=2))
    return st.lists(st.one_of(good_rows, bad), min_size=1, max_size=20)


tables = st.lists(st.sampled_from(FLAWS), min_size=1, max_size=4).flatmap(rows_with)


def batch_of(rows: Sequence[Row], dictionaries: bool = False) -> pa.RecordBatch:
    keys = pa.array([key for row in rows for key in row.headers], pa.binary())
    entries = pa.StructArray.from_arrays([keys, pa.nulls(len(keys), pa.binary())], ["key", "value"])
    ends = pa.array(np.cumsum([0, *(len(row.headers) for row in rows)]), pa.int32())
    values = pa.array([b"v" * row.value for row in rows], pa.binary())
    columns = {
        "value": values.dictionary_encode() if dictionaries else values,
        "key": pa.array([row.key for row in rows], pa.binary()),
        "topic": pa.array([row.topic for row in rows], pa.binary()).view(pa.string()),
        "headers": pa.ListArray.from_arrays(ends, entries),
        "timestamp": pa.array([row.time for row in rows], pa.int64()).view(pa.timestamp("s", "UTC")),
        "partition": pa.array([row.partition for row in rows], pa.int32()),
    }
    return pa.record_batch(columns)


class Check(NamedTuple):
    """A test for bad rows, their message, and a weight by which the worst one goes first."""

    kind: RowErrorKind
    bad: Callable[[Row], bool]
    said: Callable[[Row, str], str]
    weight: Callable[[Row], int] | None = None


def encoded_size(row: Row) -> int:
    """20 bytes around, attributes, value and its length, key and its length, headers: their number, each key and no value."""
    key = 1 + len(row.key or b"")
    return (
        20 + 1 + row.value + (2 if row.value > 63 else 1) + key + 1 + sum(2 + len(name or b"") for name in row.headers)
    )


def exists(row: Row) -> bool:
    return row.partition is None or row.partition < COUNTS[row.topic or b""]


def there(row: Row) -> str:
    return "only partition 0" if row.topic == b"b" else "the 3 partitions 0 to 2"


LATER_CHECKS = [
    [
        Check(
            RowErrorKind.SIZE,
            lambda row: encoded_size(row) > LIMIT - 61,
            lambda row, at: f"a record of {encoded_size(row)} bytes ({at}) exceeds {ADVICE}",
            encoded_size,
        )
    ],
    [Check(RowErrorKind.TOPIC, lambda row: row.topic == b"", lambda _, __: NO_NAME)],
    [
        Check(
            RowErrorKind.PARTITION,
            lambda row: not exists(row),
            lambda row, at: f"partition {row.partition} does not exist ({at}): the topic has {there(row)}",
        )
    ],
]
"""Each list sees what those before it have left."""


def checks_of_columns(rows: Sequence[Row]) -> list[Check]:
    """In the order in which they are made."""
    last = FIRST + len(rows) - 1
    none_above = not any((row.time or 0) > LAST_SECOND for row in rows)
    no_text = f"a topic name in rows {FIRST} to {last} of the task is not UTF-8. Correct the column"
    return [
        Check(
            RowErrorKind.TOPIC, lambda row: row.topic is None, lambda _, at: at + ". Fill it, or set the option 'topic'"
        ),
        Check(RowErrorKind.TOPIC, lambda row: row.topic == NO_TEXT, lambda _, __: no_text),
        Check(
            RowErrorKind.HEADERS,
            lambda row: len(row.headers) > HEADERS,
            lambda row, at: f"a row has {len(row.headers)} headers ({at}). A record may have 2 at most",
            lambda row: len(row.headers),
        ),
        Check(
            RowErrorKind.HEADERS,
            lambda row: None in row.headers,
            lambda _, at: f"a header key is null ({at}), which Kafka does not allow. Drop the header, or name it",
        ),
        Check(
            RowErrorKind.HEADERS,
            lambda row: b"\xfe" in row.headers,
            lambda _, at: f"a header key is not UTF-8 ({at}), so consumers cannot read it. Correct it",
        ),
        Check(
            RowErrorKind.TIMESTAMP,
            lambda row: row.time is None,
            lambda _, at: f"the timestamp is null ({at}). Fill it, or drop the column for the time of writing",
        ),
        Check(
            RowErrorKind.TIMESTAMP,
            lambda row: abs(row.time or 0) > LAST_SECOND,
            lambda row, at: f"the timestamp is {row.time} s, more than fits into milliseconds ({at})",
            lambda row: -(row.time or 0) if none_above else row.time or 0,
        ),
        Check(
            RowErrorKind.TIMESTAMP,
            lambda row: -LAST_SECOND <= (row.time or 0) < 0,
            lambda row, at: f"the timestamp is {(row.time or 0) * 1000} ms, before 1970 ({at}). Kafka has no such time",
        ),
        Check(
            RowErrorKind.PARTITION,
            lambda row: (row.partition or 0) < 0,
            lambda row, at: f"partition {row.partition} is negative ({at}). Null leaves the choice to the producer",
        ),
    ]


def expected_of(rows: Sequence[Row]) -> list[Rejected]:
    """Return the expected rejections of a table, in this order."""
    found: dict[int, Rejected] = {}
    for checks in [checks_of_columns(rows), *LATER_CHECKS]:
        left = [number for number in range(len(rows)) if number not in found]
        for kind, bad, said, weight in checks:
            these = [number for number in left if bad(rows[number])]
            if weight is not None and these:
                worst = max(these, key=lambda number: weight(rows[number]))
                these = [worst, *(number for number in these if number != worst)]
            for number in these:
                row = rows[number]
                topic = None if row.topic in (None, NO_TEXT) else row.topic.decode()
                at = (
                    f"topic {topic!r}, row {FIRST + number} of the task"
                    if topic
                    else f"row {FIRST + number} of the table"
                )
                if row.topic is None:
                    at = f"row {FIRST + number} of the task has a null topic"
                size = encoded_size(row) if kind is RowErrorKind.SIZE else None
                found.setdefault(number, Rejected(FIRST + number, kind, topic, size, said(row, at)))
    return list(found.values())
