"""Offsets of a range that the log does not have: retention, a log that ends before, topics that are deleted or made again."""

from __future__ import annotations

import itertools
import logging

import pytest

from spark_producer.consumer.fetcher import GONE_AFTER_S
from spark_producer.errors import DataLoss, KafkaTimeout
from spark_producer.protocol import LIST_OFFSETS, METADATA
from tests.unit.consumer.fetcher_harness import FetcherHarness, batch, of, positions, row

OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER, NOT_AVAILABLE = 1, 3, 6, 78
UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID = 100, 103
START, END = -2, -1


def look_up(harness: FetcherHarness, timestamp: int, offset: int) -> None:
    """Answer the next look-up of an end of the log."""
    [request] = harness.step()
    assert request.api is LIST_OFFSETS
    asked = request.body.topics[0].partitions[0]
    assert (asked.timestamp, request.body.isolation_level) == (timestamp, 0)
    harness.offset(request, offset)


def out_of_range(harness: FetcherHarness, start: int, end: int) -> None:
    harness.fetched(harness.next_fetch(), row(0, error=OUT_OF_RANGE))
    look_up(harness, START, start)
    look_up(harness, END, end)


@pytest.mark.covers("RD7")
def test_what_retention_took_is_a_loss() -> None:
    with pytest.raises(
        DataLoss, match=r"offsets 5 to 19 are lost, because the log starts at offset 20\..*retention.ms"
    ) as reported:
        out_of_range(FetcherHarness(of(0, 5, 30)), 20, 100)
    assert (reported.value.first, reported.value.end) == (5, 20)  # type: ignore[attr-defined]


@pytest.mark.covers("RD7")
def test_reading_goes_on_at_the_start_of_the_log_if_that_is_wanted(caplog: pytest.LogCaptureFixture) -> None:
    harness = FetcherHarness(of(0, 5, 30), fail_on_data_loss=False)
    with caplog.at_level(logging.WARNING):
        out_of_range(harness, 20, 100)
    assert "offsets 5 to 19 are lost" in caplog.text
    assert positions(harness.next_fetch()) == [(0, 20)]


@pytest.mark.covers("RD7")
def test_a_range_that_is_gone_as_a_whole_ends(caplog: pytest.LogCaptureFixture) -> None:
    harness = FetcherHarness(of(0, 5, 30), fail_on_data_loss=False)
    out_of_range(harness, 40, 100)
    assert "offsets 5 to 29 are lost" in caplog.text
    assert harness.fetcher.done


@pytest.mark.covers("RD7")
@pytest.mark.parametrize("fail", [True, False])
def test_a_log_that_ends_before_the_position_is_a_loss(fail: bool, caplog: pytest.LogCaptureFixture) -> None:
    harness = FetcherHarness(of(0, 50, 60), fail_on_data_loss=fail)
    if fail:
        with pytest.raises(DataLoss, match="offsets 50 to 59 are lost, because the log ends at offset 10"):
            out_of_range(harness, 0, 10)
    else:
        out_of_range(harness, 0, 10)
        assert harness.fetcher.done
        assert "the log ends at offset 10" in caplog.text


@pytest.mark.covers("RD7")
def test_a_log_that_ends_within_the_range_is_a_loss_of_the_rest() -> None:
    harness = FetcherHarness(of(0, 5, 30))
    harness.fetched(harness.next_fetch(), row(0, batch(5)))
    harness.fetched(harness.next_fetch(), row(0, high_watermark=6))
    with pytest.raises(DataLoss, match="offsets 6 to 29 are lost, because the log ends at offset 6"):
        look_up(harness, END, 6)


@pytest.mark.covers("RD9")
def test_a_high_watermark_that_lags_after_an_election_is_no_loss() -> None:
    harness = FetcherHarness(of(0, 5, 30))
    harness.fetched(harness.next_fetch(), row(0, high_watermark=5))
    [request] = harness.step()
    harness.offset(request, -1, NOT_AVAILABLE)
    harness.now += 2
    [request] = harness.step()
    harness.metadata(request)
    look_up(harness, END, 30)
    assert positions(harness.next_fetch()) == [(0, 5)]


@pytest.mark.covers("RD9")
def test_a_negative_end_of_a_log_is_no_loss() -> None:
    harness = FetcherHarness(of(0, 5, 30), fail_on_data_loss=False)
    harness.fetched(harness.next_fetch(), row(0, high_watermark=5))
    look_up(harness, END, -1)
    assert not harness.fetcher.done


