"""The table of all options: name, type, range, default and documentation of each, and the rules between them.

The two dataclasses below are the table: a field is an option (`batch_size` is `kafka.batch.size`, `include_headers` is
`includeHeaders`), with its documentation in its metadata. `ProducerConfig` inherits the options of security.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from spark_producer.common.secret import Secret
from spark_producer.config.option import INT32_MAX, INT64_MAX, is_secret, option, parse_secret, parse_value
from spark_producer.config.security_table import SecurityOptions
from spark_producer.config.unsupported import KAFKA_PREFIX
from spark_producer.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProducerConfig(SecurityOptions):
    """The producer's configuration, under the names of Kafka's ProducerConfig. Times are milliseconds.

    It compares by value. It has no hash, since secrets have none.
    """

    __hash__ = None  # type: ignore[assignment]  # else a configuration could be a key until the first secret is in it

    bootstrap_servers: str = option(
        "",
        "Comma-separated `host:port` of brokers for the first connection; the others follow from their metadata.",
        required=True,
    )
    client_dns_lookup: str = option(
        "use_all_dns_ips",
        "All addresses of a host are tried in turn. Canonical names are not looked up; only Kerberos needs them.",
        choices=("use_all_dns_ips",),
    )
    client_id: str = option("pyproducer", "Name under which the brokers log and meter this producer.")
    acks: str = option(
        "all",
        "The replicas that must have a batch before it counts as written: `all` in-sync replicas, the leader alone (`1`), or "
        "none (`0`: a batch counts as written once it is sent, offsets stay unknown, and losses are not detected).",
        choices=("all", "-1", "1", "0"),
    )
    enable_idempotence: bool = option(
        True,
        "The broker drops duplicates of retried batches and keeps their order. Needs `acks=all` and `retries` above 0.",
    )
    batch_size: int = option(
        1000000,
        "Maximum bytes of one record batch; topics take 1 MiB. Each batch has the same fixed cost; with `0` each record is a "
        "batch.",
        low=0,
        high=INT32_MAX,
        kafka_default="16384",
        unit="bytes",
    )
    linger_ms: int = option(
        500,
        "Maximum time for which a batch waits for more records. The end of a task, `flush` and a full `buffer.memory` send "
        "everything at once, so it only bounds the delay while Spark has no more rows for a task.",
        low=0,
        high=INT32_MAX,
        kafka_default="5",
    )
    buffer_memory: int = option(
        33554432,
        "Bytes of encoded batches that wait or are in flight, per Python worker. While the pool is full, the task reads no rows. "
        "In Spark the default is a worker's share of its executor's memory, at most 268435456 (docs/options.md, Memory of a "
        "worker).",
        low=65536,
        high=INT64_MAX,
        unit="bytes",
    )
    max_request_size: int = option(
        4194304,
        "Maximum size of a request, and of a row, in bytes (uncompressed). Topics take rows of 1 MiB (`max.message.bytes`).",
        low=1024,
        high=INT32_MAX,
        kafka_default="1048576",
        unit="bytes",
    )
    max_in_flight_requests_per_connection: int = option(
        5,
        "Maximum requests in flight per broker. At most 5 with idempotence.",
        low=1,
        high=INT32_MAX,
    )
    max_block_ms: int = option(
        60000, "Maximum wait for the brokers, a topic's metadata, or buffer memory.", low=0, high=INT64_MAX
    )
    delivery_timeout_ms: int = option(
        120000,
        "Maximum time from a batch's creation to its acknowledgement, retries included; then the write fails. At least "
        "`linger.ms` + `request.timeout.ms`; the default grows with them.",
        low=1,
        high=INT32_MAX,
    )
    request_timeout_ms: int = option(
        30000,
        "Maximum wait for the response to one request; then the connection is closed and the request is sent again.",
        low=1,
        high=INT32_MAX,
    )
    retries: int = option(
        INT32_MAX, "Maximum retries of a batch; `delivery.timeout.ms` is the better bound.", low=0, high=INT32_MAX
    )
    retry_backoff_ms: int = option(100, "First pause before a retry; doubles with each, ±20 %.", low=0, high=INT32_MAX)
    retry_backoff_max_ms: int = option(1000, "Maximum pause before a retry.", low=0, high=INT32_MAX)
    reconnect_backoff_ms: int = option(
        50, "First pause before reconnecting; doubles with each failure, ±20 %.", low=0, high=INT32_MAX
    )
    reconnect_backoff_max_ms: int = option(
        1000,
        "Maximum pause before reconnecting. If only `reconnect.backoff.ms` is set, it is the same, and pauses do not grow.",
        low=0,
        high=INT32_MAX,
    )
    socket_connection_setup_timeout_ms: int = option(
        10000, "Maximum wait for a connection; doubles with each failure, ±20 %.", low=1, high=INT32_MAX
    )
    socket_connection_setup_timeout_max_ms: int = option(
        30000, "Maximum wait for a connection after several failures.", low=1, high=INT32_MAX
    )
    connections_max_idle_ms: int = option(
        540000, "An idle connection is closed after this time.", low=1, high=INT64_MAX
    )
    metadata_max_age_ms: int = option(
        300000, "Leaders and partition counts are refreshed after this time.", low=1, high=INT64_MAX
    )
    metadata_max_idle_ms: int = option(
        300000,
        "The metadata of a topic without writes for this time is not refreshed any more.",
        low=5000,
        high=INT64_MAX,
    )
    metadata_recovery_strategy: str = option(
        "rebootstrap",
        "What to do when no known broker can be reached: start again from `bootstrap.servers`, or `none`.",
        choices=("rebootstrap", "none"),
    )
    metadata_recovery_rebootstrap_trigger_ms: int = option(
        300000, "Start again from `bootstrap.servers` after this time without a response.", low=0, high=INT32_MAX
    )
    send_buffer_bytes: int = option(
        -1,
        "SO_SNDBUF of the connections; -1 leaves it to the system, which tunes it.",
        low=-1,
        high=INT32_MAX,
        kafka_default="131072",
        unit="bytes",
    )
    receive_buffer_bytes: int = option(
        -1,
        "SO_RCVBUF of the connections; -1 leaves it to the system.",
        low=-1,
        high=INT32_MAX,
        kafka_default="32768",
        unit="bytes",
    )
    metrics_sample_window_ms: int = option(
        30000, "The time that one sample of the metrics covers.", low=1, high=INT64_MAX
    )
    metrics_num_samples: int = option(
        2, "The number of samples of which rates, averages and maxima are computed.", low=1, high=INT32_MAX
    )
    metrics_recording_level: str = option(
        "INFO",
        "All metrics of a producer have the level `INFO`; the other levels add none.",
        choices=("INFO", "DEBUG", "TRACE"),
    )
    partitioner_class: str = option(
        "uniform_sticky",
        "How rows without a `partition` get one: `uniform_sticky`, `sticky`, `round_robin`, `consistent_random` …, one of "
        "Java's class names, or `module:function` (docs/columns.md, Which partition a row goes to).",
    )
    partitioner_ignore_keys: bool = option(False, "Rows with a key get their partition like rows without one.")
    partitioner_adaptive_partitioning_enable: bool = option(
        True, "`uniform_sticky` gives fewer rows to partitions whose brokers are slow."
    )
    partitioner_availability_timeout_ms: int = option(
        0,
        "Adaptive `uniform_sticky` leaves out brokers that accept nothing for this time while others accept rows; 0: never.",
        low=0,
        high=INT64_MAX,
    )
    partitioner_rack_aware: bool = option(
        False, "Rows without a key stay in the rack `client.rack`, if a partition is led there."
    )
    client_rack: str = option("", "The rack in which this producer runs, as the brokers' `broker.rack` names it.")
    compression_type: str = option(
        "none",
        "Codec of the batches: `none`, `gzip`, `snappy`, `lz4` or `zstd`. A batch is filled with up to 4 MiB of rows, so that "
        "it has about `batch.size` compressed; a batch that does not shrink is sent uncompressed. `zstd` needs Kafka 2.1.",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
    )
    compression_gzip_level: int = option(
        -1, "Level of gzip, 1 (fast) to 9 (small); -1 leaves it to the library.", low=-1, high=9
    )
    compression_lz4_level: int = option(
        9,
        "Level of LZ4, 1 to 17. As in Java's client, 9 is the fastest; all others compress better, and are slower.",
        low=1,
        high=17,
    )
    compression_zstd_level: int = option(
        1, "Level of zstd, up to 22. CSV and texts compress better above 1.", low=-131072, high=22, kafka_default="3"
    )

    transactional_id: str = option(
        "",
        "Name of this producer's transactions, the same after a restart: each new producer fences earlier ones. Needs "
        "`acks=all` and idempotence. For `Producer` only; the sink does not take it.",
    )
    transaction_timeout_ms: int = option(
        60000,
        "The brokers abort a transaction that is open for longer. Its maximum is their `transaction.max.timeout.ms`. With "
        "`exactlyOnceId` the default is that maximum, up to 900000.",
        low=1,
        high=INT32_MAX,
    )

    def __post_init__(self) -> None:
        if not self.bootstrap_servers.strip():
            raise ConfigError(
                'kafka.bootstrap.servers is not set. Add .option("kafka.bootstrap.servers", "host:9092,…"), or give Producer '
                '{"bootstrap.servers": "host:9092,…"}'
            )
        for name, field in KAFKA_FIELDS.items():
            value = getattr(self, field.name)
            if is_secret(field):
                _check_secret(name, field.name, value)
                continue
            parsed = parse_value(data_source_name(name), field, str(value))
            if type(value) is not type(parsed) or parsed != value:
                raise ConfigError(f"{field.name}={value!r} is not in its final form: write {parsed!r}")
        _check_together(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """The options of the Spark sink itself, named in Spark's camelCase."""

    profile: str | None = option(
        None,
        "A named set of options: `throughput`, `latency`, `small-memory`, `kafka3`, `event-hubs`; or the path of a file "
        "`….properties` in the format of Kafka's own tools, read on the driver. Options that are set explicitly override it.",
    )
    topic: str | None = option(None, "Topic of every row. Overrides the `topic` column; one of the two is needed.")
    include_headers: bool = option(
        True, "`false` leaves the `headers` column out. (Spark's own sink lists this option and writes headers anyway.)"
    )
    report_path: str | None = option(
        None,
        "A folder, or a URI such as `s3://…`, into which the driver writes a JSON report of each write (docs/reports.md). If "
        "that fails, a warning is logged, and the write is not affected.",
    )
    dead_letter_topic: str | None = option(
        None,
        "Topic for rows that cannot be written, which then do not fail the write (docs/dead_letters.md). It must exist, and "
        "have no other rows.",
    )
    dead_letter_classes: str = option(
        "row,size,broker,schema",
        "With `deadLetterTopic`: the classes of rows that go there: `row` (a bad topic, header, timestamp or partition), `size`, "
        "`broker` (refused one by one), `schema`, and `topic` (of the column: missing, illegal, or without the right to write).",
        former_names=("deadLetterFor",),
    )
    max_bad_records: int = option(
        1000,
        "With `deadLetterTopic`: the maximum rows of a task that go there; one more fails the write. `-1`: no maximum.",
        low=-1,
        high=INT64_MAX,
    )
    max_bad_records_ratio: float = option(
        0.1,
        "With `deadLetterTopic`: the maximum fraction of a task's rows that go there. A task of fewer than 1,000 rows counts as "
        "one of 1,000.",
        low=0,
        high=1,
        former_names=("maxBadRatio",),
    )
    dead_letter_headers: bool = option(
        True,
        "With `deadLetterTopic`: whether each record there has headers with its intended topic and partition, and the error.",
    )
    exactly_once_id: str | None = option(
        None,
        "Write exactly once, under this name: at most 100 letters, digits, `.`, `_` and `-`. It belongs to one query or job for "
        "good. Readers must set `isolation.level=read_committed` (docs/exactly_once.md).",
    )
    txn_version: int | None = option(
        None,
        "Number of a batch write with `exactlyOnceId`: the write is skipped if this number, or a higher one, was written before.",
        low=0,
        high=INT64_MAX,
    )
    exactly_once_max_inline_bytes: int = option(
        4194304,
        "With `exactlyOnceId`: the maximum encoded bytes of a task that the driver sends, for all tasks in one transaction. A "
        "task with more has its own transaction; with `0` all have. From the ninth task on the maximum halves with each eight "
        "tasks, down to 16384, so that hundreds of tasks together bring the driver 64 MiB at most.",
        low=0,
        high=67108864,
        unit="bytes",
        former_names=("exactlyOnceInlineBytes",),
    )
    exactly_once_spool_to_disk: str = option(
        "auto",
        "With `exactlyOnceId`: whether a task with its own transaction first writes its rows to a file in `spark.local.dir`, so "
        "that the transaction is open only while they are sent. `auto`: if they arrive slowly, or the task is retried.",
        choices=("auto", "true", "false"),
        former_names=("exactlyOnceSpool",),
    )
    exactly_once_compare: str = option(
        "content",
        "With `exactlyOnceId`, in micro-batches: what must be the same if Spark repeats a committed batch. `content`: the "
        "number of its rows, and the sum of their hashes in any order. `count`: the number alone, for queries that make new "
        "values each time (uuid, rand, a clock).",
        choices=("content", "count"),
    )
    exactly_once_control_topic: str = option(
        "__pyproducer_commits",
        "With `exactlyOnceId`: the compacted topic with the last control record of each id.",
        former_names=("exactlyOnceTopic",),
    )
    value_format: str = option(
        "raw",
        "`avro`: the column `value`, a struct, is encoded as Avro in a Schema Registry's wire format (docs/avro.md). `raw`: its "
        "bytes are sent as they are.",
        choices=("raw", "avro"),
    )
    key_format: str = option("raw", "The same for the column `key`.", choices=("raw", "avro"))
    value_schema: str | None = option(
        None,
        "The Avro schema of values, as JSON or as the path of a file on the driver; by default it follows from the column.",
    )
    key_schema: str | None = option(None, "The same for keys.")
    value_subject: str | None = option(None, "The subject of values in the registry, in place of the strategy's.")
    key_subject: str | None = option(None, "The same for keys.")
    value_schema_id: int | None = option(
        None,
        "A binary or string column gets the wire format's prefix with this schema id, for bytes encoded elsewhere. With "
        "`valueFormat=avro` and `valueSchema`: the id of that schema, and no registry is used.",
        low=0,
        high=INT32_MAX,
    )
    key_schema_id: int | None = option(None, "The same for keys.", low=0, high=INT32_MAX)
    fill_missing_fields: str = option(
        "auto",
        "A field of the Avro schema that the column lacks gets its default, or null if it has none and is nullable. `auto`: "
        "only if the schema is the registry's latest (`use.latest.version=true`). `false`: it is an error.",
        choices=("auto", "true", "false"),
    )
    value_message_indexes: str | None = option(
        None, "With `valueSchemaId`, for Protobuf: the path of the message in its file, `0` or `2,0`."
    )
    key_message_indexes: str | None = option(None, "The same for keys.")


