"""What a producer did, in numbers: written offsets, and metrics under Java's names.

Owns: sensors, the table of names, the interval of a task and how intervals add up, snapshots.
Must not know: where the numbers come from. Callers pass in the clock and the lock (docs/metrics.md).

A new metric is a row in `metric_table`. A number that is recorded needs a sensor in `sensors` and a method of `ProducerMetrics`
for its event; a number that is only looked up is a field of `Levels`.
"""

from spark_producer.metrics.producer_metrics import ProducerMetrics, unread_metrics
from spark_producer.metrics.snapshot import Interval, Levels, Snapshot, Values, merge_intervals
from spark_producer.metrics.windowed_counters import Window
from spark_producer.metrics.write_report import OffsetRange, WriteReport, merge

__all__ = [
    "Interval",
    "Levels",
    "OffsetRange",
    "ProducerMetrics",
    "Snapshot",
    "Values",
    "Window",
    "WriteReport",
    "merge",
    "merge_intervals",
    "unread_metrics",
]
