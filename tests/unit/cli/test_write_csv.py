"""CSV files of `pyproducer write`, COM24: cells are what they stand for, wherever they lie in the file."""

from __future__ import annotations

import gzip
import io
import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from spark_producer.broker import LocalBroker
from spark_producer.cli import csv_reader, decoded_size, table_files
from spark_producer.cli.csv_reader import CsvForm
from spark_producer.cli.entry import main
from tests.support.read_back import read_topic

UNREACHABLE = ["--bootstrap-servers", "127.0.0.1:1", "--timeout", "1"]


def rows_of(content: bytes, path: Path, form: CsvForm = csv_reader.BY_NAME, **mapped: Any) -> list[dict[str, Any]]:
    """Return the rows that `write` would send of a file with this content; a value of all columns as an object."""
    path.write_bytes(content)
    with ExitStack() as stack:
        source = table_files.open_file(stack, str(path), "csv", form)
        found = [
            row
            for batch in table_files.as_sink_columns(source, table_files.Mapped(keep_nulls=True, **mapped))
            for row in batch.to_pylist()
        ]
    return found if mapped else [json.loads(row["value"]) for row in found]


CELLS: dict[str, tuple[bytes, list[dict[str, str | None]]]] = {
    "zeros in front": (b"a,b\n007,+1\n", [{"a": "007", "b": "+1"}]),
    "more than 64 bits": (b"a\n" + b"9" * 40 + b"\n", [{"a": "9" * 40}]),
    "fractions": (b"a,b\n1.10,1e3\n", [{"a": "1.10", "b": "1e3"}]),
    "truths and times": (b"a,b\ntrue,2013-01-01\n", [{"a": "true", "b": "2013-01-01"}]),
    "words of null": (b"a,b\nNULL,NaN\n", [{"a": "NULL", "b": "NaN"}]),
    "empty and quoted empty": (b'a,b\n,""\n', [{"a": None, "b": ""}]),
    "quotes, lines, delimiters": (b'a,b\n"x, ""y""\nz",1\n', [{"a": 'x, "y"\nz', "b": "1"}]),
    "lines between": (b"\n\na\r\n\r\n1\r\n\r\n2", [{"a": "1"}, {"a": "2"}]),
    "carriage returns": (b"a,b\r1,2\r3,4", [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]),
    "a mark of UTF-8": (b"\xef\xbb\xbfa\n1\n", [{"a": "1"}]),
    "a mark of UTF-8 and empty lines": (b"\xef\xbb\xbf\n\na\n1\n", [{"a": "1"}]),
    "names alone": (b"a,b\n", []),
    "names alone, without an end": (b"a,b", []),
    "names and empty lines": (b"a,b\n\n\n", []),
}


@pytest.mark.covers("COM24")
@pytest.mark.parametrize("name", CELLS)
def test_cells_are_the_texts_that_they_are(tmp_path: Path, name: str) -> None:
    content, rows = CELLS[name]
    assert rows_of(content, tmp_path / "x.csv") == rows


@pytest.mark.covers("COM24")
@pytest.mark.slow
def test_a_key_of_zeros_and_a_text_far_down(embedded_broker: LocalBroker, topic: str, tmp_path: Path) -> None:
    """Types were guessed from the first MiB: 007 became 7, and a later text ended a write that was half done."""
    embedded_broker.create_topic(topic, 1)
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"id,n\n" + b"007,1\n" * 400_000 + b"008,many\n"))
    arguments = ["write", str(tmp_path / "x.csv.gz"), topic, "--key", "id", "--value", "n"]
    assert main([*arguments, "--bootstrap-servers", embedded_broker.bootstrap_servers]) == 0
    rows = read_topic(embedded_broker.bootstrap_servers, topic)
    assert len(rows) == 400_001
    assert {(row.key, row.value) for row in rows} == {(b"007", b"1"), (b"008", b"many")}


@pytest.mark.covers("COM24")
def test_types_are_guessed_if_asked(tmp_path: Path) -> None:
    content = b'a,b,c,d\n007,2.5,true,x\n8,,false,""\n'
    assert rows_of(content, tmp_path / "x.csv", CsvForm(inferred=True)) == [
        {"a": 7, "b": 2.5, "c": True, "d": "x"},
        {"a": 8, "b": None, "c": False, "d": ""},
    ]


