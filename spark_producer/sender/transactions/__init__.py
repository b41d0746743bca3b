"""Transactions of a producer (Kafka's TransactionManager): states, requests, and what errors mean.

Owns: the transactional id's state and its dialog with coordinators. Must not know: sockets and the clock (`now` is passed in).
"""
