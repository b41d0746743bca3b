"""Options: one table, parsed into frozen values.

Owns: names, types, ranges and defaults of all options, the profiles, the unsupported names, and the page about them.
Must not know: the users of an option.

A new option is a field. For writes it is in `options`: of `ProducerConfig` with Kafka's name, or of `SinkOptions` in camelCase.
For reads it is in `consumer_options` or `source_options`. Options of both are in `connection_table`, those of TLS and logins in
`security_table`, those of a Schema Registry in `registry_table`. `make docs` makes docs/options.md from the fields.
"""

from spark_producer.config.connection_table import ConnectionOptions, data_source_name
from spark_producer.config.consumer_options import CONSUMER_FIELDS, ConsumerConfig
from spark_producer.config.names import camel_case, kafka_name
from spark_producer.config.option import Option
from spark_producer.config.options import (
    ALIASES,
    KAFKA_FIELDS,
    PRODUCER_NAMES,
    SINK_FIELDS,
    SINK_NAMES,
    ProducerConfig,
    SinkOptions,
    idempotent,
)
from spark_producer.config.parsing import is_set, parse_options, parse_sink_options, producer_config, redacted
from spark_producer.config.registry_table import RegistryOptions
from spark_producer.config.source_options import SOURCE_FIELDS, SourceOptions

__all__ = [
    "ALIASES",
    "CONSUMER_FIELDS",
    "KAFKA_FIELDS",
    "PRODUCER_NAMES",
    "SINK_FIELDS",
    "SINK_NAMES",
    "SOURCE_FIELDS",
    "ConnectionOptions",
    "ConsumerConfig",
    "Option",
    "ProducerConfig",
    "RegistryOptions",
    "SinkOptions",
    "SourceOptions",
    "camel_case",
    "data_source_name",
    "idempotent",
    "is_set",
    "kafka_name",
    "parse_options",
    "parse_sink_options",
    "producer_config",
    "redacted",
]
