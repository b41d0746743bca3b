"""Readers of committed records that wait are woken when a transaction ends, by whatever ends it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.common.error_codes import Code
from spark_producer.protocol import API_VERSIONS, END_TXN, FETCH, INIT_PRODUCER_ID, PRODUCE, messages
from spark_producer.record.batch_v2 import TRANSACTIONAL_BIT
from tests.fakes.raw_client import DEADLINE, RawClient
from tests.unit.broker.batches import make_batch

LONG_MS = int(DEADLINE * 10_000)
MINUTE_S = 60.0


@pytest.fixture
def local(how: str) -> Iterator[LocalBroker]:
    """Yield a broker whose loop does not run, except to look for expired transactions."""
    with LocalBroker(settings=BrokerSettings(transaction_scan_s=0.05 if how == "timeout" else LONG_MS)) as broker:
        broker.create_topic("t")
        yield broker


@pytest.mark.parametrize("how", ["commit", "abort", "fence", "timeout"])
def test_a_reader_is_woken(local: LocalBroker, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with RawClient(local.port) as writer, RawClient(local.port) as reader:
        init = messages.InitProducerIdRequest("id", int(MINUTE_S * 1000))
        mine = writer.ask(INIT_PRODUCER_ID, init)
        batch = make_batch(
            producer_id=mine.producer_id, epoch=mine.producer_epoch, sequence=0, attributes=TRANSACTIONAL_BIT
        )
        topics = (messages.ProduceTopic("t", partition_data=(messages.ProducePartition(0, batch),)),)
        written = writer.ask(PRODUCE, messages.ProduceRequest("id", -1, 1000, topics))
        assert written.responses[0].partition_responses[0].error_code == Code.NONE

        reader.ask(API_VERSIONS, messages.ApiVersionsRequest())
        wanted = (messages.FetchTopic("t", partitions=(messages.FetchPartition(0, partition_max_bytes=10_000),)),)
        reader.send(
            FETCH,
            messages.FetchRequest(max_wait_ms=LONG_MS, min_bytes=1, max_bytes=10_000, isolation_level=1, topics=wanted),
        )
        writer.ask(API_VERSIONS, messages.ApiVersionsRequest())  # its response comes when the broker has seen the Fetch
        if how == "fence":
            assert writer.ask(INIT_PRODUCER_ID, init).error_code == Code.CONCURRENT_TRANSACTIONS
        elif how == "timeout":
            coordinator = local._server._transactions._coordinator
            monkeypatch.setattr(coordinator, "_time_of_day", lambda: time.time() + MINUTE_S)
        else:
            end = messages.EndTxnRequest("id", mine.producer_id, mine.producer_epoch, how == "commit")
            assert writer.ask(END_TXN, end).error_code == Code.NONE
        _, found = reader.receive(FETCH)
    (row,) = found.responses[0].partitions
    assert (row.error_code, row.last_stable_offset) == (Code.NONE, 2)
    assert len(row.aborted_transactions or ()) == (how != "commit")
