"""The search for batches by timestamp in the segments of a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spark_producer.broker.storage.segments.segment import Segment
from spark_producer.record.batch_v2 import NO_TIMESTAMP, BatchHeader


def first_at_or_after(segments: Sequence[Segment], start_offset: int, timestamp: int) -> BatchHeader | None:
    """Return the header of the first batch, from the one that holds `start_offset` on, whose maximum timestamp is `timestamp` or
    later; None if there is none."""
    found = (_first_of(segment, start_offset, timestamp) for segment in segments)
    return next((header for header in found if header is not None), None)


def latest(segments: Sequence[Segment], start_offset: int) -> BatchHeader | None:
    """Return the header of the first batch with the maximum timestamp, None if no batch has a timestamp."""
    timestamp = max(_latest_of(segment, start_offset) for segment in segments)
    return None if timestamp == NO_TIMESTAMP else first_at_or_after(segments, start_offset, timestamp)


def _first_of(segment: Segment, start_offset: int, timestamp: int) -> BatchHeader | None:
    if segment.base_offset >= start_offset:
        return segment.first_at_or_after(timestamp)
    return next((each for each in _headers_from(segment, start_offset) if each.max_timestamp >= timestamp), None)


def _latest_of(segment: Segment, start_offset: int) -> int:
    if segment.base_offset >= start_offset:
        return segment.max_timestamp
    return max((header.max_timestamp for header in _headers_from(segment, start_offset)), default=NO_TIMESTAMP)


def _headers_from(segment: Segment, start_offset: int) -> Iterator[BatchHeader]:
    """Yield the headers of the segment that holds the log start offset, from its batch on."""
    return segment.headers_from(segment.locate(start_offset))
