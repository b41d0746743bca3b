"""Three formats with a Schema Registry: struct columns become columns of bytes in Confluent's wire format, and back.

Owns: the Avro schema of a column, the plan by which it is encoded, the program by which it is decoded, the wire format, subjects,
and requests to a registry. The packages `protobuf` and `json_schema` own what is different in these formats.
Must not know: Spark (except for the module with functions over columns), Kafka, or how the encoded bytes are written.
"""

from spark_producer.schemas.functions import (
    confluent_schema_header,
    from_confluent_avro,
    from_confluent_json_schema,
    from_confluent_protobuf,
    to_confluent_avro,
    to_confluent_json_schema,
    to_confluent_protobuf,
)

__all__ = [
    "confluent_schema_header",
    "from_confluent_avro",
    "from_confluent_json_schema",
    "from_confluent_protobuf",
    "to_confluent_avro",
    "to_confluent_json_schema",
    "to_confluent_protobuf",
]
