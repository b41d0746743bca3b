"""The entries of the coordinator's log: their values, their JSON text, and the state that they build (`CoordinatorState`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from spark_producer.broker.coordinator.offsets import CommittedOffset, OffsetStore
from spark_producer.broker.coordinator.transactions import Transaction, TransactionState
from spark_producer.common.cluster import TopicPartition

FORMAT: Final = 1

GROUP_WEIGHT: Final = 10
"""Number of partitions that a group counts for in the limit of open transactions: the client chooses the length of its name."""


class LogStart(NamedTuple):
    """The first entry of every log."""

    format: int = FORMAT


class TransactionSet(NamedTuple):
    """The whole state of a transactional id."""

    transactional_id: str
    transaction: Transaction


class PartitionsAdded(NamedTuple):
    """Partitions and groups added to an open transaction, so that a long one is not rewritten for each partition."""

    transactional_id: str
    partitions: tuple[TopicPartition, ...]
    groups: tuple[str, ...]
    updated_ms: int


class TransactionExpired(NamedTuple):
    """A transactional id that has expired."""

    transactional_id: str


class PendingOffsets(NamedTuple):
    """Offsets that the open transaction of a producer will commit."""

    producer_id: int
    group: str
    offsets: Mapping[TopicPartition, CommittedOffset]


class OffsetsCommitted(NamedTuple):
    """Committed offsets of a group."""

    group: str
    offsets: Mapping[TopicPartition, CommittedOffset]


class OffsetsDeleted(NamedTuple):
    """Deleted offsets of a group."""

    group: str
    partitions: tuple[TopicPartition, ...]


class PendingOffsetsEnded(NamedTuple):
    """The end of a producer's transaction for the pending offsets of these groups."""

    producer_id: int
    groups: tuple[str, ...]
    commit: bool


Entry: TypeAlias = (
    LogStart
    | TransactionSet
    | PartitionsAdded
    | TransactionExpired
    | PendingOffsets
    | OffsetsCommitted
    | OffsetsDeleted
    | PendingOffsetsEnded
)

_CLASSES: Final[dict[str, type[Entry]]] = {
    "begin": LogStart,
    "put": TransactionSet,
    "added": PartitionsAdded,
    "forgotten": TransactionExpired,
    "pending": PendingOffsets,
    "committed": OffsetsCommitted,
    "removed": OffsetsDeleted,
    "ended": PendingOffsetsEnded,
}
"""The name of each entry in the file → its class."""
_NAMES: Final = {entry: name for name, entry in _CLASSES.items()}


def to_text(entry: Entry) -> str:
    """Return the entry as one line of JSON, without a line end."""
    return json.dumps([_NAMES[type(entry)], *_fields(entry)], separators=(",", ":"))


def _fields(entry: Entry) -> list[object]:
    match entry:
        case TransactionSet(transactional_id, transaction):
            values = transaction._asdict()
            values |= {
                "state": transaction.state.value,
                "partitions": _by_topic(transaction.partitions),
                "groups": sorted(transaction.groups),
            }
            return [transactional_id, values]
        case PartitionsAdded(transactional_id, partitions, groups, updated_ms):
            return [transactional_id, _by_topic(partitions), groups, updated_ms]
        case PendingOffsets(producer_id, group, offsets):
            return [producer_id, group, _offset_rows(offsets)]
        case OffsetsCommitted(group, offsets):
            return [group, _offset_rows(offsets)]
        case OffsetsDeleted(group, removed):
            return [group, _by_topic(removed)]
        case _:
            return list(entry)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics


def _offset_rows(offsets: Mapping[TopicPartition, CommittedOffset]) -> list[object]:
    return [[*partition, *committed] for partition, committed in offsets.items()]


def from_text(text: str) -> Entry:
    """Return the entry that `to_text` has written.

    Raises:
        ValueError: the text is not an entry of this version of the broker.
    """
    try:
        name, *fields = json.loads(text)
        return _entry(name, fields)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{text[:200]!r} is not an entry of a coordinator's log: {error!r}") from error


def _entry(name: str, fields: list[object]) -> Entry:
    match name, fields:
        case "begin", [int(version)] if version == FORMAT:
            return LogStart()
        case "put", [str(transactional_id), dict(values)]:
            return TransactionSet(transactional_id, _transaction(values))
        case "added", [str(transactional_id), dict(partitions), list(groups), int(updated_ms)]:
            names = tuple(_text(group) for group in groups)
            return PartitionsAdded(transactional_id, tuple(_partitions(partitions)), names, updated_ms)
        case "forgotten", [str(transactional_id)]:
            return TransactionExpired(transactional_id)
        case "pending", [int(producer_id), str(group), list(rows)]:
            return PendingOffsets(producer_id, group, _offsets(rows))
        case "committed", [str(group), list(rows)]:
            return OffsetsCommitted(group, _offsets(rows))
        case "removed", [str(group), dict(removed)]:
            return OffsetsDeleted(group, tuple(_partitions(removed)))
        case "ended", [int(producer_id), list(groups), bool(commit)]:
            return PendingOffsetsEnded(producer_id, tuple(_text(group) for group in groups), commit)
        case _:
            raise ValueError(f"unknown entry {name!r} with {len(fields)} fields")


