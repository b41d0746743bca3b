"""The control record as bytes: strict JSON with a version, in one record of the control topic, or in several if it is long.

The key of the main record is the sink's name. A long list of transactions is in parts with their own keys (`orders#1`, …), in the
same transaction; the main record has their number and the hash of all parts together, so that parts of another write never count
as its own. Data from Kafka is never unpickled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from spark_producer.common.cluster import Span, TopicPartition, TransactionVersion
from spark_producer.common.escape import for_log
from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once.names import is_task_of
from spark_producer.exactly_once.protocol.control_record import (
    NO_BATCH,
    ControlRecord,
    Earlier,
    Status,
    TaskTransaction,
)

VERSION = 3
"""The version that is written. Version 1 has no numbers of rows, version 2 no writer. Both are read; others are refused."""

MAX_BYTES = 64 << 20
"""Maximum bytes of a control record, all parts together: some million partitions of tasks."""

MAX_PARTS = 4096

MAX_PART_BYTES = 900_000
"""Maximum bytes of one part, unless the topic allows less (`max.message.bytes` is 1,048,588 by default)."""

MAX_NAME_LENGTH = 1000
"""Maximum characters of a name. The longest are those of topics."""

_INT_16, _INT_32, _INT_64 = (1 << 15) - 1, (1 << 31) - 1, (1 << 63) - 1
"""Maximum numbers of epochs, of partitions, and of all others. Larger ones cannot be sent to a broker."""

_FIELDS_1 = {
    "version",
    "sink",
    "query",
    "status",
    "batch",
    "last_done",
    "token",
    "inline",
    "parts",
    "digest",
    "transactions",
}
_FIELDS_2 = _FIELDS_1 | {"rows", "done_rows"}
_FIRST_3 = _FIELDS_2 | {"writer", "origin", "run", "content", "done_content"}
_FIELDS = {1: (_FIELDS_1,), 2: (_FIELDS_2,), 3: (_FIRST_3 | {"micro_batch", "done_micro_batch", "earlier"}, _FIRST_3)}
"""The fields of each version that is read, each exactly once. Version 3 had no micro-batches before its release."""


def key_of(sink: str) -> bytes:
    """Return the key of the main record of a sink."""
    return sink.encode()


def part_key(sink: str, number: int) -> bytes:
    """Return the key of a further part; the first is 1. No sink's name has a `#`."""
    return f"{sink}#{number}".encode()


def encode(
    record: ControlRecord, max_part_bytes: int = MAX_PART_BYTES, writer: tuple[int, int] | None = None
) -> list[tuple[bytes, bytes]]:
    """Return `record` as (key, value) records, parts first, with values of at most `max_part_bytes` bytes.

    `writer` is the producer id and epoch that it is written with; without one the record has version 2.

    Raises:
        ExactlyOnceError: it has more than `MAX_BYTES` bytes or `MAX_PARTS` parts, or could not be decoded again.
    """
    try:
        _check_ids(record.sink, record.transactions)
    except ValueError as error:
        raise ExactlyOnceError(
            f"sink {record.sink!r}: the control record cannot be written: {for_log(str(error))}"
        ) from error
    rows = [_row(transaction) for transaction in record.transactions]
    whole = _dump(rows)
    if len(whole) > MAX_BYTES:
        raise ExactlyOnceError(
            f"sink {record.sink!r}: the control record would have {len(whole)} bytes, more than {MAX_BYTES}: "
            f"{len(rows)} tasks with a transaction each are too many. Write with fewer, larger tasks (coalesce)"
        )
    if len(whole) <= max_part_bytes - 1000 - 100 * len(record.inline) - 64 * len(record.earlier):
        return [(key_of(record.sink), _dump(_head(record, 0, "", rows, writer)))]
    pieces = [whole[at : at + max_part_bytes] for at in range(0, len(whole), max_part_bytes)]
    if len(pieces) > MAX_PARTS:
        raise ExactlyOnceError(
            f"sink {record.sink!r}: the control record would have {len(pieces)} parts of {max_part_bytes} bytes, more than "
            f"{MAX_PARTS}. Raise max.message.bytes of the control topic"
        )
    parts = [(part_key(record.sink, number), piece) for number, piece in enumerate(pieces, 1)]
    head = _dump(_head(record, len(pieces), hashlib.sha256(whole).hexdigest(), [], writer))
    return [*parts, (key_of(record.sink), head)]


