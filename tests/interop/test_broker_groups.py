"""Consumer groups of librdkafka and kafka-python on the embedded broker."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_producer.broker import LocalBroker
from spark_producer.protocol import JOIN_GROUP
from tests.fakes.raw_client import RawClient
from tests.interop.group_members import GROUP, MEMBERS, SECONDS, ConfluentMember, Polled, PythonMember
from tests.support.ports import free_ports
from tests.unit.broker.coordinator.group_requests import join_request, subscription

PARTITIONS = 4
_numbers = itertools.count()


@pytest.fixture
def local_4(local: LocalBroker) -> LocalBroker:
    local.create_topic("t", PARTITIONS)
    return local


def written(bootstrap_servers: str, count: int = 200) -> list[bytes]:
    """Write unique values to all partitions, and return them."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    values = [b"%d" % next(_numbers) for _ in range(count)]
    for number, value in enumerate(values):
        producer.produce("t", value, partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0
    return values


@pytest.mark.parametrize("client", MEMBERS)
def test_a_group_goes_on_where_it_has_committed(local_4: LocalBroker, client: str) -> None:
    address = local_4.bootstrap_servers
    first = written(address)
    with Polled(MEMBERS[client](address)) as group:
        group.until_read(first)
        group.members[0].commit()
    second = written(address)
    for _ in range(2):
        with Polled(MEMBERS[client](address)) as group:
            group.until_read(second)
            assert sorted(group.members[0].values) == sorted(second)


PAIRS = [
    pytest.param(pair, marks=[pytest.mark.nightly] * (pair == ("kafka-python", "kafka-python")))
    for pair in itertools.combinations_with_replacement(MEMBERS, 2)
]


@pytest.mark.parametrize("clients", PAIRS, ids="-".join)
def test_two_members_share_out_and_take_over(local_4: LocalBroker, clients: tuple[str, str]) -> None:
    """The members may be of different clients: both encode topics and partitions as Kafka's consumers do."""
    address = local_4.bootstrap_servers
    first, second = (MEMBERS[client] for client in clients)
    # the names of the strategies are the same; librdkafka begins with range too
    common: dict[type[Any], dict[str, Any]] = {
        ConfluentMember: {"partition.assignment.strategy": "range"},
        PythonMember: {},
    }
    with Polled(first(address, **common[first])) as group:
        group.until_shared_out([PARTITIONS], PARTITIONS)
        group.members.append(second(address, **common[second]))
        group.until_shared_out([2, 2], PARTITIONS)
        values = written(address)
        group.until_read(values)
        assert all(member.values for member in group.members)
        for member in group.members:
            member.commit()
        group.members.pop(0).close()
        group.until_shared_out([PARTITIONS], PARTITIONS)
        more = written(address)
        before = len(group.members[0].values)
        group.until(lambda: len(group.members[0].values) >= before + len(more))
        assert sorted(group.members[0].values[before:]) == sorted(more)


def test_members_share_out_a_little_at_a_time(local_4: LocalBroker) -> None:
    """KIP-429: the partitions that stay are not taken away meanwhile."""
    address = local_4.bootstrap_servers
    settings = {"partition.assignment.strategy": "cooperative-sticky"}
    with Polled(*(ConfluentMember(address, **settings) for _ in range(3))) as group:
        group.until_shared_out([1, 1, 2], PARTITIONS)
        group.until_read(written(address))
        group.members.pop().close()
        before = [set(member.partitions()) for member in group.members]
        group.until_shared_out([2, 2], PARTITIONS)
        assert all(kept <= set(member.partitions()) for kept, member in zip(before, group.members, strict=True))


def test_a_member_without_heartbeats_is_replaced(local_4: LocalBroker) -> None:
    """The member joins, and sends no request for the length of its session."""
    member = ConfluentMember(local_4.bootstrap_servers, **{"partition.assignment.strategy": "range"})
    with Polled(member) as group, RawClient(local_4.port) as silent:
        group.until_shared_out([PARTITIONS], PARTITIONS)
        silent.send(JOIN_GROUP, join_request(group=GROUP, metadata=subscription("t"), session_timeout_ms=6000), 3)
        group.until(lambda: len(member.partitions()) == PARTITIONS // 2)
        group.until_shared_out([PARTITIONS], PARTITIONS)
        assert set(member.partitions()) == set(range(PARTITIONS))


def test_a_static_member_comes_back_to_its_partitions(local_4: LocalBroker) -> None:
    """KIP-345: the other member notices nothing."""
    address = local_4.bootstrap_servers

    def member(name: str) -> ConfluentMember:
        return ConfluentMember(address, **{"group.instance.id": name})

    with Polled(member("a"), member("b")) as group:
        group.until_shared_out([2, 2], PARTITIONS)
        _, second = group.members
        before = second.partitions()
        generation = described(address)
        group.members.remove(second)
        second.close()  # a static member says nothing when it goes
        group.members.append(member("b"))
        group.until_shared_out([2, 2], PARTITIONS)
        assert group.members[1].partitions() == before
        assert described(address) == generation
        group.until_read(written(address))


def described(bootstrap_servers: str) -> dict[str, set[int]]:
    """Instance id → the partitions that the group knows to be its own, by librdkafka's administrator."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    found = admin.describe_consumer_groups([GROUP])[GROUP].result(SECONDS)
    return {
        each.group_instance_id: {place.partition for place in each.assignment.topic_partitions}
        for each in found.members
    }


@pytest.mark.parametrize("client", ["librdkafka", pytest.param("kafka-python", marks=pytest.mark.nightly)])
def test_members_join_again_after_a_restart_of_the_broker(tmp_path: Path, client: str) -> None:
    (port,) = free_ports(1)
    with LocalBroker(tmp_path, port=port) as broker:
        broker.create_topic("t", PARTITIONS)
        group = Polled(MEMBERS[client](broker.bootstrap_servers), MEMBERS[client](broker.bootstrap_servers))
        group.until_shared_out([2, 2], PARTITIONS)
        group.until_read(written(broker.bootstrap_servers))
        for member in group.members:
            member.commit()
            member.values.clear()
    with LocalBroker(tmp_path, port=port) as broker, group:
        values = written(broker.bootstrap_servers)
        group.until(lambda: set(values) <= {value for each in group.members for value in each.values})
        # The first member may have read records that the other one reads again: their offsets were not committed.
        assert {value for each in group.members for value in each.values} == set(values)


def transacting(bootstrap_servers: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": "id", "log_level": 0})
    producer.init_transactions(SECONDS)
    return producer


def test_kip447_offsets_of_a_member_go_with_its_transaction_until_it_is_replaced(local_4: LocalBroker) -> None:
    address = local_4.bootstrap_servers
    values = written(address)
    old = ConfluentMember(address)
    with Polled(old) as group:
        group.until_read(values)
        place, stale = old.consumer.position(old.consumer.assignment()), old.consumer.consumer_group_metadata()
        producer = transacting(address)
        commit(producer, lambda: producer.send_offsets_to_transaction(place, stale, SECONDS))
        assert committed(old) == dict.fromkeys(range(PARTITIONS), 50)

        group.members.append(ConfluentMember(address))
        group.until_shared_out([2, 2], PARTITIONS)
        earlier = [TopicPartition("t", partition, 1) for partition in range(PARTITIONS)]
        with pytest.raises(KafkaException) as refusal:
            commit(producer, lambda: producer.send_offsets_to_transaction(earlier, stale, SECONDS))
        assert refusal.value.args[0].txn_requires_abort()
        producer.abort_transaction(SECONDS)
        assert committed(old) == dict.fromkeys(range(PARTITIONS), 50)


def commit(producer: Producer, send_offsets: Callable[[], object]) -> None:
    producer.begin_transaction()
    producer.produce("t", b"result", partition=0)
    send_offsets()
    producer.commit_transaction(SECONDS)


def committed(member: ConfluentMember) -> dict[int, int]:
    wanted = [TopicPartition("t", partition) for partition in range(PARTITIONS)]
    return {each.partition: each.offset for each in member.consumer.committed(wanted, timeout=SECONDS)}
