"""DescribeTransactions and ListTransactions, the versions of the transactional APIs, and the limits of transactional state."""

import time
from dataclasses import replace
from typing import Any

import pytest

from spark_producer.broker import BrokerSettings
from spark_producer.broker.context import Context
from spark_producer.broker.coordinator.entries import GROUP_WEIGHT
from spark_producer.broker.coordinator.transactions import TransactionState
from spark_producer.broker.requests.patterns import matching_names
from spark_producer.common.error_codes import Code
from spark_producer.errors import ConfigError, UnsupportedVersion
from spark_producer.protocol import (
    API_VERSIONS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    LIST_TRANSACTIONS,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    messages,
)
from tests.unit.broker.coordinator.conftest import Broker
from tests.unit.broker.coordinator.test_groups import commit_offset
from tests.unit.broker.coordinator.transaction_requests import IMPLICIT, add, begin, end, initialize, state, write
from tests.unit.broker.handler_calls import ask


def test_a_transaction_is_described(broker: Broker) -> None:
    _, producer_id, epoch = initialize(broker.context, timeout_ms=5000)
    empty = messages.DescribedTransaction(Code.NONE, "id", "Empty", 5000, -1, producer_id, epoch)
    assert state(broker.context) == empty
    broker.now += 7
    begin(broker.context, (producer_id, epoch), IMPLICIT, ("t", 2), ("t", 0))
    broker.now += 1
    begin(broker.context, (producer_id, epoch), IMPLICIT, ("t", 1))
    topics = (messages.DescribedTransactionTopic("t", (0, 1, 2)),)
    assert state(broker.context) == empty._replace(
        transaction_state="Ongoing", transaction_start_time_ms=1_007_000, topics=topics
    )


def test_each_id_is_described_once(context: Context) -> None:
    initialize(context, "a")
    request = messages.DescribeTransactionsRequest(("a", "b", "", "a"))
    rows = ask(context, DESCRIBE_TRANSACTIONS, request).transaction_states
    assert [(row.transactional_id, row.error_code) for row in rows] == [
        ("a", Code.NONE),
        ("b", Code.TRANSACTIONAL_ID_NOT_FOUND),
        ("", Code.INVALID_REQUEST),
    ]


def listed(context: Context, **filters: Any) -> list[str]:
    response = ask(context, LIST_TRANSACTIONS, messages.ListTransactionsRequest(**filters))
    assert response.error_code == Code.NONE
    assert response.unknown_state_filters == ()
    return sorted(row.transactional_id for row in response.transaction_states)


@pytest.fixture
def three(broker: Broker) -> dict[str, int]:
    """The producer ids of `empty`, of `open` since 10 s, and of `done`."""
    ids = {name: initialize(broker.context, name)[1] for name in ("empty", "open", "done")}
    for name in ("open", "done"):
        assert add(broker.context, (ids[name], 0), ("t", 0), transactional_id=name) == {("t", 0): Code.NONE}
    assert end(broker.context, (ids["done"], 0), transactional_id="done")[0] == Code.NONE
    broker.now += 10
    return ids


def test_transactions_are_listed_with_filters(context: Context, three: dict[str, int]) -> None:
    assert listed(context) == ["done", "empty", "open"]
    assert listed(context, state_filters=("Ongoing", "Empty")) == ["empty", "open"]
    assert listed(context, producer_id_filters=(three["open"], 999)) == ["open"]
    assert listed(context, state_filters=("Ongoing",), duration_filter=9_999) == ["open"]
    assert listed(context, state_filters=("Ongoing",), duration_filter=10_000) == []
    assert listed(context, transactional_id_pattern="") == ["done", "empty", "open"]
    assert listed(context, transactional_id_pattern="o.*|d") == ["open"], "the whole id must match"
    assert listed(context, state_filters=("Empty",), transactional_id_pattern="[eo].+") == ["empty"]
    for name in TransactionState:
        assert listed(context, state_filters=(name.value,), producer_id_filters=(999,)) == []


def test_filters_that_cannot_be_understood(context: Context, three: dict[str, int]) -> None:
    response = ask(context, LIST_TRANSACTIONS, messages.ListTransactionsRequest(("Odd", "Ongoing")))
    assert response.unknown_state_filters == ("Odd",)
    assert [row.producer_id for row in response.transaction_states] == [three["open"]]
    assert ask(context, LIST_TRANSACTIONS, messages.ListTransactionsRequest(("Odd",))).transaction_states == ()
    response = ask(context, LIST_TRANSACTIONS, messages.ListTransactionsRequest(transactional_id_pattern="("))
    assert response.error_code == Code.INVALID_REGULAR_EXPRESSION


def test_a_pattern_that_would_take_python_years(context: Context) -> None:
    assert initialize(context, "a" * 254 + "!")[0] == Code.NONE
    before = time.process_time()
    assert listed(context, transactional_id_pattern="(a+)+") == []
    assert time.process_time() - before < 10


@pytest.mark.parametrize(
    "pattern", ["(?:" + "a?" * 50 + "){1000}c", r"(?:\pL?){20}c", "a{1000}" * 10, "a?" * 501, "(?:(?:a?){30}){30}" * 5]
)
def test_a_pattern_with_too_many_states_is_refused(context: Context, pattern: str) -> None:
    """The first of these takes seconds for each name."""
    assert initialize(context, "a" * 255)[0] == Code.NONE
    response = ask(context, LIST_TRANSACTIONS, messages.ListTransactionsRequest(transactional_id_pattern=pattern))
    assert response.error_code == Code.INVALID_REGULAR_EXPRESSION


