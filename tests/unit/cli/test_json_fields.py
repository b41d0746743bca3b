"""`pyproducer write` takes fields out of JSON lines and keeps the document's bytes; tombstones, late fields, other documents."""

from __future__ import annotations

import gzip
import io
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.broker import LocalBroker
from spark_producer.cli import json_lines, json_scan, table_files
from spark_producer.cli.entry import main
from spark_producer.errors import PyProducerError, RecordError, SchemaError
from tests.support.read_back import read_topic

UNREACHABLE = ["--bootstrap-servers", "127.0.0.1:1", "--timeout", "1"]


def rows_of(path: Path, content: bytes, **mapped: Any) -> list[dict[str, Any]]:
    path.write_bytes(content)
    with ExitStack() as stack:
        source = table_files.open_file(stack, str(path), "json")
        wanted = table_files.Mapped(**mapped)
        table_files.check_columns(source, wanted)
        return [row for batch in table_files.as_sink_columns(source, wanted) for row in batch.to_pylist()]


def as_bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


VALUES: dict[bytes, bytes | None] = {
    b"12345678901234567.891": b"12345678901234567.891",
    b"1.10": b"1.10",
    b"1e400": b"1e400",
    b"-1E+400": b"-1E+400",
    b"-0": b"-0",
    b"-0.0": b"-0.0",
    b"9" * 5000: b"9" * 5000,
    b"9007199254740993.0": b"9007199254740993.0",
    b"NaN": b"NaN",
    b"-Infinity": b"-Infinity",
    b"true": b"true",
    b"null": None,
    b'""': b"",
    b'"x\\u00e9\\n\\/\\"\\ud83d\\ude00"': 'xé\n/"😀'.encode(),
    b'"1.10"': b"1.10",
    b'"null"': b"null",
    b"[ ]": b"[ ]",
    b"[1.10,  1e400,NaN]": b"[1.10,  1e400,NaN]",
    b'{ "b":1.10, "a":{"c":123456789012345678.25} , "b":2 }': b'{ "b":1.10, "a":{"c":123456789012345678.25} , "b":2 }',
    b'{"\\u0061":"\\u00e9\\/", "x":"\\ud800"}': b'{"\\u0061":"\\u00e9\\/", "x":"\\ud800"}',
    b'["id", "\\"id\\": 5", {"id": 6}]': b'["id", "\\"id\\": 5", {"id": 6}]',
}


