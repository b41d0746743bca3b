"""Quotes in CSV files of `pyproducer write`: as in RFC 4180, or as Spark writes them; others are refused with their row."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.cli import csv_reader, table_files
from spark_producer.cli.csv_reader import CsvForm
from spark_producer.cli.entry import main

UNREACHABLE = ["--bootstrap-servers", "127.0.0.1:1", "--timeout", "1"]
SPARK = CsvForm(escape="\\")
Row = list[str | None]


def rows_of(content: bytes, path: Path, form: CsvForm = csv_reader.BY_NAME) -> list[Row]:
    path.write_bytes(content)
    with ExitStack() as stack:
        batches = table_files.open_file(stack, str(path), "csv", form).batches
        return [list(row.values()) for batch in batches for row in batch.to_pylist()]


def read(content: bytes, dialect: csv_reader.CsvForm) -> list[Row] | None:
    """Return rows of two columns as a reader in memory parses them; None if it refuses them."""
    try:
        names, batches = csv_reader.read_cells(pa.BufferReader(b"a,b\n" + content), dialect)
        assert names == ["a", "b"]
        return [list(row.values()) for batch in batches for row in batch.to_pylist()]
    except pa.ArrowInvalid:
        return None


def expected(content: bytes, escape: int | None) -> list[Row] | None:
    """The same, one byte after the other, as RFC 4180 has it."""
    rows: list[Row] = []
    row: Row = []
    at, length = 0, len(content)
    while at < length:
        cell, quoted = bytearray(), content[at] == ord('"')
        at += quoted
        while at < length:
            code = content[at]
            following = content[at + 1] if at + 1 < length else None
            if quoted and escape is not None and code == escape and following in (escape, ord('"')):
                cell.append(following)
                at += 2
            elif quoted and code == ord('"') and following == ord('"'):
                cell.append(code)
                at += 2
            elif (quoted and code == ord('"')) or (not quoted and code in b",\r\n"):
                break
            elif not quoted and code == ord('"'):
                return None
            else:
                cell.append(code)
                at += 1
        if quoted:
            if at == length:
                return None  # never closed
            at += 1
            if at < length and content[at] not in b",\r\n":
                return None
        row.append(cell.decode() if cell or quoted else None)
        if at == length:
            rows.append(row)
            row = []
        elif content[at] == ord(","):
            at += 1
            if at == length:
                rows.append([*row, None])
        else:
            at += 2 if content[at : at + 2] == b"\r\n" else 1
            if row != [None]:
                rows.append(row)
            row = []
    return rows if all(len(one) == 2 for one in rows) else None


CONTENT = st.lists(
    st.sampled_from([b"x", b'"', b'"', b",", b"\n", b"\r\n", b"\r", b'"a,b"', b'""', b"a,b\n", b"\\", b'\\"']),
    max_size=25,
).map(b"".join)


@pytest.mark.covers("COM24")
@given(content=CONTENT, size=st.integers(1, 12), has_escape=st.booleans())
def test_quotes_are_read_as_byte_by_byte_whatever_the_blocks(content: bytes, size: int, has_escape: bool) -> None:
    """Blocks of a few bytes, so that quotes, escapes and line ends lie across them."""
    wanted = expected(content, ord("\\") if has_escape else None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_reader, "_BLOCK", size)
        assert read(content, SPARK if has_escape else csv_reader.BY_NAME) == wanted


# What spark.createDataFrame(…).coalesce(1).write.option("header", True).option("ignoreLeadingWhiteSpace", False)
# .option("ignoreTrailingWhiteSpace", False).csv(…) of Spark 4.1 wrote, and the cells that it wrote.
OF_SPARK: list[tuple[bytes, str | None]] = [
    (b"plain", "plain"),
    (b'"5\\""', '5"'),
    (b'"\\""', '"'),
    (b'"\\"x\\""', '"x"'),
    (b"a\\", "a\\"),
    (b"\\\\", "\\\\"),
    (b'"a\\\\\\""', 'a\\"'),
    (b'"\\\\\\""', '\\"'),
    (b'"x,y\\\\"', "x,y\\"),
    (b'"x\\\\,y"', "x\\,y"),
    (b'"a\nb"', "a\nb"),
    (b'"a\r\nb"', "a\r\nb"),
    (b'"a\rb"', "a\rb"),
    (b'""', ""),
    (b"", None),
    (b" lead", " lead"),
    (b"trail ", "trail "),
    ("ä€😀".encode(), "ä€😀"),
    (b"\\n", "\\n"),
    (b'"\\\\\n"', "\\\n"),
    (b'"\\\\\\"\\\\"', '\\"\\'),
    (b'"x\\",\\"y"', 'x","y'),
    (b'"\\\\\\",\\""', '\\","'),
    (b'"a\\\\\\\\,"', "a\\\\,"),
    (b"'q'", "'q'"),
]


@pytest.mark.covers("COM24")
def test_what_spark_wrote_is_read_as_it_was(tmp_path: Path) -> None:
    pairs = [(one, other) for one in OF_SPARK for other in OF_SPARK]
    content = b"a,b\n" + b"".join(one[0] + b"," + other[0] + b"\n" for one, other in pairs)
    assert rows_of(content, tmp_path / "x.csv", SPARK) == [[one[1], other[1]] for one, other in pairs]


@pytest.mark.covers("COM24")
@pytest.mark.parametrize("filler", [(1 << 21) - 30, (1 << 21) - 10, (1 << 21) - 4, (1 << 21) - 1])
def test_quotes_lie_across_the_blocks_of_a_file(tmp_path: Path, filler: int) -> None:
    for form, quoted in (
        (csv_reader.BY_NAME, b'"5"" \\\r\n,""","""6"""\r\n'),
        (SPARK, b'"5\\" \\\\\r\n,\\"","\\"6\\""\r\n'),
    ):
        content = b"a,b\r\n" + b"x" * (filler - 9) + b",1\r\n" + quoted * 3
        assert rows_of(content, tmp_path / "x.csv", form)[1:] == [['5" \\\r\n,"', '"6"']] * 3


