"""Sockets of the client's side: connections to brokers, and requests over them.

Owns: every socket of a producer, reconnects, timeouts of requests. Must not know: what a producer does with answers
(`sender`), record batches, pyspark.
"""

from spark_producer.network.addresses import format_address, parse_bootstrap_servers
from spark_producer.network.blocking import BlockingClient
from spark_producer.network.client import Client, ClientSettings, Completion

__all__ = ["BlockingClient", "Client", "ClientSettings", "Completion", "format_address", "parse_bootstrap_servers"]
