"""The simulator tells the stories of KIP-480 and KIP-794, and the same one every time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.partitioning.scenes import (
    SLOW_NODE,
    adaptive,
    kip_480_scene,
    kip_794,
    kip_794_scene,
    round_robin,
    sticky,
    uniform,
)
from benchmarks.partitioning.simulator import MakeRule, Outcome, Scene, Simulation


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
