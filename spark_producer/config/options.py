"""The one table of all options: name, type, range, default and documentation of each, and which values contradict each other.

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
        "", "Comma-separated `host:port` of brokers to start from; the others are learnt from them.", required=True
    )
    client_dns_lookup: str = option(
        "use_all_dns_ips",
        "All addresses of a host are tried, one after the other. Canonical names, which only Kerberos needs, are not.",
        choices=("use_all_dns_ips",),
    )
    client_id: str = option("pyproducer", "Name under which the brokers log and meter this producer.")
    acks: str = option(
        "all",
        "Who must have a batch before it counts as written: `all` in-sync replicas, the leader alone (`1`), or nobody (`0`: "
        "a batch counts as written once it is sent, offsets stay unknown, and nobody notices a loss).",
        choices=("all", "-1", "1", "0"),
    )
    enable_idempotence: bool = option(
        True,
        "The broker drops duplicates of retried batches and keeps their order. Needs `acks=all` and `retries` above 0.",
    )
    batch_size: int = option(
        1000000,
        "Bytes of one record batch; topics take 1 MiB. A batch costs the same whatever its size; with `0` each record is one.",
        low=0,
        high=INT32_MAX,
        kafka_default="16384",
        unit="bytes",
    )
    linger_ms: int = option(
        500,
        "How long a batch may wait to fill. The end of a task, `flush` and a full `buffer.memory` do not wait for that: they "
        "send everything at once. It only bounds the delay while Spark has no more rows for a task.",
        low=0,
        high=INT32_MAX,
        kafka_default="5",
    )
    buffer_memory: int = option(
        33554432,
        "Bytes of encoded batches that wait or are in flight, per Python worker. A full pool stops the task from reading. "
        "In Spark the default is what a worker can have of its executor, at most 268435456 (docs/options.md, Memory of a "
        "worker).",
        low=65536,
        high=INT64_MAX,
        unit="bytes",
    )
    max_request_size: int = option(
        4194304,
        "Largest request, and largest row, in bytes (uncompressed). Topics take rows of 1 MiB (`max.message.bytes`).",
        low=1024,
        high=INT32_MAX,
        kafka_default="1048576",
        unit="bytes",
    )
    max_in_flight_requests_per_connection: int = option(
        5,
        "Requests sent to one broker before the first is answered. At most 5 with idempotence.",
        low=1,
        high=INT32_MAX,
    )
    max_block_ms: int = option(
        60000, "Longest wait for the brokers, a topic's metadata, or room in the pool.", low=0, high=INT64_MAX
    )
    delivery_timeout_ms: int = option(
        120000,
        "Longest time from a batch's creation to its acknowledgement, retries included; then the write fails. At least "
        "`linger.ms` + `request.timeout.ms`; the default grows with them.",
        low=1,
        high=INT32_MAX,
    )
    request_timeout_ms: int = option(
        30000,
        "Longest wait for the answer to one request; then the connection is closed and the request is sent again.",
        low=1,
        high=INT32_MAX,
    )
    retries: int = option(
        INT32_MAX, "How often a batch is sent again; `delivery.timeout.ms` is the better bound.", low=0, high=INT32_MAX
    )
    retry_backoff_ms: int = option(100, "First pause before a retry; doubles with each, ±20 %.", low=0, high=INT32_MAX)
    retry_backoff_max_ms: int = option(1000, "Longest pause before a retry.", low=0, high=INT32_MAX)
    reconnect_backoff_ms: int = option(
        50, "First pause before connecting again; doubles with each failure, ±20 %.", low=0, high=INT32_MAX
    )
    reconnect_backoff_max_ms: int = option(
        1000,
        "Longest pause before connecting again. If only `reconnect.backoff.ms` is set, the same: the pauses do not grow.",
        low=0,
        high=INT32_MAX,
    )
    socket_connection_setup_timeout_ms: int = option(
        10000, "Longest wait for a connection; doubles with each failure, ±20 %.", low=1, high=INT32_MAX
    )
    socket_connection_setup_timeout_max_ms: int = option(
        30000, "Longest wait for a connection after several failures.", low=1, high=INT32_MAX
    )
    connections_max_idle_ms: int = option(
        540000, "An idle connection is closed after this time.", low=1, high=INT64_MAX
    )
    metadata_max_age_ms: int = option(
        300000, "Leaders and partition counts are asked for again after this time.", low=1, high=INT64_MAX
    )
    metadata_max_idle_ms: int = option(
        300000, "A topic that nothing was written to for this time is not asked for any more.", low=5000, high=INT64_MAX
    )
    metadata_recovery_strategy: str = option(
        "rebootstrap",
        "What to do when no known broker can be reached: start again from `bootstrap.servers`, or `none`.",
        choices=("rebootstrap", "none"),
    )
    metadata_recovery_rebootstrap_trigger_ms: int = option(
        300000, "Start again from `bootstrap.servers` after this time without an answer.", low=0, high=INT32_MAX
    )
    send_buffer_bytes: int = option(
        -1,
        "SO_SNDBUF of the connections; -1 leaves it to the system, which tunes it by itself.",
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
        30000, "How long a sample of the metrics takes in values.", low=1, high=INT64_MAX
    )
    metrics_num_samples: int = option(2, "Samples that rates, averages and maxima are made of.", low=1, high=INT32_MAX)
    metrics_recording_level: str = option(
        "INFO", "A producer's metrics are all of level `INFO`: the others add none.", choices=("INFO", "DEBUG", "TRACE")
    )
    partitioner_class: str = option(
        "uniform_sticky",
        "How rows without a `partition` are placed: `uniform_sticky`, `sticky`, `round_robin`, `consistent_random` …, one of "
        "Java's class names, or `module:function` (docs/columns.md, Which partition a row goes to).",
    )
    partitioner_ignore_keys: bool = option(False, "Rows with a key are placed like those without.")
    partitioner_adaptive_partitioning_enable: bool = option(
        True, "`uniform_sticky` gives less to partitions whose brokers are behind."
    )
    partitioner_availability_timeout_ms: int = option(
        0,
        "`uniform_sticky`, adaptive, leaves out brokers that take nothing for this long while another one takes rows; 0: never.",
        low=0,
        high=INT64_MAX,
    )
    partitioner_rack_aware: bool = option(
        False, "Rows without a key stay in the rack `client.rack`, if a partition is led there."
    )
    client_rack: str = option("", "The rack in which this producer runs, as the brokers' `broker.rack` names it.")
    compression_type: str = option(
        "none",
        "Codec of the batches: `none`, `gzip`, `snappy`, `lz4` or `zstd`. Up to 4 MiB of rows fill a batch of about "
        "`batch.size` compressed; one that does not get smaller goes out as it is. `zstd` needs Kafka 2.1.",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
    )
    compression_gzip_level: int = option(
        -1, "Level of gzip, 1 (fast) to 9 (small); -1 leaves it to the library.", low=-1, high=9
    )
    compression_lz4_level: int = option(
        9,
        "Level of LZ4, 1 to 17. As in Java's client, 9 is the fast one; all others pack smaller, and slower.",
        low=1,
        high=17,
    )
    compression_zstd_level: int = option(
        1, "Level of zstd, up to 22. CSV and texts pack smaller above 1.", low=-131072, high=22, kafka_default="3"
    )

    transactional_id: str = option(
        "",
        "Name of this producer's transactions, which stays the same over its restarts: each new one fences off those before it. "
        "Needs `acks=all` and idempotence. For `Producer` only; the sink takes none.",
    )
    transaction_timeout_ms: int = option(
        60000,
        "The brokers abort a transaction that is open for longer. Their `transaction.max.timeout.ms` is the most they take. "
        "With `exactlyOnceId` the default is that most, up to 900000.",
        low=1,
        high=INT32_MAX,
    )

    def __post_init__(self) -> None:
        if not self.bootstrap_servers.strip():
            raise ConfigError(
                'kafka.bootstrap.servers is not set: add .option("kafka.bootstrap.servers", "host:9092,…"), or give Producer '
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
        "Options that belong together, by a name: `throughput`, `latency`, `small-memory`, `kafka3`, `event-hubs`; or the path "
        "of a file `….properties` in the form of Kafka's own tools, read on the driver. Options that are set themselves win.",
    )
    topic: str | None = option(None, "Topic of every row. Overrides the `topic` column; one of the two is needed.")
    include_headers: bool = option(
        True, "`false` leaves the `headers` column out. (Spark's own sink lists this option and writes headers anyway.)"
    )
    report_path: str | None = option(
        None,
        "A folder, or a URI such as `s3://…`, into which the driver writes a JSON file about each write: what was written where "
        "(docs/reports.md). If that fails, the write has happened all the same, and a warning says so.",
    )
    dead_letter_topic: str | None = option(
        None,
        "Topic for rows that cannot be written, which then do not end the write (docs/dead_letters.md). It must exist, and have "
        "no other rows.",
    )
    dead_letter_classes: str = option(
        "row,size,broker,schema",
        "With `deadLetterTopic`: the classes of rows that go there: `row` (a bad topic, header, timestamp or partition), `size`, "
        "`broker` (refused one by one), `schema`, and `topic` (of the column: missing, illegal, or without the right to write).",
        former_names=("deadLetterFor",),
    )
    max_bad_records: int = option(
        1000,
        "With `deadLetterTopic`: the most rows of a task that may go there; one more ends the write. `-1`: any number.",
        low=-1,
        high=INT64_MAX,
    )
    max_bad_records_ratio: float = option(
        0.1,
        "With `deadLetterTopic`: the largest part of a task's rows that may go there. A task of fewer than 1,000 rows counts as "
        "one of 1,000.",
        low=0,
        high=1,
        former_names=("maxBadRatio",),
    )
    dead_letter_headers: bool = option(
        True,
        "With `deadLetterTopic`: whether headers of each record there say where it was meant to go, and what was wrong.",
    )
    exactly_once_id: str | None = option(
        None,
        "Write exactly once, under this name: letters, digits, `.`, `_`, `-`, at most 100. One query or job has it, for ever. "
        "Readers must set `isolation.level=read_committed` (docs/exactly_once.md).",
    )
    txn_version: int | None = option(
        None,
        "Number of a batch write with `exactlyOnceId`: if this number, or a higher one, was written before, nothing is.",
        low=0,
        high=INT64_MAX,
    )
    exactly_once_max_inline_bytes: int = option(
        4194304,
        "With `exactlyOnceId`: up to this many encoded bytes of a task are sent by the driver, all tasks in one transaction. "
        "Tasks with more have transactions of their own; with `0` all have. From the ninth task on it is less: half for each "
        "eight tasks, but not below 16384, so that hundreds of tasks together bring the driver 64 MiB at most.",
        low=0,
        high=67108864,
        unit="bytes",
        former_names=("exactlyOnceInlineBytes",),
    )
    exactly_once_spool_to_disk: str = option(
        "auto",
        "With `exactlyOnceId`: whether a task with a transaction of its own first writes its rows to a file in "
        "`spark.local.dir`, so that the transaction is open only while they are sent. `auto`: if they arrive slowly, or the "
        "task is tried again.",
        choices=("auto", "true", "false"),
        former_names=("exactlyOnceSpool",),
    )
    exactly_once_compare: str = option(
        "content",
        "With `exactlyOnceId`, in micro-batches: what of a batch that is committed must be the same if Spark runs it again. "
        "`content`: the number of its rows, and the sum of their hashes in any order. `count`: the number alone, for queries "
        "that make new values each time (uuid, rand, a clock).",
        choices=("content", "count"),
    )
    exactly_once_control_topic: str = option(
        "__pyproducer_commits",
        "With `exactlyOnceId`: the compacted topic that has the last commit of each id.",
        former_names=("exactlyOnceTopic",),
    )
    value_format: str = option(
        "raw",
        "`avro`: the column `value`, a struct, is encoded as Avro in the frame of a Schema Registry (docs/avro.md). `raw`: its "
        "bytes go out as they are.",
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
        "A binary or string column gets the frame of this schema id, for bytes encoded elsewhere. With `valueFormat=avro` and "
        "`valueSchema`: the id of that schema, and no registry is asked.",
        low=0,
        high=INT32_MAX,
    )
    key_schema_id: int | None = option(None, "The same for keys.", low=0, high=INT32_MAX)
    fill_missing_fields: str = option(
        "auto",
        "A field of the Avro schema that the column lacks gets its default, or null if it has none and takes null. `auto`: where "
        "the schema is the registry's latest (`use.latest.version=true`). `false`: it is an error.",
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
    return head + "".join(word.capitalize() for word in rest)


def _by_name(table: type[SecurityOptions]) -> dict[str, dataclasses.Field[object]]:
    fields = dataclasses.fields(table)
    return {field.metadata["option"].name or kafka_name(field.name): field for field in fields}


SECURITY_FIELDS = _by_name(SecurityOptions)
_BY_NAME = _by_name(ProducerConfig)
KAFKA_FIELDS = {name: field for name, field in _BY_NAME.items() if name not in SECURITY_FIELDS} | SECURITY_FIELDS
"""The options of the producer, by the names that `Producer` takes: Kafka's, or one in camelCase where Kafka has no such option.
Those of security are the last."""
ALIASES = {alias: name for name, field in KAFKA_FIELDS.items() for alias in field.metadata["option"].aliases}
"""Other names of some of them, with Kafka's name of each."""
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
    """Whether the producer is idempotent: this is asked for, and possible with its `acks` and `retries` (KIP-679)."""
    return config.enable_idempotence and not idempotence_blockers(config)


