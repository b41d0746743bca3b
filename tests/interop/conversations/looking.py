"""Requests of readers and administrators: Fetch, ListOffsets, those of KIP-664, OffsetFetch, ApiVersions.

The names of the classes are Kafka's names of the requests; their fields are what a scene chooses.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from spark_producer.protocol import (
    API_VERSIONS,
    APIS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    OFFSET_FETCH,
    Buffer,
    decoded_records,
    messages,
)
from spark_producer.record import batch_v2
from spark_producer.record.control import ControlType
from tests.interop.conversations.talk import Talk, error

_MARKER = struct.Struct(">hhhi")  # key: version and type; value: version and epoch of the coordinator


class Fetch(NamedTuple):
    """The batches of one partition. `max_bytes` is of the partition: one batch comes whatever its size."""

    committed: bool
    partition: int = 0
    offset: int = 0
    max_bytes: int = 1 << 20

    def ask(self, talk: Talk, connection: str) -> str:
        wanted = messages.FetchPartition(
            talk.partition(self.partition), -1, self.offset, partition_max_bytes=self.max_bytes
        )
        body = messages.FetchRequest(
            max_wait_ms=0,
            isolation_level=int(self.committed),
            topics=(messages.FetchTopic(talk.place.topic, partitions=(wanted,)),),
        )
        ((found,),) = (topic.partitions for topic in talk.ask(connection, FETCH, 12, body).responses)
        aborted = found.aborted_transactions
        hidden = ", ".join(
            f"{talk.producer_text(row.producer_id, 0).split()[0]} from {row.first_offset}" for row in aborted or ()
        )
        place = f"{error(found.error_code)}, stable {found.last_stable_offset} of {found.high_watermark}"
        list_of_aborted = "" if aborted is None else f", aborted [{hidden}]"
        batches = _batches(talk, decoded_records(found.records) or b"")
        return f"{place}{list_of_aborted}: {batches}"


def _batches(talk: Talk, data: Buffer) -> str:
    return " / ".join(_batch(talk, header, body) for header, body in batch_v2.batches(data)) or "no batches"


def _batch(talk: Talk, header: batch_v2.BatchHeader, body: memoryview) -> str:
    """A batch: offsets, producer, sequence, and its marker if it is one."""
    kind = f"seq {header.base_sequence}" + (" transactional" if header.is_transactional else "")
    if header.is_control:
        record = bytes(body[batch_v2.HEADER_SIZE :])
        # length, attributes, timestamp delta, offset delta, length of the key (4), key, length of the value (6), value
        key, value = record[5:9], record[10:16]
        version, marker, value_version, coordinator = _MARKER.unpack(key + value)
        kind += f" {ControlType(marker).name} (versions {version}, {value_version}; coordinator epoch {coordinator})"
    offsets = f"{header.base_offset}-{header.last_offset}"
    return f"{offsets} {talk.producer_text(header.producer_id, header.producer_epoch)} {kind}"


class ListOffsets(NamedTuple):
    """The end of a partition for a reader."""

    committed: bool
    partition: int = 0

    def ask(self, talk: Talk, connection: str) -> str:
        wanted = messages.ListOffsetsPartition(talk.partition(self.partition), timestamp=-1)
        topics = (messages.ListOffsetsTopic(talk.place.topic, (wanted,)),)
        body = messages.ListOffsetsRequest(isolation_level=int(self.committed), topics=topics)
        ((found,),) = (topic.partitions for topic in talk.ask(connection, LIST_OFFSETS, 7, body).topics)
        return f"{error(found.error_code)}, {found.offset}"


class DescribeTransactions(NamedTuple):
    """The state of an id's transaction."""

    id: str = "x"

    def ask(self, talk: Talk, connection: str) -> str:
        body = messages.DescribeTransactionsRequest((talk.named(self.id),))
        (row,) = talk.ask(connection, DESCRIBE_TRANSACTIONS, 0, body).transaction_states
        assert row.transactional_id == talk.named(self.id)
        if row.error_code:
            return error(row.error_code)
        touched = "; ".join(
            (talk.partitions_text(topic.partitions) if topic.topic == talk.place.topic else topic.topic)
            for topic in row.topics
        )
        begun = "begun" if row.transaction_start_time_ms > 0 else f"start {row.transaction_start_time_ms}"
        who = talk.producer_text(row.producer_id, row.producer_epoch)
        return f"NONE, {row.transaction_state}, {who}, {begun}, {row.transaction_timeout_ms} ms, [{touched}]"


