"""Files that were made to do harm, and devices and streams that are no files: one line, and no more memory than for others."""

from __future__ import annotations

import gzip
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from spark_producer.broker import LocalBroker
from spark_producer.cli import parquet_file, table_files
from spark_producer.cli.entry import INTERRUPTED, main
from tests.support.read_back import read_topic

ROOT = Path(__file__).resolve().parents[3]
DEADLINE = 60.0
TEXTS = pa.table({"a": ["x" * 771, "y" * 1028]})
OFFSETS = b"".join(number.to_bytes(4, "little") for number in (0, 771, 1799))


def arrow(path: Path, table: pa.Table, make: Callable[..., Any] = ipc.new_file) -> None:
    with make(str(path), table.schema) as file:
        file.write_table(table)


def with_offset(offset: int, make: Callable[..., Any]) -> Callable[[Path], None]:
    """An Arrow file with a text that ends somewhere else than in its buffer."""

    def write(path: Path) -> None:
        arrow(path, TEXTS, make)
        ends = OFFSETS[:4] + offset.to_bytes(4, "little", signed=True) + OFFSETS[8:]
        content = path.read_bytes()
        assert content.count(OFFSETS) == 1
        path.write_bytes(content.replace(OFFSETS, ends))

    return write


def of(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def texts_that_are_not_utf8(path: Path) -> None:
    arrow(path, pa.table({"a": pa.array([b"\xff\xfe"]).view(pa.string())}))


def twice_the_same_name(path: Path) -> None:
    arrow(path, pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]))


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "beyond.arrow": (with_offset(2**29, ipc.new_file), "offset"),
    "before.arrows": (with_offset(-(2**29), ipc.new_stream), "offset"),
    "utf8.arrow": (texts_that_are_not_utf8, "UTF8"),
    "twice.arrow": (twice_the_same_name, "has several columns 'a'"),
    "twice.csv": (of(b"a,a\n1,2\n"), "has several columns 'a'"),
    "far.arrow": (lambda path: arrow(path, pa.table({"a": pa.array([2**62], pa.timestamp("s"))})), "out of bounds"),
    "late.parquet": (
        lambda path: parquet.write_table(pa.table({"a": pa.array([0, 86_400_000_000]).cast(pa.time64("us"))}), path),
        "row 2, column 'a': a time of day is before 0:00 or not before 24:00",
    ),
    "keys.parquet": (
        lambda path: parquet.write_table(
            pa.table({"a": pa.array([[(b"k", 1)]], pa.map_(pa.binary(), pa.int8()))}), path
        ),
        "column 'a': a map whose keys are binary has no JSON. Make its keys strings",
    ),
    "utf8.parquet": (
        lambda path: parquet.write_table(pa.table({"a": pa.array([b"a", b"\xff"]).view(pa.string())}), path),
        "row 2, column 'a': a text is not UTF-8. Cast the column to binary",
    ),
    "long.arrow": (lambda path: arrow(path, pa.table({"a": pa.array([2**62], pa.duration("s"))})), "out of bounds"),
    "deep.json": (
        of(b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        "line 1: arrays and objects are nested too deep",
    ),
    "deeper.json": (of(b'{"a": 1}\n' + b"[" * 100_000), "line 2: arrays and objects are nested too deep"),
    "half.json": (of(b'{"a": "\\ud800"}'), "surrogates not allowed"),
    "cut.txt.gz": (of(b"\x1f\x8b\x08\x00cut off"), "inflate failed"),
}


@pytest.mark.covers("COM24")
@pytest.mark.slow
@pytest.mark.parametrize("name", ODD)
def test_a_file_that_was_made_to_do_harm_is_one_line(
    embedded_broker: LocalBroker, topic: str, tmp_path: Path, name: str
) -> None:
    """Run in a process of its own: two of these files ended it by a signal."""
    make, message = ODD[name]
    make(tmp_path / name)
    command = ["write", str(tmp_path / name), topic, "--bootstrap-servers", embedded_broker.bootstrap_servers]
    done = ended([*command, "--key", "a"] if name.endswith("json") else command)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("pyproducer: ")
    assert name in line
    assert message in line


