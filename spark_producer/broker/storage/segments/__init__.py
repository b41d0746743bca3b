"""The engine of segment files: each partition has a directory with segments of batches, in the layout of Kafka.

Owns: `SegmentStorage` (`storage`), the logs of partitions (`log`) and their files (`segment`), recovery after a crash
(`recovery`, `checkpoint`), deletion (`retention`, `pending_deletes`), compaction (`rewriting`), and orphaned logs.
Must not know: producers, requests. Batches are validated before they are appended here.
"""

from spark_producer.broker.storage.segments.storage import SegmentStorage, holds_segments

__all__ = ["SegmentStorage", "holds_segments"]
