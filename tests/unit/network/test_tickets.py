"""Tickets on their own thread: begun logins, renewals, failures with pauses, rejections, a KDC that hangs, and forks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from spark_producer.errors import AuthenticationFailed, PyProducerError
from spark_producer.network.auth import kerberos, tickets
from spark_producer.network.auth.kerberos import KerberosLogins
from spark_producer.network.auth.tickets import Credentials, Tickets
from spark_producer.security.gssapi import SecurityContext
from spark_producer.security.settings import KerberosSettings, SaslSettings
from tests.support.waiting import wait_until
from tests.unit.security.test_gssapi import Context

SETTINGS = SaslSettings(
    "GSSAPI", kerberos=KerberosSettings("kafka"), refresh_min_period=0.0, refresh_buffer=0.0, refresh_window_jitter=0.0
)
CLIENT = object()
BROKER = (CLIENT, "broker", 9092)
LIFETIME = 100.0


class Script:
    """A library by script, and the clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.acquired = 0
        self.hosts: list[str] = []
        self.acquire_error: PyProducerError | None = None
        self.begin_error: Exception | None = None
        self.may_answer = threading.Event()
        self.may_answer.set()

    def clock(self) -> float:
        return self.now

    def acquire(self) -> Credentials:
        assert self.may_answer.wait(20)
        self.acquired += 1
        if self.acquire_error is not None:
            raise self.acquire_error
        return Credentials(self.acquired, self.now + LIFETIME)

    def begin(self, credentials: Credentials, host: str) -> SecurityContext:
        self.hosts.append(host)
        if self.begin_error is not None:
            raise self.begin_error
        return Context()


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def held(script: Script) -> Iterator[Tickets]:
    made = Tickets(script, SETTINGS, clock=script.clock)
    yield made
    script.may_answer.set()
    made.close()
    assert made.join(20)


def begin(held: Tickets, login: tickets.Login = BROKER) -> None:
    wait_until(lambda: held.ready(login), "the login to begin")


def failure(held: Tickets) -> PyProducerError:
    held.ready(BROKER)
    return wait_until(lambda: held.error(BROKER), "the error")


def wake(held: Tickets) -> None:
    """The time has gone on: what waits looks at it."""
    with held._changed:
        held._changed.notify_all()


def test_a_login_is_begun_once_and_taken_once(script: Script, held: Tickets) -> None:
    assert not held.ready(BROKER)
    begin(held)
    assert held.ready(BROKER)
    assert held.error(BROKER) is None
    assert held.take(BROKER) is not None
    assert held.take(BROKER) is None
    begin(held)
    begin(held, (CLIENT, "other", 9092))
    assert script.hosts == ["broker", "broker", "other"]
    assert script.acquired == 1


def test_a_first_message_that_is_too_old_is_made_again(script: Script, held: Tickets) -> None:
    begin(held)
    script.now += tickets.MAX_AGE_S
    assert not held.ready(BROKER)
    assert held.take(BROKER) is None
    begin(held)
    assert held.take(BROKER) is not None


def test_tickets_are_replaced_before_they_expire_without_a_login(script: Script, held: Tickets) -> None:
    begin(held)
    script.now += LIFETIME * 0.79
    wake(held)
    assert script.acquired == 1
    script.now += LIFETIME * 0.02
    wake(held)
    wait_until(lambda: script.acquired == 2, "the renewal")


def test_tickets_that_cannot_be_renewed_are_used_until_they_expire(
    script: Script, held: Tickets, caplog: pytest.LogCaptureFixture
) -> None:
    begin(held)
    held.take(BROKER)
    script.acquire_error = AuthenticationFailed("the KDC is away")
    script.now += LIFETIME * 0.9
    begin(held)
    assert script.acquired == 2
    assert "cannot renew the Kerberos ticket, which is used until it expires: the KDC is away" in caplog.text
    held.take(BROKER)
    script.now += LIFETIME
    assert str(failure(held)) == "the KDC is away"


def test_after_a_failure_the_next_attempt_waits(script: Script, held: Tickets) -> None:
    script.acquire_error = AuthenticationFailed("no ticket", fatal=True)
    assert failure(held) is script.acquire_error
    for _ in range(3):
        assert not held.ready(BROKER)
    assert held._wanted == {}
    script.acquire_error = None
    script.now += 2 * tickets.MAX_BACKOFF_S
    begin(held)
    assert script.acquired == 2
    assert held.error(BROKER) is None


