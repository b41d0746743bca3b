"""Record batches for the broker's tests: real headers and CRCs, records of filler (the broker does not look at them)."""

from spark_producer.record.batch_v2 import HEADER_SIZE, seal


def make_batch(
    records: int = 1,
    *,
    size: int = 100,
    timestamp: int = 1000,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    attributes: int = 0,
) -> memoryview:
    """A sealed batch of `size` bytes that says it holds `records` records."""
    batch = memoryview(bytearray(max(size, HEADER_SIZE)))
    filler = bytes(range(251))  # a prime, so that no block of the file looks like another
    batch[HEADER_SIZE:] = (filler * (len(batch) // len(filler) + 1))[: len(batch) - HEADER_SIZE]
    seal(
        batch,
        records_count=records,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=attributes,
    )
    return batch.toreadonly()
