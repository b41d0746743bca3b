"""The reading of the control record: only markers of its own producers decide, in the order of the log."""

from __future__ import annotations

from typing import cast

import pytest

from spark_producer.admin import BlockingClient
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import ExactlyOnceError, KafkaTimeout
from spark_producer.exactly_once.cluster import record_json
from spark_producer.exactly_once.cluster.command_executor import CommandExecutor
from spark_producer.exactly_once.cluster.control_log import ControlLog, WholeControlLog
from spark_producer.exactly_once.protocol.commands import Found, MarkersLost, ReadControl
from spark_producer.exactly_once.protocol.control_record import ControlRecord, Status
from spark_producer.protocol import DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, FETCH, LIST_OFFSETS, messages
from spark_producer.record.batch_v2 import assign_base_offset
from spark_producer.record.small_batch import encode_few
from spark_producer.record.transaction_stamp import stamp
from tests.fakes.scripted_client import ScriptedClient, brokers_of
from tests.unit.record.control_batches import marker

PARTITION_0 = TopicPartition("commits", 0)
ABORT, COMMIT = 0, 1


class Log:
    """The partition: batches at the offsets that they are given, of which each fetch returns those from its position on."""

    def __init__(self) -> None:
        self.client = ScriptedClient()
        self.client.leaders = {PARTITION_0: 1}
        self.client.scripts[FETCH.name] = self._fetch
        self.client.scripts[LIST_OFFSETS.name] = self.offset
        self.batches: list[tuple[int, bytes]] = []
        self.start = self.end = 0
        self.hidden = 0
        """the number of fetches without the last batch: a new leader does not know yet that it was acknowledged"""

    def write(self, producer: int, record: ControlRecord, *, transactional: bool = True) -> None:
        for pair in record_json.encode(record):
            batch = encode_few([pair], 5)
            batch = stamp(batch, producer, 0, 0) if transactional else batch
            assign_base_offset(memoryview(batch), self.end, 0)
            self._put(bytes(batch))

    def decide(self, producer: int, kind: int) -> None:
        self._put(marker(self.end, producer, kind))

    def reader(self, sink: str = "orders") -> ControlLog:
        return ControlLog(brokers_of(self.client, sink), PARTITION_0[0])

    def _put(self, batch: bytes) -> None:
        self.batches.append((self.end, batch))
        self.end += 1

    def offset(self, body: messages.ListOffsetsRequest) -> messages.ListOffsetsResponse:
        asked = body.topics[0].partitions[0].timestamp
        row = messages.ListOffsetsPartitionResponse(0, offset={-2: self.start, -1: self.end}[asked])
        return messages.ListOffsetsResponse(0, (messages.ListOffsetsTopicResponse(PARTITION_0[0], (row,)),))

    def _fetch(self, body: messages.FetchRequest) -> messages.FetchResponse:
        position = body.topics[0].partitions[0].fetch_offset
        code = 1 if not self.start <= position <= self.end else 0
        end = self.end - bool(self.hidden)
        self.hidden = max(0, self.hidden - 1)
        data = b"".join([batch for offset, batch in self.batches if position <= offset < end][:2])  # two at a time
        row = messages.FetchPartitionResponse(0, code, end, records=None if code else memoryview(data))
        return messages.FetchResponse(responses=(messages.FetchTopicResponse(PARTITION_0[0], partitions=(row,)),))


def control_record(batch: int, sink: str = "orders") -> ControlRecord:
    return ControlRecord(sink, "query", Status.DONE, batch, batch, "t")


def test_the_last_committed_record_counts_whatever_others_have_open() -> None:
    log = Log()
    log.write(20, control_record(0, "others"))  # is open, and stays so
    log.write(7, control_record(0))
    log.decide(7, COMMIT)
    log.write(7, control_record(1))
    log.decide(7, ABORT)
    log.write(8, control_record(2))
    log.decide(20, ABORT)
    log.decide(8, COMMIT)
    log.write(8, control_record(3))
    reader = log.reader()
    seen = reader.read(log.client.deadline())
    assert (seen.record, seen.producer_id) == (control_record(2), 8)
    assert seen.undecided == ((8, 0, 8, 8),)
    log.decide(8, COMMIT)
    seen = reader.read(log.client.deadline())
    assert (seen.record, seen.undecided) == (control_record(3), ())
    assert reader.written_ms("orders") == 5