def kafka_name(field: str) -> str:
    """Return Kafka's name of an option: `batch_size` → `batch.size`."""
    return field.replace("_", ".")


def sink_name(field: str) -> str:
    """Return the sink's name of an option: `include_headers` → `includeHeaders`."""
    head, *rest = field.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _by_name(table: type[SecurityOptions]) -> dict[str, dataclasses.Field[object]]:
    fields = dataclasses.fields(table)
    return {field.metadata["option"].name or kafka_name(field.name): field for field in fields}


SECURITY_FIELDS = _by_name(SecurityOptions)
_BY_NAME = _by_name(ProducerConfig)
KAFKA_FIELDS = {name: field for name, field in _BY_NAME.items() if name not in SECURITY_FIELDS} | SECURITY_FIELDS
"""The options of the producer, by the names that `Producer` takes: Kafka's, or one in camelCase where Kafka has no such option.
Those of security are the last."""
ALIASES = {alias: name for name, field in KAFKA_FIELDS.items() for alias in field.metadata["option"].aliases}
"""Kafka's name for each alias, most of which are librdkafka's names."""
SINK_FIELDS = {sink_name(field.name): field for field in dataclasses.fields(SinkOptions)}


def _spellings(fields: Mapping[str, dataclasses.Field[object]]) -> dict[str, str]:
    rows = {name: field.metadata["option"] for name, field in fields.items()}
    return {each.lower(): name for name, row in rows.items() for each in (name, *row.aliases, *row.former_names)}


