"""The storage of the embedded broker, which keeps records on its disk.

Owns: the interface of an engine (`base`), the choice of one (`engines`), the engines (`segments`), and what all of them share:
the data directory's lock, its state file, and the mapping of the disk's errors.
Must not know: requests, connections, producers.
"""
