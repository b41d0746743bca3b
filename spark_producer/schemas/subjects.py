"""The subject under which a registry keeps a column's schemas (Confluent's subject name strategies)."""

from __future__ import annotations

from spark_producer.config.registry_table import ColumnOptions
from spark_producer.errors import ConfigError
from spark_producer.schemas.names import full_name
from spark_producer.schemas.types import Schema


def subject_of(wish: ColumnOptions, topic: str | None, schema: Schema | None) -> str:
    """Return the subject: the one that is set, or what the strategy makes of the topic and of the record's full name.

    Args:
        wish: What the options say of the column.
        topic: The topic of all rows; None if each row names its own.
        schema: The schema that was given; None if it follows from the column, or is the registry's latest.

    Raises:
        ConfigError: The strategy needs a topic or a name that is not there.
    """
    if wish.subject is not None:
        return wish.subject
    parts = []
    if wish.strategy != "RecordNameStrategy":
        if topic is None:
            raise ConfigError(
                f"the rows name their topics, and {wish.strategy} gives each topic a subject: set the option topic, "
                f"{wish.column}Subject, or {wish.column}.subject.name.strategy=RecordNameStrategy with {wish.column}Schema"
            )
        parts.append(topic)
    if wish.strategy == "TopicNameStrategy":
        parts.append(wish.column)
    else:
        if not isinstance(schema, dict) or not isinstance(schema.get("name"), str):
            raise ConfigError(
                f"{wish.strategy} takes its subject from the record's name: set {wish.column}Schema, or {wish.column}Subject"
            )
        parts.append(full_name(schema))
    return "-".join(parts)
