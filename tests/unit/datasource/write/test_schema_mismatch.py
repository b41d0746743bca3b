"""Rows whose schema refuses them, of one task in front of an embedded broker; no Spark session. Ids: COM1, COM4."""

from __future__ import annotations

import datetime
import io
import json
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from spark_producer.broker import LocalBroker
from spark_producer.config import parse_options
from spark_producer.datasource.write.dead_letters.records import PREFIX
from spark_producer.datasource.write.driver.commit import TaskReport
from spark_producer.datasource.write.schema_mismatch import MismatchedColumn, MismatchedPiece
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.worker.cache import ProducerCache
from spark_producer.datasource.write.worker.task import write_task
from spark_producer.errors import RecordError, TooManyBadRows
from spark_producer.kernel.avro_columns import SchemaMismatchRows
from spark_producer.schemas.column_format import ColumnFormat, Formats
from spark_producer.schemas.plan import plan_of
from spark_producer.schemas.wire_format import prefix_of
from tests.support.read_back import Row, read_topic

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "id", "type": "long"}, {"name": "at", "type": ["null", "string"]}],
}
KIND = pa.struct([("id", pa.int64()), ("at", pa.string())])
FORMATS = Formats(value=ColumnFormat(prefix_of(7), plan_of(SCHEMA, KIND, "value")))
ROWS = 200
BAD = (3, 95, 150)

pytestmark = pytest.mark.usefixtures("short_partition_grace")


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(auto_create_topics=False) as made:
        yield made


@pytest.fixture
def dead(broker: LocalBroker, topic: str) -> str:
    broker.create_topic(topic, 1)
    broker.create_topic(f"{topic}-dead", 1)
    return f"{topic}-dead"


def frame(bad: tuple[int, ...] = BAD, **more: dict[int, object]) -> pa.RecordBatch:
    values = [{"id": None if row in bad else row, "at": f"é{row}"} for row in range(ROWS)]
    columns: dict[str, Any] = {
        "key": pa.array([b"k%d" % row for row in range(ROWS)], pa.binary()),
        "value": pa.array(values, KIND),
    }
    for name, rows in more.items():
        columns[name] = pa.array([rows.get(row) for row in range(ROWS)], pa.int32())
    return pa.RecordBatch.from_pydict(columns)


def write(broker: LocalBroker, batch: pa.RecordBatch, formats: Formats = FORMATS, **options: object) -> TaskReport:
    config, sink = parse_options({"kafka.bootstrap.servers": broker.bootstrap_servers, **options})
    producers = ProducerCache()
    try:
        parts = iter([batch.slice(0, 90), batch.slice(90)])
        return write_task(TaskSettings(config, sink, formats=formats), parts, producers)
    finally:
        producers.clear()


def reported(row: Row) -> dict[str, str]:
    return {name.removeprefix(PREFIX): (value or b"").decode() for name, value in row.headers}


@pytest.mark.covers("COM1")
def test_a_row_that_its_schema_refuses_is_dead_as_json(broker: LocalBroker, topic: str, dead: str) -> None:
    report = write(broker, frame(partition={20: 9}), topic=topic, deadLetterTopic=dead)
    assert report.report.rejected_by == {"schema": 3, "row": 1}
    good = read_topic(broker.bootstrap_servers, topic, expected=ROWS - 4)
    read = [fastavro.schemaless_reader(io.BytesIO((row.value or b"")[5:]), SCHEMA, None) for row in good]
    assert [each["id"] for each in read] == [row for row in range(ROWS) if row not in (*BAD, 20)]
    found = {reported(row)["row"]: row for row in read_topic(broker.bootstrap_servers, dead, expected=4)}
    for row in BAD:
        assert json.loads(found[str(row)].value or b"") == {"id": None, "at": f"é{row}"}
        assert found[str(row)].key == b"k%d" % row
        said = reported(found[str(row)])
        assert (said["stage"], said["topic"]) == ("encode", topic)
        assert said["exception.class.name"] == "spark_producer.errors.RecordError"
        assert said["exception.message"].startswith(
            f"row {row} of the task does not fit its Avro schema: field 'value.id'"
        )
    assert reported(found["20"])["stage"] == "partition"
    assert fastavro.schemaless_reader(io.BytesIO((found["20"].value or b"")[5:]), SCHEMA, None)["id"] == 20


