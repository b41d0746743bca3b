"""Reads a sink's control records up to the end of the partition, past the open transactions of other sinks.

A fetch of committed records would stop at the first open transaction of any sink. So all records are fetched, and those of this
sink count or are dropped by the markers of their producers, in the order of the log, as brokers do it.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spark_producer.common.cluster import ProducerIdAndEpoch, TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.common.offsets import EARLIEST, LATEST
from spark_producer.errors import ExactlyOnceError, PyProducerError, broker_error
from spark_producer.exactly_once.cluster import record_json
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin
from spark_producer.exactly_once.cluster.control_topic import PARTITION
from spark_producer.exactly_once.cluster.fetch import fetch_request, read_at
from spark_producer.exactly_once.cluster.partition_state import offsets, offsets_request
from spark_producer.exactly_once.cluster.required_acls import Right, missing_right
from spark_producer.exactly_once.protocol.control_record import ControlRecord
from spark_producer.protocol import FETCH, decoded_records
from spark_producer.record.batch_v2 import HEADER_SIZE, BatchHeader, batches
from spark_producer.record.committed_filter import marker_type
from spark_producer.record.control import ControlType
from spark_producer.record.reading import read_records

logger = escaping_logger(__name__)

UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED

FETCH_BYTES = 8 << 20

SHORT_FOR_S = 5.0
"""Seconds for which a topic must end before the offset that was read, to count as shorter: a deposed leader that does not know it
shows less than the newest one."""


class ControlLogState(NamedTuple):
    """The state of the log: the last committed record, the producer and epoch that wrote it, and the undecided records.

    The inline rows of the record have this epoch, or an older one if a later record repeats it (`HUNG`, `PARTIAL`). A newer epoch
    is that of a later execution.
    """

    record: ControlRecord | None
    producer_id: int
    epoch: int
    undecided: tuple[tuple[int, int, int, int], ...]
    """(producer id, epoch, first offset, last offset) of the sink's records without a marker so far."""
    end_epoch: int = -1
    """The epoch of the marker that committed the record: with EndTxn 5 it is the one after the record's."""


class _Row(NamedTuple):
    offset: int
    timestamp: int
    key: bytes
    value: bytes | None


