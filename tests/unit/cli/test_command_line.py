"""The command line as a process: output, exit codes, Ctrl-C."""

from __future__ import annotations

import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaProducer

from spark_producer import Producer, __version__
from spark_producer.broker import LocalBroker
from spark_producer.cli.entry import main, version_line
from spark_producer.config.docs_table import option_rows, read_rows, render_markdown, render_reads
from spark_producer.consumer.topic_reader import TopicReader
from spark_producer.errors import BrokersUnreachable
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.driver import SinkSettings
from spark_producer.exactly_once.names import task_id
from spark_producer.kernel import LOADED
from spark_producer.kernel.dispatch import LoadedKernel
from spark_producer.network import ConnectionSettings, parse_bootstrap_servers
from tests.conftest import Broker
from tests.fakes.scripted_server import Peer, ScriptedServer
from tests.matrix.clusters import open_transactions
from tests.support.ports import free_ports
from tests.unit.broker.partition_writer import write_transactions

DEADLINE = 60.0


class Command:
    """`python -m spark_producer …` as a process of its own; every wait has a deadline."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "spark_producer", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUTF8": "1"},
            text=True,
        )
        self._lines: Queue[str] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def line(self) -> str:
        """The next line of its output."""
        try:
            return self._lines.get(timeout=DEADLINE)
        except Empty:
            raise TimeoutError(f"no output within {DEADLINE} s") from None

    def interrupt(self) -> tuple[int, str]:
        """Ctrl-C: (exit code, stderr)."""
        self._process.send_signal(signal.SIGINT)
        return self.finish()

    def finish(self) -> tuple[int, str]:
        code = self._process.wait(DEADLINE)
        self._reader.join(DEADLINE)
        assert self._process.stderr is not None
        return code, self._process.stderr.read()

    def close(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE)
        self._reader.join(DEADLINE)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))


@contextmanager
def running(*arguments: str) -> Iterator[Command]:
    command = Command(*arguments)
    try:
        yield command
    finally:
        command.close()


@pytest.fixture
def filled(embedded_broker: LocalBroker, topic: str) -> str:
    """A topic of two partitions with three records in each."""
    embedded_broker.create_topic(topic, 2)
    write(embedded_broker, topic, [(number % 2, f"value {number}".encode()) for number in range(6)])
    return topic


def write(broker: LocalBroker, topic: str, records: list[tuple[int, bytes]]) -> None:
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for partition, value in records:
            producer.send(topic, value, key=f"key {partition}", partition=partition, timestamp_ms=1_356_998_400_000)
        producer.flush()


def test_tail_prints_each_record_on_a_line(
    embedded_broker: LocalBroker, filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = embedded_broker.bootstrap_servers
    assert main(["tail", filled, "--bootstrap-servers", servers, "--from-beginning", "--max-records", "6"]) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == [
        f"{number % 2}:{number // 2}  2013-01-01T00:00:00.000Z  key=key {number % 2}  value=value {number}"
        for number in (0, 2, 4, 1, 3, 5)
    ]


def test_tail_from_the_end_says_on_a_terminal_what_it_waits_for(
    embedded_broker: LocalBroker, filled: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_producer.cli.tail.records_until", lambda *_, **__: iter(()))
    arguments = ["tail", filled, "--bootstrap-servers", embedded_broker.bootstrap_servers]
    assert main(arguments) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(arguments) == 0
    assert f"waiting for new records of {filled!r}. Add --from-beginning" in capsys.readouterr().err
    assert main([*arguments, "--from-beginning"]) == 0
    assert capsys.readouterr().err == ""


def test_tail_of_one_partition_and_a_maximum(
    embedded_broker: LocalBroker, filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--bootstrap-servers", embedded_broker.bootstrap_servers, "--from-beginning"]
    assert main(["tail", filled, *arguments, "--partition", "1", "--max-records", "2"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["1:0", "1:1"]


@pytest.mark.parametrize(
    ("chosen", "shown"),
    [
        ([], ["0:0", "0:1", "0:2", "0:3"]),
        (["--isolation-level", "read_uncommitted"], ["0:0", "0:1", "0:2", "0:3"]),
        (["--isolation-level", "read_committed"], ["0:0", "0:1", "0:2", "0:4"]),
    ],
)
def test_tail_shows_records_of_aborted_transactions_by_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], chosen: list[str], shown: list[str]
) -> None:
    write_transactions(tmp_path, "t")
    with LocalBroker(tmp_path) as broker:
        arguments = ["--bootstrap-servers", broker.bootstrap_servers, "--from-beginning", "--max-records", "4"]
        assert main(["tail", "t", *arguments, *chosen]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == shown


@pytest.mark.slow
@pytest.mark.parametrize("embedded", [True, pytest.param(False, marks=pytest.mark.kafka)])
def test_tail_reads_any_broker(
    request: pytest.FixtureRequest, embedded: bool, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broker: Broker = request.getfixturevalue("embedded_broker" if embedded else "kafka_three")
    broker.create_topic(topic, 3)
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for number in range(30):
            producer.send(topic, f"{number}", partition=number % 3)
    arguments = ["--bootstrap-servers", broker.bootstrap_servers, "--from-beginning", "--max-records", "30"]
    assert main(["tail", topic, *arguments]) == 0
    values = sorted(int(line.partition("value=")[2]) for line in capsys.readouterr().out.splitlines())
    assert values == list(range(30))


def test_tail_waits_for_new_records_and_stops_at_ctrl_c(embedded_broker: LocalBroker, filled: str) -> None:
    servers = embedded_broker.bootstrap_servers
    with running("tail", filled, "--bootstrap-servers", servers, "--partition", "0", "--from-beginning") as tail:
        assert [tail.line().split()[0] for _ in range(3)] == ["0:0", "0:1", "0:2"]
        write(embedded_broker, filled, [(0, b"\xff\x00new")])
        assert tail.line() == "0:3  2013-01-01T00:00:00.000Z  key=key 0  value=0xff006e6577"
        assert tail.interrupt() == (0, "")


def piped(arguments: str, reader: str, command: str = "tail") -> tuple[int, str]:
    """`tail … | reader`: (exit code of the tail, or of the reader if it fails; stderr)."""
    pipeline = f'"{sys.executable}" -m spark_producer {command} {arguments} | {reader}'
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", pipeline],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(("more", "reader"), [("--from-beginning --partition 0", "head -n 1"), ("", "true")])
def test_tail_ends_when_its_reader_has_seen_enough(
    embedded_broker: LocalBroker, filled: str, more: str, reader: str
) -> None:
    """As `yes | head` does, although nothing more arrives: without a message."""
    servers = embedded_broker.bootstrap_servers
    assert piped(f"{filled} --bootstrap-servers {servers} {more}", reader) == (0, "")


def test_tail_ends_with_its_reader_while_it_waits_for_a_broker() -> None:
    with ScriptedServer(Peer.wait_for_close) as silent:
        assert piped(f"orders --bootstrap-servers 127.0.0.1:{silent.port}", "true") == (0, "")


def test_tail_says_for_whom_it_waits(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Once in each wait of more than two seconds."""

    class DeadCluster:
        def __init__(self, addresses: object, *, on_wait: Callable[[float, str], None], **more: object) -> None:
            self._wait = on_wait

        def __enter__(self) -> DeadCluster:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def metadata(self, topics: list[str]) -> None:
            for seconds in (0.1, 1.9, 2.0, 2.1, 30.0, 0.0, 0.1, 2.3, 2.4):
                self._wait(seconds, "127.0.0.1:9092")
            raise BrokersUnreachable("no broker could be reached")

    # Patched here and below, since a command gets words and makes everything else itself.
    monkeypatch.setattr("spark_producer.cli.tail.BlockingClient", DeadCluster)
    assert main(["tail", "orders"]) == 1
    still = "pyproducer: still trying 127.0.0.1:9092 … (for 30 s at most)"
    assert capsys.readouterr().err.splitlines() == [still, still, "pyproducer: no broker could be reached"]


