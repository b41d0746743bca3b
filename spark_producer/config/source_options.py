"""The options of the Spark source: those of Spark's Kafka source by their own names, and ours."""

from __future__ import annotations

import dataclasses

from spark_producer.common.offsets import EARLIEST
from spark_producer.config.names import by_camel_case, spellings
from spark_producer.config.option import FORMATS, INT32_MAX, INT64_MAX, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The options of a read beside those of its consumer, named in Spark's camelCase.

    `config.subscription` and `config.offset_limits` return the values that the texts here stand for.
    """

    profile: str | None = option(
        None,
        "A set of options: `event-hubs`, or the path of a file `….properties` on the driver, whose options for writes are left "
        "out. Explicit options override it.",
    )
    subscribe: str | None = option(None, "The topics to read, separated by commas.")
    subscribe_pattern: str | None = option(
        None,
        "A regular expression: all topics in whose names it is found, `^orders-.*$` for whole names.",
    )
    assign: str | None = option(None, 'The topic-partitions to read, as JSON: `{"orders":[0,1]}`.')
    starting_offsets: str | None = option(
        None,
        "`earliest` (default of a batch), `latest` (of a stream; not in a batch), or JSON with each partition: "
        '`{"orders":{"0":23,"1":-2}}`, where -2 is earliest and -1 latest. A stream that continues has its checkpoint.',
    )
    starting_timestamp: int | None = option(
        None,
        "Begin at the first record of each partition at or after this time, in milliseconds since 1970. Overrides "
        "`startingOffsetsByTimestamp` and `startingOffsets`. -2 is the earliest offset, -1 the latest.",
        low=EARLIEST,
        high=INT64_MAX,
        unit="milliseconds since 1970",
    )
    starting_offsets_by_timestamp: str | None = option(
        None, 'The same for each partition: `{"orders":{"0":1700000000000}}`. Overrides `startingOffsets`.'
    )
    starting_offsets_by_timestamp_strategy: str = option(
        "error",
        "If a starting time is after the last record of a partition: an `error`, or a start at its `latest` offset.",
        choices=("error", "latest"),
    )
    ending_offsets: str | None = option(
        None,
        "Where a batch ends: `latest` (default), or JSON with the offset after the last one of each partition; -1 is latest.",
    )
    ending_timestamp: int | None = option(
        None,
        "End before the first record of each partition at or after this time; at the latest offset without one. Overrides "
        "`endingOffsetsByTimestamp` and `endingOffsets`. -2 and -1 as for the start.",
        low=EARLIEST,
        high=INT64_MAX,
        unit="milliseconds since 1970",
    )
    ending_offsets_by_timestamp: str | None = option(None, "The same for each partition. Overrides `endingOffsets`.")
    fail_on_data_loss: bool = option(
        True,
        "Whether a query fails if offsets are not there any more (retention, a topic that was deleted or created again). With "
        "`false` a warning says so, and reading goes on with what is there.",
    )
    max_offsets_per_trigger: int | None = option(
        None,
        "Maximum offsets of a micro-batch, divided over the partitions by what each has. From Spark 4.2 on.",
        low=1,
        high=INT64_MAX,
    )
    min_offsets_per_trigger: int | None = option(
        None,
        "Minimum offsets of a micro-batch; with fewer it waits, for `maxTriggerDelay` at most. From Spark 4.2 on.",
        low=0,
        high=INT64_MAX,
    )
    max_trigger_delay: str = option(
        "15m", "Maximum wait for `minOffsetsPerTrigger`: `90s`, `15m`, `2h`; a number is milliseconds."
    )
    min_partitions: int | None = option(
        None,
        "Minimum tasks of a read: large partitions are divided. By default one for each partition.",
        low=1,
        high=INT32_MAX,
    )
    max_records_per_partition: int | None = option(
        None, "Maximum offsets of a task: partitions with more are divided.", low=1, high=INT64_MAX
    )
    min_records_per_partition: int | None = option(
        None,
        "Offsets up to which a task takes further partitions: a small micro-batch has fewer tasks and is done sooner, if each "
        "record takes little time. Not with `minPartitions`.",
        low=1,
        high=INT64_MAX,
    )
    include_headers: bool = option(False, "`true` adds the column `headers`.")
    commit_group: str | None = option(
        None,
        "Consumer group to which a stream commits the offsets of each finished micro-batch, so that Kafka's tools show its lag. "
        "The checkpoint alone decides where a stream continues.",
    )
    group_id_prefix: str | None = option(
        None, "Accepted without effect, for jobs of Spark's source: no consumer group is joined."
    )
    value_format: str = option(
        "raw",
        "`avro`, `protobuf`, `json-schema`: values in a Schema Registry's wire format become structs (docs/avro.md, "
        "docs/protobuf.md, docs/json_schema.md). `raw`: bytes as they are.",
        choices=FORMATS,
    )
    key_format: str = option("raw", "The same for keys.", choices=FORMATS)
    value_reader_schema: str | None = option(
        None,
        "The schema of the column, Avro or JSON Schema as JSON or the text of a `.proto` file, or a file on the driver; by "
        "default the latest of `<topic>-value`. A read of several topics needs it.",
    )
    key_reader_schema: str | None = option(None, "The same for keys, `<topic>-key` by default.")
    value_reader_schema_references: str | None = option(
        None,
        "The registered schemas that `valueReaderSchema` refers to: a JSON list of objects with `name`, `subject` and `version`, "
        "or a file on the driver.",
    )
    key_reader_schema_references: str | None = option(None, "The same for keys.")
    value_message: str | None = option(
        None, "The name of the Protobuf message of the column; by default the first one of the schema."
    )
    key_message: str | None = option(None, "The same for keys.")
    mode: str = option(
        "FAILFAST",
        "A record that cannot be decoded is an error (`FAILFAST`), or null (`PERMISSIVE`; Spark's `from_avro` makes a struct of "
        "nulls).",
        choices=("FAILFAST", "PERMISSIVE"),
    )

    @property
    def formats(self) -> dict[str, tuple[str, str | None]]:
        """The format and the given reader's schema of the columns that can be decoded, by their names."""
        return {
            "value": (self.value_format, self.value_reader_schema),
            "key": (self.key_format, self.key_reader_schema),
        }

    @property
    def references(self) -> dict[str, str | None]:
        """The references of the given reader's schemas, by columns."""
        return {"value": self.value_reader_schema_references, "key": self.key_reader_schema_references}

    @property
    def messages(self) -> dict[str, str | None]:
        """The names of Protobuf messages that are given, by columns."""
        return {"value": self.value_message, "key": self.key_message}


SOURCE_FIELDS = by_camel_case(SourceOptions)
"""The options of the source by the names that users write."""
SOURCE_NAMES = spellings(SOURCE_FIELDS)
"""The key of `SOURCE_FIELDS` for every name of the source in lower case."""
