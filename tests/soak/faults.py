"""The faults of a soak beside those of brokers: of queries, topics and certificates.

Owns: how each is done. Must not know: when, or to what end.
"""

from __future__ import annotations

import random
import resource
from collections.abc import Sequence

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions

from tests.matrix.drivers import Driver
from tests.matrix.faults import Brokers, Fault
from tests.soak.streams import Stream
from tests.support.certificates import Certificates

MAX_PARTITIONS = 12
SECONDS = 30
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


class OfDisks:
    """A disk that is full: no file of a node can grow, and its writes fail, as `RLIMIT_FSIZE` makes them (EFBIG for ENOSPC).

    Kafka gives its only folder up and ends. People make place and start it again, as `end` does.
    """

    def __init__(self, brokers: Brokers, chance: random.Random) -> None:
        self._brokers, self._chance = brokers, chance
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
        return f"node {self._victim}"

    def _empty(self) -> None:
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

    def _victim(self) -> tuple[Stream, Driver] | None:
        there = [(each, each.driver) for each in self._streams if each.driver is not None and each.has_settled()]
        return self._chance.choice(there) if there else None

    def _kill_driver(self) -> str | None:
        if (found := self._victim()) is None:
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
        bootstrap: str,
        topics: Sequence[str],
        certificates: Certificates,
        nodes: Sequence[int],
        chance: random.Random,
    ) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 500})
        self._topics, self._certificates, self._nodes, self._chance = topics, certificates, nodes, chance

    def faults(self) -> list[Fault]:
        """Return all of them; a name is what a run can ask for."""
        return [
            Fault("cluster", "topic grown", self._grow),
            Fault("cluster", "certificates rotated", self._rotate),
        ]

    def _grow(self) -> str | None:
        topic = self._chance.choice(self._topics)
        try:
            count = len(self._admin.list_topics(topic, timeout=10).topics[topic].partitions)
            if count >= MAX_PARTITIONS:
                return None
            self._admin.create_partitions([NewPartitions(topic, count + 1)])[topic].result(SECONDS)
        except KafkaException:  # a node was just killed: the hand comes back
            return None
        return topic

    def _rotate(self) -> str | None:
        """New certificates of the streams, and of each node that is there; others read theirs when they start."""
        self._certificates.issue("broker")
        self._certificates.issue("client", ["soak.example"], common_name="soak")
        value = str(self._certificates.file("broker.pem"))
        for node in self._nodes:
            entry = ConfigEntry(KEYSTORE, value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.BROKER, str(node), incremental_configs=[entry])
            try:
                self._admin.incremental_alter_configs([resource], request_timeout=5)[resource].result(SECONDS)
            except KafkaException:
                continue
        return "all"