def test_one_failure_of_the_identity_serves_all_brokers(script: Script, held: Tickets) -> None:
    script.acquire_error = AuthenticationFailed("no ticket")
    failure(held)
    other = (CLIENT, "other", 9092)
    held.ready(other)
    assert wait_until(lambda: held.error(other), "the error") is script.acquire_error
    assert script.acquired == 1


def test_an_error_of_one_broker_is_not_that_of_another(script: Script, held: Tickets) -> None:
    script.begin_error = ValueError("with a secret")
    error = failure(held)
    assert "raised ValueError" in str(error)
    assert "secret" not in str(error)
    script.begin_error = None
    begin(held, (CLIENT, "other", 9092))


def test_a_kdc_that_hangs_is_reported_and_waited_for(script: Script, held: Tickets) -> None:
    script.may_answer.clear()
    assert not held.ready(BROKER)
    wait_until(lambda: held._busy_since is not None, "the thread to ask")
    assert held.error(BROKER) is None
    script.now += tickets.SLOW_S
    assert "the KDC has not answered for more than 10 s" in str(held.error(BROKER))
    assert not held.ready(BROKER)
    script.may_answer.set()
    begin(held)
    assert held.error(BROKER) is None


def test_rejected_tickets_are_replaced_once(script: Script, held: Tickets) -> None:
    for expected in (True, False):
        begin(held)
        begun = held.take(BROKER)
        assert begun is not None
        assert held.refused(begun) is expected
        assert held.refused(begun) is True, "newer ones are there, or asked for"
    assert script.acquired == 2
    begin(held)
    begun = held.take(BROKER)
    assert begun is not None
    held.accepted(begun)
    assert held.refused(begun) is True


def test_a_client_that_closes_leaves_nothing(script: Script, held: Tickets) -> None:
    woken = threading.Event()
    held.listen(woken.set)
    begin(held)
    assert woken.wait(20)
    held.forget(CLIENT, woken.set)
    assert held.take(BROKER) is None
    assert held._listeners == []


@contextmanager
def logins(script: Script, monkeypatch: pytest.MonkeyPatch, count: int = 1) -> Iterator[list[KerberosLogins]]:
    made: Callable[[KerberosSettings], Script] = lambda settings: script  # noqa: E731
    monkeypatch.setattr(kerberos, "MitKerberos", made)
    script.now = time.time()
    settings = SETTINGS.kerberos
    assert settings is not None
    clients = [KerberosLogins(SETTINGS, settings, lambda: None) for _ in range(count)]
    yield clients
    for client in clients:
        client.close()
        client.close()
        assert not client.ready("broker", 9092)
        assert client.error("broker", 9092) is None
    (thread,) = {client._tickets for client in clients}
    assert thread is None


def test_clients_share_tickets_and_have_their_own_logins(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    with logins(script, monkeypatch, 2) as (one, two):
        wait_until(lambda: one.ready("broker", 9092), "the login")
        with pytest.raises(AuthenticationFailed, match="no ticket for the login yet") as early:
            two.for_host("broker", 9092).start()
        assert not early.value.fatal
        wait_until(lambda: two.ready("broker", 9092), "the other login")
        assert next(one.for_host("broker", 9092).start()) == b"first"
        assert script.acquired == 1


def test_a_login_that_cannot_begin_says_why(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    script.acquire_error = AuthenticationFailed("no ticket", fatal=True)
    with logins(script, monkeypatch) as (one,):
        wait_until(lambda: one.ready("broker", 9092) or one.error("broker", 9092), "the error")
        with pytest.raises(AuthenticationFailed, match="no ticket") as refused:
            one.for_host("broker", 9092).start()
        assert refused.value is not script.acquire_error, "its traceback is that of one login"


def test_a_rejected_login_is_not_fatal_while_new_tickets_may_help(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    with logins(script, monkeypatch) as (one,):
        for fatal in (False, True):
            wait_until(lambda: one.ready("broker", 9092), "the login")
            run = one.for_host("broker", 9092).start()
            next(run)
            with pytest.raises(AuthenticationFailed, match="rejected") as refused:
                run.throw(AuthenticationFailed("rejected", fatal=True))
            assert refused.value.fatal is fatal
