"""Options: one table, parsed into frozen values.

Owns: names, types, ranges and defaults of all options, the profiles, the unsupported names, and the page about them.
Must not know: the users of an option.

A new option is a field in `options`: of `ProducerConfig` with Kafka's name, or of `SinkOptions` in camelCase. Those of TLS and
logins are in `security_table`, those of a Schema Registry in `registry_table`. `make docs` makes docs/options.md from the fields.
"""

from spark_producer.config.option import Option
from spark_producer.config.options import (
    ALIASES,
    KAFKA_FIELDS,
    PRODUCER_NAMES,
    SINK_FIELDS,
    SINK_NAMES,
    ProducerConfig,
    SinkOptions,
    data_source_name,
    idempotent,
    kafka_name,
    sink_name,
)
from spark_producer.config.parsing import is_set, parse_options, parse_sink_options, producer_config, redacted
from spark_producer.config.registry_table import RegistryOptions

__all__ = [
    "ALIASES",
    "KAFKA_FIELDS",
    "PRODUCER_NAMES",
    "SINK_FIELDS",
    "SINK_NAMES",
    "Option",
    "ProducerConfig",
    "RegistryOptions",
    "SinkOptions",
    "data_source_name",
    "idempotent",
    "is_set",
    "kafka_name",
    "parse_options",
    "parse_sink_options",
    "producer_config",
    "redacted",
    "sink_name",
]