@pytest.mark.usefixtures("short_timeouts")
def test_the_timeout_of_tail_bounds_the_wait_for_a_broker(capsys: pytest.CaptureFixture[str]) -> None:
    servers = f"127.0.0.1:{free_ports(1)[0]}"
    began = time.monotonic()
    assert main(["tail", "orders", "--bootstrap-servers", servers, "--timeout", "1"]) == 1
    assert time.monotonic() - began < 20
    assert "no broker could be reached within 0.1 s" in capsys.readouterr().err


@pytest.mark.parametrize("more", [["--until-end"], ["--timeout", "1"]])
def test_tail_says_what_an_open_transaction_holds_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    write_transactions(tmp_path, "t")
    with LocalBroker(tmp_path) as broker:
        arguments = ["tail", "t", "--bootstrap-servers", broker.bootstrap_servers, "--from-beginning", *more]
        assert main(arguments) == 0
        shown = capsys.readouterr()
        assert (len(shown.out.splitlines()), shown.err) == (10, ""), "who sees everything is not held back"
        assert main([*arguments, "--isolation-level", "read_committed"]) == 0
        shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 6
    assert shown.err == (
        "pyproducer: t-0: 2 records from offset 12 on are held back by an open transaction. "
        "`pyproducer txn describe --topic t` shows its id\n"
    )


