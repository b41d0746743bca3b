"""The options of a consumer that mean something in a read, under the names of Kafka's ConsumerConfig."""

from __future__ import annotations

import dataclasses

from spark_producer.config.connection_table import ConnectionOptions, kafka_fields
from spark_producer.config.names import spellings
from spark_producer.config.option import INT32_MAX, option
from spark_producer.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConsumerConfig(ConnectionOptions):
    """The configuration of a read, under the names of Kafka's ConsumerConfig. Times are milliseconds.

    It compares by value. It has no hash, since secrets have none.
    """

    __hash__ = None

    isolation_level: str = option(
        "read_uncommitted",
        "`read_committed`: records of aborted transactions are left out, and those of open ones are not read yet. Needed after "
        "exactly-once writes.",
        choices=("read_uncommitted", "read_committed"),
    )
    fetch_min_bytes: int = option(
        1,
        "Minimum bytes of a response; a broker with fewer waits for `fetch.max.wait.ms`.",
        low=0,
        high=INT32_MAX,
        unit="bytes",
    )
    fetch_max_bytes: int = option(
        52428800,
        "Maximum fetched bytes that a task holds undecoded. A batch of records that is larger comes alone.",
        low=1,
        high=INT32_MAX,
        unit="bytes",
    )
    fetch_max_wait_ms: int = option(
        500,
        "Maximum time for which a broker waits for `fetch.min.bytes`; less than `request.timeout.ms`.",
        low=0,
        high=INT32_MAX,
    )
    max_partition_fetch_bytes: int = option(
        8388608,
        "Maximum bytes of one partition in a response. A batch of records that is larger comes alone.",
        low=1,
        high=INT32_MAX,
        kafka_default="1048576",
        unit="bytes",
    )
    check_crcs: bool = option(True, "Whether the checksum of each batch of records is checked.")
    client_rack: str = option(
        "", "The reader's rack, as in the brokers' `broker.rack`: records come from a replica in it (KIP-392)."
    )
    group_id: str = option(
        "",
        "Accepted, since rights may be given by it. No consumer group is joined: Spark assigns the partitions, and its "
        "checkpoint has the offsets. `commitGroup` shows progress to Kafka's tools.",
    )
    default_api_timeout_ms: int = option(
        60000,
        "Maximum time without progress, over all retries. At least `request.timeout.ms`, with which the default grows.",
        low=1,
        high=INT32_MAX,
    )
    receive_buffer_bytes: int = option(
        -1,
        "SO_RCVBUF of connections; -1 leaves it to the system.",
        low=-1,
        high=INT32_MAX,
        kafka_default="65536",
        unit="bytes",
    )

    def _check_together(self) -> None:
        if self.fetch_max_wait_ms >= self.request_timeout_ms:
            raise ConfigError(
                f"kafka.fetch.max.wait.ms ({self.fetch_max_wait_ms}) must be less than kafka.request.timeout.ms "
                f"({self.request_timeout_ms}), or a fetch without new records times out. Lower it, or raise the timeout"
            )
        if self.fetch_min_bytes > self.fetch_max_bytes:
            raise ConfigError(
                f"kafka.fetch.min.bytes ({self.fetch_min_bytes}) exceeds kafka.fetch.max.bytes ({self.fetch_max_bytes}), the "
                "maximum of a response. Change one of them"
            )
        if self.default_api_timeout_ms < self.request_timeout_ms:
            raise ConfigError(
                f"kafka.default.api.timeout.ms ({self.default_api_timeout_ms}) must be at least kafka.request.timeout.ms "
                f"({self.request_timeout_ms}). Raise it, or lower the other"
            )


CONSUMER_FIELDS = kafka_fields(ConsumerConfig)
"""The options of a consumer by Kafka's names. Those of connections are the first, those of security the last."""
CONSUMER_NAMES = spellings(CONSUMER_FIELDS)
"""The key of `CONSUMER_FIELDS` for every name in lower case: current names, aliases and former names."""