def test_a_list_that_takes_too_long_is_refused() -> None:
    names = [f"{number}" for number in range(10, 1010)]
    pattern = "[0-9]{1,9}" * 2
    assert matching_names(names, pattern) == names
    times = iter(range(1000))
    with pytest.raises(ValueError, match="of 1000 names took more than"):
        matching_names(names, pattern, lambda: next(times))
    with pytest.raises(ValueError, match="missing"):
        matching_names([], "(")


# The versions that the broker supports


def versions(context: Context, version: int = 4) -> messages.ApiVersionsResponse:
    return ask(context, API_VERSIONS, messages.ApiVersionsRequest(), version)


def test_transaction_version_2_is_finalized(context: Context) -> None:
    body = versions(context)
    assert body.finalized_features == (messages.FinalizedFeatureKey("transaction.version", 2, 2),)
    assert body.finalized_features_epoch == 0
    assert body.supported_features == (messages.SupportedFeatureKey("transaction.version", 0, 2),)
    older = versions(context, 3)
    assert older.finalized_features == body.finalized_features
    assert older.supported_features == (), "older clients do not understand a range from 0 (KAFKA-17011)"


def test_level_0_is_a_broker_as_before_4_0(broker: Broker) -> None:
    broker.settings = replace(broker.settings, transaction_version=0)
    context = broker.restart()
    body = versions(context)
    assert (body.finalized_features, body.supported_features) == ((), ())
    newest = {row.api_key: row.max_version for row in body.api_keys}
    assert {api.name: newest[api.key] for api in (PRODUCE, END_TXN, TXN_OFFSET_COMMIT)} == {
        "Produce": 11,
        "EndTxn": 4,
        "TxnOffsetCommit": 4,
    }
    _, *me = initialize(context)
    with pytest.raises(UnsupportedVersion, match="EndTxn 5 is not supported with transaction_version=0"):
        end(context, (me[0], me[1]))


@pytest.mark.parametrize(
    "setting", ["max_transactional_ids", "max_transaction_partitions", "max_committed_offsets", "transaction_scan_s"]
)
def test_settings_are_checked(setting: str) -> None:
    fields: dict[str, Any] = {setting: 0}
    with pytest.raises(ConfigError, match=f"{setting} is 0"):
        BrokerSettings(**fields)
    with pytest.raises(ConfigError, match="transaction_version is 1"):
        BrokerSettings(transaction_version=1)


# Bounds


@pytest.fixture
def small(broker: Broker) -> Context:
    broker.settings = replace(
        broker.settings, max_transactional_ids=2, max_transaction_partitions=GROUP_WEIGHT + 1, max_committed_offsets=2
    )
    return broker.restart()


def test_ids_are_limited(broker: Broker, small: Context) -> None:
    assert [initialize(small, name)[0] for name in ("a", "b", "c", "a")] == [
        Code.NONE,
        Code.NONE,
        Code.POLICY_VIOLATION,
        Code.NONE,
    ]
    assert initialize(broker.context, "x" * 256)[0] == Code.INVALID_REQUEST
    broker.now += broker.settings.transactional_id_expiration_ms / 1000
    small.coordinator.check_timeouts()
    assert initialize(small, "c")[0] == Code.NONE


def test_partitions_of_transactions_are_limited(broker: Broker) -> None:
    broker.settings = replace(broker.settings, max_transaction_partitions=2)
    small = broker.restart()
    _, *first = initialize(small, "a")
    _, *second = initialize(small, "b")
    one, two = (first[0], first[1]), (second[0], second[1])
    assert write(small, one, ("t", 0), transactional_id="a") == Code.NONE
    assert add(small, two, ("t", 0), ("t", 1), transactional_id="b") == {
        ("t", 0): Code.POLICY_VIOLATION,
        ("t", 1): Code.POLICY_VIOLATION,
    }
    assert write(small, two, ("t", 1), transactional_id="b") == Code.NONE
    assert write(small, one, ("t", 1), transactional_id="a") == Code.POLICY_VIOLATION
    assert end(small, two, transactional_id="b")[0] == Code.NONE
    assert write(small, one, ("t", 1), transactional_id="a") == Code.NONE


def test_groups_of_transactions_are_limited_with_their_partitions(small: Context) -> None:
    _, *me = initialize(small)
    producer = (me[0], me[1])
    assert add(small, producer, ("t", 0), ("t", 1)) == {("t", 0): Code.NONE, ("t", 1): Code.NONE}
    assert commit_offset(small, producer) == Code.POLICY_VIOLATION


def test_a_long_text_counts_for_several_offsets(small: Context) -> None:
    """All of them are in memory, and rewritten with the log."""
    _, *me = initialize(small)
    producer = (me[0], me[1])
    assert commit_offset(small, producer, 1, ("t", 0), metadata="x" * 200) == Code.POLICY_VIOLATION
    assert commit_offset(small, producer, 1, ("t", 0), metadata="x" * 198) == Code.NONE
    assert commit_offset(small, producer, 1, ("t", 1)) == Code.POLICY_VIOLATION
    assert commit_offset(small, producer, 1, ("t", 0)) == Code.POLICY_VIOLATION, "a replaced one counts until then"
    assert end(small, producer, commit=False)[0] == Code.NONE
    assert commit_offset(small, (me[0], me[1] + 1), 1, ("t", 0)) == Code.NONE


def test_offsets_are_limited(small: Context) -> None:
    _, *me = initialize(small)
    producer = (me[0], me[1])
    for index, code in ((0, Code.NONE), (1, Code.NONE), (2, Code.POLICY_VIOLATION)):
        assert commit_offset(small, producer, 1, ("t", index)) == code
    assert end(small, producer, commit=False)[0] == Code.NONE
    assert commit_offset(small, (me[0], me[1] + 1), 1, ("t", 2)) == Code.NONE