def decode(sink: str, value: bytes, parts: Mapping[bytes, bytes]) -> ControlRecord:
    """Return the control record from the `value` of the main record, and the parts by their keys.

    Raises:
        ExactlyOnceError: the bytes are not a control record of this sink, or have an unknown version.
    """
    try:
        head = _strict(value)
        if type(head) is not dict or type(head.get("version")) is not int:
            raise ValueError("it has no version")
        if head["version"] not in _FIELDS:
            raise ExactlyOnceError(
                f"sink {sink!r}: its control record has version {head['version']}, and this pyproducer knows versions 1 to "
                f"{VERSION}: a newer one wrote it. Use that version, or a newer one"
            )
        if set(head) not in _FIELDS[head["version"]] or head["sink"] != sink:
            raise ValueError("its fields are not those of a control record of this sink")
        rows = _join_parts(sink, head, parts) if head["parts"] else head["transactions"]
        return ControlRecord(
            sink,
            None if head["query"] is None else _text(head["query"]),
            Status(head["status"]),
            _number(head["batch"], minimum=NO_BATCH),
            _number(head["last_done"], minimum=NO_BATCH),
            _text(head["token"]),
            _transactions(sink, _list(rows)),
            tuple(
                TopicPartition(_text(topic), _number(partition, _INT_32)) for topic, partition in _list(head["inline"])
            ),
            _number_or_none(head.get("rows")),
            _number_or_none(head.get("done_rows")),
            None if head.get("origin") is None else _text(head["origin"]),
            _text(head.get("run", "")),
            _number_or_none(head.get("content")),
            _number_or_none(head.get("done_content")),
            _number_or_none(head.get("micro_batch")),
            _number_or_none(head.get("done_micro_batch")),
            tuple(map(_earlier, _list(head.get("earlier", [])))),
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ExactlyOnceError(
            f"sink {sink!r}: its record in the control topic is no control record ({for_log(str(error))}). Another program "
            "writes to the topic: inspect it with `pyproducer tail`"
        ) from error


def _join_parts(sink: str, head: dict[str, Any], parts: Mapping[bytes, bytes]) -> Any:
    count = _number(head["parts"])
    if not 0 < count <= MAX_PARTS:
        raise ValueError(f"it has {count} parts")
    found = [parts.get(part_key(sink, number)) for number in range(1, count + 1)]
    whole = b"".join(piece for piece in found if piece is not None)
    if len(whole) > MAX_BYTES or hashlib.sha256(whole).hexdigest() != head["digest"]:
        raise ValueError(f"its {count} parts are those of another record, or incomplete")
    return _strict(whole)


def _head(
    record: ControlRecord, parts: int, digest: str, rows: Sequence[Any], writer: tuple[int, int] | None
) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if writer is not None:
        more = {
            "writer": writer,
            "origin": record.origin,
            "run": record.run,
            "content": record.content,
            "done_content": record.done_content,
            "micro_batch": record.micro_batch,
            "done_micro_batch": record.done_micro_batch,
            "earlier": record.earlier,
        }
    return more | {
        "version": VERSION if writer else 2,
        "sink": record.sink,
        "query": record.query,
        "status": record.status.value,
        "batch": record.batch,
        "last_done": record.last_done,
        "rows": record.rows,
        "done_rows": record.done_rows,
        "token": record.token,
        "inline": record.inline,
        "parts": parts,
        "digest": digest,
        "transactions": rows,
    }


def writer_of(value: bytes) -> tuple[int, int] | None:
    """Return the producer id and epoch that a main record names as its writer; None without one, or if it is no control record.

    Rows can copy a control record, but cannot know the producer and epoch that they will be written with.
    """
    try:
        head = _strict(value)
        producer_id, epoch = _list(head["writer"])
        return _number(producer_id), _number(epoch, _INT_16)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _row(transaction: TaskTransaction) -> list[Any]:
    return [*transaction[:3], int(transaction.transaction_version), transaction.spans]


def _check_ids(sink: str, transactions: Sequence[TaskTransaction]) -> None:
    """Raise ValueError unless all ids are those of the sink's tasks, each once: readers of the record end these transactions."""
    ids = {each.transactional_id for each in transactions}
    foreign = next((each for each in ids if not is_task_of(sink, each)), None)
    if foreign is not None:
        raise ValueError(f"it names {foreign[:100]!r}, which is no task of this sink")
    if len(ids) != len(transactions):
        raise ValueError("it names a transactional id twice")


def _transactions(sink: str, rows: Sequence[Any]) -> tuple[TaskTransaction, ...]:
    found = tuple(map(_transaction, rows))
    _check_ids(sink, found)
    return found


def _transaction(row: Any) -> TaskTransaction:
    transactional_id, producer_id, epoch, transaction_version, spans = _list(row)
    return TaskTransaction(
        _text(transactional_id),
        _number(producer_id),
        _number(epoch, _INT_16),
        TransactionVersion(_number(transaction_version)),
        tuple(map(_span, _list(spans))),
    )


def _span(row: Any) -> Span:
    topic, partition, first, last, records = _list(row)
    return Span(_text(topic), _number(partition, _INT_32), _number(first), _number(last), _number(records))


def _earlier(row: Any) -> Earlier:
    number, rows, content = _list(row)
    return Earlier(_number(number), _number_or_none(rows), _number_or_none(content))


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _strict(data: bytes) -> Any:
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has {len(data)} bytes")
    return json.loads(data, object_pairs_hook=_unique_fields, parse_constant=_no_constant, parse_float=_no_constant)


def _unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field appears twice")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text[:20]} is not a whole number")


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > MAX_NAME_LENGTH or not value.isprintable():
        raise ValueError(f"{value!r:.40} is not a text")
    return value


def _number(value: Any, maximum: int = _INT_64, *, minimum: int = 0) -> int:
    if type(value) is not int or not minimum <= value <= maximum:
        raise ValueError(f"{value!r:.40} is not a number from {minimum} to {maximum}")
    return value


def _number_or_none(value: Any) -> int | None:
    return None if value is None else _number(value)


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise ValueError(f"{value!r:.40} is not a list")
    return value
