"""What is done while a process of the sink is stopped at a failpoint: which process is killed, paused, robbed or fails.

Owns: the strikes by their names. Must not know: which of them happen at which failpoint, or their expected results.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from kafka import KafkaAdminClient

from spark_producer.admin import BlockingClient
from spark_producer.common.error_codes import Code
from spark_producer.exactly_once.names import control_id, task_prefix
from spark_producer.network import ConnectionSettings, parse_bootstrap_servers
from spark_producer.protocol import END_TXN, INIT_PRODUCER_ID
from spark_producer.protocol.messages import EndTxnRequest, InitProducerIdRequest
from tests.matrix.clusters import Cluster, coordinator_of, leader_of, open_transactions
from tests.matrix.drivers import Driver, Reached, kill
from tests.support.waiting import poll

DOWN_SECONDS = 4.0
"""Seconds for which a node is down: longer than its session, so that another node leads."""
SECONDS = 30.0
LAST_EPOCH, EPOCHS_LEFT = 32_766, 6


class Strike(NamedTuple):
    """The strikes at a stopped process. `after` says what this process does then, see `Fault`."""

    cluster: Cluster
    topic: str
    sink: str
    driver: Driver
    stopped: Reached
    after: str

    def do(self, victim: str) -> None:
        """Strike as `victim` says: a name, perhaps followed by a number, or several names with `, ` between them."""
        for strike in victim.split(", "):
            name, _, number = strike.rpartition(" ")
            if number.isdigit():
                WITH_NUMBER[name](self, int(number))
            else:
                STRIKES[strike](self)
        if self.driver.process.exit_code is None and not self.driver.answered:
            self.driver.answer()

    def fail(self) -> None:
        """The process goes on with an error."""
        self.driver.answer("raise")

    def kill_it(self) -> None:
        """The process itself."""
        kill(self.stopped.pid)

    def kill_driver(self) -> None:
        """The driver's JVM and its Python; the stopped process dies with it, goes on, or waits as a zombie."""
        if self.after == "zombie":
            # Its parent, Spark's daemon, would end it when the JVM is gone, if it could.
            kill(self.stopped.ancestors[0][0], signal.SIGSTOP)
        elif self.after == "dies":
            kill(self.stopped.pid)
        self.driver.process.kill()  # with its JVM, which is of its group; Python workers are of another
        if self.after == "goes on":
            self.driver.answer()

    def kill_executor(self) -> None:
        """The JVM above the process, which is an executor's."""
        kill(self.stopped.jvm)

    def kill_leader(self) -> None:
        """The node that leads the first partition."""
        self._kill_nodes([leader_of(self.cluster, self.topic, 0)])

    def kill_coordinator(self) -> None:
        """The node that coordinates the driver's transactions."""
        self._kill_nodes([coordinator_of(self.cluster, control_id(self.sink))])

    def kill_all_nodes(self) -> None:
        """Every node."""
        self._kill_nodes(self.cluster.nodes)

    def all_nodes_down(self, seconds: int) -> None:
        """Every node, for a while."""
        self._kill_nodes(self.cluster.nodes, seconds)

    def leader_down(self, seconds: int) -> None:
        """The node that leads the first partition, for a while."""
        self._kill_nodes([leader_of(self.cluster, self.topic, 0)], seconds)

    def _kill_nodes(self, nodes: list[int], seconds: float = DOWN_SECONDS) -> None:
        for node in nodes:
            self.cluster.kill(node)
        if self.after == "goes on":
            self.driver.answer()
            time.sleep(seconds)  # how long the nodes are down
        for node in nodes[:-1]:
            start_beside(self.cluster, node)
        self.cluster.start(nodes[-1])

    def pause(self, seconds: int) -> None:
        """Stop the process for so long that its transactions grow old."""
        kill(self.stopped.pid, signal.SIGSTOP)
        time.sleep(seconds)  # the process is stopped for so long
        kill(self.stopped.pid, signal.SIGCONT)

    def wait(self, seconds: int) -> None:
        """Time passes."""
        time.sleep(seconds)  # that is all

    def hijack_tasks(self) -> None:
        """A foreign producer takes the ids of all open transactions of tasks: it may, if it has the right to write."""
        for name in self._open_tasks():
            hijack(self.cluster.bootstrap_servers, name)

    def hijack_one(self) -> None:
        """The same with one of them."""
        hijack(self.cluster.bootstrap_servers, self._open_tasks()[0])

    def hijack_control(self) -> None:
        """A foreign producer takes the id of the driver."""
        hijack(self.cluster.bootstrap_servers, control_id(self.sink))

    def hijack_control_without_leader(self) -> None:
        """The same while the first partition has no leader, so Kafka 4.3 drops the marker that ends the driver's rows there."""
        node = leader_of(self.cluster, self.topic, 0)
        self.cluster.kill(node)
        self.hijack_control()
        self.cluster.start(node)

    def end_one(self) -> None:
        """Commit one of the tasks' transactions, as a driver that died thereafter."""
        commit(self.cluster.bootstrap_servers, self._open_tasks()[-1])

    def stop_query(self) -> None:
        """`StreamingQuery.stop` has returned before the process goes on, which Spark has given up then."""
        number = self.driver.jobs - 1
        self.driver.stop_query(number)
        poll(lambda: self.driver.outcome(number) is not None, seconds=SECONDS, pause=0.02)

    def add_partitions(self) -> None:
        """The topic gets two more partitions."""
        client = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers, "log_level": 0})
        count = len(client.list_topics(self.topic, timeout=SECONDS).topics[self.topic].partitions)
        client.create_partitions([NewPartitions(self.topic, count + 2)])[self.topic].result(SECONDS)

    def remake_topic(self) -> None:
        """The topic is deleted, and one of the same name is made."""
        client = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers, "log_level": 0})
        count = len(client.list_topics(self.topic, timeout=SECONDS).topics[self.topic].partitions)
        client.delete_topics([self.topic])[self.topic].result(SECONDS)
        poll(lambda: self.topic not in client.list_topics(timeout=SECONDS).topics, seconds=SECONDS, pause=0.05)
        self.cluster.create_topic(self.topic, count)

    def keep_ends(self) -> None:
        """Make a proxy keep a copy of every EndTxn from now on."""
        for proxy in self.cluster.proxies:
            proxy.copy_requests(END_TXN.key)

    def send_ends(self) -> None:
        """The copies arrive."""
        kept = [(proxy, frame) for proxy in self.cluster.proxies for frame in proxy.copies[END_TXN.key]]
        if not kept:
            raise RuntimeError("no end of a transaction was kept, so none can arrive late")
        for proxy, frame in kept:
            proxy.send_again(frame)

    def lose_answer(self, api: int) -> None:
        """The next request of this API is acted on, and its answer lost with the connection."""
        for proxy in self.cluster.proxies:
            proxy.lose_response(api)

    def lose_request(self, api: int) -> None:
        """The next request of this API is lost with the connection."""
        for proxy in self.cluster.proxies:
            proxy.lose_request(api)

    def use_up_epochs(self) -> None:
        """Raise the epoch of the driver's id until it is near its maximum."""
        use_up_epochs(self.cluster.bootstrap_servers, control_id(self.sink))

    def _open_tasks(self) -> list[str]:
        names = open_transactions(self.cluster)
        found = sorted(
            name for name in names if name.startswith(task_prefix(self.sink)) and name != control_id(self.sink)
        )
        if not found:
            raise RuntimeError("no task has a transaction open, so none can be taken or ended")
        return found


