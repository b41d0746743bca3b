"""The messages about transactions, for producers, administrators and coordinators (KIP-98, KIP-664, KIP-890)."""

# Annotations are evaluated here on purpose (no `from __future__`): they are the schema.
from typing import Annotated, NamedTuple

from spark_producer.protocol.fields import Bool, Int16, Int32, Int64, NullableString, Since, String

# AddPartitionsToTxn (24); from version 4 on only brokers use it


class AddPartitionsToTxnTopic(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[Int32, ...] = ()


class AddPartitionsToTxnRequest(NamedTuple):
    """Reports to the coordinator which partitions the transaction is about to write to."""

    v3_and_below_transactional_id: String = ""
    v3_and_below_producer_id: Int64 = 0
    v3_and_below_producer_epoch: Int16 = 0
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = ()


class AddPartitionsToTxnPartitionResult(NamedTuple):
    """The result for one partition: error code 0 if it is in the transaction now."""

    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = ()


class AddPartitionsToTxnResponse(NamedTuple):
    """One result for each partition. If one is refused, no partition is added: the others have error 55."""

    throttle_time_ms: Int32 = 0
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = ()


# AddOffsetsToTxn (25)


class AddOffsetsToTxnRequest(NamedTuple):
    """Reports to the coordinator that the transaction is about to commit offsets of a consumer group."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


class AddOffsetsToTxnResponse(NamedTuple):
    """The error code, which is 0 if the group is in the transaction now."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


# EndTxn (26)


class EndTxnRequest(NamedTuple):
    """Commits or aborts a transaction."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Bool = False


class EndTxnResponse(NamedTuple):
    """The error code, which is 0 once the outcome is decided; from version 5 on also the next producer id and epoch (KIP-890)."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, Since(5)] = -1
    producer_epoch: Annotated[Int16, Since(5)] = -1


# WriteTxnMarkers (27), which administrators use to end a hanging transaction (`kafka-transactions.sh abort`)


class WritableTxnMarkerTopic(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


class WritableTxnMarker(NamedTuple):
    """A marker to be written; `transaction_result` is true for commit."""

    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: Bool = False
    topics: tuple[WritableTxnMarkerTopic, ...] = ()
    coordinator_epoch: Int32 = 0


class WriteTxnMarkersRequest(NamedTuple):
    """Asks a leader to write markers that end transactions."""

    markers: tuple[WritableTxnMarker, ...] = ()


class WritableTxnMarkerPartitionResult(NamedTuple):
    """The result for one partition: error code 0 if the marker was written."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class WritableTxnMarkerTopicResult(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[WritableTxnMarkerPartitionResult, ...] = ()


class WritableTxnMarkerResult(NamedTuple):
    """The results of the markers of one producer."""

    producer_id: Int64 = 0
    topics: tuple[WritableTxnMarkerTopicResult, ...] = ()


class WriteTxnMarkersResponse(NamedTuple):
    """One result for each marker and partition."""

    markers: tuple[WritableTxnMarkerResult, ...] = ()


# TxnOffsetCommit (28)


class TxnOffsetCommitRequestPartition(NamedTuple):
    """The next offset that the group reads in one partition if the transaction is committed."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Since(2)] = -1
    committed_metadata: NullableString = None


class TxnOffsetCommitRequestTopic(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = ()


class TxnOffsetCommitRequest(NamedTuple):
    """Commits offsets of a consumer group with the transaction.

    Generation and member id fence members that the group has replaced (KIP-447).
    """

    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Annotated[Int32, Since(3)] = -1
    member_id: Annotated[String, Since(3)] = ""
    group_instance_id: Annotated[NullableString, Since(3)] = None
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = ()


class TxnOffsetCommitResponsePartition(NamedTuple):
    """The result for one partition: error code 0 if its offset is in the transaction."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = ()


class TxnOffsetCommitResponse(NamedTuple):
    """One result for each partition."""

    throttle_time_ms: Int32 = 0
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = ()


# DescribeProducers (61)


class DescribeProducersTopic(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


class DescribeProducersRequest(NamedTuple):
    """Asks the leaders of partitions which producers they remember (KIP-664)."""

    topics: tuple[DescribeProducersTopic, ...] = ()


class ActiveProducer(NamedTuple):
    """A producer, and the offset at which its open transaction begins in this partition (-1: it has none)."""

    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class DescribeProducersPartition(NamedTuple):
    """The producers of one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    active_producers: tuple[ActiveProducer, ...] = ()


class DescribeProducersTopicResult(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[DescribeProducersPartition, ...] = ()


class DescribeProducersResponse(NamedTuple):
    """The producers of each partition."""

    throttle_time_ms: Int32 = 0
    topics: tuple[DescribeProducersTopicResult, ...] = ()


# DescribeTransactions (65)


class DescribeTransactionsRequest(NamedTuple):
    """Asks the coordinator of transactional ids for the states of their transactions (KIP-664)."""

    transactional_ids: tuple[String, ...] = ()


class DescribedTransactionTopic(NamedTuple):
    """The partitions of one topic in the transaction; a topic without the right DESCRIBE is left out."""

    topic: String = ""
    partitions: tuple[Int32, ...] = ()


class DescribedTransaction(NamedTuple):
    """The transaction of one id. Its start is -1 unless it is open."""

    error_code: Int16 = 0
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: tuple[DescribedTransactionTopic, ...] = ()


class DescribeTransactionsResponse(NamedTuple):
    """One row for each id."""

    throttle_time_ms: Int32 = 0
    transaction_states: tuple[DescribedTransaction, ...] = ()


# ListTransactions (66)


class ListTransactionsRequest(NamedTuple):
    """Asks a broker for the transactions that it coordinates; empty filters match all (KIP-664, KIP-994, KIP-1152)."""

    state_filters: tuple[String, ...] = ()
    producer_id_filters: tuple[Int64, ...] = ()
    duration_filter: Annotated[Int64, Since(1)] = -1
    transactional_id_pattern: Annotated[NullableString, Since(2)] = None


class ListedTransaction(NamedTuple):
    """One transaction."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


class ListTransactionsResponse(NamedTuple):
    """The transactions of one broker."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: tuple[String, ...] = ()
    transaction_states: tuple[ListedTransaction, ...] = ()
