"""The options of connections to a cluster, which writes and reads share: `ProducerConfig` and `ConsumerConfig` inherit them.

The names are those of Kafka's Java clients (CommonClientConfigs). `SecurityOptions` is a part of them.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import ClassVar

from spark_producer.common.secret import Secret
from spark_producer.config.names import Fields, by_kafka_name
from spark_producer.config.option import INT32_MAX, INT64_MAX, is_secret, option, parse_secret, parse_value
from spark_producer.config.security_table import SecurityOptions
from spark_producer.config.unsupported import KAFKA_PREFIX
from spark_producer.errors import ConfigError

SECURITY_FIELDS = by_kafka_name(SecurityOptions)
_OWN_NAMES = frozenset(
    row.name.lower() for row in (field.metadata["option"] for field in SECURITY_FIELDS.values()) if row.name
)
"""The names in lower case of the options that Kafka does not have, which have no prefix."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConnectionOptions(SecurityOptions):
    """The options of connections, under the names of Kafka's clients. Times are milliseconds.

    It compares by value. It has no hash, since secrets have none.
    """

    __hash__ = None  # type: ignore[assignment]  # else a configuration could be a key until the first secret is in it

    servers_advice: ClassVar[str] = 'Add .option("kafka.bootstrap.servers", "host:9092,…")'
    """The end of the message about missing servers."""

    bootstrap_servers: str = option(
        "",
        "`host:port` of brokers for the first connection, separated by commas.",
        required=True,
    )
    client_dns_lookup: str = option(
        "use_all_dns_ips",
        "All addresses of a host are tried in turn. Canonical names, which Kerberos may need for an alias, are not looked up.",
        choices=("use_all_dns_ips",),
    )
    client_id: str = option("pyproducer", "Name under which the brokers log and meter this client.")
    request_timeout_ms: int = option(
        30000,
        "Maximum wait for a response; then the connection is closed and the request sent again.",
        low=1,
        high=INT32_MAX,
    )
    retry_backoff_ms: int = option(100, "First pause before a retry; doubles with each, ±20 %.", low=0, high=INT32_MAX)
    retry_backoff_max_ms: int = option(1000, "Maximum pause before a retry.", low=0, high=INT32_MAX)
    reconnect_backoff_ms: int = option(
        50, "First pause before reconnecting; doubles with each failure, ±20 %.", low=0, high=INT32_MAX
    )
    reconnect_backoff_max_ms: int = option(
        1000,
        "Maximum pause before reconnecting; that of `reconnect.backoff.ms` if only that is set.",
        low=0,
        high=INT32_MAX,
    )
    socket_connection_setup_timeout_ms: int = option(
        10000, "Maximum wait for a connection; doubles with each failure, ±20 %.", low=1, high=INT32_MAX
    )
    socket_connection_setup_timeout_max_ms: int = option(
        30000, "Maximum wait for a connection after several failures.", low=1, high=INT32_MAX
    )
    connections_max_idle_ms: int = option(
        540000, "An idle connection is closed after this time.", low=1, high=INT64_MAX
    )
    send_buffer_bytes: int = option(
        -1,
        "SO_SNDBUF of connections; -1 leaves it to the system.",
        low=-1,
        high=INT32_MAX,
        kafka_default="131072",
        unit="bytes",
    )
    receive_buffer_bytes: int = option(
        -1,
        "SO_RCVBUF of connections; -1 leaves it to the system.",
        low=-1,
        high=INT32_MAX,
        kafka_default="32768",
        unit="bytes",
    )
    metadata_cluster_check_enable: bool = option(
        True,
        "Refuse a broker that is not the one expected at its address, or of another cluster, and start again from "
        "`bootstrap.servers`. Brokers since Kafka 4.4 are refused when a connection opens; of older ones only Metadata "
        "responses are compared. Writes do so only with `metadata.recovery.strategy` of `rebootstrap`.",
    )
    enable_metrics_push: bool = option(
        True, "Send metrics to brokers that ask for them (KIP-714; docs/metrics.md, Pushed to brokers)."
    )
    client_rack: str = option("", "The client's rack, as in the brokers' `broker.rack`.")

    @property
    def max_in_flight(self) -> int:
        """Maximum requests in flight per broker."""
        return 5

    @property
    def checks_cluster(self) -> bool:
        """Whether cluster ids are compared, and the bootstrap servers asked again if they differ (KIP-1242)."""
        return self.metadata_cluster_check_enable

    def __post_init__(self) -> None:
        if not self.bootstrap_servers.strip():
            raise ConfigError(f"kafka.bootstrap.servers is not set. {self.servers_advice}")
        for name, field in kafka_fields(type(self)).items():  # type: ignore[arg-type]  # the class has a hash
            value = getattr(self, field.name)
            if value is field.default:  # a test checks the defaults
                continue
            if is_secret(field):
                _check_secret(name, field.name, value)
                continue
            parsed = parse_value(data_source_name(name), field, str(value))
            if type(value) is not type(parsed) or parsed != value:
                raise ConfigError(f"{field.name}={value!r} is not in its final form. Write {parsed!r}")
        self._check_together()
        if any(getattr(self, field.name) != field.default for field in SECURITY_FIELDS.values()):
            from spark_producer.config.security_rules import (
                check_security,  # loaded only where security is configured
            )

            check_security(self)

    def _check_together(self) -> None:
        """Check the rules between options; a subclass overrides it.

        Raises:
            ConfigError: two options contradict each other.
        """


@functools.cache
def kafka_fields(table: type[ConnectionOptions]) -> Fields:
    """Return the options of a client by Kafka's names, or by one in camelCase where Kafka has no such option.

    Those of connections come first, those of security last.
    """
    return {
        name: field for name, field in by_kafka_name(table).items() if name not in SECURITY_FIELDS
    } | SECURITY_FIELDS


def data_source_name(name: str) -> str:
    """Return the data source's name of an option that a client takes by `name`: `kafka.batch.size`, `secretsAllow`."""
    return name if name.lower() in _OWN_NAMES else KAFKA_PREFIX + name


def _check_secret(name: str, field: str, value: object) -> None:
    if value is not None and not isinstance(value, Secret):
        raise ConfigError(f"{field} is not in its final form: it is a Secret (spark_producer.common.secret), or None")
    if value is not None and parse_secret(KAFKA_PREFIX + name, value) != value:
        raise ConfigError(f"{field} is not in its final form: it is empty, or has white space around it")
