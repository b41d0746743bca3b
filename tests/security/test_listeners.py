"""The secured Kafka itself, judged by foreign clients: what the other tests of this folder stand on."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.security.ways import TLS, WAYS, Way, for_librdkafka, login, read_by_librdkafka
from tests.support.secured_kafka import NO_RIGHTS_PASSWORD, NO_RIGHTS_USER, SecuredKafka

SECONDS = 30.0
REFUSED = {
    "expired": Way("EXPIRED", TLS),
    "not yet valid": Way("NOTYET", TLS),
    "another name": Way("OTHERNAME", TLS),
    "unknown CA": Way("TLS", TLS | {"ssl.ca.location": "{stranger-ca.pem}"}),
    "no client certificate": Way("MTLS", TLS),
    "unknown client": Way(
        "MTLS",
        TLS | {"ssl.certificate.location": "{client-stranger.crt}", "ssl.key.location": "{client-stranger.key}"},
    ),
    "wrong password": Way("SASLSSL", login("SASL_SSL", "SCRAM-SHA-512", password="wrong")),
    "mechanism off": Way("SASLPLAIN", login("SASL_PLAINTEXT", "SCRAM-SHA-256")),
}


@pytest.mark.covers("SEC1")
@pytest.mark.parametrize("name", WAYS)
def test_every_way_in_works_for_librdkafka(secured: SecuredKafka, topic: str, name: str) -> None:
    secured.create_topic(topic, 1)
    producer = Producer(for_librdkafka(WAYS[name], secured))
    producer.produce(topic, value=b"written")
    assert producer.flush(SECONDS) == 0
    assert [row.value for row in read_by_librdkafka(secured, topic, name)] == [b"written"]


@pytest.mark.covers("SEC20–SEC27")
@pytest.mark.parametrize("name", REFUSED)
def test_every_wrong_way_is_refused_to_librdkafka(secured_4: SecuredKafka, name: str) -> None:
    admin = AdminClient(for_librdkafka(REFUSED[name], secured_4))
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)


def test_rights_are_granted_and_taken_away(secured_4: SecuredKafka, topic: str) -> None:
    secured_4.create_topic(topic, 1)
    way = Way("SASLSSL", login("SASL_SSL", "PLAIN", NO_RIGHTS_USER, NO_RIGHTS_PASSWORD))
    reported: list[object] = []

    def write() -> object:
        producer = Producer(for_librdkafka(way, secured_4))
        producer.produce(topic, value=b"x", on_delivery=lambda error, _: reported.append(error))
        assert producer.flush(SECONDS) == 0
        return reported[-1]

    assert "authorization" in str(write()).lower()
    secured_4.allow(NO_RIGHTS_USER, "WRITE", topic)
    assert write() is None
    secured_4.forbid(NO_RIGHTS_USER, "WRITE", topic)
    assert "authorization" in str(write()).lower()


def test_a_user_comes_and_goes(secured_4: SecuredKafka) -> None:
    secured_4.add_user("guest", "guest-pw")
    way = Way("SASLPLAIN", login("SASL_PLAINTEXT", "SCRAM-SHA-512", "guest", "guest-pw"))

    def admin() -> AdminClient:
        return AdminClient(for_librdkafka(way, secured_4))

    assert admin().list_topics(timeout=SECONDS).brokers
    secured_4.delete_user("guest")
    with pytest.raises(KafkaException):
        admin().list_topics(timeout=2)
