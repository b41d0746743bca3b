"""The page of metrics: its text, the server that shows it, and what a broker shows there."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.broker.counters import MetricDescription, MetricReading, MetricType, counter, gauge, readings
from spark_producer.broker.memory.object_memory import BASE_BYTES, PARTITION_BYTES, TOPIC_BYTES, HeapCounts
from spark_producer.broker.memory.plan import SHARES, plan_memory
from spark_producer.broker.memory.system_memory import system_memory
from spark_producer.broker.metrics import server, snapshot
from spark_producer.broker.metrics.page import metrics_page, read_metrics_page
from spark_producer.broker.metrics.server import MAX_REQUEST_BYTES, fetch_metrics_page
from spark_producer.broker.metrics.snapshot import plan_readings
from spark_producer.broker.storage.tiered.counters import TierCounters
from spark_producer.errors import ConnectionFailed
from tests.fakes.memory_storage import MemoryStorage
from tests.support.waiting import wait_until

SECONDS = 10.0
LINE = re.compile(
    r"(# HELP [a-z_:0-9]+ \S.*|# TYPE [a-z_:0-9]+ (counter|gauge)|[a-z_:0-9]+(\{[a-z_]+=\"[^\"]*\"(,[a-z_]+=\"[^\"]*\")*\})? \S+)"
)


def test_the_text_is_that_of_prometheus() -> None:
    page = metrics_page(
        [
            MetricReading("a_total", 3, MetricDescription("counts\nup \\", MetricType.COUNTER, "their_a")),
            MetricReading(
                "b", 1.5, MetricDescription("goes up and down", MetricType.GAUGE), (("part", 'x"y'), ("of", "z"))
            ),
            MetricReading("b", 2, MetricDescription("goes up and down", MetricType.GAUGE), (("part", "w"),)),
        ]
    )
    assert page == (
        "# HELP a_total counts\\nup \\\\ (their_a)\n# TYPE a_total counter\na_total 3\n"
        '# HELP b goes up and down\n# TYPE b gauge\nb{part="x\\"y",of="z"} 1.5\nb{part="w"} 2\n'
    )
    assert read_metrics_page(page) == {"a_total": 3, "b": 2}
    assert read_metrics_page("<html>\na 1 2\nb x\n\nc 1e3") == {"c": 1000}


def test_the_tiers_have_a_metric_for_each_counter_and_name_their_models() -> None:
    counters = TierCounters()
    counters.tail.hit = 7
    page = metrics_page(counters.readings())
    assert (
        "# HELP pyproducer_broker_tail_hit_total entries read from the tail cache (pulsar_ml_cache_hits_rate)\n" in page
    )
    assert "\npyproducer_broker_tail_hit_total 7\n" in page
    assert "\npyproducer_broker_tail_bytes 0\n" in page
    names = re.findall(r"^(\w+) ", page, re.MULTILINE)
    assert len(names) == len(set(names)) > 50
    for line in page.splitlines():
        assert LINE.fullmatch(line), line
    for counterpart in ("bookie_read_cache_hits", "bookie_readahead_batch_count", "pulsar_ml_cache_used_size"):
        assert f"({counterpart})" in page


def test_only_fields_with_a_description_are_counters() -> None:
    @dataclass
    class Some:
        up: int = counter("goes up")
        level: int = gauge("goes up and down", "their_level")

    found = list(readings("some", Some(up=2)))
    assert [(each.name, each.value, each.meaning.kind) for each in found] == [
        ("pyproducer_broker_some_up_total", 2, MetricType.COUNTER),
        ("pyproducer_broker_some_level", 0, MetricType.GAUGE),
    ]


@contextlib.contextmanager
def served(text: str = "a 1\n") -> Iterator[int]:
    with server.metrics_server(0, lambda: text) as port:
        yield port


def response(port: int, request: bytes) -> bytes:
    """All that comes back to these bytes."""
    with socket.create_connection(("127.0.0.1", port), SECONDS) as client:
        client.sendall(request)
        found = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := client.recv(65536):
                found += chunk
        return found


def test_the_page_is_at_metrics_and_nothing_is_elsewhere() -> None:
    with served() as port:
        assert fetch_metrics_page(port) == "a 1\n"
        got = response(port, b"GET /metrics HTTP/1.0\r\n\r\n")
        assert got.startswith(b"HTTP/1.0 200 OK\r\n")
        assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n" in got
        assert got.endswith(b"\r\n\r\na 1\n")
        assert b"Python" not in got
        assert response(port, b"GET / HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 404")
        assert response(port, b"POST /metrics HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 501")


def test_who_sends_nothing_or_too_much_or_garbage_costs_the_next_one_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_TIMEOUT_S", 0.2)
    with served() as port, socket.create_connection(("127.0.0.1", port), SECONDS) as silent:
        with socket.create_connection(("127.0.0.1", port), SECONDS) as slow:
            stop = threading.Event()

            def drip() -> None:
                with contextlib.suppress(OSError):
                    while not stop.wait(0.05):
                        slow.sendall(b"G")

            dripping = threading.Thread(target=drip)
            dripping.start()
            try:
                assert fetch_metrics_page(port) == "a 1\n", "after both had their time"
            finally:
                stop.set()
                dripping.join(SECONDS)
        assert silent.recv(1) == b"", "it was closed"
        monkeypatch.setattr(server, "REQUEST_TIMEOUT_S", SECONDS)
        assert b" 200 " not in response(port, b"GET /metrics HTTP/1.0\r\nx: " + b"y" * MAX_REQUEST_BYTES)
        assert b" 200 " not in response(port, b"\0\xff\r\n\r\n")
        assert fetch_metrics_page(port) == "a 1\n"


def test_a_page_that_cannot_be_made_ends_its_own_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    pages = ["a 1\n"]
    with server.metrics_server(0, pages.pop) as port:
        assert fetch_metrics_page(port) == "a 1\n"
        with pytest.raises(ConnectionFailed):
            fetch_metrics_page(port)
        assert "a bug in the broker" in caplog.text
        pages.append("a 2\n")
        assert fetch_metrics_page(port) == "a 2\n"


def test_a_port_that_is_taken_or_has_no_page_is_an_error() -> None:
    taken = pytest.raises(
        ConnectionFailed, match=r"^cannot listen on 127.0.0.1:[0-9]+ for metrics: [A-Z][a-z ]+. Use another port$"
    )
    with served() as port, taken, served_at(port):
        pass
    with pytest.raises(ConnectionFailed, match=f"Start the broker with --metrics-port {port}"):
        fetch_metrics_page(port)
    with LocalBroker() as broker, pytest.raises(ConnectionFailed):
        fetch_metrics_page(broker.port)


def served_at(port: int) -> contextlib.AbstractContextManager[int]:
    return server.metrics_server(port, lambda: "")


def test_the_server_ends_with_its_block() -> None:
    with served() as port:
        names = [thread.name for thread in threading.enumerate()]
        assert "broker-metrics" in names
    assert "broker-metrics" not in [thread.name for thread in threading.enumerate()]
    with served_at(port):
        pass


def test_a_broker_shows_no_page_unless_asked_to() -> None:
    with LocalBroker() as broker:
        assert broker.metrics_port is None
        assert "broker-metrics" not in [thread.name for thread in threading.enumerate()]


def test_a_broker_shows_heap_plan_tiers_and_page_cache() -> None:
    with LocalBroker(metrics_port=0, open_storage=MemoryStorage) as broker:
        assert broker.metrics_port
        broker.create_topic("a", 3)
        broker.create_topic("b", 2)
        page = fetch_metrics_page(broker.metrics_port)
        for line in page.splitlines():
            assert LINE.fullmatch(line), line
        found = read_metrics_page(page)
        assert found["pyproducer_broker_heap_topics"] == 2
        assert found["pyproducer_broker_heap_partitions"] == 5
        assert found["pyproducer_broker_heap_estimated_bytes"] == BASE_BYTES + 2 * TOPIC_BYTES + 5 * PARTITION_BYTES
        assert found["pyproducer_broker_memory_storage_logs"] == 5, "what the engine counts"
        assert found["pyproducer_broker_publish_pending_bytes"] == 0
        assert 'pyproducer_broker_info{engine="memory"} 1\n' in page
        limit = BrokerSettings().publish_buffer_bytes
        assert f'pyproducer_broker_memory_limit_bytes{{part="broker.publish.buffer.bytes"}} {limit}\n' in page
        assert "tail.cache" not in page, "this engine has none"
        names = re.findall(r"^# HELP (\w+)", page, re.MULTILINE)
        assert len(names) == len(set(names))


def test_only_an_engine_with_tiers_shows_the_limits_of_tiers() -> None:
    plan = plan_memory(256 * 1024 * 1024)
    tiers = {each.name for each in TierCounters().readings()}
    shown = [(dict(each.labels)["part"], each.value) for each in plan_readings(plan, tiers)]
    assert shown == [(share.name, getattr(plan, share.field)) for share in SHARES]
    assert [each.value for each in plan_readings(plan, ())] == [plan.publish_buffer]


def test_a_broker_that_is_busy_shows_the_sums_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalBroker(metrics_port=0) as broker:
        assert broker.metrics_port
        broker.create_topic("a", 3)
        fetch_metrics_page(broker.metrics_port)
        broker.create_topic("b", 1)
        monkeypatch.setattr(snapshot, "SUMS_TIMEOUT_S", 0.05)
        go_on = threading.Event()
        busy = broker._server.call(lambda: go_on.wait(SECONDS))
        try:
            for _ in range(2):
                assert read_metrics_page(fetch_metrics_page(broker.metrics_port))["pyproducer_broker_heap_topics"] == 1
        finally:
            go_on.set()
        assert busy.result(SECONDS)
        port = broker.metrics_port
        topics = "pyproducer_broker_heap_topics"
        wait_until(lambda: read_metrics_page(fetch_metrics_page(port))[topics] == 2, "the new topic is on the page")


def test_memory_of_the_system(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    whole = system_memory(tmp_path)
    assert (whole.resident, whole.page_cache) == (None, None)
    assert whole.available is None or whole.available > 2**20
    write("sys/fs/cgroup/memory.max", "max\n")
    assert system_memory(tmp_path) == whole
    write("sys/fs/cgroup/memory.max", "1048576\n")
    write("proc/self/status", "Name:\tpython\nVmRSS:\t  2048 kB\n")
    write("proc/meminfo", "MemTotal: 9 kB\nCached:       3 kB\nSwapCached: 5 kB\n")
    assert system_memory(tmp_path) == (2**20, 2**21, 3 * 1024)
    write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert system_memory(tmp_path).available == 2**20


def test_the_heap_is_the_sum_of_what_is_in_it() -> None:
    counts = HeapCounts(topics=1, partitions=2, producers=3, transactional_ids=4, committed_offsets=5)
    assert [(name, count) for name, count, _ in counts.parts()] == list(counts._asdict().items())
    assert counts.bytes == BASE_BYTES + sum(size for _, _, size in counts.parts())
    assert HeapCounts().bytes == BASE_BYTES
