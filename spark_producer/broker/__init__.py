"""The embedded single-node broker for development, tests and small jobs, in Python alone.

It speaks Kafka's protocol to any client, validates batches as Kafka does, and keeps them unchanged in segment files.

Owns: the broker's sockets, its event loop, its request handlers, and its disk. Must not know: the producer, because the code that
writes batches must not validate them.

The broker has no replication and no access control. It has compaction, transactions, consumer groups, TLS and SASL.
"""

from spark_producer.broker.local_broker import LocalBroker, serve
from spark_producer.broker.security.settings import BrokerSecurity
from spark_producer.broker.security.users import Users
from spark_producer.broker.settings import BrokerSettings, GroupSettings, TopicSettings

__all__ = ["BrokerSecurity", "BrokerSettings", "GroupSettings", "LocalBroker", "TopicSettings", "Users", "serve"]