def test_records_are_read_once_unless_the_log_begins_after_them() -> None:
    log = Log()
    log.write(7, control_record(0))
    log.decide(7, COMMIT)
    reader = log.reader()
    reader.read(log.client.deadline())
    before = len(log.client.bodies(FETCH))
    assert reader.read(log.client.deadline()).record == control_record(0)
    assert len(log.client.bodies(FETCH)) == before
    for start, batch in ((10, 4), (0, 5)):
        log.batches, log.start, log.end = [], start, start  # the topic was created again
        log.write(7, control_record(batch))
        log.decide(7, COMMIT)
        assert reader.read(log.client.deadline()).record == control_record(batch)


def test_what_a_new_leader_does_not_show_yet_is_waited_for() -> None:
    log = Log()
    log.write(7, control_record(0))
    log.decide(7, COMMIT)
    log.write(7, control_record(1))
    log.decide(7, COMMIT)
    log.hidden = 4
    seen = log.reader().read(log.client.deadline())
    assert (seen.record, seen.undecided) == (control_record(1), ())
    log.write(7, control_record(2))
    log.hidden = 1_000_000
    with pytest.raises(KafkaTimeout, match="the records before offset 5 of the control topic"):
        log.reader().read(log.client.deadline())


def test_a_record_outside_of_a_transaction_is_refused_and_does_not_hide_other_sinks() -> None:
    log = Log()
    log.write(7, control_record(0, "others"))
    log.decide(7, COMMIT)
    log.write(7, control_record(9), transactional=False)
    with pytest.raises(ExactlyOnceError, match="outside of a transaction"):
        log.reader().read(log.client.deadline())
    assert log.reader("others").read(log.client.deadline()).record == control_record(0, "others")
    listed = WholeControlLog(brokers_of(log.client), PARTITION_0[0]).records(log.client.deadline())
    assert listed == {"others": control_record(0, "others")}


def test_a_new_sink_has_no_record() -> None:
    log = Log()
    assert log.reader().read(log.client.deadline()).record is None


def read_control(log: Log, open_for: int, cluster: CommandExecutor | None = None) -> tuple[object, float]:
    """Return the result of a read, and its seconds, if the leader itself has the transaction open in as many reads."""
    looks = iter(range(1_000_000))

    def producers(_: object) -> messages.DescribeProducersResponse:
        row = messages.ActiveProducer(7, 0, current_txn_start_offset=0 if next(looks) < open_for else -1)
        partition = messages.DescribeProducersPartition(0, active_producers=(row,))
        return messages.DescribeProducersResponse(
            0, (messages.DescribeProducersTopicResult(PARTITION_0[0], (partition,)),)
        )

    log.client.scripts[DESCRIBE_PRODUCERS.name] = producers
    row = messages.DescribedTransaction(0, "pyproducer.orders.ctl", "CompleteCommit", producer_id=7)
    log.client.answers(DESCRIBE_TRANSACTIONS, messages.DescribeTransactionsResponse(0, (row,)))
    cluster = cluster or CommandExecutor(cast("BlockingClient", log.client), "orders", PARTITION_0[0])
    began = log.client.clock()
    return cluster.perform(ReadControl()), log.client.clock() - began


def test_a_marker_that_the_leader_has_and_does_not_show_yet_is_not_lost() -> None:
    log = Log()
    log.write(7, control_record(0))
    log.decide(7, COMMIT)
    log.end, end_of_log = 1, log.offset

    def end_that_grows(body: messages.ListOffsetsRequest) -> messages.ListOffsetsResponse:
        log.end = 1 if log.client.clock() < 1 else 2
        return end_of_log(body)

    log.client.scripts[LIST_OFFSETS.name] = end_that_grows
    found, seconds = read_control(log, open_for=0)
    assert found == Found(control_record(0))
    assert seconds > 1


def test_a_marker_that_the_leader_has_not_although_its_coordinator_is_done_is_lost() -> None:
    log = Log()
    log.write(7, control_record(0))
    found, seconds = read_control(log, open_for=1_000_000)
    assert found == MarkersLost((PARTITION_0,))
    assert seconds < 4


def test_a_marker_that_compaction_has_taken_with_its_rows_is_not_waited_for() -> None:
    """A driver had read the rows before they were decided, and was idle for a day."""
    log = Log()
    log.write(7, control_record(0))
    row = messages.DescribedTransaction(0, "pyproducer.orders.ctl", "Ongoing", producer_id=7)
    log.client.answers(DESCRIBE_TRANSACTIONS, messages.DescribeTransactionsResponse(0, (row,)))
    cluster = CommandExecutor(cast("BlockingClient", log.client), "orders", PARTITION_0[0])
    assert cluster.perform(ReadControl()) == Found(None)
    log.decide(7, ABORT)
    log.write(8, control_record(1))
    log.decide(8, COMMIT)
    del log.batches[:2]
    found, seconds = read_control(log, open_for=0, cluster=cluster)
    assert found == Found(control_record(1))
    assert seconds < 1
