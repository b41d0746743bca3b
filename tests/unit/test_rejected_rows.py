"""Rows that cannot be written, as values: who asks takes the good rows and keeps the others, or raises the first, as the
producer does. A model of one row at a time says which rows these are, why, and which of them goes first."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spark_producer import Producer, topic_wait
from spark_producer.config import producer_config
from spark_producer.errors import RecordError, RecordTooLarge
from spark_producer.kernel import ArrangedRows, encode_v2, group_rows
from spark_producer.partitioner import Partitioner, TopicPartitions, describe_topic
from spark_producer.partitioner.round_robin import RoundRobinPartitioner
from spark_producer.producer.checks import too_large
from spark_producer.producer.topic_lookup import misnamed
from spark_producer.record import header_column
from spark_producer.record.columns import Columns
from spark_producer.record.pieces import BatchPieces
from spark_producer.record.rejected import Kind, Rejected, RejectedRows
from tests.stages.scripted_cluster import ScriptedCluster

Start = Callable[..., Producer]

FIRST, NOW = 70, 1_700_000_000_000
LIMIT = 2048
COUNTS = {b"a": 3, b"b": 1}
NO_TEXT = b"\xff"
HEADERS = 2
"""A record may have so many here."""
LAST_SECOND = (2**63 - 1) // 1000
CONFIG = producer_config({"bootstrap.servers": "h:1", "max.request.size": LIMIT, "batch.size": 1024})
ADVICE = (
    "kafka.max.request.size (2048) or kafka.buffer.memory (33554432); raise it, and the topic's max.message.bytes, or make "
    "the row smaller"
)


NO_NAME = "'' is no topic name: a name is text of 1 to 249 letters, digits, '.', '_' and '-'"


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
flaws = st.lists(st.sampled_from(FLAWS), max_size=2)


def flawed(row: Row, found: Sequence[dict[str, Any]]) -> Row:
    for flaw in found:
        row = row._replace(**flaw)
    return row


tables = st.lists(st.one_of(good_rows, st.builds(flawed, good_rows, flaws)), min_size=1, max_size=20)


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


# --- the model ------------------------------------------------------------------------------------------------------


class Check(NamedTuple):
    """Which rows are bad, what is said of one, and how much of it there is, if the worst one goes first."""

    kind: Kind
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


def checks_of(rows: Sequence[Row]) -> list[list[Check]]:
    """In the order in which they are made; the later ones see only what the earlier ones have left."""
    last = FIRST + len(rows) - 1
    none_above = not any((row.time or 0) > LAST_SECOND for row in rows)
    no_text = f"a topic name in rows {FIRST} to {last} of the task is not UTF-8; correct the column"
    return [
        [
            Check(Kind.TOPIC, lambda row: row.topic is None, lambda _, at: at + "; fill it, or set the option 'topic'"),
            Check(Kind.TOPIC, lambda row: row.topic == NO_TEXT, lambda _, __: no_text),
            Check(
                Kind.HEADERS,
                lambda row: len(row.headers) > HEADERS,
                lambda row, at: f"a row has {len(row.headers)} headers ({at}); a record may have 2",
                lambda row: len(row.headers),
            ),
            Check(
                Kind.HEADERS,
                lambda row: None in row.headers,
                lambda _, at: f"a header key is null ({at}); Kafka's header keys are never null",
            ),
            Check(
                Kind.HEADERS,
                lambda row: b"\xfe" in row.headers,
                lambda _, at: f"a header key is not UTF-8 ({at}); consumers stumble over it: correct it",
            ),
            Check(
                Kind.TIMESTAMP,
                lambda row: row.time is None,
                lambda _, at: f"the timestamp is null ({at}); fill it, or drop the column for the time of writing",
            ),
            Check(
                Kind.TIMESTAMP,
                lambda row: abs(row.time or 0) > LAST_SECOND,
                lambda row, at: f"the timestamp is {row.time} s, beyond what milliseconds can say ({at})",
                lambda row: -(row.time or 0) if none_above else row.time or 0,
            ),
            Check(
                Kind.TIMESTAMP,
                lambda row: -LAST_SECOND <= (row.time or 0) < 0,
                lambda row, at: (
                    f"the timestamp is {(row.time or 0) * 1000} ms, before 1970 ({at}); Kafka has no such time"
                ),
            ),
            Check(
                Kind.PARTITION,
                lambda row: (row.partition or 0) < 0,
                lambda row, at: f"partition {row.partition} is negative ({at}); null leaves the choice to the producer",
            ),
        ],
        [
            Check(
                Kind.SIZE,
                lambda row: encoded_size(row) > LIMIT - 61,
                lambda row, at: f"a record of {encoded_size(row)} bytes ({at}) exceeds {ADVICE}",
                encoded_size,
            )
        ],
        [Check(Kind.TOPIC, lambda row: row.topic == b"", lambda _, __: NO_NAME)],
        [
            Check(
                Kind.PARTITION,
                lambda row: not exists(row),
                lambda row, at: f"partition {row.partition} does not exist ({at}): the topic has {there(row)}",
            )
        ],
    ]


def expected_of(rows: Sequence[Row]) -> list[Rejected]:
    """What is to be told of a table, in this order."""
    found: dict[int, Rejected] = {}
    for checks in checks_of(rows):
        left = [number for number in range(len(rows)) if number not in found]
        for kind, bad, said, weight in checks:
            these = [number for number in left if bad(rows[number])]
            if weight is not None and these:
                worst = max(these, key=lambda number: weight(rows[number]))
                these = [worst, *(number for number in these if number != worst)]
            for number in these:
                row = rows[number]
                topic = None if row.topic in (None, NO_TEXT) else row.topic.decode()
                at = f"topic {topic!r}, row {FIRST + number} of the task"
                if row.topic is None:
                    at = f"row {FIRST + number} of the task has a null topic"
                size = encoded_size(row) if kind is Kind.SIZE else None
                found.setdefault(number, Rejected(FIRST + number, kind, topic, size, said(row, at)))
    return list(found.values())


# --- who takes what is good -----------------------------------------------------------------------------------------


class Encoded(dict[Any, bytes]):
    """The records of each (topic, partition), one behind the other."""

    def __init__(self) -> None:
        self._partitioner = Partitioner(None, RoundRobinPartitioner(random_start=False))
        self._counts: dict[Any, int] = {}

    def reject(self, columns: Columns) -> RejectedRows:
        return self._partitioner.reject(columns, topics_of(columns))

    def append(self, columns: Columns) -> None:
        assignment = self._partitioner.assign(columns, topics_of(columns))
        rows, bounds = group_rows(assignment.slots, assignment.slot_count)
        arranged = ArrangedRows(columns.records, rows)
        for slot in np.flatnonzero(np.diff(bounds)).tolist():
            first, stop, out = int(bounds[slot]), int(bounds[slot + 1]), memoryview(bytearray(1 << 17))
            codes, partitions = assignment.places(np.array([slot]))
            place = columns.topics[codes[0]], partitions[0]
            count = self._counts.get(place, 0)
            following, end, _ = encode_v2(arranged, first, stop, count, 0, out, 0, len(out))
            assert following == stop
            self[place] = self.get(place, b"") + bytes(out[:end])
            self._counts[place] = count + stop - first


def parted(batch: pa.RecordBatch, piece: int = 1 << 20) -> tuple[list[Columns], RejectedRows, Encoded]:
    """The good rows, the others, and the bytes of the good ones, as a caller takes them who wants to write what can be."""
    pieces = BatchPieces(batch, piece, LIMIT, None, NOW, FIRST)
    good, rejected, encoded = [], pieces.rejected, Encoded()
    for read in pieces:
        read = read.without(too_large(read.columns, CONFIG))
        read = read.without(misnamed(read.columns))
        read = read.without(encoded.reject(read.columns))
        rejected += read.rejected
        good.append(read.columns)
        encoded.append(read.columns)
    return good, rejected, encoded


def topics_of(columns: Columns) -> list[TopicPartitions]:
    return [describe_topic(name, tuple(range(COUNTS[name.encode()]))) for name in columns.topics]


@pytest.fixture(autouse=True)
def few_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header_column, "MOST_HEADERS", HEADERS)


def assert_parted(rows: Sequence[Row], batch: pa.RecordBatch, piece: int = 1 << 20) -> list[Rejected]:
    """Every row is in one of the two lists; the good ones have their numbers and become what they become alone."""
    good, found, encoded = parted(batch, piece)
    rejected = list(found)
    assert len(rejected) == len(found)
    numbers = [columns.row_number(row) for columns in good for row in range(len(columns.records))]
    assert sorted(numbers + [told.row for told in rejected]) == list(range(FIRST, FIRST + len(rows)))
    assert numbers == sorted(numbers)
    assert encoded == parted(batch.take(pa.array([number - FIRST for number in numbers], pa.int64())), piece)[2]
    return rejected


def test_the_good_rows_encode_as_if_there_were_no_others() -> None:
    @given(tables)
    def check(rows: list[Row]) -> None:
        assert assert_parted(rows, batch_of(rows)) == expected_of(rows)

    check()


def test_so_they_do_in_pieces_with_dictionaries() -> None:
    """Rows that nobody could decode are told of before the pieces are read; what is wrong besides plays no part."""

    @given(tables, st.sampled_from([400, 1 << 20]))
    def check(rows: list[Row], piece: int) -> None:
        rejected = {told.row: told for told in assert_parted(rows, batch_of(rows, dictionaries=True), piece)}
        large = {FIRST + number for number, row in enumerate(rows) if row.value > LIMIT}
        assert large == {told.row for told in rejected.values() if "with its dictionaries decoded" in told.message}
        expected = {told.row: told for told in expected_of(rows)}
        assert rejected.keys() == expected.keys()
        for number in rejected.keys() - large:
            assert rejected[number][:4] == expected[number][:4]
        for number in large:
            row = rows[number - FIRST]
            topic = None if row.topic in (None, NO_TEXT) else row.topic.decode()
            assert rejected[number][:4] == (number, Kind.SIZE, topic, row.value)

    check()


@pytest.mark.parametrize("flaw", FLAWS, ids=str)
def test_each_flaw_alone_is_found(flaw: dict[str, Any]) -> None:
    rows = [Row(), flawed(Row(), [flaw]), Row(value=2)]
    (told,) = assert_parted(rows, batch_of(rows))
    assert told == expected_of(rows)[0]
    assert isinstance(told.error(), RecordTooLarge if told.kind is Kind.SIZE else RecordError)
    assert pickle.loads(pickle.dumps(told)) == told


@pytest.mark.parametrize("flaw", FLAWS, ids=str)
def test_nothing_may_be_left(flaw: dict[str, Any]) -> None:
    rows = [flawed(Row(), [flaw])] * 3
    assert assert_parted(rows, batch_of(rows)) == expected_of(rows)


def test_timestamps_without_a_type_are_null() -> None:
    batch = pa.record_batch({"value": ["v"] * 2, "topic": ["a"] * 2, "timestamp": pa.nulls(2)})
    (good,), rejected, _ = parted(batch)
    assert len(good.records) == 0
    assert [told.row for told in rejected] == [FIRST, FIRST + 1]


def test_a_topic_that_only_bad_rows_have_is_not_asked_for() -> None:
    rows = [Row(topic=b"a"), Row(topic=b"b", partition=-1)]
    (good,), _, _ = parted(batch_of(rows))
    assert good.topics == ("a",)


def test_good_rows_are_not_copied() -> None:
    batch = batch_of([Row(value=100)] * 10)
    ((good,), rejected, _), address = parted(batch), batch.column("value").buffers()[2].address
    assert not len(rejected)
    assert good.records.value.data.ctypes.data == address


# --- who takes all rows or none -------------------------------------------------------------------------------------


def test_the_producer_raises_the_first_and_sends_nothing(
    cluster: ScriptedCluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_wait, "PARTITION_GRACE", 0.0)
    cluster.topics = {"a": 3, "b": 1}
    producer = start(max_request_size=LIMIT, batch_size=1024)

    @given(tables)
    def check(rows: list[Row]) -> None:
        expected = expected_of(rows)
        assume(expected)
        with pytest.raises(RecordError) as raised:
            producer.send_batch(batch_of(rows), first_row=FIRST)
        assert str(raised.value) == expected[0].message
        assert type(raised.value) is (RecordTooLarge if expected[0].kind is Kind.SIZE else RecordError)

    check()
    producer.flush()
    assert not any(cluster.log.values())


def test_rows_of_a_table_keep_their_numbers_where_some_are_left_out() -> None:
    rows = [Row(), Row(partition=-1), Row(), Row(time=None), Row()]
    (good,), _, _ = parted(batch_of(rows))
    assert good.records.numbers_of(np.array([2, 0, 1])).tolist() == [FIRST + 4, FIRST, FIRST + 2]
    assert good.place(2) == f"topic 'a', row {FIRST + 4} of the task"
