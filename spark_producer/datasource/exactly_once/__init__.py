"""Exactly-once writes in Spark: what the driver does before and after the tasks, and what a task does with its rows.

Nothing here is imported by a write without `exactlyOnceId`.

Owns: the choice of a task between its message and a transaction, its transactional ids, what the driver tells Spark and people.
Must not know: the protocol between driver and tasks, which is the room `spark_producer.exactly_once`.
"""
