"""Certificates, keys and passwords that are replaced under load: new connections use the new ones, and no row is lost."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path

import pytest

from spark_producer import Producer
from tests.security import ours
from tests.security.load import Load
from tests.security.ways import TLS, Way, login
from tests.support.secured_kafka import SecuredKafka

AT_ONCE = {"linger.ms": "5", "reconnect.backoff.ms": "10", "reconnect.backoff.max.ms": "200"}
SOME = 200


def certificate_of(address: str) -> str:
    host, port = address.split(":")
    return ssl.get_server_certificate((host, int(port)))


@pytest.mark.covers("SEC43")
def test_a_client_shows_its_new_certificate_when_it_connects_again(
    secured: SecuredKafka, topic: str, tmp_path: Path
) -> None:
    secured.create_topic(topic, 2)
    for user in ("former", "latter"):
        secured.certificates.issue(user, [f"{user}.example"], common_name=user)
        secured.allow(user, "WRITE", topic)
    chain, key = tmp_path / "client.crt", tmp_path / "client.key"

    def install(user: str) -> None:
        shutil.copy(secured.file(f"{user}.crt"), chain)
        shutil.copy(secured.file(f"{user}.key"), key)

    install("former")
    way = Way("MTLS", TLS | {"ssl.certificate.location": str(chain), "ssl.key.location": str(key)})
    proxy = secured.proxies["MTLS"]
    with Producer(ours.settings(way, secured, more=AT_ONCE)) as producer:
        load = Load(producer, topic)
        load.until(lambda: load.count >= SOME)
        install("latter")
        connections = proxy.accepted
        proxy.cut()
        load.until(lambda: proxy.accepted > connections)
        secured.forbid("former", "WRITE", topic)
        more = load.count + SOME
        load.until(lambda: load.count >= more)
    ours.assert_once_and_in_order(ours.values(secured, topic), load.count)


@pytest.mark.covers("SEC43")
def test_a_broker_that_shows_a_new_certificate_is_connected_to_again(secured: SecuredKafka, topic: str) -> None:
    secured.create_topic(topic, 2)
    with Producer(ours.settings(Way("ROTATING", TLS), secured, more=AT_ONCE)) as producer:
        load = Load(producer, topic)
        load.until(lambda: load.count >= SOME)
        before = certificate_of(secured.address("ROTATING"))
        secured.certificates.issue("rotating")
        secured.rotate("ROTATING")
        load.until(lambda: certificate_of(secured.address("ROTATING")) != before)
        with Producer(ours.settings(Way("ROTATING", TLS), secured)) as newcomer:
            newcomer.send_batch(ours.numbers(load.count, 1), topic=topic)
            newcomer.flush()
    ours.assert_once_and_in_order(ours.values(secured, topic), load.count + 1)


@pytest.mark.covers("SEC43")
def test_a_new_password_is_read_from_its_file_at_the_next_login(
    secured: SecuredKafka, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYPRODUCER_SECRETS_ALLOW", raising=False)
    secured.create_topic(topic, 1)
    secured.add_user("renewed", "old-pw")
    secured.allow("renewed", "WRITE", topic)
    file = tmp_path / "password"
    file.write_text("old-pw\n")
    way = Way("REAUTH", login("SASL_PLAINTEXT", "SCRAM-SHA-512", "renewed", f"${{file:{file}}}"))
    more = AT_ONCE | {"secretsAllow": f"file:{tmp_path}/"}
    proxy = secured.proxies["REAUTH"]
    with Producer(ours.settings(way, secured, more=more)) as producer:
        load = Load(producer, topic)
        load.until(lambda: load.count >= SOME)
        secured.add_user("renewed", "new-pw")
        file.write_text("new-pw\n")
        connections = proxy.accepted
        proxy.cut()
        load.until(lambda: proxy.accepted > connections)
        more_rows = load.count + SOME
        load.until(lambda: load.count >= more_rows)
    ours.assert_once_and_in_order(ours.values(secured, topic), load.count)
