"""The check of offsets that a user gave: those that are not in the log are an error with `failOnDataLoss`, else a warning."""

from __future__ import annotations

from collections.abc import Mapping

from spark_producer.common.cluster import TopicPartition
from spark_producer.common.offsets import EARLIEST, LATEST
from spark_producer.consumer.lost_offsets import report_loss
from spark_producer.datasource.read.driver.offset_resolution import OffsetLookup


def within_the_log(
    lookup: OffsetLookup, offsets: Mapping[TopicPartition, int], option: str, *, fail: bool
) -> dict[TopicPartition, int]:
    """Return offsets that a user gave, after a check that they are in the log; others are moved to its start or end.

    Raises:
        DataLoss: with `fail`, an offset is before the start or after the end of its log. And as `list_offsets`.
    """
    starts, ends = lookup.of_all(EARLIEST), lookup.of_all(LATEST)
    found = dict(offsets)
    for each, offset in offsets.items():
        if not starts[each] <= offset <= ends[each]:
            report_loss(
                f"{option} has offset {offset} for {each}, whose log has the offsets {starts[each]} to {ends[each]}",
                "give an offset of the log",
                fail=fail,
            )
            found[each] = min(max(offset, starts[each]), ends[each])
    return found
