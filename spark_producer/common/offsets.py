"""The numbers that stand for the ends of a log, in place of an offset or of a timestamp in ListOffsets."""

from __future__ import annotations

from typing import Final

EARLIEST: Final = -2
"""The log start offset (`ListOffsetsRequest.EARLIEST_TIMESTAMP`, Spark's `KafkaOffsetRangeLimit.EARLIEST`)."""
LATEST: Final = -1
"""The offset after the last record that the isolation level shows (`LATEST_TIMESTAMP`, Spark's `LATEST`)."""
