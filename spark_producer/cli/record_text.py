"""The functions that format records as lines of text for people."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta

from spark_producer.common.escape import for_log
from spark_producer.record.reading import ConsumerRecord

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_held(topic: str, partition: int, stable: int, end: int) -> str:
    """Return a line that says what an open transaction holds back: the records from `stable` on, up to the log's end."""
    records = (
        f"{end - stable:,} records from offset {stable} on are"
        if end - stable > 1
        else f"the record at offset {stable} is"
    )
    return (
        f"{topic}-{partition}: {records} held back by an open transaction; "
        f"`pyproducer txn describe --topic {topic}` says whose"
    )


def format_reset(partition: int, position: int, start: int) -> str:
    """Return the message for a reader that goes on at the `start` of a log, because the log does not hold `position`."""
    if start > position:
        what = f"offsets {position} to {start - 1} were removed from the log, and are skipped"
    else:
        what = f"offset {position} is not in the log: the topic was made anew, or its end was lost"
    return f"partition {partition}: {what}; reading on at {start}"


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
    """Return a record as JSON on one line. Bytes that are no UTF-8 are in base64, under a name that says so (`value_base64`).

    What could control a terminal is escaped (\\u009b): JSON itself asks that of the first 32 characters alone.
    """
    page: dict[str, object] = {"partition": partition, "offset": record.offset, "timestamp": record.timestamp}
    page |= _json_bytes("key", record.key) | _json_bytes("value", record.value)
    page["headers"] = [{"key": name} | _json_bytes("value", value) for name, value in record.headers]
    text = json.dumps(page, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in text)


def _json_bytes(name: str, content: bytes | None) -> dict[str, object]:
    try:
        return {name: None if content is None else content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content or b"").decode()}


def format_bytes(content: bytes | None) -> str:
    """Return UTF-8 text as it is, with control characters escaped; all other bytes as 0x…; and null for None."""
    if content is None:
        return "null"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return "0x" + content.hex()
    if text.isprintable():
        return text
    # Bytes that hold many control characters are not text, even if they happen to be UTF-8.
    if sum(not (character.isprintable() or character.isspace()) for character in text) * 4 > len(text):
        return "0x" + content.hex()
    return for_log(text, limit=None)


def format_timestamp(milliseconds: int) -> str:
    """Return milliseconds since 1970 as a date and time in UTC; the number where there is no such date; `no-time` for -1."""
    if milliseconds == -1:
        return "no-time"
    try:
        moment = EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds}ms"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03}Z"
