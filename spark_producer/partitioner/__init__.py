"""Assigns a partition to each row, for a whole column at once.

Owns: the rules in their order (explicit partition, custom function or key hash, sticky) and the state of each topic.
Must not know: batches, buffers, connections. Callers provide the partitions of a topic, their leaders, the lengths of the queues
and the free bytes of the open batches.
"""

from spark_producer.partitioner.assign import Assignment, Partitioner
from spark_producer.partitioner.availability import NodeLatencies
from spark_producer.partitioner.by_name import make_partitioner, resolve_partitioner
from spark_producer.partitioner.custom import PartitionFunction
from spark_producer.partitioner.topic import LoadStatistics, LoadView, TopicPartitions, describe_topic

__all__ = [
    "Assignment",
    "LoadStatistics",
    "LoadView",
    "NodeLatencies",
    "PartitionFunction",
    "Partitioner",
    "TopicPartitions",
    "describe_topic",
    "make_partitioner",
    "resolve_partitioner",
]
