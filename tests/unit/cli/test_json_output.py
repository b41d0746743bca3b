"""`--json` of each command: it can be parsed, is all that is on stdout, and has the keys of docs/command_line.md."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from spark_producer import Producer
from spark_producer.broker import LocalBroker
from spark_producer.cli.entry import COMMANDS, main, parser_of
from spark_producer.cli.json_output import as_json
from spark_producer.config.docs_table import option_rows, read_rows
from tests.support.documented_keys import documented_commands, objects
from tests.unit.cli.test_command_line import running
from tests.unit.legacy_formats.test_record_sets import log_of
from tests.unit.record.foreign_records import NOW, Row


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[Any]:
    """The objects that a command prints; the command is the longest of the page with which the arguments begin."""
    assert main([*arguments, "--json"]) == code
    shown = capsys.readouterr()
    assert shown.err == ""
    name = max((each for each in documented_commands() if " ".join(arguments).startswith(each)), key=len)
    return objects(name, shown.out)


@pytest.fixture
def servers(embedded_broker: LocalBroker) -> tuple[str, str]:
    return "--bootstrap-servers", embedded_broker.bootstrap_servers


def test_every_command_has_it_and_a_row_in_the_page() -> None:
    """A command with actions has it at each of them."""
    found = {
        f"{name} {action}".strip()
        for name, actions in _commands(parser_of(COMMANDS))
        for action, parser in actions
        if "--json" in parser._option_string_actions
    }
    assert found | {"broker --report"} == set(documented_commands())
    assert {name.split()[0] for name in found} == set(COMMANDS)


def _commands(
    parser: argparse.ArgumentParser,
) -> Iterator[tuple[str, list[tuple[str, argparse.ArgumentParser]]]]:
    for name, command in _actions(parser):
        yield name, _actions(command) or [("", command)]


def _actions(parser: argparse.ArgumentParser) -> list[tuple[str, argparse.ArgumentParser]]:
    return [
        pair
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for pair in action.choices.items()
    ]


def test_topics_and_check(
    embedded_broker: LocalBroker, topic: str, servers: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    created = run(capsys, "topics", "create", topic, f"{topic}-2", *servers, "--config", "retention.ms=-1")
    assert created == [{"name": name, "created": True, "differences": []} for name in (topic, f"{topic}-2")]
    (differs,) = run(capsys, "topics", "create", topic, *servers, "--partitions", "3", code=1)
    assert differs == {"name": topic, "created": False, "differences": ["1 partition, not 3"]}
    listed = run(capsys, "topics", "list", *servers)
    assert {"name": topic, "partitions": 1, "replicas": 1, "without_leader": 0} in listed
    (described,) = run(capsys, "topics", "describe", topic, *servers)
    assert described["config"] == {"retention.ms": "-1"}
    assert described["partitions"][0]["end"] == 0
    (checked,) = run(capsys, "check", "--topic", topic, *servers)
    assert checked["ok"] is True
    deleted = run(capsys, "topics", "delete", topic, f"{topic}-2", *servers, "--yes")
    assert deleted == [{"name": name, "deleted": True} for name in (topic, f"{topic}-2")]
    assert topic not in embedded_broker.topics()


def test_a_delete_asks_no_question(
    embedded_broker: LocalBroker,
    topic: str,
    servers: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    embedded_broker.create_topic(topic, 1)
    monkeypatch.setattr("spark_producer.cli.topics.is_interactive", lambda: True)
    assert main(["topics", "delete", topic, *servers, "--json"]) == 1
    assert capsys.readouterr() == (
        "",
        "pyproducer: nothing was deleted: with --json no question is asked. Give --yes\n",
    )
    assert topic in embedded_broker.topics()


def test_an_error_is_text_on_stderr_with_the_same_exit_code(
    topic: str, servers: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topics", "describe", topic, *servers, "--json"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("pyproducer: UNKNOWN_TOPIC_OR_PARTITION (3)")


def test_write_tail_and_bench(
    embedded_broker: LocalBroker,
    topic: str,
    servers: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    embedded_broker.create_topic(topic, 1)
    (tmp_path / "rows.csv").write_text("id\n1\n2\n", encoding="utf-8")
    (written,) = run(capsys, "write", str(tmp_path / "rows.csv"), topic, "--key", "id", *servers)
    assert (written["topic"], written["records"]) == (topic, 2)
    assert written["partitions"] == [{"partition": 0, "records": 2, "first_offset": 0, "last_offset": 1}]
    with Producer({"bootstrap.servers": embedded_broker.bootstrap_servers}) as producer:
        producer.send(topic, b"\xff", key=b"\xff", headers=[("h", b"\xff"), ("g", b"g")])
    records = run(capsys, "tail", topic, "--from-beginning", "--until-end", *servers)
    assert [record["offset"] for record in records] == [0, 1, 2]
    assert records[0]["value"] == '{"id":"1"}'
    measured = run(capsys, "bench", topic, "--records", "10", "--sizes", "10,20", "--codecs", "none", *servers)
    assert [(kind["value_bytes"], kind["codec"], kind["records"]) for kind in measured] == [
        (10, "none", 10),
        (20, "none", 10),
    ]


def test_options(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "options")
    assert [each["name"] for each in found if each["writes"]] == [name for name, _, _ in option_rows()]
    assert [each["name"] for each in found if not each["writes"]] == [name for name, _, _ in read_rows()]
    by_name = {each["name"]: each for each in found}
    assert by_name["kafka.bootstrap.servers"] | {"description": ""} == {
        "name": "kafka.bootstrap.servers",
        "default": None,
        "required": True,
        "writes": True,
        "reads": True,
        "description": "",
    }
    assert by_name["kafka.linger.ms"]["reads"] is False
    assert isinstance(by_name["kafka.batch.size"]["default"], int)
    assert by_name["kafka.enable.idempotence"]["default"] is True
    with pytest.raises(SystemExit, match="2"):
        main(["options", "--json", "--markdown"])


def test_downconvert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "0.log").write_bytes(log_of([Row(0, NOW, b"k", b"v", (("h", b"x"),))]))
    output = str(tmp_path / "old.log")
    (found,) = run(capsys, "downconvert", str(tmp_path / "0.log"), output, "--message-format-version", "0.10.2")
    assert (found["output"], found["bytes"]) == (output, Path(output).stat().st_size)
    assert found["lost"]["headers"] == 1


def test_bytecode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = tmp_path / "python" / "lib" / "pyspark.zip"
    archive.parent.mkdir(parents=True)
    with ZipFile(archive, "w") as made:
        made.writestr("pyspark/one.py", "x = 1\n")
    assert run(capsys, "bytecode", "--spark-home", str(tmp_path)) == [{"archive": str(archive), "modules": 1}]


@pytest.mark.parametrize("engine", ["segments", "tiered"])
def test_the_report_of_a_broker(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = run(capsys, "broker", "--report", "--storage", engine, "--memory", "128M")
    assert found["engine"] == engine
    assert (found["storage_budget_bytes"] is None) == (engine == "segments")
    assert (found["requests_bytes"] is None) == (engine == "tiered")
    assert len(found["parts"]) == (1 if engine == "segments" else 6)


def test_a_broker_that_is_ready(tmp_path: Path) -> None:
    with running("broker", "--port", "0", "--data-dir", str(tmp_path), "--json") as broker:
        (found,) = objects("broker", broker.line())
        assert found["data_dir"] == str(tmp_path)
        assert (found["keeps_data"], found["storage"], found["metrics_url"]) == (True, "segments", None)
        with Producer({"bootstrap.servers": found["bootstrap_servers"]}) as producer:
            producer.send("t", b"x").result(60)
        assert broker.interrupt() == (0, "")


def test_all_characters_survive_every_encoding_of_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"é": "Я 😀 \x9b \u202e \udc80"}
    assert json.loads(as_json(value)) == value
    assert "é" in as_json(value)
    assert as_json(value).isprintable()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "latin-1", errors="backslashreplace"))
    assert json.loads(as_json(value)) == value
    assert as_json(value).isascii()
