"""Which broker a connection is said to be meant for (KIP-1242), so that no broker costs a second request."""

from __future__ import annotations

import pytest

from spark_producer.network.node import BrokerIdentities
from spark_producer.protocol import BrokerIdentity
from spark_producer.protocol.messages import ApiVersion, ApiVersionsResponse

OWN = BrokerIdentity("ours", 2)


def versions(newest: int) -> ApiVersionsResponse:
    return ApiVersionsResponse(api_keys=(ApiVersion(0, 3, 13), ApiVersion(18, 0, newest)))


@pytest.mark.parametrize(("newest", "expected"), [(5, OWN), (6, OWN), (4, None)])
def test_the_identity_is_sent_once_a_broker_compares_it(newest: int, expected: BrokerIdentity | None) -> None:
    made = BrokerIdentities()
    made.cluster_id = "ours"
    assert made.of(2) is None, "no broker has said that it compares"
    made.update(versions(newest))
    assert made.of(2) == expected


def test_the_last_broker_decides() -> None:
    made = BrokerIdentities()
    made.cluster_id = "ours"
    made.update(versions(5))
    made.update(versions(4))
    assert made.of(2) is None


def test_bootstrap_servers_may_be_any_broker_of_any_cluster() -> None:
    made = BrokerIdentities()
    made.update(versions(5))
    assert made.of(2) is None, "the cluster is not known"
    made.cluster_id = "ours"
    assert (made.of(-1), made.of(0)) == (None, BrokerIdentity("ours", 0))
