"""Old names of arguments and commands: they do what the new ones do, are missing in the help, and warn once on stderr."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

import pytest

from spark_producer.broker import LocalBroker
from spark_producer.cli.connection_args import add_connection
from spark_producer.cli.entry import main

FILE = "client.properties"

RENAMED: list[tuple[str, str, str, str, str, object]] = [
    ("write a.csv people", "--set", "--producer-config", "acks=1", "producer_config", ["acks=1"]),
    ("bench people", "--set", "--producer-config", "acks=1", "producer_config", ["acks=1"]),
    ("broker", "--set", "--memory-part", "managedLedgerCacheSizeMB=1", "memory_part", [("managedLedgerCacheSizeMB", "1")]),
    ("topics create people", "--set", "--config", "retention.ms=-1", "config", ["retention.ms=-1"]),
    ("topics create people", "--replicas", "--replication-factor", "3", "replication_factor", 3),
    ("txn repair sink", "--unknown", "--assume", "aborted", "assume", "aborted"),
    ("txn resolve sink", "--accept-difference", "--accept-row-count-mismatch", "", "accept_row_count_mismatch", True),
    *(
        (command, "--config", "--command-config", FILE, "command_config", FILE)
        for command in (
            "check", "write a.csv people", "tail people", "topics list", "topics describe people", "topics delete people",
            "bench people", "txn list", "txn describe sink", "txn resolve sink", "txn repair sink",
        )
    ),
]  # fmt: skip
"""A command, the old and the new name of an argument, its value, and the parsed result."""

SLUGS = [f"{command.replace(' ', '-')}{old}" for command, old, *_ in RENAMED]


def parser_of(command: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    importlib.import_module(f"spark_producer.cli.{command.split()[0]}").add(parser.add_subparsers())
    return parser


@pytest.mark.parametrize(("command", "old", "new", "value", "attribute", "expected"), RENAMED, ids=SLUGS)
def test_an_old_name_does_what_the_new_one_does(
    command: str,
    old: str,
    new: str,
    value: str,
    attribute: str,
    expected: object,
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = [value] if value else []
    assert getattr(parser_of(command).parse_args([*command.split(), new, *values]), attribute) == expected
    assert capsys.readouterr() == ("", "")
    assert getattr(parser_of(command).parse_args([*command.split(), old, *values]), attribute) == expected
    assert capsys.readouterr() == ("", f"pyproducer: {old} is deprecated. Use {new}\n")


@pytest.mark.parametrize(("command", "old", "new"), [row[:3] for row in RENAMED], ids=SLUGS)
def test_the_help_has_the_new_name_alone(command: str, old: str, new: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    shown = capsys.readouterr().out.replace("[", " ").split()
    assert new in shown
    assert old not in shown


def test_an_old_name_that_is_given_twice_warns_once(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = parser_of("write").parse_args(["write", "a.csv", "people", "--set", "acks=1", "--set=linger.ms=5"])
    assert chosen.producer_config == ["acks=1", "linger.ms=5"]
    assert capsys.readouterr().err == "pyproducer: --set is deprecated. Use --producer-config\n"


def test_jobs_take_the_old_name_of_the_file_too(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_connection(parser, None)
    assert parser.parse_args(["--config", FILE]).command_config == FILE
    assert capsys.readouterr().err == "pyproducer: --config is deprecated. Use --command-config\n"


def test_topics_create_takes_a_file_and_topic_configs_under_the_same_old_name(
    embedded_broker: LocalBroker, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / FILE
    file.write_text(f"bootstrap.servers={embedded_broker.bootstrap_servers}\n", encoding="utf-8")
    assert main(["topics", "create", topic, "--config", str(file), "--config", "retention.ms=-1"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{topic} is created\n"
    assert printed.err == "pyproducer: --config FILE is deprecated. Use --command-config\n"
    assert main(["topics", "describe", topic, "--command-config", str(file)]) == 0
    printed = capsys.readouterr()
    assert "set for it: retention.ms=-1" in printed.out
    assert printed.err == ""


def test_convert_is_downconvert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, arguments = tmp_path / "0.log", ["--message-format-version", "0.10.2"]
    log.write_bytes(b"")
    for command, warning in (
        ("downconvert", ""),
        ("convert", "pyproducer: convert is deprecated. Use downconvert\n"),
    ):
        assert main([command, str(log), str(tmp_path / command), *arguments]) == 0
        assert capsys.readouterr() == ("0 bytes; lost: nothing\n", warning)


def test_until_end_has_the_short_name_of_kcat() -> None:
    assert parser_of("tail").parse_args(["tail", "people", "-e"]).until_end is True
