"""Transactions of a producer (Kafka's TransactionManager): states, requests, and what errors mean.

Owns: the state of the transactional id, and its requests to coordinators. Must not know: sockets and the clock (`now` is an
argument).
"""
