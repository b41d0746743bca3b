"""JSON Schema with a Schema Registry: struct columns become JSON in Confluent's wire format, and back.

Owns: the types of a schema's values, the schema of a column, the checks of what is written, the reading of JSON, and
validation.
Must not know: Spark, Kafka, or how JSON is rendered.
"""
