"""Encoded batches that wait to be sent: bounded memory, one queue per partition.

Owns: the buffer pool, the batches that are open, waiting or in flight, and the waits for memory and for completion.
Must not know: brokers, requests, or who reads the rows. The docstring of `accumulator.incomplete_batches` gives the lock order.
"""

from spark_producer.accumulator.accumulator import RecordAccumulator
from spark_producer.accumulator.batch import BatchState, PartitionQueue, ProducerBatch
from spark_producer.accumulator.compressing import Compression
from spark_producer.accumulator.future import BatchResult, Callback, RecordFuture, RecordMetadata
from spark_producer.accumulator.pool import BufferPool
from spark_producer.accumulator.rejected_records import RejectionCollector
from spark_producer.accumulator.row_origins import BrokerRejection, DeliveryListener
from spark_producer.accumulator.sequence_state import NO_IDENTITY, DrainGate
from spark_producer.accumulator.table_result import TableMetadata, TableResult
from spark_producer.common.cluster import ProducerIdAndEpoch

__all__ = [
    "NO_IDENTITY",
    "BatchResult",
    "BatchState",
    "BrokerRejection",
    "BufferPool",
    "Callback",
    "Compression",
    "DeliveryListener",
    "DrainGate",
    "PartitionQueue",
    "ProducerBatch",
    "ProducerIdAndEpoch",
    "RecordAccumulator",
    "RecordFuture",
    "RecordMetadata",
    "RejectionCollector",
    "TableMetadata",
    "TableResult",
]
