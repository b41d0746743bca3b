"""A whole broker on an engine that confirms in groups, from a thread of its own, as a journal does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSecurity, BrokerSettings, LocalBroker, Users
from spark_producer.common.error_codes import Code
from spark_producer.protocol import LIST_OFFSETS, METADATA, PRODUCE, messages
from tests.fakes.memory_storage import MemoryStorage
from tests.fakes.raw_client import RawClient
from tests.interop.broker_records import CLIENTS, assert_holds, read, records_of_every_kind, write
from tests.support.read_back import Client
from tests.unit.broker.batches import make_batch
from tests.unit.broker.security.conftest import ca, files, users
from tests.unit.broker.security.secured_broker import log_in, over_tls

__all__ = ["ca", "files", "users"]


class GroupStorage(MemoryStorage):
    """An engine whose thread confirms batches of a log in groups of exactly `size`."""

    def __init__(self, path: Path, settings: BrokerSettings, size: int) -> None:
        super().__init__(path, settings, confirms_at_once=False)
        self.groups = 0
        self._size = size
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="groups")
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.001):
            for place, log in list(self.logs.items()):
                while len(log.batches) - log.confirmed >= self._size:
                    log.confirmed += self._size
                    self.groups += 1
                    self._confirmed(*place)

    def close(self) -> bool:
        self._stop.set()
        self._thread.join(20)
        return super().close()


@contextmanager
def serving(
    path: Path, size: int, security: BrokerSecurity | None = None
) -> Iterator[tuple[LocalBroker, GroupStorage]]:
    """A broker with a topic `t` of three partitions, and its storage."""
    engines: list[GroupStorage] = []

    def opened(directory: Path, settings: BrokerSettings) -> GroupStorage:
        engines.append(GroupStorage(directory, settings, size))
        return engines[0]

    with LocalBroker(path, open_storage=opened, security=security) as broker:
        broker.create_topic("t", 3)
        yield broker, engines[0]


def one(index: int, acks: int = -1) -> messages.ProduceRequest:
    data = (messages.ProducePartition(index, make_batch(1)),)
    return messages.ProduceRequest(
        acks=acks, timeout_ms=20_000, topic_data=(messages.ProduceTopic("t", partition_data=data),)
    )


def pipeline(client: RawClient, count: int) -> None:
    """Send `count` Produces at once, every tenth with acks=0, and a Metadata after them; check each response and the order."""
    kinds = [0 if number % 10 == 9 else -1 for number in range(count)]
    frames = [client.frame(PRODUCE, one(0, acks)) for acks in kinds]
    last = client.frame(METADATA, messages.MetadataRequest(()))
    client.socket.sendall(b"".join(frames) + last)
    numbers = []
    for offset, acks in enumerate(kinds):
        if acks:
            number, response = client.receive(PRODUCE)
            numbers.append(number)
            (result,) = response.responses[0].partition_responses
            assert (result.error_code, result.base_offset) == (Code.NONE, offset)
    assert numbers == sorted(numbers)
    assert client.receive(METADATA)[0] > numbers[-1]


def test_requests_sent_at_once_are_confirmed_in_groups_and_answered_in_order(tmp_path: Path) -> None:
    with serving(tmp_path, 50) as (broker, storage), RawClient(broker.port) as client:
        pipeline(client, 400)
        assert storage.groups == 8
        wanted = messages.ListOffsetsTopic("t", (messages.ListOffsetsPartition(0, timestamp=-1),))
        response = client.ask(LIST_OFFSETS, messages.ListOffsetsRequest(topics=(wanted,)))
        assert response.topics[0].partitions[0].offset == 400


def test_the_same_through_tls_and_after_a_login(tmp_path: Path, files: Path, users: Users) -> None:
    security = BrokerSecurity("SASL_SSL", files / "broker.pem", users=users)
    with serving(tmp_path, 50, security) as (broker, storage), RawClient(broker.port) as plain:
        with over_tls(plain, files / "ca.pem") as client:
            log_in(client, "SCRAM-SHA-256")
            pipeline(client, 400)
        assert storage.groups == 8


@pytest.mark.parametrize("client", CLIENTS)
def test_foreign_producers_write_and_read(tmp_path: Path, client: Client) -> None:
    with serving(tmp_path, 1) as (broker, _):
        records = records_of_every_kind(3, writer=client)
        write(client, broker.bootstrap_servers, "t", records)
        assert_holds(read(client, broker.bootstrap_servers, "t"), records)
