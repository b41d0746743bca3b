"""The engine of segment files: each partition has a directory with files of batches, as Kafka lays them out.

Owns: `SegmentStorage` (`storage`), the logs of partitions (`log`) and their files (`segment`), recovery after a crash
(`recovery`, `checkpoint`), deletion (`retention`, `pending_deletes`), and records that belong to no topic (`orphaned_logs`).
Must not know: producers, requests; whether a batch may be appended is decided before it comes here.
"""

from spark_producer.broker.storage.segments.storage import SegmentStorage, holds_segments

__all__ = ["SegmentStorage", "holds_segments"]
