"""The table of all options: name, type, range, default and documentation of each, and the rules between them.

The two dataclasses below are the table: a field is an option (`batch_size` is `kafka.batch.size`, `include_headers` is
`includeHeaders`), with its documentation in its metadata. `ProducerConfig` inherits the options of connections and security.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import ClassVar

from spark_producer.config.connection_table import ConnectionOptions, kafka_fields
from spark_producer.config.names import by_camel_case, spellings
from spark_producer.config.option import FORMATS, INT32_MAX, INT64_MAX, option
from spark_producer.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProducerConfig(ConnectionOptions):
    """The producer's configuration, under the names of Kafka's ProducerConfig. Times are milliseconds.

    It compares by value. It has no hash, since secrets have none.
    """

    __hash__ = None

    servers_advice: ClassVar[str] = (
        'Add .option("kafka.bootstrap.servers", "host:9092,…"), or give Producer {"bootstrap.servers": "host:9092,…"}'
    )

    acks: str = option(
        "all",
        "The replicas that must have a batch before it counts as written: `all` in-sync ones, the leader alone (`1`), or none "
        "(`0`: offsets stay unknown, and losses are not detected).",
        choices=("all", "-1", "1", "0"),
    )
    enable_idempotence: bool = option(
        True,
        "Brokers drop duplicates of retried batches and keep their order. Needs `acks=all` and `retries` above 0.",
    )
    batch_size: int = option(
        1000000,
        "Maximum bytes of a record batch; topics take 1 MiB. With `0` each record is a batch.",
        low=0,
        high=INT32_MAX,
        kafka_default="16384",
        unit="bytes",
    )
    linger_ms: int = option(
        500,
        "Maximum time for which a batch waits for more records. The end of a task, `flush` and a full `buffer.memory` do not "
        "wait.",
        low=0,
        high=INT32_MAX,
        kafka_default="5",
    )
    buffer_memory: int = option(
        33554432,
        "Maximum bytes of unacknowledged batches in a Python worker; while it is full, the task reads no rows. In Spark the "
        "default is a worker's share of memory, at most 268435456 (docs/options.md, Memory of a worker).",
        low=65536,
        high=INT64_MAX,
        unit="bytes",
    )
    max_request_size: int = option(
        4194304,
        "Maximum bytes of a request, and of an uncompressed row. Topics take rows of 1 MiB (`max.message.bytes`).",
        low=1024,
        high=INT32_MAX,
        kafka_default="1048576",
        unit="bytes",
    )
    max_in_flight_requests_per_connection: int = option(
        5,
        "Maximum requests in flight per broker, 5 with idempotence.",
        low=1,
        high=INT32_MAX,
    )
    max_block_ms: int = option(
        60000, "Maximum wait for the brokers, a topic's metadata, or buffer memory.", low=0, high=INT64_MAX
    )
    delivery_timeout_ms: int = option(
        120000,
        "Maximum time from a batch's creation to its acknowledgement; then the write fails. At least `linger.ms` + "
        "`request.timeout.ms`, with which the default grows.",
        low=1,
        high=INT32_MAX,
    )
    retries: int = option(
        INT32_MAX, "Maximum retries of a batch; `delivery.timeout.ms` is the better bound.", low=0, high=INT32_MAX
    )
    metadata_max_age_ms: int = option(
        300000, "Leaders and partition counts are refreshed after this time.", low=1, high=INT64_MAX
    )
    metadata_max_idle_ms: int = option(
        300000,
        "A topic's metadata is not refreshed after this time without writes.",
        low=5000,
        high=INT64_MAX,
    )
    metadata_recovery_strategy: str = option(
        "rebootstrap",
        "If no known broker can be reached: start again from `bootstrap.servers`, or `none`.",
        choices=("rebootstrap", "none"),
    )
    metadata_recovery_rebootstrap_trigger_ms: int = option(
        300000, "Start again from `bootstrap.servers` after this time without a response.", low=0, high=INT32_MAX
    )
    metrics_sample_window_ms: int = option(30000, "Time of one sample of the metrics.", low=1, high=INT64_MAX)
    metrics_num_samples: int = option(2, "Samples for rates, averages and maxima.", low=1, high=INT32_MAX)
    metrics_recording_level: str = option(
        "INFO",
        "All metrics have the level `INFO`; others add none.",
        choices=("INFO", "DEBUG", "TRACE"),
    )
    partitioner_class: str = option(
        "uniform_sticky",
        "How rows without a `partition` get one: `uniform_sticky`, `sticky`, `round_robin`, `consistent_random` …, a Java class "
        "name, or `module:function` (docs/columns.md, Which partition a row goes to).",
    )
    partitioner_ignore_keys: bool = option(False, "Rows with a key are partitioned like those without.")
    partitioner_adaptive_partitioning_enable: bool = option(
        True, "`uniform_sticky` gives fewer rows to partitions whose brokers are slow."
    )
    partitioner_availability_timeout_ms: int = option(
        0,
        "Adaptive `uniform_sticky` leaves out brokers that accept nothing for this time; 0: never.",
        low=0,
        high=INT64_MAX,
    )
    partitioner_rack_aware: bool = option(
        False, "Rows without a key stay in `client.rack`, if a partition is led there."
    )
    compression_type: str = option(
        "none",
        "Codec of batches: `none`, `gzip`, `snappy`, `lz4` or `zstd` (Kafka 2.1). A batch is filled with up to 4 MiB of rows, so "
        "that it has about `batch.size` compressed; one that does not shrink is sent uncompressed.",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
    )
    compression_gzip_level: int = option(
        -1, "Level of gzip, 1 (fast) to 9 (small); -1 leaves it to the library.", low=-1, high=9
    )
    compression_lz4_level: int = option(
        9,
        "Level of LZ4, 1 to 17. As in Java, 9 is the fastest; all others compress better.",
        low=1,
        high=17,
    )
    compression_zstd_level: int = option(
        1, "Level of zstd, up to 22. CSV and text shrink more above 1.", low=-131072, high=22, kafka_default="3"
    )

    transactional_id: str = option(
        "",
        "Name of the transactions, the same after a restart: a new producer fences earlier ones. Needs `acks=all` and "
        "idempotence. For `Producer` only.",
    )
    transaction_timeout_ms: int = option(
        60000,
        "Brokers abort a transaction that is open for longer. Its maximum is their `transaction.max.timeout.ms`, and with "
        "`exactlyOnceId` the default, up to 900000.",
        low=1,
        high=INT32_MAX,
    )

    @property
    def max_in_flight(self) -> int:
        """Maximum requests in flight per broker."""
        return self.max_in_flight_requests_per_connection

    @property
    def checks_cluster(self) -> bool:
        """Whether cluster ids are compared: if they differ, the bootstrap servers must be asked again (KIP-1242)."""
        return self.metadata_cluster_check_enable and self.metadata_recovery_strategy == "rebootstrap"

    def _check_together(self) -> None:
        """Check the rules between options (KIP-91, KIP-679). A contradiction is an error, and is never corrected silently."""
        _check_together(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """The options of the Spark sink itself, named in Spark's camelCase."""

    profile: str | None = option(
        None,
        "A set of options: `throughput`, `latency`, `small-memory`, `kafka3`, `event-hubs`, or the path of a file "
        "`….properties` on the driver. Explicit options override it.",
    )
    topic: str | None = option(None, "Topic of every row, in place of the `topic` column.")
    include_headers: bool = option(True, "`false` leaves the `headers` column out (Spark's sink writes it anyway).")
    report_path: str | None = option(
        None,
        "A folder, or a URI such as `s3://…`, for the driver's JSON report of each write (docs/reports.md). A failed report is "
        "only a warning.",
    )
    dead_letter_topic: str | None = option(
        None,
        "Existing topic for rows that cannot be written, which then do not fail the write, and for no others "
        "(docs/dead_letters.md).",
    )
    dead_letter_classes: str = option(
        "row,size,broker,schema",
        "The classes of rows that are dead letters: `row` (bad topic, header, timestamp or partition), `size`, `broker` (refused "
        "one by one), `schema`, and `topic` (of the column: missing, illegal, or without the right to write).",
        former_names=("deadLetterFor",),
    )
    max_bad_records: int = option(
        1000,
        "Maximum dead letters of a task; one more fails the write. `-1`: no maximum.",
        low=-1,
        high=INT64_MAX,
    )
    max_bad_records_ratio: float = option(
        0.1,
        "Maximum fraction of dead letters in a task's rows, counted as 1,000 at least.",
        low=0,
        high=1,
        former_names=("maxBadRatio",),
    )
    dead_letter_headers: bool = option(
        True,
        "Whether dead letters have headers with the intended topic and partition, and the error.",
    )
    exactly_once_id: str | None = option(
        None,
        "Write exactly once, under this name of one query or job: at most 100 letters, digits, `.`, `_` and `-`. Readers must "
        "set `isolation.level=read_committed` (docs/exactly_once.md).",
    )
    txn_version: int | None = option(
        None,
        "Number of a batch write with `exactlyOnceId`, which is skipped if this number or a higher one was written.",
        low=0,
        high=INT64_MAX,
    )
    exactly_once_max_inline_bytes: int = option(
        262144,
        "Maximum encoded bytes of an exactly-once task whose rows the driver sends, those of all such tasks in one transaction. "
        "A task with more has its own transaction; with `0` all have. It halves with each eight tasks from the ninth on, down to "
        "16384. So by default 48 tasks together bring 4 MiB at most, and each further one 16 KiB.",
        low=0,
        high=67108864,
        unit="bytes",
        former_names=("exactlyOnceInlineBytes",),
    )
    exactly_once_spool_to_disk: str = option(
        "auto",
        "Whether a task with its own transaction first writes its rows to `spark.local.dir`, so that the transaction is open "
        "only while they are sent. `auto`: if they arrive slowly, or the task is retried.",
        choices=("auto", "true", "false"),
        former_names=("exactlyOnceSpool",),
    )
    exactly_once_compare: str = option(
        "content",
        "What must be the same in a repeated micro-batch: the `content` (number of rows, and sum of their hashes), or the "
        "`count` alone, for queries that make new values each time (uuid, rand, a clock).",
        choices=("content", "count"),
    )
    exactly_once_control_topic: str = option(
        "__pyproducer_commits",
        "The compacted topic with the last control record of each `exactlyOnceId`.",
        former_names=("exactlyOnceTopic",),
    )
    value_format: str = option(
        "raw",
        "`avro`, `protobuf`, `json-schema`: the struct `value` is encoded in a Schema Registry's wire format (docs/avro.md, "
        "docs/protobuf.md, docs/json_schema.md). `raw`: bytes are sent as they are.",
        choices=FORMATS,
    )
    key_format: str = option("raw", "The same for keys.", choices=FORMATS)
    value_schema: str | None = option(
        None,
        "The schema, Avro or JSON Schema as JSON or the text of a `.proto` file, or a file on the driver; by default it "
        "follows from the column.",
    )
    key_schema: str | None = option(None, "The same for keys.")
    value_schema_references: str | None = option(
        None,
        "The registered schemas that `valueSchema` refers to: a JSON list of objects with `name`, `subject` and `version`, or a "
        "file on the driver.",
    )
    key_schema_references: str | None = option(None, "The same for keys.")
    value_subject: str | None = option(None, "The subject in the registry, in place of the strategy's.")
    key_subject: str | None = option(None, "The same for keys.")
    value_schema_id: int | None = option(
        None,
        "The schema id in the wire format's prefix of bytes or strings encoded elsewhere; or with `valueFormat`, the id of "
        "`valueSchema`, without a registry.",
        low=0,
        high=INT32_MAX,
    )
    key_schema_id: int | None = option(None, "The same for keys.", low=0, high=INT32_MAX)
    fill_missing_fields: str = option(
        "auto",
        "A field of the schema that the column lacks gets its default, or null if nullable; in Protobuf it is absent, and in "
        "JSON if it is not required. With `false` it is an error. `auto`: `true` with `use.latest.version`.",
        choices=("auto", "true", "false"),
    )
    value_message: str | None = option(
        None, "The name of the Protobuf message in the schema; by default its first one."
    )
    key_message: str | None = option(None, "The same for keys.")
    value_message_indexes: str | None = option(
        None, "With `valueSchemaId`, for Protobuf: the message's path in its file, `0` or `2,0`."
    )
    key_message_indexes: str | None = option(None, "The same for keys.")


