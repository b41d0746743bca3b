"""The order of a partition from its first row, against the embedded broker, read back with kafka-python. Ids: SN14."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from spark_producer import Producer
from spark_producer.broker import LocalBroker
from spark_producer.broker.log.partition import Partition
from spark_producer.errors import BrokerError
from tests.fakes.accumulator_fakes import DEADLINE
from tests.support.read_back import read_topic

NOT_ENOUGH_REPLICAS = 19
PARTITIONS, ROWS = 3, 300


@pytest.mark.covers("SN14")
def test_partitions_that_refuse_their_first_batch_get_their_rows_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """As right after a topic was made, while its replicas come up."""
    append, refused, queued = Partition.append, set(), threading.Event()

    def refuse_the_first(partition: Partition, *batch: Any, **more: Any) -> Any:
        assert queued.wait(DEADLINE), "the rows are not queued"  # so that whatever may follow is on its way
        if partition not in refused:
            refused.add(partition)
            raise BrokerError("not enough replicas yet", code=NOT_ENOUGH_REPLICAS)
        return append(partition, *batch, **more)

    # Patched, since the embedded broker has no replicas that could be missing.
    monkeypatch.setattr(Partition, "append", refuse_the_first)
    values = [f"{number:05}".ljust(200, ".").encode() for number in range(ROWS)]
    topic_partitions = pa.array([number % PARTITIONS for number in range(ROWS)], pa.int32())
    options = {"batch.size": 1024, "linger.ms": 0, "retry.backoff.ms": 5}
    with LocalBroker(default_partitions=PARTITIONS) as broker:
        with Producer({"bootstrap.servers": broker.bootstrap_servers, **options}) as producer:
            producer.send_batch(
                pa.record_batch({"partition": topic_partitions, "value": pa.array(values, pa.binary())}), topic="t"
            )
            queued.set()
            producer.flush()
        rows = read_topic(broker.bootstrap_servers, "t", expected=ROWS, timeout=DEADLINE)
    assert len(refused) == PARTITIONS
    for partition in range(PARTITIONS):
        assert [row.value for row in rows if row.partition == partition] == values[partition::PARTITIONS]
