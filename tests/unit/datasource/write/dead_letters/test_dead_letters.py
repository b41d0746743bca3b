"""Dead letters of one task, in front of an embedded broker; no Spark session. Ids: COM1, COM3, COM4, COM5, COM8."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from spark_producer import Producer
from spark_producer.broker import LocalBroker
from spark_producer.config import parse_options
from spark_producer.datasource.write.dead_letters.bounds import Bounds
from spark_producer.datasource.write.dead_letters.records import PREFIX
from spark_producer.datasource.write.driver.commit import TaskReport
from spark_producer.datasource.write.driver.report_formats import describe, to_json
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.worker.cache import ProducerCache
from spark_producer.datasource.write.worker.task import write_task
from spark_producer.errors import (
    BrokerError,
    ConfigError,
    PyProducerError,
    RecordError,
    RecordTooLarge,
    SchemaError,
    TooManyBadRows,
    TopicNotFound,
)
from spark_producer.metrics.metric_table import OWN, OWN_TOPIC
from tests.fakes.hurry import impatient
from tests.support.read_back import Row, read_topic

ROWS = 200
TIME = 1_700_000_000_000

pytestmark = pytest.mark.usefixtures("short_partition_grace")


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(auto_create_topics=False) as made:
        yield made


@pytest.fixture
def dead(broker: LocalBroker, topic: str) -> str:
    """A topic for rows, and one for those that are bad."""
    broker.create_topic(topic, 1)
    broker.create_topic(f"{topic}-dead", 1)
    return f"{topic}-dead"


def columns(**bad: Mapping[int, object]) -> pa.RecordBatch:
    """Good rows, but for `bad`: by column and row."""
    count = ROWS
    types: dict[str, pa.DataType] = {
        "key": pa.binary(), "value": pa.binary(), "topic": pa.string(), "partition": pa.int32(), "timestamp": pa.int64(),
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    }  # fmt: skip
    good: dict[str, Any] = {
        "key": [b"k%d" % row for row in range(count)],
        "value": [b"v%d" % row for row in range(count)],
        "partition": [None] * count,
        "timestamp": [TIME + row for row in range(count)],
        "headers": [[{"key": "h", "value": b"%d" % row}] for row in range(count)],
    }
    for name, rows in bad.items():
        good.setdefault(name, [None] * count)
        for row, value in rows.items():
            good[name][row] = value
    return pa.RecordBatch.from_pydict(good, schema=pa.schema({name: types[name] for name in good}))


def write(broker: LocalBroker, batch: pa.RecordBatch, dead: str | None, **options: object) -> TaskReport:
    """One task. Options have their own names, with `__` for a dot."""
    return write_as(False, "w", broker, batch, dead, options)


def write_as(
    streaming: bool,
    write_id: str,
    broker: LocalBroker,
    batch: pa.RecordBatch,
    dead: str | None,
    options: Mapping[str, object],
) -> TaskReport:
    """One task of the write with that id."""
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.max.block.ms": 5000}
    given |= {} if dead is None else {"deadLetterTopic": dead}
    given |= {name.replace("__", "."): value for name, value in options.items()}
    settings = TaskSettings(*parse_options(given), streaming=streaming, write_id=write_id)
    producers = ProducerCache()
    try:
        return write_task(settings, iter([batch.slice(0, 90), batch.slice(90)]), producers)
    finally:
        producers.clear()


@pytest.fixture
def missing_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `max.block.ms` pass for a topic as soon as the brokers do not know it."""
    cache = ProducerCache(lambda config: impatient(Producer(config)))
    monkeypatch.setattr(f"{__name__}.ProducerCache", lambda: cache)


def reported(row: Row) -> dict[str, str]:
    ours = [(name.removeprefix(PREFIX), value or b"") for name, value in row.headers if name.startswith(PREFIX)]
    return {name: value.decode(errors="replace") for name, value in ours}


