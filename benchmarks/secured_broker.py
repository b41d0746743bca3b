"""The broker of the benchmarks with two more listeners, TLS and SASL over TLS, and the options that lead to them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from benchmarks.session import BROKER_JVM, BROKER_SETTINGS
from tests.support.certificates import RSA, Certificates
from tests.support.kafka_cluster import HOST, TOPIC_SECONDS, KafkaCluster
from tests.support.kafka_node import KAFKA_4
from tests.support.ports import free_ports

PROTOCOLS = ("SSL", "SASL_SSL")
MECHANISM = "SCRAM-SHA-512"
USER, PASSWORD = "bench", "bench-pw-2208"
ITERATIONS = 4096  # Kafka's own default


class SecuredBroker(KafkaCluster):
    """Context manager: one node, whose certificate has an RSA key. Its own PLAINTEXT listener is there too."""

    def __init__(self) -> None:
        super().__init__(KAFKA_4, settings=BROKER_SETTINGS, jvm=BROKER_JVM)
        self._folder = tempfile.TemporaryDirectory(prefix="pyproducer-certificates-")
        self._certificates = Certificates(Path(self._folder.name))
        self._certificates.issue("broker", key_type=RSA)
        self._listeners = dict(zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True))

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self._add_user()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End the node, and remove its certificate."""
        super().close()
        self._folder.cleanup()

    def address(self, protocol: str) -> str:
        """Return where clients find the listener of a protocol."""
        port = self._listeners.get(protocol)
        return self.bootstrap_servers if port is None else f"{HOST}:{port}"

    def options(self, protocol: str) -> Mapping[str, str]:
        """Return what clients set for a protocol, in Java's names, beside the address."""
        if protocol == "PLAINTEXT":
            return {}
        options = {"security.protocol": protocol, "ssl.truststore.type": "PEM"}
        options["ssl.truststore.location"] = str(self._certificates.ca)
        if protocol == "SASL_SSL":
            module = "org.apache.kafka.common.security.scram.ScramLoginModule"
            options["sasl.mechanism"] = MECHANISM
            options["sasl.jaas.config"] = f'{module} required username="{USER}" password="{PASSWORD}";'
        return options

    def _add_user(self) -> None:
        credentials = ScramCredentialInfo(ScramMechanism[MECHANISM.replace("-", "_")], ITERATIONS)
        change = UserScramCredentialUpsertion(USER, credentials, PASSWORD.encode())
        for done in self._client().alter_user_scram_credentials([change]).values():
            done.result(TOPIC_SECONDS)

    def _node_settings(self, node: int) -> dict[str, str]:
        settings = super()._node_settings(node)
        for protocol, port in self._listeners.items():
            for name in ("listeners", "advertised.listeners"):
                settings[name] += f",{protocol}://{HOST}:{port}"
            settings["listener.security.protocol.map"] += f",{protocol}:{protocol}"
        scram = f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config"
        return settings | {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._certificates.file("broker.pem")),
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": MECHANISM,
            scram: "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        }
