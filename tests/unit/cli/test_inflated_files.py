"""Files whose few bytes stand for gigabytes: `pyproducer write` reads them in bounded memory, or refuses them in a sentence."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from spark_producer.cli import arrow_messages, decoded_size, row_numbers, table_files
from spark_producer.cli.entry import main
from spark_producer.errors import ConfigError, RecordError

MANY = 2_000_000_000
TEXT = "x" * 200_000
UNREACHABLE = ["--bootstrap-servers", "127.0.0.1:1", "--timeout", "1"]


def arrow(path: Path, columns: dict[str, Any], make: Callable[..., Any] = ipc.new_file, **options: Any) -> None:
    batch = pa.record_batch(columns)
    with make(str(path), batch.schema, options=ipc.IpcWriteOptions(**options)) as file:
        file.write(batch)


def coded(rows: int, text: str = TEXT) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))


FILES: dict[str, Callable[[Path], Any]] = {
    "nulls.arrow": lambda path: arrow(path, {"a": pa.nulls(MANY)}),
    "nulls.arrows": lambda path: arrow(path, {"a": pa.nulls(MANY)}, ipc.new_stream),
    "runs.arrow": lambda path: arrow(
        path, {"a": pa.RunEndEncodedArray.from_arrays(pa.array([MANY], pa.int64()), pa.array([TEXT]))}
    ),
    "coded.arrow": lambda path: arrow(path, {"a": coded(100_000)}, compression="zstd"),
    "nested.arrow": lambda path: arrow(
        path, {"a": pa.StructArray.from_arrays([coded(100_000)], ["b"])}, compression="zstd"
    ),
    "coded.parquet": lambda path: parquet.write_table(pa.table({"a": coded(20_000)}), path, compression="zstd"),
    "struct.parquet": lambda path: parquet.write_table(
        pa.table({"a": [{"b": TEXT[:20_000]}] * 20_000}), path, compression="zstd"
    ),
    "list.parquet": lambda path: parquet.write_table(
        pa.table({"a": [[TEXT[:10_000]] * 10] * 5_000}), path, compression="zstd"
    ),
    "fixed.parquet": lambda path: parquet.write_table(
        pa.table({"a": pa.array([b"x" * 100_000] * 3000, pa.binary(100_000))}), path, compression="zstd"
    ),
    "names.csv": lambda path: path.write_text(
        ",".join(f"{number:2000}" for number in range(500)) + "\n" + (",".join("1" * 500) + "\n") * 5000
    ),
}
PROGRAM = """
import json, resource, sys
from contextlib import ExitStack
from itertools import islice
from spark_producer.cli import table_files
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with ExitStack() as stack:
    source = table_files.open_file(stack, sys.argv[1], None)
    sizes = [(batch.num_rows, batch.nbytes) for batch in islice(table_files.as_sink_columns(source, table_files.Mapped()), 30)]
print(json.dumps([sum(rows for rows, _ in sizes), max(size for _, size in sizes)]))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.covers("COM24")
@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_unpacks_to_gigabytes_is_read_in_bounded_memory(tmp_path: Path, name: str) -> None:
    """Run in a process of its own, whose peak is that of one read. Each of them took gigabytes before."""
    path = tmp_path / name
    FILES[name](path)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, timeout=120, check=True
    )
    shown, mebibytes = done.stdout.splitlines()
    rows, largest = json.loads(shown)
    assert rows >= 30
    assert largest <= 2 * decoded_size.MAX_BYTES
    assert int(mebibytes) < 500


def zeros() -> list[str]:
    return ["\0" * (600 << 20)]


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "zeros.arrow": (
        lambda path: arrow(path, {"a": zeros()}, compression="zstd"),
        "more than 512 MiB, and more than 10 times their size",
    ),
    "zeros.arrows": (
        lambda path: arrow(path, {"a": zeros()}, ipc.new_stream, compression="lz4"),
        "more than 512 MiB, and more than 10 times",
    ),
    "page.parquet": (
        lambda path: parquet.write_table(pa.table({"a": zeros()}), path, compression="zstd", use_dictionary=False),
        "row group 0 has ",
    ),
    "wide.csv": (
        lambda path: path.write_text("a," * 200_000 + "\n"),
        "it has 200,001 columns, more than 65,536",
    ),
    "wide.arrow": (
        lambda path: arrow(path, {f"c{number}": pa.nulls(1) for number in range(70_000)}),
        "it has 70,000 columns, more than 65,536",
    ),
    "wide.parquet": (
        lambda path: parquet.write_table(pa.table({f"c{number}": pa.array([1]) for number in range(66_000)}), path),
        "it has 66,000 columns, more than 65,536",
    ),
    "row.parquet": (
        lambda path: parquet.write_table(pa.table({"a": [[TEXT] * 1000]}), path),
        "row 1 has 190 MiB when it is decoded, more than 64 MiB",
    ),
    "nulls.arrow": (
        lambda path: arrow(path, {"a": pa.FixedSizeListArray.from_arrays(pa.nulls(MANY), MANY)}),
        "when it is decoded, more than 64 MiB",
    ),
    "cut.arrows": (lambda path: path.write_bytes(b"\xff\xff\xff\xff\xff\xff\xff\x0f"), "more than the file has"),
}


