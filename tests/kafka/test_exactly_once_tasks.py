"""Tasks of exactly-once writes between a real BEGIN and COMMIT, as Spark runs them: repeated, twice at once, too late.

There is no Spark session: a `Worker` has what one of its Python workers has. All is read by librdkafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from spark_producer.config import ProducerConfig, SinkOptions, producer_config
from spark_producer.datasource.write.driver.transaction_timeout import max_transaction_timeout_ms
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.worker.batch_assignment import SparkTaskInfo
from spark_producer.datasource.write.worker.cache import ProducerCache
from spark_producer.datasource.write.worker.exactly_once_task import write_exactly_once
from spark_producer.datasource.write.worker.transactional_ids import TransactionalIdPool
from spark_producer.errors import BrokerError, ExactlyOnceError
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.protocol.task_messages import InlineRows, PreparedTask, TaskOutcome, WriteHandle
from spark_producer.network import ConnectionSettings
from tests.conftest import Broker
from tests.support.read_back import read_topic

ROWS = 100


@dataclass
class Worker:
    """The objects of one Python worker of Spark."""

    config: ProducerConfig
    ids: TransactionalIdPool = field(default_factory=TransactionalIdPool)
    producers: ProducerCache = field(default_factory=ProducerCache)

    def write(
        self,
        handle: WriteHandle,
        partition: int,
        batches: Iterator[pa.RecordBatch] | None = None,
        *,
        batch: int = 0,
        attempt: int = 0,
        inline_bytes: int = 0,
        spool: str = "auto",
    ) -> TaskOutcome:
        """Run one task; without `batches` with the rows of its partition."""
        sink = SinkOptions(
            topic=handle.sink,
            exactly_once_id=handle.sink,
            exactly_once_max_inline_bytes=inline_bytes,
            exactly_once_spool_to_disk=spool,
        )
        settings = TaskSettings(self.config, sink, streaming=True, handle=handle)
        task = SparkTaskInfo("q1", batch, True, partition, attempt)
        rows = batches or iter([rows_of(partition, batch)])
        report = write_exactly_once(settings, self.config, handle, rows, self.producers, task=task, ids=self.ids)
        assert report.outcome is not None
        return report.outcome


def rows_of(partition: int, batch: int = 0) -> pa.RecordBatch:
    """The rows of a task: no other has the same."""
    first = (10 * batch + partition) * ROWS
    return pa.record_batch({"value": [str(number) for number in range(first, first + ROWS)]})


@dataclass
class Write:
    """A sink, whose name is that of its topic, and two workers."""

    broker: Broker
    sink: driver.SinkSettings
    workers: tuple[Worker, Worker]

    def committed(self) -> Counter[int]:
        """Return the count of each number in committed records; waits for open transactions."""
        found = read_topic(
            self.broker.bootstrap_servers, self.sink.name, client="confluent", isolation="read_committed"
        )
        return Counter(int(row.value or b"") for row in found)


def numbers(*tasks: tuple[int, int]) -> Counter[int]:
    """Return the rows that readers should see of tasks, given as partition and batch."""
    return Counter(int(value.as_py()) for task in tasks for value in rows_of(*task)["value"])


@pytest.fixture
def write(broker: Broker, topic: str) -> Iterator[Write]:
    broker.create_topic(topic, 3)
    config = producer_config({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "lz4"})
    with ExitStack() as stack:
        workers = Worker(config), Worker(config)
        for worker in workers:
            stack.callback(worker.producers.clear)
        yield Write(broker, driver.SinkSettings(topic, ConnectionSettings.from_config(config)), workers)


def failing(partition: int) -> Iterator[pa.RecordBatch]:
    """A task that fails when many of its rows are sent."""
    yield from [rows_of(partition).slice(0, 90)] * 200
    raise ValueError("boom")


def test_a_task_that_is_tried_again_is_seen_once(write: Write) -> None:
    handle = driver.begin(write.sink)
    first, second = write.workers
    other = first.write(handle, 0)
    with pytest.raises(ValueError, match="boom"):
        second.write(handle, 1, failing(1))
    again = second.write(handle, 1, attempt=1)
    driver.commit(write.sink, [other, again], 0)
    assert write.committed() == numbers((0, 0), (1, 0))


@pytest.mark.parametrize("inline_bytes", [0, 1 << 20])
def test_of_two_attempts_at_once_one_is_seen(write: Write, inline_bytes: int) -> None:
    """Spark takes the report of one, and drops that of the other, whose transaction is ended by the next BEGIN."""
    handle = driver.begin(write.sink)
    first, second = (worker.write(handle, 0, inline_bytes=inline_bytes) for worker in write.workers)
    driver.commit(write.sink, [second], 0)
    later = driver.begin(write.sink)
    assert write.committed() == numbers((0, 0))
    driver.commit(write.sink, [write.workers[0].write(later, 0, batch=1, inline_bytes=inline_bytes)], 1)
    assert write.committed() == numbers((0, 0), (0, 1))
    assert type(first) is type(second) is (InlineRows if inline_bytes else PreparedTask)


def test_the_driver_knows_where_the_rows_lie_that_it_has_sent(write: Write) -> None:
    for batch in range(2):
        handle = driver.begin(write.sink)
        inline = write.workers[0].write(handle, 0, batch=batch, inline_bytes=1 << 20)
        large = write.workers[1].write(handle, 1, batch=batch)
        driver.commit(write.sink, [inline, large], batch)
    assert isinstance(large, PreparedTask)
    spans = [*driver.inline_spans(write.sink), *large.transaction.spans]
    wanted = numbers((0, 1), (1, 1))
    found: dict[int, list[int]] = {}
    for row in read_topic(write.broker.bootstrap_servers, write.sink.name, client="confluent"):
        if int(row.value or b"") in wanted:
            found.setdefault(row.partition, []).append(row.offset)
    for partition, offsets in found.items():
        of_partition = [span for span in spans if span.partition == partition]
        assert min(span.first_offset for span in of_partition) == min(offsets)
        assert max(span.last_offset for span in of_partition) == max(offsets)
        assert sum(span.records for span in of_partition) == len(offsets)
    assert {span.partition for span in spans} == found.keys()
    driver.commit(write.sink, [write.workers[0].write(driver.begin(write.sink), 0, batch=2)], 2)
    assert driver.inline_spans(write.sink) == ()


@pytest.mark.parametrize("inline_bytes", [0, 1 << 20])
def test_a_task_of_an_overtaken_driver_is_never_seen(write: Write, inline_bytes: int) -> None:
    """The task is fenced even if it goes on in the same worker after the new driver's tasks."""
    old = driver.begin(write.sink)
    worker = write.workers[0]
    early = worker.write(old, 0, inline_bytes=inline_bytes)
    new = driver.begin(write.sink)
    ours = worker.write(new, 0, inline_bytes=inline_bytes)
    late = worker.write(old, 1, inline_bytes=inline_bytes)
    with pytest.raises(ExactlyOnceError):
        driver.commit(write.sink, [early, late], 0)
    driver.commit(write.sink, [ours], 0)
    driver.begin(write.sink)
    assert write.committed() == numbers((0, 0))


