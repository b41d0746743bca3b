"""Records as lines of text."""

from __future__ import annotations

import json

import pytest

from spark_producer.cli.record_text import format_bytes, format_record, format_timestamp, record_json
from spark_producer.record.reading import ConsumerRecord


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (None, "null"),
        (b"", ""),
        ("grün 🚀".encode(), "grün 🚀"),
        (b'{"a": 1}', '{"a": 1}'),
        (b"line\nline\ttab", "line\\nline\\ttab"),
        (b"\x1b[2Jharmless text", "\\x1b[2Jharmless text"),
        (b"\x00\x01\x02\x03", "0x00010203"),
        (b"\xff\xfe", "0xfffe"),
        ("\u202e".encode() + b"reversed", "\\u202ereversed"),
    ],
)
def test_bytes_as_people_read_them(content: bytes | None, shown: str) -> None:
    assert format_bytes(content) == shown


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1356998400123, "2013-01-01T00:00:00.123Z"),
        (-1, "no-time"),
        (-1500, "1969-12-31T23:59:58.500Z"),
        (2**62, f"{2**62}ms"),
        (-(2**62), f"{-(2**62)}ms"),
    ],
)
def test_timestamps_as_people_read_them(milliseconds: int, shown: str) -> None:
    assert format_timestamp(milliseconds) == shown


def test_a_record_is_one_line() -> None:
    record = ConsumerRecord(7, 0, b"UA1545", None, (("trace", b"\x00"), ("na\nme", None)))
    assert format_record(3, record) == (
        "3:7  1970-01-01T00:00:00.000Z  key=UA1545  value=null  headers={trace: 0x00, na\\nme: null}"
    )


def test_no_form_of_a_record_can_control_the_terminal() -> None:
    """JSON asks for escapes of the first 32 characters alone; U+009B is as good as ESC and a bracket to many terminals."""
    evil = "a\x1b[2J\x7f\x9b31m\u202eé\U0001f600\U000e0001"
    record = ConsumerRecord(7, 0, evil.encode(), evil.encode(), ((evil, evil.encode()),))
    for shown in (format_record(0, record), record_json(0, record)):
        assert shown.isprintable()
        assert "é\U0001f600" in shown
    page = json.loads(record_json(0, record))
    assert (page["key"], page["value"], page["headers"]) == (evil, evil, [{"key": evil, "value": evil}])
