"""The coordinator of transactions and of consumer groups: the state of each transactional id, the committed offsets, and their
log.

Owns: the pure rules (`transactions`, `ending`), the transaction markers until they are confirmed, the offsets of groups, the log
in the data directory, the timer of timeouts.
Must not know: requests and their versions (`requests` translates), sockets, how a partition handles a marker.
"""
