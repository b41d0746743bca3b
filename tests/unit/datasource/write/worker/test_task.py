"""A task splits and joins Arrow batches before it hands them on; no Spark session, no broker."""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Iterator

import pyarrow as pa
import pytest

from spark_producer.config import SinkOptions, producer_config
from spark_producer.datasource.jvm_socket import JvmConnection
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.worker import task
from spark_producer.datasource.write.worker.batch_sizing import bytes_to_gather, gather, pieces
from spark_producer.datasource.write.worker.cache import ProducerCache
from spark_producer.errors import BrokerError
from spark_producer.producer import parts_of
from tests.fakes.scripted_cluster import SERVERS, ScriptedCluster
from tests.support.waiting import wait_until


def gathered(batches: Iterator[pa.RecordBatch], partitions: int, batch_size: int = 1024) -> Iterator[pa.RecordBatch]:
    return gather(batches, lambda: bytes_to_gather(partitions, batch_size))


def batch(rows: int, width: int = 100) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([str(number).ljust(width) for number in range(rows)], pa.string())})


def sizes(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [found.num_rows for found in batches]


@pytest.mark.parametrize(("partitions", "expected"), [(1, [10] * 8), (4, [20] * 4), (8, [40] * 2), (1000, [80])])
def test_batches_are_joined_until_each_partition_gets_enough(partitions: int, expected: list[int]) -> None:
    given = (batch(10) for _ in range(8))
    assert sizes(gathered(given, partitions)) == expected


def test_large_batches_are_cut_evenly_and_no_row_is_lost() -> None:
    whole = batch(1000)
    cut = list(pieces(iter([whole, batch(0), batch(3)]), 10_000))
    assert pa.Table.from_batches(cut).equals(pa.Table.from_batches([whole, batch(0), batch(3)]))
    assert max(piece.nbytes for piece in cut) <= 15_000
    assert min(piece.num_rows for piece in cut[:-1]) > 50
    with_headers = pa.record_batch({"value": whole["value"], "headers": pa.nulls(1000)})
    assert len(list(pieces(iter([with_headers]), 10_000))) > len(cut) - 1


def test_a_batch_of_nearly_2_gib_is_not_joined_to_others() -> None:
    """Its offsets have 32 bits, and could not address a batch after it. None of its bytes is read here."""
    size = (1 << 31) - 2
    values = pa.py_buffer(mmap.mmap(-1, size))
    offsets = pa.array([0, 1 << 30, size], pa.int32()).buffers()[1]
    large = pa.record_batch({"value": pa.Array.from_buffers(pa.string(), 2, [None, offsets, values])})
    given = (batch(1), batch(2), large, batch(3), batch(4))
    assert sizes(gathered(iter(given), 1000)) == [3, 2, 7]


@pytest.mark.parametrize("partitions", [1, 1000])
def test_nothing_that_was_handed_on_is_kept(partitions: int) -> None:
    buffers: list[weakref.ref[pa.RecordBatch]] = []

    def given() -> Iterator[pa.RecordBatch]:
        for _ in range(3):
            made = batch(100)
            buffers.append(weakref.ref(made))
            yield made
            del made

    for piece in pieces(gathered(given(), partitions)):
        assert piece.num_rows
        del piece
        assert sum(ref() is not None for ref in buffers) <= 1


@pytest.mark.covers("SN44")
def test_a_task_stops_at_the_first_batch_that_failed_for_good() -> None:
    """Not at its flush, which may be hours away."""
    cluster = ScriptedCluster(produce_code=lambda _: 29)
    producers = ProducerCache(cluster.producer_with)
    options = {"bootstrap.servers": SERVERS, "batch.size": 1024, "linger.ms": 0}
    settings = TaskSettings(producer_config(options), SinkOptions(topic="t"))

    def endless() -> Iterator[pa.RecordBatch]:
        yield batch(100)
        producer = producers.get(settings.config)
        wait_until(lambda: parts_of(producer).accumulator.incomplete.failure is not None, "the first batch is refused")
        for _ in range(3):
            yield batch(100)
        raise AssertionError("the task goes on after a batch has failed")

    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        task.write_task(settings, endless(), producers)
    assert not len(producers), "the next task gets a new one"


def test_the_process_is_settled_before_a_producer_takes_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    producers = ProducerCache(ScriptedCluster().producer_with)
    # Patched, since these functions change the whole process.
    calls: list[str] = []
    monkeypatch.setattr(task, "limit_malloc_trim", lambda: calls.append("memory"))
    monkeypatch.setattr(task, "gc_freeze_on_second_task", lambda: calls.append("freeze"))
    monkeypatch.setattr(JvmConnection, "answer_at_once", lambda _: calls.append("answer"))
    settings = TaskSettings(producer_config({"bootstrap.servers": SERVERS}), SinkOptions(topic="t"))

    def rows() -> Iterator[pa.RecordBatch]:
        calls.append("rows")
        yield batch(100)

    assert task.write_task(settings, rows(), producers).report.records == 100
    producers.clear()
    assert calls == ["freeze", "memory", "answer", "rows", "answer", "answer"]


def test_a_task_of_few_rows_wakes_the_io_thread_once() -> None:
    """For its flush. Between the appends the I/O thread could send nothing, and would hold them up."""
    cluster = ScriptedCluster({"t": 4})
    producers = ProducerCache(cluster.producer_with)
    settings = TaskSettings(producer_config({"bootstrap.servers": SERVERS}), SinkOptions(topic="t"))
    keyed = batch(25).append_column("key", pa.array([str(number) for number in range(25)]))
    task.write_task(settings, iter([keyed]), producers)  # waits for metadata
    incomplete = parts_of(producers.get(settings.config)).accumulator.incomplete
    for _ in range(5):
        wait_until(lambda: incomplete.idle and incomplete._sleeps_until > 0, "the I/O thread sleeps")
        before = cluster.wakeups
        task.write_task(settings, iter([keyed]), producers)
        assert cluster.wakeups == before + 1
    producers.clear()


def test_rows_linger_while_the_next_batch_is_read() -> None:
    cluster = ScriptedCluster()
    producers = ProducerCache(cluster.producer_with)
    settings = TaskSettings(producer_config({"bootstrap.servers": SERVERS}), SinkOptions(topic="t"))

    def slow() -> Iterator[pa.RecordBatch]:
        yield batch(10_000)
        wait_until(lambda: sum(map(len, cluster.log.values())) == 10_000, "all rows are sent without a flush")
        yield batch(100)

    assert task.write_task(settings, slow(), producers).report.records == 10_100
    producers.clear()


def test_a_failure_drops_the_producer_of_its_task_alone() -> None:
    clusters = {"one": ScriptedCluster({"good": 1}), "two": ScriptedCluster({"bad": 1}, produce_code=lambda _: 29)}
    producers = ProducerCache(lambda config: clusters[config.client_id].producer_with(config))
    one, two = (producer_config({"bootstrap.servers": SERVERS, "client.id": name}) for name in ("one", "two"))
    task.write_task(TaskSettings(one, SinkOptions(topic="good")), iter([batch(10)]), producers)
    first = producers.get(one)
    with pytest.raises(BrokerError):
        task.write_task(TaskSettings(two, SinkOptions(topic="bad")), iter([batch(10)]), producers)
    report = task.write_task(TaskSettings(one, SinkOptions(topic="good")), iter([batch(20)]), producers)
    assert producers.get(one) is first
    assert len(producers) == 1
    assert report.report.records == 20, "an interval is one task's"
    producers.clear()
    assert parts_of(first).failed


def test_large_record_batches_do_not_make_arrow_batches_wait() -> None:
    """Joining copies: with few partitions a default Arrow batch goes on as it comes, whatever `batch.size` is."""
    batch_size = producer_config({"bootstrap.servers": "host:9092"}).batch_size
    given = (batch(10_000) for _ in range(3))
    assert sizes(gathered(given, 4, batch_size)) == [10_000] * 3
