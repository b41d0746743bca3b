"""The index of locations: which batches each log has, and where in the entry logs they lie.

Owns: the interface of an index (`base`), the engine of arrays over an append-only file (`arrays`, `columns`,
`index_file`), the engine of RocksDB (`rocks`, `rocks_database`), and the rebuilding from the entry logs (`rebuilding`).
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
