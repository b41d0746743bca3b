"""Offsets that are not in the log any more: an error with `failOnDataLoss`, otherwise a warning."""

from __future__ import annotations

from collections.abc import Mapping

from spark_producer.common.cluster import TopicPartition
from spark_producer.common.escape import escaping_logger
from spark_producer.common.offsets import EARLIEST, LATEST
from spark_producer.datasource.read.driver.offset_resolution import OffsetLookup
from spark_producer.errors import DataLoss

logger = escaping_logger("pyproducer")

ADVICE = "To go on with what is there, set failOnDataLoss to false"


def report_loss(text: str, *, fail: bool) -> None:
    """Raise a DataLoss with `text`, or log it as a warning.

    Raises:
        DataLoss: with `fail`.
    """
    if fail:
        raise DataLoss(f"{text}. {ADVICE}")
    logger.warning("%s. Reading goes on with what is there, since failOnDataLoss is false", text)


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
                fail=fail,
            )
            found[each] = min(max(offset, starts[each]), ends[each])
    return found
