"""The embedded single-node broker: for development, tests and small jobs, with nothing but Python.

It speaks Kafka's protocol to any client, keeps batches in segment files as they came, and checks them as Kafka does.

Owns: the broker's sockets, its event loop, the handling of its requests, and its disk. Must not know: the producer, because the
code that writes batches must not judge them as well.

The broker has no replication or access control. It has compaction, transactions, consumer groups, TLS and logins.
"""

from spark_producer.broker.local_broker import LocalBroker, serve
from spark_producer.broker.security.settings import BrokerSecurity
from spark_producer.broker.security.users import Users
from spark_producer.broker.settings import BrokerSettings, GroupSettings, TopicSettings

__all__ = ["BrokerSecurity", "BrokerSettings", "GroupSettings", "LocalBroker", "TopicSettings", "Users", "serve"]