BAD_HEADERS = [{"key": None, "value": b"x"}, {"key": "ok", "value": None}]
BAD: dict[str, tuple[dict[str, dict[int, object]], str, str]] = {
    "negative partition": ({"partition": {150: -1}}, "columns", "RecordError"),
    "missing partition": ({"partition": {150: 7}}, "partition", "RecordError"),
    "null header key": ({"headers": {150: BAD_HEADERS}}, "columns", "RecordError"),
    "null timestamp": ({"timestamp": {150: None}}, "columns", "RecordError"),
    "early timestamp": ({"timestamp": {150: -5}}, "columns", "RecordError"),
    "too large": ({"value": {150: b"x" * 5000}}, "columns", "RecordTooLarge"),
}  # fmt: skip


@pytest.mark.covers("COM1")
@pytest.mark.parametrize("case", BAD)
def test_a_bad_row_is_dead_and_the_good_ones_are_in_order(
    broker: LocalBroker, topic: str, dead: str, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    bad, stage, error = BAD[case]
    with caplog.at_level(logging.WARNING, "pyproducer"):
        report = write(broker, columns(**bad), dead, topic=topic, kafka__max__request__size=4096)
    good = read_topic(broker.bootstrap_servers, topic, expected=ROWS - 1)
    assert [row.value for row in good] == [b"v%d" % row for row in range(ROWS) if row != 150]
    (letter,) = read_topic(broker.bootstrap_servers, dead, expected=1)
    assert letter.key == b"k150"
    assert letter.value == (None if case == "too large" else b"v150")
    said = reported(letter)
    assert (said["topic"], said["row"], said["task.id"], said["attempt"]) == (topic, "150", "0", "0")
    assert (said["stage"], said["exception.class.name"]) == (stage, f"spark_producer.errors.{error}")
    assert "row 150 of the task" in said["exception.message"]
    assert said["write"] == "batch write"
    assert said.get("partition") == (str(bad["partition"][150]) if "partition" in bad else None)
    assert (abs(letter.timestamp_ms - (TIME + 150)) == 0) == ("timestamp" not in bad)
    own = [header for header in letter.headers if not header[0].startswith(PREFIX)]
    assert own == ([("ok", None)] if "headers" in bad else [("h", b"150")])
    assert said.get("headers.dropped") == ("1" if "headers" in bad else None)
    found = report.report
    assert (found.records, found.rejected, found.rejected_by) == (
        ROWS - 1,
        1,
        {"size" if case == "too large" else "row": 1},
    )
    assert set(found.ranges) == {(topic, 0)}
    assert set(found.dead_letters) == {(dead, 0)}
    assert report.metrics is not None
    metrics = report.metrics.snapshot()
    assert metrics.value(OWN, "record-rejected-total") == 1
    assert metrics.value(OWN_TOPIC, "record-rejected-total", topic) == 1
    (warning,) = [record for record in caplog.records if "dead-letter topic" in record.getMessage()]
    assert f"1 of {ROWS} rows of task 0 went to the dead-letter topic '{dead}' (by class: " in warning.getMessage()
    assert f"bad rows: 1 row went to the dead-letter topic '{dead}'" in describe(found)
    assert '"rejected": 1' in to_json("batch write", found)


@pytest.mark.covers("COM1")
@pytest.mark.usefixtures("missing_at_once")
def test_rows_without_topic_or_with_one_that_is_not_there(broker: LocalBroker, topic: str, dead: str) -> None:
    named = dict.fromkeys(range(ROWS), topic) | {3: None, 4: f"{topic}-missing", 5: "", 6: f"{topic}-missing"}
    report = write(broker, columns(topic=named), dead, deadLetterClasses="row, topic", kafka__max__block__ms=1500)
    letters = read_topic(broker.bootstrap_servers, dead, expected=4)
    assert {reported(row)["row"]: reported(row).get("topic") for row in letters} == {
        "3": None, "4": f"{topic}-missing", "5": "", "6": f"{topic}-missing",
    }  # fmt: skip
    assert {reported(row)["row"]: reported(row).get("code") for row in letters} == {
        "3": None,
        "4": "3",
        "5": None,
        "6": "3",
    }
    assert report.report.rejected_by == {"row": 1, "topic": 3}
    assert report.report.records == ROWS - 4
    with pytest.raises(RecordError, match="'' is not a topic name"):
        write(broker, columns(topic=named), dead, kafka__max__block__ms=1500)


@pytest.mark.covers("COM5")
def test_a_value_too_large_for_both_topics(broker: LocalBroker, topic: str, dead: str) -> None:
    value = bytes(range(256)) * 30
    write(
        broker, columns(value={10: value}), dead, topic=topic, kafka__max__request__size=4096, deadLetterHeaders="false"
    )
    (letter,) = read_topic(broker.bootstrap_servers, dead, expected=1)
    assert letter.value is None
    assert dict(letter.headers) == {
        "h": b"10",
        f"{PREFIX}value.bytes": b"7680",
        f"{PREFIX}value.sha256": hashlib.sha256(value).hexdigest().encode(),
        f"{PREFIX}value.head": value[:1024],
    }


@pytest.mark.covers("COM5")
@pytest.mark.parametrize("limit", ["request", "topic"])
def test_a_key_and_headers_too_large_for_both_topics(broker: LocalBroker, topic: str, limit: str) -> None:
    """Found by the task or by the brokers: the largest part is dropped first, and the others only if that is not enough."""
    sizes = {"configs": {"max.message.bytes": "4096"}} if limit == "topic" else {}
    for name in (topic, f"{topic}-dead"):
        broker.create_topic(name, 1, **sizes)
    key, other, value = bytes(range(256)) * 40, b"k" * 6000, b"v" * 5000
    headers = [{"key": "big", "value": b"h" * 9000}, {"key": "h", "value": b"1"}]
    batch = columns(key={10: key, 20: other}, value={20: value}, headers={20: headers})
    options: dict[str, object] = {"topic": topic} | ({"kafka__max__request__size": 4096} if limit == "request" else {})
    report = write(broker, batch, f"{topic}-dead", **options)
    assert (report.report.records, report.report.rejected_by) == (ROWS - 2, {"size": 2})
    letters = read_topic(broker.bootstrap_servers, f"{topic}-dead", expected=2)
    first, second = sorted(letters, key=lambda letter: int(reported(letter)["row"]))
    assert (first.key, first.value, first.headers[0]) == (None, b"v10", ("h", b"10"))
    said = dict(first.headers)
    assert said[f"{PREFIX}key.bytes"] == b"10240"
    assert said[f"{PREFIX}key.sha256"] == hashlib.sha256(key).hexdigest().encode()
    assert said[f"{PREFIX}key.head"] == key[:1024]
    assert f"{PREFIX}headers.dropped" not in said
    assert (second.key, second.value) == (None, None)
    assert all(name.startswith(PREFIX) for name, _ in second.headers)
    assert reported(second)["headers.dropped"] == "2"
    assert reported(second)["key.sha256"] == hashlib.sha256(other).hexdigest()
    assert reported(second)["value.sha256"] == hashlib.sha256(value).hexdigest()


@pytest.mark.covers("COM5")
def test_a_dead_letter_topic_without_space_for_our_headers_fails_the_write(broker: LocalBroker, topic: str) -> None:
    broker.create_topic(topic, 1)
    broker.create_topic(f"{topic}-dead", 1, configs={"max.message.bytes": "200"})
    with pytest.raises(BrokerError, match=f"{topic}-dead"):
        write(broker, columns(partition={1: -1}), f"{topic}-dead", topic=topic)


@pytest.mark.covers("COM4")
def test_without_the_headers_the_record_is_alone(broker: LocalBroker, topic: str, dead: str) -> None:
    write(broker, columns(partition={1: -1}), dead, topic=topic, deadLetterHeaders="false")
    (letter,) = read_topic(broker.bootstrap_servers, dead, expected=1)
    assert (letter.key, letter.value, letter.headers, letter.timestamp_ms) == (b"k1", b"v1", [("h", b"1")], TIME + 1)


@pytest.mark.covers("COM4")
@pytest.mark.parametrize("options", [{}, {"deadLetterClasses": "size,broker"}])
def test_a_row_of_a_class_that_is_off_ends_the_task_as_ever(
    broker: LocalBroker, topic: str, dead: str, options: dict[str, str]
) -> None:
    on = dead if options else None
    with pytest.raises(RecordError, match=r"partition -1 is negative .* row 150 of the task"):
        write(broker, columns(partition={150: -1}), on, topic=topic, **options)
    assert read_topic(broker.bootstrap_servers, dead) == []


@pytest.mark.covers("COM4")
def test_size_alone_leaves_the_other_classes_alone(broker: LocalBroker, topic: str, dead: str) -> None:
    options: dict[str, object] = {"topic": topic, "kafka__max__request__size": 4096}
    with pytest.raises(RecordTooLarge):
        write(broker, columns(value={5: b"x" * 5000}), dead, deadLetterClasses="row", **options)


@pytest.mark.covers("COM4")
@pytest.mark.parametrize(("most", "bad", "fails"), [(3, 3, False), (3, 4, True), (0, 1, True), (-1, 90, False)])
def test_max_bad_records_at_its_edge(
    broker: LocalBroker, topic: str, dead: str, most: int, bad: int, fails: bool
) -> None:
    batch = columns(partition=dict.fromkeys(range(100, 100 + bad), -1))
    if fails:
        with pytest.raises(TooManyBadRows, match=f"{bad} of 200 rows .* maxBadRecords .{most}.* row 100 of the task"):
            write(broker, batch, dead, topic=topic, maxBadRecords=most)
    else:
        assert write(broker, batch, dead, topic=topic, maxBadRecords=most).report.rejected == bad


@pytest.mark.covers("COM4")
@pytest.mark.parametrize(
    ("ratio", "rows", "bad", "fails"),
    [(0.1, 5, 5, False), (0.1, 999, 100, False), (0.1, 999, 101, True), (0.1, 2000, 200, False), (0.1, 2000, 201, True),
     (0.0, 5, 1, True), (1.0, 2000, 2000, False)],
)  # fmt: skip
def test_max_bad_ratio_at_its_edge(ratio: float, rows: int, bad: int, fails: bool) -> None:
    bounds = Bounds(-1, ratio)
    bounds.add("row", bad, ["a", "b", "c", "d"])
    if not fails:
        bounds.check(rows)
        return
    with pytest.raises(TooManyBadRows, match=r"maxBadRecordsRatio .* a; b; c$"):
        bounds.check(rows)


@pytest.mark.covers("COM3")
@pytest.mark.parametrize(
    ("bad", "error", "text"),
    [
        ({"topic": {5: "DEAD"}}, ConfigError, "it is the deadLetterTopic"),
        ({"topic": {5: "gone"}}, TopicNotFound, "gone"),
    ],
)
@pytest.mark.usefixtures("missing_at_once")
def test_what_is_never_swallowed(
    broker: LocalBroker,
    topic: str,
    dead: str,
    bad: dict[str, dict[int, object]],
    error: type[PyProducerError],
    text: str,
) -> None:
    named = dict.fromkeys(range(ROWS), topic) | {
        row: dead if name == "DEAD" else name for row, name in bad["topic"].items()
    }
    with pytest.raises(error, match=text):
        write(broker, columns(topic=named), dead, kafka__max__block__ms=1000)


@pytest.mark.covers("COM3")
@pytest.mark.usefixtures("missing_at_once")
def test_a_dead_letter_topic_that_is_missing_or_a_column_of_a_wrong_type_fails_the_task(
    broker: LocalBroker, topic: str, dead: str
) -> None:
    with pytest.raises(TopicNotFound, match=f"{dead}-missing"):
        write(broker, columns(partition={5: -1}), f"{dead}-missing", topic=topic, kafka__max__block__ms=1000)
    with pytest.raises(SchemaError):
        write(broker, pa.record_batch({"value": ["x"], "partition": ["y"]}), dead, topic=topic)


@pytest.mark.covers("COM8")
def test_a_second_attempt_writes_equal_places(broker: LocalBroker, topic: str, dead: str) -> None:
    for _ in range(2):
        write(broker, columns(partition={5: -1, 77: 9}), dead, topic=topic)
    found = [reported(row) for row in read_topic(broker.bootstrap_servers, dead, expected=4)]
    places = [(said["task.id"], said["row"], said["write.id"]) for said in found]
    assert sorted(places) == sorted(2 * [("0", "5", "w"), ("0", "77", "w")])


class Context:
    """The part of a TaskContext that is read. `query` and `batch` are as Spark gives them to the tasks of a micro-batch."""

    def __init__(self, query: str | None, batch: str | None) -> None:
        self._properties = {"sql.streaming.queryId": query, "streaming.sql.batchId": batch}

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)

    def partitionId(self) -> int:
        return 3

    def attemptNumber(self) -> int:
        return 1


