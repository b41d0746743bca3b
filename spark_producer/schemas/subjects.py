"""The subject under which a registry keeps a column's schemas (Confluent's subject name strategies)."""

from __future__ import annotations

from spark_producer.config.registry_table import ColumnOptions
from spark_producer.errors import ConfigError
from spark_producer.schemas.names import full_name
from spark_producer.schemas.types import Schema


def subject_of(column: ColumnOptions, topic: str | None, schema: Schema | None) -> str:
    """Return the subject: the one that is set, or the strategy's, from the topic and the record's full name.

    Args:
        column: The options of the column.
        topic: The topic of all rows; None if each row names its own.
        schema: The given schema; None if it follows from the column, or is the registry's latest.

    Raises:
        ConfigError: the strategy needs a topic or a record name that is missing.
    """
    if column.subject is not None:
        return column.subject
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
        if not isinstance(schema, dict) or not isinstance(schema.get("name"), str):
            raise ConfigError(
                f"{column.strategy} needs the name of a record. Set {column.name}Schema, or {column.name}Subject"
            )
        parts.append(full_name(schema))
    return "-".join(parts)
