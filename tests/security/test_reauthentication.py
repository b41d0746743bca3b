"""A broker that wants a new login every three seconds (KIP-368), a user and a right that are taken away, under load."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from spark_producer import Producer
from spark_producer.common.error_codes import Code
from spark_producer.errors import AuthenticationFailed, BrokerError
from tests.security import ours
from tests.security.load import Load, send_all
from tests.security.ways import WAYS, Way, login
from tests.support.proxy import Direction
from tests.support.secured_kafka import MECHANISMS, REAUTHENTICATION_MS, SecuredKafka

SASL_HANDSHAKE = 17
SESSIONS = 2
SOME = 200
AT_ONCE = {"linger.ms": "5"}


@pytest.mark.covers("SEC28")
@pytest.mark.parametrize(("listener", "protocol"), [("REAUTH", "SASL_PLAINTEXT"), ("REAUTHTLS", "SASL_SSL")])
def test_logging_in_again_under_load_loses_doubles_and_reorders_nothing(
    secured: SecuredKafka, topic: str, listener: str, protocol: str
) -> None:
    """A producer for each mechanism, all at once: every session takes three seconds."""
    proxy = secured.proxies[listener]
    loads: dict[str, Load] = {}
    with ExitStack() as producers:
        for mechanism in MECHANISMS:
            secured.create_topic(f"{topic}-{mechanism}", 2)
            config = ours.settings(Way(listener, login(protocol, mechanism)), secured, more=AT_ONCE)
            loads[mechanism] = Load(producers.enter_context(Producer(config)), f"{topic}-{mechanism}")
        send_all(loads.values(), lambda: all(load.count >= SOME for load in loads.values()))
        connections, end = proxy.accepted, time.monotonic() + SESSIONS * REAUTHENTICATION_MS / 1000
        logins = proxy.requests[SASL_HANDSHAKE]
        send_all(loads.values(), lambda: time.monotonic() > end)
        assert proxy.accepted == connections, "a producer has connected again"
        if listener == "REAUTH":  # through TLS the proxy sees no requests
            assert proxy.requests[SASL_HANDSHAKE] >= logins + SESSIONS * len(MECHANISMS)
    for mechanism, load in loads.items():
        ours.assert_once_and_in_order(ours.values(secured, f"{topic}-{mechanism}"), load.count)


@pytest.mark.covers("SEC28")
def test_an_idle_connection_is_used_again_after_its_session(secured: SecuredKafka, topic: str) -> None:
    secured.create_topic(topic, 1)
    proxy = secured.proxies["REAUTH"]
    with Producer(ours.settings(WAYS["reauthenticating"], secured, more={"linger.ms": "0"})) as producer:
        producer.send(topic, "0").result(ours.SECONDS)
        connections = proxy.accepted
        threading.Event().wait(
            1.5 * REAUTHENTICATION_MS / 1000
        )  # the session is to end: there is nothing else to wait for
        producer.send(topic, "1").result(ours.SECONDS)
        assert proxy.accepted == connections, "it has connected again"
    assert ours.values(secured, topic) == [[0, 1]]


def send_until_refused(config: dict[str, str], topic: str, take_away: Callable[[], None]) -> None:
    """Some rows are acknowledged, then something is taken away, and others follow until the producer raises."""
    with Producer(config) as producer:
        load = Load(producer, topic)
        load.until(lambda: load.count >= SOME)
        take_away()
        load.until(lambda: False)


@pytest.mark.covers("SEC29")
def test_a_user_who_is_deleted_is_refused_at_the_next_login(secured: SecuredKafka, topic: str) -> None:
    secured.create_topic(topic, 1)
    secured.add_user("leaver", "leaver-pw")
    secured.allow("leaver", "WRITE", topic)
    way = Way("REAUTH", login("SASL_PLAINTEXT", "SCRAM-SHA-512", "leaver", "leaver-pw"))
    with pytest.raises(AuthenticationFailed, match="leaver"):
        send_until_refused(ours.settings(way, secured, more=AT_ONCE), topic, lambda: secured.delete_user("leaver"))
    (found,) = ours.values(secured, topic)
    assert found == list(range(len(found)))
    assert len(found) >= SOME


@pytest.mark.covers("SEC29")
def test_a_right_that_is_taken_away_is_missed_at_the_next_request(secured: SecuredKafka, topic: str) -> None:
    secured.create_topic(topic, 1)
    secured.add_user("demoted", "demoted-pw")
    secured.allow("demoted", "WRITE", topic)
    way = Way("SASLPLAIN", login("SASL_PLAINTEXT", "SCRAM-SHA-512", "demoted", "demoted-pw"))
    with pytest.raises(BrokerError, match=topic) as refused:
        send_until_refused(
            ours.settings(way, secured, more=AT_ONCE), topic, lambda: secured.forbid("demoted", "WRITE", topic)
        )
    assert refused.value.code == Code.TOPIC_AUTHORIZATION_FAILED
    assert "demoted" in str(refused.value)
    (found,) = ours.values(secured, topic)
    assert found == list(range(len(found)))
    assert len(found) >= SOME


@pytest.mark.covers("SEC30")
@pytest.mark.parametrize("way", ["reauthenticating", "reauthenticating-tls"])
def test_a_session_that_ends_with_requests_in_flight_costs_no_row(secured: SecuredKafka, topic: str, way: str) -> None:
    secured.create_topic(topic, 3)
    proxy = secured.proxies[WAYS[way].listener]
    with Producer(ours.settings(WAYS[way], secured, more=AT_ONCE)) as producer:
        load = Load(producer, topic)
        load.until(lambda: load.count >= SOME)
        connections = proxy.accepted
        proxy.pause(Direction.TO_BROKER)
        paused = time.monotonic()
        while time.monotonic() < paused + 1.5 * REAUTHENTICATION_MS / 1000:
            load.send()
            threading.Event().wait(0.05)
        proxy.resume(Direction.TO_BROKER)
        load.until(lambda: proxy.accepted > connections)
        load.until(lambda: True)
    ours.assert_once_and_in_order(ours.values(secured, topic), load.count)
