"""A client without failures."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from spark_producer.errors import ConnectionFailed, UnsupportedVersion
from spark_producer.protocol import API_VERSIONS, FETCH, METADATA, PRODUCE, messages
from tests.fakes.client_driver import Clock, Driver
from tests.fakes.scripted_server import ALL_VERSIONS, Peer, ScriptedServer

Drive = Callable[..., Driver]
MIB = 1 << 20


def metadata(controller_id: int = 0) -> messages.MetadataResponse:
    return messages.MetadataResponse(controller_id=controller_id)


def serve_metadata(peer: Peer) -> None:
    """Answer every request; the controller id counts them."""
    peer.negotiate()
    number = 0
    while True:
        peer.answer(peer.read(), metadata(number))
        number += 1


def produce(payload: bytes | bytearray | memoryview, acks: int = 1) -> messages.ProduceRequest:
    partition = messages.ProducePartition(0, payload)
    return messages.ProduceRequest(None, acks, 1000, (messages.ProduceTopic("topic", partition_data=(partition,)),))


def test_a_request_is_answered(drive: Drive, clock: Clock) -> None:
    with ScriptedServer(serve_metadata) as server:
        driver = drive([server.address])
        assert not driver.client.ready(-1)  # it only begins to connect
        driver.until_ready()
        driver.client.send(-1, METADATA, messages.MetadataRequest(), tag="tag")
        assert driver.client.in_flight(-1) == 1
        clock.advance(0.25)
        (done,) = driver.until_completed()
        assert done == ("tag", -1, METADATA, metadata(), None, 0.25)
        assert (driver.client.in_flight(-1), driver.client.last_error(-1)) == (0, None)


@pytest.mark.covers("NW8")
def test_an_old_broker_is_asked_again_in_its_own_version(drive: Drive) -> None:
    def old(peer: Peer) -> None:
        first = peer.read()
        refusal = messages.ApiVersionsResponse(35, (messages.ApiVersion(18, 0, 2),))
        peer.answer(first._replace(version=0), refusal)
        second = peer.negotiate(messages.ApiVersionsResponse(0, (messages.ApiVersion(3, 0, 7),)))
        assert (first.version, second.version) == (3, 2)
        request = peer.read()
        assert request.version == 7
        peer.answer(request, metadata(4))
        peer.wait_for_close()

    with ScriptedServer(old) as server:
        driver = drive([server.address])
        driver.until_ready()
        driver.client.send(-1, METADATA, messages.MetadataRequest(), tag=0)
        assert driver.until_completed()[0].body.controller_id == 4


def test_requests_are_pipelined_up_to_the_maximum_in_flight(drive: Drive) -> None:
    def three_at_once(peer: Peer) -> None:
        peer.negotiate()
        requests = [peer.read() for _ in range(3)]  # nothing is answered before all have come
        for number, request in enumerate(requests):
            peer.answer(request, metadata(number))
        peer.wait_for_close()

    with ScriptedServer(three_at_once) as server:
        driver = drive([server.address], max_in_flight=3)
        driver.until_ready()
        for tag in "abc":
            assert driver.client.ready(-1)
            driver.client.send(-1, METADATA, messages.MetadataRequest(), tag=tag)
        assert not driver.client.ready(-1)
        done = driver.until_completed(3)
        assert [(completion.tag, completion.body.controller_id) for completion in done] == [
            ("a", 0),
            ("b", 1),
            ("c", 2),
        ]
        assert driver.client.ready(-1)


def test_eight_mebibytes_are_written_in_parts_without_blocking(drive: Drive) -> None:
    payload = bytes(range(256)) * (8 * MIB // 256)
    may_read = threading.Event()
    found: list[bool] = []

    def slow_reader(peer: Peer) -> None:
        peer.negotiate()
        assert may_read.wait(10)
        request = peer.read()
        found.append(request.body.topic_data[0].partition_data[0].records == payload)
        peer.answer(request, messages.ProduceResponse(throttle_time_ms=0))
        peer.wait_for_close()

    with ScriptedServer(slow_reader, receive_buffer_bytes=64 * 1024) as server:
        driver = drive([server.address], send_buffer_bytes=64 * 1024)
        driver.until_ready()
        driver.client.send(-1, PRODUCE, produce(payload), tag="big")
        assert not driver.client.ready(-1)  # not fully written
        assert driver.client.poll(0) == []
        may_read.set()
        (done,) = driver.until_completed()
        assert (done.tag, done.error, found) == ("big", None, [True])


def test_eight_mebibytes_are_received(drive: Drive) -> None:
    payload = bytes(range(256)) * (8 * MIB // 256)

    def big_answer(peer: Peer) -> None:
        peer.negotiate()
        partition = messages.FetchPartitionResponse(records=payload)
        topic = messages.FetchTopicResponse("topic", partitions=(partition,))
        peer.answer(peer.read(), messages.FetchResponse(responses=(topic,)))
        peer.wait_for_close()

    with ScriptedServer(big_answer) as server:
        driver = drive([server.address])
        driver.until_ready()
        driver.client.send(-1, FETCH, messages.FetchRequest(), tag=0)
        (done,) = driver.until_completed()
        assert done.body.responses[0].partitions[0].records == payload


def test_acks_0_completes_when_written_and_nothing_is_waited_for(drive: Drive) -> None:
    seen: list[int] = []

    def silent(peer: Peer) -> None:
        peer.negotiate()
        seen.append(peer.read().body.acks)
        peer.answer(peer.read(), metadata(7))
        peer.wait_for_close()

    with ScriptedServer(silent) as server:
        driver = drive([server.address])
        driver.until_ready()
        driver.client.send(-1, PRODUCE, produce(b"payload", acks=0), tag="fire", expect_response=False)
        driver.client.send(-1, METADATA, messages.MetadataRequest(), tag="ask")
        done = driver.until_completed(2)
        assert [(c.tag, c.body and c.body.controller_id, c.error) for c in done] == [
            ("fire", None, None),
            ("ask", 7, None),
        ]
        assert seen == [0]


@pytest.mark.covers("NW4")
@pytest.mark.parametrize("where", ["response", "api versions"])
def test_a_throttled_node_is_not_ready_until_its_time(drive: Drive, clock: Clock, where: str) -> None:
    def throttling(peer: Peer) -> None:
        peer.negotiate(ALL_VERSIONS._replace(throttle_time_ms=500 if where == "api versions" else 0))
        request = peer.read()
        peer.answer(request, messages.MetadataResponse(throttle_time_ms=500 if where == "response" else 0))
        peer.wait_for_close()

    with ScriptedServer(throttling) as server:
        driver = drive([server.address])
        if where == "response":
            driver.until_ready()
            driver.client.send(-1, METADATA, messages.MetadataRequest(), tag=0)
            driver.until_completed()
        else:
            driver.client.ready(-1)
            driver.poll_until(lambda: driver.client.least_loaded() is None, "the throttle")
        clock.advance(0.499)
        assert not driver.client.ready(-1)
        clock.advance(0.001)
        assert driver.client.ready(-1)


def test_an_api_that_the_broker_lacks_fails_that_request_only(drive: Drive) -> None:
    def only_metadata(peer: Peer) -> None:
        peer.negotiate(messages.ApiVersionsResponse(0, (messages.ApiVersion(3, 0, 12), messages.ApiVersion(0, 0, 2))))
        peer.answer(peer.read(), metadata(1))
        peer.wait_for_close()

    with ScriptedServer(only_metadata) as server:
        driver = drive([server.address])
        driver.until_ready()
        driver.client.send(-1, PRODUCE, produce(b"payload"), tag="bad")
        driver.client.send(-1, METADATA, messages.MetadataRequest(), tag="good")
        bad, good = driver.until_completed(2)
        assert isinstance(bad.error, UnsupportedVersion)
        assert str(server.address[1]) in str(bad.error), "which broker lacks it"
        assert (good.tag, good.error) == ("good", None)


@pytest.mark.covers("NW1")
@pytest.mark.parametrize("node", [-1, 5])
def test_a_request_to_a_node_that_is_not_connected_completes_with_an_error(drive: Drive, node: int) -> None:
    driver = drive([("127.0.0.1", 1)])
    driver.client.send(node, METADATA, messages.MetadataRequest(), tag="early")
    (done,) = driver.until_completed()
    assert (done.tag, done.node, type(done.error)) == ("early", node, ConnectionFailed)


def test_nodes_that_move_or_vanish_lose_their_connection(drive: Drive) -> None:
    def silent(peer: Peer) -> None:
        peer.negotiate()
        peer.wait_for_close()

    with ScriptedServer(silent) as first, ScriptedServer(serve_metadata) as second:
        driver = drive([("127.0.0.1", 1)])
        driver.client.set_nodes({1: first.address, 2: second.address})
        driver.until_ready(1)
        driver.until_ready(2)
        for tag in "ab":
            driver.client.send(1, METADATA, messages.MetadataRequest(), tag=tag)
        driver.client.set_nodes({1: second.address, 2: second.address})
        assert driver.client.ready(2)
        done = driver.until_completed(2)
        assert [completion.tag for completion in done] == ["a", "b"]
        assert all(isinstance(completion.error, ConnectionFailed) for completion in done)
        driver.until_ready(1)  # at its new place
        driver.client.set_nodes({2: second.address})
        assert not driver.client.ready(1)
        assert driver.client.ready(2)


@pytest.mark.covers("NW5")
def test_the_least_loaded_node_is_the_one_with_the_fewest_in_flight(drive: Drive) -> None:
    def silent(peer: Peer) -> None:
        peer.negotiate()
        peer.wait_for_close()

    with ScriptedServer(silent) as server:
        driver = drive([("127.0.0.1", 1)])
        client = driver.client
        assert client.least_loaded() == -1  # all there is
        client.set_nodes({1: server.address, 2: server.address, 3: server.address})
        assert client.least_loaded() in (1, 2, 3)
        client.ready(3)
        assert client.least_loaded() == 3  # one that is connecting before one that is not
        for node in (1, 2):
            driver.until_ready(node)
        client.send(1, METADATA, messages.MetadataRequest(), tag=0)
        driver.until_ready(3)
        client.send(3, METADATA, messages.MetadataRequest(), tag=0)
        assert client.least_loaded() == 2
        client.send(2, METADATA, messages.MetadataRequest(), tag=0)
        client.send(2, METADATA, messages.MetadataRequest(), tag=0)
        assert client.least_loaded() in (1, 3)


@pytest.mark.covers("NW5")
def test_a_throttled_node_is_left_out_and_of_two_others_the_one_tried_longer_ago_comes_first(
    drive: Drive, clock: Clock
) -> None:
    def throttling(peer: Peer) -> None:
        peer.negotiate()
        peer.answer(peer.read(), messages.MetadataResponse(throttle_time_ms=10_000))
        peer.wait_for_close()

    nowhere = ("127.0.0.1", 1)
    with ScriptedServer(throttling) as server:
        driver = drive([nowhere], reconnect_backoff=1, reconnect_backoff_max=1)
        client = driver.client
        client.set_nodes({1: server.address, 2: nowhere, 3: nowhere})
        driver.until_ready(1)
        client.send(1, METADATA, messages.MetadataRequest(), tag=0)
        driver.until_completed()
        for node in (3, 2):
            client.ready(node)
            assert driver.until_disconnected() == [node]
            clock.advance(0.1)
        assert client.least_loaded() is None, "throttled, or in backoff"
        clock.advance(2)
        assert [client.least_loaded() for _ in range(8)] == [3] * 8
        clock.advance(10)
        assert client.least_loaded() == 1


def test_a_wakeup_from_another_thread_ends_a_poll(drive: Drive) -> None:
    driver = drive([("127.0.0.1", 1)])

    def wake() -> None:
        for _ in range(100_000):  # far more than the pipe holds
            driver.client.wakeup()

    waker = threading.Thread(target=wake)
    waker.start()
    assert driver.client.poll(3600) == []  # without a wakeup the test's own timeout would end it
    waker.join(10)
    assert not waker.is_alive()
    driver.client.close()
    driver.client.wakeup()  # late, and harmless
    driver.client.close()


def test_an_idle_connection_is_closed_quietly(drive: Drive, clock: Clock) -> None:
    with ScriptedServer(serve_metadata) as server:
        driver = drive([server.address], connections_max_idle=9)
        driver.until_ready()
        clock.advance(8.9)
        driver.client.poll(0)
        assert driver.client.ready(-1)
        clock.advance(0.1)
        driver.client.poll(0)
        assert driver.client.take_disconnected() == []
        driver.until_ready()  # at once, by a new connection
        assert server.accepted == 2


def test_api_versions_has_our_client_id(drive: Drive) -> None:
    seen: list[str | None] = []

    def listen(peer: Peer) -> None:
        request = peer.negotiate()
        assert request.api is API_VERSIONS
        seen.append(request.client_id)
        peer.wait_for_close()

    with ScriptedServer(listen) as server:
        driver = drive([server.address], client_id="me")
        driver.until_ready()
    assert seen == ["me"]


@pytest.mark.covers("NW9")
def test_a_cluster_whose_nodes_are_all_in_backoff_is_stranded(drive: Drive, clock: Clock) -> None:
    driver = drive([("127.0.0.1", 1)], reconnect_backoff=5.0, reconnect_backoff_max=5.0)
    client = driver.client
    assert not client.all_nodes_unavailable(), "only the bootstrap servers are known: there is nothing to fall back to"
    client.set_nodes({1: ("127.0.0.1", 1)})
    assert not client.all_nodes_unavailable(), "it may be connected to"
    client.ready(1)
    while not client.all_nodes_unavailable():
        client.poll(0.1)
        assert client.ready(1) is False
    clock.advance(10)
    assert not client.all_nodes_unavailable()


@pytest.mark.covers("NW9")
def test_back_at_the_bootstrap_servers_what_was_in_flight_has_failed(drive: Drive) -> None:
    def silent(peer: Peer) -> None:
        peer.negotiate()
        peer.wait_for_close()

    with ScriptedServer(silent) as server:
        driver = drive([server.address])
        client = driver.client
        client.set_nodes({1: server.address})
        driver.until_ready(1)
        for tag in "ab":
            client.send(1, METADATA, messages.MetadataRequest(), tag=tag)
        client.set_nodes({})
        done = driver.until_completed(2)
        assert [(completion.tag, type(completion.error)) for completion in done] == [
            ("a", ConnectionFailed),
            ("b", ConnectionFailed),
        ]
        assert client.least_loaded() == -1
        driver.until_ready(-1)
