"""Arguments of `pyproducer broker` that are refused before anything is served or written."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.broker.settings import MAX_PARTITIONS
from spark_producer.cli import broker
from spark_producer.cli.entry import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data-dir", ""], "argument --data-dir: expected the name of a directory, not ''"),
        (["--data-dir", "d", "--journal-dir", ""], "argument --journal-dir: expected the name of a directory"),
        (["--data-dir", "d", "--ledger-dirs", "a,"], "argument --ledger-dirs: expected the name of a directory"),
        (["--partitions", "20000"], "argument --partitions: expected a whole number from 1 to 10000, not '20000'"),
        (
            ["--advertised", "foo"],
            "argument --advertised: expected one HOST:PORT, with a port from 1 to 65535, not 'foo'",
        ),
        (["--advertised", "foo:0"], "argument --advertised: expected one HOST:PORT"),
        (["--advertised", "a:1,b:2"], "argument --advertised: expected one HOST:PORT"),
        (["--advertised", ""], "argument --advertised: expected one HOST:PORT"),
    ],
)
def test_a_bad_argument_is_named_by_its_own_name(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["broker", "--port", "0", *arguments])
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "29092", "--metrics-port", "29092"], "--metrics-port and --port are both 29092"),
        (["--port", "0", "--storage", "segments", "--index", "rocks"], "only 'tiered' has index_engine 'rocks'"),
        (
            ["--port", "0", "--storage", "tiered", "--memory", "10M"],
            "or give both budgets together 17M at least (--memory)",
        ),
    ],
)
def test_arguments_that_do_not_go_together_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    assert main(["broker", "--data-dir", str(data), *arguments]) == 1
    assert message in capsys.readouterr().err
    assert not data.exists()


@pytest.mark.parametrize("tiered_alone", [["--index", "rocks"], ["--journal-dir", "j"], ["--ledger-dirs", "a,b"]])
def test_what_the_tiered_engine_alone_has_is_refused_for_a_directory_of_segments(
    tiered_alone: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with LocalBroker("data", settings=BrokerSettings(storage_engine="segments")):
        pass
    before = sorted(tmp_path.rglob("*"))
    assert main(["broker", "--port", "0", "--data-dir", "data", *tiered_alone]) == 1
    assert "the storage engine is 'segments', and only 'tiered' has" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_directories_outside_need_no_name_of_the_engine(tmp_path: Path) -> None:
    """A new data directory gets the engine that has them."""
    commands = argparse.ArgumentParser()
    broker.add(commands.add_subparsers())
    chosen = commands.parse_args(["broker", "--journal-dir", str(tmp_path / "j")])
    for _ in range(2):
        with LocalBroker(tmp_path / "data", settings=broker._settings(chosen)):
            assert any((tmp_path / "j").glob("*.txn"))


def test_the_most_partitions_and_one_address_are_taken() -> None:
    commands = argparse.ArgumentParser()
    broker.add(commands.add_subparsers())
    chosen = commands.parse_args(["broker", "--partitions", str(MAX_PARTITIONS), "--advertised", "[::1]:9092"])
    assert broker._settings(chosen).default_partitions == MAX_PARTITIONS
    assert chosen.advertised == ("::1", 9092)
