"""The faults of a soak beside those of brokers: of queries, topics and certificates.

Owns: how each is done. Must not know: when, or to what end.
"""

from __future__ import annotations

import random
import resource
import socket
import ssl
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions
from cryptography import x509

from tests.matrix.drivers import Driver
from tests.matrix.faults import Brokers, Fault
from tests.soak.streams import Stream
from tests.support.certificates import Certificates
from tests.support.kafka_cluster import HOST

MAX_PARTITIONS = 12
SECONDS = 5
"""Of a request: while it waits, no other fault ends, and a paused driver must go on before its transactions time out."""
KEYSTORE = "listener.name.client.ssl.keystore.location"


def tls_settings(certificates: Certificates) -> dict[str, str]:
    """Issue the first certificates; return the settings of nodes whose clients must show one."""
    certificates.issue("broker")
    certificates.issue("client", ["soak.example"], common_name="soak")
    listener = "listener.name.client.ssl"
    return {
        "listener.security.protocol.map": "CLIENT:SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        f"{listener}.keystore.type": "PEM",
        KEYSTORE: str(certificates.file("broker.pem")),
        f"{listener}.truststore.type": "PEM",
        f"{listener}.truststore.location": str(certificates.ca),
        f"{listener}.client.auth": "required",
    }


def tls_options(certificates: Certificates) -> dict[str, str]:
    """Return the options of the streams."""
    return {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.ca.location": str(certificates.ca),
        "kafka.ssl.certificate.location": str(certificates.file("client.crt")),
        "kafka.ssl.key.location": str(certificates.file("client.key")),
    }


def serial_shown(port: int, certificates: Certificates) -> int | None:
    """Return the serial number of the certificate that a node shows to a client; None if it does not answer."""
    context = ssl.create_default_context(cafile=str(certificates.ca))
    context.check_hostname = False
    context.load_cert_chain(certificates.file("client.crt"), certificates.file("client.key"))
    try:
        with (
            socket.create_connection((HOST, port), timeout=SECONDS) as connection,
            context.wrap_socket(connection) as shown,
        ):
            found = shown.getpeercert(binary_form=True)
    except OSError:
        return None
    return x509.load_der_x509_certificate(found).serial_number if found else None


class OfDisks:
    """A disk that is full: no file of a node can grow, and its writes fail, as `RLIMIT_FSIZE` makes them (EFBIG for ENOSPC).

    Kafka gives its only folder up and ends. People make place and start it again, as `end` does.
    """

    def __init__(self, brokers: Brokers, chance: random.Random, note: Callable[[str, str], None]) -> None:
        """`note` takes the name of a fault and what it has brought about."""
        self._brokers, self._chance, self._note = brokers, chance, note
        self._victim = 1

    def faults(self) -> list[Fault]:
        """Return all of them; a name is what a run can ask for."""
        return [Fault("broker", "disk full", self._fill, self._empty)]

    def _fill(self) -> str | None:
        cluster = self._brokers.cluster
        self._victim = self._chance.choice(list(cluster.nodes))
        try:
            _, hard = resource.prlimit(cluster.pid(self._victim), resource.RLIMIT_FSIZE)
            resource.prlimit(cluster.pid(self._victim), resource.RLIMIT_FSIZE, (0, hard))
        except ProcessLookupError:
            return None
        self._brokers.down.add(self._victim)
        return f"node {self._victim}"

    def _empty(self) -> None:
        code = self._brokers.cluster.exit_code(self._victim)
        self._note("disk full", "a node ran on" if code is None else f"a node ended with exit code {code}")
        self._brokers.restart(self._victim)


