"""Rows as JSON, and values as text: what Spark's `to_json` and its cast to string write, made of Arrow columns.

Owns: the text of each Arrow type, its escapes, and the JSON of lists, maps and structs. `pyproducer write` renders files with
it, and `as_records` leaves the same to Spark: a row has the same bytes, and a key the same partition, whichever way it goes.
The table in docs/columns.md says the rule for each type. Must not know: files, options, records, or pandas.
"""

from spark_producer.record.rendering.nested import as_json, as_text, objects

__all__ = ["as_json", "as_text", "objects"]
