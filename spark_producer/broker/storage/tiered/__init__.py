"""The tiered engine: a journal with group commit in front of caches and shared entry logs, as BookKeeper's bookies keep theirs.

Owns: the journal of all partitions (`journal`).
Must not know: requests, connections, producers; whether a batch may be appended is decided before it comes here.
"""
