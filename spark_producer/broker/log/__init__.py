"""The log of a partition as the broker sees it: validation, producer state, transactions, retention.

Owns: what a batch must fulfil to be appended, and what a log remembers of producers.
Must not know: the engine that stores the batches (`storage`).
"""