def ended(arguments: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "spark_producer", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **more,
    )


@pytest.mark.covers("COM24")
def test_an_arrow_file_that_is_cut_off_while_it_is_read(
    embedded_broker: LocalBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A map of it would end the process by SIGBUS."""
    path = tmp_path / "cut.arrow"
    arrow(path, pa.table({"a": ["x" * 1000] * 50_000}))
    opened = table_files.open_file

    def open_and_cut(*arguments: Any) -> table_files.Source:
        source = opened(*arguments)
        os.truncate(path, 4096)
        return source

    # Patched, since the file must change between two of its reads.
    monkeypatch.setattr("spark_producer.cli.write.open_file", open_and_cut)
    assert main(["write", str(path), topic, "--bootstrap-servers", embedded_broker.bootstrap_servers]) == 1


@pytest.mark.covers("COM24")
def test_numbers_that_no_column_can_hold_are_texts(embedded_broker: LocalBroker, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    path.write_bytes(b'{"a": 1}\n{"a": ' + b"9" * 50 + b"}\n")
    arguments = ["write", str(path), topic, "--key", "a", "--bootstrap-servers", embedded_broker.bootstrap_servers]
    assert main(arguments) == 0
    assert {row.key for row in read_topic(embedded_broker.bootstrap_servers, topic)} == {b"1", b"9" * 50}


@pytest.mark.covers("COM24")
def test_a_line_without_end_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(table_files, "MAX_LINE_BYTES", 5 << 20)
    path = tmp_path / "endless.txt"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a sparse one, of a terabyte
    command = ["write", str(path), "t", "--bootstrap-servers", "127.0.0.1:1", "--timeout", "1"]
    assert main([*command, "--format", "json"]) == 1
    message = capsys.readouterr().err
    assert "longer than 5 MiB. If it is no file of lines, set --format" in message, (
        "before anything is asked of a broker"
    )


@pytest.mark.covers("COM24")
def test_the_memory_of_a_batch_of_long_lines_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "BYTES", 1000)
    pieces = list(table_files._pieces(iter([b"x" * 400] * 10)))
    assert [len(piece) for piece in pieces] == [3, 3, 3, 1]
    monkeypatch.setattr(parquet_file, "MAX_BYTES", 1000)
    path = tmp_path / "wide.parquet"
    parquet.write_table(pa.table({"a": [os.urandom(100) for _ in range(100)]}), path)
    with ExitStack() as stack:
        batches = list(table_files.open_file(stack, str(path), None).batches)
    assert max(batch.num_rows for batch in batches) < 10
    assert sum(batch.num_rows for batch in batches) == 100


@pytest.mark.covers("COM24")
@pytest.mark.parametrize("size", [1 << 20, (1 << 20) - 1, 3 << 20])
def test_lines_across_the_pieces_that_are_read(size: int) -> None:
    lines = [b"a", b"x" * size, b"", b"y" * size, b"end"]
    read = table_files._lines("-", pa.BufferReader(b"\r\n".join(lines)))
    assert list(read) == lines


@pytest.mark.covers("COM24")
@pytest.mark.slow
def test_stdin_that_is_closed_is_one_line() -> None:
    for kind in ("text", "csv", "parquet", "arrow", "json"):
        line = subprocess.run(
            ["bash", "-c", f'"{sys.executable}" -m spark_producer write - t --format {kind} <&-'],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        ).stderr
        assert line == "pyproducer: stdin is closed. Give the name of a file, or redirect stdin\n"


def run_beside_a_pipe(path: Path, *arguments: str) -> subprocess.Popen[str]:
    os.mkfifo(path)
    return subprocess.Popen(
        [sys.executable, "-m", "spark_producer", "write", str(path), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.covers("COM24")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "csv", "json", "arrow", "parquet"])
def test_a_pipe_with_a_name_is_read_as_stdin_is(
    embedded_broker: LocalBroker, topic: str, tmp_path: Path, kind: str
) -> None:
    """Files as shells make them: `pyproducer write <(zcat rows.gz) flights --format csv`."""
    content = {"text": b'{"a":"1"}\n', "csv": b'a\n"1"\n', "json": b'{"a":"1"}\n'}.get(kind)
    if content is None:
        sink = pa.BufferOutputStream()
        if kind == "parquet":
            parquet.write_table(pa.table({"a": ["1"]}), sink)
        else:
            with ipc.new_stream(sink, pa.schema([("a", pa.string())])) as stream:
                stream.write_table(pa.table({"a": ["1"]}))
        content = sink.getvalue().to_pybytes()
    servers = embedded_broker.bootstrap_servers
    path = tmp_path / "pipe"
    with run_beside_a_pipe(path, topic, "--format", kind, "--bootstrap-servers", servers) as process:
        try:
            path.write_bytes(content)  # a pipe is opened when the command has opened it
            shown, message = process.communicate(timeout=DEADLINE)
        finally:
            process.kill()
    assert (process.returncode, message) == (0, ""), shown
    assert len(read_topic(servers, topic)) == 1


def interrupted(process: subprocess.Popen[str]) -> str:
    """Press Ctrl-C, and again: what comes between two calls of the system is noticed by neither."""
    for _ in range(int(DEADLINE / 5)):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=5)[1]
        except subprocess.TimeoutExpired:
            continue
    raise TimeoutError


@pytest.mark.covers("COM24")
def test_a_pipe_without_a_writer_ends_at_ctrl_c(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    with run_beside_a_pipe(path, "t", "--format", "json") as process:
        try:
            with path.open("wb", buffering=0) as writer:
                writer.write(b'{"a": 1}')  # no line yet
                message = interrupted(process)
        finally:
            process.kill()
    assert process.returncode == INTERRUPTED
    assert message == "pyproducer: interrupted: some records may be in the topic already\n"


# What rows become, without a broker


def rows_of(path: Path, **mapped: Any) -> list[dict[str, Any]]:
    """The rows that `write` would send; `mapped` as its arguments."""
    with ExitStack() as stack:
        source = table_files.open_file(stack, str(path), None)
        wanted = table_files.Mapped(**mapped)
        table_files.check_columns(source, wanted)
        return [row for batch in table_files.as_sink_columns(source, wanted) for row in batch.to_pylist()]


@pytest.mark.covers("COM24")
def test_bytes_of_one_length_are_bytes(tmp_path: Path) -> None:
    """Hashes and UUIDs are such values in Parquet. Some happen to be UTF-8, and were written as text, the others as digits."""
    raw = [b"abcd", b"\xff\x00\x01\x02", None]
    plain = pa.array(raw, pa.binary(4))
    types = {"plain": plain, "coded": plain.dictionary_encode(), "view": pa.array(raw, pa.binary_view())}
    arrow(tmp_path / "raw.arrow", pa.table(types))
    parquet.write_table(pa.table({"plain": plain}), tmp_path / "raw.parquet")
    for name in types:
        found = rows_of(tmp_path / "raw.arrow", key=name, value=name, headers={"h": name})
        assert [row["key"] for row in found] == [row["value"] for row in found] == raw
        assert [row["headers"][0]["value"] for row in found] == raw
    assert [row["value"] for row in rows_of(tmp_path / "raw.parquet", value="plain")] == raw


@pytest.mark.covers("COM24")
def test_what_a_line_becomes_does_not_depend_on_its_neighbours(tmp_path: Path) -> None:
    values = ["1", "2.5", '{"a": 1}', '{"b": 2}', "[1]", "[2.5, null]", "true", '"x"', "null"]
    path = tmp_path / "x.jsonl"
    alone = []
    for value in values:
        path.write_text(f'{{"k": {value}}}', encoding="utf-8")
        alone += [row["key"] for row in rows_of(path, key="k")]
    assert alone == ["1", "2.5", '{"a": 1}', '{"b": 2}', "[1]", "[2.5, null]", "true", "x", None]
    for some in (values, values[:2], values[2:4], values[4:6]):
        path.write_text("\n".join(f'{{"k": {value}}}' for value in some), encoding="utf-8")
        first = values.index(some[0])
        assert [row["key"] for row in rows_of(path, key="k")] == alone[first : first + len(some)]


@pytest.mark.covers("COM24")
def test_a_field_may_have_the_name_of_the_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"line": 1, "line_": 2}\n{"line": 3}')
    assert rows_of(path, key="line") == [
        {"value": b'{"line": 1, "line_": 2}', "key": "1"},
        {"value": b'{"line": 3}', "key": "3"},
    ]
    assert [row["value"] for row in rows_of(path, value="line_")] == ["2", None]


@pytest.mark.covers("COM24")
def test_a_mark_of_utf8_is_no_part_of_the_first_value(tmp_path: Path) -> None:
    """Windows writes it; JSON may not begin with it (RFC 8259, section 8.1)."""
    path = tmp_path / "x.jsonl"
    for content in (b'\xef\xbb\xbf{"a": 1}\n{"a": 2}', b'\xef\xbb\xbf\n{"a": 1}\n{"a": 2}'):
        path.write_bytes(content)
        assert [row["value"] for row in rows_of(path)] == [b'{"a": 1}', b'{"a": 2}']


@pytest.mark.covers("COM24")
def test_a_packed_file_may_have_a_name_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "X.TXT.GZ").write_bytes(gzip.compress(b"one\ntwo\n"))
    assert [row["value"] for row in rows_of(tmp_path / "X.TXT.GZ")] == [b"one", b"two"]
    (tmp_path / "x.csv.zst").write_bytes(pa.Codec("zstd").compress(b"a\n1\n", asbytes=True))
    assert [row["value"] for row in rows_of(tmp_path / "x.csv.zst", value="a")] == ["1"]


@pytest.mark.covers("COM24")
def test_names_of_columns_that_are_no_utf8_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sizes.csv").write_bytes("größe,b\n1,2\n".encode("latin-1"))
    assert main(["write", str(tmp_path / "sizes.csv"), "t", "--bootstrap-servers", "127.0.0.1:1"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "sizes.csv cannot be read as csv: in its first line: it is not UTF-8; convert it" in line
    assert "iconv -f LATIN1 -t UTF-8" in line


@pytest.mark.covers("COM24")
@pytest.mark.parametrize("coding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ["x.jsonl", "x.txt"])
def test_lines_of_utf16_are_refused_before_anything_is_sent(
    tmp_path: Path, coding: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes('\ufeff{"a": 1}\n'.encode(coding))
    assert main(["write", str(tmp_path / name), "t", "--bootstrap-servers", "127.0.0.1:1"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{name} cannot be read as " in line
    assert "it is UTF-16; convert it to UTF-8" in line


@pytest.mark.covers("COM24")
def test_lines_of_utf16_from_stdin_are_refused(
    embedded_broker: LocalBroker, topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    embedded_broker.create_topic(topic, 1)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("one\n".encode("utf-16"))))
    assert main(["write", "-", topic, "--bootstrap-servers", embedded_broker.bootstrap_servers]) == 1
    assert capsys.readouterr().err.startswith("pyproducer: -: it is UTF-16; convert it to UTF-8")
    assert read_topic(embedded_broker.bootstrap_servers, topic) == []


@pytest.mark.covers("COM24")
def test_a_header_that_is_given_twice_is_not_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.csv").write_bytes(b"a,b\n1,2\n")
    arguments = ["write", str(tmp_path / "x.csv"), "t", "--header", "h=a", "--header", "h=b"]
    assert main([*arguments, "--bootstrap-servers", "127.0.0.1:1"]) == 1
    assert "--header has 'h' twice" in capsys.readouterr().err
