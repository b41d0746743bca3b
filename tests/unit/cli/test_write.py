"""`pyproducer write`, COM24: files of each format, read back by kafka-python; and files that are none."""

from __future__ import annotations

import gzip
import io
import json
import math
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, feather, ipc, parquet

from spark_producer.broker import LocalBroker
from spark_producer.cli import send
from spark_producer.cli.entry import main
from tests.support.read_back import Row, read_topic

pytestmark = pytest.mark.usefixtures("free_pauses")

MOMENT = datetime(2013, 1, 1, 5, 17, tzinfo=UTC)
FLIGHTS = pa.table(
    {
        "carrier": ["UA", "AA", "ä"],
        "flight": [1545, 1141, None],
        "delay": [2.5, None, math.nan],
        "at": pa.array([MOMENT] * 3, pa.timestamp("ms", "UTC")),
    }
)
AT = "2013-01-01T05:17:00.000000Z"
OBJECTS = [
    {"carrier": "UA", "flight": 1545, "delay": 2.5, "at": AT},
    {"carrier": "AA", "flight": 1141, "at": AT},
    {"carrier": "ä", "delay": "NaN", "at": AT},
]
"""Without fields that are null, as Spark's `to_json` writes them."""


def as_json_lines(path: Path) -> None:
    path.write_text("\n".join(json.dumps(row) for row in OBJECTS) + "\n\n", encoding="utf-8")


def as_stream(path: Path) -> None:
    with ipc.new_stream(str(path), FLIGHTS.schema) as file:
        file.write_table(FLIGHTS)


WRITERS: dict[str, Callable[[Path], object]] = {
    "flights.parquet": lambda path: parquet.write_table(FLIGHTS, path, row_group_size=2),
    "flights.feather": lambda path: feather.write_feather(FLIGHTS, str(path)),
    "flights.arrows": as_stream,
    "flights.jsonl": as_json_lines,
}


def write(broker: LocalBroker, topic: str, *arguments: object) -> int:
    texts = [str(each) for each in arguments]
    return main(["write", *texts, topic, "--bootstrap-servers", broker.bootstrap_servers])


def records(broker: LocalBroker, topic: str) -> list[Row]:
    return read_topic(broker.bootstrap_servers, topic)


def objects(rows: list[Row]) -> list[Any]:
    return [json.loads(row.value or b"") for row in rows]


@pytest.mark.covers("COM24")
@pytest.mark.parametrize("name", WRITERS)
def test_each_row_is_a_json_object(
    embedded_broker: LocalBroker, topic: str, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    embedded_broker.create_topic(topic, 1)
    WRITERS[name](tmp_path / name)
    arguments = ["--key", "carrier", "--timestamp", "at", "--header", "number=flight"]
    assert write(embedded_broker, topic, *arguments, tmp_path / name) == 0
    assert capsys.readouterr().out.startswith(f"{topic}: 3 records in ")
    rows = records(embedded_broker, topic)
    assert objects(rows) == OBJECTS
    assert [row.key for row in rows] == [b"UA", b"AA", "ä".encode()]
    assert [row.timestamp_ms for row in rows] == [int(MOMENT.timestamp() * 1000)] * 3
    assert [row.headers for row in rows] == [[("number", b"1545")], [("number", b"1141")], [("number", None)]]


@pytest.mark.covers("COM24")
def test_csv_one_column_as_value_and_several_files(embedded_broker: LocalBroker, topic: str, tmp_path: Path) -> None:
    embedded_broker.create_topic(topic, 1)
    csv.write_csv(FLIGHTS.select(["carrier", "flight"]), tmp_path / "a.csv")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    assert write(embedded_broker, topic, "--value", "flight", tmp_path / "a.csv", tmp_path / "b.csv.gz") == 0
    assert [row.value for row in records(embedded_broker, topic)] == [b"1545", b"1141", None] * 2


@pytest.mark.covers("COM24")
@pytest.mark.parametrize(
    ("given", "kind", "values"),
    [
        (b"one\r\ntwo\n\nfour", [], [b"one", b"two", b"", b"four"]),
        (b'{"a": 1}\n{"a":  2}', ["--format", "json"], [b'{"a": 1}', b'{"a":  2}']),
        (b"a,b\n1,x\n", ["--format", "csv"], [b'{"a":"1","b":"x"}']),
        (b"a,b\n,x\n", ["--format", "csv", "--keep-nulls"], [b'{"a":null,"b":"x"}']),
        (b"", [], []),
    ],
    ids=["text", "json", "csv", "csv with nulls", "nothing"],
)
def test_stdin(
    embedded_broker: LocalBroker,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    given: bytes,
    kind: list[str],
    values: Any,
) -> None:
    embedded_broker.create_topic(topic, 1)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    assert write(embedded_broker, topic, "-", *kind) == 0
    assert [row.value for row in records(embedded_broker, topic)] == values


@pytest.mark.covers("COM24")
def test_parquet_from_stdin_and_the_partition_of_a_column(
    embedded_broker: LocalBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded_broker.create_topic(topic, 2)
    file = io.BytesIO()
    parquet.write_table(pa.table({"to": [1, 0, 1], "raw": [b"\xff", b"", None]}), file)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.getvalue())))
    assert write(embedded_broker, topic, "-", "--format", "parquet", "--partition", "to", "--value", "raw") == 0
    assert sorted((row.partition, str(row.value)) for row in records(embedded_broker, topic)) == [
        (0, "b''"), (1, "None"), (1, r"b'\xff'"),
    ]  # fmt: skip


