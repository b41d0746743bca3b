"""The benchmark of brokers that answer late: few rows through the proxy, and the page of what was stored."""

from __future__ import annotations

import socket
from pathlib import Path

from benchmarks import far
from spark_producer.broker import LocalBroker
from tests.support.distance import HOST, far_away
from tests.support.ports import free_ports
from tests.support.read_back import read_topic

RATES = {
    far.key(case): [50e6 if case.group == far.PROFILE else 10e6 if case.value else 60e6, 30e6] for case in far.cases()
}


def test_what_is_written_far_away_arrives() -> None:
    (port,) = free_ports(1)
    with LocalBroker(advertised=(HOST, port)) as broker:
        stand = far.Stand(broker.address.port, port, broker.create_topic, lambda _: None)
        few = [far.BASE._replace(partitions=2), far.Case(far.PROFILE, "", far.FAR, partitions=2)]
        rates = far.measure(stand, few, rounds=1, seconds=0.01)
        with far_away(broker.address.port, 0.0, port):
            written = sum(len(read_topic(broker.bootstrap_servers, f"far-0-{number}")) for number in range(len(few)))
    assert {name: len(values) for name, values in rates.items()} == {far.key(case): 1 for case in few}
    assert written >= len(few) * (1 + far.BATCH_ROWS)


def test_bytes_arrive_in_order_and_the_end_after_them() -> None:
    data = bytes(range(256)) * 4096
    with (
        socket.create_server((HOST, 0)) as server,
        far_away(server.getsockname()[1], 0.02) as port,
        socket.create_connection((HOST, port), 60) as ours,
    ):
        server.settimeout(60)
        theirs, _ = server.accept()
        with theirs, theirs.makefile("rb") as received:
            ours.sendall(data)
            ours.shutdown(socket.SHUT_WR)
            theirs.settimeout(60)
            assert received.read() == data


def test_the_page_has_a_line_for_each_case_and_the_part_that_is_kept(tmp_path: Path) -> None:
    results = {"rates": RATES, "round_trip": 0.4, "seconds": 15.0}
    text = far.page(results)
    assert "gets 92% of the rate with the profile `far`, at least the 80%" in text
    assert text.count("\n| ") == 1 + len(far.cases())
    assert len({far.key(case) for case in far.cases()}) == len(far.cases())
    far.draw(results, tmp_path / "far.svg")
    assert "<svg" in (tmp_path / "far.svg").read_text()
