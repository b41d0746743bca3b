"""The broker's life: starting, stopping, restarting, dying."""

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.broker.context import Endpoint
from spark_producer.broker.settings import STORAGE_ENGINES
from spark_producer.broker.storage.base import Storage
from spark_producer.broker.storage.engines import open_storage
from spark_producer.errors import BrokerError, ConfigError, ConnectionFailed
from spark_producer.protocol import LIST_OFFSETS, METADATA, PRODUCE, messages
from tests.fakes.disk import Disk
from tests.fakes.raw_client import DEADLINE, RawClient
from tests.support.ports import free_ports
from tests.unit.broker.batches import make_batch

SERVE = """
import sys
from spark_producer.broker import serve
serve("127.0.0.1", int(sys.argv[1]), sys.argv[2], ready=lambda address, _: print(address, flush=True))
"""


@contextmanager
def separate_broker(data_dir: Path, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A broker in a process of its own, and its port."""
    command = [sys.executable, "-c", SERVE, str(port), str(data_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        guard = threading.Timer(DEADLINE, process.kill)
        guard.start()
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline().rpartition(":")[2])
        finally:
            guard.cancel()
            process.kill()


def end_offset(port: int) -> int:
    wanted = messages.ListOffsetsTopic("t", (messages.ListOffsetsPartition(0, timestamp=-1),))
    with RawClient(port) as client:
        response = client.ask(LIST_OFFSETS, messages.ListOffsetsRequest(topics=(wanted,)))
    return int(response.topics[0].partitions[0].offset)


def produce(client: RawClient, batch: memoryview) -> int:
    request = messages.ProduceRequest(
        topic_data=(messages.ProduceTopic("t", partition_data=(messages.ProducePartition(0, batch),)),)
    )
    result = client.ask(PRODUCE, request).responses[0].partition_responses[0]
    assert result.error_code == 0
    return int(result.base_offset)


def create_by_metadata(client: RawClient) -> None:
    wanted = (messages.MetadataRequestTopic(name="t"),)
    assert client.ask(METADATA, messages.MetadataRequest(wanted)).topics[0].error_code == 0


def test_a_temporary_data_directory_is_removed_at_the_end() -> None:
    opened: list[Path] = []

    def noting(directory: Path, settings: BrokerSettings) -> Storage:
        opened.append(directory)
        return open_storage(directory, settings)

    settings = BrokerSettings(storage_engine="segments")
    with LocalBroker(default_partitions=3, open_storage=noting, settings=settings) as broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{broker.port}"
        assert repr(broker) == f"LocalBroker('{broker.bootstrap_servers}')"
        with RawClient(broker.port) as client:
            create_by_metadata(client)
        assert broker.topics() == {"t": 3}
        (directory,) = opened
        assert (directory / "t-2").exists()
    assert not directory.exists()
    broker.close()


@pytest.mark.parametrize("engine", STORAGE_ENGINES)
def test_closing_ends_the_thread_the_port_and_the_connections(engine: str, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    broker = LocalBroker(tmp_path, settings=BrokerSettings(storage_engine=engine))
    with RawClient(broker.port) as client:
        create_by_metadata(client)
        broker.close()
        assert client.is_closed_by_peer()
    assert set(threading.enumerate()) <= before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", broker.port), DEADLINE)


@pytest.mark.parametrize("engine", STORAGE_ENGINES)
def test_the_same_directory_and_port_can_be_used_again(engine: str, tmp_path: Path) -> None:
    with (
        LocalBroker(tmp_path, port=free_ports(1)[0], settings=BrokerSettings(storage_engine=engine)) as broker,
        RawClient(broker.port) as client,
    ):
        broker.create_topic("t")
        assert produce(client, make_batch(5)) == 0
    with LocalBroker(tmp_path, port=broker.port) as again:
        assert again.port == broker.port
        assert end_offset(again.port) == 5


@pytest.mark.parametrize("engine", STORAGE_ENGINES)
def test_a_failed_start_has_a_reason_and_leaves_no_files(engine: str, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with LocalBroker(tmp_path, settings=BrokerSettings(storage_engine=engine)) as broker:
        with pytest.raises(ConfigError, match="in use by another broker"):
            LocalBroker(tmp_path, settings=BrokerSettings(storage_engine=engine))
        taken = f"^cannot listen on 127.0.0.1:{broker.port}: {os.strerror(errno.EADDRINUSE)}. Use another port$"
        with pytest.raises(ConnectionFailed, match=taken):
            LocalBroker(port=broker.port)
    assert set(threading.enumerate()) <= before


def test_a_data_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=f"{tmp_path}/file"):
        LocalBroker(tmp_path / "file")


def test_a_closed_broker_raises() -> None:
    broker = LocalBroker()
    broker.close()
    with pytest.raises(ConnectionFailed, match="closed"):
        broker.create_topic("t")


def test_only_a_kept_data_directory_is_put_on_the_disk(tmp_path: Path, disk: Disk) -> None:
    for data_dir, files in ((None, 0), (tmp_path, 1)):
        settings = BrokerSettings(storage_engine="segments")
        with LocalBroker(data_dir, settings=settings) as broker, RawClient(broker.port) as client:
            broker.create_topic("t")
            broker.create_topic("empty")
            produce(client, make_batch(2))
        assert len(disk.synced) == files


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError):
        LocalBroker(default_partitions=0)
    with pytest.raises(ConfigError):
        BrokerSettings(max_request_bytes=0)


def test_clients_get_the_advertised_address() -> None:
    with (
        LocalBroker(advertised=("proxy.test", 4711), auto_create_topics=False) as broker,
        RawClient(broker.port) as client,
    ):
        assert broker.bootstrap_servers == "proxy.test:4711"
        (node,) = client.ask(METADATA, messages.MetadataRequest(None)).brokers
        assert (node.host, node.port) == ("proxy.test", 4711)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_a_broker_on_all_addresses_needs_the_one_for_clients(host: str) -> None:
    with pytest.raises(ConfigError, match=r"listens on all addresses.*--advertised HOST:PORT"):
        LocalBroker(host=host)


def test_topics_can_be_made_from_another_thread_and_errors_come_back() -> None:
    with LocalBroker() as broker:
        broker.create_topic("a", 2, {"max.message.bytes": "1000"})
        with pytest.raises(BrokerError, match="already exists"):
            broker.create_topic("a")
        assert broker.topics() == {"a": 2}


def test_ipv6_addresses_are_written_in_brackets() -> None:
    assert str(Endpoint("::1", 9092)) == "[::1]:9092"
    assert str(Endpoint("localhost", 9092)) == "localhost:9092"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_ends_cleanly_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with separate_broker(tmp_path) as (process, port), RawClient(port) as client:
        create_by_metadata(client)
        produce(client, make_batch(3))
        process.send_signal(number)
        assert process.wait(DEADLINE) == 0
    with LocalBroker(tmp_path) as broker:
        assert end_offset(broker.port) == 3


FORKED = """
import os, sys, warnings
from spark_producer.broker import LocalBroker

def files():
    return {name for *_, names in os.walk(os.environ["TMPDIR"]) for name in names if not name.endswith(".new")}

with LocalBroker() as broker:
    broker.create_topic("t")
    before = files()
    warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, about forks with threads
    child = os.fork()
    if not child:
        broker.close()
        sys.exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(before <= files())
"""


def test_a_forked_child_leaves_the_broker_and_its_data_alone(tmp_path: Path) -> None:
    """The child closes the broker, and then ends as Python does: both removed the directory of the parent."""
    done = subprocess.run(
        [sys.executable, "-c", FORKED],
        env={**os.environ, "TMPDIR": str(tmp_path)}, timeout=DEADLINE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("7\nTrue\n", "")
    assert list(tmp_path.iterdir()) == [], "it goes with the parent"


EARLY_AND_LATE = """
import os, signal, sys, tempfile
from spark_producer.broker import serve

def interrupting(method, number):
    def called(self, **options):
        method(self, **options)
        os.kill(os.getpid(), number)
    return called

made = tempfile.TemporaryDirectory
made.__init__ = interrupting(made.__init__, signal.SIGTERM if sys.argv[1] == "early" else 0)
made.cleanup = interrupting(made.cleanup, signal.SIGINT)
serve("127.0.0.1", 0, None, ready=lambda *_: os.kill(os.getpid(), signal.SIGTERM))
print("ended in order")
"""


@pytest.mark.parametrize("first", ["early", "when it serves"])
def test_serve_ends_in_order_whenever_the_signals_come(tmp_path: Path, first: str) -> None:
    """The first while the directory is made, or as it begins to serve; one more while it is removed."""
    done = subprocess.run(
        [sys.executable, "-c", EARLY_AND_LATE, first],
        env={**os.environ, "TMPDIR": str(tmp_path)}, timeout=DEADLINE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended in order\n", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_every_acknowledged_batch_survives_kill_9_under_load(tmp_path: Path) -> None:
    """A producer whose last response is lost may have one unconfirmed batch in the log, and sends it again."""
    acknowledged, sequence, port = 0, 0, free_ports(1)[0]
    for _ in range(3):
        with separate_broker(tmp_path, port) as (process, _):
            with RawClient(port) as client:
                create_by_metadata(client)
                assert end_offset(port) in (acknowledged, acknowledged + 2)
                killer, lived = threading.Timer(0.2, process.kill), acknowledged
                try:
                    for sequence in range(acknowledged, 10**9, 2):
                        batch = make_batch(2, size=20_000, producer_id=7, epoch=0, sequence=sequence)
                        assert produce(client, batch) == sequence, "a batch that was sent again keeps its first offset"
                        acknowledged = sequence + 2
                        if sequence == lived:
                            killer.start()
                except ConnectionError:
                    pass
                killer.cancel()
            assert process.wait(DEADLINE) == -signal.SIGKILL
    with LocalBroker(tmp_path) as broker:
        assert end_offset(broker.port) in (acknowledged, acknowledged + 2)