BAD: dict[str, tuple[bytes, str]] = {
    "of Spark": (b'id,size\n1,"5\\""\n2,"6\\""\n3,x\n', "row 1: text follows a closing quote"),
    "never closed": (b'id,name\n1,a\n2,"b\n3,c\n4,d\n', "row 2: a quote is never closed"),
    "within a cell": (b'id,name\n1,a\n\n2,5"\n', "row 2: a quote stands within a cell that does not begin with one"),
    "after a space": (b'id,name\n1, "a"\n', "row 1: a quote stands within a cell that does not begin with one"),
    "a space after it": (b'id,name\n1,"a" \n', "row 1: text follows a closing quote"),
    "two cells in one": (b'id,name\n1,"a""b""\n2,"c"\n', "row 1: text follows a closing quote"),
    "in the first line": (b'id,na"me\n1,a\n', "a quote stands within a cell that does not begin with one"),
    "opened at the end": (b'id,name\n1,a\n2,"', "row 2: a quote is never closed"),
    "ragged before it": (b'id,name\n1\n2,"', "Row #1: Expected 2 columns, got 1"),
}


@pytest.mark.covers("COM24")
@pytest.mark.parametrize("name", BAD)
def test_quotes_that_are_not_of_the_dialect_are_refused_with_file_and_row(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content, message = BAD[name]
    (tmp_path / "x.csv").write_bytes(content)
    assert main(["write", str(tmp_path / "x.csv"), "t", *UNREACHABLE]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "x.csv cannot be read as csv" in line
    assert message in line
    assert ("--dialect spark" in line) == ("--quote none" in line) == ("Expected" not in message)


@pytest.mark.covers("COM24")
@pytest.mark.slow
def test_a_bad_quote_far_down_has_its_row(tmp_path: Path) -> None:
    content = b"a,b\n" + b'1,"x\n""y"\n' * 1_000_000 + b'2,3"\n'
    with pytest.raises(pa.ArrowInvalid, match=r"^row 1000001: a quote stands within a cell"):
        rows_of(content, tmp_path / "x.csv")


@pytest.mark.covers("COM24")
def test_escaped_quotes_where_no_cell_is_quoted_are_refused(tmp_path: Path) -> None:
    for cell in (b'\\"', b'x\\"y', b'"a"\\"'):
        with pytest.raises(Exception, match=r"row 1: (an escaped quote stands|text follows)"):
            rows_of(b"a,b\n1," + cell + b"\n", tmp_path / "x.csv", SPARK)


@pytest.mark.covers("COM24")
def test_other_quotes_and_none(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    assert rows_of(b"a,b\n'1,''2''','x\"'\n", path, CsvForm(quote="'")) == [["1,'2'", 'x"']]
    assert rows_of(b'a,b\n5",""\n"x,\n', path, CsvForm(quote="")) == [['5"', '""'], ['"x', None]]
    assert rows_of(b'a,b\n"x^"^^",1\n', path, CsvForm(escape="^")) == [['x"^', "1"]]


@pytest.mark.covers("COM24")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--quote", "none", "--escape", "\\"], "--escape is for quoted cells"),
        (["--delimiter", "\\", "--dialect", "spark"], "must be different characters"),
        (["--quote", "'", "--escape", ","], "must be different characters"),
    ],
)
def test_characters_that_contradict_each_other(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.csv").write_bytes(b"a,b\n1,2\n")
    assert main(["write", str(tmp_path / "x.csv"), "t", *arguments, *UNREACHABLE]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.covers("COM24")
@pytest.mark.usefixtures("short_timeouts")
def test_the_dialect_is_an_argument(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file is read with it; only then is the broker asked, which is not there."""
    (tmp_path / "x.csv").write_bytes(b'a,b\n"5\\"",2\n')
    for arguments in (
        ["--dialect", "spark"],
        ["--escape", "\\"],
        ["--quote", "none"],
        ["--quote", '"', "--escape", "\\"],
    ):
        assert main(["write", str(tmp_path / "x.csv"), "t", *arguments, *UNREACHABLE]) == 1
        assert "csv" not in capsys.readouterr().err
    assert main(["write", str(tmp_path / "x.csv"), "t", "--escape", '"', *UNREACHABLE]) == 1
    assert "cannot be read as csv: row 1: a quote is never closed" in capsys.readouterr().err


@pytest.mark.covers("COM24")
def test_utf16_without_a_mark_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for coding in ("utf-16-le", "utf-16-be"):
        (tmp_path / "x.csv").write_bytes("a,b\n1,2\n".encode(coding))
        assert main(["write", str(tmp_path / "x.csv"), "t", *UNREACHABLE]) == 1
        assert "it is UTF-16; convert it to UTF-8" in capsys.readouterr().err