class OfQueries:
    """Faults of one of the streams, which chance chooses."""

    def __init__(self, streams: Sequence[Stream], chance: random.Random) -> None:
        self._streams, self._chance = streams, chance
        self._paused: Driver | None = None

    def faults(self) -> list[Fault]:
        """Return all of them; a name is what a run can ask for."""
        return [
            Fault("driver", "driver killed", self._kill_driver),
            Fault("driver", "worker killed", self._kill_worker),
            Fault("driver", "driver paused", self._pause, self._resume),
            Fault("driver", "query stopped", self._stop_query),
        ]

    def _victim(self, streams: Sequence[Stream] | None = None) -> tuple[Stream, Driver] | None:
        chosen = self._streams if streams is None else streams
        there = [(each, each.driver) for each in chosen if each.driver is not None and each.has_settled()]
        return self._chance.choice(there) if there else None

    def _kill_driver(self) -> str | None:
        if (found := self._victim([each for each in self._streams if not each.plan.spared])) is None:
            return None
        found[1].kill()
        return found[0].plan.name

    def _kill_worker(self) -> str | None:
        found = self._victim()
        workers = found[1].workers() if found else []
        if found is None or not workers:
            return None
        found[1].signal([self._chance.choice(workers)], "KILL")
        return found[0].plan.name

    def _pause(self) -> str | None:
        if (found := self._victim()) is None:
            return None
        self._paused = found[1]
        self._paused.signal(self._paused.processes(), "STOP")
        return found[0].plan.name

    def _resume(self) -> None:
        assert self._paused is not None
        self._paused.signal(self._paused.processes(), "CONT")

    def _stop_query(self) -> str | None:
        if (found := self._victim()) is None:
            return None
        found[0].stop()
        return found[0].plan.name


class OfClusters:
    """Changes that platform teams make while streams run: topics grow, certificates are replaced."""

    def __init__(
        self,
        brokers: Brokers,
        topics: Sequence[str],
        certificates: Certificates,
        chance: random.Random,
        note: Callable[[str, str], None],
    ) -> None:
        """`note` takes the name of a fault and what it has brought about."""
        servers = brokers.inner_servers
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0, "reconnect.backoff.max.ms": 500})
        self._brokers, self._topics, self._certificates = brokers, topics, certificates
        self._chance, self._note = chance, note
        self._asked: list[int] = []

    def faults(self) -> list[Fault]:
        """Return all of them; a name is what a run can ask for."""
        return [
            Fault("topic", "topic grown", self._grow),
            Fault("certificate", "certificates rotated", self._rotate, self._look),
        ]

    def _grow(self) -> str | None:
        topic = self._chance.choice(self._topics)
        try:
            count = len(self._admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions)
            if count >= MAX_PARTITIONS:
                return None
            asked = self._admin.create_partitions([NewPartitions(topic, count + 1)], request_timeout=SECONDS)
            asked[topic].result(2 * SECONDS)
        except (KafkaException, TimeoutError):  # a node was just killed: the hand comes back
            return None
        self._note("topic grown", f"{topic} has {count + 1} partitions")
        return topic

    def _rotate(self) -> str | None:
        """New certificates of the streams, and of each node that is there; others read theirs when they start."""
        self._certificates.issue("broker")
        self._certificates.issue("client", ["soak.example"], common_name="soak")
        value = str(self._certificates.file("broker.pem"))
        asked = {}
        for node in self._brokers.cluster.nodes:  # all at once: those that are away take their time together
            entry = ConfigEntry(KEYSTORE, value, incremental_operation=AlterConfigOpType.SET)
            place = ConfigResource(ConfigResource.Type.BROKER, str(node), incremental_configs=[entry])
            asked[node] = self._admin.incremental_alter_configs([place], request_timeout=SECONDS)[place]
        self._asked = []
        for node, answer in asked.items():
            try:
                answer.result(2 * SECONDS)
            except (KafkaException, TimeoutError):
                continue
            self._asked.append(node)
        return ", ".join(f"node {node}" for node in self._asked) or None

    def _look(self) -> None:
        issued = x509.load_pem_x509_certificate(self._certificates.file("broker.crt").read_bytes()).serial_number
        for node in self._asked:
            shown = serial_shown(self._brokers.cluster.ports[node].client, self._certificates)
            text = (
                "does not answer" if shown is None else f"shows the {'new' if shown == issued else 'old'} certificate"
            )
            self._note("certificates rotated", f"a node {text}")
