"""Which broker a connection is said to be meant for (KIP-1242), so that no broker costs a second request."""

from __future__ import annotations

import pytest

from spark_producer.network.node import BrokerIdentities
from spark_producer.protocol import BrokerIdentity
from spark_producer.protocol.messages import ApiVersion, ApiVersionsResponse

OWN = BrokerIdentity("ours", 2)


def versions(newest: int) -> ApiVersionsResponse:
    return ApiVersionsResponse(api_keys=(ApiVersion(0, 3, 13), ApiVersion(18, 0, newest)))


def identities(cluster_id: str | None = "ours") -> BrokerIdentities:
    made = BrokerIdentities()
    made.use(cluster_id)
    return made


@pytest.mark.parametrize(("newest", "expected"), [(5, OWN), (6, OWN), (4, None)])
def test_the_identity_is_sent_once_a_broker_compares_it(newest: int, expected: BrokerIdentity | None) -> None:
    made = identities()
    assert made.of(2) is None, "no broker has said that it compares"
    made.update(-1, versions(newest))
    assert made.of(2) == expected


def test_a_broker_that_does_not_compare_switches_the_comparison_off_for_itself_only() -> None:
    """It did so for all brokers: an older one, or one that pretends to be, decided about the next connection to any other."""
    made = identities()
    made.update(-1, versions(5))
    made.update(1, versions(4))
    made.update(-2, versions(4))
    assert (made.of(1), made.of(2)) == (None, OWN)
    made.update(1, versions(5))
    assert made.of(1) == BrokerIdentity("ours", 1), "it was upgraded"


def test_once_the_bootstrap_servers_are_used_again_each_broker_may_compare() -> None:
    made = identities()
    made.update(-1, versions(5))
    made.update(2, versions(4))
    made.use(None)
    made.use("ours")
    assert made.of(2) == OWN


def test_bootstrap_servers_may_be_any_broker_of_any_cluster() -> None:
    made = identities(None)
    made.update(-1, versions(5))
    assert made.of(2) is None, "the cluster is not known"
    made.use("ours")
    assert (made.of(-1), made.of(0)) == (None, BrokerIdentity("ours", 0))