@pytest.mark.usefixtures("short_timeouts")
def test_txn_says_for_whom_it_waits(capsys: pytest.CaptureFixture[str]) -> None:
    """One broker refuses connections, and one does not answer."""
    with ScriptedServer(Peer.wait_for_close) as silent:
        for port in (silent.port, free_ports(1)[0]):
            servers = f"127.0.0.1:{port}"
            assert main(["txn", "list", "--bootstrap-servers", servers, "--timeout", "10"]) == 1
            first, last = capsys.readouterr().err.splitlines()
            assert first == f"pyproducer: still trying {servers} … (for 1 s at most)"
            assert servers in last


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["head -n 1", "true"])
def test_txn_completes_although_its_output_is_closed(embedded_broker: LocalBroker, topic: str, reader: str) -> None:
    embedded_broker.create_topic(topic, 1)
    servers = embedded_broker.bootstrap_servers
    driver.begin(SinkSettings(topic, ConnectionSettings(tuple(parse_bootstrap_servers(servers)))))
    name = task_id(topic, "0" * 32, 0)
    task = ConfluentProducer({"bootstrap.servers": servers, "transactional.id": name, "log_level": 0})
    task.init_transactions(DEADLINE)
    task.begin_transaction()
    task.produce(topic, b"x")
    assert task.flush(DEADLINE) == 0
    assert name in open_transactions(embedded_broker)
    assert piped(f"{topic} --bootstrap-servers {servers} --yes", reader, "txn resolve") == (0, "")
    assert name not in open_transactions(embedded_broker)