KAFKA_FIELDS = kafka_fields(ProducerConfig)
"""The options of the producer, by the names that `Producer` takes: Kafka's, or one in camelCase where Kafka has no such option.
Those of connections are the first, those of security the last."""
ALIASES = {alias: name for name, field in KAFKA_FIELDS.items() for alias in field.metadata["option"].aliases}
"""Kafka's name for each alias, most of which are librdkafka's names."""
SINK_FIELDS = by_camel_case(SinkOptions)

PRODUCER_NAMES = spellings(KAFKA_FIELDS)
"""The key of `KAFKA_FIELDS` for every name that `Producer` takes, in lower case: current names, aliases and former names."""
SINK_NAMES = spellings(SINK_FIELDS)
"""The key of `SINK_FIELDS` for every name that the sink takes, in lower case: current and former names."""


def idempotent(config: ProducerConfig) -> bool:
    """Return whether the producer is idempotent: configured so, and possible with its `acks` and `retries` (KIP-679)."""
    return config.enable_idempotence and not idempotence_blockers(config)


def idempotence_blockers(config: ProducerConfig) -> list[str]:
    """Return the options that rule out idempotence, for messages: the required value of each, and its value."""
    found = [] if config.acks in ("all", "-1") else [f"kafka.acks=all (it is {config.acks})"]
    return found + ([] if config.retries > 0 else [f"kafka.retries above 0 (it is {config.retries})"])


