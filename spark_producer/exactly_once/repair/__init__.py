"""Inspection and repair of a sink by a person (`pyproducer txn`): lost markers and hanging transactions.

Owns: the state of a sink as people see it, and the outcomes that only a person may choose.
Must not know: the command line that prints it, nor Spark.
"""
