"""Faults of brokers: three nodes behind a proxy each, whose clients can be cut, delayed, or left without an answer.

Owns: how each fault is done and undone. Must not know: when, or to what end.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from kafka import KafkaAdminClient, TopicPartition

from tests.matrix.clusters import SETTINGS, VERSIONS
from tests.support.kafka_cluster import HOST, KafkaCluster
from tests.support.proxy import Direction, FaultProxy

NODES = 3


class Fault(NamedTuple):
    """`begin` does it and says to whom, or None if it could not be done; `end` undoes it, if there is something to undo."""

    lane: str
    name: str
    begin: Callable[[], str | None]
    end: Callable[[], None] | None = None


class Brokers:
    """A cluster whose clients come through proxies."""

    def __init__(self, cluster: KafkaCluster, proxies: dict[int, FaultProxy], seed: int) -> None:
        self.cluster, self.proxies = cluster, proxies
        self.chance = random.Random(f"brokers {seed}")
        self.victim = 1
        self.down: set[int] = set()
        """Nodes that a fault has ended, or may end, until they are started again."""

    @property
    def inner_servers(self) -> str:
        """Addresses without a proxy, for those who only look on."""
        return ",".join(f"{HOST}:{ports.internal}" for ports in self.cluster.ports.values())

    def faults(self) -> list[Fault]:
        """Return the faults that can happen to one node at a time."""
        kinds = [
            ("killed", self._kill, self._start),
            ("paused", self._pause, self._resume),
            ("clients cut", self._cut, None),
            ("answers late", self._delay, self._heal),
            ("answers lost", self._swallow, self._end_swallow),
            ("leaders moved", self._move_leaders, None),
        ]
        return [Fault("broker", name, self._chosen(begin), end) for name, begin, end in kinds]

    def ended(self) -> dict[int, int]:
        """Node → exit code of those that have ended though no fault is to blame."""
        found = {node: self.cluster.exit_code(node) for node in self.cluster.nodes if node not in self.down}
        return {node: code for node, code in found.items() if code is not None}

    def heal(self) -> None:
        """Start the nodes that have ended, and wait until all are there."""
        for proxy in self.proxies.values():
            proxy.heal()
        for node in self.cluster.nodes:
            if self.cluster.exit_code(node) is not None:
                self.restart(node)
        self.cluster.wait_until_ready()

    def restart(self, node: int) -> None:
        """SIGKILL a node if it still runs, and start it, without a wait."""
        self.cluster.kill(node)
        self.cluster._nodes[node].start()
        self.down.discard(node)

    def _chosen(self, begin: Callable[[], bool | None]) -> Callable[[], str | None]:
        def with_victim() -> str | None:
            self.victim = self.chance.choice(list(self.cluster.nodes))
            return None if begin() is False else f"node {self.victim}"

        return with_victim

    def _kill(self) -> None:
        self.down.add(self.victim)
        self.cluster.kill(self.victim)

    def _start(self) -> None:
        self.restart(self.victim)

    def _pause(self) -> None:
        os.kill(self.cluster.pid(self.victim), signal.SIGSTOP)

    def _resume(self) -> None:
        os.kill(self.cluster.pid(self.victim), signal.SIGCONT)

    def _cut(self) -> None:
        self.proxies[self.victim].cut()

    def _delay(self) -> None:
        self.proxies[self.victim].delay(0.3)

    def _heal(self) -> None:
        self.proxies[self.victim].heal()

    def _swallow(self) -> None:
        self.proxies[self.victim].swallow(Direction.TO_CLIENT)

    def _end_swallow(self) -> None:
        self.proxies[self.victim].heal()
        self.proxies[self.victim].cut()

    def _move_leaders(self) -> bool:
        """The chosen node leads every partition next, also those of the coordinators; whether that was asked for."""
        try:
            admin: Any = KafkaAdminClient(bootstrap_servers=self.inner_servers.split(","), request_timeout_ms=5_000)
        except Exception:  # a node that was just started may not know the others yet
            return False
        try:
            others = [node for node in self.cluster.nodes if node != self.victim]
            found = [
                TopicPartition(topic["name"], partition["partition_index"])
                for topic in admin.describe_topics()
                for partition in topic["partitions"]
            ]
            admin.alter_partition_reassignments({place: [self.victim, *others] for place in found})
            admin.elect_leaders(0, found, raise_errors=False)
        except Exception as error:
            print(f"    leaders were not moved: {error!r}", flush=True)
            return False
        else:
            return True
        finally:
            admin.close()


@contextmanager
def proxied_cluster(
    version: str, seed: int, settings: Mapping[str, str] | None = None, *, frames: bool = True
) -> Iterator[Brokers]:
    """Three nodes, each with a proxy to which clients connect, for a `with` block. Proxies of TLS know no `frames`."""
    proxies = {node: FaultProxy(frames=frames) for node in range(1, NODES + 1)}
    try:
        ports = [proxy.port for proxy in proxies.values()]
        together = {**SETTINGS, **(settings or {})}
        with KafkaCluster(VERSIONS[version], nodes=NODES, settings=together, advertised_ports=ports) as cluster:
            for node, proxy in proxies.items():
                proxy.target = (proxy.host, cluster.ports[node].client)
            yield Brokers(cluster, proxies, seed)
    finally:
        for proxy in proxies.values():
            proxy.close()
