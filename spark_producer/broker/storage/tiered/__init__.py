"""The tiered engine: the memory and storage design of Pulsar's broker and BookKeeper's bookie in one process.

A batch is copied to the write cache and written to the journal, which confirms it. The cache is flushed to entry logs, sorted by
partition, and an index has the location of each batch. A reader is served by the first of these tiers that has the batch: tail
cache, write cache, read cache, entry log.

Owns: `TieredStorage` (`storage`), the assembly of its parts (`engine`), writing (`write_path`, `write_cache`, `journal/`), the
flush (`flush`, `entry_log`, `location_index/`, `catalog`), the caches and the order in which they are read (`read_path`),
recovery, and the metrics of all parts (`counters`).
Must not know: requests, connections, producers.
"""

from spark_producer.broker.storage.tiered.options import TieredOptions
from spark_producer.broker.storage.tiered.storage import TieredStorage, holds_tiers

__all__ = ["TieredOptions", "TieredStorage", "holds_tiers"]