@pytest.mark.covers("COM24")
@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_other_delimiters(tmp_path: Path, delimiter: str) -> None:
    content = f'a{delimiter}b\n1,5{delimiter}"x{delimiter}y"\n'.encode()
    assert rows_of(content, tmp_path / "x.csv", CsvForm(delimiter)) == [{"a": "1,5", "b": f"x{delimiter}y"}]


@pytest.mark.covers("COM24")
@pytest.mark.parametrize("name", ["x.tsv", "x.TSV", "x.tsv.gz"])
def test_tabs_by_the_name(tmp_path: Path, name: str) -> None:
    content = b"a\tb\n1\t2\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with ExitStack() as stack:
        assert list(table_files.open_file(stack, str(tmp_path / name), None).columns) == ["a", "b"]
        reported = table_files.open_file(stack, str(tmp_path / name), None, CsvForm(","))
        assert list(reported.columns) == ["a\tb"]


@pytest.mark.covers("COM24")
def test_arguments_for_the_form(embedded_broker: LocalBroker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded_broker.create_topic(topic, 1)
    for given in ("a\tb\n01\tx\n", "a;b\n01;x\n"):
        delimiter = "tab" if "\t" in given else ";"
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        arguments = ["write", "-", topic, "--format", "csv", "--delimiter", delimiter, "--infer-types"]
        assert main([*arguments, "--bootstrap-servers", embedded_broker.bootstrap_servers]) == 0
    assert [row.value for row in read_topic(embedded_broker.bootstrap_servers, topic)] == [b'{"a":1,"b":"x"}'] * 2


@pytest.mark.covers("COM24")
def test_the_form_of_a_csv_without_one_and_delimiters_that_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.txt").write_bytes(b"1;2\n")
    for more in (["--delimiter", ";"], ["--infer-types"]):
        assert main(["write", str(tmp_path / "x.txt"), "t", *more, *UNREACHABLE]) == 1
        assert f"{more[0]} is for CSV, and no file is a CSV" in capsys.readouterr().err
    for delimiter in ("", ";;", '"', "\n", "ä"):
        with pytest.raises(SystemExit, match="2"):
            main(["write", str(tmp_path / "x.txt"), "t", "--format", "csv", "--delimiter", delimiter, *UNREACHABLE])
        assert "an ASCII character that is not a quote or line end, or tab" in capsys.readouterr().err


@pytest.mark.covers("COM24")
def test_cells_of_several_lines_lie_across_blocks(tmp_path: Path) -> None:
    cell = "line\n" * 200_000  # a million bytes, of which two fill a block
    content = "a,b\n" + "".join(f'{number},"{cell}"\n' for number in range(40))
    assert rows_of(content.encode(), tmp_path / "x.csv") == [{"a": str(number), "b": cell} for number in range(40)]


BAD: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "it is empty"),
    "empty lines": (b"\n\r\n", "it is empty"),
    "a mark of UTF-8": (b"\xef\xbb\xbf", "it is empty"),
    "another delimiter": (b"a;b\n1;2,5\n", "Set the delimiter with --delimiter, or the format with --format"),
    "a name of two lines": (
        b'a,"b\nc"\n1,2\n',
        "the column names in its first line, none of which may contain a line end, cannot be read",
    ),
    "UTF-16": ("a,b\n1,2\n".encode("utf-16"), "it is UTF-16; convert it to UTF-8"),
    "UTF-16, high bytes first": (b"\xfe\xff" + "a,b\n1,2\n".encode("utf-16-be"), "it is UTF-16"),
    "a row too long": (b"a,b\n1,2,3\n", "Row #1: Expected 2 columns, got 3"),
    "no UTF-8": (
        b"a,b\n1,2\n1,\xff\n",
        "Row #2: CSV conversion error to string: invalid UTF8 data: it is not UTF-8",
    ),
    "a quote without end": (b'a\n"' + b"x\n" * (17 << 20), "a row is longer than 2 MiB, or a quote is never closed"),
    "a first line without end": (b"a" * (17 << 20), "its first line is longer than 2 MiB"),
}


