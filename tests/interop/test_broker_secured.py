"""Foreign clients log in to the embedded broker by every mechanism they have, over TLS, and write and read."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from spark_producer.broker import BrokerSecurity, LocalBroker, Users
from tests.support.kafka_node import KAFKA_4, KAFKA_39, KafkaFailed, run_tool

SECONDS = 60.0
JVM_SECONDS = 120.0
USER, PASSWORD = "a,b=c", "Ⅷ, = and quotes '"
JAVA_PASSWORD = "app-pw"
COUNT = 500
ON = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
BY_PASSWORD = ON[:3]
LIFETIME_MS = 2000
"""Milliseconds of a session, so that clients re-authenticate while they work."""
OVER = "its session has ended"
"""The log message for a client that connects without a login."""


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("certificates")
    issuer = trustme.CA()
    issuer.cert_pem.write_to_path(home / "ca.pem")
    issuer.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(home / "broker.pem")
    return home / "ca.pem"


@pytest.fixture(scope="module")
def local(ca: Path) -> Iterator[LocalBroker]:
    security = BrokerSecurity(
        "SASL_SSL",
        ca.with_name("broker.pem"),
        users=Users({USER: PASSWORD, "app": JAVA_PASSWORD}),
        mechanisms=ON,
        max_session_ms=LIFETIME_MS,
    )
    with LocalBroker(security=security) as broker:
        yield broker


@pytest.fixture
def topic(local: LocalBroker, request: pytest.FixtureRequest) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    local.create_topic(name, 1)
    return name


def unsigned(_config: str = "") -> tuple[str, float]:
    """An unsigned token, and when it ends."""
    ends = time.time() + 300
    parts = ({"alg": "none"}, {"sub": "app", "iat": time.time(), "exp": ends})
    return ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts
    ) + ".", ends


def librdkafka(local: LocalBroker, ca: Path, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap.servers": local.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(ca),
        "sasl.mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return options | {"oauth_cb": unsigned}
    return options | {"sasl.username": USER, "sasl.password": password}


@pytest.mark.covers("SEC38")
@pytest.mark.parametrize("mechanism", ON)
def test_librdkafka_writes_and_reads(
    local: LocalBroker, ca: Path, topic: str, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    """For longer than a session lasts: it logs in again meanwhile (KIP-368)."""
    failed: list[KafkaError | None] = []
    producer = Producer({**librdkafka(local, ca, mechanism), "enable.idempotence": True, "linger.ms": 0})
    deadline = time.monotonic() + 1.5 * LIFETIME_MS / 1000
    sent = 0
    while time.monotonic() < deadline or sent < COUNT:
        producer.produce(topic, key=b"%d" % sent, value=bytes(1000), on_delivery=lambda error, _: failed.append(error))
        sent += 1
        producer.poll(0.005)
    assert producer.flush(SECONDS) == 0
    assert OVER not in caplog.text
    assert [error for error in failed if error is not None] == []
    consumer = Consumer({**librdkafka(local, ca, mechanism), "group.id": "none", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        got = [message for message in consumer.consume(sent, SECONDS) if message.error() is None]
    finally:
        consumer.close()
    assert [message.key() for message in got] == [b"%d" % number for number in range(sent)]


@pytest.mark.covers("SEC38")
@pytest.mark.parametrize("mechanism", BY_PASSWORD)
def test_librdkafka_with_a_wrong_password(local: LocalBroker, ca: Path, mechanism: str) -> None:
    errors: list[KafkaError] = []
    producer = Producer({**librdkafka(local, ca, mechanism, "wrong"), "error_cb": errors.append})
    deadline = time.monotonic() + SECONDS
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=1)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "Authentication failed" in errors[0].str()


def kafka_python(local: LocalBroker, ca: Path, mechanism: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": local.bootstrap_servers,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(ca),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "app",  # it does not escape `=` and `,` in names, as SCRAM demands
        "sasl_plain_password": JAVA_PASSWORD,
    }


@pytest.mark.covers("SEC38")
@pytest.mark.parametrize("mechanism", BY_PASSWORD)
def test_kafka_python_writes_and_reads(local: LocalBroker, ca: Path, topic: str, mechanism: str) -> None:
    producer = KafkaProducer(**kafka_python(local, ca, mechanism))
    try:
        sent = [producer.send(topic, b"%d" % number) for number in range(COUNT)]
        assert [future.get(SECONDS).offset for future in sent] == list(range(COUNT))
    finally:
        producer.close()
    consumer = KafkaConsumer(**kafka_python(local, ca, mechanism), consumer_timeout_ms=int(SECONDS * 1000))
    try:
        place = KafkaPythonPartition(topic, 0)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        assert [next(consumer).value for _ in range(COUNT)] == [b"%d" % number for number in range(COUNT)]
    finally:
        consumer.close()


def java_options(home: Path, local: LocalBroker, ca: Path, mechanism: str, password: str = JAVA_PASSWORD) -> Path:
    """A properties file for Kafka's own tools."""
    package = "org.apache.kafka.common.security"
    given = f'required username="app" password="{password}";'
    jaas = {
        "PLAIN": f"{package}.plain.PlainLoginModule {given}",
        "OAUTHBEARER": f'{package}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="app";',
    }.get(mechanism, f"{package}.scram.ScramLoginModule {given}")
    lines = {
        "bootstrap.servers": local.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas,
    }
    made = home / f"{mechanism}.properties"
    made.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return made


@pytest.mark.covers("SEC38")
@pytest.mark.kafka
@pytest.mark.parametrize(
    ("version", "mechanism"),
    [
        *((KAFKA_4, mechanism) for mechanism in ON if mechanism[-3:] != "256"),
        pytest.param(KAFKA_4, "SCRAM-SHA-256", marks=pytest.mark.nightly),
        pytest.param(KAFKA_39, "SCRAM-SHA-512", marks=pytest.mark.nightly),
        *(pytest.param(KAFKA_39, mechanism, marks=pytest.mark.campaign) for mechanism in ON if mechanism[-3:] != "512"),
    ],
)
def test_java_writes_and_reads(
    local: LocalBroker,
    ca: Path,
    topic: str,
    tmp_path: Path,
    version: str,
    mechanism: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The producer runs for longer than a session, so it re-authenticates meanwhile."""
    config = str(java_options(tmp_path, local, ca, mechanism))
    size = ("--num-records", "3000", "--record-size", "200", "--throughput", "1000")
    tool = "org.apache.kafka.tools.ProducerPerformance"
    written = run_tool(version, tmp_path, tool, ("--topic", topic, *size, "--producer.config", config), JVM_SECONDS)
    assert "3000 records sent" in written
    assert OVER not in caplog.text
    place = ("--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "3000")
    reader = ("--bootstrap-server", local.bootstrap_servers, "--consumer.config", config)
    tool = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    lines = run_tool(version, tmp_path, tool, (*reader, *place), JVM_SECONDS).splitlines()
    assert len([line for line in lines if len(line) == 200 and line.isalpha()]) == 3000


@pytest.mark.covers("SEC38")
@pytest.mark.kafka
def test_java_with_a_wrong_password(local: LocalBroker, ca: Path, tmp_path: Path) -> None:
    config = java_options(tmp_path, local, ca, "SCRAM-SHA-512", "wrong")
    address = ("--bootstrap-server", local.bootstrap_servers, "--command-config", str(config))
    with pytest.raises(KafkaFailed, match="SaslAuthenticationException: Authentication failed during authentication"):
        run_tool(KAFKA_4, tmp_path, "org.apache.kafka.tools.TopicCommand", (*address, "--list"), JVM_SECONDS)
