"""The options of exactly-once writes: their values, and what contradicts them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from spark_producer.config import parse_options
from spark_producer.config.exactly_once_rules import check_exactly_once
from spark_producer.errors import ConfigError

SERVERS = {"kafka.bootstrap.servers": "localhost:1", "topic": "t"}


def checked(options: Mapping[str, object] | None = None, *, streaming: bool = True, **more: object) -> None:
    """Check options of the sink; underscores stand for dots."""
    given = {name.replace("_", "."): value for name, value in {**(options or {}), **more}.items()}
    config, sink = parse_options(SERVERS | given)
    transaction_timeout_unset = "kafka.transaction.timeout.ms" not in given
    check_exactly_once(config, sink, streaming=streaming, transaction_timeout_unset=transaction_timeout_unset)


@pytest.mark.parametrize("name", ["orders", "0", "a.b_c-D9", "x" * 100])
def test_good_names(name: str) -> None:
    checked(exactlyOnceId=name)
    checked(exactlyOnceId="orders", exactlyOnceControlTopic=name)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "a\nb", "x" * 101, "a*", "${env:ID}"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="exactlyOnceId"):
        checked(exactlyOnceId=name)


@pytest.mark.parametrize("name", ["", "a b", ".", "..", "x" * 250])
def test_bad_topics_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="exactlyOnceControlTopic cannot be "):
        checked(exactlyOnceId="orders", exactlyOnceControlTopic=name)


def test_rows_do_not_go_to_the_topic_of_commits() -> None:
    with pytest.raises(ConfigError, match="topic and exactlyOnceControlTopic are both 't'"):
        checked(exactlyOnceId="orders", exactlyOnceControlTopic="t")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("txnVersion", 0),
        ("exactlyOnceMaxInlineBytes", 0),
        ("exactlyOnceSpoolToDisk", "true"),
        ("exactlyOnceControlTopic", "mine"),
    ],
)
def test_the_options_need_an_id(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{name} needs exactlyOnceId"):
        checked({name: value}, streaming=False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kafka_acks": "1"}, r"kafka.acks=all \(it is 1\)"),
        ({"kafka_acks": "0"}, r"kafka.acks=all \(it is 0\)"),
        ({"kafka_enable_idempotence": False}, r"idempotence=true \(it is false\)"),
        ({"kafka_retries": 0}, r"retries above 0 \(it is 0\)"),
    ],
)
def test_weaker_settings_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=f"exactlyOnceId needs .*{said}"):
        checked(options, exactlyOnceId="orders")
    checked(options)


def test_the_time_of_a_transaction_needs_transactions() -> None:
    checked(exactlyOnceId="orders", kafka_transaction_timeout_ms=60000)
    with pytest.raises(ConfigError, match=r"kafka.transaction.timeout.ms needs exactlyOnceId"):
        checked(kafka_transaction_timeout_ms=60000)


def test_versions_are_for_batch_writes() -> None:
    checked(streaming=False, exactlyOnceId="orders", txnVersion=12)
    with pytest.raises(ConfigError, match="txnVersion is for batch writes"):
        checked(exactlyOnceId="orders", txnVersion=12)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"txnVersion": -1}, "txnVersion must lie between 0 and"),
        ({"txnVersion": "one"}, "txnVersion must be a whole number"),
        (
            {"exactlyOnceMaxInlineBytes": "4MB"},
            "exactlyOnceMaxInlineBytes must be a whole number, not '4MB': it counts bytes, such as 4194304 for 4 MiB$",
        ),
        ({"exactlyOnceMaxInlineBytes": -1}, "exactlyOnceMaxInlineBytes must lie between 0 and 67108864"),
        ({"exactlyOnceSpoolToDisk": "maybe"}, "exactlyOnceSpoolToDisk must be one of auto, true, false"),
    ],
)
def test_bad_values_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        checked(options, exactlyOnceId="orders")


def test_deltas_name_of_an_id_leads_to_ours() -> None:
    """`txnVersion` is Delta's too, so both are copied together from a write to Delta."""
    for name in ("txnAppId", "TXNAPPID"):
        with pytest.raises(ConfigError, match=f"unknown option '{name}': it is Delta's name.*'exactlyOnceId'"):
            checked({name: "orders", "txnVersion": 1}, streaming=False)


def test_the_sink_makes_its_transactional_ids_itself() -> None:
    for options in ({}, {"exactlyOnceId": "orders"}):
        with pytest.raises(ConfigError, match=r"'kafka.transactional.id' is not supported.*Set exactlyOnceId"):
            checked(options, kafka_transactional_id="mine")


@pytest.mark.parametrize("name", ["asyncProgressTrackingEnabled", "asyncProgressTrackingCheckpointIntervalMs"])
def test_a_checkpoint_that_lags_is_refused(name: str) -> None:
    with pytest.raises(
        ConfigError, match=f"'{name}' is not supported: with it Spark saves its progress only from time to time"
    ):
        checked({name: "true"}, exactlyOnceId="orders")
