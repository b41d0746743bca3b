"""The data source: its name, the checks on the driver, and the writers for batch and streaming.

Before a task starts, it checks the options, the schema, whether the brokers answer, and whether the topic exists.

This code runs in Spark's planner process. For a stream it also runs in the commit process, once for every micro-batch, so a
stream remembers for a while that its brokers answered; a batch write asks each time.
"""

from __future__ import annotations

import time
import uuid
from typing import NamedTuple

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from spark_producer.admin import BlockingClient
from spark_producer.admin.topic_suggestion import suggest_topic, suggest_topic_on_not_found
from spark_producer.common.escape import escaping_logger
from spark_producer.config import ProducerConfig, SinkOptions, is_set, parse_sink_options
from spark_producer.config.dead_letter_rules import check_dead_letters
from spark_producer.config.exactly_once_rules import TRANSACTION_TIMEOUT, check_exactly_once
from spark_producer.datasource.error_boundary import hide_internal_traceback
from spark_producer.datasource.interpreter import freeze_once
from spark_producer.datasource.write.driver.schema import check_schema, has_formats
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.writers import BatchWriter, StreamWriter
from spark_producer.errors import ConfigError, TopicNotFound, broker_error
from spark_producer.network import ConnectionSettings
from spark_producer.network.metadata_wait import UNKNOWN_TOPIC_GRACE

CHECK_SECONDS = 60.0
"""Seconds for which the check of a stream is valid: few micro-batches pay for it, and a deleted topic is noticed soon."""

STILL_WAITING = 2.0
"""Seconds after which the log names the broker or topic that a check waits for."""

DEAD_LETTER_TOPIC = "dead-letter topic"
"""The name of the topic of the option `deadLetterTopic` in messages."""

logger = escaping_logger("pyproducer")


class _Checked(NamedTuple):
    """A successful check of a stream: the connection and topics that it writes to, and the time of the check."""

    settings: ConnectionSettings
    topics: tuple[str | None, str | None]
    """the topic of the option `topic`, and the dead-letter topic"""
    answered: float


_checked: list[_Checked] = []
"""The recent checks of this process. They apply only to streams with the same connection settings, since brokers may accept one
user and refuse another."""


def _still_holds(settings: ConnectionSettings, topics: tuple[str | None, str | None]) -> bool:
    """Return whether a recent check covers this connection and these topics. Drop old checks."""
    now = time.monotonic()
    _checked[:] = [check for check in _checked if now - check.answered < CHECK_SECONDS]
    return any(check.topics == topics and check.settings == settings for check in _checked)


class PyProducerDataSource(DataSource):
    """The data source of `format("pyproducer")`, which writes DataFrames to Kafka."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "pyproducer"

    @hide_internal_traceback
    def schema(self) -> StructType:
        """Raise an error: Spark calls this for readers only.

        Raises:
            ConfigError: always, since this source only writes.
        """
        raise _only_writes()

    @hide_internal_traceback
    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        """Raise an error: Spark calls this for a read, which this source does not support.

        Raises:
            ConfigError: always.
        """
        raise _only_writes()

    @hide_internal_traceback
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of a batch write.

        Raises:
            ConfigError, SchemaError: an option or a column is wrong. BrokersUnreachable, TopicNotFound: the cluster does not
            answer, or does not have the topic. RegistryError: the Schema Registry does not answer, or refuses.
        """
        if overwrite:
            raise ConfigError(
                'a topic cannot be overwritten. Use mode("append"), the only save mode of topics, although Spark\'s own message '
                "names Overwrite too"
            )
        settings = self._checked_settings(schema, streaming=False)
        config, sink = settings.config, settings.sink
        self._check(config, sink)
        freeze_once()
        return BatchWriter(settings)

    @hide_internal_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: ARG002, N802 - Spark's signature
        """Return the writer of a stream. In complete mode (`overwrite`) every micro-batch appends the whole result again.

        Raises: as `writer`.
        """
        settings = self._checked_settings(schema, streaming=True)
        config, sink = settings.config, settings.sink
        connection = ConnectionSettings.from_config(config)
        topics = sink.topic, sink.dead_letter_topic
        if not _still_holds(connection, topics):
            self._check(config, sink)
            _checked.append(_Checked(connection, topics, time.monotonic()))
        freeze_once()
        return StreamWriter(settings)

    def _check(self, config: ProducerConfig, sink: SinkOptions) -> None:
        max_block_set = is_set(self.options, "max.block.ms")
        check_cluster(config, sink.topic, dead_letters=sink.dead_letter_topic, max_block_set=max_block_set)

    def _checked_settings(self, schema: StructType, *, streaming: bool) -> TaskSettings:
        from spark_producer.partitioner import (
            resolve_partitioner,
        )  # it imports numpy and pyarrow, which the lookup of a format does not need

        config, sink, registry = parse_sink_options(self.options)
        resolve_partitioner(config.partitioner_class)
        timeout_unset = not is_set(self.options, TRANSACTION_TIMEOUT)
        check_exactly_once(config, sink, streaming=streaming, transaction_timeout_unset=timeout_unset)
        check_dead_letters(config, sink)
        check_schema(schema, sink)
        settings = TaskSettings(
            config,
            sink,
            buffer_memory_unset=not is_set(self.options, "buffer.memory"),
            transaction_timeout_unset=timeout_unset,
            streaming=streaming,
        )
        if sink.dead_letter_topic is not None:
            settings = settings._replace(write_id=uuid.uuid4().hex)
        if not has_formats(sink):
            return settings
        from spark_producer.datasource.write.column_formats import choose_formats  # it imports pyarrow too

        return settings._replace(formats=choose_formats(schema, config, sink, registry))


