"""Records as lines of text, for people.

Owns: what bytes, times and headers look like. Must not know: where records come from, where lines go.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from spark_producer.record.reading import Record

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_reset(partition: int, position: int, start: int) -> str:
    """What is said when reading goes on at the start of a log that does not hold `position`."""
    if start > position:
        what = f"offsets {position} to {start - 1} were removed from the log, and are skipped"
    else:
        what = f"offset {position} is not in the log: the topic was made anew, or its end was lost"
    return f"partition {partition}: {what}; reading on at {start}"


def format_record(partition: int, record: Record) -> str:
    """One line: partition, offset, time, key, value, headers."""
    parts = [
        f"{partition}:{record.offset}",
        format_timestamp(record.timestamp),
        f"key={format_bytes(record.key)}",
        f"value={format_bytes(record.value)}",
    ]
    if record.headers:
        pairs = ", ".join(f"{_printable(name)}: {format_bytes(value)}" for name, value in record.headers)
        parts.append(f"headers={{{pairs}}}")
    return "  ".join(parts)


def format_bytes(content: bytes | None) -> str:
    """UTF-8 text as it is, with control characters escaped; anything else as 0x…; None as null."""
    if content is None:
        return "null"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return "0x" + content.hex()
    # Bytes that are mostly control characters are no text, even if they happen to be UTF-8.
    if sum(not (character.isprintable() or character.isspace()) for character in text) * 4 > len(text):
        return "0x" + content.hex()
    return _printable(text)


def format_timestamp(milliseconds: int) -> str:
    """Milliseconds since 1970 in UTC; the number itself where there is no such date, `no-time` for -1."""
    if milliseconds == -1:
        return "no-time"
    try:
        moment = EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds}ms"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03}Z"


def _printable(text: str) -> str:
    """Nothing that could steer a terminal."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
