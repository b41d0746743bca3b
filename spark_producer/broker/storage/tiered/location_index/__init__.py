"""The location index: the batches of each log, and their positions in the entry logs.

Owns: the interface of an index (`base`), the engine with arrays and an append-only file (`arrays`, `columns`, `index_file`), the
RocksDB engine (`rocks`, `rocks_database`), and the rebuild from the entry logs (`rebuild`).
Must not know: the write cache, the journal.
"""

from spark_producer.broker.storage.tiered.location_index.arrays import ArrayIndex
from spark_producer.broker.storage.tiered.location_index.base import IndexDamaged, IndexedBatch, IndexRow, LocationIndex
from spark_producer.broker.storage.tiered.location_index.rebuild import open_index
from spark_producer.broker.storage.tiered.location_index.rocks import RocksIndex
from spark_producer.broker.storage.tiered.location_index.rocks_database import require_rocksdict

__all__ = [
    "ArrayIndex", "IndexDamaged", "IndexRow", "IndexedBatch", "LocationIndex", "RocksIndex", "open_index", "require_rocksdict",
]  # fmt: skip
