"""The Python worker of a read: one task reads its offset ranges as Spark's Arrow columns.

Owns: the conversion of records to Spark's columns.
Must not know: the driver (`driver`); what a task reads is in its input partition.
"""