def _transaction(values: Mapping[str, object]) -> Transaction:
    if set(values) != set(Transaction._fields):
        raise ValueError(f"a transaction has the fields {sorted(values)}")
    match values:
        case {"state": str(state), "partitions": dict(partitions), "groups": list(groups)}:
            numbers = {
                name: _number(value) for name, value in values.items() if name not in ("state", "partitions", "groups")
            }
            return Transaction(
                **numbers,
                state=TransactionState(state),
                partitions=frozenset(_partitions(partitions)),
                groups=frozenset(_text(group) for group in groups),
            )
        case _:
            raise ValueError("a transaction has a field of the wrong type")


def _partitions(topics: Mapping[object, object]) -> Iterator[TopicPartition]:
    for topic, indexes in topics.items():
        if not isinstance(indexes, list):
            raise ValueError(f"partitions {indexes!r} are not a list")
        for index in indexes:
            yield TopicPartition(_text(topic), _number(index))


def _offsets(rows: Iterable[object]) -> dict[TopicPartition, CommittedOffset]:
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for row in rows:
        match row:
            case [str(topic), int(index), int(offset), int(leader_epoch), (str() | None) as metadata]:
                offsets[TopicPartition(topic, index)] = CommittedOffset(offset, leader_epoch, metadata)
            case _:
                raise ValueError(f"{row!r} is not an offset")
    return offsets


def _number(value: object) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is not a number")
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} is not a string")
    return value


def merge_added(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield entries with the same effect, in which all additions to a transaction are merged.

    Otherwise a transaction that grew one partition at a time would be copied for each of them: tens of thousands take a minute.
    """
    added: dict[str, list[PartitionsAdded]] = {}
    for entry in entries:
        if isinstance(entry, PartitionsAdded):
            added.setdefault(entry.transactional_id, []).append(entry)
            continue
        if isinstance(entry, TransactionSet | TransactionExpired):
            yield from _as_one(added.pop(entry.transactional_id, []))
        yield entry
    for some in added.values():
        yield from _as_one(some)


def _as_one(added: list[PartitionsAdded]) -> Iterator[PartitionsAdded]:
    if added:
        partitions = tuple(each for one in added for each in one.partitions)
        groups = tuple(each for one in added for each in one.groups)
        yield added[-1]._replace(partitions=partitions, groups=groups)


class CoordinatorState:
    """The state of the coordinator. An entry changes it in the same way when it is written and when it is read."""

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.offsets = OffsetStore()
        self.open_partitions = 0
        """Number of partitions of all open transactions together, with their groups weighted by `GROUP_WEIGHT`."""

    def apply(self, entry: Entry) -> None:
        """Apply one entry.

        Raises:
            ValueError: the entry contradicts earlier ones.
        """
        match entry:
            case TransactionSet(transactional_id, transaction):
                self._put(transactional_id, transaction)
            case PartitionsAdded(transactional_id, partitions, groups, updated_ms):
                known = self.transactions.get(transactional_id)
                if known is None:
                    raise ValueError(f"{transactional_id!r} has no transaction to add to")
                grown = known._replace(
                    partitions=known.partitions.union(partitions),
                    groups=known.groups.union(groups),
                    updated_ms=updated_ms,
                )
                self._put(transactional_id, grown)
            case TransactionExpired(transactional_id):
                self._count(self.transactions.pop(transactional_id, None), -1)
            case PendingOffsets():
                self.offsets.put_pending(entry.producer_id, entry.group, entry.offsets)
            case OffsetsCommitted():
                self.offsets.put(entry.group, entry.offsets)
            case OffsetsDeleted(group, partitions):
                self.offsets.remove(group, partitions)
            case PendingOffsetsEnded(producer_id, groups, commit):
                self.offsets.end(producer_id, groups, commit=commit)
            case LogStart():
                return

    def _put(self, transactional_id: str, transaction: Transaction) -> None:
        self._count(self.transactions.get(transactional_id), -1)
        self._count(transaction, 1)
        self.transactions[transactional_id] = transaction

    def _count(self, transaction: Transaction | None, sign: int) -> None:
        if transaction is not None:
            self.open_partitions += sign * (len(transaction.partitions) + GROUP_WEIGHT * len(transaction.groups))

    def entries(self) -> Iterator[Entry]:
        """Yield entries that build this state from an empty one."""
        for transactional_id, transaction in self.transactions.items():
            yield TransactionSet(transactional_id, transaction)
        for group, offsets in self.offsets.committed.items():
            yield OffsetsCommitted(group, offsets)
        for pending in self.offsets.pending():
            yield PendingOffsets(*pending)