def test_tail_says_what_it_skipped(
    embedded_broker: LocalBroker, filled: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Ahead(TopicReader):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.positions = {0: 700}

    monkeypatch.setattr("spark_producer.cli.tail.TopicReader", Ahead)
    servers = embedded_broker.bootstrap_servers
    assert main(["tail", filled, "--bootstrap-servers", servers, "--partition", "0", "--max-records", "1"]) == 0
    shown = capsys.readouterr()
    assert shown.err.startswith("pyproducer: partition 0: offset 700 is not in the log")
    assert shown.err.endswith("Reading continues at 0\n")
    assert shown.out.startswith("0:0  ")


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_tail_unpacks_compressed_batches(
    embedded_broker: LocalBroker, topic: str, capsys: pytest.CaptureFixture[str], codec: str
) -> None:
    embedded_broker.create_topic(topic, 1)
    foreign = KafkaProducer(bootstrap_servers=embedded_broker.bootstrap_servers, compression_type=codec)
    try:
        foreign.send(topic, b"a" * 1000).get(DEADLINE)
    finally:
        foreign.close(DEADLINE)
    servers = ["--bootstrap-servers", embedded_broker.bootstrap_servers]
    assert main(["tail", topic, *servers, "--from-beginning", "--max-records", "1"]) == 0
    assert f"value={'a' * 1000}" in capsys.readouterr().out


def test_tail_does_not_make_topics(
    embedded_broker: LocalBroker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["tail", topic, "--bootstrap-servers", embedded_broker.bootstrap_servers]
    assert main([*arguments, "--until-end"]) == 1
    assert f"UNKNOWN_TOPIC_OR_PARTITION (3) for topic {topic!r}" in capsys.readouterr().err
    assert main([*arguments, "--timeout", "1"]) == 1
    waits, error = capsys.readouterr().err.splitlines()
    assert waits == (
        f"pyproducer: topic {topic!r} does not exist yet: waiting for its first write, or until it is created."
    )
    assert f"UNKNOWN_TOPIC_OR_PARTITION (3) for topic {topic!r}" in error
    assert topic not in embedded_broker.topics()


def test_tail_waits_for_a_topic_and_prints_it_from_its_first_record_on(
    embedded_broker: LocalBroker, topic: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Holds also for a tail that begins at the end: in a topic that did not exist, every record came after the command."""
    message: list[str] = []

    def write_meanwhile(text: str) -> None:
        message.append(text)
        write(embedded_broker, topic, [(0, b"first"), (0, b"second")])

    monkeypatch.setattr("spark_producer.cli.tail.print_error", write_meanwhile)
    assert main(["tail", topic, "--bootstrap-servers", embedded_broker.bootstrap_servers, "--max-records", "2"]) == 0
    assert [line.split("  ")[-1] for line in capsys.readouterr().out.splitlines()] == ["value=first", "value=second"]
    assert len(message) == 1


def test_tail_suggests_a_similar_topic_while_it_waits(
    embedded_broker: LocalBroker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    embedded_broker.create_topic(topic, 1)
    arguments = ["tail", f"{topic}s", "--bootstrap-servers", embedded_broker.bootstrap_servers, "--timeout", "1"]
    assert main(arguments) == 1
    waits, error = capsys.readouterr().err.splitlines()
    assert waits.endswith(f"Did you mean {topic!r}?")
    assert f"did you mean {topic!r}?" in error


def test_errors_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tail", "orders", "--bootstrap-servers", "nonsense"]) == 1
    message = capsys.readouterr().err
    assert message.startswith("pyproducer: bootstrap.servers: bad entry 'nonsense'")
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["tail"],
        ["tail", "t", "--max-records", "0"],
        ["tail", "t", "--partition", "-1"],
        ["broker", "--port", "70000"],
    ],
)
def test_bad_arguments_exit_with_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: pyproducer" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    spark = next((one.version for one in distributions() if one.name == "pyspark"), "not installed by pip")
    versions = f"Python {platform.python_version()}, pyarrow {pa.__version__}, Spark {spark}"
    assert capsys.readouterr().out == f"pyproducer {__version__} ({LOADED.describe()}; {versions})\n"


def test_version_where_there_is_no_spark_and_no_compiler() -> None:
    message = version_line(LoadedKernel("portable", {}, "no compiled module"), [])
    assert message.startswith(f"pyproducer {__version__} (portable kernel: no compiled module; Python")
    assert message.endswith("Spark not installed by pip)")


def test_options_lists_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["options"]) == 0
    *shown, _, pages = capsys.readouterr().out.splitlines()
    assert pages.startswith("The pages docs/… are in ")
    heading = next(number for number, line in enumerate(shown) if line.startswith("Options of reads."))
    for lines, rows in ((shown[: heading - 1], option_rows()), (shown[heading:], read_rows())):
        names = [line for line in lines if re.fullmatch(r"\S+  \(.+\)", line)]
        assert names == [f"{name}  ({default})" for name, default, _ in rows]
    assert max(map(len, shown)) <= 100


def test_options_as_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["options", "--markdown"]) == 0
    assert capsys.readouterr().out == f"{render_markdown()}\n{render_reads()}"


@pytest.mark.slow
def test_broker_serves_until_ctrl_c_and_keeps_its_data(tmp_path: Path, topic: str) -> None:
    for expected in (1, 2):
        with running("broker", "--port", "0", "--data-dir", str(tmp_path), "--partitions", "3") as broker:
            servers = broker.line().split()[2].rstrip(",")
            with Producer({"bootstrap.servers": servers}) as producer:
                producer.send(topic, b"kept", partition=2)
            assert broker.interrupt() == (0, "")
        with running("broker", "--port", "0", "--data-dir", str(tmp_path)) as broker:
            servers = broker.line().split()[2].rstrip(",")
            arguments = ["--bootstrap-servers", servers, "--from-beginning", "--max-records", str(expected)]
            with running("tail", topic, *arguments) as tail:
                assert [tail.line().split()[0] for _ in range(expected)] == [f"2:{each}" for each in range(expected)]
                assert tail.finish() == (0, "")
            assert broker.interrupt() == (0, "")


def test_broker_without_a_directory_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with running("broker", "--port", "0") as broker:
        assert "deleted at the end" in broker.line()
        assert list(tmp_path.iterdir()) != []
        assert broker.interrupt() == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_broker_on_a_taken_port(embedded_broker: LocalBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "--port", str(embedded_broker.port)]) == 1
    assert "Address already in use. Use another port\n" in capsys.readouterr().err


def test_broker_on_an_address_of_another_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "--host", "203.0.113.1", "--port", "0"]) == 1
    assert ". Use an address of this machine\n" in capsys.readouterr().err


def test_broker_on_all_addresses_advertises_the_given_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "--host", "0.0.0.0", "--port", "0"]) == 1
    assert "--advertised HOST:PORT" in capsys.readouterr().err
    with running("broker", "--host", "0.0.0.0", "--port", "0", "--advertised", "broker.test:4711") as broker:
        assert broker.line().startswith("broker on broker.test:4711, data in")
        assert broker.interrupt() == (0, "")


@pytest.mark.parametrize(
    ("given", "advice"),
    [("tial", "Did you mean tail?"), ("wirte", "Did you mean write?"), ("xyz", "`pyproducer --help` lists them")],
)
def test_an_unknown_command_suggests_a_similar_one(given: str, advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([given, "people", "--from-beginning"])
    assert capsys.readouterr().err.splitlines()[-1] == f"pyproducer: error: there is no command {given!r}. {advice}"
