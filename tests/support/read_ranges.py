"""Offset ranges read by the package's own consumer.

Owns: connections for a test alone. Must not know: what a test expects of the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from spark_producer.common.cluster import TopicPartition
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.consumer.read_ranges import read_ranges
from spark_producer.consumer.settings import FetchSettings
from spark_producer.network import ConnectionSettings, parse_bootstrap_servers

FAST = {"retry_backoff": 0.005, "retry_backoff_max": 0.05, "reconnect_backoff": 0.005, "reconnect_backoff_max": 0.05}
"""Pauses for brokers that fail by design."""


def connection(bootstrap: str, **changes: Any) -> ConnectionSettings:
    return ConnectionSettings(tuple(parse_bootstrap_servers(bootstrap)), **changes)


def batches(
    settings: FetchSettings, topic: str, ranges: Mapping[int, tuple[int, int]], columns: frozenset[str] | None = None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """(partition, RecordBatch) of the ranges, which are given as partition → (start, end)."""
    wanted = [OffsetRange(TopicPartition(topic, partition), *bounds) for partition, bounds in ranges.items()]
    found = read_ranges(settings, wanted) if columns is None else read_ranges(settings, wanted, columns)
    for (_, partition), batch in found:
        yield partition, batch


def rows(settings: FetchSettings, topic: str, ranges: Mapping[int, tuple[int, int]]) -> dict[int, list[dict[str, Any]]]:
    """Partition → its rows, in the order in which they came."""
    found: dict[int, list[dict[str, Any]]] = {partition: [] for partition in ranges}
    for partition, batch in batches(settings, topic, ranges):
        found[partition] += batch.to_pylist()
    return found
