"""Rows for tests of the producer whose batches are small."""

from __future__ import annotations

import pyarrow as pa

FULL = [b"%d" % number + b"." * 899 for number in range(200)]
"""values each of which fills a batch of 1,024 bytes"""


def table(*values: bytes | str | None) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([v.encode() if isinstance(v, str) else v for v in values], pa.binary())})
