"""A producer under load at an embedded broker with short sessions: it re-authenticates, and callers do not notice."""

from __future__ import annotations

import time
from concurrent.futures import Future
from functools import partial

import pytest

from spark_producer import Producer, RecordMetadata
from spark_producer.broker import BrokerSecurity, LocalBroker, Users
from spark_producer.config import producer_config
from spark_producer.metrics.metric_table import CLIENT
from spark_producer.network import Client
from spark_producer.producer.internals import Parts
from spark_producer.producer.producer import producer_of
from tests.fakes.hurry import RunningClock
from tests.support.certificates import Certificates

PASSWORD = "session-pw-canary"
SESSION_S = 20.0
"""Long by the broker's clock, and short by the clock of the producer's connections. A session that was short by both clocks
would end before the producer of a busy machine gets time to re-authenticate."""
BETWEEN_LOGINS_S = 1.1
"""A broker takes no login that comes within a second of the last one (KIP-368)."""


def total(producer: Producer, name: str) -> float:
    return sum(value for (group, metric, _), value in producer.metrics().items() if (group, metric) == (CLIENT, name))


def some(producer: Producer) -> list[Future[RecordMetadata]]:
    return [producer.send("t", "x" * 100) for _ in range(50)]


@pytest.mark.covers("SEC28")
@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_under_load_no_record_is_lost_doubled_or_overtaken_and_no_connection_is_created_again(
    protocol: str, certificates: Certificates
) -> None:
    certificate = certificates.file("broker.pem") if protocol == "SASL_SSL" else None
    users = Users({"app": PASSWORD})
    options: dict[str, object] = {"ssl.ca.location": str(certificates.ca)} if certificate else {}
    options |= {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "app", "sasl.password": PASSWORD}
    with LocalBroker(
        security=BrokerSecurity(protocol, certificate=certificate, users=users, max_session_ms=int(SESSION_S * 1000))
    ) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers, "security.protocol": protocol, "linger.ms": 1}
        clock, config = RunningClock(), producer_config(servers | options)
        with producer_of(Parts(config, connect=partial(Client, clock=clock))) as producer:
            futures = [producer.send("t", "x" * 100)]
            producer.flush()
            for logins in (1, 2, 3):
                due = time.monotonic() + BETWEEN_LOGINS_S
                while time.monotonic() < due:
                    futures += some(producer)
                    producer.flush()
                futures += some(producer)
                clock.skip(SESSION_S * 0.96 - BETWEEN_LOGINS_S)
                for _ in range(2):  # in the first round a request may go out for which it was looked before
                    producer.flush()
                    futures += some(producer)
                producer.flush()
                assert total(producer, "successful-reauthentication-total") == logins, "before the session was over"
            offsets = [future.result(0).offset for future in futures]
            assert offsets == list(range(len(offsets)))
            opened = total(producer, "connection-creation-total")
            assert opened <= 2, "one to the bootstrap server, one to the broker"
            assert total(producer, "successful-authentication-total") == opened
            assert total(producer, "failed-authentication-total") == 0
            assert total(producer, "successful-authentication-no-reauth-total") == 0
            assert total(producer, "reauthentication-latency-max") > 0
