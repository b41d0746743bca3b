"""Dead letters of an exactly-once write: they commit and abort with the rows, on both ways. Ids: COM6."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
import pytest

from spark_producer.broker import LocalBroker
from spark_producer.config import parse_options
from spark_producer.datasource.write.driver.commit import TaskReport
from spark_producer.datasource.write.driver.exactly_once_write import abort_write, begin_write, commit_write
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.worker.batch_assignment import SparkTaskInfo
from spark_producer.datasource.write.worker.cache import ProducerCache
from spark_producer.datasource.write.worker.exactly_once_task import write_exactly_once
from spark_producer.datasource.write.worker.transactional_ids import TransactionalIdPool
from spark_producer.errors import BrokerError
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.protocol.task_messages import InlineRows, PreparedTask
from spark_producer.metrics import OffsetRange
from tests.support.read_back import read_topic

ROWS = 100


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as made:
        yield made
    driver.close_all()


@pytest.fixture
def dead(broker: LocalBroker, topic: str) -> str:
    """A topic that takes rows of 5,000 bytes, and one for those that are bad."""
    broker.create_topic(topic, 1, configs={"max.message.bytes": "5000"})
    broker.create_topic(f"{topic}-dead", 1)
    return f"{topic}-dead"


def rows(large: bool) -> pa.RecordBatch:
    """One row has a bad partition; one may be too large, which only a broker can say."""
    values = [b"v%d" % row for row in range(ROWS)]
    if large:
        values[20] = b"x" * 6000
    partitions = [-1 if row == 10 else None for row in range(ROWS)]
    return pa.record_batch({"value": pa.array(values, pa.binary()), "partition": pa.array(partitions, pa.int32())})


def one_task(
    broker: LocalBroker, topic: str, dead: str, batch: pa.RecordBatch, **options: str
) -> tuple[TaskSettings, TaskReport]:
    """A write of one task, up to the commit. Options have their own names, with `__` for a dot."""
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic, "deadLetterTopic": dead}
    given |= {"exactlyOnceId": topic} | {name.replace("__", "."): value for name, value in options.items()}
    config, sink = parse_options(given)
    settings = begin_write(TaskSettings(config, sink))
    assert settings.handle is not None
    task, producers = SparkTaskInfo(None, None, False, 0, 0), ProducerCache()
    try:
        report = write_exactly_once(
            settings,
            settings.config,
            settings.handle,
            iter([batch]),
            producers,
            task=task,
            ids=TransactionalIdPool(),
        )
    finally:
        producers.clear()
    return settings, report


def committed(broker: LocalBroker, topic: str) -> list[bytes | None]:
    found = read_topic(broker.bootstrap_servers, topic, client="confluent", isolation="read_committed")
    return [row.value for row in found]


@pytest.mark.covers("COM6")
def test_they_commit_with_the_batch(broker: LocalBroker, topic: str, dead: str) -> None:
    settings, report = one_task(broker, topic, dead, rows(large=True))
    assert isinstance(report.outcome, PreparedTask), "the driver could not send rows elsewhere"
    assert report.outcome.rows == ROWS
    assert committed(broker, dead) == [], "nothing before the commit"
    total = commit_write(settings, [report], "batch write").report
    assert committed(broker, topic) == [b"v%d" % row for row in range(ROWS) if row not in (10, 20)]
    assert sorted(committed(broker, dead), key=str) == sorted([b"v10", b"x" * 6000], key=str)
    assert (total.records, total.rejected, total.rejected_by) == (ROWS - 2, 2, {"row": 1, "size": 1})
    assert set(total.ranges) == {(topic, 0)}
    assert total.dead_letters[dead, 0].records == 2


EXPECTED = "its own transaction"


@pytest.mark.covers("COM6")
def test_the_log_says_once_why_few_rows_do_not_go_by_the_driver(
    broker: LocalBroker, topic: str, dead: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for options in ({"deadLetterClasses": "row,schema"}, {"exactlyOnceMaxInlineBytes": "0"}):
            one_task(broker, topic, dead, rows(large=False), **options)
            assert EXPECTED not in caplog.text, options
        for _ in range(2):
            one_task(broker, topic, dead, rows(large=False))
    assert [each.levelno for each in caplog.records if EXPECTED in each.getMessage()] == [logging.INFO]
    assert f"exactlyOnceId {topic}: brokers may find rows bad (deadLetterClasses=row,size,broker" in caplog.text


@pytest.mark.covers("COM6")
def test_an_abort_takes_them_back(broker: LocalBroker, topic: str, dead: str) -> None:
    settings, report = one_task(broker, topic, dead, rows(large=True))
    abort_write(settings, [report], "batch write")
    assert committed(broker, topic) == committed(broker, dead) == []


@pytest.mark.covers("COM6")
def test_rows_that_the_task_itself_finds_bad_go_by_the_driver(broker: LocalBroker, topic: str, dead: str) -> None:
    settings, report = one_task(broker, topic, dead, rows(large=False), deadLetterClasses="row")
    assert isinstance(report.outcome, InlineRows)
    assert committed(broker, dead) == []
    total = commit_write(settings, [report], "batch write").report
    assert committed(broker, topic) == [b"v%d" % row for row in range(ROWS) if row != 10]
    assert committed(broker, dead) == [b"v10"]
    assert (total.records, total.rejected, total.rejected_by) == (ROWS - 1, 1, {"row": 1})
    assert total.ranges == {(topic, 0): OffsetRange(0, ROWS - 2, ROWS - 1)}
    assert total.dead_letters[dead, 0].records == 1


@pytest.mark.covers("COM6")
def test_a_task_without_rows_leaves_nothing(broker: LocalBroker, topic: str, dead: str) -> None:
    settings, report = one_task(broker, topic, dead, rows(large=False).slice(0, 0))
    assert isinstance(report.outcome, InlineRows)
    assert commit_write(settings, [report], "batch write").report.records == 0


@pytest.mark.covers("COM6")
def test_batches_after_a_refused_one_get_new_sequences_within_the_transaction(
    broker: LocalBroker, topic: str, dead: str
) -> None:
    count = 3000
    bad = set(range(250, count, 500))
    values = [b"%05d" % row + b"." * (6000 if row in bad else 90) for row in range(count)]
    batch = pa.record_batch({"value": pa.array(values, pa.binary())})
    small = {"kafka__batch__size": "2000", "kafka__linger__ms": "0"}
    small |= {"kafka__retry__backoff__ms": "10", "kafka__retry__backoff__max__ms": "10"}
    settings, report = one_task(broker, topic, dead, batch, **small)
    total = commit_write(settings, [report], "batch write").report
    assert [int((value or b"")[:5]) for value in committed(broker, topic)] == [
        row for row in range(count) if row not in bad
    ]
    assert sorted(int((value or b"")[:5]) for value in committed(broker, dead)) == sorted(bad)
    assert (total.records, total.rejected) == (count - len(bad), len(bad))


@pytest.mark.covers("COM6")
@pytest.mark.parametrize("inline", ["0", "4194304"])
def test_a_bad_row_that_is_too_large_for_the_dead_letter_topic_is_not_lost(
    broker: LocalBroker, topic: str, inline: str
) -> None:
    """For these classes no broker is asked, but that of the dead-letter topic may refuse; the driver makes no record smaller."""
    broker.create_topic(topic, 1)
    broker.create_topic(f"{topic}-dead", 1, configs={"max.message.bytes": "5000"})
    values = [b"x" * 6000 if row == 10 else b"v%d" % row for row in range(ROWS)]
    partitions = [-1 if row == 10 else None for row in range(ROWS)]
    batch = pa.record_batch({"value": pa.array(values, pa.binary()), "partition": pa.array(partitions, pa.int32())})
    options = {"deadLetterClasses": "row,schema", "exactlyOnceMaxInlineBytes": inline}
    settings, report = one_task(broker, topic, f"{topic}-dead", batch, **options)
    if inline != "0":
        with pytest.raises(BrokerError, match=f"MESSAGE_TOO_LARGE .* rows for topic '{topic}-dead'"):
            commit_write(settings, [report], "batch write")
        assert committed(broker, topic) == []
        return
    total = commit_write(settings, [report], "batch write").report
    assert committed(broker, topic) == [b"v%d" % row for row in range(ROWS) if row != 10]
    assert committed(broker, f"{topic}-dead") == [None], "without its value, as the headers say"
    assert (total.records, total.rejected) == (ROWS - 1, 1)
