"""How long a transaction of a task may be open, if the user does not say it: as long as the brokers allow, up to 15 minutes."""

from __future__ import annotations

from spark_producer.admin import BlockingClient
from spark_producer.config import ProducerConfig
from spark_producer.config.exactly_once_rules import MAX_TRANSACTION_TIMEOUT_MS, TRANSACTION_TIMEOUT
from spark_producer.errors import ConfigError, PyProducerError
from spark_producer.network import ConnectionSettings
from spark_producer.protocol import DESCRIBE_CONFIGS
from spark_producer.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource

BROKER = 4
"""The number of brokers among the kinds of resources that have settings (Kafka's ConfigResource)."""

SETTING = "transaction.max.timeout.ms"

_known: dict[str, int | None] = {}
"""What brokers have said, by `bootstrap.servers`."""


def max_transaction_timeout_ms(config: ProducerConfig) -> int:
    """Return the milliseconds. If the brokers do not say, it is the most by default, and a task is told if that is too long."""
    return min(_allowed(config) or MAX_TRANSACTION_TIMEOUT_MS, MAX_TRANSACTION_TIMEOUT_MS)


def check_transaction_timeout(config: ProducerConfig) -> None:
    """Check the time that the user has set for a transaction: brokers refuse a longer one in every task, after retries.

    Raises:
        ConfigError: it is more than the brokers allow.
    """
    allowed = _allowed(config)
    if allowed is not None and config.transaction_timeout_ms > allowed:
        raise ConfigError(
            f"kafka.{TRANSACTION_TIMEOUT} is {config.transaction_timeout_ms}, and the brokers allow at most {allowed} "
            f"({SETTING}): lower it, or leave it out, which takes the most up to {MAX_TRANSACTION_TIMEOUT_MS}"
        )


def _allowed(config: ProducerConfig) -> int | None:
    """Return what the brokers allow, who are asked once in a process; None if they do not say."""
    servers = config.bootstrap_servers
    if servers not in _known:
        try:
            _known[servers] = _asked(config)
        except PyProducerError:  # no right to see settings, or no such request
            return None
    return _known[servers]


def _asked(config: ProducerConfig) -> int | None:
    with BlockingClient(ConnectionSettings.from_config(config), timeout=config.max_block_ms / 1000) as client:
        node = client.metadata([]).brokers[0].node_id
        resource = DescribeConfigsResource(BROKER, str(node), (SETTING,))
        answer = client.request(DESCRIBE_CONFIGS, DescribeConfigsRequest((resource,)), node=node)
    found = [row.value for result in answer.results for row in result.configs if row.name == SETTING and row.value]
    return int(found[0]) if found else None
