"""Reads offset ranges of topic-partitions as Arrow columns: the fetching half of Kafka's consumer, without groups.

Owns: Fetch requests and their responses, the order of rows in a partition, retries, the bound on fetched bytes.
Must not know: pyspark, the options of the data source, producers.
"""

from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.consumer.read_ranges import CONNECTIONS, read_ranges
from spark_producer.consumer.settings import ALL_COLUMNS, FetchSettings

__all__ = ["ALL_COLUMNS", "CONNECTIONS", "FetchSettings", "IsolationLevel", "OffsetRange", "read_ranges"]
