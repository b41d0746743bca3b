"""The storage of the embedded broker: it keeps records on the disk.

Owns: the interface of a storage engine (`base`), the choice of the engine (`engines`), the two engines (`segments`, `tiered`),
and what they share: the lock of the data directory, its state file, calls on files, and the mapping of OS errors.
Must not know: requests, connections, producers.
"""
