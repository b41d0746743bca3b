"""The embedded single-node broker: for development, tests and small jobs, with nothing but Python.

It speaks Kafka's protocol to any client, keeps batches in segment files as they came, and checks them as Kafka does.

Owns: its sockets, its event loop, what its requests do, its disk. Must not know: the producer, since what we write is not to be
judged by what wrote it.

Not there: replication, transactions, consumer groups, compaction, security.
"""

from spark_producer.broker.local import LocalBroker, serve
from spark_producer.broker.settings import BrokerSettings, TopicSettings

__all__ = ["BrokerSettings", "LocalBroker", "TopicSettings", "serve"]