@pytest.mark.covers("COM24")
@pytest.mark.parametrize("name", BAD)
def test_a_csv_that_is_none_is_one_line(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, message = BAD[name]
    (tmp_path / "x.csv").write_bytes(content)
    assert main(["write", str(tmp_path / "x.csv"), "t", *UNREACHABLE]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "x.csv cannot be read as csv" in line
    assert message in line


@pytest.mark.covers("COM24")
def test_a_bad_row_far_down_is_named(
    embedded_broker: LocalBroker, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    embedded_broker.create_topic(topic, 1)
    (tmp_path / "x.csv").write_bytes(b"a,b\n" + b"1,2\n" * 5_000_000 + b"3\n")
    arguments = ["write", str(tmp_path / "x.csv"), topic, "--value", "a"]
    assert main([*arguments, "--bootstrap-servers", embedded_broker.bootstrap_servers]) == 1
    assert "x.csv: CSV parse error: Row #5000001: Expected 2 columns, got 1: 3" in capsys.readouterr().err


@pytest.mark.covers("COM24")
@pytest.mark.parametrize(
    ("column", "cell"), [("timestamp", "soon"), ("partition", "first"), ("partition", "3000000000")]
)
def test_a_cell_that_is_no_time_or_partition_is_named(
    embedded_broker: LocalBroker, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], column: str, cell: str
) -> None:
    embedded_broker.create_topic(topic, 1)
    (tmp_path / "x.csv").write_bytes(b"a,c\n" + b"x,0\n" * 25_000 + f"x,{cell}\n".encode())
    arguments = ["write", str(tmp_path / "x.csv"), topic, "--value", "a", f"--{column}", "c"]
    assert main([*arguments, "--bootstrap-servers", embedded_broker.bootstrap_servers]) == 1
    _, message = capsys.readouterr().err.splitlines()
    assert "x.csv: row 25001, column 'c': " in message
    assert repr(cell) in message


@pytest.mark.covers("COM24")
@pytest.mark.parametrize(
    ("first", "kind"),
    [("5", "is a number of milliseconds"), ("2013-01-01 05:17:00", "has no zone"), ("2013-01-01", "has no zone")],
)
def test_times_of_several_kinds_in_one_column_are_refused(tmp_path: Path, first: str, kind: str) -> None:
    """The message names one of each kind, wherever they stand; an empty cell has none."""
    whole = "2013-01-01T05:17:00Z"
    for cells, message in (
        (["", first, first, whole], f"row 4, column 'at': '{whole}' has a zone, and row 2 ('{first}') {kind}"),
        ([whole, first], f"row 2, column 'at': '{first}' {kind}, and row 1 ('{whole}') has a zone"),
    ):
        content = "n,at\n" + "".join(f"1,{cell}\n" for cell in cells)
        with pytest.raises(pa.ArrowInvalid, match=f"^{re.escape(message)}; use one kind of time in a column$"):
            rows_of(content.encode(), tmp_path / "x.csv", value="at", timestamp="at")


@pytest.mark.covers("COM24")
@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("partition", "7", "partition 7 does not exist (b.csv, row 3): the topic has "),
        ("partition", "-1", "partition -1 is negative (b.csv, row 3)"),
        ("timestamp", "", "the timestamp is null (b.csv, row 3)"),
        ("timestamp", "-5", "the timestamp is -5 ms, before 1970 (b.csv, row 3)"),
    ],
)
@pytest.mark.usefixtures("short_partition_grace")
def test_a_row_that_the_producer_refuses_is_named_by_its_file(
    embedded_broker: LocalBroker,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    column: str,
    cell: str,
    message: str,
) -> None:
    """The producer counts the rows of a task from 0; users count those of a file, from 1."""
    embedded_broker.create_topic(topic, 1)
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_bytes(b"n,c\n" + b"1,0\n" * 5)
    Path("b.csv").write_bytes(f"n,c\n1,0\n1,0\n1,{cell}\n1,0\n".encode())
    arguments = ["write", "a.csv", "b.csv", topic, "--value", "n", f"--{column}", "c"]
    assert main([*arguments, "--bootstrap-servers", embedded_broker.bootstrap_servers]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert message in line
    assert "of the task" not in line


@pytest.mark.covers("COM24")
@pytest.mark.parametrize(
    ("delimiter", "advice"), [(";", "--delimiter ';'"), ("\t", "--delimiter tab"), ("|", "--delimiter '|'")]
)
def test_a_csv_of_one_column_that_is_several(
    tmp_path: Path, delimiter: str, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.csv").write_bytes(f"id{delimiter}name\n1{delimiter}Ada\n".encode())
    assert main(["write", str(tmp_path / "x.csv"), "t", "--key", "id", *UNREACHABLE]) == 1
    assert f". If these are several columns, give {advice}\n" in capsys.readouterr().err
    (tmp_path / "x.csv").write_bytes(f"id{delimiter}name,more\n1,2\n".encode())
    assert main(["write", str(tmp_path / "x.csv"), "t", "--key", "id", *UNREACHABLE]) == 1
    assert "--delimiter" not in capsys.readouterr().err


@pytest.mark.covers("COM24")
def test_what_is_no_time_is_named_without_advice_about_zones(tmp_path: Path) -> None:
    with pytest.raises(pa.ArrowInvalid, match=r"^row 2, column 'at': Failed to parse string: 'soon'[^:]*$"):
        rows_of(b"at\n2013-01-01T05:17:00Z\nsoon\n", tmp_path / "x.csv", value="at", timestamp="at")


@pytest.mark.covers("COM24")
def test_a_column_of_another_type_has_no_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"at": [[1]]}), path)
    with ExitStack() as stack:
        rows = table_files.as_sink_columns(
            table_files.open_file(stack, str(path), None), table_files.Mapped(value="at", timestamp="at")
        )
        with pytest.raises(pa.ArrowInvalid, match=r"^column 'at': Unsupported cast from list"):
            next(rows)


