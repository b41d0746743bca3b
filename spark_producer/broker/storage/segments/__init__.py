"""The engine of segment files: a directory for each partition, in it files of batches as Kafka lays them out.

Owns: `SegmentStorage` (`storage`), the logs of partitions (`log`) and their files (`segment`), what is opened after a crash
(`recovery`, `checkpoint`), what is deleted (`retention`, `graves`), and what belongs to nobody (`unowned`).
Must not know: producers, requests; whether a batch may be appended is decided before it comes here.
"""

from spark_producer.broker.storage.segments.storage import SegmentStorage

__all__ = ["SegmentStorage"]
