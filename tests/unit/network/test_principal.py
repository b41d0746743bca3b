"""The text of our principal, as brokers know it."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from spark_producer.network import principal
from spark_producer.protocol import PRODUCE, messages
from spark_producer.security import SaslSettings, SecuritySettings, Store, TlsSettings
from tests.fakes.client_driver import Driver
from tests.fakes.scripted_server import Peer, ScriptedServer


@pytest.mark.covers("SEC29")
@pytest.mark.parametrize(
    ("security", "said"),
    [
        (SecuritySettings(), "user 'ANONYMOUS'"),
        (SecuritySettings(tls=TlsSettings()), "user 'ANONYMOUS'"),
        (SecuritySettings(sasl=SaslSettings("PLAIN", "app\n")), "user 'app\\\\n'"),
        (SecuritySettings(sasl=SaslSettings("SCRAM-SHA-256", "id", token_auth=True)), "delegation token 'id'"),
        (SecuritySettings(sasl=SaslSettings("OAUTHBEARER")), "the user of the token"),
        (SecuritySettings(tls=TlsSettings(identity=Store("/etc/user.crt"))), "the certificate in /etc/user.crt"),
        (SecuritySettings(tls=TlsSettings(identity=Store(pem="…"))), "the client certificate"),
    ],
)
def test_the_principal_is_what_we_logged_in_as(security: SecuritySettings, said: str) -> None:
    assert said in principal(security)


@pytest.mark.covers("SEC29")
def test_a_broker_that_closes_after_requests_with_acks_0_may_have_refused_them(
    drive: Callable[..., Driver], caplog: pytest.LogCaptureFixture
) -> None:
    def closes(peer: Peer) -> None:
        peer.negotiate()
        peer.read()

    with ScriptedServer(closes) as server:
        driver = drive([server.address], reconnect_backoff=0, reconnect_backoff_max=0)
        for _ in range(2):
            driver.until_ready()
            driver.client.send(-1, PRODUCE, messages.ProduceRequest(acks=0), tag=0, expect_response=False)
            assert driver.until_disconnected() == [-1]
            assert "user 'ANONYMOUS' (no login) may write to the topics (ACLs)" in str(driver.client.last_error(-1))
    reported = [row for row in caplog.records if row.levelno == logging.WARNING]
    assert len(reported) == 1, "the log says it once"
