"""Answers over TLS come in records that hold many of them, or parts of one: the client waits for none that is there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_producer.protocol import METADATA, encode_response, messages
from spark_producer.security import SecuritySettings, Store, TlsSettings
from tests.fakes.client_driver import Driver
from tests.fakes.scripted_server import Peer, ScriptedServer
from tests.support.certificates import Certificates
from tests.unit.network.ways import server_context

ANSWERS = 64


@pytest.mark.covers("SEC44")
@pytest.mark.parametrize("length", [10, 100, 20_000, 30_000], ids=lambda length: f"{length} bytes")
def test_answers_that_lie_in_few_records_do_not_stall(
    length: int, drive: Callable[..., Driver], certificates: Certificates
) -> None:
    """The short ones fit into one record; of the long ones, each record ends in the midst of an answer."""
    context = server_context(certificates)

    def all_at_once(peer: Peer) -> None:
        peer.use_tls(context)
        peer.negotiate()
        body = messages.MetadataResponse(cluster_id="x" * length)
        requests = [peer.read() for _ in range(ANSWERS)]
        answers = [
            part
            for request in requests
            for part in encode_response(request.api, request.version, request.correlation_id, body)
        ]
        peer.send(b"".join(answers))
        peer.wait_for_close()

    tls = TlsSettings(trust=Store(location=str(certificates.ca)))
    with ScriptedServer(all_at_once) as server:
        driver = drive([server.address], security=SecuritySettings(tls=tls), max_in_flight=ANSWERS)
        driver.until_ready()
        for tag in range(ANSWERS):
            driver.client.send(-1, METADATA, messages.MetadataRequest(), tag=tag)
        done = driver.until_completed(ANSWERS)
    assert [(row.tag, row.error) for row in done] == [(tag, None) for tag in range(ANSWERS)]