def test_a_worker_uses_its_ids_again_once_their_batch_is_decided(write: Write) -> None:
    worker, ids = write.workers[0], []
    for batch in range(3):
        handle = driver.begin(write.sink)
        outcomes = [worker.write(handle, partition, batch=batch) for partition in range(6)]
        ids.append({one.transaction.transactional_id for one in outcomes if isinstance(one, PreparedTask)})
        driver.commit(write.sink, outcomes, batch)
    assert len(ids[0]) == 6, "one for each task of a batch"
    assert ids[0] == ids[1] == ids[2]
    assert len(worker.producers) == 4, "the others were closed, and their transactions stayed open"
    assert write.committed() == numbers(*((partition, batch) for partition in range(6) for batch in range(3)))


def test_spooled_rows_come_after_those_that_were_held_back(write: Write) -> None:
    handle = driver.begin(write.sink)
    worker = write.workers[0]
    # More than is gathered into one piece, so that there is something left to spool.
    many = pa.record_batch(
        {"value": [f"{number:>60}" for number in range(40_000)], "partition": pa.array([1] * 40_000, pa.int32())}
    )
    outcome = worker.write(handle, 0, (many.slice(first, 10_000) for first in range(0, 40_000, 10_000)), spool="true")
    assert isinstance(outcome, PreparedTask)
    driver.commit(write.sink, [outcome], 0)
    found = read_topic(write.broker.bootstrap_servers, write.sink.name, client="confluent", isolation="read_committed")
    assert [int(row.value or b"") for row in found] == list(range(40_000))


def test_brokers_say_how_long_a_transaction_may_be(write: Write) -> None:
    worker = write.workers[0]
    longest = max_transaction_timeout_ms(worker.config)
    assert longest == 900_000
    worker.config = producer_config(
        {"bootstrap.servers": write.broker.bootstrap_servers, "transaction.timeout.ms": longest + 1}
    )
    with pytest.raises(BrokerError, match=r"INVALID_TRANSACTION_TIMEOUT.*lower transaction.timeout.ms"):
        worker.write(driver.begin(write.sink), 0)
