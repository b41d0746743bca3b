"""Encoded batches that wait to be sent: bounded memory, one queue per partition.

Owns: the buffer pool, the open and waiting batches, and the waits for memory and for completion.
Must not know: brokers, requests, or who reads the rows. The lock order is written down in `record_accumulator`.
"""

from spark_producer.accumulator.buffer_pool import BufferPool
from spark_producer.accumulator.future import RecordMetadata
from spark_producer.accumulator.producer_batch import ProducerBatch, TopicPartition
from spark_producer.accumulator.record_accumulator import RecordAccumulator

__all__ = ["BufferPool", "ProducerBatch", "RecordAccumulator", "RecordMetadata", "TopicPartition"]
