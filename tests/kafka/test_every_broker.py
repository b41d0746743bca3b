"""Behaviour that foreign clients need of every broker of the tests, real or embedded."""

from __future__ import annotations

import pytest

from tests.conftest import Broker, ProxiedBroker
from tests.kafka.foreign import CLIENTS, assert_written, write_with_kafka_python
from tests.support.read_back import Client
from tests.support.read_confluent import count_and_check

PRODUCE = 0


@pytest.mark.parametrize("client", CLIENTS)
def test_foreign_clients_read_what_foreign_clients_wrote(broker: Broker, topic: str, client: Client) -> None:
    broker.create_topic(topic, 3)
    write_with_kafka_python(broker.bootstrap_servers, topic, 60, 3)
    assert_written(broker.bootstrap_servers, topic, client, 60, 3)
    assert count_and_check(broker.bootstrap_servers, topic).records == {0: 20, 1: 20, 2: 20}


def test_a_lost_response_is_sent_again_and_written_once(proxied: ProxiedBroker, topic: str) -> None:
    proxied.create_topic(topic, 1)
    proxied.proxy.lose_response(PRODUCE)
    write_with_kafka_python(proxied.bootstrap_servers, topic, 20, 1)
    assert_written(proxied.bootstrap_servers, topic, "confluent", 20, 1)
    assert proxied.proxy.requests[PRODUCE] >= 2