@pytest.mark.covers("COM24")
@pytest.mark.slow
def test_names_of_more_than_a_mebibyte(tmp_path: Path) -> None:
    names = [f"a column with number {number:06}" for number in range(60_000)]
    (row,) = rows_of(f"{','.join(names)}\n{','.join(map(str, range(60_000)))}\n".encode(), tmp_path / "x.csv")
    assert list(row) == names


@pytest.mark.covers("COM24")
def test_spaces_around_numbers_are_none_of_theirs(tmp_path: Path) -> None:
    (row,) = rows_of(b"n, at, to\n x, 5 , 1\n", tmp_path / "x.csv", value="n", timestamp=" at", partition=" to")
    assert (row["value"], row["timestamp"], row["partition"]) == (" x", 5, 1)


@pytest.mark.covers("COM24")
@pytest.mark.slow
def test_the_memory_of_a_large_file_is_bounded(tmp_path: Path) -> None:
    """Arrow reads 32 blocks ahead, which was half a gigabyte. In a process of its own, whose peak is that of one read."""
    path = tmp_path / "x.csv"
    with path.open("wb") as file:
        file.write(b"a,b\n")
        for _ in range(50):
            file.write(b"123456,some text of a row\n" * 200_000)
    program = f"""
import resource
from contextlib import ExitStack
from spark_producer.cli.table_files import open_file
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with ExitStack() as stack:
    rows = sum(batch.num_rows for batch in open_file(stack, {str(path)!r}, None).batches)
print(rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    rows, mebibytes = map(int, done.stdout.split())
    assert rows == 10_000_000
    assert mebibytes < 250


@pytest.mark.slow
@pytest.mark.covers("COM24")
@pytest.mark.parametrize("taken", [0, 1])
def test_a_file_that_is_not_read_to_its_end_is_closed(tmp_path: Path, taken: int) -> None:
    """Run in a process of its own: a reader that outlives its file ends the process by a signal, or never."""
    (tmp_path / "x.csv").write_bytes(b"a,b\n" + b"1,2\n" * 10_000_000)
    program = f"""
from contextlib import ExitStack
from spark_producer.cli.table_files import open_file
with ExitStack() as stack:
    batches = open_file(stack, {str(tmp_path / "x.csv")!r}, None).batches
    rows = [next(batches).num_rows for _ in range({taken})]
print(rows)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{[decoded_size.MAX_ROWS] * taken}\n", "")


@pytest.mark.covers("COM24")
@pytest.mark.parametrize("text", ["1357017420000", "2013-01-01T05:17:00Z"])
def test_times_in_cells(tmp_path: Path, text: str) -> None:
    rows = rows_of(f"at\n{text}\n".encode(), tmp_path / "x.csv", value="at", timestamp="at")
    (moment,) = {row["timestamp"] for row in rows}
    assert (moment if isinstance(moment, int) else round(moment.timestamp() * 1000)) == 1_357_017_420_000


@pytest.mark.covers("COM24")
def test_batches_are_small(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"a\n" + b"1\n" * 50_000)
    with ExitStack() as stack:
        batches: list[pa.RecordBatch] = list(table_files.open_file(stack, str(tmp_path / "x.csv"), None).batches)
    assert [batch.num_rows for batch in batches] == [20_000, 20_000, 10_000]