def _only_writes() -> ConfigError:
    return ConfigError(
        'format("pyproducer") cannot read: it is only for writes. Read with Spark\'s Kafka source or a Kafka consumer'
    )


class _WaitWarning:
    """A callback that logs once what the check is waiting for."""

    def __init__(self, timeout: str, still_waiting: float) -> None:
        self._timeout = timeout
        self._still_waiting = still_waiting
        self._has_warned = False

    def __call__(self, seconds: float, subject: str) -> None:
        if seconds >= self._still_waiting and not self._has_warned:
            self._has_warned = True
            logger.warning("still waiting for %s, at most %s", subject, self._timeout)


def check_cluster(
    config: ProducerConfig,
    topic: str | None,
    still_waiting: float = STILL_WAITING,
    *,
    dead_letters: str | None = None,
    max_block_set: bool = False,
) -> None:
    """Check that the brokers respond and have `topic` (None: only that they respond), for at most `max.block.ms`.

    If the user has set that option (`max_block_set`), it also limits the wait for a topic that no broker knows; otherwise
    `UNKNOWN_TOPIC_GRACE` does.

    The topic for `dead_letters` must exist: it is not created, since no reader would know of it.

    After `still_waiting` seconds a warning is logged.

    Raises:
        BrokersUnreachable: none of the bootstrap servers answered; the message names all of them.
        TopicNotFound, BrokerError: the topic does not exist and is not created automatically, or may not be used.
        MetadataTimeout: the topic has no leaders yet.
    """
    limit, option = config.max_block_ms / 1000, "kafka.max.block.ms"
    wait = _WaitWarning(f"{limit:g} s ({option})", still_waiting)
    settings = ConnectionSettings.from_config(config)
    with BlockingClient(settings, timeout=limit, timeout_option=option, on_wait=wait) as client:
        if topic is None:
            client.metadata([])
        else:
            with suggest_topic_on_not_found(client, topic):
                client.wait_for_topic(
                    topic, create=True, unknown_timeout=float("inf") if max_block_set else UNKNOWN_TOPIC_GRACE
                )
        if dead_letters is not None:
            _find_dead_letter_topic(client, dead_letters)


def _find_dead_letter_topic(client: BlockingClient, topic: str) -> None:
    try:
        client.wait_for_topic(topic, called=DEAD_LETTER_TOPIC)
    except TopicNotFound as error:
        near = suggest_topic(client, topic)
        hint = f" (did you mean {near!r}?)" if near else ""
        subject = f"{DEAD_LETTER_TOPIC} {topic!r} (option deadLetterTopic)"
        advice = f"correct its name{hint}, or create it: writes do not create dead-letter topics"
        raise broker_error(error.code, subject, advice=advice, topic=topic) from None
