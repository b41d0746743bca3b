"""A blocking client whose broker's address leads to a broker of another cluster (KIP-1242)."""

from __future__ import annotations

import pytest

from spark_producer.admin import BlockingClient
from spark_producer.errors import ConnectionFailed
from spark_producer.network import ConnectionSettings
from spark_producer.protocol import messages
from tests.fakes.scripted_server import ALL_VERSIONS, Peer, ScriptedServer
from tests.unit.admin.test_client import cluster, topic

OF_KAFKA_4_3 = messages.ApiVersionsResponse(
    api_keys=tuple(each._replace(max_version=4) if each.api_key == 18 else each for each in ALL_VERSIONS.api_keys)
)
"""The versions of a broker that does not compare its identity with the expected one."""


@pytest.mark.covers("NW9")
@pytest.mark.parametrize("checks", [True, False])
def test_metadata_of_another_cluster_is_not_used(checks: bool) -> None:
    """An older broker, which compares nothing, has the address of broker 3: the bootstrap server is asked again."""
    servers: list[ScriptedServer] = []

    def ours(peer: Peer) -> None:
        peer.negotiate()
        while True:
            peer.answer(peer.read(), cluster(servers[1], topic(3))._replace(cluster_id="ours"))

    def theirs(peer: Peer) -> None:
        peer.negotiate(OF_KAFKA_4_3)
        while True:
            peer.answer(peer.read(), cluster(servers[1], topic(3, 3))._replace(cluster_id="theirs"))

    with ScriptedServer(ours) as bootstrap, ScriptedServer(theirs) as other:
        servers += bootstrap, other
        settings = ConnectionSettings((bootstrap.address,), check_cluster=checks)
        with BlockingClient(settings, timeout=20.0) as client:
            client.metadata(["topic"])
            found = client.metadata(["topic"])
            assert found.cluster_id == ("ours" if checks else "theirs")
            assert len(client.wait_for_topic("topic")) == (1 if checks else 2)
            if checks:
                with pytest.raises(ConnectionFailed, match="broker 3 leads to another cluster"):
                    client.metadata(["topic"], node=3)
