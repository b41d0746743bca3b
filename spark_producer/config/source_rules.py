"""The rules between the options of a read: those of every read, of a batch, and of a stream (Spark's KafkaSourceProvider)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from spark_producer.common.escape import escaping_logger
from spark_producer.config.durations import duration_ms
from spark_producer.config.offset_limits import (
    GlobalTimestamp,
    OffsetRangeLimit,
    PartitionTimestamps,
    SpecificOffsets,
    check_texts,
    ending_limit,
    starting_limit,
)
from spark_producer.config.registry_table import FORMAT_NAMES, READ_REGISTRY_FIELDS, check_connection, check_strategies
from spark_producer.config.source_options import SOURCE_FIELDS, SourceOptions
from spark_producer.config.subscription import subscription
from spark_producer.errors import ConfigError

if TYPE_CHECKING:
    from spark_producer.config.consumer_options import ConsumerConfig
    from spark_producer.config.registry_table import RegistryOptions

logger = escaping_logger(__name__)

_ENDINGS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")


def check_source(
    config: ConsumerConfig, source: SourceOptions, registry: RegistryOptions, given: Collection[str]
) -> None:
    """Check the rules of every read; `given` has the names of all options that are set.

    Raises:
        ConfigError: a text has a wrong form, two options contradict each other, or one of ours would have no effect.
    """
    subscription(source)
    check_texts(source)
    duration_ms("maxTriggerDelay", source.max_trigger_delay)
    fewest, most = source.min_offsets_per_trigger, source.max_offsets_per_trigger
    if fewest is not None and most is not None and fewest > most:
        raise ConfigError(
            f"minOffsetsPerTrigger ({fewest}) exceeds maxOffsetsPerTrigger ({most}). Lower it, or raise the maximum"
        )
    _check_tasks(source)
    _check_group(config, source)
    _check_formats(source, registry, given)


def _check_tasks(source: SourceOptions) -> None:
    fewest, most = source.min_records_per_partition, source.max_records_per_partition
    if fewest is not None and source.min_partitions is not None:
        raise ConfigError("minPartitions and minRecordsPerPartition contradict each other. Drop one of them")
    if fewest is not None and most is not None and fewest > most:
        raise ConfigError(
            f"minRecordsPerPartition ({fewest}) exceeds maxRecordsPerPartition ({most}). Lower it, or raise the maximum"
        )


def check_batch(source: SourceOptions) -> None:
    """Check the rules of a batch, and log a warning for each option that has no effect in it, as Spark does.

    Raises:
        ConfigError: the batch starts at its end or after it, its start and end name different topic-partitions, or an option is
            for streams.
    """
    if source.commit_group is not None:
        raise ConfigError(
            "commitGroup is for streams: a batch has no progress to commit. Leave it out, or use readStream"
        )
    _check_order(starting_limit(source, streaming=False), ending_limit(source))
    for name in _given_limits(source):
        logger.warning("%s has no effect in a batch: it is for streams", name)
    _warn_of_overridden(source, _STARTS)
    _warn_of_overridden(source, _ENDINGS)


def check_stream(source: SourceOptions, *, has_read_limits: bool) -> None:
    """Check the rules of a stream; `has_read_limits` says whether this Spark passes limits to Python data sources (4.2).

    Raises:
        ConfigError: an option is for batches, or it needs a newer Spark.
    """
    for name in _ENDINGS:
        if _is_given(source, name):
            raise ConfigError(f"{name} is for batches: a stream has no end. Leave it out, or use read")
    for name in _given_limits(source):
        if not has_read_limits:
            raise ConfigError(
                f"{name} needs Spark 4.2 or newer: earlier versions pass no limits to Python data sources. Leave it out, or "
                "upgrade Spark"
            )
    starting_limit(source, streaming=True)
    _warn_of_overridden(source, _STARTS)


def _given_limits(source: SourceOptions) -> list[str]:
    names = [name for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger") if _is_given(source, name)]
    return names if source.max_trigger_delay == SourceOptions.max_trigger_delay else [*names, "maxTriggerDelay"]


def _check_group(config: ConsumerConfig, source: SourceOptions) -> None:
    if source.commit_group == "":
        raise ConfigError("commitGroup is empty. Name a consumer group, or leave it out")
    if source.commit_group is not None and config.group_id not in ("", source.commit_group):
        raise ConfigError(
            f"commitGroup ({source.commit_group}) and kafka.group.id ({config.group_id}) name different groups. Drop one of them"
        )


def _check_formats(source: SourceOptions, registry: RegistryOptions, given: Collection[str]) -> None:
    for column, (form, schema) in source.formats.items():
        if schema is not None and form == "raw":
            raise ConfigError(
                f"{column}ReaderSchema is for Avro, Protobuf and JSON Schema. Set {column}Format, or leave it out"
            )
        if schema == "":
            raise ConfigError(f"{column}ReaderSchema is empty. Give a schema, or a file on the driver")
        if source.references[column] is not None and schema is None:
            raise ConfigError(
                f"{column}ReaderSchemaReferences is for {column}ReaderSchema: the registry has what its own schemas refer to. "
                "Set the schema, or leave it out"
            )
        message = source.messages[column]
        if message is not None and form != "protobuf":
            raise ConfigError(f"{column}Message is for Protobuf. Set {column}Format to protobuf, or leave it out")
        if message == "":
            raise ConfigError(f"{column}Message is empty. Name a message of the schema, or leave it out")
    decoded = [form for form, _ in source.formats.values() if form != "raw"]
    if decoded:
        if registry.json_fail_invalid_schema and "json-schema" not in decoded:
            raise ConfigError(
                "json.fail.invalid.schema has no effect: no column is read as JSON Schema. Set valueFormat or keyFormat to "
                "json-schema, or leave it out"
            )
        check_connection(registry, form=FORMAT_NAMES[decoded[0]])
        check_strategies(registry, given)
        return
    for name in sorted(given):
        if name == "mode" or name in READ_REGISTRY_FIELDS:
            raise ConfigError(
                f"{name} has no effect: no column is decoded. Set valueFormat or keyFormat, or leave it out"
            )


def _check_order(start: OffsetRangeLimit, end: OffsetRangeLimit) -> None:
    """Check that a batch does not start after its end, and that both name the same topic-partitions."""
    if isinstance(start, GlobalTimestamp) and isinstance(end, GlobalTimestamp) and start.ms > end.ms >= 0:
        raise ConfigError(
            f"startingTimestamp ({start.ms}) is after endingTimestamp ({end.ms}): the batch would have no records. Change one of "
            "them"
        )
    if isinstance(start, SpecificOffsets) and isinstance(end, SpecificOffsets):
        names, starts, ends = ("startingOffsets", "endingOffsets"), start.offsets, end.offsets
    elif isinstance(start, PartitionTimestamps) and isinstance(end, PartitionTimestamps):
        names, starts, ends = ("startingOffsetsByTimestamp", "endingOffsetsByTimestamp"), start.ms, end.ms
    else:
        return
    if starts.keys() != ends.keys():
        only = min(starts.keys() ^ ends.keys())
        raise ConfigError(f"{names[0]} and {names[1]} differ: only one of them names {only}. Name it in both")
    for tp, number in starts.items():
        if number > ends[tp] >= 0:
            raise ConfigError(
                f"{names[0]} ({number}) is after {names[1]} ({ends[tp]}) for {tp}: the batch would have no records. Change one "
                "of them"
            )


def _warn_of_overridden(source: SourceOptions, names: tuple[str, ...]) -> None:
    """Log which options do not count, since an earlier one of `names` overrides them (Spark's precedence)."""
    first, *others = [name for name in names if _is_given(source, name)] or [""]
    if others:
        logger.warning("%s overrides %s", first, " and ".join(others))


def _is_given(source: SourceOptions, name: str) -> bool:
    return getattr(source, SOURCE_FIELDS[name].name) is not None
