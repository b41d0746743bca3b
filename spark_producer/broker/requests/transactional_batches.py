"""The check of transactional batches before they are appended: may their transaction write to these partitions? (KIP-890)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_producer.broker.context import Context
from spark_producer.common.cluster import ProducerIdAndEpoch, TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError, CorruptRecord
from spark_producer.protocol import decoded_records, messages
from spark_producer.record.batch_v2 import is_transactional, read_header

_ABORTABLE_SINCE: Final = 11
ADDS_SINCE: Final = 12
"""The first versions of Produce with TRANSACTION_ABORTABLE, and with implicit AddPartitionsToTxn."""


def check_transactions(
    context: Context,
    version: int,
    transactional_id: str | None,
    batches: Mapping[TopicPartition, messages.ProducePartition],
) -> dict[TopicPartition, BrokerError]:
    """Return the errors of transactional batches that must not be written, by partition. Other batches are not checked.

    The partitions of a transaction are added to it together, or each is checked. A batch without the transactional bit is written
    as any other, as in Kafka, even if the request has a transactional id.
    """
    by_producer: dict[ProducerIdAndEpoch, list[TopicPartition]] = {}
    for partition, data in batches.items():
        records = decoded_records(data.records)
        if records is not None and is_transactional(records):
            try:
                header = read_header(records)
            except CorruptRecord:
                continue  # the partition will refuse it
            by_producer.setdefault(ProducerIdAndEpoch(header.producer_id, header.producer_epoch), []).append(partition)
    if not by_producer:
        return {}
    if transactional_id is None:
        # The whole request is refused, as by Kafka (KafkaApis.handleProduceRequest).
        why = "the batches are transactional, but the request has no transactional id"
        return dict.fromkeys(batches, BrokerError(why, code=Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    refused: dict[TopicPartition, BrokerError] = {}
    for producer, partitions in by_producer.items():
        existing = [partition for partition in partitions if context.topics.has_partition(*partition)]
        refused |= _refusals(context, version, transactional_id, producer, existing)
    return refused


def _refusals(
    context: Context,
    version: int,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: list[TopicPartition],
) -> dict[TopicPartition, BrokerError]:
    adds = version >= ADDS_SINCE
    coordinator = context.coordinator
    try:
        if not partitions:
            codes = {}
        elif adds:
            codes = dict.fromkeys(partitions, coordinator.add(transactional_id, producer, partitions))
        else:
            codes = {each: coordinator.check_partition(transactional_id, producer, each) for each in partitions}
    except BrokerError as error:
        return dict.fromkeys(partitions, error)
    return {
        partition: BrokerError(
            f"producer {producer.producer_id}, epoch {producer.epoch}: the coordinator refuses this write with {code.name}",
            code=write_error_code(code, knows_abortable=version >= _ABORTABLE_SINCE, adds=adds),
        )
        for partition, code in codes.items()
        if code != Code.NONE
    }


def write_error_code(code: Code, *, knows_abortable: bool, adds: bool) -> Code:
    """Return the error code of a write for the coordinator's code (Kafka's ReplicaManager)."""
    if code == Code.PRODUCER_FENCED:
        return Code.INVALID_PRODUCER_EPOCH
    if code == Code.TRANSACTION_ABORTABLE and not knows_abortable:
        return Code.INVALID_TXN_STATE
    if code == Code.CONCURRENT_TRANSACTIONS and not adds:
        return Code.NOT_ENOUGH_REPLICAS  # older clients would not retry the code itself
    return code