@pytest.mark.covers("COM8")
@pytest.mark.parametrize(
    ("streaming", "query", "batch", "write_id", "said"),
    [
        (False, None, None, "one", ("batch write", "one")),
        (False, None, None, "two", ("batch write", "two")),
        (True, "q", "7", "one", ("micro-batch 7", "q/7")),
        (True, "q", "7", "two", ("micro-batch 7", "q/7")),
        (True, "other", "7", "two", ("micro-batch 7", "other/7")),
        (True, None, "7", "two", ("micro-batch 7", "two/7")),
        (False, "q", "7", "one", ("micro-batch 7", "one/7")),
    ],
    ids=["a write", "another", "a micro-batch", "it again", "of another query", "no query id", "in foreachBatch"],
)  # fmt: skip
def test_a_dead_letter_names_the_execution_of_its_write(
    broker: LocalBroker,
    topic: str,
    dead: str,
    monkeypatch: pytest.MonkeyPatch,
    streaming: bool,
    query: str | None,
    batch: str | None,
    write_id: str,
    said: tuple[str, str],
) -> None:
    """Two writes may each reject an equal row at an equal place; a micro-batch that is repeated is the same one."""
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: Context(query, batch))  # only Spark makes one
    write_as(streaming, write_id, broker, columns(partition={5: -1}), dead, {"topic": topic})
    (letter,) = read_topic(broker.bootstrap_servers, dead, expected=1)
    assert (reported(letter)["write"], reported(letter)["write.id"]) == said
    assert (reported(letter)["task.id"], reported(letter)["attempt"]) == ("3", "1")


@pytest.mark.covers("COM1")
@pytest.mark.parametrize("stage", ["columns", "broker"])
def test_headers_of_an_earlier_dead_letter_are_replaced(broker: LocalBroker, topic: str, stage: str) -> None:
    """A dead letter that was written again with all its headers, and is bad again."""
    broker.create_topic(topic, 1, configs={"max.message.bytes": "20000"})
    broker.create_topic(f"{topic}-dead", 1)
    old = [{"key": "h", "value": b"1"}, {"key": f"{PREFIX}row", "value": b"99"}, {"key": f"{PREFIX}old", "value": None}]
    fault: dict[str, dict[int, object]] = (
        {"partition": {150: -1}} if stage == "columns" else {"value": {150: b"x" * 30000}}
    )
    write(broker, columns(headers={150: old}, **fault), f"{topic}-dead", topic=topic)
    (letter,) = read_topic(broker.bootstrap_servers, f"{topic}-dead", expected=1)
    names = [name for name, _ in letter.headers]
    assert len(set(names)) == len(names)
    assert letter.headers[0] == ("h", b"1")
    assert (reported(letter)["row"], reported(letter)["stage"], reported(letter)["headers.dropped"]) == (
        "150",
        stage,
        "2",
    )
