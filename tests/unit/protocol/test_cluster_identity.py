"""The cluster that a client knows, and the responses that are not of it (KIP-1242)."""

from __future__ import annotations

import logging

import pytest

from spark_producer.common.error_codes import Code
from spark_producer.protocol import ClusterIdentity, is_misrouted
from spark_producer.protocol.messages import MetadataResponse, MetadataResponseBroker

BROKERS = (MetadataResponseBroker(3, "three", 9092),)
THREE = "broker 3 at three:9092"


def of(cluster_id: str | None, error_code: int = 0, *, brokers: bool = True) -> MetadataResponse:
    return MetadataResponse(brokers=BROKERS if brokers else (), cluster_id=cluster_id, error_code=error_code)


@pytest.mark.covers("NW9")
@pytest.mark.parametrize(
    "response", [of("first", brokers=False), of("first", Code.UNKNOWN_SERVER_ERROR)], ids=["no brokers", "error"]
)
def test_the_cluster_is_that_of_the_first_response_with_brokers_and_without_an_error(
    response: MetadataResponse,
) -> None:
    identity = ClusterIdentity(checks=True)
    assert identity.accept(response, THREE) is None
    assert identity.cluster_id is None
    assert identity.accept(of("ours"), THREE) is None
    assert identity.cluster_id == "ours"


@pytest.mark.covers("NW9")
@pytest.mark.parametrize(
    "response",
    [of("theirs"), of("theirs", brokers=False), of("theirs", Code.UNKNOWN_SERVER_ERROR), of("theirs", 129)],
    ids=["whole", "no brokers", "error", "rebootstrap"],
)
def test_no_response_of_another_cluster_is_used(response: MetadataResponse) -> None:
    """One without brokers, as of a broker that starts, or with an error was used, and so what it said about topics."""
    identity = ClusterIdentity(checks=True)
    identity.accept(of("ours"), THREE)
    problem = identity.accept(response, THREE)
    assert is_misrouted(problem)
    assert str(problem).startswith(
        "broker 3 at three:9092 is of cluster 'theirs', not of 'ours'. What to do: see where"
    )
    assert identity.cluster_id == "ours"


@pytest.mark.covers("NW9")
def test_each_broker_of_another_cluster_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """It was logged at each attempt, and without a name."""
    identity = ClusterIdentity(checks=True)
    with caplog.at_level(logging.WARNING, "pyproducer"):
        for broker in (THREE, THREE, "broker 4 at four:9092"):
            identity.accept(of("ours"), THREE)
            assert identity.accept(of("theirs"), broker) is not None
            identity.forget()
    assert [each.getMessage().partition(" is of")[0] for each in caplog.records] == [THREE, "broker 4 at four:9092"]
    assert "'theirs', not of 'ours'" in caplog.text
