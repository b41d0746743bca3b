"""The records of a committed read: control batches, aborted transactions (KIP-98)."""

from __future__ import annotations

import pytest

from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import HEADER_SIZE, read_header
from spark_producer.record.committed_filter import marker_type
from spark_producer.record.control import ControlType
from spark_producer.record.record_cursor import RecordCursor
from tests.unit.record.control_batches import CONTROL, TRANSACTIONAL, batch, marker, marker_record
from tests.unit.record.test_reading import record_bytes, records_of, zigzag

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


def offsets(data: bytes, *aborted: tuple[int, int]) -> list[int]:
    return [record.offset for record in records_of(data, aborted=aborted)]


LOG = b"".join(
    [
        batch(0, 1), batch(1, 2), batch(2, -1, 0), marker(3, 1, ABORT), batch(4, 1), marker(5, 2, COMMIT),
        batch(6, 2), marker(7, 1, COMMIT), marker(8, 2, ABORT), batch(9, 2, 0),
    ]
)  # fmt: skip


def test_without_aborted_transactions_only_markers_are_left_out() -> None:
    assert offsets(LOG) == [0, 1, 2, 4, 6, 9]


def test_aborted_transactions_end_with_their_marker() -> None:
    assert offsets(LOG, (1, 0)) == [1, 2, 4, 6, 9]
    assert offsets(LOG, (2, 6), (1, 0)) == [1, 2, 4, 9]


def test_a_transaction_that_began_before_the_data() -> None:
    assert offsets(batch(4, 1) + marker(5, 1, ABORT) + batch(6, 1), (1, 0)) == [6]


def test_batches_without_a_transaction_are_seen_from_any_producer() -> None:
    assert offsets(batch(4, 1, 0) + batch(5, 1), (1, 0)) == [4]


@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4, 5, 6, 77])
def test_markers_of_every_type_are_left_out(kind: int) -> None:
    data = marker(3, 1, kind)
    assert marker_type(read_header(data), memoryview(data)[HEADER_SIZE:]) == kind
    assert offsets(data + batch(4, 1)) == [4]


@pytest.mark.covers("RB16")
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (record_bytes(), "the key of a control record has 0 bytes instead of 4"),
        (record_bytes(key=zigzag(3) + bytes(3)), "the key of a control record has 3 bytes instead of 4"),
        (record_bytes(key=zigzag(100)), "key length is 100"),
        (b"", "ends inside its record length"),
    ],
)
def test_a_control_batch_without_a_marker(body: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=f"offset 3: .*{reason}"):
        offsets(batch(3, 1, TRANSACTIONAL | CONTROL, body))


def test_a_marker_is_read_up_to_its_key() -> None:
    """However much follows: 1 MiB of headers, which a few bytes can claim, are neither copied nor looked at."""
    count = 1 << 19
    body = record_bytes(key=zigzag(4) + bytes(4), headers=zigzag(count) + bytes(2 * count))
    cursor = RecordCursor(memoryview(body))
    key = cursor.read_up_to_key()
    assert key is not None
    assert key.obj is body
    assert cursor.position < 20
    assert offsets(batch(3, 1, TRANSACTIONAL | CONTROL, body) + batch(4, 1)) == [4]


@pytest.mark.covers("RB16")
def test_control_batches_without_and_with_several_markers() -> None:
    """Compaction takes the marker and keeps the header; a KRaft quorum writes several markers in one batch (KIP-853)."""
    taken = batch(3, 1, TRANSACTIONAL | CONTROL, b"", records=0)
    kinds = (ControlType.SNAPSHOT_HEADER, ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS)
    body = b"".join(marker_record(kind, delta) for delta, kind in enumerate(kinds))
    data = batch(2, 1) + taken + batch(4, -1, CONTROL, body, records=3) + batch(7, 1)
    assert offsets(data) == [2, 7]
    assert offsets(data, (1, 0)) == [], "a batch without its marker ends no transaction"
