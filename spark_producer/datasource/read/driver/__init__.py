"""The driver of a read: which topic-partitions and offsets there are, and how they are divided among tasks.

Owns: subscriptions, starting and ending offsets, read limits, the ranges of tasks, the offsets of a stream.
Must not know: how a task reads its ranges (`worker`).
"""
