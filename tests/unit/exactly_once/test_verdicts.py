"""The fate of a transaction in one partition, from the answers of its leader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from spark_producer.errors import KafkaTimeout
from spark_producer.exactly_once.asks import Fate
from spark_producer.exactly_once.brokers import Attempts, Brokers
from spark_producer.exactly_once.partition_state import Stretch
from spark_producer.exactly_once.verdicts import _marker_behind
from spark_producer.protocol.messages import FetchPartitionResponse
from spark_producer.record.control import EndMarker, end_marker_batch

PRODUCER, MARKER = 7, 10
STRETCH = Stretch(PRODUCER, "orders", 0, 0, MARKER - 1)


class Leader:
    """Its high watermark is below the marker for so many answers, as long as the replicas have not fetched it."""

    def __init__(self, late: int, *, commits: bool = True) -> None:
        self.late = late
        self.commits = commits
        self.time = 0.0
        self.client = self

    def clock(self) -> float:
        return self.time

    def pause(self, seconds: float) -> None:
        self.time += seconds

    def attempts(self, deadline: float, waiting_for: str) -> Iterator[int]:
        return iter(Attempts(cast(Any, self), "sink", deadline, waiting_for))

    def ask_leaders(self, partitions: Any, question: Any, rows_of: Any, deadline: float) -> dict[Any, Any]:
        self.late -= 1
        if self.late >= 0:
            return {("orders", 0): FetchPartitionResponse(high_watermark=MARKER, records=memoryview(b""))}
        marker = bytearray(
            end_marker_batch(EndMarker(self.commits, 0), producer_id=PRODUCER, producer_epoch=0, timestamp=0)
        )
        marker[:8] = MARKER.to_bytes(8, "big")  # the base offset is outside of the checksum
        return {("orders", 0): FetchPartitionResponse(high_watermark=MARKER + 1, records=memoryview(marker))}


@pytest.mark.parametrize("late", [0, 1, 5])
@pytest.mark.parametrize(("commits", "fate"), [(True, Fate.COMMITTED), (False, Fate.ABORTED)])
def test_a_marker_that_the_replicas_do_not_have_yet_is_waited_for(late: int, commits: bool, fate: Fate) -> None:
    """It was taken for lost, and a write that was in order ended as HUNG, without a partition to name."""
    leader = Leader(late, commits=commits)
    assert _marker_behind(cast(Brokers, leader), STRETCH, 60.0) is fate


def test_replicas_that_do_not_come_are_named() -> None:
    with pytest.raises(KafkaTimeout, match="the replicas of orders-0: a marker is on its way"):
        _marker_behind(cast(Brokers, Leader(late=10_000)), STRETCH, 5.0)