def refuse_any_set(sink: SinkOptions, names: Iterable[str], needed: str) -> None:
    """Raise ConfigError if one of the options `names` is set. `needed` is the option that they need, and its meaning."""
    for name in names:
        field = SINK_FIELDS[name]
        if getattr(sink, field.name) != field.default:
            raise ConfigError(f"{name} needs {needed}, which is not set. Set both, or neither")


def transaction_blockers(config: ProducerConfig) -> str:
    """Return the options that rule out transactions, which need idempotence, as one text; it is empty if there are none."""
    off = [] if config.enable_idempotence else ["kafka.enable.idempotence=true (it is false)"]
    return " and ".join([*idempotence_blockers(config), *off])


def _check_together(config: ProducerConfig) -> None:
    if min(config.linger_ms + config.request_timeout_ms, INT32_MAX) > config.delivery_timeout_ms:
        raise ConfigError(
            f"kafka.delivery.timeout.ms ({config.delivery_timeout_ms}) must be at least kafka.linger.ms "
            f"({config.linger_ms}) + kafka.request.timeout.ms ({config.request_timeout_ms}). Raise it, or lower one of them"
        )
    if idempotent(config) and config.max_in_flight_requests_per_connection > 5:
        raise ConfigError(
            f"kafka.max.in.flight.requests.per.connection ({config.max_in_flight_requests_per_connection}) exceeds 5, the "
            "maximum with idempotence, since brokers remember five batches. Lower it, or set kafka.enable.idempotence to false"
        )
    if config.transactional_id and (lacking := transaction_blockers(config)):
        raise ConfigError(f"kafka.transactional.id needs {lacking}")
    if config.partitioner_rack_aware and not config.client_rack:
        raise ConfigError(
            "kafka.partitioner.rack.aware=true needs kafka.client.rack, which is not set. Set it to the rack of this producer"
        )
    if config.compression_gzip_level == 0:
        raise ConfigError(
            "kafka.compression.gzip.level must be -1 or lie between 1 and 9, not 0. Set kafka.compression.type to none to send "
            "batches uncompressed"
        )
    if config.batch_size > config.buffer_memory:
        raise ConfigError(
            f"kafka.batch.size ({config.batch_size}) exceeds kafka.buffer.memory ({config.buffer_memory}). Change one of them"
        )
