"""The JSON of `pyproducer txn`: a sink, its last control record, its transactions, and what blocks readers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import PyProducerError
from spark_producer.exactly_once.protocol.control_record import NO_BATCH, ControlRecord, Status
from spark_producer.exactly_once.repair.describe import BlockedReaders, OpenTransaction, SinkDescription, SinkSummary
from spark_producer.exactly_once.repair.lost_markers import LostMarker

Fields: TypeAlias = dict[str, object]


def summary_fields(line: SinkSummary) -> Fields:
    """Return a sink of the list. `error` is the text of a record that cannot be read."""
    is_unreadable = isinstance(line.record, PyProducerError)
    return {
        "sink": line.sink,
        "record": None if isinstance(line.record, PyProducerError) else record_fields(line.record),
        "error": str(line.record) if is_unreadable else None,
        "written_ms": _time(line.written_ms),
        "open": list(line.open_ids),
    }


def description_fields(sink: str, found: SinkDescription, steps: Iterable[str]) -> Fields:
    """Return the description of a sink, and the next steps."""
    record = found.log_state.record
    return {
        "sink": sink,
        "record": record_fields(record),
        "written_ms": _time(found.written_ms),
        "transactions": [] if record is None else _transactions(record, found),
        "open": [_open(each) for each in found.open],
        "blocked_readers": [_blocked(each) for each in found.blocked_readers],
        "lost_markers": _markers(found.lost_markers.markers),
        "unseen_topics": sorted({topic for topic, _ in found.lost_markers.unseen}),
        "next": list(steps),
    }


def topic_fields(blocked: Sequence[BlockedReaders], steps: Iterable[str]) -> Fields:
    """Return the blocked readers of topics, with the keys of a sink's description."""
    empty: Fields = dict.fromkeys(("sink", "record", "written_ms"))
    empty |= {"transactions": [], "open": []}
    return empty | {
        "blocked_readers": [_blocked(each) for each in blocked],
        "lost_markers": [],
        "unseen_topics": [],
        "next": list(steps),
    }


def resolved_fields(sink: str, record: ControlRecord | None, changes: Iterable[str] = ()) -> Fields:
    """Return the result of `txn resolve`: the last control record after it, and the changes that the record does not show."""
    return {"sink": sink, "record": record_fields(record), "changes": list(changes)}


def repaired_fields(sink: str, written: Iterable[LostMarker]) -> Fields:
    """Return the result of `txn repair`: the markers that were written."""
    return {"sink": sink, "written_markers": _markers(written)}


def record_fields(record: ControlRecord | None) -> Fields | None:
    """Return a control record without its transactions; None if there is none."""
    if record is None:
        return None
    return {
        "status": record.status.value,
        "batch": _number(record.batch),
        "last_done": _number(record.last_done),
        "query": record.query,
        "token": record.token,
    }


def _markers(markers: Iterable[LostMarker]) -> list[Fields]:
    """Return lost markers; the outcome is None if it is unknown."""
    outcomes = {True: "committed", False: "aborted", None: None}
    return [
        _place(each.topic_partition)
        | {
            "producer_id": each.producer_id,
            "epoch": each.epoch,
            "first_offset": each.first_offset,
            "outcome": outcomes[each.commit],
        }
        for each in markers
    ]


def _transactions(record: ControlRecord, found: SinkDescription) -> list[Fields]:
    """Return the transactions that a record names. The outcomes of those of a decided batch are known if it is PARTIAL."""
    still_open = {each.transactional_id for each in found.open}
    outcomes: list[str | None] = [None] * len(record.transactions)
    if found.outcomes:
        outcomes = [each.value for each in found.outcomes]
    elif record.status is Status.INTENT:
        outcomes = ["open" if one.transactional_id in still_open else "ended" for one in record.transactions]
    return [
        {
            "transactional_id": one.transactional_id,
            "producer_id": one.producer_id,
            "epoch": one.epoch,
            "outcome": outcome,
            "spans": [span._asdict() for span in one.spans],
        }
        for one, outcome in zip(record.transactions, outcomes, strict=True)
    ]


def _blocked(readers: BlockedReaders) -> Fields:
    known = readers.producers
    return _place(readers.topic_partition) | {
        "last_stable_offset": readers.last_stable_offset,
        "end_offset": readers.end_offset,
        "producers": None
        if known is None
        else [
            each._asdict() | {"transaction": None if each.transaction is None else _open(each.transaction)}
            for each in known
        ],
    }


def _open(one: OpenTransaction) -> Fields:
    return one._asdict() | {"partitions": [_place(each) for each in one.partitions]}


def _place(partition: TopicPartition) -> Fields:
    return {"topic": partition[0], "partition": partition[1]}


def _number(batch: int) -> int | None:
    return None if batch == NO_BATCH else batch


def _time(ms: int) -> int | None:
    return None if ms < 0 else ms
