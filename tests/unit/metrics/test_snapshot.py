"""Intervals of tasks are merged into one, can be pickled, and are read as snapshots."""

from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_producer.metrics import Interval, Levels, Snapshot, merge_intervals
from spark_producer.metrics.metric_table import CLIENT, METRICS, NODE, OWN, TOPIC, Stat
from tests.fakes.metric_events import drain, everything_once, new_metrics


def interval(began: float, ended: float, records: int, *, topic: str = "t", latency: float = 0.1) -> Interval:
    """A task that wrote one batch, in Unix seconds 1,000,000 later than given."""
    metrics = new_metrics()
    metrics.mark(began)
    drain(metrics, topic=topic, records=records, size=records * 100, queued=latency / 2, now=began)
    metrics.node_drained(records, began)
    metrics.batch_delivered(records, records * 100, latency, ended)
    metrics.bytes_sent(1, records * 100, records * 100, ended)
    return metrics.since_mark(Levels(0, 1000, 1000, 0, 1, ended - began), ended)


def merged(*intervals: Interval) -> Snapshot:
    return merged_interval(*intervals).snapshot()


def merged_interval(*intervals: Interval) -> Interval:
    found = merge_intervals(intervals)
    assert found is not None
    return found


def test_totals_add_averages_are_weighted_maxima_are_maxima() -> None:
    found = merged(interval(0, 10, 100, latency=0.1), interval(0, 10, 300, latency=0.5))
    assert found.value(CLIENT, "record-send-total") == found.value(TOPIC, "record-send-total", "t") == 400
    assert found.value(OWN, "batch-delivered-total") == 2
    assert found.value(OWN, "record-latency-avg") == pytest.approx(400)
    assert found.value(OWN, "record-latency-max") == 500
    assert found.value(CLIENT, "records-per-request-avg") == 200
    assert found.value(NODE, "outgoing-byte-total", "node-1") == 40000
    assert found.value(NODE, "request-total", "node-1") == 2


def test_percentiles_are_those_of_all_values() -> None:
    found = merged(interval(0, 1, 98, latency=0.1), interval(0, 1, 2, latency=0.9))
    assert found.value(OWN, "record-latency-p50") == pytest.approx(100, rel=1 / 16)
    assert found.value(OWN, "record-latency-p99") == pytest.approx(900, rel=1 / 16)


def test_rates_and_levels_of_simultaneous_tasks_add() -> None:
    found = merged(interval(0, 10, 100), interval(0, 10, 300))
    assert found.value(CLIENT, "record-send-rate") == pytest.approx(40)
    assert found.value(CLIENT, "buffer-total-bytes") == 2000
    assert found.value(CLIENT, "connection-count") == 2
    assert found.value(CLIENT, "metadata-age") == 10, "the oldest, not the sum"


def test_rates_and_levels_of_tasks_one_after_the_other_are_averaged() -> None:
    found = merged(interval(0, 10, 100), interval(10, 20, 300))
    assert found.seconds == 20
    assert found.value(CLIENT, "record-send-rate") == pytest.approx(20)
    assert found.value(CLIENT, "buffer-total-bytes") == 1000


def test_nodes_and_topics_are_kept_apart() -> None:
    found = merged(interval(0, 1, 1, topic="a"), interval(0, 1, 2, topic="b"))
    assert found.owners("topic") == ["a", "b"]
    assert found.value(TOPIC, "record-send-total", "b") == 2


def test_the_client_id_of_a_merged_interval_is_that_of_all_parts_or_none() -> None:
    first = interval(0, 1, 1)
    assert merged(first, first).client_id == "spark"
    assert merged(first, first._replace(client_id="other")).client_id == ""


def test_nothing_merges_to_nothing_and_moments_are_no_division_by_zero() -> None:
    assert merge_intervals([]) is None
    moment = interval(5, 5, 10)
    assert merged(moment, moment).value(CLIENT, "buffer-total-bytes") == 2000
    assert math.isfinite(merged(moment, moment).value(CLIENT, "record-send-rate"))


def test_an_interval_is_sent_and_is_small() -> None:
    metrics = new_metrics()
    everything_once(metrics)
    interval = metrics.since_mark(Levels(), 1.0)
    sent = pickle.dumps(interval)
    assert pickle.loads(sent) == interval
    assert len(sent) < 2600, "a job may have thousands of tasks"
    for snapshot in (metrics.snapshot(Levels(), 1.0), interval.snapshot()):
        values = snapshot.values()
        assert pickle.loads(pickle.dumps(values)) == values
        assert {type(value) for value in values.values()} <= {int, float}


def test_an_interval_has_no_entry_for_what_did_not_happen_in_it() -> None:
    """A task of few rows has nine kinds of events; the tallies that a snapshot has of them are three times as many."""
    metrics = new_metrics()
    everything_once(metrics)
    metrics.mark(1.0)
    assert not metrics.since_mark(Levels(), 2.0).readings
    metrics.flushed(0.3, 3.0)
    assert list(metrics.since_mark(Levels(), 4.0).readings) == [("flush-time", "")]


def test_a_metric_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError):
        interval(0, 1, 1).snapshot().value(CLIENT, "record-sent-total")


intervals = st.builds(
    lambda began, length, records, topic: interval(float(began), float(began + length), records, topic=topic),
    st.integers(0, 100),
    st.integers(1, 100),
    st.integers(1, 1000),
    st.sampled_from("ab"),
)


@settings(max_examples=50)
@given(st.lists(intervals, min_size=1, max_size=3), st.lists(intervals, min_size=1, max_size=3))
def test_it_does_not_matter_in_which_order_intervals_are_merged(some: list[Interval], others: list[Interval]) -> None:
    one = merged(merged_interval(*some), merged_interval(*others)).values()
    other = merged(*others, *some).values()
    assert one.keys() == other.keys()
    for key, value in one.items():
        assert value == pytest.approx(other[key], nan_ok=True), key


@settings(max_examples=30)
@given(intervals)
def test_merging_one_changes_nothing(part: Interval) -> None:
    assert merged(part).values() == pytest.approx(part.snapshot().values(), nan_ok=True)


def test_what_every_statistic_says_of_tasks_holds() -> None:
    """Two equal, simultaneous intervals: sums are doubled, averages and maxima stay."""
    metrics = new_metrics()
    everything_once(metrics)
    part = metrics.since_mark(Levels(1, 2, 3, 4, 5, 6.0), 2.0)
    both = merged(part, part)
    for row in METRICS:
        owner = {NODE: "node-1", TOPIC: "t"}.get(row.group, "")
        one, two = (each.value(row.group, row.name, owner) for each in (part.snapshot(), both))
        among_tasks: str = row.stat.value[1]
        adds = among_tasks == "sum" or among_tasks.endswith(" add")
        assert two == pytest.approx(2 * one if adds else one), row
        assert adds == (row.stat in (Stat.RATE, Stat.COUNT_RATE, Stat.RATIO, Stat.TOTAL, Stat.COUNT_TOTAL, Stat.LEVEL))