class ListTransactions(NamedTuple):
    """The transactions of the conversation that pass the filters. `pattern` is a regular expression before the suffix."""

    states: tuple[str, ...] = ()
    producers: tuple[str, ...] = ()
    duration: int = -1
    pattern: str = ""
    version: int = 1

    def ask(self, talk: Talk, connection: str) -> str:
        ids = tuple(talk.producer(who)[0] for who in self.producers)
        pattern = self.pattern if self.pattern == "(" else talk.named(self.pattern)
        body = messages.ListTransactionsRequest(self.states, ids, self.duration, pattern or None)
        answer = talk.ask(connection, LIST_TRANSACTIONS, self.version, body)
        rows = sorted(
            f"{talk.called(row.transactional_id)} {talk.producer_text(row.producer_id, 0).split()[0]} {row.transaction_state}"
            for row in answer.transaction_states
            if talk.is_ours(row.transactional_id)
        )
        unknown = f", unknown states {list(answer.unknown_state_filters)}" if answer.unknown_state_filters else ""
        return f"{error(answer.error_code)}{unknown}, [{', '.join(rows)}]"


class DescribeProducers(NamedTuple):
    """The producers that the leader of a partition remembers, without the time at which each of them wrote last."""

    partition: int = 0

    def ask(self, talk: Talk, connection: str) -> str:
        topics = (messages.DescribeProducersTopic(talk.place.topic, (talk.partition(self.partition),)),)
        answer = talk.ask(connection, DESCRIBE_PRODUCERS, 0, messages.DescribeProducersRequest(topics))
        ((found,),) = (topic.partitions for topic in answer.topics)
        rows = sorted(
            f"{talk.producer_text(row.producer_id, row.producer_epoch)} seq {row.last_sequence}"
            f" coordinator epoch {row.coordinator_epoch} open from {row.current_txn_start_offset}"
            for row in found.active_producers
        )
        return f"{error(found.error_code)}, [{', '.join(rows)}]"


class OffsetFetch(NamedTuple):
    """The committed offset of one partition for a group. `stable`: not while a transaction may change it (KIP-447)."""

    stable: bool
    partition: int = 0
    group: str = "g"
    version: int = 8

    def ask(self, talk: Talk, connection: str) -> str:
        topics = (messages.OffsetFetchRequestTopic(talk.place.topic, (talk.partition(self.partition),)),)
        group = messages.OffsetFetchRequestGroup(talk.named(self.group), topics=topics)
        body = messages.OffsetFetchRequest(groups=(group,), require_stable=self.stable)
        (found,) = talk.ask(connection, OFFSET_FETCH, self.version, body).groups
        rows = [row for topic in found.topics for row in topic.partitions]
        reported = "; ".join(
            f"{error(row.error_code)} {row.committed_offset} {row.metadata!r} leader epoch {row.committed_leader_epoch}"
            for row in rows
        )
        return f"{error(found.error_code)}: {reported or 'no partitions'}"


class FindCoordinator(NamedTuple):
    """The coordinator of an id (kind 1) or a group (kind 0), which is the only broker there is."""

    name: str = "x"
    kind: int = 1
    version: int = 4

    def ask(self, talk: Talk, connection: str) -> str:
        name = talk.named(self.name)
        body = messages.FindCoordinatorRequest(name, self.kind, (name,) if self.version >= 4 else ())
        answer = talk.ask(connection, FIND_COORDINATOR, self.version, body)
        found = answer.coordinators[0] if self.version >= 4 else answer
        where = "here" if found.port == talk.place.port else f"node {found.node_id}"
        return f"{error(found.error_code)}, {where}"


class ApiVersions(NamedTuple):
    """The versions of the APIs of transactions, or the level of transactions that the cluster has agreed on."""

    api: int = -1

    def ask(self, talk: Talk, connection: str) -> str:
        answer = talk.ask(connection, API_VERSIONS, 3, messages.ApiVersionsRequest("pyproducer", "0"))
        if self.api < 0:
            levels = [row for row in answer.finalized_features if row.name == "transaction.version"]
            return "; ".join(f"finalized {row.min_version_level}-{row.max_version_level}" for row in levels) or "none"
        rows = [row for row in answer.api_keys if row.api_key == self.api]
        return "; ".join(f"{APIS[self.api].name} {row.min_version}-{row.max_version}" for row in rows) or "none"


class UnknownInitProducerId(NamedTuple):
    """A version that only brokers with unstable versions support, with the bytes of the one before."""

    version: int = 6

    def ask(self, talk: Talk, connection: str) -> str:
        client = talk.client(connection)
        frame = bytearray(client.frame(INIT_PRODUCER_ID, messages.InitProducerIdRequest(talk.named("x")), 5))
        struct.pack_into(">h", frame, 6, self.version)
        client.socket.sendall(frame)
        return "closes the connection" if client.is_closed_by_peer() else "answers"
