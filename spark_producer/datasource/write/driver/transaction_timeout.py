"""The timeout of the tasks' transactions. If the user has not set it: the maximum of the brokers, up to 15 minutes."""

from __future__ import annotations

from spark_producer.admin import BlockingClient
from spark_producer.config import ProducerConfig
from spark_producer.config.exactly_once_rules import MAX_TRANSACTION_TIMEOUT_MS, TRANSACTION_TIMEOUT
from spark_producer.errors import ConfigError, PyProducerError
from spark_producer.network import ConnectionSettings
from spark_producer.protocol import DESCRIBE_CONFIGS
from spark_producer.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource

BROKER = 4
"""The type of a broker in Kafka's ConfigResource."""

SETTING = "transaction.max.timeout.ms"

_known: dict[str, int | None] = {}
"""The maximum timeout of brokers, by `bootstrap.servers`."""


def max_transaction_timeout_ms(config: ProducerConfig) -> int:
    """Return the timeout in milliseconds. If the brokers' maximum is unknown, it is Kafka's default, 15 minutes."""
    return min(_broker_max_timeout_ms(config) or MAX_TRANSACTION_TIMEOUT_MS, MAX_TRANSACTION_TIMEOUT_MS)


def check_transaction_timeout(config: ProducerConfig) -> None:
    """Check the transaction timeout that the user has set. Without this check every task would fail, after retries.

    Raises:
        ConfigError: it is above the brokers' maximum.
    """
    allowed = _broker_max_timeout_ms(config)
    if allowed is not None and config.transaction_timeout_ms > allowed:
        raise ConfigError(
            f"kafka.{TRANSACTION_TIMEOUT} is {config.transaction_timeout_ms}, and the brokers allow at most {allowed} "
            f"({SETTING}). Lower it, or leave it out for their maximum, up to {MAX_TRANSACTION_TIMEOUT_MS}"
        )


def _broker_max_timeout_ms(config: ProducerConfig) -> int | None:
    """Return the brokers' maximum, which is requested once in a process; None if it is unknown."""
    servers = config.bootstrap_servers
    if servers not in _known:
        try:
            _known[servers] = _request_max_timeout_ms(config)
        except PyProducerError:  # no right to see settings, or no such request
            return None
    return _known[servers]


def _request_max_timeout_ms(config: ProducerConfig) -> int | None:
    with BlockingClient(ConnectionSettings.from_config(config), timeout=config.max_block_ms / 1000) as client:
        node = client.metadata([]).brokers[0].node_id
        resource = DescribeConfigsResource(BROKER, str(node), (SETTING,))
        response = client.request(DESCRIBE_CONFIGS, DescribeConfigsRequest((resource,)), node=node)
    found = [row.value for result in response.results for row in result.configs if row.name == SETTING and row.value]
    return int(found[0]) if found else None
