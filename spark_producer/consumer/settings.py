"""The settings of a reader: one frozen value, which tasks get from the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.config.consumer_options import ConsumerConfig
from spark_producer.consumer.lost_offsets import FAIL_OPTION
from spark_producer.network.settings import ConnectionSettings
from spark_producer.record.decoded_columns import RECORD_SCHEMA, TIMESTAMP_TYPE_FIELD

ALL_COLUMNS = (*RECORD_SCHEMA.names, TIMESTAMP_TYPE_FIELD.name)
"""The columns of records, in the order in which they are read."""


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How offset ranges are fetched. Times are in seconds unless their name says otherwise, sizes in bytes.

    Names are those of Kafka's consumer.
    """

    connection: ConnectionSettings
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    """Maximum bytes of fetched responses that are not decoded yet, unless one batch has more (`fetch.max.bytes`)."""
    max_wait_ms: int = 500
    partition_bytes: int = 8 << 20
    """Maximum bytes of one partition in a response, unless its first batch has more (`max.partition.fetch.bytes`). With 4 MiB or
    more a reader of one partition takes 0.6 to 0.9 of the CPU that it takes with Kafka's 1 MiB (`benchmarks/fetching.py`)."""
    client_rack: str = ""
    check_crcs: bool = True
    fail_on_data_loss: bool = True
    loss_option: str = FAIL_OPTION
    """The name of `fail_on_data_loss` in messages."""
    metrics_push: bool = True
    """Whether metrics are sent to brokers that ask for them (`enable.metrics.push`)."""
    group_id: str = ""
    """The consumer group, for these metrics alone: no group is joined."""
    timeout: float = 60.0
    """Maximum seconds without progress in any partition (`default.api.timeout.ms`)."""

    __hash__ = None  # type: ignore[assignment]  # the connection has secrets

    @classmethod
    def from_config(cls, config: ConsumerConfig, *, fail_on_data_loss: bool, loss_option: str = FAIL_OPTION) -> Self:
        """Return how to fetch with these options; `loss_option` is the name of `fail_on_data_loss` in messages.

        Raises:
            ConfigError: as `ConnectionSettings.from_config`.
        """
        return cls(
            connection=ConnectionSettings.from_config(config),
            isolation=IsolationLevel.of(config.isolation_level),
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            partition_bytes=config.max_partition_fetch_bytes,
            client_rack=config.client_rack,
            metrics_push=config.enable_metrics_push,
            group_id=config.group_id,
            check_crcs=config.check_crcs,
            fail_on_data_loss=fail_on_data_loss,
            loss_option=loss_option,
            timeout=config.default_api_timeout_ms / 1000,
        )
