"""The simulator reproduces the findings of KIP-480 and KIP-794 with the same figures in each run; the limits of real runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.partitioning.paced import Latencies, bursts, send
from benchmarks.partitioning.paced import run as run_paced
from benchmarks.partitioning.performance import parse_performance
from benchmarks.partitioning.simulation.plots import draw_kip_794, slow_broker_table, spread_table
from benchmarks.partitioning.simulation.recorded import read_slow_broker, read_spreads
from benchmarks.partitioning.simulation.scenes import (
    SLOW_NODE,
    adaptive,
    kip_480_scene,
    kip_794,
    kip_794_scene,
    round_robin,
    sticky,
    uniform,
)
from benchmarks.partitioning.simulation.simulator import MakeRule, Outcome, Scene, Simulation
from spark_producer.broker import LocalBroker


def run(scene: Scene, rule: MakeRule) -> Outcome:
    return Simulation(scene, rule).run()


def test_kip_794_the_old_rule_drowns_the_slow_broker_and_the_new_ones_do_not() -> None:
    outcomes = kip_794(seconds=12.0)
    old = outcomes["sticky (KIP-480)"]
    assert old.share_of(SLOW_NODE) > 0.6
    assert old.percentile(0.99) > 1.0
    for name in ("uniform sticky", "uniform sticky, adaptive", "adaptive, availability timeout 5 ms"):
        assert outcomes[name].share_of(SLOW_NODE) < 0.45, name
        assert outcomes[name].mean < old.mean / 10, name
    means = [outcomes[name].mean for name in list(outcomes)[2:]]
    assert means[2] < means[1] < means[0], "adaptive helps, the timeout helps more"


def test_kip_794_the_legends_of_the_picture_are_whole() -> None:
    figure = draw_kip_794(kip_794(seconds=0.5))
    figure.canvas.draw()
    legends = [*figure.legends, *(legend for axes in figure.axes if (legend := axes.get_legend()) is not None)]
    boxes = [legend.get_window_extent() for legend in legends]
    assert len(boxes) == 2
    for box in boxes:
        assert figure.bbox.x0 <= box.x0
        assert box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0
    assert not boxes[0].overlaps(boxes[1])


def test_kip_794_when_the_slow_broker_cannot_take_its_share_adaptive_is_what_helps() -> None:
    """3 MB/s: a third is more than 50 requests of 16 KiB a second."""
    scene = replace(kip_794_scene(3.0, seconds=6.0), linger=0.005)
    blind, seeing = run(scene, uniform), run(scene, adaptive)
    assert seeing.percentile(0.99) < blind.percentile(0.99) / 2
    assert seeing.share_of(SLOW_NODE) < blind.share_of(SLOW_NODE)


def test_kip_480_sticky_makes_larger_batches_fewer_requests_and_shorter_waits() -> None:
    for partitions in (16, 128):
        scene = kip_480_scene(partitions, 0.0, seconds=0.5)
        spread, stuck = run(scene, round_robin), run(scene, sticky)
        assert stuck.records == spread.records
        assert stuck.records / stuck.batches > 3 * spread.records / spread.batches
        assert stuck.percentile(0.99) < spread.percentile(0.99)


def test_kip_480_batches_are_as_large_as_the_rates_say() -> None:
    """With a linger L at rate r over n partitions: round robin r L / n records, sticky a full batch."""
    scene = replace(kip_480_scene(128, 0.5, rate=3_200.0, seconds=3.0), producers=1, group=0.001)
    spread, stuck = run(scene, round_robin), run(scene, sticky)
    assert spread.records / spread.batches == pytest.approx(3_200 * 0.5 / 128, rel=0.15)
    assert stuck.records / stuck.batches == pytest.approx(16384 // 530, rel=0.05)


@pytest.mark.parametrize("rule", [round_robin, sticky, uniform, adaptive])
def test_without_a_slow_broker_every_rule_spreads_evenly(rule: MakeRule) -> None:
    scene = replace(kip_794_scene(seconds=12.0), held={}, linger=0.005)
    outcome = run(scene, rule)
    assert all(outcome.share_of(node) == pytest.approx(1 / 3, abs=0.05) for node in (0, 1, 2))


def test_every_record_is_acknowledged_once_and_a_seed_repeats_itself() -> None:
    scene = replace(kip_794_scene(2.0, seconds=2.0), linger=0.005)
    first, again = run(scene, adaptive), run(scene, adaptive)
    assert first.records == pytest.approx(4096 * 2.0, rel=0.01)
    assert first.latencies.tolist() == again.latencies.tolist()
    assert run(replace(scene, seed=1), adaptive).latencies.tolist() != first.latencies.tolist()
    assert sum(first.bytes_by_node.values()) == sum(first.bytes_by_partition.values()) > first.records * 512


class Sleeper:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now, self.slept = 5.0, list[float]()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_records_come_in_the_bursts_of_producer_performance() -> None:
    """At 2,048 a second: five records are 2 ms ahead, it sleeps 3, and six more are due."""
    time = Sleeper()
    found = list(bursts(2048, 2048.0, lambda: time.now, time.sleep))
    assert sum(found) == 2048
    assert found[0] == 5
    assert set(found[1:-1]) == {6, 7}
    assert set(time.slept) == {0.003}
    assert time.now == pytest.approx(6.0, abs=0.01)


def test_after_a_pause_what_is_due_comes_at_once() -> None:
    time = Sleeper()
    coming = bursts(2048, 2048.0, lambda: time.now, time.sleep)
    next(coming)
    time.now += 0.5
    assert next(coming) == pytest.approx(1024, abs=12)
    assert next(coming) < 12


def test_a_paced_run_measures_all_but_the_warmup() -> None:
    with LocalBroker(default_partitions=3) as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": "0"}
        reported = run_paced("t", 400, 200, 2000.0, 512, settings)
    assert 0 < reported["p50"] <= reported["p95"] <= reported["p99"] <= reported["p99.9"] <= reported["max"]
    assert reported["records"] == 200
    assert reported["megabytes"] > 0
    assert 1 <= reported["requests"] <= 410
    assert 512 < reported["batch_bytes"] < 400 * 600


def test_a_burst_across_the_end_of_the_warmup_is_measured_from_there_on() -> None:
    with LocalBroker(default_partitions=3) as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": "0"}
        assert send([400], "t", 150, 512, settings)["records"] == 250


def test_latencies_are_those_of_records_and_megabytes_those_of_the_time_from_first_to_last() -> None:
    """150 records take 100 ms, then 50 take 300: 500 a second."""
    times = iter([10.0, 10.1, 10.1, 10.4])
    latencies = Latencies(clock=lambda: next(times))
    latencies.end(latencies.begin(), 150)
    latencies.end(latencies.begin(), 50)
    assert latencies.records == 200
    assert latencies.megabytes(512) == pytest.approx(500 * 512 / (1 << 20))
    reported = latencies.summary()
    assert (reported["mean"], reported["p50"], reported["p99"], reported["max"]) == pytest.approx((150, 100, 300, 300))


SUMMARY = """\
{count} records sent, 2047.9 records/sec (1.00 MB/sec), 33.90 ms avg latency, 290.00 ms max latency, \
7 ms 50th, 122 ms 95th, 135 ms 99th, 145 ms 99.9th.
"""
METRICS = """\
Metric Name                                            Value
producer-metrics:batch-size-avg:{client-id=perf-1}   : 7814.010
producer-metrics:request-total:{client-id=perf-1}    : 1110.000
producer-node-metrics:request-total:{node-id=node-1} : 1.000
"""


def test_the_summary_of_producer_performance_is_read_without_its_warmup() -> None:
    reported = (
        SUMMARY.replace("33.90", "50.00") + SUMMARY.replace("records sent", "steady state records sent") + METRICS
    )
    found = parse_performance(reported)
    assert (found.megabytes, found.mean, found.requests, found.batch_bytes) == (1.0, 33.9, 1110.0, 7814.01)
    assert found.percentiles == {"p50": 7.0, "p95": 122.0, "p99": 135.0, "p99.9": 145.0}
    with pytest.raises(ValueError, match="no summary"):
        parse_performance("Exception in thread main")
    with pytest.raises(ValueError, match="no request-total"):
        parse_performance(SUMMARY)


def test_the_page_shows_the_recorded_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "partitioners.md").read_text(encoding="utf-8")
    for megabytes in (1, 3):
        assert slow_broker_table(read_slow_broker(megabytes)) in page
    assert spread_table(read_spreads()) in page
