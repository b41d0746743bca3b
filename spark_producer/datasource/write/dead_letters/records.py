"""Dead records: the bad row's key, value, headers and timestamp, and headers with its origin and error.

The suffixes of the header names are those of Kafka Connect where it has them (KIP-298).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, cast

import pyarrow as pa

from spark_producer.accumulator import BrokerRejection
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import for_log
from spark_producer.datasource.write.schema_mismatch import MismatchedPiece
from spark_producer.kernel import MAX_HEADERS
from spark_producer.kernel.arrays import BytesArray
from spark_producer.producer.bad_rows import BadRowGroup, FoundBy
from spark_producer.record.byte_columns import binary_column
from spark_producer.record.columns import take_rows, usable_timestamps
from spark_producer.record.header_column import entry_field, header_entries
from spark_producer.record.rejected import Rejected, RowErrorKind

PREFIX = "__pyproducer.errors."
"""The prefix of the names of all error headers."""

HEAD_BYTES = 1024
"""Maximum bytes of a value or key that a header keeps if it is too large for the dead-letter topic."""

HEADERS_DROPPED = f"{PREFIX}headers.dropped"

MAX_OWN_HEADERS = 18
"""Maximum error headers of a dead record, which leave fewer for the row's own headers."""

Header = tuple[str, bytes | None]

_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        pa.field("timestamp", pa.int64()),
    ]
)


class LetterOrigin(NamedTuple):
    """The task with a bad row: the partition of the DataFrame, the attempt from 0 on, and a description of the write.

    `write_id` identifies this execution of the write, and is equal in all of its tasks and their attempts.
    """

    task: int
    attempt: int
    write: str
    write_id: str = ""


