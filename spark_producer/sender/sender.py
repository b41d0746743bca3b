"""The sender, which decides on the requests to send, and dispatches their responses.

A step has the order of Kafka's Sender.runOnce. Only the I/O thread calls the sender.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import TYPE_CHECKING, NamedTuple

from spark_producer.accumulator import ProducerBatch, RecordAccumulator
from spark_producer.common.cluster import NO_LEADER, TopicPartition
from spark_producer.common.error_codes import Action, Code
from spark_producer.errors import KafkaTimeout, PyProducerError, UnsupportedVersion, broker_error
from spark_producer.metrics import ProducerMetrics, WriteReport, unread_metrics
from spark_producer.partitioner import NodeLatencies
from spark_producer.protocol import INIT_PRODUCER_ID, METADATA, AnyApi, produce_by_name
from spark_producer.protocol.messages import (
    NO_UUID,
    InitProducerIdResponse,
    MetadataResponse,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from spark_producer.sender.identity import ProducerIdentity
from spark_producer.sender.metadata import Metadata
from spark_producer.sender.network_view import NODE_RECHECK, ClientRequest, NetworkView, RequestBatches
from spark_producer.sender.produce_responses import BatchError, ProduceResponseHandler
from spark_producer.sender.sequences import Sequencer
from spark_producer.sender.settings import SenderSettings

if TYPE_CHECKING:  # only transactional producers import them
    from spark_producer.sender.transactions.manager import TransactionManager
    from spark_producer.sender.transactions.request_loop import TransactionRequestLoop


ID_REMEDIES = (
    "grant this user WRITE on a topic, which is enough since Kafka 2.8 (KIP-679), or IDEMPOTENT_WRITE on the cluster; or set "
    "kafka.enable.idempotence=false"
)
"""Advice for a request for a producer id that the brokers reject."""


class SenderStep(NamedTuple):
    """The requests to send now, at most one for each node, and the time of the next step without an event.

    After a step with requests the caller steps again at once, because a node may accept one more. If `wake_at` is None, the next
    step follows the next event.
    """

    requests: list[ClientRequest]
    wake_at: float | None


class Sender:
    """Returns the requests for its state, an event and the time; it sends nothing itself."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        settings: SenderSettings,
        backoff: Callable[[int], float],
        metrics: ProducerMetrics | None = None,
    ) -> None:
        self.metadata = metadata
        self._incomplete = accumulator.incomplete
        self._drainer = accumulator.drainer
        self._completion = accumulator.completion
        self._settings = settings
        self._identity = ProducerIdentity(accumulator, backoff, enabled=settings.idempotent)
        self.transactions: TransactionManager | None = None
        self._request_loop: TransactionRequestLoop | None = None
        transactional = settings.transactional_id is not None
        if transactional:
            self.transactions, self._request_loop = self._transactional(accumulator, backoff)
        self._sequencer = Sequencer(self._identity, transactional=transactional)
        self._responses = ProduceResponseHandler(
            accumulator,
            metadata,
            self._sequencer,
            settings.retries,
            backoff,
            metrics or unread_metrics(),
            settings.user,
            self.transactions,
        )
        self._counts = self._responses.counts
        self._latencies = NodeLatencies(settings.availability_timeout)
        self.stalled: frozenset[int] = frozenset()
        """the nodes that have accepted no batch for longer than the availability timeout; any thread may read it"""

    def step(self, now: float, network: NetworkView) -> SenderStep:
        """Return all requests that can be sent now. Batches are expired first, so that none of them is sent."""
        if self._incomplete.error is not None:
            return SenderStep([], None)
        if self._request_loop is not None:
            self._request_loop.step(now)
        if self.transactions is None or self.transactions.expires:
            self._responses.expire(now, network.last_error)
        ready = self._drainer.ready(now, self.metadata.cluster)
        if self.transactions is not None:
            self.transactions.set_not_admitted(ready.not_admitted)
        if ready.unknown_leaders or ready.not_admitted:
            self._find_leaders(ready.unknown_leaders, ready.not_admitted, now)
        times: list[float | None] = [ready.next_time]
        requests = self._metadata_or_id_request(now, network, times)
        if self._request_loop is not None and not requests:
            requests = self._request_loop.next_requests(now, network, times)
        if not self._identity.needed:
            used_node = requests[0].node if requests else None
            can_send = {node: node == used_node or _ready(node, now, network, times) for node in ready.nodes}
            self.stalled = self._latencies.observe(now, can_send)
            for node in ready.nodes:
                if can_send[node] and node != used_node:
                    batches = self._drainer.drain(node, self._settings.max_request_size, now)
                    self._counts.drained(batches, now)
                    if batches:
                        requests.append(self._produce(node, batches, now))
        if self.transactions is None or self.transactions.expires:
            times.append(self._incomplete.next_expiry())
        times += (self.metadata.due_at(), self._id_due_at())
        # Requests that are due and could not be sent wait for an event of the network; only later times count.
        return SenderStep(requests, min([time for time in times if time is not None and time > now], default=None))

    def take_report(self) -> WriteReport:
        """Return the report of the records acknowledged since the last call. Call it after a flush."""
        return self._counts.take()

    def _find_leaders(self, topics: Set[str], not_admitted: Set[TopicPartition], now: float) -> None:
        """Request the leaders of partitions that have none, and fail the batches of partitions that no longer exist."""
        if (
            self.transactions is not None and not self.transactions.expires
        ):  # the transaction is deferred, and its rows need no leader yet
            not_admitted = frozenset()
        leader_of = self.metadata.cluster.leader_of
        topics = topics | {tp.topic for tp in not_admitted if leader_of(tp)[0] == NO_LEADER}
        if topics:
            self.metadata.request_leaders(topics, now)
            self._responses.fail_missing(topics, now)

    def _metadata_or_id_request(
        self, now: float, network: NetworkView, times: list[float | None]
    ) -> list[ClientRequest]:
        """Return the request for metadata or for a producer id that is due, at most one. Any node can answer it."""
        metadata_due, id_due = self.metadata.due_at(), self._id_due_at()
        if (metadata_due is None or metadata_due > now) and (id_due is None or id_due > now):
            return []
        if self.metadata.rebootstrap_due(now) or network.all_nodes_unavailable():
            self.metadata.rebootstrap(now)
        node = next((other for other in self.metadata.other_nodes() if network.ready(other)), network.least_loaded())
        if node is None:
            times.append(now + NODE_RECHECK)
        if node is None or not _ready(node, now, network, times):
            return []
        request = self.metadata.request(now, node)
        if forgotten := self.metadata.take_forgotten():
            self._drainer.forget(forgotten)
        if request is not None:
            return [ClientRequest(node, METADATA, request, ())]
        if id_due is not None and id_due <= now:
            return [ClientRequest(node, INIT_PRODUCER_ID, self._identity.request(), ())]
        return []

    def _id_due_at(self) -> float | None:
        """Return the time of the request for a producer id; None before the cluster is known, or if a transaction requests it."""
        return self._identity.due_at() if self.metadata.cluster.nodes and self._request_loop is None else None

    def _transactional(
        self, accumulator: RecordAccumulator, backoff: Callable[[int], float]
    ) -> tuple[TransactionManager, TransactionRequestLoop]:
        """Return the parts of a transactional producer."""
        from spark_producer.sender.transactions.manager import TransactionManager
        from spark_producer.sender.transactions.request_loop import TransactionRequestLoop

        manager = TransactionManager(accumulator, self._identity, self._settings)
        return manager, TransactionRequestLoop(manager, self.metadata, backoff)

    def _produce(self, node: int, batches: list[ProducerBatch], now: float) -> ClientRequest:
        """Return the request with `batches`.

        With the ids of all topics it suits brokers that take ids and those that take names (KIP-516): the connection chooses.
        """
        topics: dict[str, list[ProducePartition]] = {}
        ids: dict[str, bytes] = {}
        stamp = self._sequencer.stamp
        for batch in batches:
            stamp(batch)
            topic, partition = batch.queue.topic_partition
            found = topics.get(topic)
            if found is None:
                found = topics[topic] = []
                info = self.metadata.cluster.topics.get(topic)
                ids[topic] = NO_UUID if info is None else info.topic_id
            batch.topic_id = ids[topic]
            found.append(ProducePartition(partition, batch.data))
        data = tuple([ProduceTopic(topic, ids[topic], tuple(partitions)) for topic, partitions in topics.items()])
        acks, api = self._settings.acks, self._settings.produce
        if self.transactions is not None:
            api = self.transactions.produce_api
            self.transactions.on_produce(now)
        if NO_UUID in ids.values():
            api = produce_by_name(api)
        body = ProduceRequest(self._settings.transactional_id, acks, int(self._settings.timeout * 1000), data)
        return ClientRequest(node, api, body, tuple(batches), acks != 0)

    # --- responses ----------------------------------------------------------------------------------------------------

    def on_completion(
        self, api: AnyApi, batches: RequestBatches, body: object, error: PyProducerError | None, now: float
    ) -> None:
        """Handle the completion of a request: its response, or its error."""
        if self._incomplete.error is not None:
            for batch in batches:
                self._completion.remove_in_flight(batch)
        elif isinstance(body, ProduceResponse):
            self._responses.on_response(batches, body, now)
        elif self._request_loop is not None and self._request_loop.handles(api):
            self._request_loop.on_completion(body, error, now)
        elif isinstance(error, UnsupportedVersion):
            self._completion.abort(error)
            self.on_completion(api, batches, None, None, now)
        elif api is METADATA:
            self._on_metadata(body, now)
        elif api is INIT_PRODUCER_ID:
            self._on_producer_id(body, now)
        elif error is None:
            self._responses.complete_unacknowledged(batches, now)
        else:
            code = Code.REQUEST_TIMED_OUT if isinstance(error, KafkaTimeout) else Code.NETWORK_EXCEPTION
            self._responses.on_failure(batches, BatchError(code, str(error)), now)

    def on_disconnect(self, node: int | None = None) -> None:
        """Request metadata, because a node was disconnected and its partitions may have other leaders now."""
        self.metadata.request_update()
        if self._request_loop is not None and node is not None:
            self._request_loop.on_disconnect(node)

    def _on_metadata(self, body: object, now: float) -> None:
        if isinstance(body, MetadataResponse):
            self.metadata.on_response(body, now)
            if topics := self.metadata.take_recreated():
                self._responses.recreated(topics, now)
        else:
            self.metadata.on_failure(now)

    def _on_producer_id(self, body: object, now: float) -> None:
        code = Code(body.error_code) if isinstance(body, InitProducerIdResponse) else Code.NETWORK_EXCEPTION
        if isinstance(body, InitProducerIdResponse) and not code:
            self._identity.received(body.producer_id, body.producer_epoch)
            self._completion.refresh(self._sequencer.restart_waiting(), now)
        elif Action.RETRY in code.action:
            self._identity.on_failure(now)
        else:
            subject = "the request for a producer id (kafka.enable.idempotence)"
            advice = ID_REMEDIES if code is Code.CLUSTER_AUTHORIZATION_FAILED else ""
            self._completion.abort(broker_error(code, subject, user=self._settings.user, advice=advice))


def _ready(node: int, now: float, network: NetworkView, times: list[float | None]) -> bool:
    """Return whether `node` accepts a request now. If it is in backoff, add the end of that to `times`."""
    if network.ready(node):
        return True
    if pause := network.next_attempt_in(node):
        times.append(now + pause)
    return False