@pytest.mark.covers("COM1")
def test_what_a_logical_type_or_a_union_forbids_is_dead_and_names_the_reason(
    broker: LocalBroker, topic: str, dead: str
) -> None:
    letters = [{"type": "enum", "name": f"E{symbol}", "symbols": [symbol]} for symbol in ("A", "B")]
    kinds: dict[str, Any] = {
        "u": {"type": "string", "logicalType": "uuid"},
        "t": {"type": "int", "logicalType": "time-millis"},
        "e": letters,
        "f": {"type": "fixed", "name": "F", "size": 2},
    }
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in kinds.items()]}
    good = {"u": "123e4567-e89b-12d3-a456-426614174000", "t": 1, "e": "B", "f": b"ab"}
    bad = {"u": "word", "t": 90_000_000, "e": "C", "f": b"abc"}
    rows = [good, *(good | {name: value} for name, value in bad.items()), good]
    kind = pa.struct([("u", pa.string()), ("t", pa.int32()), ("e", pa.string()), ("f", pa.binary())])
    batch = pa.RecordBatch.from_pydict({"value": pa.array(rows, kind)})
    formats = Formats(value=ColumnFormat(prefix_of(7), plan_of(schema, kind, "value")))
    report = write(broker, batch, formats, topic=topic, deadLetterTopic=dead, maxBadRecordsRatio=1)
    assert report.report.rejected_by == {"schema": 4}
    parsed = fastavro.parse_schema(schema)
    for row in read_topic(broker.bootstrap_servers, topic, expected=2):
        found: Any = fastavro.schemaless_reader(io.BytesIO((row.value or b"")[5:]), parsed, None)
        assert (str(found["u"]), found["t"].microsecond, found["e"], found["f"]) == (good["u"], 1000, "B", b"ab")
    found = {reported(row)["row"]: row for row in read_topic(broker.bootstrap_servers, dead, expected=4)}
    reasons = (
        "it is not a UUID",
        "it is not a time of day",
        "no type of its union accepts it: enum 'EA', enum 'EB'",
        "it does not have 2 bytes",
    )
    for number, (name, reason) in enumerate(zip(kinds, reasons, strict=True), 1):
        assert f"field 'value.{name}': {reason}" in reported(found[str(number)])["exception.message"]
        assert json.loads(found[str(number)].value or b"")["t"] == rows[number]["t"]


@pytest.mark.covers("COM1")
def test_a_string_that_is_not_utf8_is_dead(broker: LocalBroker, topic: str, dead: str) -> None:
    at: Any = pa.array([b"\xe9" if row in BAD else b"x" for row in range(ROWS)]).view(pa.string())
    values = pa.StructArray.from_arrays([pa.array(range(ROWS)), at], fields=list(KIND))
    batch = pa.RecordBatch.from_pydict({"value": values})
    assert write(broker, batch, topic=topic, deadLetterTopic=dead).report.rejected_by == {"schema": len(BAD)}
    letters = read_topic(broker.bootstrap_servers, dead, expected=len(BAD))
    assert [letter.value for letter in letters] == ['{"id":%d,"at":"\ufffd"}'.encode() % row for row in BAD]
    assert "field 'value.at': it is not UTF-8" in reported(letters[0])["exception.message"]
    with pytest.raises(RecordError, match=r"row 3 of the task .* field 'value\.at': it is not UTF-8"):
        write(broker, batch, topic=topic)


@pytest.mark.covers("COM4")
@pytest.mark.parametrize("options", [{}, {"deadLetterClasses": "row,size"}])
def test_without_the_class_schema_the_first_such_row_ends_the_task(
    broker: LocalBroker, topic: str, dead: str, options: dict[str, Any]
) -> None:
    if options:
        options = options | {"deadLetterTopic": dead}
    with pytest.raises(
        RecordError, match=r"row 3 of the task does not fit its Avro schema: field 'value\.id': it is null"
    ):
        write(broker, frame(), topic=topic, **options)


@pytest.mark.covers("COM4")
def test_the_class_schema_alone_needs_no_broker_and_is_bounded(broker: LocalBroker, topic: str, dead: str) -> None:
    alone: dict[str, Any] = {"topic": topic, "deadLetterTopic": dead, "deadLetterClasses": "schema"}
    with pytest.raises(TooManyBadRows, match="row 3 of the task does not fit"):
        write(broker, frame(), maxBadRecords=2, **alone)
    assert write(broker, frame(), maxBadRecords=3, **alone).report.rejected_by == {"schema": 3}


@pytest.mark.covers("COM4")
def test_a_task_of_which_no_row_fits(broker: LocalBroker, topic: str, dead: str) -> None:
    options: dict[str, Any] = {"topic": topic, "deadLetterTopic": dead, "maxBadRecordsRatio": 1}
    report = write(broker, frame(tuple(range(ROWS))), **options)
    assert report.report.rejected_by == {"schema": ROWS}
    found = read_topic(broker.bootstrap_servers, dead, expected=ROWS)
    assert [reported(row)["row"] for row in found] == [str(row) for row in range(ROWS)]


