"""One node of Kafka with every kind of secured listener, an authorizer, users, and certificates good and bad.

Owns: the listeners and their settings, the users, their rights. Must not know: the package under test, Spark.
"""

from __future__ import annotations

import argparse
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.support.certificates import EC, RSA, Certificates
from tests.support.kafka_cluster import HOST, TOPIC_SECONDS, KafkaCluster
from tests.support.ports import free_ports
from tests.support.proxy import FaultProxy

USER, PASSWORD = "app", "app-pw-5c1b"
"""May do everything, with every mechanism."""
NO_RIGHTS_USER, NO_RIGHTS_PASSWORD = "norights", "norights-pw-90aa"
"""Logs in with every mechanism, and may do nothing until `allow`."""
REAUTHENTICATION_MS = 3000
SCRAM_ITERATIONS = 4096
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_LOGIN_MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Listener:
    """A listener's protocol and certificate."""

    protocol: str
    certificate: str = ""
    """Name of its certificate; that of the node if empty."""
    host: str = HOST
    """Under which it is advertised."""
    mechanisms: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    proxied: bool = False
    """Whether clients reach it only through a proxy, which counts connections and breaks them."""


LISTENERS = {
    "TLS": Listener("SSL"),
    "TLSEC": Listener("SSL", "broker-ec", host="localhost"),
    "TLSNEW": Listener("SSL", settings={"ssl.enabled.protocols": "TLSv1.3"}),
    "TLSIP": Listener("SSL", "address-only"),
    "TLSPROXY": Listener("SSL", proxied=True),
    "MTLS": Listener(
        "SSL",
        settings={
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^.*CN=([a-z0-9-]*).*$/$1/,DEFAULT",
        },
        proxied=True,
    ),
    "SASLSSL": Listener("SASL_SSL", mechanisms=MECHANISMS),
    "SASLPLAIN": Listener("SASL_PLAINTEXT", mechanisms=("PLAIN", "SCRAM-SHA-512")),
    "REAUTH": Listener("SASL_PLAINTEXT", mechanisms=MECHANISMS, proxied=True),
    "REAUTHTLS": Listener("SASL_SSL", mechanisms=MECHANISMS, proxied=True),
    "EXPIRED": Listener("SSL", "expired"),
    "NOTYET": Listener("SSL", "not-yet"),
    "OTHERNAME": Listener("SSL", "other-name"),
    "ROTATING": Listener("SSL", "rotating"),
}


