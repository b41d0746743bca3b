"""The subject under which a registry keeps a column's schemas (Confluent's subject name strategies)."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from spark_producer.config.registry_table import ASSOCIATED, FALLBACKS, ColumnOptions
from spark_producer.errors import ConfigError


class AssociatedSubject(NamedTuple):
    """The subject that the registry associates with a topic (Confluent's `AssociatedNameStrategy`).

    Attributes:
        topic: The topic.
        column: `value` or `key`.
        cluster_id: The topic's cluster; empty for all clusters.
        fallback: The subject if there is no association; None if that is an error.
    """

    topic: str
    column: str
    cluster_id: str
    fallback: str | None


Subject = str | AssociatedSubject


def subject_of(column: ColumnOptions, topic: str | None, record: str | None) -> Subject:
    """Return the subject: the one that is set, or the strategy's, from the topic and the record's full name.

    Args:
        column: The options of the column.
        topic: The topic of all rows; None if each row names its own.
        record: The full name of the given schema's record or message; None if the schema follows from the column, or is the
            registry's latest, or has no name.

    Raises:
        ConfigError: the strategy needs a topic or a record name that is missing.
    """
    if column.subject is not None:
        return column.subject
    if column.strategy != ASSOCIATED:
        return _by_strategy(column, topic, record)
    if topic is None:
        raise ConfigError(
            f"{ASSOCIATED} needs one topic, but the rows name their topics. Set topic, or {column.name}Subject"
        )
    strategy, fallback = FALLBACKS[column.fallback], None
    if strategy is not None:
        with contextlib.suppress(ConfigError):  # it needs the name of a record; there may be an association
            fallback = _by_strategy(column._replace(strategy=strategy), topic, record)
    return AssociatedSubject(topic, column.name, column.cluster_id, fallback)


def _by_strategy(column: ColumnOptions, topic: str | None, record: str | None) -> str:
    parts = []
    if column.strategy != "RecordNameStrategy":
        if topic is None:
            raise ConfigError(
                f"{column.strategy} needs one topic, but the rows name their topics. Set the option topic, "
                f"{column.name}Subject, or {column.name}.subject.name.strategy=RecordNameStrategy with {column.name}Schema"
            )
        parts.append(topic)
    if column.strategy == "TopicNameStrategy":
        parts.append(column.name)
    else:
        if record is None:
            raise ConfigError(
                f"{column.strategy} needs the name of a record. Set {column.name}Schema, or {column.name}Subject"
            )
        parts.append(record)
    return "-".join(parts)