PRODUCER_NAMES = _spellings(KAFKA_FIELDS)
"""The key of `KAFKA_FIELDS` for every name that `Producer` takes, in lower case: current names, aliases and former names."""
SINK_NAMES = _spellings(SINK_FIELDS)
"""The key of `SINK_FIELDS` for every name that the sink takes, in lower case: current and former names."""


def data_source_name(name: str) -> str:
    """Return the data source's name of an option that `Producer` takes by `name`: `kafka.batch.size`, `secretsAllow`."""
    field = KAFKA_FIELDS.get(PRODUCER_NAMES.get(name.lower(), ""))
    own = "" if field is None else field.metadata["option"].name
    return name if own.lower() == name.lower() else KAFKA_PREFIX + name


def idempotent(config: ProducerConfig) -> bool:
    """Return whether the producer is idempotent: configured so, and possible with its `acks` and `retries` (KIP-679)."""
    return config.enable_idempotence and not idempotence_blockers(config)


def idempotence_blockers(config: ProducerConfig) -> list[str]:
    """Return the options that rule out idempotence, for messages: the required value of each, and its value."""
    found = [] if config.acks in ("all", "-1") else [f"kafka.acks=all (it is {config.acks})"]
    return found + ([] if config.retries > 0 else [f"kafka.retries above 0 (it is {config.retries})"])


def transaction_blockers(config: ProducerConfig) -> str:
    """Return the options that rule out transactions, which need idempotence, as one text; it is empty if there are none."""
    off = [] if config.enable_idempotence else ["kafka.enable.idempotence=true (it is false)"]
    return " and ".join([*idempotence_blockers(config), *off])


def _check_secret(name: str, field: str, value: object) -> None:
    if value is not None and not isinstance(value, Secret):
        raise ConfigError(f"{field} is not in its final form: it is a Secret (spark_producer.common.secret), or None")
    if value is not None and parse_secret(KAFKA_PREFIX + name, value) != value:
        raise ConfigError(f"{field} is not in its final form: it is empty, or has white space around it")


def _check_together(config: ProducerConfig) -> None:
    """Check the rules between options (KIP-91, KIP-679). A contradiction is an error, and is never corrected silently."""
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
    if any(getattr(config, field.name) != field.default for field in SECURITY_FIELDS.values()):
        from spark_producer.config.security_rules import check_security  # loaded only where security is configured

        check_security(config)
