"""The embedded single-node broker: for development, tests and small jobs, with nothing but Python.

It speaks Kafka's protocol to any client, keeps batches in segment files as they came, and checks them as Kafka does. It
uses `protocol` and `record`, and never the producer: what we write is not judged by what wrote it.

Not there: replication, transactions, consumer groups, compaction, security.
"""

from spark_producer.broker.local import LocalBroker, serve
from spark_producer.broker.settings import BrokerSettings, TopicSettings

__all__ = ["BrokerSettings", "LocalBroker", "TopicSettings", "serve"]