class DeadRecord(NamedTuple):
    """A record for the dead-letter topic. `topic` is its original topic, empty if it named none."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]
    timestamp: int
    topic: str = ""


def from_bad_rows(
    group: BadRowGroup,
    batch: pa.RecordBatch,
    first_row: int,
    origin: LetterOrigin,
    *,
    with_headers: bool,
    with_error_headers: bool,
    now_ms: int,
    unfit: MismatchedPiece | None = None,
) -> Iterator[DeadRecord]:
    """Yield the dead records of rows of `batch` that checks have found bad; its rows are numbered from `first_row` on.

    Values that are `unfit` for their schema, which are null in the batch, become JSON.

    `with_headers` says whether the rows' own headers are written, `with_error_headers` whether ours are added.
    """
    rejected = list(group.rows)
    rows = take_rows(batch, pa.array([row.row - first_row for row in rejected], pa.int64()).to_numpy())
    keys, values = (_bytes(rows, name) for name in ("key", "value"))
    headers = _headers(rows) if with_headers else [([], 0)] * len(rejected)
    times = usable_timestamps(rows, now_ms)
    partitions = _partitions(rows)
    for at, found in enumerate(rejected):
        own, dropped = headers[at]
        if with_error_headers:
            kept = _own_headers(own)
            own = kept + _check_headers(found, group, partitions[at], dropped + len(own) - len(kept), origin)
        time = now_ms if found.kind is RowErrorKind.TIMESTAMP else times[at]
        key, value = keys[at], values[at]
        if unfit is not None:
            key, value = (
                unfit.text_of(name, found.row - first_row) or encoded
                for name, encoded in (("key", key), ("value", value))
            )
        yield DeadRecord(key, value, own, time, found.topic or "")


def from_broker_refusal(
    refused: BrokerRejection, origin: LetterOrigin, *, with_error_headers: bool, now_ms: int
) -> Iterator[DeadRecord]:
    """Yield the dead records of rows that a broker has rejected."""
    topic, partition = refused.topic_partition
    code, text_of_error = refused.error.code, message_of(refused)
    for row, text, record in zip(refused.rows, refused.texts, from_dead_record(refused), strict=True):
        headers = record.headers
        if with_error_headers:
            headers = _own_headers(headers)[: MAX_HEADERS - MAX_OWN_HEADERS]
            headers += _error_headers(
                topic=topic, partition=partition, row=row, stage=FoundBy.BROKER, error=refused.error,
                message=text_of_error(row, text), code=code, dropped=len(record.headers) - len(headers), origin=origin,
            )  # fmt: skip
        time = now_ms if code is Code.INVALID_TIMESTAMP else record.timestamp
        yield record._replace(headers=headers, timestamp=time, topic=topic)


def from_dead_record(refused: BrokerRejection) -> list[DeadRecord]:
    """Return the records that a broker has rejected, unchanged."""
    return [
        DeadRecord(
            record["key"],
            record["value"],
            [(entry["key"], entry["value"]) for entry in record["headers"]],
            record["timestamp"],
        )
        for record in refused.records.to_pylist()
    ]


def message_of(refused: BrokerRejection) -> Callable[[int, str], str]:
    """Return a function that returns the error message for a row's number and the broker's message."""
    code, (topic, partition) = refused.error.code, refused.topic_partition
    subject = f"topic {topic!r}, partition {partition}"
    return lambda row, text: (
        f"the broker refused row {row} of the task ({subject}) with {code.name} ({code}): {for_log(text)}"
    )


def truncate(record: DeadRecord) -> DeadRecord | None:
    """Return a record that is too large for the dead-letter topic without its largest part; None if no part is left.

    A value or key is replaced by its digest and its first bytes, the row's own headers by their number.
    """
    ours = [header for header in record.headers if header[0].startswith(PREFIX)]
    own = len(record.headers) - len(ours)
    whole = sum(len(key) + len(value or b"") for key, value in record.headers if not key.startswith(PREFIX))
    sizes = {"value": len(record.value or b""), "key": len(record.key or b""), "headers": whole}
    largest = max(sizes, key=lambda name: sizes[name])
    if not sizes[largest]:
        return None
    if largest == "headers":
        before = next((int(value or b"0") for key, value in ours if key == HEADERS_DROPPED), 0)
        ours = [header for header in ours if header[0] != HEADERS_DROPPED]
        return record._replace(headers=[*ours, (HEADERS_DROPPED, b"%d" % (before + own))])
    part = (record.value if largest == "value" else record.key) or b""
    texts = {
        f"{largest}.bytes": b"%d" % len(part),
        f"{largest}.sha256": hashlib.sha256(part).hexdigest().encode(),
        f"{largest}.head": part[:HEAD_BYTES],
    }
    headers = record.headers + [(PREFIX + name, text) for name, text in texts.items()]
    without = record._replace(value=None) if largest == "value" else record._replace(key=None)
    return without._replace(headers=headers)


def as_batch(records: Sequence[DeadRecord]) -> pa.RecordBatch:
    """Return records as columns for `send_batch`."""
    columns: dict[str, list[object]] = {
        "key": [record.key for record in records],
        "value": [record.value for record in records],
        "headers": [[{"key": key, "value": value} for key, value in record.headers] for record in records],
        "timestamp": [record.timestamp for record in records],
    }
    return pa.RecordBatch.from_pydict(columns, schema=_SCHEMA)


def _check_headers(
    found: Rejected, group: BadRowGroup, partition: int | None, dropped: int, origin: LetterOrigin
) -> list[Header]:
    error = group.error or found.error()
    return _error_headers(
        topic=found.topic, partition=partition, row=found.row, stage=group.stage, error=error, message=found.message,
        code=group.error.code if group.error is not None else None, dropped=dropped, origin=origin,
    )  # fmt: skip


def _error_headers(
    *,
    topic: str | None,
    partition: int | None,
    row: int,
    stage: FoundBy,
    error: Exception,
    message: str,
    code: Code | None,
    dropped: int,
    origin: LetterOrigin,
) -> list[Header]:
    """Return the error headers, without those that have no value."""
    kind = type(error)
    texts = {
        "topic": topic,
        "partition": partition,
        "task.id": origin.task,
        "row": row,
        "attempt": origin.attempt,
        "write": origin.write,
        "write.id": origin.write_id or None,
        "stage": stage.value,
        "exception.class.name": f"{kind.__module__}.{kind.__qualname__}",
        "exception.message": message,
        "code": None if code is None else int(code),
        "headers.dropped": dropped or None,
    }
    return [(PREFIX + name, str(text).encode()) for name, text in texts.items() if text is not None]


def _bytes(rows: pa.RecordBatch, name: str) -> list[bytes | None]:
    if name not in rows.schema.names:
        return [None] * rows.num_rows
    return _listed(binary_column(name, rows.column(name)).array)


def _listed(array: BytesArray) -> list[bytes | None]:
    return array.to_pylist()


def _partitions(rows: pa.RecordBatch) -> list[int | None]:
    if "partition" not in rows.schema.names:
        return [None] * rows.num_rows
    return cast("list[int | None]", rows.column("partition").to_pylist())


def _headers(rows: pa.RecordBatch) -> list[tuple[list[Header], int]]:
    """Return the headers of each row that can be written, and the number of the others."""
    counted = header_entries(rows.column("headers")) if "headers" in rows.schema.names else None
    if counted is None:
        return [([], 0)] * rows.num_rows
    counts, entries = counted
    keys = _listed(binary_column("headers.key", entry_field(entries, "key")).array)
    values = _listed(binary_column("headers.value", entry_field(entries, "value")).array)
    found, at = [], 0
    for count in counts.tolist():
        every = zip(keys[at : at + count], values[at : at + count], strict=True)
        good = [*_readable(every)][: MAX_HEADERS - MAX_OWN_HEADERS]
        found.append((good, count - len(good)))
        at += count
    return found


def _own_headers(headers: Sequence[Header]) -> list[Header]:
    """Return a row's own headers, without error headers of an earlier dead letter, which could be taken for the new ones."""
    return [header for header in headers if not header[0].startswith(PREFIX)]


def _readable(entries: Iterable[tuple[bytes | None, bytes | None]]) -> Iterator[Header]:
    """Yield the headers whose key is text."""
    for key, value in entries:
        if key is not None:
            try:
                yield key.decode(), value
            except UnicodeDecodeError:
                continue
