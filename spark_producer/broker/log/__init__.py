"""The log of a partition: validation, producer state, transactions, retention and compaction.

Owns: the checks before a batch is appended, and the state of producers in a log.
Must not know: the engine that stores the batches (`storage`).
"""
