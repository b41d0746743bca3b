"""Requests of producers: InitProducerId, AddPartitionsToTxn, Produce, EndTxn, and the offsets of consumer groups.

The names of the classes are Kafka's names of the requests; their fields are what a scene chooses.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from spark_producer.protocol import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    WRITE_TXN_MARKERS,
    messages,
)
from spark_producer.record import batch_v2
from tests.interop.conversations.talk import Talk, error


class InitProducerId(NamedTuple):
    """The producer of the answer is called `producer` from then on. `given` names the producer that asks (KIP-360)."""

    producer: str
    id: str = "x"
    timeout: int = 60_000
    given: str = "stranger"
    version: int = 5

    def ask(self, talk: Talk, connection: str) -> str:
        name = talk.named(self.id) if self.id != "none" else None
        body = messages.InitProducerIdRequest(name, self.timeout, *talk.producer(self.given))
        answer = talk.ask(connection, INIT_PRODUCER_ID, self.version, body)
        if answer.error_code:
            return f"{error(answer.error_code)}, {talk.producer_text(answer.producer_id, answer.producer_epoch)}"
        return f"NONE, {talk.meet(self.producer, answer.producer_id, answer.producer_epoch)}"


class AddPartitionsToTxn(NamedTuple):
    """The partitions of the answer in their order."""

    producer: str
    partitions: tuple[int, ...] = (0,)
    id: str = "x"
    version: int = 3

    def ask(self, talk: Talk, connection: str) -> str:
        partitions = tuple(talk.partition(number) for number in self.partitions)
        topics = (messages.AddPartitionsToTxnTopic(talk.place.topic, partitions),)
        body = messages.AddPartitionsToTxnRequest(talk.named(self.id), *talk.producer(self.producer), topics)
        answer = talk.ask(connection, ADD_PARTITIONS_TO_TXN, self.version, body)
        results = {
            result.partition_index: result.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        }
        return "; ".join(f"{talk.partitions_text([number])}: {error(results[number])}" for number in sorted(results))


class Produce(NamedTuple):
    """One batch for each of the partitions, of `rows` records with the same value.

    `marked`: with the bit of transactions. `damage`: `crc` is a wrong one, `twice` is two batches for the same partition.
    """

    producer: str
    sequence: int
    version: int
    partitions: tuple[int, ...] = (0,)
    rows: int = 1
    id: str = "x"
    value: str = "v"
    marked: bool = True
    damage: str = ""

    def ask(self, talk: Talk, connection: str) -> str:
        batch = self._batch(talk)
        partitions = tuple(messages.ProducePartition(talk.partition(number), batch) for number in self.partitions)
        name = talk.named(self.id) if self.id != "none" else None
        topics = (messages.ProduceTopic(talk.place.topic, partition_data=partitions),)
        body = messages.ProduceRequest(name, -1, 30_000, topics)
        answer = talk.ask(connection, PRODUCE, self.version, body)
        results = {row.index: row for topic in answer.responses for row in topic.partition_responses}
        return "; ".join(
            f"{talk.partitions_text([number])}: {error(row.error_code)}"
            + (f" at {row.base_offset}, log starts at {row.log_start_offset}" if row.error_code == 0 else "")
            for number, row in sorted(results.items())
        )

    def _batch(self, talk: Talk) -> bytes:
        sealed = self._sealed(talk, self.sequence)
        if self.damage == "crc":
            sealed[-1] ^= 1
        if self.damage == "twice":
            sealed += self._sealed(talk, self.sequence + self.rows)
        return bytes(sealed)

    def _sealed(self, talk: Talk, sequence: int) -> bytearray:
        value = self.value.encode()
        records = b""
        for number in range(self.rows):
            # attributes, timestamp delta, offset delta, null key, value, no headers; all numbers are small zigzag varints
            record = bytes((0, 0, 2 * number, 1, 2 * len(value))) + value + b"\0"
            records += bytes((2 * len(record),)) + record
        batch = bytearray(batch_v2.HEADER_SIZE) + records
        producer_id, epoch = talk.producer(self.producer)
        # Of now, as markers are: a log begins a new segment when times are a week apart, and a Fetch ends with its segment.
        now = int(time.time() * 1000)
        batch_v2.write_header(
            memoryview(batch),
            records_count=self.rows,
            base_timestamp=now,
            max_timestamp=now,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            attributes=batch_v2.batch_attributes(transactional=self.marked),
        )
        return batch


class EndTxn(NamedTuple):
    """`becomes` is a name for the producer of the answer; for the one that asked, when the answer has none."""

    producer: str
    commit: bool
    version: int
    id: str = "x"
    becomes: str = ""

    def ask(self, talk: Talk, connection: str) -> str:
        producer = talk.producer(self.producer)
        body = messages.EndTxnRequest(talk.named(self.id), *producer, self.commit)
        answer = talk.ask(connection, END_TXN, self.version, body)
        if self.becomes:
            talk.meet(self.becomes, *producer)
            talk.meet(self.becomes, answer.producer_id, answer.producer_epoch)
        if self.version < 5:
            return error(answer.error_code)
        return f"{error(answer.error_code)}, {talk.producer_text(answer.producer_id, answer.producer_epoch)}"


class AddOffsetsToTxn(NamedTuple):
    """A group, which from then on is in the transaction."""

    producer: str
    group: str = "g"
    id: str = "x"
    version: int = 4

    def ask(self, talk: Talk, connection: str) -> str:
        producer = talk.producer(self.producer)
        body = messages.AddOffsetsToTxnRequest(talk.named(self.id), *producer, talk.named(self.group))
        return error(talk.ask(connection, ADD_OFFSETS_TO_TXN, self.version, body).error_code)


class TxnOffsetCommit(NamedTuple):
    """The offset of one partition for a group, which others can read once the transaction is committed."""

    producer: str
    offset: int
    version: int
    partition: int = 0
    group: str = "g"
    id: str = "x"
    generation: int = -1
    member: str = ""

    def ask(self, talk: Talk, connection: str) -> str:
        row = messages.TxnOffsetCommitRequestPartition(talk.partition(self.partition), self.offset, -1, "why")
        body = messages.TxnOffsetCommitRequest(
            talk.named(self.id),
            talk.named(self.group),
            *talk.producer(self.producer),
            self.generation,
            talk.member(self.member),
            None,
            (messages.TxnOffsetCommitRequestTopic(talk.place.topic, (row,)),),
        )
        answer = talk.ask(connection, TXN_OFFSET_COMMIT, self.version, body)
        return "; ".join(error(row.error_code) for topic in answer.topics for row in topic.partitions)


class WriteTxnMarkers(NamedTuple):
    """WriteTxnMarkers as an administrator sends it to repair a hanging transaction."""

    producer: str
    commit: bool
    coordinator_epoch: int
    partitions: tuple[int, ...] = (0,)

    def ask(self, talk: Talk, connection: str) -> str:
        partitions = tuple(talk.partition(number) for number in self.partitions)
        topics = (messages.WritableTxnMarkerTopic(talk.place.topic, partitions),)
        marker = messages.WritableTxnMarker(*talk.producer(self.producer), self.commit, topics, self.coordinator_epoch)
        answer = talk.ask(connection, WRITE_TXN_MARKERS, 1, messages.WriteTxnMarkersRequest((marker,)))
        rows = sorted(row for found in answer.markers for topic in found.topics for row in topic.partitions)
        return "; ".join(f"{talk.partitions_text([row.partition_index])}: {error(row.error_code)}" for row in rows)
