"""A blocking client whose broker's address leads to a broker of another cluster (KIP-1242)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spark_producer.admin import BlockingClient
from spark_producer.admin.checks import Finding, FindingState, check_cluster
from spark_producer.admin.exchange import NodeRequest
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokersUnreachable, ConnectionFailed, KafkaTimeout
from spark_producer.network import ConnectionSettings
from spark_producer.protocol import API_VERSIONS, METADATA, encode_response, messages
from tests.fakes.scripted_server import ALL_VERSIONS, DEADLINE, Peer, Script, ScriptedServer
from tests.unit.admin.test_client import answering, client_of, cluster, topic

OF_KAFKA_4_3 = messages.ApiVersionsResponse(
    api_keys=tuple(each._replace(max_version=4) if each.api_key == 18 else each for each in ALL_VERSIONS.api_keys)
)
"""The versions of a broker that does not compare its identity with the expected one."""

STARTING = messages.MetadataResponse(topics=(topic(error_code=Code.UNKNOWN_TOPIC_OR_PARTITION),))
"""The response of a broker that knows no other broker yet."""

ADVICE = "see where the addresses of brokers lead (advertised.listeners, DNS, load balancers)"


def serve(peer: Peer, versions: messages.ApiVersionsResponse, metadata: messages.MetadataResponse) -> None:
    """Answer ApiVersions, even in the middle, and Metadata."""
    [newest] = [each.max_version for each in versions.api_keys if each.api_key == API_VERSIONS.key]
    while True:
        request = peer.read()
        if request.api is API_VERSIONS and request.version > newest:
            refusal = messages.ApiVersionsResponse(Code.UNSUPPORTED_VERSION, versions.api_keys)
            peer.send(b"".join(encode_response(API_VERSIONS, 0, request.correlation_id, refusal)))
        else:
            peer.answer(request, versions if request.api is API_VERSIONS else metadata)


@contextmanager
def misrouted(
    *, response: messages.MetadataResponse | None = None, script: Script | None = None
) -> Iterator[tuple[ScriptedServer, ScriptedServer]]:
    """A bootstrap server of "ours", and what has the address of its broker 3: an older broker of "theirs", or `script`."""
    servers: list[ScriptedServer] = []

    def ours(peer: Peer) -> None:
        serve(peer, ALL_VERSIONS, cluster(servers[1], topic(3))._replace(cluster_id="ours"))

    def theirs(peer: Peer) -> None:
        whole = cluster(servers[1], topic(3, 3)) if response is None else response
        serve(peer, OF_KAFKA_4_3, whole._replace(cluster_id="theirs"))

    with ScriptedServer(ours) as bootstrap, ScriptedServer(script or theirs) as other:
        servers += bootstrap, other
        yield bootstrap, other


def name_of(server: ScriptedServer) -> str:
    return f"broker 3 at {server.host}:{server.port}"


@pytest.mark.covers("NW9")
@pytest.mark.parametrize("checks", [True, False])
def test_metadata_of_another_cluster_is_not_used(checks: bool) -> None:
    """An older broker, which compares nothing, has the address of broker 3: the bootstrap server is asked again."""
    with misrouted() as (bootstrap, other):
        settings = ConnectionSettings((bootstrap.address,), check_cluster=checks)
        with BlockingClient(settings, timeout=20.0) as client:
            client.metadata(["topic"])
            found = client.metadata(["topic"])
            assert found.cluster_id == ("ours" if checks else "theirs")
            assert len(client.wait_for_topic("topic")) == (1 if checks else 2)
            if checks:
                with pytest.raises(ConnectionFailed) as error:
                    client.metadata(["topic"], node=3)
                assert (
                    str(error.value) == f"{name_of(other)} is of cluster 'theirs', not of 'ours'. What to do: {ADVICE}."
                )


@pytest.mark.covers("NW9")
def test_what_a_starting_broker_of_another_cluster_says_of_a_topic_is_not_used() -> None:
    """Its response has no brokers. It was used, and the topic was not found."""
    with misrouted(response=STARTING) as (bootstrap, _), client_of(bootstrap.address) as client:
        client.metadata(["topic"])
        assert client.wait_for_topic("topic") == (3,)


@pytest.mark.covers("NW9")
def test_brokers_of_a_response_with_an_error_are_not_used() -> None:
    """They were, and without the id of their cluster."""
    with (
        ScriptedServer(lambda peer: answering(failed(bootstrap))(peer)) as bootstrap,
        client_of(bootstrap.address) as client,
    ):
        assert client.metadata(["topic"]).error_code == Code.UNKNOWN_SERVER_ERROR
        assert client.brokers == {}


def failed(server: ScriptedServer) -> messages.MetadataResponse:
    return cluster(server, topic(3))._replace(error_code=Code.UNKNOWN_SERVER_ERROR, cluster_id="ours")


@pytest.mark.covers("NW9")
def test_a_broker_that_demands_it_until_the_deadline_is_named() -> None:
    demanding = messages.MetadataResponse(error_code=Code.REBOOTSTRAP_REQUIRED)
    with ScriptedServer(answering(demanding)) as bootstrap:
        settings = ConnectionSettings((bootstrap.address,))
        with (
            BlockingClient(settings, timeout=0.5, timeout_option="--timeout") as client,
            pytest.raises(KafkaTimeout) as error,
        ):
            client.metadata(["topic"])
    assert str(error.value) == (
        "within 0.5 s (--timeout) no broker has answered for the cluster of the bootstrap servers; last: REBOOTSTRAP_REQUIRED "
        f"(129) for Metadata of bootstrap server {bootstrap.host}:{bootstrap.port}. What to do: {ADVICE}."
    )


@pytest.mark.covers("NW9")
@pytest.mark.parametrize("checks", [True, False])
def test_the_check_of_a_connection_names_a_broker_of_another_cluster(checks: bool) -> None:
    """It said that each broker is reached: one before Kafka 4.4 does not refuse the connection."""
    with misrouted() as (bootstrap, other):
        settings = ConnectionSettings((bootstrap.address,), check_cluster=checks)
        found = [each for each in check_cluster(settings, timeout=5.0) if each.name == "brokers"]
    text = f"{name_of(other)} is of cluster 'theirs', not of 'ours'"
    assert found == [Finding("brokers", FindingState.FAILED, text, ADVICE)]


def refuse(peer: Peer) -> None:
    """Answer as a broker since Kafka 4.4 that is another one than expected."""
    peer.negotiate(messages.ApiVersionsResponse(Code.REBOOTSTRAP_REQUIRED))


@pytest.mark.covers("NW9")
def test_a_refused_connection_has_one_advice_which_helps() -> None:
    """It had two: to start again from the bootstrap servers, which the client does, and to check `advertised.listeners`."""
    with misrouted(script=refuse) as (bootstrap, other):
        with client_of(bootstrap.address) as client:
            client.metadata(["topic"])
            [error] = client.request_all([NodeRequest(3, METADATA, messages.MetadataRequest())])
        findings = list(check_cluster(ConnectionSettings((bootstrap.address,)), timeout=0.5))
    assert isinstance(error, BrokersUnreachable)
    reason = (
        f"{other.host}:{other.port}: REBOOTSTRAP_REQUIRED (129) for broker 3 of cluster 'ours', whose address leads to "
    )
    reason += "another broker"
    assert str(error) == f"no broker could be reached: {reason}. What to do: {ADVICE}."
    text = f"broker 3: no broker could be reached within 0.5 s: {reason}"
    assert [each for each in findings if each.name == "brokers"] == [
        Finding("brokers", FindingState.FAILED, text, ADVICE)
    ]


@pytest.mark.covers("NW9")
def test_the_refusal_of_one_broker_leaves_requests_in_flight_to_others_alone() -> None:
    refused = threading.Event()
    servers: list[ScriptedServer] = []

    def bootstrap(peer: Peer) -> None:
        brokers = tuple(messages.MetadataResponseBroker(3 + at, *each.address) for at, each in enumerate(servers))
        serve(peer, ALL_VERSIONS, messages.MetadataResponse(brokers=brokers, cluster_id="ours"))

    def slow(peer: Peer) -> None:
        peer.negotiate()
        request = peer.read()
        assert refused.wait(DEADLINE)
        peer.answer(request, messages.MetadataResponse(cluster_id="ours", controller_id=3))
        peer.wait_for_close()

    with ScriptedServer(bootstrap) as first, ScriptedServer(slow) as third, ScriptedServer(refuse) as fourth:
        servers += third, fourth
        with client_of(first.address) as client:
            client.metadata([])
            waiting = client.begin([NodeRequest(3, METADATA, messages.MetadataRequest())])
            [error] = client.request_all([NodeRequest(4, METADATA, messages.MetadataRequest())])
            assert "REBOOTSTRAP_REQUIRED" in str(error)
            refused.set()
            [response] = client.finish(waiting)
            assert isinstance(response, messages.MetadataResponse)
            assert response.controller_id == 3
            assert client.rebootstraps == 0
            client.metadata([])
            assert client.rebootstraps == 1
