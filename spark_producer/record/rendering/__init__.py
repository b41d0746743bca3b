"""Renders Arrow columns as JSON and as text, with the same bytes as Spark's `to_json` and its cast to string.

Owns: the text of each Arrow type, its escapes, and the JSON of lists, maps and structs. `pyproducer write` renders files with
it, while `as_records` lets Spark render: both give a row the same bytes, and a key the same partition.
The table in docs/columns.md has the rule for each type. Must not know: files, options, records, or pandas.
"""

from spark_producer.record.rendering.nested import KeptFields, as_json, as_lists, as_text, objects

__all__ = ["KeptFields", "as_json", "as_lists", "as_text", "objects"]
