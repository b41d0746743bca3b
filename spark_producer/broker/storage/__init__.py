"""How the embedded broker keeps records on its disk.

Owns: what the broker asks of an engine (`base`), which engine it gets (`engines`), the engines (`segments`), and what is the same
for all of them: the data directory's lock, its state file, and how the disk's errors are told.
Must not know: requests, connections, producers.
"""
