"""The coordinator of transactions and of committed offsets: what it knows of each transactional id, and how it keeps that.

Owns: the pure rules (`transactions`, `ending`), the offsets of groups, the log in the data directory, the timer of timeouts.
Must not know: requests and their versions (`requests` translates), sockets, what a partition does with a marker.
"""