def idempotence_blockers(config: ProducerConfig) -> list[str]:
    """Return what stands in the way of idempotence, for messages: each option that must be another, and what it is."""
    found = [] if config.acks in ("all", "-1") else [f"kafka.acks=all (it is {config.acks})"]
    return found + ([] if config.retries > 0 else [f"kafka.retries above 0 (it is {config.retries})"])


def transaction_blockers(config: ProducerConfig) -> str:
    """Return the same for transactions, which need idempotence; an empty text if nothing is lacking."""
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
            f"({config.linger_ms}) + kafka.request.timeout.ms ({config.request_timeout_ms})"
        )
    if idempotent(config) and config.max_in_flight_requests_per_connection > 5:
        raise ConfigError(
            "kafka.max.in.flight.requests.per.connection is at most 5 with idempotence, since brokers remember "
            "five batches; lower it or set kafka.enable.idempotence to false"
        )
    if config.transactional_id and (lacking := transaction_blockers(config)):
        raise ConfigError(f"kafka.transactional.id needs {lacking}")
    if config.partitioner_rack_aware and not config.client_rack:
        raise ConfigError("kafka.partitioner.rack.aware needs kafka.client.rack, the rack in which this producer runs")
    if config.compression_gzip_level == 0:
        raise ConfigError(
            "kafka.compression.gzip.level is -1 or lies between 1 and 9; for 0 set kafka.compression.type to none"
        )
    if config.batch_size > config.buffer_memory:
        raise ConfigError(
            f"kafka.batch.size ({config.batch_size}) exceeds kafka.buffer.memory ({config.buffer_memory}): change one of them"
        )
    if any(getattr(config, field.name) != field.default for field in SECURITY_FIELDS.values()):
        from spark_producer.config.security_rules import check_security  # only those who ask for security pay for it

        check_security(config)
