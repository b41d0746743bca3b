"""Options that have no place in a read, and the messages about them: those of writes, of other consumers, and misspelt ones."""

from __future__ import annotations

from collections.abc import Mapping

from spark_producer.config.consumer_options import CONSUMER_NAMES
from spark_producer.config.options import PRODUCER_NAMES, SINK_NAMES
from spark_producer.config.registry_table import READ_REGISTRY_FIELDS, REGISTRY_FIELDS
from spark_producer.config.source_options import SOURCE_NAMES
from spark_producer.config.unsupported import (
    CHECKPOINT_OPTIONS,
    KAFKA_PREFIX,
    LIBRDKAFKA,
    SECURITY_UNSUPPORTED,
    bare_name,
    family_reason,
    nearest,
    with_prefix,
    wrong_prefix,
)

_GROUP = "no consumer group is joined: Spark assigns the partitions to tasks"
_CAST = "keys and values are binary columns. Cast the column, or set valueFormat or keyFormat"
_METRICS = "a read has Spark's metrics: StreamingQueryProgress, and the page of the stage"
_COMMITS = (
    "the offsets of a stream are in its checkpoint. Set commitGroup to commit them to a group, for Kafka's tools, too"
)
_METADATA = "topics and leaders are looked up at each trigger and for each task, beginning with the bootstrap servers"
_SHARES = "share groups are not supported"

UNSUPPORTED_READS: Mapping[str, str] = SECURITY_UNSUPPORTED | {
    "auto.offset.reset": "set startingOffsets to earliest or latest; a stream that continues starts where its checkpoint says",
    "enable.auto.commit": _COMMITS,
    "auto.commit.interval.ms": _COMMITS,
    "key.deserializer": _CAST,
    "value.deserializer": _CAST,
    "interceptor.classes": "Java classes cannot run here. Change the DataFrame after the read",
    "session.timeout.ms": _GROUP,
    "heartbeat.interval.ms": _GROUP,
    "max.poll.interval.ms": _GROUP,
    "group.instance.id": _GROUP,
    "group.protocol": _GROUP,
    "group.remote.assignor": _GROUP,
    "partition.assignment.strategy": _GROUP,
    "internal.leave.group.on.close": _GROUP,
    "max.poll.records": "maxOffsetsPerTrigger bounds a micro-batch, maxRecordsPerPartition a task",
    "exclude.internal.topics": "internal topics match no pattern. Name one in subscribe to read it",
    "allow.auto.create.topics": "a read never creates topics",
    "metric.reporters": _METRICS,
    "auto.include.jmx.reporter": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS,
    "metadata.max.age.ms": _METADATA,
    "metadata.max.idle.ms": _METADATA,
    "metadata.recovery.strategy": _METADATA,
    "metadata.recovery.rebootstrap.trigger.ms": _METADATA,
    "bootstrap.resolve.timeout.ms": "`kafka.default.api.timeout.ms` bounds the wait",
    "share.acknowledgement.mode": _SHARES,
    "share.acquire.mode": _SHARES,
}
"""The reason for names of Kafka's ConsumerConfig, without the prefix."""

UNSUPPORTED_OF_SPARK: Mapping[str, str] = {
    "kafkaConsumer.pollTimeoutMs": "kafka.request.timeout.ms bounds one fetch, kafka.default.api.timeout.ms all retries",
    "fetchOffset.numRetries": "kafka.default.api.timeout.ms bounds all retries",
    "fetchOffset.retryIntervalMs": "kafka.retry.backoff.ms is the pause before a retry",
}
"""The reason for options of Spark's Kafka source that mean nothing here."""

_OF_STREAMS = frozenset(name.lower() for name in ("checkpointLocation", "queryName", *CHECKPOINT_OPTIONS))
_WITH_CAPITALS = {
    name.lower(): name
    for name in (*UNSUPPORTED_OF_SPARK, *CHECKPOINT_OPTIONS, "checkpointLocation", "queryName", *SINK_NAMES.values())
}
_INSTEAD = {
    "topic": "subscribe",
    "topics": "subscribe",
    "topicspattern": "subscribePattern",
    "pattern": "subscribePattern",
}
"""The option of a read for what people write in its place, in lower case."""
_LIBRDKAFKA = {name: ours for name, ours in LIBRDKAFKA.items() if ours in CONSUMER_NAMES} | {
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "receive.message.max.bytes": "fetch.max.bytes",
}
"""Kafka's name for options of consumers with another name in librdkafka."""


def explain_read_option(raw: str) -> str:
    """Return why a read does not take an option; the name is shown with its capitals."""
    name = raw.lower()
    raw = _WITH_CAPITALS.get(name, raw)
    bare = bare_name(name)
    if name == "path":
        return 'load() takes no path. Name the topics with .option("subscribe", …)'
    if name in _INSTEAD:
        known = f"option {raw!r} is for writes" if name in SINK_NAMES else f"unknown option {raw!r}"
        return f"{known}: a read has {_INSTEAD[name]!r}. Write that"
    if name in _OF_STREAMS:
        return f"option {raw!r} is not supported: it is an option of writeStream. Set it there"
    reason = unsupported_read(bare) or {key.lower(): why for key, why in UNSUPPORTED_OF_SPARK.items()}.get(name)
    if reason:
        return f"option {raw!r} is not supported: {reason}"
    if is_for_writes(name):
        return f"option {raw!r} is not supported: it is for writes. Leave it out of reads"
    if bare in _LIBRDKAFKA:
        return f"unknown option {raw!r}: it is librdkafka's name. Did you mean '{KAFKA_PREFIX}{_LIBRDKAFKA[bare]}'?"
    return _unknown(raw, bare)


def unsupported_read(bare: str) -> str | None:
    """Return why an option of Kafka, in lower case and without the prefix, is not supported; None if the name is unknown."""
    return UNSUPPORTED_READS.get(bare) or family_reason(bare)


def is_for_writes(name: str) -> bool:
    """Return whether a name, in lower case, is an option of writes alone."""
    bare = bare_name(name)
    if bare in CONSUMER_NAMES or name in SOURCE_NAMES or name in READ_REGISTRY_FIELDS:
        return False
    return bare in PRODUCER_NAMES or name in SINK_NAMES or name in REGISTRY_FIELDS


def _unknown(raw: str, bare: str) -> str:
    known = {each: with_prefix(current) for each, current in CONSUMER_NAMES.items()}
    right = known.get(bare, "")
    if right.startswith(KAFKA_PREFIX):
        return wrong_prefix(raw, right)
    of_registry = {each: each for each in READ_REGISTRY_FIELDS}
    return nearest(raw, bare, known | SOURCE_NAMES | of_registry)


def render_markdown() -> str:
    """Return the options that a read does not take, and their reasons, for docs/options.md."""
    named: dict[str, list[str]] = {}
    own = {f"{KAFKA_PREFIX}{name}": why for name, why in UNSUPPORTED_READS.items() if name not in SECURITY_UNSUPPORTED}
    for name, why in (own | dict(UNSUPPORTED_OF_SPARK)).items():
        named.setdefault(why, []).append(f"`{name}`")
    lines = ["| option | reason |", "|---|---|"]
    return "\n".join([*lines, *(f"| {', '.join(names)} | {why} |" for why, names in named.items())]) + "\n"