BAD: dict[str, tuple[bytes, list[str], str]] = {
    "x.parquet": (b"no parquet", [], "x.parquet cannot be read as parquet"),
    "x.feather": (b"no arrow", [], "x.feather cannot be read as arrow"),
    "x.jsonl": (b"no json\n", [], "x.jsonl cannot be read as json: line 1:"),
    "x.csv": (b"", [], "x.csv cannot be read as csv"),
    "x.bin": (b"", [], "x.bin is unknown. Give --format parquet|csv|json|arrow|text"),
    "y.csv": (b"airline\n1\n", [], "y.csv has no column 'carrier'. It has airline"),
}


@pytest.mark.covers("COM24")
@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_none_is_one_error_and_nothing_is_written(
    embedded_broker: LocalBroker, topic: str, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content, arguments, message = BAD[name]
    (tmp_path / name).write_bytes(content)
    parquet.write_table(FLIGHTS, tmp_path / "good.parquet")
    assert (
        write(embedded_broker, topic, *(arguments or ["--key", "carrier"]), tmp_path / "good.parquet", tmp_path / name)
        == 1
    )
    (message,) = capsys.readouterr().err.splitlines()
    assert message in message
    assert topic not in embedded_broker.topics()


@pytest.mark.covers("COM24")
def test_a_missing_file_and_a_column_that_is_not_there(
    embedded_broker: LocalBroker, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write(embedded_broker, topic, tmp_path / "none.parquet") == 1
    assert "none.parquet cannot be read: " in capsys.readouterr().err
    parquet.write_table(FLIGHTS, tmp_path / "good.parquet")
    assert write(embedded_broker, topic, tmp_path / "good.parquet", "--key", "carier") == 1
    assert "good.parquet has no column 'carier'. It has carrier, flight, delay, at" in capsys.readouterr().err
    assert write(embedded_broker, topic, tmp_path / "good.parquet", "--header", "x") == 1
    assert "--header takes NAME=VALUE, not 'x'" in capsys.readouterr().err
    assert topic not in embedded_broker.topics()


@pytest.mark.covers("COM24")
def test_a_topic_before_the_files_and_a_directory(
    embedded_broker: LocalBroker, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parquet.write_table(FLIGHTS, tmp_path / "good.parquet")
    assert write(embedded_broker, str(tmp_path / "good.parquet"), topic) == 1
    assert f"{topic} cannot be read: No such file or directory (files come first" in capsys.readouterr().err
    assert write(embedded_broker, topic, tmp_path) == 1
    assert "it is a directory. Name the files in it" in capsys.readouterr().err


@pytest.mark.covers("COM24")
def test_what_breaks_on_the_way_says_how_far_it_was(
    embedded_broker: LocalBroker, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [json.dumps({"n": number}) for number in range(20_005)]
    lines[20_003] = "{"
    (tmp_path / "x.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert write(embedded_broker, topic, tmp_path / "x.jsonl") == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first == "pyproducer: 20,000 rows were sent before this error; some records may be in the topic already"
    assert second.startswith("pyproducer: ")
    assert "x.jsonl, line 20004: not a JSON object" in second


@pytest.mark.covers("COM24")
@pytest.mark.parametrize("text", ["2013-01-01T05:17:00Z", "2013-01-01 05:17:00", "2013-01-01T07:17:00+02:00"])
def test_times_as_texts(embedded_broker: LocalBroker, topic: str, tmp_path: Path, text: str) -> None:
    embedded_broker.create_topic(topic, 1)
    (tmp_path / "x.jsonl").write_text(json.dumps({"at": text}), encoding="utf-8")
    assert write(embedded_broker, topic, "--timestamp", "at", tmp_path / "x.jsonl") == 0
    assert [row.timestamp_ms for row in records(embedded_broker, topic)] == [int(MOMENT.timestamp() * 1000)]


def test_secrets_have_no_place_in_set(
    embedded_broker: LocalBroker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write(embedded_broker, topic, "-", "--producer-config", "sasl.password=hunter2") == 1
    message = capsys.readouterr().err
    assert "is a secret" in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "exactlyOnceId=x",
            "--producer-config exactlyOnceId: that is an option of writes from Spark. --producer-config takes producer options",
        ),
        ("kafka.EXACTLYONCEID=x", "--producer-config exactlyOnceId: that is an option of writes from Spark"),
        ("topic=x", "The topic is the last argument"),
        ("schema.registry.url=x", "--producer-config schema.registry.url: that is an option of writes from Spark"),
        ("transactional.id=x", "--producer-config transactional.id: commands write without transactions"),
        ("compresion.type=x", "--producer-config: unknown option 'compresion.type'. Did you mean 'compression.type'?"),
        ("exactlyOnceIdd=x", "--producer-config: unknown option 'exactlyOnceIdd'. `pyproducer options`"),
        ("group.id=x", "--producer-config: option 'group.id' is not supported: it belongs to consumers"),
    ],
)
@pytest.mark.parametrize("command", [["write", "-", "t"], ["bench", "t"]], ids=["write", "bench"])
def test_producer_config_suggests_only_what_it_takes(
    command: list[str], setting: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--producer-config", setting]) == 1
    line = capsys.readouterr().err
    assert message in line
    assert "'kafka." not in line


@pytest.mark.parametrize("setting", ["sasl.password hunter2", "sasl.password: hunter2", " hunter2", "=hunter2"])
def test_a_setting_that_is_mistyped_is_not_shown(setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["write", "-", "t", "--producer-config", setting]) == 1
    assert capsys.readouterr().err == "pyproducer: --producer-config takes NAME=VALUE\n"
    assert main(["write", "-", "t", "--producer-config", "acks"]) == 1
    assert capsys.readouterr().err == "pyproducer: --producer-config takes NAME=VALUE, not 'acks' alone\n"


def test_bench_says_how_fast_each_kind_went(
    embedded_broker: LocalBroker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    embedded_broker.create_topic(topic, 2)
    arguments = ["--bootstrap-servers", embedded_broker.bootstrap_servers, "--records", "12345", "--sizes", "10,100"]
    assert main(["bench", topic, *arguments, "--codecs", "none,zstd"]) == 0
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[:2] for row in rows] == [["10", "none"], ["10", "zstd"], ["100", "none"], ["100", "zstd"]]
    assert all(float(row.split()[2].replace(",", "")) > 0 for row in rows)
    sizes = [len(row.value or b"") for row in records(embedded_broker, topic)]
    assert (sizes.count(10), sizes.count(100)) == (2 * 12345, 2 * 12345)
    assert main(["bench", topic, "--sizes", "ten"]) == 1
    assert "--sizes: expected a whole number" in capsys.readouterr().err
    assert main(["bench", topic, *arguments[:2], "--sizes", "2000000000"]) == 1
    shown = capsys.readouterr()
    assert "--sizes: a value of 2,000,000,000 bytes is more than max.request.size=" in shown.err
    assert shown.out == "", "before values of such a size are made"


@pytest.mark.parametrize("command", ["write", "bench"])
def test_an_unknown_topic_ends_the_command_within_seconds_with_a_suggestion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setattr(send, "UNKNOWN_TOPIC_GRACE", 0.5)
    path = tmp_path / "flights.parquet"
    parquet.write_table(FLIGHTS, path)
    with LocalBroker(auto_create_topics=False) as broker:
        broker.create_topic("flights")
        arguments = ["write", str(path)] if command == "write" else ["bench"]
        assert main([*arguments, "flihgts", "--bootstrap-servers", broker.bootstrap_servers]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "UNKNOWN_TOPIC_OR_PARTITION (3) for topic 'flihgts'" in line
    assert "correct the name (did you mean 'flights'?)" in line
