"""Rights that are missing (KIP-679, StandardAuthorizer): the message names topic and user, everything else goes on."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from spark_producer import Producer
from spark_producer.admin import checks
from spark_producer.admin.checks import Finding
from spark_producer.common.error_codes import Code
from spark_producer.config import data_source_name, parse_options, producer_config
from spark_producer.datasource.write.driver.cluster_check import check_cluster
from spark_producer.errors import BrokerError, PyProducerError
from spark_producer.network import ConnectionSettings
from tests.security import ours
from tests.security.ways import Way, login
from tests.support.secured_kafka import SecuredKafka
from tests.support.waiting import wait_until

TIMEOUT = {"max.block.ms": str(ours.TIMEOUT_MS)}


@pytest.fixture
def user(secured: SecuredKafka) -> Iterator[str]:
    """A user of this test alone, who may do nothing."""
    name = f"user-{uuid.uuid4().hex[:8]}"
    secured.add_user(name, "pw")
    yield name
    secured.delete_user(name)


def settings(secured: SecuredKafka, user: str, **more: str) -> dict[str, str]:
    way = Way("SASLPLAIN", login("SASL_PLAINTEXT", "SCRAM-SHA-512", user, "pw"))
    return ours.settings(
        way, secured, more={**TIMEOUT, **{name.replace("_", "."): value for name, value in more.items()}}
    )


@pytest.mark.covers("COM23")
def test_check_names_the_right_that_is_missing(secured: SecuredKafka, topic: str, user: str) -> None:
    secured.create_topic(topic, 1)
    connection = ConnectionSettings.from_config(producer_config(settings(secured, user)))

    def last() -> Finding:
        return list(checks.check_cluster(connection, topic))[-1]

    found = last()
    assert (found.name, found.state) == ("rights", "failed")
    assert user in found.text
    secured.allow(user, "DESCRIBE", topic)
    found = last()
    assert (found.name, found.state) == ("rights", "failed")
    assert found.text == f"user {user!r} lacks WRITE on the topic"
    secured.allow(user, "WRITE", topic)
    names = {one.name: one.state for one in checks.check_cluster(connection, topic)}
    assert names["rights"] == "ok"
    assert names["min.insync.replicas"] == "unknown", "it takes DESCRIBE_CONFIGS, which a write does not"


def test_authorisation_without_describe_the_driver_names_topic_and_user(
    secured: SecuredKafka, topic: str, user: str
) -> None:
    secured.create_topic(topic, 1)
    options = {data_source_name(name): value for name, value in settings(secured, user).items()}
    config, sink = parse_options({**options, "topic": topic})
    with pytest.raises(BrokerError, match=topic) as refused, ours.soon():
        check_cluster(config, sink.topic)
    assert refused.value.code == Code.TOPIC_AUTHORIZATION_FAILED
    assert user in str(refused.value)


def make_topics(secured: SecuredKafka, topic: str, user: str) -> None:
    """`topic`, which the user may only see, and another one whose name ends in `-open`, which may be written to."""
    for name in (topic, f"{topic}-open"):
        secured.create_topic(name, 1)
    secured.allow(user, "DESCRIBE", topic)
    secured.allow(user, "WRITE", f"{topic}-open")


def test_authorisation_with_describe_alone_the_write_is_refused_and_no_other(
    secured: SecuredKafka, topic: str, user: str
) -> None:
    """One request holds batches of both topics; only one of them is refused, and is not tried again."""
    make_topics(secured, topic, user)
    with Producer(settings(secured, user, linger_ms="200")) as producer:
        refused = producer.send(topic, "0")
        written = [producer.send(f"{topic}-open", str(number)) for number in range(3)]
        assert [future.result(ours.SECONDS).offset for future in written] == [0, 1, 2]
        with pytest.raises(BrokerError, match=topic) as reported:
            refused.result(ours.SECONDS)
        assert reported.value.code == Code.TOPIC_AUTHORIZATION_FAILED
        assert user in str(reported.value)
        assert producer.send(f"{topic}-open", "3").result(ours.SECONDS).offset == 3
        with pytest.raises(BrokerError):
            producer.flush()
    assert ours.values(secured, f"{topic}-open") == [[0, 1, 2, 3]]
    assert ours.values(secured, topic) == []


def test_authorisation_granted_in_between_the_sequences_stay_right(
    secured: SecuredKafka, topic: str, user: str
) -> None:
    """A refused batch has not taken its sequence at the broker (ProducerStateManager), so the next one must use it."""
    make_topics(secured, topic, user)
    with Producer(settings(secured, user, linger_ms="0")) as producer:
        for _ in range(2):
            with pytest.raises(BrokerError, match=topic):
                producer.send(topic, "-1").result(ours.SECONDS)
        secured.allow(user, "WRITE", topic)
        first = producer.send(topic, "0")
        assert first.result(ours.SECONDS).offset == 0
        secured.forbid(user, "WRITE", topic)
        with pytest.raises(BrokerError, match=topic):
            producer.send(topic, "-1").result(ours.SECONDS)
        secured.allow(user, "WRITE", topic)
        written = [producer.send(topic, str(number)) for number in range(1, 50)]
        assert [future.result(ours.SECONDS).offset for future in written] == list(range(1, 50))
        with pytest.raises(BrokerError):
            producer.flush()
    assert ours.values(secured, topic) == [list(range(50))]


def test_authorisation_without_a_producer_id_it_says_what_to_grant(
    secured: SecuredKafka, topic: str, user: str
) -> None:
    secured.create_topic(topic, 1)
    secured.allow(user, "DESCRIBE", topic)
    with pytest.raises(PyProducerError) as refused, ours.soon():
        ours.write(settings(secured, user), topic, 1)
    assert "CLUSTER_AUTHORIZATION_FAILED" in str(refused.value)
    assert "IDEMPOTENT_WRITE" in str(refused.value)
    assert "enable.idempotence" in str(refused.value)


def test_authorisation_without_idempotence_the_topic_is_named(secured: SecuredKafka, topic: str, user: str) -> None:
    secured.create_topic(topic, 1)
    secured.allow(user, "DESCRIBE", topic)
    with pytest.raises(BrokerError, match=topic) as refused, ours.soon():
        ours.write(settings(secured, user, enable_idempotence="false"), topic, 1)
    assert refused.value.code == Code.TOPIC_AUTHORIZATION_FAILED


def test_authorisation_for_the_cluster_is_enough_for_a_producer_id(
    secured: SecuredKafka, topic: str, user: str
) -> None:
    secured.create_topic(topic, 1)
    secured.allow(user, "IDEMPOTENT_WRITE")
    secured.allow(user, "WRITE", topic)
    ours.write(settings(secured, user), topic, 10)
    ours.assert_once_and_in_order(ours.values(secured, topic), 10)


def test_authorisation_without_acknowledgements_the_log_hints_at_rights(
    secured: SecuredKafka, topic: str, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With acks=0 a broker has no answer in which to refuse: it closes the connection."""
    secured.create_topic(topic, 1)
    secured.allow(user, "DESCRIBE", topic)
    with Producer(settings(secured, user, acks="0", linger_ms="0")) as producer:

        def hinted() -> list[str]:
            producer.send(topic, "lost").result(ours.SECONDS)
            return [said for said in caplog.messages if "ACL" in said]

        hints = wait_until(hinted, "a hint at rights", seconds=ours.SECONDS, pause=0.05, more=lambda: caplog.messages)
    assert user in hints[0]
    assert ours.values(secured, topic) == []
