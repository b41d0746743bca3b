"""The functions that format records as lines of text for people."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

from spark_producer.cli.json_output import as_json
from spark_producer.common.escape import for_log
from spark_producer.record.reading import ConsumerRecord

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_open_transaction(topic: str, partition: int, stable: int, end: int) -> str:
    """Return the notice about records that an open transaction holds back: from the LSO `stable` to the end of the log."""
    records = (
        f"{end - stable:,} records from offset {stable} on are"
        if end - stable > 1
        else f"the record at offset {stable} is"
    )
    return (
        f"{topic}-{partition}: {records} held back by an open transaction. "
        f"`pyproducer txn describe --topic {topic}` shows its id"
    )


def format_reset(partition: int, position: int, start: int) -> str:
    """Return the notice that a reader continues at the `start` of a log, because `position` is not in it."""
    if start > position:
        reason = f"offsets {position} to {start - 1} were deleted from the log, and are skipped"
    else:
        reason = f"offset {position} is not in the log: the topic was recreated, or the end of the log was lost"
    return f"partition {partition}: {reason}. Reading continues at {start}"


def format_record(partition: int, record: ConsumerRecord) -> str:
    """Return one line with the partition, offset, time, key, value and headers of a record."""
    parts = [
        f"{partition}:{record.offset}",
        format_timestamp(record.timestamp),
        f"key={format_bytes(record.key)}",
        f"value={format_bytes(record.value)}",
    ]
    if record.headers:
        pairs = ", ".join(f"{for_log(name, limit=None)}: {format_bytes(value)}" for name, value in record.headers)
        parts.append(f"headers={{{pairs}}}")
    return "  ".join(parts)


def record_json(partition: int, record: ConsumerRecord) -> str:
    """Return a record as JSON on one line. Bytes that are not UTF-8 are in base64, in a field such as `value_base64`."""
    fields: dict[str, object] = {"partition": partition, "offset": record.offset, "timestamp": record.timestamp}
    fields |= _json_bytes("key", record.key) | _json_bytes("value", record.value)
    fields["headers"] = [{"key": name} | _json_bytes("value", value) for name, value in record.headers]
    return as_json(fields)


def _json_bytes(name: str, content: bytes | None) -> dict[str, object]:
    try:
        return {name: None if content is None else content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content or b"").decode()}


def format_bytes(content: bytes | None) -> str:
    """Return UTF-8 text with control characters escaped, other bytes as 0x…, and `null` for None."""
    if content is None:
        return "null"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return "0x" + content.hex()
    if text.isprintable():
        return text
    # Bytes with many control characters are not text, even if they happen to be UTF-8.
    if sum(not (character.isprintable() or character.isspace()) for character in text) * 4 > len(text):
        return "0x" + content.hex()
    return for_log(text, limit=None)


def format_timestamp(milliseconds: int) -> str:
    """Return milliseconds since 1970 as a date and time in UTC; beyond the year 9999 as a number; `no-time` for -1."""
    if milliseconds == -1:
        return "no-time"
    try:
        moment = EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds}ms"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03}Z"