class SecuredKafka(KafkaCluster):
    """Context manager: one node; its PLAINTEXT listeners are those of `KafkaCluster`, whose users may do everything."""

    def __init__(self, version: str) -> None:
        super().__init__(version)
        self._folder = tempfile.TemporaryDirectory(prefix="pyproducer-certificates-")
        self.certificates = Certificates(Path(self._folder.name))
        self._issue()
        self.listener_ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
        self.proxies: dict[str, FaultProxy] = {}
        self.format_arguments = [
            argument
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for user, password in ((USER, PASSWORD), (NO_RIGHTS_USER, NO_RIGHTS_PASSWORD))
            for argument in (
                "--add-scram",
                f"{mechanism}=[name={user},password={password},iterations={SCRAM_ITERATIONS}]",
            )
        ]

    def _issue(self) -> None:
        issue = self.certificates.issue
        issue("broker", key_type=RSA)
        issue("broker-ec", ["localhost"], key_type=EC)
        issue("address-only", [HOST])
        issue("rotating")
        issue("expired", days=(-30, -2))
        issue("not-yet", days=(2, 30))
        issue("other-name", ["kafka.example"])
        issue("client", ["app.example"], common_name=USER)
        issue("client-rsa", ["app.example"], common_name=USER, key_type=RSA)
        issue("client-expired", ["app.example"], common_name=USER, days=(-30, -2))
        issue("client-stranger", ["app.example"], common_name=USER, trusted=False)

    def close(self) -> None:
        """End the node, then what lies around it."""
        super().close()
        for proxy in self.proxies.values():
            proxy.close()
        self._folder.cleanup()

    def address(self, listener: str) -> str:
        """Return a listener's address for clients; CLIENT is the one without security."""
        if listener == "CLIENT":
            return self.bootstrap_servers
        if listener in self.proxies:
            return self.proxies[listener].address
        return f"{LISTENERS[listener].host}:{self.listener_ports[listener]}"

    def file(self, name: str) -> str:
        """Path of a certificate, key or CA."""
        return str(self.certificates.file(name))

    def add_user(self, name: str, password: str, mechanism: str = "SCRAM-SHA-512") -> None:
        """Make a user of SCRAM, who may do nothing yet."""
        kind = ScramMechanism[mechanism.replace("-", "_")]
        self._change_user(
            UserScramCredentialUpsertion(name, ScramCredentialInfo(kind, SCRAM_ITERATIONS), password.encode())
        )

    def delete_user(self, name: str, mechanism: str = "SCRAM-SHA-512") -> None:
        """Take a user's password away."""
        self._change_user(UserScramCredentialDeletion(name, ScramMechanism[mechanism.replace("-", "_")]))

    def _change_user(self, change: UserScramCredentialUpsertion | UserScramCredentialDeletion) -> None:
        for done in self._client().alter_user_scram_credentials([change]).values():
            done.result(TOPIC_SECONDS)

    def allow(self, user: str, operation: str, topic: str | None = None) -> None:
        """Grant WRITE, DESCRIBE and so on: of a topic, or of the cluster. The broker knows it when this returns."""
        right = _right(user, operation, topic)
        self._client().create_acls([right])[right].result(TOPIC_SECONDS)
        self._wait_for(lambda: self._has(right), TOPIC_SECONDS, str(right))

    def allow_as_advised(self, command: str) -> None:
        """Grant what the arguments of a `kafka-acls.sh --add` say. The broker knows it when this returns."""
        for right in _rights_of(shlex.split(command)):
            self._client().create_acls([right])[right].result(TOPIC_SECONDS)
            self._wait_for(partial(self._has, right), TOPIC_SECONDS, str(right))

    def forbid(self, user: str, operation: str, topic: str | None = None) -> None:
        """Take away what was granted. The broker knows it when this returns."""
        right = _right(user, operation, topic)
        gone = self._client().delete_acls([_filter(right)])[_filter(right)].result(TOPIC_SECONDS)
        assert gone, f"{right} was never granted"
        self._wait_for(lambda: not self._has(right), TOPIC_SECONDS, f"the end of {right}")

    def _has(self, right: AclBinding) -> bool:
        return bool(self._client().describe_acls(_filter(right)).result(TOPIC_SECONDS))

    def rotate(self, listener: str) -> None:
        """Make the broker read the certificate of a listener again."""
        certificate = self.file(f"{LISTENERS[listener].certificate}.pem")
        entry = ConfigEntry(
            f"listener.name.{listener.lower()}.ssl.keystore.location",
            certificate,
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        self._client().incremental_alter_configs([resource])[resource].result(TOPIC_SECONDS)

    def _node_settings(self, node: int) -> dict[str, str]:
        settings = super()._node_settings(node)
        for name, listener in LISTENERS.items():
            port = self.listener_ports[name]
            if listener.proxied:
                self.proxies[name] = FaultProxy(HOST, port, frames="SSL" not in listener.protocol)
            settings["listeners"] += f",{name}://{HOST}:{port}"
            settings["advertised.listeners"] += f",{name}://{self.address(name)}"
            settings["listener.security.protocol.map"] += f",{name}:{listener.protocol}"
            settings |= {f"listener.name.{name.lower()}.{key}": value for key, value in self._own(listener).items()}
            if "REAUTH" in name:
                settings |= {
                    f"listener.name.{name.lower()}.{mechanism.lower()}.connections.max.reauth.ms": str(
                        REAUTHENTICATION_MS
                    )
                    for mechanism in listener.mechanisms
                }
        return settings | {
            "num.network.threads": "2",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.file("broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.file("ca.pem"),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{USER}",
            "delegation.token.secret.key": "the-key-of-the-tokens",
        }

    def _own(self, listener: Listener) -> dict[str, str]:
        """Settings of one listener, without their prefix."""
        settings = dict(listener.settings)
        if listener.certificate:
            settings |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": self.file(f"{listener.certificate}.pem"),
            }
        if listener.mechanisms:
            settings["sasl.enabled.mechanisms"] = ",".join(listener.mechanisms)
        users = f'user_{USER}="{PASSWORD}" user_{NO_RIGHTS_USER}="{NO_RIGHTS_PASSWORD}"'
        modules = {
            "PLAIN": f"plain.PlainLoginModule required {users}",
            "SCRAM-SHA-256": "scram.ScramLoginModule required",
            "SCRAM-SHA-512": "scram.ScramLoginModule required",
            "OAUTHBEARER": 'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="x"',
        }
        return settings | {
            f"{mechanism.lower()}.sasl.jaas.config": f"{_LOGIN_MODULES}.{modules[mechanism]};"
            for mechanism in listener.mechanisms
        }


def _right(user: str, operation: str, topic: str | None) -> AclBinding:
    kind, name = (ResourceType.BROKER, "kafka-cluster") if topic is None else (ResourceType.TOPIC, topic)
    return AclBinding(
        kind,
        name,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation[operation],
        AclPermissionType.ALLOW,
    )


def _rights_of(arguments: Sequence[str]) -> list[AclBinding]:
    """Do what Kafka's AclCommand does with those of its arguments that our messages suggest."""
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    parser.add_argument("--bootstrap-server")
    parser.add_argument("--add", action="store_true", required=True)
    parser.add_argument("--allow-principal", required=True)
    parser.add_argument("--operation", action="append", required=True)
    parser.add_argument("--topic")
    parser.add_argument("--transactional-id")
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--resource-pattern-type", default="literal")
    reported = parser.parse_args(arguments)
    kind, name = (
        (ResourceType.TOPIC, reported.topic)
        if reported.topic
        else (ResourceType.TRANSACTIONAL_ID, reported.transactional_id)
    )
    if reported.cluster:
        kind, name = ResourceType.BROKER, "kafka-cluster"
    pattern = {"literal": ResourcePatternType.LITERAL, "prefixed": ResourcePatternType.PREFIXED}[
        reported.resource_pattern_type
    ]
    return [
        AclBinding(
            kind, name, pattern, reported.allow_principal, "*", AclOperation[each.upper()], AclPermissionType.ALLOW
        )
        for each in reported.operation
    ]


def _filter(right: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        right.restype,
        right.name,
        right.resource_pattern_type,
        right.principal,
        right.host,
        right.operation,
        right.permission_type,
    )
