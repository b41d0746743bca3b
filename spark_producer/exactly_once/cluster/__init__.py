"""Requests to the cluster for the protocol: fences, control records, transaction markers.

Owns: how each command of the protocol is executed, the control topic, the bytes of the control record.
Must not know: which command is next (`protocol`), nor Spark.
"""
