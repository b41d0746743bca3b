"""Which partition each row goes to, a whole column at a time.

Owns: the rules in their order (explicit partition, key hash, sticky) and the sticky state of each topic.
Must not know: batches, buffers, connections; it is told how many partitions a topic has and which have a leader.
"""

from spark_producer.partitioner.assign import Assignment, TopicPartitions, assign_partitions
from spark_producer.partitioner.sticky import StickyPartitioner

__all__ = ["Assignment", "StickyPartitioner", "TopicPartitions", "assign_partitions"]
