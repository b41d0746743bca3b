"""How long a transaction of a task may be open, if the user does not say it: as long as the brokers allow, up to 15 minutes."""

from __future__ import annotations

from spark_producer.config import ProducerConfig
from spark_producer.config.exactly_once_rules import LONGEST_TRANSACTION
from spark_producer.errors import PyProducerError
from spark_producer.network import ConnectionSettings
from spark_producer.protocol import DESCRIBE_CONFIGS
from spark_producer.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from spark_producer.tools import BlockingClient

BROKER = 4
"""The number of brokers among the kinds of resources that have settings (Kafka's ConfigResource)."""

SETTING = "transaction.max.timeout.ms"

_known: dict[str, int] = {}
"""What brokers have said, by `bootstrap.servers`."""


def longest_transaction(config: ProducerConfig) -> int:
    """Return the milliseconds; the brokers are asked once in a process. If they do not say, it is the most by default."""
    servers = config.bootstrap_servers
    if servers not in _known:
        try:
            _known[servers] = min(_asked(config), LONGEST_TRANSACTION)
        except (
            PyProducerError
        ):  # no right to see settings, or no such request: a task is told if the default is too long
            return LONGEST_TRANSACTION
    return _known[servers]


def _asked(config: ProducerConfig) -> int:
    with BlockingClient(ConnectionSettings.from_config(config), timeout=config.max_block_ms / 1000) as client:
        node = client.metadata([]).brokers[0].node_id
        resource = DescribeConfigsResource(BROKER, str(node), (SETTING,))
        answer = client.request(DESCRIBE_CONFIGS, DescribeConfigsRequest((resource,)), node=node)
    found = [row.value for result in answer.results for row in result.configs if row.name == SETTING and row.value]
    return int(found[0]) if found else LONGEST_TRANSACTION