@pytest.mark.covers("RD9")
def test_a_broker_that_contradicts_itself_is_asked_again() -> None:
    harness = FetcherHarness(of(0, 5, 30))
    out_of_range(harness, 0, 100)
    assert harness.step() == [], "after a pause"
    assert positions(harness.next_fetch()) == [(0, 5)]


@pytest.mark.covers("RD8")
def test_a_deleted_topic_is_a_loss_once_the_brokers_have_agreed_for_some_seconds() -> None:
    harness = FetcherHarness(of(0, 5, 30))
    harness.fetched(harness.next_fetch(), row(0, error=UNKNOWN_TOPIC))
    deleted_at = harness.now
    with pytest.raises(DataLoss, match="offsets 5 to 29 are lost, because the brokers do not know the partition"):  # noqa: PT012
        while True:
            for request in harness.step(1.0):
                harness.metadata(request, error=UNKNOWN_TOPIC)
    assert GONE_AFTER_S <= harness.now - deleted_at < GONE_AFTER_S + 3


@pytest.mark.covers("RD8")
def test_a_topic_that_one_broker_did_not_know_yet_is_read() -> None:
    harness = FetcherHarness(of(0, 5, 30))
    harness.fetched(harness.next_fetch(), row(0, error=UNKNOWN_TOPIC))
    request = harness.next_fetch()
    harness.now += GONE_AFTER_S
    harness.fetched(request, row(0, error=UNKNOWN_TOPIC))
    assert positions(harness.next_fetch()) == [(0, 5)], "the seconds count from the last error on"


CREATED_AGAIN = "offsets 5 to 29 are lost, because the topic was deleted and created again"


@pytest.mark.covers("RD8")
@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("code", [UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID])
def test_a_topic_that_was_created_again_is_a_loss(fail: bool, code: int, caplog: pytest.LogCaptureFixture) -> None:
    """The brokers reject the id that the reader knows, and Metadata has another one: its records are not of the range."""
    harness = FetcherHarness(of(0, 5, 30), fail_on_data_loss=fail)
    harness.fetched(harness.next_fetch(), row(0, error=code))
    harness.topic_id = b"b" * 16
    if fail:
        with pytest.raises(DataLoss, match=CREATED_AGAIN):
            lose(harness)
    else:
        lose(harness)
        assert CREATED_AGAIN in caplog.text
        assert harness.fetcher.done


@pytest.mark.covers("RD8")
@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_that_was_created_again_since_it_was_planned_is_a_loss(
    fail: bool, caplog: pytest.LogCaptureFixture
) -> None:
    harness = FetcherHarness(of(0, 5, 30), fail_on_data_loss=fail, planned={"t": b"p" * 16})
    if fail:
        with pytest.raises(DataLoss, match=CREATED_AGAIN):
            lose(harness)
    else:
        lose(harness)
        assert CREATED_AGAIN in caplog.text
        assert harness.fetcher.done


@pytest.mark.covers("RD9")
def test_a_broker_that_knows_the_earlier_topic_for_a_moment_does_no_harm() -> None:
    harness = FetcherHarness(of(0, 5, 30), planned={"t": b"p" * 16})
    for request in harness.step():
        harness.metadata(request)
    harness.topic_id = b"p" * 16
    assert harness.next_fetch().body.topics[0].topic_id == b"p" * 16


def lose(harness: FetcherHarness) -> None:
    """Answer requests, all of Metadata, until the range is lost."""
    for _ in range(100):
        for request in harness.step(1.0):
            harness.metadata(request)
        if harness.fetcher.done:
            return
    raise AssertionError("the range is not lost")


@pytest.mark.covers("RD9")
def test_brokers_with_different_ids_of_a_topic_end_the_read_in_time() -> None:
    harness = FetcherHarness(of(0, 5, 30), fail_on_data_loss=False, timeout=30.0)
    ids = itertools.cycle([b"a" * 16, b"b" * 16])
    with pytest.raises(KafkaTimeout, match="no progress within 30 s"):  # noqa: PT012
        for _ in range(500):
            for request in harness.step(0.2):
                if request.api is METADATA:
                    harness.topic_id = next(ids)
                    harness.metadata(request)
                else:
                    harness.fetched(request, row(0, error=NOT_LEADER))
