"""The tiered engine: the memory and storage design of Pulsar's broker and BookKeeper's bookie in one process.

A batch goes into a write cache and a journal, which confirms it; the cache is flushed into entry logs, sorted by partition, and
an index says where each batch lies. A reader is served by the first of these tiers that has the batch: tail cache, write cache,
read cache, entry log.

Owns: the journal (`journal`), the caches and the order in which they are read (`read_path`), and what they count (`counters`).
Must not know: requests, connections, producers.
"""