@pytest.mark.covers("COM1")
def test_both_columns_of_one_row_may_be_unfit(broker: LocalBroker, topic: str, dead: str) -> None:
    batch = frame()
    twice = pa.RecordBatch.from_pydict({"key": batch.column("value"), "value": batch.column("value")})
    formats = Formats(value=FORMATS.value, key=FORMATS.value)
    report = write(broker, twice, formats, topic=topic, deadLetterTopic=dead)
    assert report.report.rejected_by == {"schema": 3}
    for row in read_topic(broker.bootstrap_servers, dead, expected=3):
        assert row.key == row.value
        assert json.loads(row.key or b"")["id"] is None


@pytest.mark.covers("COM1")
@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [
        ({"a": b"\xff\x00"}, pa.struct([("a", pa.binary())]), '{"a":"/wA="}'),
        ({"a": float("nan")}, pa.struct([("a", pa.float64())]), '{"a":"NaN"}'),
        ({"a": -math.inf}, pa.struct([("a", pa.float32())]), '{"a":"-Infinity"}'),
        ({"a": 1e10}, pa.struct([("a", pa.float64())]), '{"a":1.0E10}'),
        ({"a": Decimal("-1E-7")}, pa.struct([("a", pa.decimal128(38, 10))]), '{"a":-1.000E-7}'),
        ({"a": datetime.date(1969, 12, 31)}, pa.struct([("a", pa.date32())]), '{"a":"1969-12-31"}'),
        ({"a": 1}, pa.struct([("a", pa.timestamp("us", "UTC"))]), '{"a":"1970-01-01T00:00:00.000001Z"}'),
        ({"a": -(1 << 63)}, pa.struct([("a", pa.timestamp("us"))]), '{"a":"-290308-12-21T19:59:05.224192"}'),
        (
            {"a": datetime.timedelta(days=1)},
            pa.struct([("a", pa.duration("us"))]),
            '{"a":"INTERVAL \'1 00:00:00\' DAY TO SECOND"}',
        ),
        ({"a": 86_400_000_000}, pa.struct([("a", pa.time64("us"))]), '{"a":86400000000}'),
        ({"a": [("k", None), ("l", 1)]}, pa.struct([("a", pa.map_(pa.string(), pa.int32()))]), '{"a":{"k":null,"l":1}}'),
        ({"a": [[True], None]}, pa.struct([("a", pa.list_(pa.list_(pa.bool_())))]), '{"a":[[true],null]}'),
        (None, pa.struct([("a", pa.int32())]), "null"),
    ],
)  # fmt: skip
def test_a_dead_struct_is_the_json_of_as_records(value: object, kind: pa.DataType, shown: str) -> None:
    column = pa.array([None, value], kind)
    bad = MismatchedColumn("value", column, [SchemaMismatchRows("value", "it is so", pa.array([1]).to_numpy())], "Avro")
    encoded = pa.RecordBatch.from_pydict({"value": pa.array([None, None], pa.binary())})
    piece = MismatchedPiece(encoded, [bad])
    assert piece.text_of("value", 1) == shown.encode()
    assert piece.text_of("value", 0) is None
    assert piece.text_of("key", 1) is None


@pytest.mark.covers("COM1")
def test_texts_of_a_dead_struct_that_are_not_utf_8_are_shown_as_far_as_they_can_be_read() -> None:
    text: Any = pa.array([b'a\xff"', b"b", None], pa.binary()).view(pa.string())
    keys: Any = pa.array([b"\xfe", b"k", b"l"], pa.binary()).view(pa.string())
    offsets: Any = pa.array([0, 1, 3], pa.int32())
    numbers: Any = pa.array([1e10, None, float("nan")])
    inner = pa.StructArray.from_arrays([text, numbers], ["t", "n"])
    maps = pa.MapArray.from_arrays(offsets, keys, numbers)
    column = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 0, 3], inner), maps.slice(0, 2)], ["l", 'q"'])
    bad = MismatchedColumn(
        "value", column, [SchemaMismatchRows("value", "it is so", pa.array([0, 1]).to_numpy())], "Avro"
    )
    piece = MismatchedPiece(pa.RecordBatch.from_pydict({"value": pa.array([None, None], pa.binary())}), [bad])
    assert piece.text_of("value", 0) == '{"l":[],"q\\"":{"\ufffd":1.0E10}}'.encode()
    shown = '{"l":[{"t":"a\ufffd\\"","n":1.0E10},{"t":"b","n":null},{"t":null,"n":"NaN"}],"q\\"":{"k":null,"l":"NaN"}}'
    assert piece.text_of("value", 1) == shown.encode()
