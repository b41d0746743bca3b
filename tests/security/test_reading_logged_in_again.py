"""A reader whose login ends every three seconds (KIP-368): it logs in again on its connections, and reads every row once."""

from __future__ import annotations

import threading
import time

import pytest

from spark_producer import Producer
from spark_producer.config import producer_config
from spark_producer.consumer.read_ranges import CONNECTIONS
from spark_producer.consumer.settings import FetchSettings
from spark_producer.network import ConnectionSettings
from tests.security import ours
from tests.security.ways import WAYS
from tests.support.read_ranges import batches
from tests.support.secured_kafka import REAUTHENTICATION_MS, SecuredKafka

SASL_HANDSHAKE = 17
SESSIONS, ROWS = 2, 12_000


@pytest.mark.covers("RD13")
def test_a_login_is_renewed_while_a_slow_task_reads(secured: SecuredKafka, topic: str) -> None:
    secured.create_topic(topic, 1)
    config = ours.settings(WAYS["reauthenticating"], secured)
    with Producer({**config, "batch.size": "2000"}) as producer:
        for number in range(ROWS):
            producer.send(topic, b"%d" % number)
    CONNECTIONS.clear()
    proxy = secured.proxies["REAUTH"]
    connection = ConnectionSettings.from_config(producer_config(config))
    settings = FetchSettings(connection, partition_bytes=4000, max_bytes=20_000)
    found: list[object] = []
    connections, logins, end = 0, 0, time.monotonic() + SESSIONS * REAUTHENTICATION_MS / 1000
    for number, (_, batch) in enumerate(batches(settings, topic, {0: (0, ROWS)})):
        if not number:
            connections, logins = proxy.accepted, proxy.requests[SASL_HANDSHAKE]
        found += batch.column("value").to_pylist()
        if time.monotonic() < end:
            threading.Event().wait(0.2)  # a slow task: the session is to end in the middle
    assert found == [b"%d" % number for number in range(ROWS)]
    assert proxy.accepted == connections, "it has connected again"
    assert proxy.requests[SASL_HANDSHAKE] >= logins + SESSIONS - 1