@pytest.mark.covers("COM24")
@pytest.mark.parametrize("document", VALUES)
@pytest.mark.parametrize("is_long", [False, True], ids=["parsed", "scanned"])
def test_what_is_taken_out_of_a_line_keeps_its_bytes(
    tmp_path: Path, document: bytes, is_long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The field is key, value and header. Long lines are read by other code."""
    if is_long:
        monkeypatch.setattr(json_lines, "MAX_PARSED", 0)
    content = b'{"other": [{"id": 0}], "id" : ' + document + b' , "name": "id"}\n{"id":1}\n'
    row, second = rows_of(tmp_path / "x.json", content, key="id", value="id", headers={"h": "id"})
    assert as_bytes(row["key"]) == as_bytes(row["value"]) == row["headers"][0]["value"] == VALUES[document]
    assert as_bytes(second["key"]) == b"1"


@pytest.mark.covers("COM24")
def test_two_long_decimals_are_two_keys(embedded_broker: LocalBroker, topic: str, tmp_path: Path) -> None:
    embedded_broker.create_topic(topic, 1)
    (tmp_path / "x.json").write_bytes(b'{"id": 12345678901234567.891}\n{"id": 12345678901234567.892}\n')
    arguments = ["write", str(tmp_path / "x.json"), topic, "--key", "id"]
    assert main([*arguments, "--bootstrap-servers", embedded_broker.bootstrap_servers]) == 0
    found = [row.key for row in read_topic(embedded_broker.bootstrap_servers, topic)]
    assert found == [b"12345678901234567.891", b"12345678901234567.892"]


@pytest.mark.covers("COM24")
def test_times_and_partitions_of_lines(tmp_path: Path) -> None:
    content = b'{"at": 1357017420000, "p": 3}\n{"at": "1357017420001", "p": "4"}\n{"at": null, "p": null}\n'
    rows = rows_of(tmp_path / "x.json", content, timestamp="at", partition="p")
    assert [(row["timestamp"], row["partition"]) for row in rows] == [
        (1357017420000, 3), (1357017420001, 4), (None, None),
    ]  # fmt: skip


@pytest.mark.covers("COM24")
def test_a_field_that_is_given_twice_is_refused_if_it_is_taken_out(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for line in (b'{"id":1,"id":1,"v":2}', b'{"id":1,"\\u0069d":2,"v":3}'):
        with pytest.raises(RecordError, match=r"x\.json, line 2: the object has the field 'id' twice"):
            rows_of(path, b'{"id":0,"v":0}\n' + line, key="id")
        assert [row["value"] for row in rows_of(path, line)] == [line]
        assert len(rows_of(path, line, key="v")) == 1


@pytest.mark.covers("COM24")
def test_a_name_with_escapes_is_found(tmp_path: Path) -> None:
    for name, written in (
        ("é", b'"\\u00e9"'),
        ("a/b", b'"a\\/b"'),
        ('"', b'"\\""'),
        ("", b'""'),
        ("id", b'"\\u0069\\u0064"'),
    ):
        (row,) = rows_of(tmp_path / "x.json", b"{" + written + b": 1.10}", key=name)
        assert row["key"] == "1.10"


@pytest.mark.covers("COM24")
def test_half_a_pair_is_named_by_line_and_field(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"x\.json, line 2: field 'a' has half of a surrogate pair"):
        rows_of(tmp_path / "x.json", b'{"a": "x"}\n{"a": "\\ud800"}\n', key="a")


@pytest.mark.covers("COM24")
@pytest.mark.parametrize("null", [b"null", b" null \r"])
def test_a_line_null_is_a_tombstone(tmp_path: Path, null: bytes) -> None:
    path = tmp_path / "x.json"
    assert [row["value"] for row in rows_of(path, b'{"a": 1}\n' + null + b"\n")] == [b'{"a": 1}', None]
    assert [row["value"] for row in rows_of(path, null + b'\n{"a": 1}')] == [None, b'{"a": 1}']
    rows = rows_of(path, null + b'\n{"a": 1, "v": null}', key="a", value="v", headers={"h": "a"})
    assert [(row["key"], row["value"], row["headers"][0]["value"]) for row in rows] == [
        (None, None, None), ("1", None, b"1"),
    ]  # fmt: skip


@pytest.mark.covers("COM24")
@pytest.mark.parametrize("late", [1, 25_000])
def test_a_field_that_only_later_lines_have(tmp_path: Path, late: int) -> None:
    content = b'{"a": 1}\n' * late + b'{"a": 1, "id": 7}\n'
    for path, given_bytes in ((tmp_path / "x.json", content), (tmp_path / "x.json.gz", gzip.compress(content))):
        rows = rows_of(path, given_bytes, key="id")
        assert [row["key"] for row in rows] == [None] * late + ["7"]
    with pytest.raises(SchemaError, match=r"x\.json has no column 'idd'\. It has a, id"):
        rows_of(tmp_path / "x.json", b'{"a": 1}\n{"id": 7}\n', key="idd")


@pytest.mark.covers("COM24")
def test_a_field_that_only_later_lines_of_stdin_have(
    embedded_broker: LocalBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded_broker.create_topic(topic, 1)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a": 1}\n{"id": 7}\n')))
    arguments = ["write", "-", topic, "--format", "json", "--key", "id"]
    assert main([*arguments, "--bootstrap-servers", embedded_broker.bootstrap_servers]) == 0
    assert [row.key for row in read_topic(embedded_broker.bootstrap_servers, topic)] == [None, b"7"]


@pytest.mark.covers("COM24")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            json.dumps({"a": 1, "b": [1]}, indent=2).encode(),
            "does not end on its line (the file is pretty-printed, or cut off)",
        ),
        (b'\xef\xbb\xbf{"a": 1,\n "b": 2}', "does not end on its line (the file is pretty-printed, or cut off)"),
        (json.dumps([{"a": 1}, {"a": 2}]).encode(), "it is a JSON array"),
        (json.dumps([{"a": 1}], indent=1).encode(), "it is a JSON array"),
        (b'{"a": 1}{"a": 2}', "Extra data"),
        (b"5\n", "line 1: it is an array or a single value"),
        (b'{"a": "\xff"}', "can't decode byte 0xff"),
        ('{"a": 1}'.encode("utf-16-le"), "line 1: "),
    ],
)
def test_other_documents_get_a_sentence(
    tmp_path: Path, content: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.json").write_bytes(content)
    assert main(["write", str(tmp_path / "x.json"), "t", *UNREACHABLE]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "x.json cannot be read as json" in line
    assert message in line


@pytest.mark.covers("COM24")
def test_a_reason_has_the_column_and_no_line_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"^\S+x.json, line 2: not a JSON object \(Extra data: column 9\)$"):
        rows_of(tmp_path / "x.json", b'{"a": 1}\n{"a": 2},\n', key="a")
    with pytest.raises(PyProducerError, match=r" line 1: Extra data: column 9. Set the format with --format$"):
        rows_of(tmp_path / "x.json", b'{"a": 1},\n', key="a")


@pytest.mark.covers("COM24")
@pytest.mark.parametrize("bad", [b"[1]", b'"x"', b"{", b'{"a": 01}', b'{"a": "\xff"}', b'{"a": 1} {}', b"{'a': 1}"])
def test_a_bad_line_later_has_its_number(tmp_path: Path, bad: bytes) -> None:
    with pytest.raises(RecordError, match=r"x\.json, line 3: not a JSON object"):
        rows_of(tmp_path / "x.json", b'{"a": 1}\n\nnull\n' + bad + b"\n")


JSON = st.recursive(
    st.sampled_from(["1.10", "-0", "1e400", "true", "null", '"x"', '"\\u00e9\\\\"', "[ ]", "{}"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda some: "[" + " , ".join(some) + "]")
        | st.lists(inner, max_size=3).map(
            lambda some: "{" + ",".join(f'"k{number}" :{one}' for number, one in enumerate(some)) + " }"
        )
    ),
    max_leaves=8,
)


@pytest.mark.covers("COM24")
@given(value=JSON, at=st.integers(0, 200), put=st.sampled_from(["", "{", "}", "[", "]", ",", ":", '"', "1", " ", "\\"]))
def test_long_lines_are_checked_as_others_are(value: str, at: int, put: str) -> None:
    """The expressions accept the objects that Python's parser accepts, with the same positions of values."""
    line = f'{{"a":{value}, "b" : 1}}'
    damaged = line[: at % len(line)] + put + line[at % len(line) + 1 :]
    for text in (line, damaged):
        try:
            wanted = list(json_scan.members(text)) if isinstance(json_scan.parsed(text), dict) else None
        except ValueError:
            wanted = None
        try:
            found = list(json_scan.long_members(text.encode()))
        except ValueError:
            found = None
        assert found == wanted


@pytest.mark.covers("COM24")
def test_a_long_line_of_lists_and_one_too_deep(tmp_path: Path) -> None:
    many = b'{"a":[' + b"[]," * 1_000_000 + b'[1.10]],"id":1.10}'
    (row,) = rows_of(tmp_path / "x.json", many, key="id", value="a")
    assert (row["key"], as_bytes(row["value"])) == ("1.10", many[5:-11])
    deep = b'{"a":' + b"[1," * 500_000 + b"1" + b"]" * 500_000 + b"}"
    with pytest.raises(PyProducerError, match="line 2: arrays and objects are nested too deep"):
        rows_of(tmp_path / "x.json", b'{"a": 1}\n' + deep)
