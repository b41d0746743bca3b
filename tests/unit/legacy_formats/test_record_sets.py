"""Record sets for archives: kafka-python reads what is written, whatever the version; what is lost is said."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_producer.cli.entry import main
from spark_producer.errors import ConfigError, CorruptRecord, RecordBatchError, RecordError, SchemaError
from spark_producer.kernel.column_views import PIECE_BYTES
from spark_producer.legacy_formats import convert, encode_table, magic_of, record_sets
from spark_producer.legacy_formats.batch_format import BatchProducer
from spark_producer.legacy_formats.down_conversion import ConversionLoss
from spark_producer.legacy_formats.files import write_sets
from spark_producer.record.codecs import Codec
from spark_producer.record.control import ControlType
from tests.unit.record.builders import builder_of
from tests.unit.record.control_batches import marker
from tests.unit.record.foreign_records import NOW, Row, decode, rows_of_every_shape

VERSIONS = {"0.9.0": 0, "0.10.2": 1, "0.11.0": 2}
CODECS = ("none", "gzip", "snappy", "lz4")
BOTH_OLD = pytest.mark.parametrize("version", ["0.9.0", "0.10.2"])


def table_of(rows: list[Row], *names: str) -> pa.Table:
    columns = {name: [getattr(row, name) for row in rows] for name in ("key", "value", *names)}
    types = {"key": pa.binary(), "value": pa.binary(), "timestamp": pa.int64()}
    return pa.table({name: pa.array(column, types[name]) for name, column in columns.items()})


def log_of(rows: list[Row], magic: int = 2, codec: Codec = Codec.NONE, **options: object) -> bytes:
    builder = builder_of(magic, codec, 1 << 19, base_offset=rows[0].offset, write_limit=1 << 30, **options)
    for row in rows:
        builder.append(row.timestamp, row.key, row.value, row.headers, offset=row.offset)
    return bytes(builder.close())


@pytest.mark.parametrize(
    ("version", "magic"),
    [("0.8.0", 0), ("0.8.2.1", 0), ("0.9.0", 0), ("0.10", 1), ("0.10.0-IV1", 1), ("0.10.2.2", 1), ("0.11.0", 2),
     ("1.0", 2), ("2.8.0", 2), ("3.9.2", 2), ("4.3.1", 2)],
)  # fmt: skip
def test_formats_by_the_version_of_kafka(version: str, magic: int) -> None:
    assert magic_of(version) == magic


@pytest.mark.parametrize("version", ["", "0.7.2", "V1", "1", "0.10.x", "0.10.0 ", "-1.0", "٠.٩", 0.9, 0.10, None])
def test_what_is_no_version_is_refused(version: Any) -> None:
    with pytest.raises(ConfigError, match="not a version of Kafka"):
        magic_of(version)


@pytest.mark.parametrize("codec", [*CODECS, "zstd"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_table_is_read_by_kafka_python(version: str, codec: str) -> None:
    magic = VERSIONS[version]
    rows = list(rows_of_every_shape(1, base_offset=50)) * 3
    rows = [
        row._replace(offset=50 + number, timestamp=row.timestamp if magic else -1) for number, row in enumerate(rows)
    ]
    table = table_of(rows, *(("timestamp",) if magic else ()))
    encoded = partial(
        encode_table,
        table,
        message_format_version=version,
        compression_type=codec,
        base_offset=50,
        batch_bytes=20_000,
    )
    if codec == "zstd" and magic < 2:
        with pytest.raises(RecordBatchError, match="does not have zstd"):
            list(encoded())
        return
    batches = list(encoded())
    assert len(batches) > 5
    assert {batch[16] for batch in batches} == {magic}
    assert decode(b"".join(batches)) == rows


def test_dictionaries_are_decoded_in_pieces() -> None:
    value = b"v" * (PIECE_BYTES // 3)
    rows = [Row(number, -1, b"k", value) for number in range(10)]
    table = table_of(rows)
    encoded = table.set_column(1, "value", table["value"].dictionary_encode())
    batches = list(encode_table(encoded, message_format_version="0.11.0", batch_bytes=2 * PIECE_BYTES))
    assert [len(decode(batch)) for batch in batches] == [3, 3, 3, 1]
    assert decode(b"".join(batches)) == rows


def test_columns_of_a_table() -> None:
    rows = [Row(number, -1, b"k", b"v") for number in range(3)]
    for version in VERSIONS:
        chunks = pa.concat_tables([table_of(rows[:2]), table_of(rows[2:])])
        assert decode(b"".join(encode_table(chunks, message_format_version=version))) == rows, "without timestamps"
    with_headers = table_of(rows).append_column(
        "headers", pa.array([{"h": b"x"}] * 3, pa.map_(pa.string(), pa.binary()))
    )
    found = decode(b"".join(encode_table(with_headers, message_format_version="2.0")))
    assert [row.headers for row in found] == [(("h", b"x"),)] * 3
    with pytest.raises(RecordBatchError, match="V1 does not have record headers"):
        list(encode_table(with_headers, message_format_version="0.10.0"))
    for version, name in (("0.9.0", "timestamp"), ("0.9.0", "topic"), ("2.0", "partition")):
        column = pa.array([1, 2, 3], pa.int64())
        with pytest.raises(SchemaError, match=f"has no column '{name}'"):
            list(encode_table(table_of(rows).append_column(name, column), message_format_version=version))


def test_rows_are_named_by_their_place_in_the_table() -> None:
    table = pa.table({"value": [b"v"] * 3, "timestamp": pa.array([1, 2, -3], pa.int64())})
    with pytest.raises(RecordError, match=r"-3 ms, before 1970 \(row 2 of the table\)"):
        list(encode_table(table, message_format_version="2.0"))


def test_what_is_asked_for_in_error_is_said_at_once() -> None:
    table = table_of([Row(0, -1, b"k", b"v")])
    wrong: Any
    for wrong in ("brotli", None, 3):
        with pytest.raises(ConfigError, match=f"{wrong!r}: the codecs are none, gzip, snappy, lz4, zstd"):
            encode_table(table, message_format_version="2.0", compression_type=wrong)
    for batch_bytes in (-1, 0, 2**31):
        with pytest.raises(ConfigError, match=f"batch_bytes {batch_bytes} is not from 1 to 2147483647"):
            encode_table(table, message_format_version="2.0", batch_bytes=batch_bytes)
    for call in (partial(encode_table, table), partial(convert, b"")):
        with pytest.raises(RecordBatchError, match="does not have zstd"):
            call(message_format_version="0.9", compression_type="zstd")


@pytest.mark.parametrize("codec", CODECS)
@BOTH_OLD
def test_a_log_of_all_formats_is_rewritten(version: str, codec: str) -> None:
    magic, log = VERSIONS[version], b""
    rows: list[Row] = []
    for source, packed in ((2, Codec.ZSTD), (0, Codec.NONE), (1, Codec.LZ4), (2, Codec.NONE), (1, Codec.NONE)):
        more = list(rows_of_every_shape(source, base_offset=len(rows) * 2))
        log += log_of(more, source, packed)
        rows += more
    lost, data = ConversionLoss(), b""
    for batch, missing in convert(log, message_format_version=version, compression_type=codec):
        lost, data = lost.plus(missing), data + batch
    with_headers = sum(bool(row.headers) for row in rows)
    timed = sum(row.timestamp >= 0 for row in rows)
    assert lost == ConversionLoss(headers=with_headers, timestamps=0 if magic else timed)
    assert decode(data) == [row._replace(headers=(), timestamp=row.timestamp if magic else -1) for row in rows]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("source", [0, 1, 2])
def test_a_set_has_no_more_bytes_than_old_readers_should_hold(source: int, codec: str) -> None:
    """Whatever it was before: one batch, one wrapper around all, or messages."""
    rows = [Row(number, NOW if source else -1, None, bytes(14_000)) for number in range(100)]
    for packed in (Codec.NONE, Codec.GZIP):
        log = log_of(rows, source, packed)
        pieces = [batch for batch, _ in convert(log, message_format_version="0.10", compression_type=codec)]
        most = 18 if codec == "none" else 17  # of 256 KiB; a set that will be compressed keeps a twentieth spare
        assert [len(decode(piece)) for piece in pieces] == [most] * 5 + [100 - 5 * most]
        assert decode(b"".join(pieces)) == rows


def test_markers_go_and_transactions_are_said_to_be_lost() -> None:
    records = log_of([Row(0, NOW, b"k", b"v")], producer=BatchProducer(7, 0, 0, transactional=True))
    log = records + marker(1, 7, ControlType.COMMIT)
    batches = list(convert(log, message_format_version="0.10.0"))
    assert [len(decode(batch)) for batch, _ in batches] == [1, 0]
    assert ConversionLoss(producer=True, transaction=True, control_records=1) == batches[0][1].plus(batches[1][1])


@BOTH_OLD
def test_damage_is_named_after_what_came_before_it(version: str) -> None:
    one = log_of([Row(0, NOW, b"k", b"v")])
    batches = convert(one + one[:-1], message_format_version=version)
    assert len(decode(next(batches)[0])) == 1
    with pytest.raises(CorruptRecord, match=f"the last {len(one) - 1} bytes, from byte {len(one)} on, hold no whole"):
        next(batches)
    with pytest.raises(CorruptRecord, match="CRC"):
        list(convert(one[:-1] + b"\x01", message_format_version=version))
    assert list(convert(b"", message_format_version=version)) == []


def test_only_older_formats_are_rewritten() -> None:
    with pytest.raises(ConfigError, match="is format V2; only V0 and V1"):
        list(convert(b"", message_format_version="3.9"))
    with pytest.raises(RecordBatchError, match="zstd"):
        list(convert(b"", message_format_version="0.10", compression_type="zstd"))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(log_of([Row(number, NOW, b"k", b"v", (("h", b"x"),)) for number in range(3)]))
    return path


def run_convert(log: Path, output: Path, version: str = "0.9.0", codec: str = "gzip") -> int:
    return main(
        ["downconvert", str(log), str(output), "--message-format-version", version, "--compression-type", codec]
    )


def test_the_command(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = log.parent / "old.log"
    assert run_convert(log, output) == 0
    assert decode(output.read_bytes()) == [Row(number, -1, b"k", b"v") for number in range(3)]
    size = output.stat().st_size
    assert capsys.readouterr().out == f"{size} bytes; lost: the headers of 3 records, the timestamps of 3 records\n"
    assert output.stat().st_mode == log.stat().st_mode, "as any new file"
    assert run_convert(log, output) == 1, "what is there stays"
    assert "File exists" in capsys.readouterr().err
    assert output.stat().st_size == size
    (log.parent / "empty.log").touch()
    assert run_convert(log.parent / "empty.log", log.parent / "none.log") == 0
    assert run_convert(log.parent / "missing.log", log.parent / "x.log") == 1
    assert "No such file" in capsys.readouterr().err


def failing(error: BaseException) -> Callable[..., Iterator[tuple[bytes, ConversionLoss]]]:
    """As `convert`, until the second set."""

    def sets(*_: object, **__: object) -> Iterator[tuple[bytes, ConversionLoss]]:
        yield b"half", ConversionLoss()
        raise error

    return sets


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"version": "0.7"}, "not a version of Kafka"),
        ({"version": "2.0"}, "is format V2"),
        ({"codec": "brotli"}, "unknown compression.type 'brotli'"),
        ({"codec": "zstd"}, "does not have zstd"),
    ],
)
def test_a_wrong_argument_makes_no_file(
    arguments: dict[str, str], error: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_convert(log, log.parent / "old.log", **arguments) == 1
    assert error in capsys.readouterr().err
    assert list(log.parent.iterdir()) == [log]


def test_what_ends_early_leaves_nothing(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = log.parent / "old.log"
    for error, code, said in (
        (CorruptRecord("the CRC is wrong"), 1, "pyproducer: the CRC is wrong\n"),
        (OSError(28, "No space left"), 1, f"cannot convert {log} into {output}: [Errno 28] No space left\n"),
        (KeyboardInterrupt(), 130, "pyproducer: interrupted: nothing was written\n"),
    ):
        monkeypatch.setattr(record_sets, "convert", failing(error))  # in the midst of the command
        assert run_convert(log, output) == code
        captured = capsys.readouterr()
        assert captured.err.endswith(said)
        assert captured.out == ""
        assert list(log.parent.iterdir()) == [log]
    monkeypatch.undo()
    assert run_convert(log, output) == 0, "so it can be tried again"


def test_a_file_that_another_process_makes_meanwhile_stays(tmp_path: Path) -> None:
    output = tmp_path / "old.log"

    def sets() -> Iterator[tuple[bytes, ConversionLoss]]:
        output.write_text("theirs")
        yield b"ours", ConversionLoss()

    with pytest.raises(FileExistsError):
        write_sets(sets(), output)
    assert output.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [output]


def test_only_regular_files_are_read(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe has the size 0 too, and is not empty; it is not waited for."""
    pipe = log.parent / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        assert run_convert(path, log.parent / "old.log") == 1
        assert f"{path} cannot be converted: it is not a regular file" in capsys.readouterr().err
    assert not (log.parent / "old.log").exists()


def test_a_log_that_gets_shorter_is_noticed(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def sets(*_: object, **__: object) -> Iterator[tuple[bytes, ConversionLoss]]:
        os.truncate(log, 10)
        yield b"a set", ConversionLoss()

    monkeypatch.setattr(record_sets, "convert", sets)  # reading on would end this process
    assert run_convert(log, log.parent / "old.log") == 1
    assert "got shorter while it was read" in capsys.readouterr().err
    assert list(log.parent.iterdir()) == [log]
