"""`pyproducer broker --memory`, `--memory-part`, `--report` and `--metrics-port`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.broker.memory.plan import SHARES, plan_memory
from spark_producer.broker.memory.sizes import GIB, MIB
from spark_producer.broker.memory.system_memory import SystemMemory
from spark_producer.broker.metrics.memory_report import METRIC_OF_PART, memory_report
from spark_producer.broker.metrics.page import read_metrics_page
from spark_producer.broker.metrics.server import fetch_metrics_page
from spark_producer.broker.settings import STORAGE_ENGINES, with_memory
from spark_producer.broker.storage.tiered.counters import TierCounters
from spark_producer.cli import broker
from spark_producer.cli.entry import main
from spark_producer.errors import ConfigError, ConnectionFailed
from spark_producer.producer import Producer
from tests.support.ports import free_ports
from tests.support.processes import ChildProcess
from tests.support.waiting import retry, wait_until

SECONDS = 60.0
MACHINE = SystemMemory(available=8 * GIB, resident=60 * MIB, page_cache=GIB)


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["broker", "--report", *arguments]) == 0
    return capsys.readouterr().out


def test_the_report_shows_each_part_with_both_names(capsys: pytest.CaptureFixture[str]) -> None:
    printed = report(capsys, "--storage", "tiered", "--memory", "256M")
    assert "\nbroker budget     128 MiB\n" in printed
    assert "\nstorage budget    128 MiB\n" in printed
    for share in SHARES:
        (line,) = [line for line in printed.splitlines() if line.startswith(f"  {share.name} ")]
        assert f"({share.counterpart}; " in line
    assert "  storage.write.cache.bytes     32 MiB (" in printed
    assert "page cache " in printed


@pytest.mark.parametrize(
    ("arguments", "requests", "publish"), [([], "256 MiB", "64 MiB"), (["--memory", "256M"], "102 MiB", "64 MiB")]
)
def test_the_report_of_segments_has_what_the_broker_takes_and_no_caches(
    arguments: list[str], requests: str, publish: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = report(capsys, *arguments)
    assert printed.startswith(
        "engine            segments: it reads and writes its files through the page cache, and has no"
    )
    assert f"\nrequests          {requests} for requests and responses of all connections\n" in printed
    (part,) = [line for line in printed.splitlines() if line.startswith("  ")]
    assert part.startswith(f"  broker.publish.buffer.bytes   {publish} (maxMessagePublishBufferSizeInMB): ")
    assert "budget  " not in printed
    assert report(capsys, "--storage", "segments", *arguments).splitlines()[:4] == printed.splitlines()[:4]


def test_the_report_of_an_engine_with_tiers_says_no_such_thing() -> None:
    printed = memory_report(BrokerSettings(), MACHINE, "tiered", has_tiers=True)
    assert printed.startswith("engine            tiered\nheap              26 MiB (estimated, without topics)\n")
    assert printed.endswith(
        "page cache        1,024 MiB now, of all processes\nmachine           8,192 MiB for this process"
    )


def test_the_report_of_a_running_broker_shows_what_is_in_use() -> None:
    metrics = {name: float(number * MIB) for number, name in enumerate(METRIC_OF_PART.values())}
    metrics["pyproducer_broker_heap_estimated_bytes"] = 40.0 * MIB
    printed = memory_report(BrokerSettings(), MACHINE, "tiered", has_tiers=True, metrics=metrics)
    assert "heap              40 MiB (estimated, now)" in printed
    assert "  broker.tail.cache.bytes       12.8 MiB, 1 MiB in use (" in printed
    assert "  journal.max.memory.bytes      3.2 MiB, 5 MiB in use (" in printed
    assert "advice: the broker's budget (64 MiB) is less than twice its heap (40 MiB estimated)" in printed


def test_the_report_names_the_engine_that_a_directory_began_with(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert report(capsys).startswith("engine            segments: ")
    with LocalBroker(tmp_path, settings=BrokerSettings(storage_engine="tiered")):
        pass
    assert report(capsys, "--data-dir", str(tmp_path)).startswith("engine            tiered\n")


def test_the_report_names_an_index_that_is_larger_than_its_part() -> None:
    settings = BrokerSettings()
    part = settings.memory.index_cache
    for size, is_warned in ((part, False), (part + 1, True)):
        metrics = {METRIC_OF_PART["index_cache"]: float(size)}
        printed = memory_report(settings, MACHINE, "tiered", has_tiers=True, metrics=metrics)
        assert ("RocksDB's index stays within its part (--index rocks)" in printed) is is_warned


def test_each_part_but_the_brokers_own_has_a_metric_of_the_tiers() -> None:
    known = {each.name for each in TierCounters().readings()} | {"pyproducer_broker_publish_pending_bytes"}
    assert set(METRIC_OF_PART.values()) <= known
    assert set(METRIC_OF_PART) == {share.field for share in SHARES}


def test_parts_are_set_under_our_names_and_theirs(capsys: pytest.CaptureFixture[str]) -> None:
    printed = report(
        capsys,
        "--memory-part",
        "dbStorage_readAheadCacheMaxSizeMb=20",
        "--memory-part",
        "broker.publish.buffer.bytes=-1",
    )
    assert "  storage.read.cache.bytes      20 MiB (" in printed
    assert "  broker.publish.buffer.bytes   no limit (" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--storage", "tiered", "--memory", "10M"], "a half of the write cache has 655,360 bytes"),
        (["--ledger-dirs", "elsewhere", "--memory", "10M"], "The storage engine segments has no such cache"),
        (["--memory", "1M"], "broker.publish.buffer.bytes is 262,144, but topics accept batches of 1,048,588"),
        (["--memory", "1000000G"], "but this process may have"),
        (["--memory", "lots"], "--memory is 'lots'. Use a positive size"),
        (["--memory-part", "managedLedgerCacheSizeMB=60"], "the broker's budget is 64 MiB, but its parts take 92 MiB"),
        (["--memory-part", "unknown=1"], "unknown setting unknown of the memory plan"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused_before_anything_is_served(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    assert main(["broker", "--port", "0", "--data-dir", str(data), *arguments]) == 1
    assert message in capsys.readouterr().err
    assert not data.exists()


@pytest.mark.parametrize("storage", [[], ["--storage", "segments"]], ids=["by default", "by name"])
def test_segments_need_no_memory_for_caches_that_they_do_not_have(
    storage: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    printed = report(capsys, *storage, "--memory", "10M", "--data-dir", str(tmp_path))
    assert "broker.publish.buffer.bytes" in printed
    settings = with_memory(BrokerSettings(), plan_memory(10 * MIB))
    with (
        LocalBroker(tmp_path, settings=settings) as served,
        Producer({"bootstrap.servers": served.bootstrap_servers}) as producer,
    ):
        assert producer.send("t", bytes(1_000_000)).result(SECONDS).offset == 0


def test_a_setting_without_a_value_is_a_bad_argument(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["broker", "--memory-part", "broker.tail.cache.bytes"])
    assert "expected NAME=SIZE" in capsys.readouterr().err


@pytest.mark.parametrize("engine", STORAGE_ENGINES)
def test_a_broker_with_memory_and_metrics(engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_ports(1)[0]
    command = [sys.executable, "-m", "spark_producer", "broker", "--port", "0", "--storage", engine]
    command += ["--memory", "256M", "--metrics-port", str(port)]
    broker = ChildProcess(command, tmp_path / "broker.log")
    with contextlib.ExitStack() as life:
        life.callback(broker.kill)
        page = fetched(port)
        assert f'{{part="broker.publish.buffer.bytes"}} {64 * MIB}\n' in page
        assert f'pyproducer_broker_info{{engine="{engine}"}} 1\n' in page
        assert (f'{{part="storage.write.cache.bytes"}} {32 * MIB}\n' in page) is (engine == "tiered")
        assert page.count("pyproducer_broker_memory_limit_bytes{") == (len(SHARES) if engine == "tiered" else 1)
        assert read_metrics_page(page)["process_resident_memory_bytes"] > MIB
        printed = report(capsys, "--storage", engine, "--memory", "256M", "--metrics-port", str(port))
        assert "  broker.publish.buffer.bytes   64 MiB, 0 MiB in use (" in printed
        reported, log = f"metrics at http://127.0.0.1:{port}/metrics", tmp_path / "broker.log"
        wait_until(lambda: reported in log.read_text(), "it says where the page is, which may be there before")
        assert f"({engine}; deleted at the end, --data-dir keeps it)" in log.read_text()
    assert main(["broker", "--report", "--metrics-port", str(port)]) == 1
    assert f"Start the broker with --metrics-port {port}" in capsys.readouterr().err


def fetched(port: int) -> str:
    return retry(lambda: fetch_metrics_page(port), ConnectionFailed, "the page of metrics", pause=0.05)


def test_the_limits_of_a_running_broker_are_those_of_its_plan() -> None:
    """The settings that a plan leads to are legal, also those of a small one."""
    plan = plan_memory(18 * MIB)
    with LocalBroker(settings=with_memory(BrokerSettings(), plan)) as broker:
        clients = broker._server.clients
        assert clients.publish_buffer.bytes.high == plan.publish_buffer
        assert clients.budget.max_request_bytes == plan.requests // 2 > 2 * MIB


def test_the_index_is_chosen_on_the_command_line() -> None:
    commands = argparse.ArgumentParser()
    broker.add(commands.add_subparsers())
    chosen = commands.parse_args(["broker", "--storage", "tiered", "--index", "rocks"])
    assert broker._settings(chosen).index_engine == "rocks"


def test_directories_for_journal_and_ledgers_are_chosen_on_the_command_line(tmp_path: Path) -> None:
    commands = argparse.ArgumentParser()
    broker.add(commands.add_subparsers())
    places = [str(tmp_path / name) for name in ("j", "a", "b")]
    chosen = commands.parse_args(
        ["broker", "--storage", "tiered", "--journal-dir", places[0], "--ledger-dirs", ",".join(places[1:])]
    )
    settings = broker._settings(chosen)
    assert (settings.journal_dir, settings.ledger_dirs) == (places[0], tuple(places[1:]))
    with LocalBroker(tmp_path / "data", settings=settings) as running:
        running.create_topic("t", 2)
        assert any((tmp_path / "j").glob("*.txn"))
    for name in ("a", "b"):
        assert (tmp_path / name / "owner").exists()
    chosen = commands.parse_args(["broker", "--storage", "segments", "--ledger-dirs", "a"])
    with pytest.raises(ConfigError, match="engine is 'segments', and only 'tiered' has ledger_dirs"):
        broker._settings(chosen)


def test_directories_outside_need_a_data_directory_that_is_kept(tmp_path: Path) -> None:
    settings = BrokerSettings(storage_engine="tiered", ledger_dirs=(str(tmp_path / "a"),))
    with pytest.raises(ConfigError, match="need a data directory that is kept"):
        LocalBroker(settings=settings)
    assert main(["broker", "--port", "0", "--storage", "tiered", "--journal-dir", str(tmp_path / "j")]) == 1
    assert list(tmp_path.iterdir()) == []
