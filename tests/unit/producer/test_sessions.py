"""A producer under load at an embedded broker whose sessions end every second: it logs in anew, and nobody notices."""

from __future__ import annotations

import time

import pytest

from spark_producer import Producer
from spark_producer.broker import BrokerSecurity, LocalBroker, Users
from spark_producer.metrics.names import CLIENT
from tests.stages.workbench import DEADLINE
from tests.support.certificates import Certificates

PASSWORD = "session-pw-canary"


def total(producer: Producer, name: str) -> float:
    return sum(value for (group, metric, _), value in producer.metrics().items() if (group, metric) == (CLIENT, name))


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_sec28_under_load_no_record_is_lost_doubled_or_overtaken_and_no_connection_is_made_anew(
    protocol: str, certificates: Certificates
) -> None:
    certificate = certificates.file("broker.pem") if protocol == "SASL_SSL" else None
    users = Users({"app": PASSWORD})
    options: dict[str, object] = {"ssl.ca.location": str(certificates.ca)} if certificate else {}
    options |= {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "app", "sasl.password": PASSWORD}
    with LocalBroker(
        security=BrokerSecurity(protocol, certificate=certificate, users=users, max_session_ms=1200)
    ) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers, "security.protocol": protocol, "linger.ms": 1}
        with Producer(servers | options) as producer:
            futures = []
            end = time.monotonic() + DEADLINE
            while total(producer, "successful-reauthentication-total") < 3:
                assert time.monotonic() < end, "three logins anew"
                futures += [producer.send("t", "x" * 100) for _ in range(50)]
                producer.flush()
            offsets = [future.result(0).offset for future in futures]
            assert offsets == list(range(len(offsets)))
            opened = total(producer, "connection-creation-total")
            assert opened <= 2, "one to the bootstrap server, one to the broker"
            assert total(producer, "successful-authentication-total") == opened
            assert total(producer, "failed-authentication-total") == 0
            assert total(producer, "successful-authentication-no-reauth-total") == 0
            assert total(producer, "reauthentication-latency-max") > 0