class ControlLog:
    """The control records of one sink. It continues reading where it has stopped."""

    def __init__(self, brokers: TransactionAdmin, topic: str) -> None:
        self._brokers = brokers
        self._topic = topic
        self._sink = brokers.sink
        self._key: Any = pa.scalar(record_json.key_of(self._sink), pa.binary())
        self._parts = record_json.key_of(self._sink) + b"#"
        self._topic_id: bytes | None = None
        self._restart(-1)

    def _restart(self, position: int) -> None:
        self._position = position
        self._pending: dict[int, tuple[int, list[_Row]]] = {}
        self._committed: dict[bytes, bytes] = {}
        self._times: dict[bytes, int] = {}
        self._producer_id, self._epoch = -1, -1
        self._end_epoch = -1
        self._executions: set[tuple[int, int]] = set()
        self._certain: set[bytes] = set()
        """The keys of sinks with a record that names its own writer."""
        self._foreign: dict[bytes, int] = {}
        """The keys under which another producer than the sink's has written, with the offset of such a record."""

    def forget(self) -> None:
        """Start from the beginning of the log at the next read."""
        self._restart(-1)

    def read(self, deadline: float) -> ControlLogState:
        """Read the records since the last call, up to the current end of the log, and return the state.

        Raises:
            ExactlyOnceError: a record is not a control record of this sink, or has a newer version.
            KafkaTimeout, BrokerError: the brokers do not answer, or refuse.
        """
        tp = TopicPartition(self._topic, PARTITION)
        end = self._end(deadline)
        if self._position < 0:
            self._restart(self._offset(EARLIEST, deadline))
        pauses = iter(self._brokers.attempts(deadline, f"the records before offset {end} of the control topic"))
        while self._position < end:
            began_at = self._position
            row = read_at(self._brokers, tp, self._position, deadline, FETCH_BYTES)
            if row is None or row.error_code == Code.OFFSET_OUT_OF_RANGE:
                self._restart(self._offset(EARLIEST, deadline))
                end = self._end(deadline)
            elif row.error_code == Code.TOPIC_AUTHORIZATION_FAILED:
                raise missing_right(Right.CONTROL_TOPIC, self._sink, self._brokers.client.user, self._topic)
            elif row.error_code:
                raise broker_error(row.error_code, f"the control topic {self._topic!r}")
            else:
                self._take(decoded_records(row.records) or memoryview(b""), row.high_watermark)
            if self._position <= began_at:
                next(pauses)
        return ControlLogState(self._record(), self._producer_id, self._epoch, self._undecided(), self._end_epoch)

    def ask(self) -> None:
        """Send the requests of the next `read` early, if the leader is known."""
        tp = TopicPartition(self._topic, PARTITION)
        if self._position >= 0:
            self._brokers.ask_leaders([tp], partial(offsets_request, self._brokers, LATEST, UNCOMMITTED))
            wanted = FETCH, fetch_request(self._brokers, tp, self._position, UNCOMMITTED, FETCH_BYTES)
            self._brokers.ask_leaders([tp], lambda _: wanted)

    def _end(self, deadline: float) -> int:
        """Return the end offset of the log. If it is before the offset that was read, the leader is looked up and asked again.

        If the topic is another one, or the log stays shorter, the records that were read no longer count.
        """
        tp = TopicPartition(self._topic, PARTITION)
        began = self._brokers.client.clock()
        for _ in self._brokers.attempts(
            deadline, f"offset {self._position} of the control topic, which existed before"
        ):
            end = self._offset(LATEST, deadline)
            known, self._topic_id = self._topic_id, self._brokers.topic_id(self._topic)
            stays_short = end < self._position and self._brokers.client.clock() - began >= SHORT_FOR_S
            if stays_short or known not in (None, self._topic_id):
                logger.warning(
                    "control topic %s was created again, or has lost records: it ends at offset %d, and was read up to %d",
                    self._topic,
                    end,
                    self._position,
                )
                self._brokers.early.drop()
                self._restart(-1)
                end = self._offset(LATEST, deadline)  # the last response may have come from the topic before this one
            if self._position <= end:
                return end
            self._brokers.forget_leaders([tp])
        raise AssertionError

    def _offset(self, at: int, deadline: float) -> int:
        """Return the start or end offset of the log.

        The end is not taken from a Fetch. A new leader must first find out which records of its predecessor were
        acknowledged; until then a Fetch shows fewer records, and ListOffsets is not answered (KIP-207).
        """
        tp = TopicPartition(self._topic, PARTITION)
        found = offsets(self._brokers, [tp], deadline, at=at, isolation=UNCOMMITTED)
        if tp not in found:
            raise broker_error(Code.UNKNOWN_TOPIC_OR_PARTITION, f"the control topic {self._topic!r}")
        return found[tp]

    def _take(self, data: memoryview, high_watermark: int) -> None:
        headers = [(header, batch) for header, batch in batches(data) if header.last_offset >= self._position]
        if not headers:
            if not len(data):  # compaction has removed all records after this offset
                self._position = max(self._position, high_watermark)
            return
        own = self._own_rows(data, [header for header, _ in headers])
        for header, batch in headers:
            if header.is_control:
                if header.records_count:
                    self._decide(header, marker_type(header, batch[HEADER_SIZE:]))
            elif rows := own.get(header.base_offset):
                self._note(header, rows)
        self._position = headers[-1][0].last_offset + 1

    def _own_rows(self, data: memoryview, headers: list[BatchHeader]) -> dict[int, list[_Row]]:
        """Return the sink's records by the base offset of their batch."""
        starts = [header.base_offset for header in headers]
        found: dict[int, list[_Row]] = {}
        for table in read_records(data):
            for row in (
                table.filter(self._is_own(table.column("key")))
                .select(["offset", "timestamp", "key", "value"])
                .to_pylist()
            ):
                if row["offset"] >= self._position:
                    start = starts[bisect_right(starts, row["offset"]) - 1]
                    found.setdefault(start, []).append(_Row(**row))
        return found

    def _is_own(self, keys: Any) -> Any:
        mine: Any = pc.or_(pc.equal(keys, self._key), pc.starts_with(keys, pattern=self._parts))  # type: ignore[call-overload]
        return pc.fill_null(mine, False)

    def _note(self, header: BatchHeader, rows: list[_Row]) -> None:
        if not header.is_transactional:
            self._foreign.update((_main_key(row.key), row.offset) for row in rows)
            return
        _, pending = self._pending.get(header.producer_id, (0, []))
        self._pending[header.producer_id] = (header.producer_epoch, pending + rows)
        self._executions.add((header.producer_id, header.producer_epoch))

    def _decide(self, header: BatchHeader, marker: int) -> None:
        producer_id = header.producer_id
        if producer_id not in self._pending or marker not in (ControlType.COMMIT, ControlType.ABORT):
            return
        epoch, rows = self._pending.pop(producer_id)
        if marker != ControlType.COMMIT:
            return
        own = self._own_keys(rows, (producer_id, epoch))
        for row in rows:
            if _main_key(row.key) not in own:
                self._foreign[_main_key(row.key)] = row.offset
                logger.warning(
                    "control topic %s: the record at offset %d is ignored: its sink did not write it",
                    self._topic,
                    row.offset,
                )
                continue
            self._committed[row.key] = row.value or b""
            self._times[row.key] = row.timestamp
            self._producer_id, self._epoch = producer_id, epoch
            self._end_epoch = header.producer_epoch
            self._certain.update(own[_main_key(row.key)])

    def _own_keys(self, rows: list[_Row], writer: tuple[int, int]) -> dict[bytes, set[bytes]]:
        """Return the keys under which a transaction has a valid record; for each, those whose record names its writer.

        A record names the producer and epoch that write it, which no row of data can know, so it always counts. Records of
        earlier versions name none. They count until the sink has a record that does.
        """
        own: dict[bytes, set[bytes]] = {}
        for row in rows:
            if _main_key(row.key) != row.key:
                continue
            named = record_json.writer_of(row.value or b"")
            if named == writer:
                own[row.key] = {row.key}
            elif named is None and row.key not in self._certain:
                own[row.key] = set()
        return own

    def _record(self) -> ControlRecord | None:
        key = record_json.key_of(self._sink)
        value = self._committed.get(key)
        if key in self._foreign and key not in self._certain:
            raise ExactlyOnceError(
                f"exactlyOnceId {self._sink!r}: the control record at offset {self._foreign[key]} of {self._topic!r} was written "
                "by another producer than the sink's, perhaps outside of a transaction, so it is unknown what the sink has "
                "committed. Check which rows consumers of committed records see, and continue with a new exactlyOnceId"
            )
        return None if value is None else record_json.decode(self._sink, value, self._committed)

    def written_ms(self, sink: str) -> int:
        """Return the timestamp of the last record of a sink in milliseconds since 1970; -1 if there is none."""
        return self._times.get(record_json.key_of(sink), -1)

    @property
    def last_end(self) -> ProducerIdAndEpoch:
        """The producer id of the last committed record, and the epoch of its transaction's marker."""
        return ProducerIdAndEpoch(self._producer_id, self._end_epoch)

    def pending(self, producer_id: int) -> ControlRecord | None:
        """Return the record of a producer that has no marker so far; None if its main part is not written yet.

        Raises:
            ExactlyOnceError: it is not a control record of this sink, or several wait for the same marker.
        """
        _, rows = self._pending.get(producer_id, (0, []))
        mains = [row.value or b"" for row in rows if row.key == record_json.key_of(self._sink)]
        if len(mains) > 1:
            raise ExactlyOnceError(
                f"exactlyOnceId {self._sink!r}: {len(mains)} control records wait for the same marker"
            )
        parts = {row.key: row.value or b"" for row in rows}
        return record_json.decode(self._sink, mains[0], parts) if mains else None

    def wrote(self, producer_id: int, epoch: int) -> bool:
        """Return whether the sink has written here with this epoch, committed or not. Compaction may have removed the record."""
        return (producer_id, epoch) in self._executions

    def _undecided(self) -> tuple[tuple[int, int, int, int], ...]:
        return tuple(
            (producer_id, epoch, rows[0].offset, rows[-1].offset)
            for producer_id, (epoch, rows) in self._pending.items()
            if self._own_keys(rows, (producer_id, epoch)) or all(_main_key(row.key) != row.key for row in rows)
        )


def _main_key(key: bytes) -> bytes:
    """Return the key of the main record to which a key belongs."""
    return key.partition(b"#")[0]


class WholeControlLog(ControlLog):
    """The control records of all sinks, for `pyproducer txn list`."""

    def records(self, deadline: float) -> dict[str, ControlRecord | PyProducerError]:
        """Return the last record of each sink, or the error if it cannot be read.

        Raises: as `read`.
        """
        self.read(deadline)
        found: dict[str, ControlRecord | PyProducerError] = {}
        for key in sorted(key for key in self._committed if b"#" not in key):
            sink = key.decode(errors="backslashreplace")
            try:
                found[sink] = record_json.decode(sink, self._committed[key], self._committed)
            except ExactlyOnceError as error:
                found[sink] = error
        return found

    def _record(self) -> None:
        return None

    def _is_own(self, keys: Any) -> Any:
        return pc.is_valid(keys)

    def _note(self, header: BatchHeader, rows: list[_Row]) -> None:
        if header.is_transactional:
            super()._note(header, rows)