STRIKES: dict[str, Callable[[Strike], None]] = {
    "raise": Strike.fail,
    "self": Strike.kill_it,
    "driver": Strike.kill_driver,
    "executor": Strike.kill_executor,
    "leader": Strike.kill_leader,
    "coordinator": Strike.kill_coordinator,
    "all nodes": Strike.kill_all_nodes,
    "hijack tasks": Strike.hijack_tasks,
    "hijack one": Strike.hijack_one,
    "hijack control": Strike.hijack_control,
    "hijack control without leader": Strike.hijack_control_without_leader,
    "end one": Strike.end_one,
    "stop": Strike.stop_query,
    "add partitions": Strike.add_partitions,
    "remake topic": Strike.remake_topic,
    "keep ends": Strike.keep_ends,
    "send ends": Strike.send_ends,
    "use up epochs": Strike.use_up_epochs,
}
WITH_NUMBER: dict[str, Callable[[Strike, int], None]] = {
    "pause": Strike.pause,
    "wait": Strike.wait,
    "all nodes down": Strike.all_nodes_down,
    "leader down": Strike.leader_down,
    "lose answer": Strike.lose_answer,
    "lose request": Strike.lose_request,
}


def hijack(bootstrap: str, transactional_id: str) -> None:
    """InitProducerId by librdkafka, which ends what is open."""
    Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}).init_transactions(
        SECONDS
    )


def commit(bootstrap: str, transactional_id: str) -> None:
    """EndTxn(COMMIT) with the id and epoch that the coordinator names."""
    admin: Any = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
    try:
        found = admin.describe_transactions([transactional_id])[transactional_id]
        feature = admin.describe_features().get("transaction.version", {})
    finally:
        admin.close()
    version = 5 if feature.get("finalized", (0, 0))[1] >= 2 else 4
    settings = ConnectionSettings(tuple(parse_bootstrap_servers(bootstrap)))
    with BlockingClient(settings, timeout=SECONDS) as client:
        client.metadata([])
        body = EndTxnRequest(transactional_id, found.producer_id, found.producer_epoch, True)
        answer = client.request(END_TXN._replace(max_version=version), body, node=found.coordinator_id)
    if answer.error_code:
        raise RuntimeError(f"EndTxn of {transactional_id}: {Code(answer.error_code).name}")


def use_up_epochs(bootstrap: str, transactional_id: str) -> None:
    """InitProducerId until a few epochs are left, before the brokers give another producer id."""
    settings = ConnectionSettings(tuple(parse_bootstrap_servers(bootstrap)))
    with BlockingClient(settings, timeout=SECONDS) as client:
        node = client.metadata([]).brokers[0].node_id  # of a cluster with one node
        while True:
            answer = client.request(INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id, 60_000), node=node)
            if answer.error_code not in (Code.NONE, Code.CONCURRENT_TRANSACTIONS):
                raise RuntimeError(f"InitProducerId: {Code(answer.error_code).name}")
            if answer.producer_epoch >= LAST_EPOCH - EPOCHS_LEFT:
                return


def start_beside(cluster: Cluster, node: int) -> None:
    """Start a node without waiting for it: with all nodes gone none is back before a majority is."""
    real: Any = getattr(cluster, "cluster", None)
    if real is not None:
        real._nodes[node].start()