@pytest.mark.covers("COM24")
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] * (name == "page.parquet")) for name in REFUSED]
)
def test_what_would_take_gigabytes_at_once_is_refused_in_a_sentence(tmp_path: Path, name: str) -> None:
    make, message = REFUSED[name]
    make(tmp_path / name)
    with pytest.raises((ConfigError, pa.ArrowInvalid)) as raised, ExitStack() as stack:
        next(iter(table_files.open_file(stack, str(tmp_path / name), None).batches))
    assert message in str(raised.value)


@pytest.mark.covers("COM24")
def test_rows_are_the_same_with_dictionaries_and_without(tmp_path: Path) -> None:
    columns = {
        "l": [["aaa", "bb"], ["aaa"], None],
        "s": [{"x": "q", "y": 1}, None, {"x": "q", "y": 2}],
        "m": pa.array([[("k", "v")], [], None], pa.map_(pa.string(), pa.string())),
        "t": ["z", None, "z"],
        "b": [b"1", b"1", b"\xff"],
        "v": pa.array(["c", None, "c"], pa.string_view()),
        "c": pa.array(["c", None, "c"]).dictionary_encode(),
    }
    found = []
    for name, has_dictionaries in (("a.parquet", True), ("b.parquet", False)):
        parquet.write_table(pa.table(columns), tmp_path / name, use_dictionary=has_dictionaries)
        for key in (*columns, None):
            with ExitStack() as stack:
                source = table_files.open_file(stack, str(tmp_path / name), None)
                batches = table_files.as_sink_columns(
                    source, table_files.Mapped(key=key, headers={"h": key} if key else {})
                )
                found.append([str(row) for batch in batches for row in batch.to_pylist()])
    assert found[: len(columns) + 1] == found[len(columns) + 1 :]


@pytest.mark.covers("COM24")
@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
@pytest.mark.parametrize("make", [ipc.new_stream, ipc.new_file], ids=["stream", "file"])
def test_streams_are_read_as_they_are(tmp_path: Path, compression: str | None, make: Callable[..., Any]) -> None:
    table = pa.table({"a": pa.array(["x", "y", None] * 1000).dictionary_encode(), "b": range(3000)})
    path = tmp_path / "x.arrow"
    with make(str(path), table.schema, options=ipc.IpcWriteOptions(compression=cast(Any, compression))) as file:
        file.write_table(table, max_chunksize=700)
    with ExitStack() as stack:
        batches: list[pa.RecordBatch] = list(table_files.open_file(stack, str(path), None).batches)
    assert pa.Table.from_batches(batches).to_pydict() == table.to_pydict()


@pytest.mark.covers("COM24")
def test_a_stream_that_is_cut_off_is_refused() -> None:
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, pa.schema([("a", pa.string())])) as stream:
        stream.write_batch(pa.record_batch({"a": ["x" * 1000]}))
    content = sink.getvalue().to_pybytes()
    for end in (3, 6, 50, len(content) - 300):
        with pytest.raises((pa.ArrowException, OSError)):
            ipc.open_stream(pa.PythonFile(arrow_messages.CheckedStream(io.BytesIO(content[:end]).read), "r")).read_all()


@pytest.mark.covers("COM24")
def test_too_little_memory_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.csv").write_bytes(b"a\n1\n")

    def fails(*_: object) -> Any:
        raise MemoryError

    monkeypatch.setattr(table_files, "read_cells", fails)
    assert main(["write", str(tmp_path / "x.csv"), "t", *UNREACHABLE]) == 1
    assert "x.csv cannot be read: this machine has too little memory for it" in capsys.readouterr().err
    monkeypatch.setattr(row_numbers, "as_sink_columns", fails)
    source = table_files.Source("y.csv", ["a"], None, iter(()))
    with pytest.raises(RecordError, match=r"^y\.csv cannot be read: this machine has too little memory"):
        list(row_numbers.FileRows([source], table_files.Mapped()).batches())


@pytest.mark.covers("COM24")
def test_the_decoded_sizes_of_rows() -> None:
    row_bytes: Any = decoded_size.row_bytes
    texts = pa.array(["a", None, "ccc", "dd"])
    assert list(row_bytes(texts.slice(1, 2))) == list(row_bytes(texts.cast(pa.string_view()).slice(1, 2))) == [2, 5]
    assert list(row_bytes(pa.array([["a", "bb"], None, [], ["ccc"]]).slice(1, 3))) == [2, 2, 9]
    assert list(row_bytes(pa.array([["a", "bb"], None, ["ccc"]], pa.list_view(pa.string())).slice(1, 2))) == [2, 9]
    assert list(row_bytes(pa.array([["a", "bb"], None, ["c", "dddd"]], pa.list_(pa.string(), 2)).slice(2, 1))) == [15]
    assert row_bytes(pa.nulls(MANY)) == decoded_size._NUMBER
    fields: list[Any] = [pa.array(["a", "bbbb"]), pa.array([1])]
    union = pa.UnionArray.from_dense(pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), fields)
    assert list(row_bytes(union)) == [3, 24, 6]
